/* Why this ends. Sigmoid: let r = b_j - b_i, both biases rational, both logits rational (a dot
 * product of binary floating-point numbers). sigma(l_i) - sigma(l_j) = r means
 *   r + (r+1) e^(-l_i) + (r-1) e^(-l_j) + r e^(-(l_i+l_j)) = 0.
 * By Lindemann-Weierstrass exponentials of distinct rationals are linearly independent over the
 * rationals. Collect equal exponents: if l_i != l_j and neither is 0 nor their sum, all four
 * coefficients must vanish, which r and r+1 cannot. l_i = 0 (or l_j = 0, or l_i = -l_j) merges two
 * terms and leaves coefficients that again cannot all vanish: l_i = 0 gives (2r+1) + (2r-1) e^(-l_j);
 * l_i = -l_j gives 2r + (r+1) e^(-l_i) + (r-1) e^(l_i). So a tie needs l_i = l_j, and then r = 0. Both
 * are tested exactly first; any other difference is non-zero and some precision shows its sign.
 * Softmax: multiply by the denominator, (b_i - b_j) sum_e e^(l_e) + e^(l_i) - e^(l_j) = 0, and
 * collect: the coefficient of e^(l_i) is n_i d + 1 and of e^(l_j) n_j d - 1 with d = b_i - b_j and
 * n the number of experts at that logit; other logits have n d. If l_i != l_j, all vanish only if
 * d = -1/n_i = 1/n_j: impossible. If l_i = l_j, only if d = 0.
 * MPFR's exponents end at -2^30, though: a term below e^-7e8 is [0, tiny], and what hangs on the sum
 * of such terms alone stays undecided. That takes |l| > 7e8 and a bias difference that cancels all
 * else: +-1 (settled before), +-1/2 against a logit 0, with softmax +-1/k against k equal ones.
 * The cap MR_COMPARE_CAP bounds time, not truth: beyond it the answer is `undecided`. */
#include "compare.h"

#include <stdlib.h>

enum { BIAS_BITS = 2200 }; /* holds any sum of a few binary64 numbers exactly */

/* Sets out exactly. */
static enum mr_status logit_value(const struct mr_key *k, const struct mr_logit_source *source,
                                  mpfr_t out)
{
    if (!k->logit.complete) return source->value(source->context, k->expert, out);
    mpfr_set_prec(out, BIAS_BITS);
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
    enum mr_status status = logit_value(a, source, u);
    if (!status) status = logit_value(b, source, v);
    if (!status) *sign = mpfr_cmp(u, v);
    mpfr_clears(u, v, (mpfr_ptr)0);
    return status;
}

/* [lo, hi] around sigma(-|x|), or minus that, at the precision of lo and hi. Keeps its relative accuracy however
 * small it is, so that saturated scores cost no precision. */
static void tail_interval(const mpfr_t x, bool minus, mpfr_t lo, mpfr_t hi)
{
    mpfr_prec_t p = mpfr_get_prec(lo);
    mpfr_t e, d, neg;
    mpfr_inits2(p, e, d, (mpfr_ptr)0);
    mpfr_init2(neg, mpfr_get_prec(x));
    mpfr_abs(neg, x, MPFR_RNDN);
    mpfr_neg(neg, neg, MPFR_RNDN);
    mpfr_exp(e, neg, MPFR_RNDD);
    mpfr_add_ui(d, e, 1, MPFR_RNDU);
    mpfr_div(lo, e, d, MPFR_RNDD); /* e/(1+e) grows with e: both roundings go down */
    mpfr_exp(e, neg, MPFR_RNDU);
    mpfr_add_ui(d, e, 1, MPFR_RNDD);
    mpfr_div(hi, e, d, MPFR_RNDU);
    if (minus) {
        mpfr_swap(lo, hi);
        mpfr_neg(lo, lo, MPFR_RNDN);
        mpfr_neg(hi, hi, MPFR_RNDN);
    }
    mpfr_clears(e, d, neg, (mpfr_ptr)0);
}

static void settle(mpfr_t lo, mpfr_t hi, struct mr_order *out)
{
    if (mpfr_sgn(lo) > 0) out->sign = 1;
    else if (mpfr_sgn(hi) < 0) out->sign = -1;
    else return;
    out->level = MR_LEVEL_MPFR;
    double a = mpfr_get_d(lo, MPFR_RNDN), b = mpfr_get_d(hi, MPFR_RNDN);
    mpfr_sub(hi, hi, lo, MPFR_RNDU);
    out->gap = fabs(a);
    out->radius = mpfr_get_d(hi, MPFR_RNDU) + fabs(a - b) + 0x1p-53 * fabs(a) + 0x1p-1074;
}

/* D = (b_a - b_b) + sigma(l_a) - sigma(l_b), with sigma(l) = [l > 0] -+ sigma(-|l|). */
static enum mr_status sigmoid_by_mpfr(const struct mr_key *a, const struct mr_key *b,
                                      const struct mr_logit_source *source, struct mr_order *out)
{
    mpfr_t x, y, r, lo, hi, a_lo, a_hi, b_lo, b_hi;
    mpfr_inits2(BIAS_BITS, x, y, r, (mpfr_ptr)0);
    mpfr_inits2(128, lo, hi, a_lo, a_hi, b_lo, b_hi, (mpfr_ptr)0);
    enum mr_status status = logit_value(a, source, x);
    if (!status) status = logit_value(b, source, y);
    int above_a = mpfr_sgn(x) > 0, above_b = mpfr_sgn(y) > 0;
    mpfr_set_si(r, above_a - above_b, MPFR_RNDN);
    mpfr_add_d(r, r, a->bias, MPFR_RNDN);
    mpfr_sub_d(r, r, b->bias, MPFR_RNDN);
    /* Rounded once: r and one tail may cancel, and leave a far smaller one. */
    const mpfr_ptr low[] = {r, a_lo, b_lo}, high[] = {r, a_hi, b_hi};
    for (long p = 128; !status && p <= MR_COMPARE_CAP && out->level == MR_LEVEL_UNDECIDED; p *= 2) {
        mpfr_set_prec(lo, p);
        mpfr_set_prec(hi, p);
        mpfr_set_prec(a_lo, p);
        mpfr_set_prec(a_hi, p);
        mpfr_set_prec(b_lo, p);
        mpfr_set_prec(b_hi, p);
        tail_interval(x, above_a, a_lo, a_hi);
        tail_interval(y, !above_b, b_lo, b_hi);
        mpfr_sum(lo, low, 3, MPFR_RNDD);
        mpfr_sum(hi, high, 3, MPFR_RNDU);
        settle(lo, hi, out);
    }
    mpfr_clears(x, y, r, lo, hi, a_lo, a_hi, b_lo, b_hi, (mpfr_ptr)0);
    return status;
}

/* m = the largest logit: no exponential of a difference to it overflows. */
static enum mr_status largest_logit(const struct mr_logit_source *source, mpfr_t v, mpfr_t m)
{
    enum mr_status status = MR_OK;
    for (int e = 0; e < source->experts && !status; e++) {
        status = source->value(source->context, e, v);
        if (status || (e > 0 && !mpfr_greater_p(v, m))) continue;
        mpfr_set_prec(m, mpfr_get_prec(v));
        mpfr_set(m, v, MPFR_RNDN);
    }
    return status;
}

/* [lo, hi] -= or += exp(l - m), outward. */
static void add_exp(const mpfr_t l, const mpfr_t m, bool minus, mpfr_t lo, mpfr_t hi, mpfr_t t)
{
    for (int up = 0; up < 2; up++) {
        mpfr_rnd_t to = up != minus ? MPFR_RNDU : MPFR_RNDD;
        mpfr_sub(t, l, m, to);
        mpfr_exp(t, t, to);
        if (minus) mpfr_sub(up ? hi : lo, up ? hi : lo, t, up ? MPFR_RNDU : MPFR_RNDD);
        else mpfr_add(up ? hi : lo, up ? hi : lo, t, up ? MPFR_RNDU : MPFR_RNDD);
    }
}

/* D times Z, Z = sum_e exp(l_e - m): (b_a - b_b) Z + exp(l_a - m) - exp(l_b - m). */
static enum mr_status softmax_by_mpfr(const struct mr_key *a, const struct mr_key *b,
                                      const struct mr_logit_source *source, struct mr_order *out)
{
    mpfr_t x, y, v, m, d, lo, hi, z_lo, z_hi, t;
    mpfr_inits2(BIAS_BITS, x, y, v, m, d, (mpfr_ptr)0);
    mpfr_inits2(128, lo, hi, z_lo, z_hi, t, (mpfr_ptr)0);
    enum mr_status status = logit_value(a, source, x);
    if (!status) status = logit_value(b, source, y);
    if (!status) status = largest_logit(source, v, m);
    mpfr_set_d(d, a->bias, MPFR_RNDN);
    mpfr_sub_d(d, d, b->bias, MPFR_RNDN);
    for (long p = 128; !status && p <= MR_COMPARE_CAP && out->level == MR_LEVEL_UNDECIDED; p *= 2) {
        mpfr_set_prec(lo, p);
        mpfr_set_prec(hi, p);
        mpfr_set_prec(z_lo, p);
        mpfr_set_prec(z_hi, p);
        mpfr_set_prec(t, p);
        mpfr_set_zero(z_lo, 1);
        mpfr_set_zero(z_hi, 1);
        for (int e = 0; e < source->experts && !status; e++) {
            status = source->value(source->context, e, v);
            if (!status) add_exp(v, m, false, z_lo, z_hi, t);
        }
        if (status) break;
        int up = mpfr_sgn(d) >= 0;
        mpfr_mul(lo, d, up ? z_lo : z_hi, MPFR_RNDD);
        mpfr_mul(hi, d, up ? z_hi : z_lo, MPFR_RNDU);
        add_exp(x, m, false, lo, hi, t);
        add_exp(y, m, true, lo, hi, t);
        if (mpfr_sgn(lo) > 0) {
            mpfr_div(lo, lo, z_hi, MPFR_RNDD);
            mpfr_div(hi, hi, z_lo, MPFR_RNDU);
        } else if (mpfr_sgn(hi) < 0) {
            mpfr_div(lo, lo, z_lo, MPFR_RNDD);
            mpfr_div(hi, hi, z_hi, MPFR_RNDU);
        }
        settle(lo, hi, out);
    }
    mpfr_clears(x, y, v, m, d, lo, hi, z_lo, z_hi, t, (mpfr_ptr)0);
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
    /* Scores lie strictly between 0 and 1: biases 1 apart or more decide alone. */
    bool far = fabs(bias.hi) > 1 || (fabs(bias.hi) == 1 && bias.hi * bias.lo >= 0);
    if (far || out->gap > radius) {
        out->sign = far ? bias_order : d.hi > 0 ? 1 : -1;
        out->level = MR_LEVEL_EXACT;
        return MR_OK;
    }
    out->level = MR_LEVEL_UNDECIDED;
    return score == MR_SCORE_SIGMOID ? sigmoid_by_mpfr(a, b, source, out)
                                     : softmax_by_mpfr(a, b, source, out);
}
