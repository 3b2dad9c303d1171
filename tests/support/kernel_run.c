#include "kernel_run.h"

#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../../gpu/kernels/rank.h"

#if __has_include("../../ref/arith/cuda.h")
#include "../../ref/arith/cuda.h"
static float apply(enum mr_cuda_id id, float x)
{
    mr_cuda_apply(id, &x, 1, &x);
    return x;
}
#define SIGMOID(x)       apply(MR_CUDA_SIGMOID, x)
#define SQRT_SOFTPLUS(x) apply(MR_CUDA_ROOT_FMAXF, x)
#define EXP(x)           apply(MR_CUDA_EXPF, x)
#else
#define SIGMOID(x)       (1.0f / (1.0f + expf(-(x))))
#define SQRT_SOFTPLUS(x) sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))))
#define EXP(x)           expf(x)
#endif

extern const struct mr_plugin moeref_plugin;

const struct mr_kernel *kernel_find(const char *name)
{
    for (uint32_t i = 0; i < moeref_plugin.count; i++)
        if (strcmp(moeref_plugin.kernels[i]->name, name) == 0) return moeref_plugin.kernels[i];
    ck_abort_msg("no kernel %s", name);
    return NULL;
}

enum { CANARY = 64 };

static void *poisoned(size_t bytes, int poison)
{
    char *p = malloc(bytes + CANARY);
    memset(p, poison, bytes + CANARY);
    return p;
}

static void check_canary(const void *p, size_t bytes, int poison, const char *name,
                         const char *what)
{
    for (int i = 0; p && i < CANARY; i++)
        ck_assert_msg(((const unsigned char *)p)[bytes + (size_t)i] == poison,
                      "%s writes behind its %s", name, what);
}

static void run_once(const struct mr_kernel *k, const struct mr_kernel_problem *p,
                     const struct kernel_inputs *in, int poison, struct kernel_run *out)
{
    size_t rows = (size_t)p->rows, n = (size_t)p->router.experts;
    size_t chosen = rows * (size_t)p->router.top_k, most = 0;
    struct mr_kernel_sizes sizes = {0, 0};
    char text[128] = "";
    struct mr_kernel_why why = {text, sizeof text};
    *out = (struct kernel_run){.tile = k->tile};
    if (k->gives & MR_GIVES_LOGITS) out->logits = poisoned(rows * n * 4, poison);
    if (k->gives & MR_GIVES_IDS) out->ids = poisoned(chosen * 4, poison);
    if (k->gives & MR_GIVES_WEIGHTS) out->weights = poisoned(chosen * 4, poison);
    if (k->gives & MR_GIVES_SORTED) {
        size_t tile = (size_t)k->tile;
        most = (chosen + (chosen < n ? chosen : n) * (tile - 1) + tile - 1) / tile * tile;
        out->counts = poisoned(n * 4, poison);
        out->sorted = poisoned(most * 4, poison);
        out->tile_expert = poisoned(most / tile * 4, poison);
        out->total = poisoned(4, poison);
        out->sorted_most = (int64_t)most;
    }
    if (k->sizes) ck_assert_int_eq(k->sizes(p, &sizes, why), MR_KERNEL_OK);
    char *state = poisoned(sizes.state, 0xff), *before = malloc(sizes.state + 1);
    void *handle = NULL;
    char *scratch = poisoned(sizes.scratch, poison);
    struct mr_kernel_buffers b = {.hidden = in->hidden,
                                  .gate = in->gate,
                                  .bias = in->bias,
                                  .gate_bias = in->gate_bias,
                                  .given = in->given,
                                  .logits = out->logits,
                                  .ids = out->ids,
                                  .weights = out->weights,
                                  .counts = out->counts,
                                  .sorted = out->sorted,
                                  .sorted_total = out->total,
                                  .tile_expert = out->tile_expert,
                                  .sorted_most = out->sorted_most,
                                  .state = sizes.state ? state : NULL,
                                  .scratch = scratch};
    if (k->prepare)
        ck_assert_msg(k->prepare(p, &b, NULL, &handle, why) == MR_KERNEL_OK, "%s: %s", k->name,
                      text);
    memcpy(before, state, sizes.state);
    for (int again = 0; again < (sizes.state ? 2 : 1); again++)
        ck_assert_msg(k->launch(handle, p, &b, NULL, why) == MR_KERNEL_OK, "%s: %s", k->name, text);
    ck_assert_mem_eq(before, state, sizes.state);
    if (k->release) k->release(handle);
    check_canary(state, sizes.state, 0xff, k->name, "state");
    check_canary(scratch, sizes.scratch, poison, k->name, "scratch");
    check_canary(out->logits, rows * n * 4, poison, k->name, "logits");
    check_canary(out->ids, chosen * 4, poison, k->name, "ids");
    check_canary(out->weights, chosen * 4, poison, k->name, "weights");
    check_canary(out->counts, n * 4, poison, k->name, "counts");
    check_canary(out->sorted, most * 4, poison, k->name, "sorted");
    if (most) check_canary(out->tile_expert, most / (size_t)k->tile * 4, poison, k->name, "tiles");
    free(scratch);
    free(state);
    free(before);
    if (k->arith) k->arith(p, out->line, sizeof out->line);
}

void kernel_run(const char *name, const struct mr_kernel_router *router, int rows,
                const struct kernel_inputs *in, struct kernel_run *out)
{
    const struct mr_kernel *k = kernel_find(name);
    struct mr_kernel_problem p = {.router = *router,
                                  .rows = rows,
                                  .hidden_type = k->hidden_types,
                                  .gate_type = k->gate_types,
                                  .given_type = k->given_types,
                                  .pdl = 1};
    char text[128] = "";
    struct mr_kernel_why why = {text, sizeof text};
    struct kernel_run again;
    size_t chosen = (size_t)rows * (size_t)router->top_k * 4;
    ck_assert_msg(k->supports(&p, why), "%s: %s", name, text);
    ck_assert(k->max_rows == 0 || rows <= k->max_rows);
    run_once(k, &p, in, 0xcb, out);
    run_once(k, &p, in, 0x5a, &again);
    if (out->logits)
        ck_assert_mem_eq(out->logits, again.logits, (size_t)rows * (size_t)router->experts * 4);
    if (out->ids) ck_assert_mem_eq(out->ids, again.ids, chosen);
    if (out->weights) ck_assert_mem_eq(out->weights, again.weights, chosen);
    if (out->sorted) {
        ck_assert_int_eq(*out->total, *again.total);
        ck_assert_mem_eq(out->counts, again.counts, (size_t)router->experts * 4);
        ck_assert_mem_eq(out->sorted, again.sorted, (size_t)*out->total * 4);
        ck_assert_mem_eq(out->tile_expert, again.tile_expert,
                         (size_t)*out->total / (size_t)out->tile * 4);
    }
    kernel_run_free(&again);
}

void kernel_run_free(struct kernel_run *run)
{
    free(run->logits);
    free(run->ids);
    free(run->weights);
    free(run->counts);
    free(run->sorted);
    free(run->tile_expert);
    free(run->total);
}

static void softmax(const float *x, int n, float *y)
{
    float most = -INFINITY, sums[32] = {0};
    for (int i = 0; i < n; i++) most = fmaxf(most, x[i]);
    for (int i = 0; i < n; i++) y[i] = EXP(x[i] - most);
    for (int i = 0; i < n; i++) sums[i % 32] += y[i];
    for (int d = 16; d > 0; d /= 2)
        for (int i = 0; i < d; i++) sums[i] += sums[i + d];
    for (int i = 0; i < n; i++) y[i] /= sums[0];
}

/* a ranks before b: NaN last; equal values, -0 and +0 too, by the lower id, which is met first. */
static bool above(float a, float b)
{
    return isnan(b) ? !isnan(a) : a > b;
}

static int best(const float *key, const bool *out, int n)
{
    int found = -1;
    for (int i = 0; i < n; i++)
        if (!out[i] && (found < 0 || above(key[i], key[found]))) found = i;
    return found;
}

static void drop_groups(const struct mr_kernel_router *r, const float *key, bool *out)
{
    float value[64];
    bool stays[64] = {false};
    int size = r->experts / r->n_group;
    for (int g = 0; g < r->n_group; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int e = g * size; e < (g + 1) * size; e++) {
            if (key[e] > first) {
                second = first;
                first = key[e];
            } else if (key[e] > second) {
                second = key[e];
            }
        }
        value[g] = r->group_score == MR_KERNEL_MAX ? first : first + second;
    }
    for (int j = 0; j < r->topk_group; j++) stays[best(value, stays, r->n_group)] = true;
    for (int e = 0; e < r->experts; e++) out[e] = !stays[e / size];
}

void stated_route(const struct mr_kernel_router *r, const float *logits, const float *bias,
                  int32_t *ids, float *weights)
{
    float score[1024], key[1024], sum = 0, scale = (float)r->routed_scaling_factor;
    bool out[1024] = {false}, soft = r->rank_by_logit && r->score == MR_KERNEL_SOFTMAX;
    if (r->rank_by_logit)
        memcpy(score, logits, (size_t)r->experts * sizeof *score);
    else if (r->score == MR_KERNEL_SOFTMAX)
        softmax(logits, r->experts, score);
    else
        for (int e = 0; e < r->experts; e++)
            score[e] =
                r->score == MR_KERNEL_SIGMOID ? SIGMOID(logits[e]) : SQRT_SOFTPLUS(logits[e]);
    for (int e = 0; e < r->experts; e++) key[e] = bias ? score[e] + bias[e] : score[e];
    if (r->topk_group < r->n_group) drop_groups(r, key, out);
    for (int j = 0; j < r->top_k; j++) {
        int e = best(key, out, r->experts);
        out[ids[j] = e] = true;
        weights[j] = score[e];
        if (r->rank_by_logit) weights[j] = soft ? EXP(score[e] - score[ids[0]]) : SIGMOID(score[e]);
        sum += weights[j];
    }
    for (int j = 0; j < r->top_k; j++)
        weights[j] = soft                ? weights[j] / sum * scale
                     : r->norm_topk_prob ? weights[j] / (sum + MR_GUARD) * scale
                                         : weights[j] * scale;
}

void expect_sorted(const struct mr_kernel_router *r, int rows, const struct kernel_run *run)
{
    int n = rows * r->top_k, at = 0;
    for (int e = 0; e < r->experts; e++) {
        int count = 0, from = at;
        for (int i = 0; i < n; i++) {
            if (run->ids[i] != e) continue;
            ck_assert_int_lt(at, run->sorted_most);
            ck_assert_msg(run->sorted[at] == i, "expert %d, %d of its positions: %d, not %d", e,
                          count, run->sorted[at], i);
            at++;
            count++;
        }
        for (; at % run->tile != 0; at++) ck_assert_int_eq(run->sorted[at], n);
        for (int t = from / run->tile; t < at / run->tile; t++)
            ck_assert_int_eq(run->tile_expert[t], e);
        ck_assert_int_eq(run->counts[e], count);
    }
    ck_assert_int_eq(*run->total, at);
}
