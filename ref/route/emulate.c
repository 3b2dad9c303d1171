#include "emulate.h"

#include <stdlib.h>
#include <string.h>

#include "../exact/exp_dd.h"
#include "../exact/vmath.h"
#include "keys_simd.h"
#include "score.h"
#include "sqrt_softplus.h"

const struct mr_format *mr_type_format(enum mr_type type)
{
    return type == MR_TYPE_BF16 ? &mr_format_bf16
           : type == MR_TYPE_FP16 ? &mr_format_fp16
                                  : &mr_format_fp32;
}

/* Interval rounding by vectors; it leaves alone what is outside the normal range. */
static size_t round_all(const double *lo, const double *hi, int experts, const struct mr_format *f,
                        float *out, uint8_t *undecided)
{
    return mr_vec_round(lo, hi, (size_t)experts, f->precision, ldexp(1, f->emin), f->largest, out,
                        undecided);
}

/* One rounding of an MPFR value. hi and lo are roundings of it; if they do not make it up, lo is
 * moved towards what is missing, so that their sum lies on the value's side of every rounding
 * boundary of the (at most 24-bit) format. */
static double round_mpfr(const mpfr_t value, const struct mr_format *f)
{
    struct mr_exact x = mr_exact_from_mpfr(value);
    if (!isfinite(x.hi)) return x.hi;
    if (!x.complete) {
        mpfr_t rest;
        mpfr_init2(rest, mpfr_get_prec(value) + 2200);
        mpfr_sub_d(rest, value, x.hi, MPFR_RNDN);
        mpfr_sub_d(rest, rest, x.lo, MPFR_RNDN);
        x.lo = nextafter(x.lo, mpfr_sgn(rest) > 0 ? HUGE_VAL : -HUGE_VAL);
        mpfr_clear(rest);
    }
    return mr_round_sum(x.hi, x.lo, f);
}

enum mr_status mr_stage_logits(const struct mr_token *t, int experts, enum mr_type type,
                               struct mr_stage_scratch *s, float *out)
{
    const struct mr_format *f = mr_type_format(type);
    MR_ISA_PICK(mr_value_intervals)
    (t->logits, t->norm, (size_t)experts, t->scale, t->offset, s->a, s->b);
    if (!round_all(s->a, s->b, experts, f, out, s->undecided)) return MR_OK;
    int count = 0;
    for (int e = 0; e < experts; e++)
        if (s->undecided[e]) s->keys[count++].expert = e;
    enum mr_status status = t->exact(t->source.context, s->keys, count);
    for (int i = 0; i < count && !status; i++) {
        int e = s->keys[i].expert;
        struct mr_exact x = s->keys[i].logit;
        if (x.complete) {
            out[e] = (float)mr_round_sum(x.hi, x.lo, f);
            continue;
        }
        mpfr_t value;
        mpfr_init2(value, 64);
        status = t->source.value(t->source.context, e, value);
        out[e] = (float)round_mpfr(value, f);
        mpfr_clear(value);
    }
    return status;
}

/* true if all of dd * (1 -+ rel) rounds alike. */
static bool round_dd(struct mr_dd v, double rel, const struct mr_format *f, float *out)
{
    double w = rel * v.hi + 0x1p-1070;
    float a = (float)mr_round_sum(v.hi, v.lo - w, f), b = (float)mr_round_sum(v.hi, v.lo + w, f);
    *out = a;
    return memcmp(&a, &b, sizeof a) == 0;
}

static float sigmoid_slowly(float logit, const struct mr_format *f)
{
    float out;
    if (fabsf(logit) >= 700) return logit > 0; /* within e^-700: every format rounds to it */
    if (round_dd(mr_unscale(mr_sigmoid_dd((struct mr_dd){logit, 0})), MR_SIGMOID_DD_REL, f, &out))
        return out;
    mpfr_t x, y;
    mpfr_init2(x, 64);
    mpfr_init2(y, 400);
    mpfr_set_flt(x, logit, MPFR_RNDN);
    mr_sigmoid_mpfr(y, x);
    out = (float)round_mpfr(y, f);
    mpfr_clears(x, y, (mpfr_ptr)0);
    return out;
}

static float sqrt_softplus_slowly(float logit, const struct mr_format *f)
{
    float out;
    double rel;
    if (isinf(logit) && logit > 0) return logit;
    if (logit < -1400) return 0; /* below e^-700: every format rounds to it */
    if (round_dd(mr_sqrt_softplus_dd((struct mr_dd){logit, 0}, &rel), MR_SQRT_SOFTPLUS_DD_REL, f,
                 &out))
        return out;
    mpfr_t x, y;
    mpfr_init2(x, 64);
    mpfr_init2(y, 400);
    mpfr_set_flt(x, logit, MPFR_RNDN);
    mr_sqrt_softplus_mpfr(y, x);
    out = (float)round_mpfr(y, f);
    mpfr_clears(x, y, (mpfr_ptr)0);
    return out;
}

static enum mr_status softmax_by_mpfr(const float *logits, int experts, int which,
                                      const struct mr_format *f, float *out)
{
    mpfr_t y, *x = malloc((size_t)experts * sizeof *x);
    if (!x) return MR_ERR_MEMORY;
    for (int e = 0; e < experts; e++) {
        mpfr_init2(x[e], 64);
        mpfr_set_flt(x[e], logits[e], MPFR_RNDN);
    }
    mpfr_init2(y, 400);
    mr_softmax_mpfr(y, x, experts, which);
    *out = (float)round_mpfr(y, f);
    mpfr_clear(y);
    for (int e = 0; e < experts; e++) mpfr_clear(x[e]);
    free(x);
    return MR_OK;
}

/* In double-double first; each exp is within 2^-56, Z too, the quotient within 2^-55 + 2^-97. */
static enum mr_status softmax_slowly(const float *logits, int experts, double max,
                                     const struct mr_format *f, const uint8_t *undecided,
                                     float *out)
{
    struct mr_dd z = {0, 0};
    for (int e = 0; e < experts; e++) {
        struct mr_dd d = mr_two_sum(logits[e], -max);
        if (d.hi > -700) z = mr_dd_add(z, mr_unscale(mr_exp_dd(d)));
    }
    for (int e = 0; e < experts; e++) {
        if (!undecided[e]) continue;
        struct mr_dd d = mr_two_sum(logits[e], -max);
        if (!(d.hi > -700)) { /* below e^-700, as z >= 1: far below every format's least half */
            out[e] = 0;
            continue;
        }
        struct mr_dd p = mr_dd_div(mr_unscale(mr_exp_dd(d)), z);
        if (round_dd(p, 0x1p-54, f, &out[e])) continue;
        enum mr_status status = softmax_by_mpfr(logits, experts, e, f, &out[e]);
        if (status) return status;
    }
    return MR_OK;
}

static enum mr_status softmax_scores(const float *logits, int experts, const struct mr_format *f,
                                     struct mr_stage_scratch *s, float *out)
{
    size_t n = (size_t)experts;
    double max = -HUGE_VAL, min = HUGE_VAL, sum = 0;
    for (int e = 0; e < experts; e++) {
        s->c[e] = logits[e];
        if (s->c[e] > max) max = s->c[e];
        if (s->c[e] < min) min = s->c[e];
    }
    if (isinf(max) || isinf(min)) {
        for (int e = 0; e < experts; e++) out[e] = NAN;
        return MR_OK;
    }
    mr_vec_exp_below(s->c, max, n, s->c);
    for (int e = 0; e < experts; e++) sum += s->c[e];
    for (int e = 0; e < experts; e++) s->c[e] /= sum;
    /* exp within (3 + span) u, the sum within that and n u more, one division. */
    double rel = (2 * (MR_EXP_ULPS + (max - min)) + (double)experts + 4) * 0x1p-53;
    MR_ISA_PICK(mr_relative_intervals)(s->c, n, rel, s->a, s->b);
    if (!round_all(s->a, s->b, experts, f, out, s->undecided)) return MR_OK;
    return softmax_slowly(logits, experts, max, f, s->undecided, out);
}

static void sqrt_softplus_scores(const float *logits, int experts, const struct mr_format *f,
                                 struct mr_stage_scratch *s, float *out)
{
    size_t n = (size_t)experts;
    mr_widen_f64(logits, MR_F32, n, s->a);
    mr_vec_sqrt_softplus(s->a, n, s->c);
    MR_ISA_PICK(mr_relative_intervals)
    (s->c, n, (MR_SQRT_SOFTPLUS_ULPS + 2) * 0x1p-53, s->a, s->b);
    if (!round_all(s->a, s->b, experts, f, out, s->undecided)) return;
    for (int e = 0; e < experts; e++)
        if (s->undecided[e]) out[e] = sqrt_softplus_slowly(logits[e], f);
}

enum mr_status mr_stage_scores(enum mr_score score, const float *logits, int experts,
                               enum mr_type type, struct mr_stage_scratch *s, float *out)
{
    const struct mr_format *f = mr_type_format(type);
    if (score == MR_SCORE_SOFTMAX) return softmax_scores(logits, experts, f, s, out);
    if (score == MR_SCORE_SQRT_SOFTPLUS) {
        sqrt_softplus_scores(logits, experts, f, s, out);
        return MR_OK;
    }
    size_t n = (size_t)experts;
    mr_widen_f64(logits, MR_F32, n, s->c);
    mr_vec_sigmoid(s->c, n, s->c);
    MR_ISA_PICK(mr_relative_intervals)(s->c, n, (MR_SIGMOID_ULPS + 2) * 0x1p-53, s->a, s->b);
    if (!round_all(s->a, s->b, experts, f, out, s->undecided)) return MR_OK;
    for (int e = 0; e < experts; e++)
        if (s->undecided[e]) out[e] = sigmoid_slowly(logits[e], f);
    return MR_OK;
}
