/* The scalar forms of the score functions, with correctly rounded elementary functions. */
#include <math.h>
#include <mpfr.h>
#include <string.h>

#include "../num/num.h"
#include "profile_emulate.h"

/* libm's binary64 functions are within 2 ulp, 2^-51 relative (glibc manual, "Known Maximum Errors
 * in Math Functions"). If the whole interval rounds to one float, that is the correct rounding. Else
 * 200 bits decide: of 2^32 arguments none is expected to come much closer than 2^-32 ulp to the
 * middle of two floats, and results that are floats themselves never reach this. */
static float once(float x, double (*fast)(double),
                  int (*exact)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t))
{
    double y = fast(x), w = fabs(y) * 0x1p-50;
    if (!isfinite(y)) return (float)y;
    float lo = (float)(y - w), hi = (float)(y + w);
    if (!memcmp(&lo, &hi, sizeof lo)) return lo;
    mpfr_t v;
    mpfr_init2(v, 200);
    mpfr_set_flt(v, x, MPFR_RNDN);
    exact(v, v, MPFR_RNDN);
    lo = mpfr_get_flt(v, MPFR_RNDN);
    mpfr_clear(v);
    return lo;
}

float mr_expf(float x)
{
    return once(x, exp, mpfr_exp);
}

float mr_tanhf(float x)
{
    return once(x, tanh, mpfr_tanh);
}

float mr_logf(float x)
{
    return once(x, log, mpfr_log);
}

float mr_log1pf(float x)
{
    return once(x, log1p, mpfr_log1p);
}

float mr_form_score(enum mr_score_form form, float x)
{
    switch (form) {
    case MR_FORM_SIGMOID_EXP:
    case MR_FORM_SIGMOID_FAST: return 1.0f / (1.0f + mr_expf(-x));
    /* Fused or not, the same: 0.5 t is exact, but where it underflows and adding 0.5 drowns it. */
    case MR_FORM_SIGMOID_TANH: return 0.5f * mr_tanhf(0.5f * x) + 0.5f;
    case MR_FORM_SOFTPLUS_LOG_FAST:
    case MR_FORM_SOFTPLUS_LOG: return sqrtf(x > 20.0f ? x : mr_logf(1.0f + mr_expf(x)));
    case MR_FORM_SOFTPLUS_LOG1P: return sqrtf(mr_log1pf(mr_expf(x)));
    case MR_FORM_SOFTPLUS_TORCH: return sqrtf(x > 20.0f ? x : mr_log1pf(mr_expf(x)));
    case MR_FORM_SOFTPLUS_STABLE: return sqrtf(fmaxf(x, 0.0f) + mr_log1pf(mr_expf(-fabsf(x))));
    case MR_FORM_SOFTMAX_MULTIPLY:
    case MR_FORM_SOFTMAX_DIVIDE: break; /* of a row, not of one logit */
    }
    return NAN;
}

float mr_round_type(double value, enum mr_type type)
{
    switch (type) {
    case MR_TYPE_BF16: return mr_bf16_decode(mr_bf16_encode(value, MR_RNE, MR_OVERFLOW_IEEE));
    case MR_TYPE_FP16: return mr_fp16_decode(mr_fp16_encode(value, MR_RNE, MR_OVERFLOW_IEEE));
    default: return (float)value;
    }
}
