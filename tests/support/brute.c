#include "brute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* EXACT holds any sum of products of binary32 numbers (2^-298 to 2^256, and their number) and any
 * difference of two, WIDE a sum of binary64 numbers as well. */
enum { EXACT = 704, WIDE = 2300, LEAST = 384, MOST = 20480 };

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
    for (int i = 0; v && i < count; i++) mpfr_clear(v[i]);
    free(v);
}

double brute_element(const struct mr_matrix *m, size_t row, size_t column)
{
    bool wide = m->dtype == MR_F32;
    int fraction = wide ? 23 : m->dtype == MR_F16 ? 10 : 7, exponent = m->dtype == MR_F16 ? 5 : 8;
    uint32_t word = 0;
    size_t size = wide ? 4 : 2;
    memcpy(&word, (const char *)m->data + (row * m->cols + column) * size, size);
    int top = (1 << exponent) - 1, e = (int)(word >> fraction) & top;
    double digits = (double)(word & ((1u << fraction) - 1)), sign = word >> (fraction + exponent);
    if (e == top) return digits > 0 ? NAN : sign > 0 ? -HUGE_VAL : HUGE_VAL;
    double v = e ? ldexp(digits + ldexp(1, fraction), e - top / 2 - fraction)
                 : ldexp(digits, 1 - top / 2 - fraction);
    return sign > 0 ? -v : v;
}

static void exact_logits(const struct mr_layer *l, size_t token, struct brute *b)
{
    const struct mr_matrix *in = l->logits.data ? &l->logits : &l->hidden;
    double *x = get(in->cols, sizeof *x);
    for (size_t i = 0; i < in->cols; i++) {
        x[i] = brute_element(in, token, i);
        if (!isfinite(x[i])) b->nonfinite = true;
    }
    for (int e = 0; e < b->experts; e++) {
        mpfr_set_zero(b->logit[e], 1);
        if (b->nonfinite) continue;
        if (l->logits.data)
            mpfr_set_d(b->logit[e], x[e], MPFR_RNDN);
        else
            for (size_t i = 0; i < in->cols; i++) /* 48 bits at most: each product is exact */
                mpfr_add_d(b->logit[e], b->logit[e], x[i] * brute_element(&l->gate, (size_t)e, i),
                           MPFR_RNDN);
    }
    free(x);
}

/* 1 / (1 + exp(-l)) */
static void sigmoid(mpfr_t out, const mpfr_t l)
{
    mpfr_t t;
    mpfr_init2(t, mpfr_get_prec(out));
    mpfr_neg(t, l, MPFR_RNDN);
    mpfr_exp(t, t, MPFR_RNDN);
    mpfr_add_ui(t, t, 1, MPFR_RNDN);
    mpfr_ui_div(out, 1, t, MPFR_RNDN);
    mpfr_clear(t);
}

static int largest(mpfr_t *v, int n)
{
    int m = 0;
    for (int i = 1; i < n; i++)
        if (mpfr_greater_p(v[i], v[m])) m = i;
    return m;
}

/* exp(l_e - max) / sum, each e. */
static void softmax(mpfr_t *out, mpfr_t *logit, int n)
{
    mpfr_t sum, d;
    mpfr_init2(sum, mpfr_get_prec(out[0]));
    mpfr_init2(d, WIDE);
    mpfr_set_zero(sum, 1);
    int m = largest(logit, n);
    for (int e = 0; e < n; e++) {
        mpfr_sub(d, logit[e], logit[m], MPFR_RNDN);
        mpfr_exp(out[e], d, MPFR_RNDN);
        mpfr_add(sum, sum, out[e], MPFR_RNDN);
    }
    for (int e = 0; e < n; e++) mpfr_div(out[e], out[e], sum, MPFR_RNDN);
    mpfr_clears(sum, d, (mpfr_ptr)0);
}

static double bias_of(const struct mr_layer *l, int e)
{
    return l->bias ? l->bias[e] : 0;
}

static bool same_bias(const struct mr_layer *l, int i, int j)
{
    return !(bias_of(l, i) < bias_of(l, j)) && !(bias_of(l, i) > bias_of(l, j));
}

/* Sign of key i - key j, of which at least 80 bits are right; 0 only for an exact tie, or with
 * *close set. Equal biases leave the order to the logits, as scores increase with them. */
static int compare(const struct mr_layer *l, const struct brute *b, int i, int j, bool *close)
{
    if (same_bias(l, i, j)) return mpfr_cmp(b->logit[i], b->logit[j]);
    mpfr_t d, least;
    mpfr_init2(d, mpfr_get_prec(b->key[i]) + 64);
    mpfr_init2(least, 53);
    mpfr_sub(d, b->key[i], b->key[j], MPFR_RNDN);
    mpfr_set_d(least, 2 + fabs(bias_of(l, i)) + fabs(bias_of(l, j)), MPFR_RNDN);
    mpfr_mul_2si(least, least, 80 - (long)mpfr_get_prec(b->key[i]), MPFR_RNDN);
    int sign = mpfr_sgn(d);
    if (mpfr_cmpabs(d, least) <= 0) {
        *close = true;
        sign = 0;
    }
    mpfr_clears(d, least, (mpfr_ptr)0);
    return sign;
}

/* Keys at one precision, and their order by insertion; true if all of it is sure. */
static bool rank_at(const struct mr_layer *l, struct brute *b, mpfr_prec_t p)
{
    bool close = false;
    for (int e = 0; e < b->experts; e++) {
        mpfr_set_prec(b->score[e], p);
        mpfr_set_prec(b->key[e], p);
    }
    if (l->router->score == MR_SCORE_SOFTMAX) softmax(b->score, b->logit, b->experts);
    for (int e = 0; e < b->experts; e++) {
        if (l->router->score == MR_SCORE_SIGMOID) sigmoid(b->score[e], b->logit[e]);
        mpfr_add_d(b->key[e], b->score[e], bias_of(l, e), MPFR_RNDN);
        int at = e;
        for (; at > 0 && compare(l, b, b->order[at - 1], e, &close) < 0; at--)
            b->order[at] = b->order[at - 1];
        b->order[at] = e;
    }
    return !close;
}

/* Normalised sigmoid weights survive scores that MPFR cannot hold (logits of -1e30): all are scaled
 * by exp(-m), m the largest logit. */
static void weigh(const struct mr_layer *l, struct brute *b)
{
    const struct mr_router *r = l->router;
    mpfr_prec_t p = mpfr_get_prec(b->score[0]);
    mpfr_t sum, d;
    mpfr_init2(sum, p);
    mpfr_init2(d, WIDE);
    mpfr_set_zero(sum, 1);
    int m = b->order[0];
    for (int i = 1; i < r->top_k; i++)
        if (mpfr_greater_p(b->logit[b->order[i]], b->logit[m])) m = b->order[i];
    bool scale = r->norm_topk_prob && mpfr_sgn(b->logit[m]) < 0;
    for (int i = 0; i < r->top_k; i++) {
        int e = b->order[i];
        mpfr_set_prec(b->weight[i], p);
        mpfr_set(b->weight[i], b->score[e], MPFR_RNDN);
        if (r->norm_topk_prob && r->score == MR_SCORE_SOFTMAX) {
            mpfr_sub(d, b->logit[e], b->logit[m], MPFR_RNDN);
            mpfr_exp(b->weight[i], d, MPFR_RNDN);
        } else if (scale) { /* e^(l - m) / (1 + e^l) */
            mpfr_exp(b->weight[i], b->logit[e], MPFR_RNDN);
            mpfr_add_ui(b->weight[i], b->weight[i], 1, MPFR_RNDN);
            mpfr_sub(d, b->logit[e], b->logit[m], MPFR_RNDN);
            mpfr_exp(d, d, MPFR_RNDN);
            mpfr_div(b->weight[i], d, b->weight[i], MPFR_RNDN);
        }
        mpfr_add(sum, sum, b->weight[i], MPFR_RNDN);
    }
    for (int i = 0; i < r->top_k; i++) {
        if (r->norm_topk_prob) mpfr_div(b->weight[i], b->weight[i], sum, MPFR_RNDN);
        mpfr_mul_d(b->weight[i], b->weight[i], r->routed_scaling_factor, MPFR_RNDN);
    }
    mpfr_clears(sum, d, (mpfr_ptr)0);
}

static bool equal_keys(const struct mr_layer *l, const struct brute *b, int i, int j)
{
    return same_bias(l, i, j) && mpfr_equal_p(b->logit[i], b->logit[j]);
}

void brute_route(const struct mr_layer *l, size_t token, struct brute *b)
{
    int n = l->router->experts, k = l->router->top_k;
    *b = (struct brute){.experts = n, .top_k = k};
    b->logit = numbers(n, EXACT);
    b->score = numbers(n, LEAST);
    b->key = numbers(n, LEAST);
    b->weight = numbers(k, LEAST);
    b->order = get((size_t)n, sizeof *b->order);
    b->tied = get((size_t)n, sizeof *b->tied);
    mpfr_init2(b->gap, WIDE);
    mpfr_set_zero(b->gap, 1);
    exact_logits(l, token, b);
    if (b->nonfinite) return;
    mpfr_prec_t p = LEAST;
    while (!rank_at(l, b, p) && p < MOST) p *= 4;
    bool close = false;
    if (k < n) {
        int last = b->order[k - 1], next = b->order[k];
        for (int i = 0; i < k; i++) compare(l, b, b->order[i], next, &close);
        for (int i = k; i < n; i++) compare(l, b, last, b->order[i], &close);
        /* Not of keys: equal biases must not cost the precision of small scores. */
        mpfr_sub(b->gap, b->score[last], b->score[next], MPFR_RNDN);
        mpfr_add_d(b->gap, b->gap, bias_of(l, last), MPFR_RNDN);
        mpfr_sub_d(b->gap, b->gap, bias_of(l, next), MPFR_RNDN);
        for (int e = 0; equal_keys(l, b, last, next) && e < n; e++)
            if (equal_keys(l, b, e, last)) b->tied[b->tie_count++] = e;
        for (int i = 0; b->tie_count && i < k; i++)
            b->tie_slots += equal_keys(l, b, b->order[i], last);
    }
    b->unsure = close;
    weigh(l, b);
}

void brute_free(struct brute *b)
{
    drop(b->logit, b->experts);
    drop(b->score, b->experts);
    drop(b->key, b->experts);
    drop(b->weight, b->top_k);
    free(b->order);
    free(b->tied);
    mpfr_clear(b->gap);
    memset(b, 0, sizeof *b);
}

/* value = n * 2^q with the format's spacing q at that size: n is rounded to an integer. */
double brute_round(const mpfr_t value, enum mr_type type)
{
    static const struct {
        int precision, emin, emax;
    } formats[] = {{24, -126, 127}, {8, -126, 127}, {11, -14, 15}};
    int p = formats[type].precision, emin = formats[type].emin;
    if (mpfr_zero_p(value)) return 0;
    long e = mpfr_get_exp(value) - 1, q = (e > emin ? e : emin) - p + 1;
    mpfr_t n;
    mpfr_init2(n, mpfr_get_prec(value));
    mpfr_mul_2si(n, value, -q, MPFR_RNDN);
    mpfr_rint(n, n, MPFR_RNDN); /* ties to even; at most p bits, or 2^p */
    mpfr_mul_2si(n, n, q, MPFR_RNDN);
    double out = mpfr_get_d(n, MPFR_RNDN);
    mpfr_clear(n);
    if (fabs(out) >= ldexp(1, formats[type].emax + 1)) out = out < 0 ? -HUGE_VAL : HUGE_VAL;
    return out;
}

static void emulated_scores(const struct mr_layer *l, const struct brute *b,
                            const struct mr_arith *a, double *score)
{
    int n = b->experts;
    mpfr_t *logit = numbers(n, EXACT), *exact = numbers(n, LEAST);
    bool infinite = false;
    for (int e = 0; e < n; e++) {
        mpfr_set_d(logit[e], brute_round(b->logit[e], a->logits), MPFR_RNDN);
        infinite |= mpfr_inf_p(logit[e]) != 0;
    }
    bool softmaxed = l->router->score == MR_SCORE_SOFTMAX;
    if (softmaxed && !infinite) softmax(exact, logit, n);
    for (int e = 0; e < n; e++) {
        if (!softmaxed) sigmoid(exact[e], logit[e]);
        score[e] = softmaxed && infinite ? NAN : brute_round(exact[e], a->scores);
    }
    drop(logit, n);
    drop(exact, n);
}

/* The share of the emulated weight on experts beyond what a right set holds. */
static void judge(const struct mr_layer *l, const struct brute *b, const struct mr_arith *a,
                  const double *score, struct brute_emulated *out)
{
    const struct mr_router *r = l->router;
    double sum = 0, all = 0, moved = 0;
    int tied = 0, sure = 0;
    for (int i = 0; i < r->top_k; i++) sum += score[out->chosen[i]];
    for (int i = 0; i < r->top_k; i++) {
        int e = out->chosen[i];
        bool in = false, ties = false;
        for (int j = 0; j < r->top_k; j++) in |= b->order[j] == e;
        for (int j = 0; j < b->tie_count; j++) ties |= b->tied[j] == e;
        tied += ties;
        sure += in && !ties;
        mpfr_t w;
        mpfr_init2(w, 200);
        mpfr_set_d(w, score[e], MPFR_RNDN);
        if (r->norm_topk_prob) mpfr_div_d(w, w, sum, MPFR_RNDN);
        mpfr_mul_d(w, w, r->routed_scaling_factor, MPFR_RNDN);
        double v = a->weights == MR_TYPE_FP32 || !mpfr_number_p(w) ? mpfr_get_d(w, MPFR_RNDN)
                                                                   : brute_round(w, a->weights);
        mpfr_clear(w);
        all += v;
        /* Of more tied experts than have a place, the lowest ranked are too many. */
        if ((!in && !ties) || (ties && tied > b->tie_slots)) moved += v;
    }
    out->flip = tied != b->tie_slots || sure != r->top_k - b->tie_slots;
    out->moved = !out->flip ? 0 : all > 0 ? moved / all : 1;
}

void brute_emulate(const struct mr_layer *l, const struct brute *b, const struct mr_arith *a,
                   struct brute_emulated *out)
{
    int n = b->experts, k = b->top_k, have = 0;
    double *score = get((size_t)n, sizeof *score), *key = get((size_t)n, sizeof *key);
    out->chosen = get((size_t)k, sizeof *out->chosen);
    out->key_error = get((size_t)n, sizeof *out->key_error);
    emulated_scores(l, b, a, score);
    mpfr_t v;
    mpfr_init2(v, WIDE);
    for (int e = 0; e < n; e++) {
        if (l->bias) {
            mpfr_set_d(v, l->bias[e], MPFR_RNDN);
            double bias = brute_round(v, a->bias);
            mpfr_set_d(v, score[e], MPFR_RNDN);
            mpfr_add_d(v, v, bias, MPFR_RNDN);
            key[e] = mpfr_number_p(v) ? brute_round(v, MR_TYPE_FP32) : mpfr_get_d(v, MPFR_RNDN);
        } else {
            key[e] = score[e];
        }
        mpfr_d_sub(v, key[e], b->key[e], MPFR_RNDN);
        out->key_error[e] = fabs(mpfr_get_d(v, MPFR_RNDN));
    }
    mpfr_clear(v);
    bool *taken = get((size_t)n, sizeof *taken);
    while (have < k) {
        int best = -1;
        for (int e = 0; e < n; e++)
            if (!taken[e] && (best < 0 || key[e] > key[best])) best = e;
        taken[best] = true;
        out->chosen[have++] = best;
    }
    free(taken);
    judge(l, b, a, score, out);
    free(score);
    free(key);
}

void brute_emulated_free(struct brute_emulated *e)
{
    free(e->chosen);
    free(e->key_error);
}
