#include "small_kernel.h"

#include <math.h>

#include "../../ref/num/num.h"

enum { TOKENS = SMALL_TOKENS, HIDDEN = SMALL_HIDDEN, EXPERTS = SMALL_EXPERTS, K = SMALL_K };

static const struct {
    enum mr_score score;
    enum mr_selection selection;
    enum mr_dtype x, w;
    bool bias, norm;
    int n_group, topk_group;
    enum mr_group_score rule;
} kinds[] = {
    {MR_SCORE_SIGMOID, MR_SELECT_SCORE, MR_BF16, MR_BF16, true, true, 1, 1, MR_GROUP_TOP2_SUM},
    {MR_SCORE_SIGMOID, MR_SELECT_SCORE, MR_F32, MR_F32, false, false, 1, 1, MR_GROUP_TOP2_SUM},
    {MR_SCORE_SOFTMAX, MR_SELECT_SCORE, MR_BF16, MR_BF16, false, true, 1, 1, MR_GROUP_TOP2_SUM},
    {MR_SCORE_SOFTMAX, MR_SELECT_SCORE, MR_F16, MR_BF16, false, false, 1, 1, MR_GROUP_TOP2_SUM},
    {MR_SCORE_SOFTMAX, MR_SELECT_SCORE, MR_F32, MR_BF16, true, true, 1, 1, MR_GROUP_TOP2_SUM},
    {MR_SCORE_SOFTMAX, MR_SELECT_SCORE, MR_BF16, MR_F16, true, false, 1, 1, MR_GROUP_TOP2_SUM},
    {MR_SCORE_SQRT_SOFTPLUS, MR_SELECT_SCORE, MR_BF16, MR_BF16, true, true, 1, 1,
     MR_GROUP_TOP2_SUM},
    {MR_SCORE_SOFTMAX, MR_SELECT_LOGIT, MR_BF16, MR_BF16, false, true, 1, 1, MR_GROUP_TOP2_SUM},
    {MR_SCORE_SIGMOID, MR_SELECT_LOGIT, MR_BF16, MR_BF16, false, false, 1, 1, MR_GROUP_TOP2_SUM},
    {MR_SCORE_SIGMOID, MR_SELECT_SCORE, MR_BF16, MR_BF16, true, true, 6, 3, MR_GROUP_TOP2_SUM},
    {MR_SCORE_SOFTMAX, MR_SELECT_SCORE, MR_BF16, MR_BF16, false, false, 4, 2, MR_GROUP_MAX},
};
const int small_kinds = sizeof kinds / sizeof *kinds;

struct problem *small_problem(int kind, uint64_t *state)
{
    struct problem *p = problem_new(kinds[kind].score, EXPERTS, K, HIDDEN, TOKENS, kinds[kind].x,
                                    kinds[kind].w, kinds[kind].bias);
    p->router.norm_topk_prob = kinds[kind].norm;
    p->router.selection = kinds[kind].selection;
    p->router.n_group = kinds[kind].n_group;
    p->router.topk_group = kinds[kind].topk_group;
    p->router.group_score = kinds[kind].rule;
    p->router.routed_scaling_factor = 2.5;
    problem_fill(&p->layer.hidden, 1, state);
    problem_fill(&p->layer.gate, 0.2, state);
    if (kinds[kind].bias) {
        problem_fill_bias(p, 0.1, state);
        for (int e = 0; e < EXPERTS; e++) p->bias[e] = (float)p->bias[e];
    }
    return p;
}

struct mr_tensor small_view(const void *data, enum mr_dtype dtype, uint64_t cols)
{
    return (struct mr_tensor){.dtype = dtype, .ndim = 2, .shape = {TOKENS, cols}, .data = data,
                              .bytes = TOKENS * cols * mr_dtype_bits(dtype) / 8};
}

static void load(const struct mr_matrix *m, size_t row, float *out)
{
    size_t bytes = HIDDEN * (m->dtype == MR_F32 ? 4 : 2);
    mr_widen_f32((const char *)m->data + row * bytes, m->dtype, HIDDEN, out);
}

static int best_of(const float *v, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (v[i] > v[best]) best = i;
    return best;
}

/* Keys of groups that do not stay become -Inf. */
static void mask_groups(const struct mr_router *r, float *key)
{
    float score[EXPERTS];
    bool stays[EXPERTS] = {false};
    int size = EXPERTS / r->n_group;
    for (int g = 0; g < r->n_group; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int e = g * size; e < (g + 1) * size; e++) {
            second = fmaxf(second, fminf(first, key[e]));
            first = fmaxf(first, key[e]);
        }
        score[g] = r->group_score == MR_GROUP_MAX ? first : first + second;
    }
    for (int n = 0; n < r->topk_group; n++) {
        int g = best_of(score, r->n_group);
        stays[g] = true;
        score[g] = -INFINITY;
    }
    for (int e = 0; e < EXPERTS; e++)
        if (!stays[e / size]) key[e] = -INFINITY;
}

static float score_of(const struct mr_router *r, float logit, float max)
{
    switch (r->score) {
    case MR_SCORE_SIGMOID: return 1 / (1 + expf(-logit));
    case MR_SCORE_SQRT_SOFTPLUS: return sqrtf(logit > 20 ? logit : log1pf(expf(logit)));
    default: return expf(logit - max);
    }
}

static void one_row(const struct problem *p, const float *x, float *logits, int32_t *ids,
                    float *weights)
{
    const struct mr_router *r = &p->router;
    bool by_logit = r->selection == MR_SELECT_LOGIT, softmax = r->score == MR_SCORE_SOFTMAX;
    float key[EXPERTS], score[EXPERTS], w[HIDDEN], sum = 0;
    for (int e = 0; e < EXPERTS; e++) {
        load(&p->layer.gate, (size_t)e, w);
        logits[e] = 0;
        for (int i = 0; i < HIDDEN; i++) logits[e] += x[i] * w[i];
    }
    float max = logits[best_of(logits, EXPERTS)];
    for (int e = 0; e < EXPERTS; e++) {
        score[e] = score_of(r, logits[e], max);
        sum += score[e];
    }
    for (int e = 0; e < EXPERTS; e++) {
        if (softmax && !by_logit) score[e] /= sum;
        key[e] = by_logit ? logits[e] : score[e] + (p->bias ? (float)p->bias[e] : 0);
    }
    if (r->n_group > 1) mask_groups(r, key);
    sum = 0;
    for (int i = 0; i < K; i++) {
        ids[i] = best_of(key, EXPERTS);
        weights[i] = score[ids[i]];
        sum += weights[i];
        key[ids[i]] = -INFINITY;
    }
    for (int i = 0; i < K; i++) {
        if (r->norm_topk_prob || (softmax && by_logit)) weights[i] /= sum;
        weights[i] *= (float)r->routed_scaling_factor;
    }
}

void small_kernel_run(const struct problem *p, struct small_kernel *k)
{
    float x[HIDDEN];
    for (size_t t = 0; t < TOKENS; t++) {
        load(&p->layer.hidden, t, x);
        one_row(p, x, k->logits + t * EXPERTS, k->ids + t * K, k->weights + t * K);
    }
    k->observed = (struct mr_observed){.source = "kernel", .rows = TOKENS, .tokens = TOKENS,
                                       .ids = small_view(k->ids, MR_I32, K),
                                       .weights = small_view(k->weights, MR_F32, K),
                                       .non_padded = UINT64_MAX};
}
