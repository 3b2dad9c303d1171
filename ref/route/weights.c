#include "weights.h"

#include <stdlib.h>

#include "score.h"

/* Why the plain way serves (at most MR_WEIGHT_ULPS = 4 ulp, in fact below 1.5): scores are within
 * 2^-55 relatively, their sum (positive terms) too, each dd operation adds at most 10 u^2, so the
 * quotient is within 2^-54 + 2^-97; the product with the factor and the rounding to binary64 add
 * 2^-53: 1.5 * 2^-53 relative, at most 1.5 ulp. Softmax's shared error cancels in the quotient; an
 * un-normalised softmax weight needs every logit exact (certify.c makes all experts candidates),
 * and then has the sum's 2^-56 on top.
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

static void plain_weights(const struct mr_certifier *c, const struct mr_token *t, double *weights)
{
    int k = t->router->top_k;
    struct mr_dd sum = {0, 0}, factor = {t->router->routed_scaling_factor, 0};
    for (int i = 0; i < k; i++) sum = mr_dd_add(sum, c->keys[c->order[i]].score);
    for (int i = 0; i < k; i++) {
        struct mr_dd w = c->keys[c->order[i]].score;
        if (t->router->norm_topk_prob) w = mr_dd_div(w, sum);
        weights[i] = mr_dd_mul(w, factor).hi;
    }
}

static enum mr_status value_of(const struct mr_token *t, const struct mr_key *k, mpfr_t out)
{
    if (!k->logit.complete) return t->source.value(t->source.context, k->expert, out);
    mpfr_set_prec(out, 2200);
    mpfr_set_d(out, k->logit.hi, MPFR_RNDN);
    mpfr_add_d(out, out, k->logit.lo, MPFR_RNDN);
    return MR_OK;
}

/* Scores at precision p: sigmoid within 1 ulp; for softmax exp(l - l_0), whose common factor only
 * the un-normalised weight needs (then sum runs over all experts). */
static enum mr_status scores_at(const struct mr_certifier *c, const struct mr_token *t, long p,
                                mpfr_t *score, mpfr_t sum, mpfr_t x, mpfr_t first)
{
    const struct mr_router *r = t->router;
    bool softmax = r->score == MR_SCORE_SOFTMAX, all = softmax && !r->norm_topk_prob;
    enum mr_status status = value_of(t, &c->keys[c->order[0]], first);
    mpfr_set_prec(sum, p);
    mpfr_set_zero(sum, 1);
    for (int i = 0; i < r->top_k && !status; i++) {
        mpfr_set_prec(score[i], p);
        status = value_of(t, &c->keys[c->order[i]], x);
        if (status) break;
        if (softmax) {
            mpfr_sub(score[i], x, first, MPFR_RNDN);
            mpfr_exp(score[i], score[i], MPFR_RNDN);
        } else {
            mr_sigmoid_mpfr(score[i], x);
        }
        if (!all) mpfr_add(sum, sum, score[i], MPFR_RNDN);
    }
    mpfr_t e;
    mpfr_init2(e, p);
    for (int i = 0; all && i < r->experts && !status; i++) {
        status = t->source.value(t->source.context, i, x);
        mpfr_sub(e, x, first, MPFR_RNDN);
        mpfr_exp(e, e, MPFR_RNDN);
        mpfr_add(sum, sum, e, MPFR_RNDN);
    }
    mpfr_clear(e);
    return status;
}

/* Errors: score (1 ulp, and 2^-p |l - l_0| < 2^(40 - p) for softmax), at most 1024 additions, one
 * quotient, one product: 2^-(p - 52) relative is far above all of them. Rounding ends unless the
 * weight lies exactly on a boundary of binary64; after 4096 bits it is taken to do so. */
static enum mr_status exact_weights(const struct mr_certifier *c, const struct mr_token *t,
                                    double *weights)
{
    const struct mr_router *r = t->router;
    enum { MOST = 4096, SLACK = 52 };
    mpfr_t sum, x, first, w, *score = malloc((size_t)r->top_k * sizeof *score);
    if (!score) return MR_ERR_MEMORY;
    for (int i = 0; i < r->top_k; i++) mpfr_init2(score[i], 64);
    mpfr_inits2(64, sum, x, first, w, (mpfr_ptr)0);
    enum mr_status status = MR_OK;
    for (long p = 128; p <= MOST; p *= 2) {
        status = scores_at(c, t, p, score, sum, x, first);
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
    mpfr_clears(sum, x, first, w, (mpfr_ptr)0);
    free(score);
    return status;
}

enum mr_status mr_weights(const struct mr_certifier *c, const struct mr_token *t, double *weights)
{
    if (t->exact_weights || !plain_serves(c, t)) return exact_weights(c, t, weights);
    plain_weights(c, t, weights);
    return MR_OK;
}
