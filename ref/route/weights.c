#include "weights.h"

#include <stdlib.h>

#include "score.h"

/* Why the plain way serves (at most MR_WEIGHT_ULPS = 4 ulp, in fact below 1.5): scores are within
 * 2^-55 relatively, their sum (positive terms) too, each dd operation adds at most 10 u^2, so the
 * quotient is within 2^-54 + 2^-97; the product with the factor and the rounding to binary64 add
 * 2^-53: 1.5 * 2^-53 relative, at most 1.5 ulp. An un-normalised softmax weight needs every logit
 * exact (certify.c makes all experts candidates), and then has the sum's 2^-56 on top. A normalised
 * one is made of the selected logits alone: the scores in keys depend, within their error, on the
 * filter, and so would the last bit of the weights on the machine.
 * It does not serve scores near underflow, or logits that hi + lo does not hold to 2^-60 absolute:
 * those go to MPFR. */
static bool plain_serves(const struct mr_certifier *c, const struct mr_token *t)
{
    for (int i = 0; i < t->router->top_k; i++) {
        const struct mr_key *k = &c->keys[c->order[i]];
        if (!(k->score.hi > 0x1p-900)) return false;
        if (!k->logit.complete && fabs(k->logit.hi) > 0x1p40) return false;
    }
    return true;
}

/* The index in order[0..count) of the largest logit, but for what hi and lo leave out. */
static int largest_logit(const struct mr_certifier *c, int count)
{
    int m = 0;
    for (int i = 1; i < count; i++) {
        const struct mr_exact *l = &c->keys[c->order[i]].logit, *most = &c->keys[c->order[m]].logit;
        if (l->hi > most->hi || (!(l->hi < most->hi) && l->lo > most->lo)) m = i;
    }
    return m;
}

static void plain_weights(const struct mr_certifier *c, const struct mr_token *t, double *weights)
{
    const struct mr_router *r = t->router;
    bool softmax = r->score == MR_SCORE_SOFTMAX, after = r->selection == MR_SELECT_LOGIT;
    bool normalise = r->norm_topk_prob || (softmax && after), afresh = softmax && normalise;
    struct mr_dd sum = {0, 0}, factor = {r->routed_scaling_factor, 0};
    const struct mr_exact *m = &c->keys[c->order[largest_logit(c, r->top_k)]].logit;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < r->top_k; i++) {
            const struct mr_key *k = &c->keys[c->order[i]];
            struct mr_dd w = afresh ? mr_softmax_term(&k->logit, m) : k->score;
            if (!pass) sum = mr_dd_add(sum, w);
            else weights[i] = mr_dd_mul(normalise ? mr_dd_div(w, sum) : w, factor).hi;
        }
}

/* Below, sqrt(log(1 + e^l)) is e^(l/2) within e^l / 4 relatively: less than any precision here. */
#define ROOT_TAIL -1e6

/* Scores at precision p, up to a common factor if they are normalised, which keeps them within
 * MPFR's exponents (a logit may be -1e30): with m the largest logit of those summed, softmax:
 * exp(l - m); sigmoid: exp(l - m) / (1 + exp(l)) if m < 0; sqrt-softplus: exp((l - m) / 2) if
 * m < ROOT_TAIL. The differences are exact. sum is over the
 * selected, or over all experts for softmax without norm_topk_prob. */
static enum mr_status scores_at(const struct mr_certifier *c, const struct mr_token *t, long p,
                                mpfr_t *score, mpfr_t sum, mpfr_t x, mpfr_t most)
{
    const struct mr_router *r = t->router;
    bool softmax = r->score == MR_SCORE_SOFTMAX, all = mr_needs_every_logit(r);
    int m = largest_logit(c, all ? r->experts : r->top_k);
    enum mr_status status = mr_key_logit(&c->keys[c->order[m]], &t->source, most);
    bool root = r->score == MR_SCORE_SQRT_SOFTPLUS;
    bool scaled = softmax || (r->norm_topk_prob && mpfr_cmp_d(most, root ? ROOT_TAIL : 0) < 0);
    mpfr_t e, d;
    mpfr_init2(e, p);
    mpfr_init2(d, 2300); /* the difference of two logits, exact */
    mpfr_set_prec(sum, p);
    mpfr_set_zero(sum, 1);
    for (int i = 0; i < (all ? r->experts : r->top_k) && !status; i++) {
        status = mr_key_logit(&c->keys[c->order[i]], &t->source, x);
        if (status) break;
        if (scaled) {
            mpfr_sub(d, x, most, MPFR_RNDN);
            if (root) mpfr_div_2ui(d, d, 1, MPFR_RNDN);
            mpfr_exp(e, d, MPFR_RNDN);
        } else if (root) {
            mr_sqrt_softplus_mpfr(e, x);
        } else {
            mr_sigmoid_mpfr(e, x);
        }
        if (scaled && !softmax && !root) {
            mpfr_set_prec(d, p);
            mpfr_exp(d, x, MPFR_RNDN);
            mpfr_add_ui(d, d, 1, MPFR_RNDN);
            mpfr_div(e, e, d, MPFR_RNDN);
            mpfr_set_prec(d, 2300);
        }
        mpfr_add(sum, sum, e, MPFR_RNDN);
        if (i >= r->top_k) continue;
        mpfr_set_prec(score[i], p);
        mpfr_set(score[i], e, MPFR_RNDN);
    }
    mpfr_clears(e, d, (mpfr_ptr)0);
    return status;
}

/* Errors: score (a few ulp), an addition for each expert, one quotient, one product:
 * 2^-(p - 52) relative is far above all of them. Rounding ends unless the
 * weight lies exactly on a boundary of binary64; after 4096 bits it is taken to do so. */
static enum mr_status exact_weights(const struct mr_certifier *c, const struct mr_token *t,
                                    double *weights)
{
    const struct mr_router *r = t->router;
    enum { MOST = 4096, SLACK = 52 };
    mpfr_t sum, x, most, w, *score = malloc((size_t)r->top_k * sizeof *score);
    if (!score) return MR_ERR_MEMORY;
    for (int i = 0; i < r->top_k; i++) mpfr_init2(score[i], 64);
    mpfr_inits2(64, sum, x, most, w, (mpfr_ptr)0);
    enum mr_status status = MR_OK;
    for (long p = 128; p <= MOST; p *= 2) {
        status = scores_at(c, t, p, score, sum, x, most);
        bool sure = true;
        mpfr_set_prec(w, p);
        bool divide = r->norm_topk_prob || r->score == MR_SCORE_SOFTMAX;
        for (int i = 0; i < r->top_k && !status; i++) {
            if (divide) mpfr_div(w, score[i], sum, MPFR_RNDN);
            else mpfr_set(w, score[i], MPFR_RNDN);
            mpfr_mul_d(w, w, r->routed_scaling_factor, MPFR_RNDN);
            weights[i] = mpfr_get_d(w, MPFR_RNDN);
            if (!mpfr_zero_p(w) && !mpfr_can_round(w, p - SLACK, MPFR_RNDN, MPFR_RNDN, 53))
                sure = false;
        }
        if (sure || status) break;
    }
    for (int i = 0; i < r->top_k; i++) mpfr_clear(score[i]);
    mpfr_clears(sum, x, most, w, (mpfr_ptr)0);
    free(score);
    return status;
}

enum mr_status mr_weights(const struct mr_certifier *c, const struct mr_token *t, double *weights)
{
    if (t->exact_weights || !plain_serves(c, t)) return exact_weights(c, t, weights);
    plain_weights(c, t, weights);
    return MR_OK;
}
