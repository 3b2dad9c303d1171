#include "slots.h"

#include <math.h>
#include <string.h>

const char *mr_shared_rule_name(enum mr_shared_rule rule)
{
    static const char *const names[MR_SHARED_RULE_COUNT] = {"sglang", "flashinfer", "hash_topk",
                                                            "vllm"};
    return (unsigned)rule < MR_SHARED_RULE_COUNT ? names[rule] : "?";
}

int mr_shared_slots(const struct mr_shared *s)
{
    switch (s->rule) {
    case MR_SHARED_SGLANG:
    case MR_SHARED_HASH_TOPK: return 1;
    case MR_SHARED_FLASHINFER:
    case MR_SHARED_VLLM: return s->count;
    default: return 0;
    }
}

static enum mr_status check_shared(const struct mr_shared *s, size_t tokens, int top_k,
                                   struct mr_error *err)
{
    double f = s->routed_scaling_factor;
    if ((unsigned)s->rule >= MR_SHARED_RULE_COUNT)
        return mr_fail(err, MR_ERR_VALUE, "shared experts: unknown rule %d", (int)s->rule);
    if (s->experts < 1 || top_k < 1 || top_k > s->experts)
        return mr_fail(err, MR_ERR_VALUE, "shared experts: expected top_k from 1 to experts = %d, "
                       "found %d", s->experts, top_k);
    if (s->count < 1 || s->count > INT32_MAX - s->experts)
        return mr_fail(err, MR_ERR_VALUE, "shared experts: expected 1 or more, found %d", s->count);
    if (!isfinite(f) || (!(f < 0) && !(f > 0)))
        return mr_fail(err, MR_ERR_VALUE,
                       "shared experts: expected a routed_scaling_factor that is "
                       "finite and not 0, found %g",
                       f);
    if (s->rule == MR_SHARED_VLLM && !isfinite(s->shared_expert_weight))
        return mr_fail(err, MR_ERR_VALUE, "shared experts: expected a finite shared_expert_weight, "
                       "found %g", s->shared_expert_weight);
    for (size_t t = 0; s->rule == MR_SHARED_SGLANG && s->offset && t < tokens; t++)
        if (s->offset[t] < 0 || s->offset[t] >= s->count)
            return mr_fail(err, MR_ERR_VALUE,
                           "shared experts: offset [%zu] is %d: expected 0 to %d", t, s->offset[t],
                           s->count - 1);
    return MR_OK;
}

static double shared_weight(const struct mr_shared *s, const double *routed, int top_k)
{
    double sum = 0;
    switch (s->rule) {
    case MR_SHARED_FLASHINFER: return 1;
    case MR_SHARED_VLLM: return s->shared_expert_weight;
    case MR_SHARED_HASH_TOPK: return 1 / s->routed_scaling_factor;
    default: break;
    }
    if (s->norm_topk_prob) return s->on_output ? 1 : 1 / s->routed_scaling_factor;
    for (int i = 0; i < top_k; i++) sum += routed[i];
    return sum / s->routed_scaling_factor;
}

static bool routed_carry_factor(const struct mr_shared *s)
{
    if (s->rule == MR_SHARED_SGLANG) return s->on_output && s->norm_topk_prob;
    return s->rule != MR_SHARED_HASH_TOPK;
}

enum mr_status mr_append_shared(const struct mr_shared *s, size_t tokens, int top_k,
                                const int32_t *ids, const double *weights, int32_t *out_ids,
                                double *out_weights, struct mr_error *err)
{
    enum mr_status status = check_shared(s, tokens, top_k, err);
    if (status) return status;
    int slots = mr_shared_slots(s);
    double factor = routed_carry_factor(s) ? s->routed_scaling_factor : 1;
    for (size_t t = 0; t < tokens; t++) {
        const double *w = weights + t * (size_t)top_k;
        size_t at = t * (size_t)(top_k + slots);
        memcpy(out_ids + at, ids + t * (size_t)top_k, (size_t)top_k * sizeof *ids);
        for (int i = 0; i < top_k; i++) out_weights[at + (size_t)i] = w[i] * factor;
        at += (size_t)top_k;
        for (int j = 0; j < slots; j++) {
            int offset = s->rule == MR_SHARED_SGLANG && s->offset ? s->offset[t] : j;
            out_ids[at + (size_t)j] = (int32_t)(s->experts + offset);
            out_weights[at + (size_t)j] = shared_weight(s, w, top_k);
        }
    }
    return MR_OK;
}

void mr_pad_tokens(enum mr_padding padding, size_t tokens, size_t real, int slots, int32_t *ids,
                   double *weights)
{
    bool minus = padding == MR_PADDING_IDS || padding == MR_PADDING_BOTH;
    bool zero = padding == MR_PADDING_WEIGHTS || padding == MR_PADDING_BOTH;
    for (size_t i = real * (size_t)slots; real < tokens && i < tokens * (size_t)slots; i++) {
        if (minus) ids[i] = -1;
        if (zero && weights) weights[i] = 0;
    }
}

static enum mr_status check_map(const int32_t *map, int length, int limit, bool absent,
                                struct mr_error *err)
{
    for (int e = 0; e < length; e++)
        if (map[e] < (absent ? -1 : 0) || map[e] >= limit)
            return mr_fail(err, MR_ERR_VALUE,
                           "map of expert ids: entry [%d] is %d: expected %d to %d", e, (int)map[e],
                           absent ? -1 : 0, limit - 1);
    return MR_OK;
}

enum mr_status mr_map_ids(const int32_t *map, int length, int limit, bool absent, size_t count,
                          int32_t *ids, struct mr_error *err)
{
    enum mr_status status = check_map(map, length, limit, absent, err);
    for (size_t i = 0; i < count && !status; i++)
        if (ids[i] < -1 || ids[i] >= length)
            status = mr_fail(err, MR_ERR_VALUE,
                             "expert id [%zu] is %d: expected -1 to %d, the end of "
                             "its map",
                             i, (int)ids[i], length - 1);
    for (size_t i = 0; i < count && !status; i++)
        if (ids[i] >= 0) ids[i] = map[ids[i]];
    return status;
}

enum mr_status mr_expert_map(int experts, int first, int count, int32_t *map, struct mr_error *err)
{
    if (first < 0 || count < 0 || experts < 0 || count > experts || first > experts - count)
        return mr_fail(err, MR_ERR_VALUE, "expert map: experts %d to %d + %d - 1 of %d", first,
                       first, count, experts);
    for (int e = 0; e < experts; e++) map[e] = e >= first && e - first < count ? e - first : -1;
    return MR_OK;
}

enum mr_status mr_place_tokens(const struct mr_placement *p, size_t tokens, int slots, int32_t *ids,
                               double *weights, struct mr_error *err)
{
    size_t real = p->real < tokens && p->padding != MR_PADDING_NONE ? p->real : tokens;
    size_t count = real * (size_t)slots, all = tokens * (size_t)slots;
    enum mr_status status = MR_OK;
    if (p->pad_first) mr_pad_tokens(p->padding, tokens, real, slots, ids, weights);
    if (p->map) status = mr_map_ids(p->map, p->logical, p->physical, false, count, ids, err);
    for (size_t i = count; p->map && i < all && !status; i++)
        if (ids[i] >= 0 && ids[i] < p->logical) ids[i] = p->map[ids[i]];
    if (!status && !p->pad_first) mr_pad_tokens(p->padding, tokens, real, slots, ids, weights);
    return status;
}
