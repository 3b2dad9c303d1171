#include "profile_private.h"

#include <math.h>
#include <stdlib.h>

enum mr_status mr_profile_scratch_new(int experts, struct mr_profile_scratch *out)
{
    size_t n = experts > 0 ? (size_t)experts : 1;
    *out = (struct mr_profile_scratch){.experts = experts,
                                       .score = malloc(n * sizeof *out->score),
                                       .key = malloc(n * sizeof *out->key),
                                       .group = malloc(n * sizeof *out->group),
                                       .out = malloc(n * sizeof *out->out)};
    if (out->score && out->key && out->group && out->out) return MR_OK;
    mr_profile_scratch_free(out);
    return MR_ERR_MEMORY;
}

void mr_profile_scratch_free(struct mr_profile_scratch *s)
{
    free(s->score);
    free(s->key);
    free(s->group);
    free(s->out);
    *s = (struct mr_profile_scratch){0};
}

/* Sums are exact in binary64 to well below half an ulp of fp32 for the few thousand terms. */
float mr_sum_once(const float *v, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += v[i];
    return (float)sum;
}

/* Lanes hold the slots, the rest zeros; after xor with 16, 8, 4, 2, 1 all lanes hold one sum. */
static float sum_butterfly(const float *v, int n)
{
    float lane[32] = {0};
    for (int i = 0; i < n; i++) lane[i] = v[i];
    for (int mask = 16; mask > 0; mask /= 2)
        for (int l = 0; l < mask; l++) lane[l] = lane[l] + lane[l + mask];
    return lane[0];
}

/* Lanes of `each` consecutive slots, each added in order; then as above. */
static float sum_vectors(const float *v, int n, int each)
{
    float lane[32] = {0};
    for (int i = 0; i < n; i++) lane[i / each] += v[i];
    return sum_butterfly(lane, (n + each - 1) / each);
}

static float sum_of(const float *v, int n, enum mr_sum_rule rule, enum mr_type logits)
{
    if (rule == MR_SUM_BUTTERFLY && n <= 32) return sum_butterfly(v, n);
    if (rule == MR_SUM_VECTORS && n <= 128) return sum_vectors(v, n, logits == MR_TYPE_FP32 ? 4 : 8);
    if (rule == MR_SUM_FOURS && n <= 128) return sum_vectors(v, n, 4);
    if (rule != MR_SUM_SEQUENTIAL) return mr_sum_once(v, n);
    float sum = 0;
    for (int i = 0; i < n; i++) sum += v[i];
    return sum;
}

static enum mr_type type_of(unsigned char cell, enum mr_type logits)
{
    return cell == MR_PROFILE_FP32 ? MR_TYPE_FP32 : cell == MR_PROFILE_BF16 ? MR_TYPE_BF16 : logits;
}

static bool ranks_logits(const struct mr_profile_row *row)
{
    return row->cell[MR_CELL_RANK].value == MR_RANK_LOGIT;
}

/* What ranks: all scores, or the logits themselves. */
static void fill_scores(const struct mr_profile_row *row, const struct mr_router *router,
                        enum mr_type logits_type, const float *logits, float *score)
{
    enum mr_score_form form = row->cell[MR_CELL_SCORE].value;
    enum mr_type type = type_of(row->cell[MR_CELL_SCORE_TYPE].value, logits_type);
    int n = router->experts;
    if (ranks_logits(row)) {
        for (int e = 0; e < n; e++) score[e] = logits[e];
        return;
    }
    if (mr_form_softmax(form)) mr_profile_softmax(row, logits_type, logits, n, score);
    else mr_form_scores(form, logits, n, score);
    for (int e = 0; e < n; e++) {
        enum mr_nan_rule nan = row->cell[MR_CELL_NAN].value;
        if (nan == MR_NAN_ZERO && !isfinite(score[e])) score[e] = 0;
        if (nan == MR_NAN_INVALID && !isfinite(logits[e])) score[e] = 0;
        score[e] = mr_round_type(score[e], type);
    }
}

static double denominator(float sum, enum mr_guard guard)
{
    switch (guard) {
    case MR_GUARD_POSITIVE: return sum > 0 ? sum : 1;
    case MR_GUARD_EPS_FP32: return sum + 1e-20f;
    case MR_GUARD_EPS_FP64: return (double)sum + 1e-20;
    case MR_GUARD_MAX_EPS: return fmaxf(sum, 1e-20f);
    case MR_GUARD_NEVER: return 1;
    case MR_GUARD_NONE: break;
    }
    return sum;
}

/* What divides: the denominator, a float unless the guard is in binary64. */
struct divisor {
    double d;
    bool divides;
    enum mr_division how;
};

/* One weight. work: the type in which the code computes. */
static float scaled(float w, const struct divisor *by, double factor, enum mr_scaling how,
                    enum mr_type work)
{
    float rsf = (float)factor, d = (float)by->d, q;
    switch (how) {
    case MR_SCALING_FIRST: return w * mr_quotient(rsf, d, by->how);
    case MR_SCALING_FIRST64: return by->divides ? w * (float)(factor / (double)d) : w;
    case MR_SCALING_RECIP: return w * mr_quotient(1.0f, d, by->how) * rsf;
    case MR_SCALING_FACTOR: return by->divides ? w * (mr_quotient(1.0f, d, by->how) * rsf) : w;
    case MR_SCALING_MUL_DIV: return mr_quotient(w * rsf, d, by->how);
    case MR_SCALING_MUL_DIV64:
        q = (float)(w * factor);
        return by->divides ? (float)(q / by->d) : q;
    default: /* LAST; FP64 is the caller's */
        q = by->divides ? mr_round_type(mr_quotient(w, d, by->how), work) : w;
        return mr_round_type(q * rsf, work);
    }
}

/* Scores of the selected, in order, to weights. */
static void finish(const struct mr_profile_row *given, const struct mr_router *router,
                   enum mr_type logits, float *w)
{
    /* Left outside, the factor is 1 in the same form. */
    const struct mr_profile_row asked = mr_profile_asked(given), *row = &asked;
    double factor = mr_profile_scales(given) ? router->routed_scaling_factor : 1;
    int k = router->top_k;
    enum mr_sum_rule order = row->cell[MR_CELL_SUM].value;
    enum mr_guard guard = row->cell[MR_CELL_GUARD].value;
    enum mr_scaling how = row->cell[MR_CELL_SCALING].value;
    enum mr_type work = type_of(row->cell[MR_CELL_SCORE_TYPE].value, logits);
    enum mr_type output = type_of(row->cell[MR_CELL_OUTPUT].value, logits);
    struct divisor by = {1, router->norm_topk_prob && !ranks_logits(row) && guard != MR_GUARD_NEVER,
                         row->cell[MR_CELL_DIVISION].value};
    if (by.divides) by.d = denominator(mr_round_type(sum_of(w, k, order, logits), work), guard);
    for (int i = 0; i < k; i++) {
        if (how == MR_SCALING_FP64)
            w[i] = mr_round_type(w[i] * factor / by.d, output);
        else
            w[i] = mr_round_type(scaled(w[i], &by, factor, how, work), output);
    }
}

static bool from_key(const struct mr_profile_row *row, const struct mr_router *router,
                     const struct mr_profile_batch *batch)
{
    enum mr_weight_rule rule = row->cell[MR_CELL_WEIGHT].value;
    int n = router->experts;
    bool block = n > 768 || (n >= 256 && batch->rows <= 1024);
    return rule == MR_WEIGHT_KEY_MINUS_BIAS || (rule == MR_WEIGHT_BY_ROWS && !block);
}

/* The selected experts' own scores; id -1 has none and weighs 0, any other outside is NaN. */
static void gather(const struct mr_profile_row *row, const struct mr_router *router,
                   const struct mr_profile_batch *batch, const float *logits, const float *bias,
                   const float *score, const int32_t *ids, float *w)
{
    int k = router->top_k;
    enum mr_score_form form = row->cell[MR_CELL_SCORE].value;
    for (int i = 0; i < k; i++) {
        bool inside = ids[i] >= 0 && ids[i] < router->experts;
        w[i] = inside ? score[ids[i]] : ids[i] == -1 ? 0 : NAN;
        if (inside && bias && from_key(row, router, batch))
            w[i] = (w[i] + bias[ids[i]]) - bias[ids[i]];
    }
    if (!ranks_logits(row)) return;
    for (int i = 0; i < k; i++)
        w[i] = ids[i] >= 0 && ids[i] < router->experts ? logits[ids[i]] : NAN;
    if (!mr_form_softmax(form)) {
        mr_form_scores(form, w, k, w);
        return;
    }
    mr_exp_below_max(form, w, k, w);
    float sum = sum_of(w, k, row->cell[MR_CELL_SUM].value, batch->logits);
    mr_shares(form, sum, row->cell[MR_CELL_DIVISION].value, k, w);
}

void mr_profile_emulate(const struct mr_profile_row *row, const struct mr_router *router,
                        const struct mr_profile_batch *batch, const float *logits,
                        const float *bias, struct mr_profile_scratch *s, int32_t *ids,
                        float *weights, struct mr_profile_note *note)
{
    struct mr_profile_note own = {0};
    bool uniform;
    fill_scores(row, router, batch->logits, logits, s->score);
    mr_profile_select(row, router, batch, logits, bias, s, ids, &uniform, &own);
    gather(row, router, batch, logits, bias, s->score, ids, weights);
    if (!uniform) finish(row, router, batch->logits, weights);
    for (int i = 0; i < router->top_k; i++) {
        if (uniform) weights[i] = 1.0f / (float)router->top_k;
        if (ids[i] < 0) { /* what the kernel writes where it finds no expert */
            ids[i] = 0;
            own.repeated |= i > 0;
        }
        if (!isfinite(weights[i])) own.nonfinite = true;
    }
    if (note) *note = own;
}

void mr_profile_weigh(const struct mr_profile_row *row, const struct mr_router *router,
                      const struct mr_profile_batch *batch, const float *logits,
                      const float *bias, struct mr_profile_scratch *s, const int32_t *ids,
                      float *weights)
{
    fill_scores(row, router, batch->logits, logits, s->score);
    gather(row, router, batch, logits, bias, s->score, ids, weights);
    for (int i = 0; i < router->top_k; i++)
        if (ids[i] < 0) weights[i] = NAN;
    finish(row, router, batch->logits, weights);
}

enum mr_status mr_profile_route(const struct mr_profile *profile, const struct mr_router *router,
                                const struct mr_profile_batch *batch, const float *logits,
                                const float *bias, int32_t *ids, float *weights,
                                struct mr_profile_note *note, struct mr_error *err)
{
    const struct mr_profile_row *row;
    struct mr_profile_scratch scratch;
    enum mr_status status = mr_router_check(router, profile->name, err);
    if (!status) status = mr_profile_row(profile, router, false, &row, err);
    if (status) return status;
    status = mr_profile_scratch_new(router->experts, &scratch);
    if (status) return mr_fail(err, status, "profile %s: out of memory", profile->name);
    mr_profile_emulate(row, router, batch, logits, bias, &scratch, ids, weights, note);
    mr_profile_scratch_free(&scratch);
    return MR_OK;
}

bool mr_profile_shared_weight(const struct mr_profile_row *row, const struct mr_router *router,
                              float sum, float *weight)
{
    float rsf = (float)router->routed_scaling_factor;
    switch (row->cell[MR_CELL_SHARED].value) {
    case MR_SHARED_SUM_RSF: {
        double d = router->norm_topk_prob ? denominator(sum, row->cell[MR_CELL_GUARD].value) : 1;
        *weight = sum / rsf / (float)d;
        if (mr_profile_scales(row)) *weight *= rsf;
        return true;
    }
    case MR_SHARED_ONE: *weight = 1; return true;
    case MR_SHARED_RECIP_RSF: *weight = 1.0f / rsf; return true;
    case MR_SHARED_EACH_RECIP: *weight = mr_profile_scales(row) ? 1 : 1.0f / rsf; return true;
    default: return false;
    }
}
