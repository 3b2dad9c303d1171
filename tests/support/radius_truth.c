#include "radius_truth.h"

#include <math.h>
#include <mpfr.h>

enum { BITS = 256 };

static void score_of(mpfr_t out, enum mr_score score, double logit)
{
    mpfr_set_d(out, logit, MPFR_RNDN);
    if (score == MR_SCORE_SIGMOID) mpfr_neg(out, out, MPFR_RNDN);
    if (score == MR_SCORE_SOFTMAX) {
        mpfr_exp(out, out, MPFR_RNDN);
    } else if (score == MR_SCORE_SIGMOID) {
        mpfr_exp(out, out, MPFR_RNDN);
        mpfr_add_ui(out, out, 1, MPFR_RNDN);
        mpfr_ui_div(out, 1, out, MPFR_RNDN);
    } else {
        mpfr_exp(out, out, MPFR_RNDN);
        mpfr_log1p(out, out, MPFR_RNDN);
        mpfr_sqrt(out, out, MPFR_RNDN);
    }
}

double truth_score(enum mr_score score, double logit)
{
    mpfr_t s;
    mpfr_init2(s, BITS);
    score_of(s, score, logit);
    double out = mpfr_get_flt(s, MPFR_RNDN);
    mpfr_clear(s);
    return out;
}

/* Round to odd at 24 bits: then rounding to 8 or 11 bits is that of the exact value. */
float truth_odd(enum mr_score score, double logit)
{
    mpfr_t s;
    mpfr_init2(s, BITS);
    score_of(s, score, logit);
    float lo = mpfr_get_flt(s, MPFR_RNDZ), out = lo;
    if (mpfr_cmp_d(s, lo) != 0) {
        int e;
        frexpf(lo, &e);
        float unit = ldexpf(1, e - 24), half = lo / unit / 2;
        if (!(half > floorf(half))) out = lo + unit;
    }
    mpfr_clear(s);
    return out;
}

double truth_key_error(enum mr_score score, double logit, double bias, double got)
{
    mpfr_t s;
    mpfr_init2(s, BITS);
    score_of(s, score, logit);
    mpfr_add_d(s, s, bias, MPFR_RNDN);
    mpfr_sub_d(s, s, got, MPFR_RNDN);
    double out = fabs(mpfr_get_d(s, MPFR_RNDA));
    mpfr_clear(s);
    return out;
}

static void softmax_of(mpfr_t out, const double *logits, int n, int i)
{
    mpfr_t sum, e;
    mpfr_inits2(BITS, sum, e, (mpfr_ptr)0);
    mpfr_set_zero(sum, 1);
    for (int j = 0; j < n; j++) {
        score_of(e, MR_SCORE_SOFTMAX, logits[j]);
        mpfr_add(sum, sum, e, MPFR_RNDN);
    }
    score_of(e, MR_SCORE_SOFTMAX, logits[i]);
    mpfr_div(out, e, sum, MPFR_RNDN);
    mpfr_clears(sum, e, (mpfr_ptr)0);
}

double truth_softmax_error(const double *logits, int n, int i, double bias, double got)
{
    mpfr_t s;
    mpfr_init2(s, BITS);
    softmax_of(s, logits, n, i);
    mpfr_add_d(s, s, bias, MPFR_RNDN);
    mpfr_sub_d(s, s, got, MPFR_RNDN);
    double out = fabs(mpfr_get_d(s, MPFR_RNDA));
    mpfr_clear(s);
    return out;
}

double truth_weight(const struct mr_router *r, const double *logits, int n, int e, int k)
{
    mpfr_t w, sum, s;
    mpfr_inits2(BITS, w, sum, s, (mpfr_ptr)0);
    bool softmax = r->score == MR_SCORE_SOFTMAX;
    if (softmax && !r->norm_topk_prob && r->selection == MR_SELECT_SCORE) {
        softmax_of(w, logits, n, e);
    } else {
        score_of(w, r->score, logits[e]);
        mpfr_set_zero(sum, 1);
        for (int j = 0; j < k; j++) {
            score_of(s, r->score, logits[j]);
            mpfr_add(sum, sum, s, MPFR_RNDN);
        }
        if (softmax || r->norm_topk_prob) mpfr_div(w, w, sum, MPFR_RNDN);
    }
    mpfr_mul_d(w, w, r->routed_scaling_factor, MPFR_RNDN);
    double out = mpfr_get_d(w, MPFR_RNDN);
    mpfr_clears(w, sum, s, (mpfr_ptr)0);
    return out;
}
