#include "brute_groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOGIT_BITS = 760, LEAST = 512, MOST = 4096, SLACK = 64 };

static void *get(size_t count, size_t size)
{
    void *p = calloc(count + 1, size);
    if (!p) abort();
    return p;
}

static mpfr_t *numbers(int count, mpfr_prec_t precision)
{
    mpfr_t *v = get((size_t)count, sizeof *v);
    for (int i = 0; i < count; i++) mpfr_init2(v[i], precision);
    return v;
}

static void drop(mpfr_t *v, int count)
{
    for (int i = 0; i < count; i++) mpfr_clear(v[i]);
    free(v);
}

static void exact_logits(const struct mr_layer *l, size_t token, struct brute_group_truth *b)
{
    for (int e = 0; e < b->experts; e++) {
        mpfr_set_zero(b->logit[e], 1);
        if (l->logits.data) {
            mpfr_set_d(b->logit[e], brute_element(&l->logits, token, (size_t)e), MPFR_RNDN);
            continue;
        }
        for (size_t i = 0; i < l->hidden.cols; i++)
            mpfr_add_d(b->logit[e], b->logit[e],
                       brute_element(&l->hidden, token, i) * brute_element(&l->gate, (size_t)e, i),
                       MPFR_RNDN);
        if (l->gate_bias) mpfr_add_d(b->logit[e], b->logit[e], l->gate_bias[e], MPFR_RNDN);
    }
}

/* e^x / (1 + e^x) and log(1 + e^x), x <= 0; x > 0 by reflection. */
static void one_score(enum mr_score score, const mpfr_t x, mpfr_t out)
{
    mpfr_t e, down;
    mpfr_prec_t p = mpfr_get_prec(out);
    mpfr_init2(e, p);
    mpfr_init2(down, mpfr_get_prec(x));
    mpfr_abs(down, x, MPFR_RNDN);
    mpfr_neg(down, down, MPFR_RNDN);
    mpfr_exp(e, down, MPFR_RNDN);
    if (score == MR_SCORE_SIGMOID) {
        mpfr_add_ui(out, e, 1, MPFR_RNDN);
        if (mpfr_sgn(x) > 0) mpfr_ui_div(out, 1, out, MPFR_RNDN);
        else mpfr_div(out, e, out, MPFR_RNDN);
    } else {
        mpfr_log1p(out, e, MPFR_RNDN);
        if (mpfr_sgn(x) > 0) mpfr_add(out, out, x, MPFR_RNDN);
        mpfr_sqrt(out, out, MPFR_RNDN);
    }
    mpfr_clears(e, down, (mpfr_ptr)0);
}

static void softmax(mpfr_t *logit, const int *of, int n, mpfr_t *out)
{
    mpfr_t d, sum;
    int most = 0;
    mpfr_init2(d, 2 * LOGIT_BITS);
    mpfr_init2(sum, mpfr_get_prec(out[0]));
    mpfr_set_zero(sum, 1);
    for (int i = 1; i < n; i++)
        if (mpfr_greater_p(logit[of[i]], logit[of[most]])) most = i;
    for (int i = 0; i < n; i++) {
        mpfr_sub(d, logit[of[i]], logit[of[most]], MPFR_RNDN);
        mpfr_exp(out[i], d, MPFR_RNDN);
        mpfr_add(sum, sum, out[i], MPFR_RNDN);
    }
    for (int i = 0; i < n; i++) mpfr_div(out[i], out[i], sum, MPFR_RNDN);
    mpfr_clears(d, sum, (mpfr_ptr)0);
}

static void keys_at(const struct mr_layer *l, struct brute_group_truth *b, mpfr_prec_t p)
{
    const struct mr_router *r = l->router;
    int *all = get((size_t)b->experts, sizeof *all);
    for (int e = 0; e < b->experts; e++) {
        mpfr_set_prec(b->score[e], p);
        mpfr_set_prec(b->key[e], p + LOGIT_BITS);
        all[e] = e;
    }
    if (r->score == MR_SCORE_SOFTMAX) softmax(b->logit, all, b->experts, b->score);
    for (int e = 0; e < b->experts; e++) {
        if (r->score != MR_SCORE_SOFTMAX) one_score(r->score, b->logit[e], b->score[e]);
        if (r->selection == MR_SELECT_LOGIT) mpfr_set(b->key[e], b->logit[e], MPFR_RNDN);
        else mpfr_add_d(b->key[e], b->score[e], l->bias ? l->bias[e] : 0, MPFR_RNDN);
    }
    free(all);
}

/* 0 if the two agree to p - SLACK bits of size. */
static int order_of(const mpfr_t a, const mpfr_t b, double size, mpfr_prec_t p)
{
    mpfr_t d, least;
    mpfr_init2(d, p + 2 * LOGIT_BITS);
    mpfr_init2(least, 53);
    mpfr_sub(d, a, b, MPFR_RNDN);
    mpfr_set_d(least, size, MPFR_RNDN);
    mpfr_mul_2si(least, least, SLACK - (long)p, MPFR_RNDN);
    int sign = mpfr_cmpabs(d, least) <= 0 ? 0 : mpfr_sgn(d);
    mpfr_clears(d, least, (mpfr_ptr)0);
    return sign;
}

static double size_of(const struct mr_layer *l, const struct brute_group_truth *b)
{
    double size = 1;
    if (l->router->selection == MR_SELECT_LOGIT) return 0; /* exact */
    for (int e = 0; e < b->experts; e++) {
        double k = fabs(mpfr_get_d(b->score[e], MPFR_RNDN));
        if (k > size) size = k;
    }
    return size; /* biases are exact */
}

/* Sorts index[0..n) by value, descending, equal ones by lowest index. */
static void sort(mpfr_t *value, int *index, int n, double size, mpfr_prec_t p, bool *close)
{
    for (int i = 0; i < n; i++)
        for (int j = i; j > 0; j--) {
            int o = order_of(value[index[j - 1]], value[index[j]], size, p);
            if (o == 0) *close = true;
            if (o > 0 || (o == 0 && index[j - 1] < index[j])) break;
            int t = index[j];
            index[j] = index[j - 1];
            index[j - 1] = t;
        }
}

static void score_groups(const struct mr_router *r, struct brute_group_truth *b, double size,
                         mpfr_prec_t p, bool *close)
{
    int per = b->experts / b->groups, *in = get((size_t)per, sizeof *in);
    for (int g = 0; g < b->groups; g++) {
        for (int i = 0; i < per; i++) in[i] = g * per + i;
        sort(b->key, in, per, size, p, close);
        mpfr_set_prec(b->group[g], p + 2 * LOGIT_BITS);
        mpfr_set(b->group[g], b->key[in[0]], MPFR_RNDN);
        if (r->group_score == MR_GROUP_TOP2_SUM && per > 1)
            mpfr_add(b->group[g], b->group[g], b->key[in[1]], MPFR_RNDN);
    }
    free(in);
}

static int ties_at(mpfr_t *value, const int *index, int n, int cut, double size, mpfr_prec_t p,
                   int *tied, int *slots, mpfr_t gap)
{
    int count = 0, universe = 0;
    *slots = 0;
    mpfr_set_prec(gap, p + 2 * LOGIT_BITS);
    mpfr_set_inf(gap, 1);
    if (cut >= n) return 0;
    mpfr_sub(gap, value[index[cut - 1]], value[index[cut]], MPFR_RNDN);
    if (order_of(value[index[cut - 1]], value[index[cut]], size, p)) return 0;
    mpfr_set_zero(gap, 1);
    for (int i = 0; i < n; i++)
        if (index[i] >= universe) universe = index[i] + 1;
    for (int e = 0; e < universe; e++)
        for (int i = 0; i < n; i++) {
            if (index[i] != e || order_of(value[e], value[index[cut - 1]], size, p)) continue;
            tied[count++] = e;
            *slots += i < cut;
        }
    return count;
}

static bool rank_at(const struct mr_layer *l, const bool *stays, mpfr_prec_t p,
                    struct brute_group_truth *b)
{
    const struct mr_router *r = l->router;
    bool close = false;
    int *by = get((size_t)b->groups, sizeof *by), per = b->experts / b->groups;
    keys_at(l, b, p);
    double size = size_of(l, b);
    for (int g = 0; g < b->groups; g++) by[g] = g;
    score_groups(r, b, size, p, &close);
    sort(b->group, by, b->groups, 2 * size, p, &close);
    b->group_tie_count = ties_at(b->group, by, b->groups, r->topk_group, 2 * size, p, b->group_tied,
                                 &b->group_tie_slots, b->group_gap);
    for (int i = 0; i < b->groups; i++) b->stays[by[i]] = stays ? stays[by[i]] : i < r->topk_group;
    b->ranked = 0;
    for (int e = 0; e < b->experts; e++)
        if (b->stays[e / per]) b->order[b->ranked++] = e;
    sort(b->key, b->order, b->ranked, size, p, &close);
    b->tie_count = ties_at(b->key, b->order, b->ranked, b->top_k, size, p, b->tied, &b->tie_slots,
                           b->gap);
    free(by);
    return !close;
}

static void weigh(const struct mr_router *r, struct brute_group_truth *b)
{
    mpfr_t sum;
    mpfr_prec_t p = mpfr_get_prec(b->score[0]);
    mpfr_init2(sum, p);
    mpfr_set_zero(sum, 1);
    for (int i = 0; i < b->top_k; i++) {
        mpfr_set_prec(b->weight[i], p);
        mpfr_set(b->weight[i], b->score[b->order[i]], MPFR_RNDN);
    }
    bool apart =
        r->score == MR_SCORE_SOFTMAX && (r->selection == MR_SELECT_LOGIT || r->norm_topk_prob);
    if (apart) softmax(b->logit, b->order, b->top_k, b->weight);
    for (int i = 0; i < b->top_k; i++) mpfr_add(sum, sum, b->weight[i], MPFR_RNDN);
    for (int i = 0; i < b->top_k; i++) {
        if (r->norm_topk_prob && !apart) mpfr_div(b->weight[i], b->weight[i], sum, MPFR_RNDN);
        mpfr_mul_d(b->weight[i], b->weight[i], r->routed_scaling_factor, MPFR_RNDN);
    }
    mpfr_clear(sum);
}

void brute_groups_route(const struct mr_layer *l, size_t token, const bool *stays,
                        struct brute_group_truth *b)
{
    const struct mr_router *r = l->router;
    int n = r->experts, g = r->n_group;
    *b = (struct brute_group_truth){.experts = n, .groups = g, .top_k = r->top_k};
    b->logit = numbers(n, LOGIT_BITS);
    b->key = numbers(n, LEAST);
    b->score = numbers(n, LEAST);
    b->group = numbers(g, LEAST);
    b->weight = numbers(b->top_k, LEAST);
    b->stays = get((size_t)g, sizeof *b->stays);
    b->order = get((size_t)n, sizeof *b->order);
    b->tied = get((size_t)n, sizeof *b->tied);
    b->group_tied = get((size_t)g, sizeof *b->group_tied);
    mpfr_inits2(64, b->gap, b->group_gap, (mpfr_ptr)0);
    exact_logits(l, token, b);
    if (!rank_at(l, stays, LEAST, b)) rank_at(l, stays, MOST, b);
    weigh(r, b);
}

void brute_groups_free(struct brute_group_truth *b)
{
    drop(b->logit, b->experts);
    drop(b->key, b->experts);
    drop(b->score, b->experts);
    drop(b->group, b->groups);
    drop(b->weight, b->top_k);
    free(b->stays);
    free(b->order);
    free(b->tied);
    free(b->group_tied);
    mpfr_clears(b->gap, b->group_gap, (mpfr_ptr)0);
}
