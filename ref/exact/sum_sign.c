#include "sum_sign.h"

/* Intervals of the terms; all of one precision. */
struct room {
    mpfr_t lo, hi, part_lo[MR_SUM_TERMS], part_hi[MR_SUM_TERMS], t, u;
};

static void room_open(struct room *r)
{
    mpfr_inits2(128, r->lo, r->hi, r->t, r->u, (mpfr_ptr)0);
    for (int i = 0; i < MR_SUM_TERMS; i++)
        mpfr_inits2(128, r->part_lo[i], r->part_hi[i], (mpfr_ptr)0);
}

static void room_precision(struct room *r, long p)
{
    mpfr_set_prec(r->lo, p);
    mpfr_set_prec(r->hi, p);
    mpfr_set_prec(r->t, p);
    mpfr_set_prec(r->u, p);
    for (int i = 0; i < MR_SUM_TERMS; i++) {
        mpfr_set_prec(r->part_lo[i], p);
        mpfr_set_prec(r->part_hi[i], p);
    }
}

static void room_close(struct room *r)
{
    mpfr_clears(r->lo, r->hi, r->t, r->u, (mpfr_ptr)0);
    for (int i = 0; i < MR_SUM_TERMS; i++) mpfr_clears(r->part_lo[i], r->part_hi[i], (mpfr_ptr)0);
}

static void negate(mpfr_t lo, mpfr_t hi)
{
    mpfr_swap(lo, hi);
    mpfr_neg(lo, lo, MPFR_RNDN);
    mpfr_neg(hi, hi, MPFR_RNDN);
}

/* [lo, hi] around sigma(-|x|), or minus that, at the precision of lo and hi. Keeps its relative
 * accuracy however small it is, so that saturated scores cost no precision. */
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
    if (minus) negate(lo, hi);
    mpfr_clears(e, d, neg, (mpfr_ptr)0);
}

/* [lo, hi] around sqrt(log(1 + e^x)) = sqrt(max(x, 0) + log1p(e^-|x|)): each step grows with what
 * goes into it, so that roundings down give a lower bound and roundings up an upper one. */
static void sqrt_softplus_interval(const mpfr_t x, bool minus, mpfr_t lo, mpfr_t hi)
{
    mpfr_t away;
    mpfr_init2(away, mpfr_get_prec(x));
    mpfr_abs(away, x, MPFR_RNDN);
    mpfr_neg(away, away, MPFR_RNDN);
    for (int up = 0; up < 2; up++) {
        mpfr_rnd_t to = up ? MPFR_RNDU : MPFR_RNDD;
        mpfr_ptr v = up ? hi : lo;
        mpfr_exp(v, away, to);
        mpfr_log1p(v, v, to);
        if (mpfr_sgn(x) > 0) mpfr_add(v, v, x, to);
        mpfr_sqrt(v, v, to);
    }
    if (minus) negate(lo, hi);
    mpfr_clear(away);
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

/* Terms one by one; sigma(l) = [l > 0] -+ sigma(-|l|), the ones having gone into whole. One
 * rounding of the sum: whole and one tail may cancel, and leave a far smaller one. */
static void sum_apart(enum mr_score score, const struct mr_signed_logit *term, int count,
                      mpfr_ptr whole, struct room *r)
{
    mpfr_ptr low[MR_SUM_TERMS + 1] = {whole}, high[MR_SUM_TERMS + 1] = {whole};
    for (int i = 0; i < count; i++) {
        mpfr_ptr lo = low[i + 1] = r->part_lo[i], hi = high[i + 1] = r->part_hi[i];
        if (score == MR_SCORE_SIGMOID)
            tail_interval(term[i].value, (mpfr_sgn(term[i].value) > 0) == (term[i].sign > 0), lo,
                          hi);
        else
            sqrt_softplus_interval(term[i].value, term[i].sign < 0, lo, hi);
    }
    mpfr_sum(r->lo, low, (unsigned long)count + 1, MPFR_RNDD);
    mpfr_sum(r->hi, high, (unsigned long)count + 1, MPFR_RNDU);
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

/* D times Z, Z = sum_e exp(l_e - m): bias Z + sum of +-exp(l_i - m). Divided by Z once the sign
 * shows. */
static enum mr_status sum_times_z(const struct mr_signed_logit *term, int count, const mpfr_t bias,
                                  const struct mr_logit_source *source, const mpfr_t m, mpfr_t v,
                                  struct room *r)
{
    mpfr_ptr z_lo = r->t, z_hi = r->u, t = r->part_lo[0];
    mpfr_set_zero(z_lo, 1);
    mpfr_set_zero(z_hi, 1);
    for (int e = 0; e < source->experts; e++) {
        enum mr_status status = source->value(source->context, e, v);
        if (status) return status;
        add_exp(v, m, false, z_lo, z_hi, t);
    }
    int up = mpfr_sgn(bias) >= 0;
    mpfr_mul(r->lo, bias, up ? z_lo : z_hi, MPFR_RNDD);
    mpfr_mul(r->hi, bias, up ? z_hi : z_lo, MPFR_RNDU);
    for (int i = 0; i < count; i++) add_exp(term[i].value, m, term[i].sign < 0, r->lo, r->hi, t);
    if (mpfr_sgn(r->lo) > 0) {
        mpfr_div(r->lo, r->lo, z_hi, MPFR_RNDD);
        mpfr_div(r->hi, r->hi, z_lo, MPFR_RNDU);
    } else if (mpfr_sgn(r->hi) < 0) {
        mpfr_div(r->lo, r->lo, z_lo, MPFR_RNDD);
        mpfr_div(r->hi, r->hi, z_hi, MPFR_RNDU);
    }
    return MR_OK;
}

enum mr_status mr_sum_sign(enum mr_score score, const struct mr_signed_logit *term, int count,
                           const mpfr_t bias, const struct mr_logit_source *source,
                           struct mr_order *out)
{
    struct room r;
    mpfr_t whole, v, m;
    enum mr_status status = MR_OK;
    long cap = score == MR_SCORE_SQRT_SOFTPLUS ? MR_COMPARE_CAP_OPEN : MR_COMPARE_CAP;
    room_open(&r);
    mpfr_inits2(MR_SUM_BITS, v, m, (mpfr_ptr)0);
    mpfr_init2(whole, mpfr_get_prec(bias) > MR_SUM_BITS ? mpfr_get_prec(bias) : MR_SUM_BITS);
    mpfr_set(whole, bias, MPFR_RNDN);
    if (score == MR_SCORE_SIGMOID)
        for (int i = 0; i < count; i++)
            if (mpfr_sgn(term[i].value) > 0) mpfr_add_si(whole, whole, term[i].sign, MPFR_RNDN);
    if (score == MR_SCORE_SOFTMAX) status = largest_logit(source, v, m);
    for (long p = 128; !status && p <= cap; p *= 2) {
        room_precision(&r, p);
        if (score == MR_SCORE_SOFTMAX) status = sum_times_z(term, count, bias, source, m, v, &r);
        else sum_apart(score, term, count, whole, &r);
        if (!status) settle(r.lo, r.hi, out);
        if (out->level == MR_LEVEL_MPFR) break;
    }
    mpfr_clears(whole, v, m, (mpfr_ptr)0);
    room_close(&r);
    return status;
}
