/* Why this ends. Sigmoid: let r = b_j - b_i, both biases rational, both logits rational (a dot
 * product of binary floating-point numbers). sigma(l_i) - sigma(l_j) = r means
 *   r + (r+1) e^(-l_i) + (r-1) e^(-l_j) + r e^(-(l_i+l_j)) = 0.
 * By Lindemann-Weierstrass exponentials of distinct rationals are linearly independent over the
 * rationals. Collect equal exponents: if l_i != l_j and neither is 0 nor their sum, all four
 * coefficients must vanish, which r and r+1 cannot. l_i = 0 (or l_j = 0, or l_i = -l_j) merges two
 * terms and leaves coefficients that again cannot all vanish: l_i = 0 gives (2r+1) + (2r-1)
 * e^(-l_j); l_i = -l_j gives 2r + (r+1) e^(-l_i) + (r-1) e^(l_i). So a tie needs l_i = l_j, and
 * then r = 0. Both are tested exactly first; any other difference is non-zero and some precision
 * shows its sign. Softmax: multiply by the denominator, (b_i - b_j) sum_e e^(l_e) + e^(l_i) -
 * e^(l_j) = 0, and collect: the coefficient of e^(l_i) is n_i d + 1 and of e^(l_j) n_j d - 1 with d
 * = b_i - b_j and n the number of experts at that logit; other logits have n d. If l_i != l_j, all
 * vanish only if d = -1/n_i = 1/n_j: impossible. If l_i = l_j, only if d = 0.
 * MPFR's exponents end at -2^30, though: a term below e^-7e8 is [0, tiny], and what hangs on the
 * sum of such terms alone stays undecided. That takes |l| > 7e8 and a bias difference that cancels
 * all else: +-1 (settled before), +-1/2 against a logit 0, with softmax +-1/k against k equal ones.
 * sqrt-softplus: equal biases leave the order to the logits, equal logits to the biases. Otherwise
 * sqrt(log(1 + e^a)) - sqrt(log(1 + e^b)) = r is a statement about logarithms of different numbers
 * under roots, on which Lindemann-Weierstrass is silent (Schanuel's conjecture would help).
 * The caps bound time, not truth: beyond them the answer is `undecided`. */
#include "compare.h"

#include <stdlib.h>

#include "sum_sign.h"

enum mr_status mr_key_logit(const struct mr_key *k, const struct mr_logit_source *source,
                            mpfr_t out)
{
    if (!k->logit.complete) return source->value(source->context, k->expert, out);
    mpfr_set_prec(out, MR_SUM_BITS);
    mpfr_set_d(out, k->logit.hi, MPFR_RNDN);
    mpfr_add_d(out, out, k->logit.lo, MPFR_RNDN);
    return MR_OK;
}

static enum mr_status compare_logits(const struct mr_key *a, const struct mr_key *b,
                                     const struct mr_logit_source *source, int *sign)
{
    const struct mr_exact *x = &a->logit, *y = &b->logit;
    *sign = (x->hi > y->hi) - (x->hi < y->hi);
    if (!*sign) *sign = (x->lo > y->lo) - (x->lo < y->lo);
    /* hi and lo are roundings, so they order as the values do; only equality needs more. */
    if (*sign || (x->complete && y->complete)) return MR_OK;
    mpfr_t u, v;
    mpfr_inits2(64, u, v, (mpfr_ptr)0);
    enum mr_status status = mr_key_logit(a, source, u);
    if (!status) status = mr_key_logit(b, source, v);
    if (!status) *sign = mpfr_cmp(u, v);
    mpfr_clears(u, v, (mpfr_ptr)0);
    return status;
}

enum mr_status mr_compare_logits(const struct mr_key *a, const struct mr_key *b,
                                 const struct mr_logit_source *source, struct mr_order *out)
{
    *out = (struct mr_order){0, MR_LEVEL_TIE, 0, 0};
    enum mr_status status = compare_logits(a, b, source, &out->sign);
    if (status || !out->sign) return status;
    out->level = MR_LEVEL_EXACT;
    const struct mr_exact *x = &a->logit, *y = &b->logit;
    struct mr_dd d = mr_dd_add((struct mr_dd){x->hi, x->lo}, (struct mr_dd){-y->hi, -y->lo});
    out->gap = fabs(d.hi);
    /* The dd sum: 3u^2 of the result; what hi and lo leave out: 2^-106 of each logit. */
    out->radius = 0x1p-53 * out->gap * (1 + 0x1p-40) + 0x1p-1074;
    double left = (x->complete ? 0 : fabs(x->hi)) + (y->complete ? 0 : fabs(y->hi));
    if (left * 0x1p-105 <= 0x1p-90 * out->gap) {
        out->radius += left * 0x1p-105;
        return MR_OK;
    }
    mpfr_t u, v;
    mpfr_inits2(64, u, v, (mpfr_ptr)0);
    status = mr_key_logit(a, source, u);
    if (!status) status = mr_key_logit(b, source, v);
    if (!status) {
        mpfr_prec_round(u, MR_SUM_BITS, MPFR_RNDN);
        mpfr_sub(u, u, v, MPFR_RNDN);
        out->gap = fabs(mpfr_get_d(u, MPFR_RNDN));
        out->radius = 0x1p-53 * out->gap * (1 + 0x1p-40) + 0x1p-1074;
    }
    mpfr_clears(u, v, (mpfr_ptr)0);
    return status;
}

/* For what double-double leaves open. */
static enum mr_status by_mpfr(enum mr_score score, const struct mr_key *a, const struct mr_key *b,
                              const struct mr_logit_source *source, struct mr_order *out)
{
    mpfr_t x, y, r;
    mpfr_inits2(MR_SUM_BITS, x, y, r, (mpfr_ptr)0);
    enum mr_status status = mr_key_logit(a, source, x);
    if (!status) status = mr_key_logit(b, source, y);
    mpfr_set_d(r, a->bias, MPFR_RNDN);
    mpfr_sub_d(r, r, b->bias, MPFR_RNDN);
    const struct mr_signed_logit terms[] = {{x, 1}, {y, -1}};
    if (!status && score == MR_SCORE_SQRT_SOFTPLUS && mpfr_equal_p(x, y)) {
        out->sign = mpfr_sgn(r);
        out->level = MR_LEVEL_EXACT;
        out->gap = fabs(mpfr_get_d(r, MPFR_RNDN));
        out->radius = 0x1p-53 * out->gap + 0x1p-1074;
    } else if (!status) {
        status = mr_sum_sign(score, terms, 2, r, source, out);
    }
    mpfr_clears(x, y, r, (mpfr_ptr)0);
    return status;
}

enum mr_status mr_compare_keys(enum mr_score score, const struct mr_key *a, const struct mr_key *b,
                               double common_rel, const struct mr_logit_source *source,
                               struct mr_order *out)
{
    *out = (struct mr_order){0, MR_LEVEL_TIE, 0, 0};
    int bias_order = (a->bias > b->bias) - (a->bias < b->bias);
    if (!bias_order) {
        enum mr_status status = compare_logits(a, b, source, &out->sign);
        if (status || !out->sign) return status;
        out->level = MR_LEVEL_EXACT; /* scores are strictly increasing in the logit */
    }
    struct mr_dd s = mr_dd_add(a->score, mr_dd_neg(b->score));
    struct mr_dd bias = mr_two_sum(a->bias, -b->bias), d = mr_dd_add(s, bias);
    /* two_sum is exact, each dd sum errs by 3u^2 of its own result: 2^-100 of these covers them and
     * the rounding of this bound. Large biases that cancel cost nothing. */
    double own = a->rel * fabs(a->score.hi) + b->rel * fabs(b->score.hi);
    /* The shared error scales the own ones too; an infinite one would be no bound for s = 0, but the
     * true difference of scores is below 1. */
    double off = common_rel < 1 ? own * (1 + common_rel) + common_rel * fabs(s.hi) : 1 + fabs(s.hi);
    double radius = off + 0x1p-100 * (fabs(s.hi) + fabs(d.hi));
    radius += 0x1p-1000 + 0x1p-50 * radius;
    out->gap = fabs(d.hi);
    out->radius = radius + 0x1p-53 * out->gap;
    if (!bias_order) return MR_OK;
    /* Sigmoid and softmax lie strictly between 0 and 1: biases 1 apart or more decide alone. */
    bool far = score != MR_SCORE_SQRT_SOFTPLUS &&
               (fabs(bias.hi) > 1 || (fabs(bias.hi) == 1 && bias.hi * bias.lo >= 0));
    if (far || out->gap > radius) {
        out->sign = far ? bias_order : d.hi > 0 ? 1 : -1;
        out->level = MR_LEVEL_EXACT;
        return MR_OK;
    }
    out->level = MR_LEVEL_UNDECIDED;
    return by_mpfr(score, a, b, source, out);
}
