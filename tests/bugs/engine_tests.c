#include "engine_tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* |got - want| <= atol + rtol |want|, as torch.allclose: false for a NaN. */
static bool close_to(float got, float want, double rtol, double atol)
{
    return fabs((double)got - (double)want) <= atol + rtol * fabs((double)want);
}

struct slot {
    int32_t id;
    float weight;
};

static int by_id(const void *a, const void *b)
{
    const struct slot *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_weight(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void sorted_slots(const int32_t *ids, const float *weights, int k, struct slot *out)
{
    for (int i = 0; i < k; i++) out[i] = (struct slot){ids[i], weights[i]};
    qsort(out, (size_t)k, sizeof *out, by_id);
}

/* Slots by id: equal ids, weights of equal ids close. */
static bool same_by_id(const struct compared *c, double rtol, double atol)
{
    struct slot want[1024], got[1024];
    for (size_t t = 0; t < c->tokens; t++) {
        size_t at = t * (size_t)c->k;
        sorted_slots(c->want_ids + at, c->want_weights + at, c->k, want);
        sorted_slots(c->got_ids + at, c->got_weights + at, c->k, got);
        for (int i = 0; i < c->k; i++)
            if (want[i].id != got[i].id || !close_to(got[i].weight, want[i].weight, rtol, atol))
                return false;
    }
    return true;
}

static bool ids_in_order(const struct compared *c)
{
    return !memcmp(c->want_ids, c->got_ids, c->tokens * (size_t)c->k * sizeof *c->want_ids);
}

static bool weights_in_order(const struct compared *c, double rtol, double atol)
{
    for (size_t i = 0; i < c->tokens * (size_t)c->k; i++)
        if (!close_to(c->got_weights[i], c->want_weights[i], rtol, atol)) return false;
    return true;
}

/* Weights sorted by themselves: which expert has which is not seen. */
static bool weights_apart(const struct compared *c, double rtol, double atol)
{
    float want[1024], got[1024];
    size_t k = (size_t)c->k;
    for (size_t t = 0; t < c->tokens; t++) {
        memcpy(want, c->want_weights + t * k, k * sizeof *want);
        memcpy(got, c->got_weights + t * k, k * sizeof *got);
        qsort(want, k, sizeof *want, by_weight);
        qsort(got, k, sizeof *got, by_weight);
        for (size_t i = 0; i < k; i++)
            if (!close_to(got[i], want[i], rtol, atol)) return false;
    }
    return true;
}

static bool vllm_routing(const struct compared *c)
{
    return same_by_id(c, 1e-3, 1e-3);
}

static bool vllm_grouped_topk(const struct compared *c)
{
    return ids_in_order(c) && (!c->renormalised || weights_in_order(c, 0, 2e-2));
}

static bool vllm_fused_topk(const struct compared *c)
{
    return ids_in_order(c) && weights_in_order(c, 1e-2, 1e-2);
}

static bool sglang_fused_gate(const struct compared *c)
{
    struct slot want[1024], got[1024];
    for (size_t t = 0; t < c->tokens; t++) {
        size_t at = t * (size_t)c->k;
        sorted_slots(c->want_ids + at, c->want_weights + at, c->k, want);
        sorted_slots(c->got_ids + at, c->got_weights + at, c->k, got);
        for (int i = 0; i < c->k; i++)
            if (want[i].id != got[i].id) return false;
    }
    return weights_apart(c, 1e-2, 1e-3);
}

static bool sglang_kimi(const struct compared *c)
{
    return weights_apart(c, 1e-2, 1e-2);
}

/* Another expert is let pass as a tie if its score is within 0.2 (binary32) of the expected one's;
 * weights of such a token cannot be compared slot by slot. */
static bool flashinfer_dsv3(const struct compared *c)
{
    for (size_t t = 0; t < c->tokens; t++) {
        bool tied = false;
        for (int i = 0; i < c->k; i++) {
            size_t at = t * (size_t)c->k + (size_t)i;
            int want = c->want_ids[at], got = c->got_ids[at];
            if (want == got) continue;
            if (got < 0 || got >= c->experts) return false;
            const float *keys = c->keys + t * (size_t)c->experts;
            if (!(fabsf(keys[want] - keys[got]) < 0.2f)) return false;
            tied = true;
        }
        for (int i = 0; i < c->k && !tied; i++) {
            size_t at = t * (size_t)c->k + (size_t)i;
            if (!close_to(c->got_weights[at], c->want_weights[at], 0.01, 0.01)) return false;
        }
    }
    return true;
}

static bool flashinfer_trtllm(const struct compared *c)
{
    return same_by_id(c, 2e-2, 1e-2);
}

static bool flashinfer_hash(const struct compared *c)
{
    return ids_in_order(c) && weights_in_order(c, 1e-3, 1e-3);
}

static bool router_gemm_cosine(const struct compared *c)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < c->tokens * (size_t)c->experts; i++) {
        double a = c->want_logits[i], b = c->got_logits[i];
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
    return ab > 0.99 * sqrt(aa * bb);
}

static const struct engine_test tests[] = {
    {"vllm-routing", "vllm tests/.../test_routing.py @0103394", vllm_routing},
    {"vllm-grouped-topk", "vllm tests/.../test_grouped_topk.py @01a1265", vllm_grouped_topk},
    {"vllm-fused-topk", "vllm tests/.../test_fused_topk.py @08011e0", vllm_fused_topk},
    {"sglang-fused-gate", "sglang test_moe_fused_gate.py @02d1424", sglang_fused_gate},
    {"sglang-kimi", "sglang test_kimi_k2 @0983bc8", sglang_kimi},
    {"flashinfer-dsv3", "flashinfer tests/.../test_dsv3_fused_routing.py", flashinfer_dsv3},
    {"flashinfer-trtllm", "flashinfer tests/.../test_trtllm_gen_routing.py", flashinfer_trtllm},
    {"flashinfer-hash", "flashinfer tests/.../test_hash_topk.py", flashinfer_hash},
    {"flashinfer-gemm", "flashinfer tests/.../test_router_gemms.py", router_gemm_cosine},
};

const struct engine_test *engine_test_find(const char *name)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (!strcmp(tests[i].name, name)) return &tests[i];
    return NULL;
}
