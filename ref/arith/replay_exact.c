/* A line without a SUM: the exact dot product (and gate bias), rounded once to the type of the
 * logits, as arith.h and emulate.c have it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../exact/exact.h"
#include "../num/bits.h"
#include "../num/num.h"
#include "replay_private.h"

static enum mr_status no_memory(struct mr_error *err)
{
    return mr_fail(err, MR_ERR_MEMORY, "replay: out of memory");
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

enum mr_status mr_replay_exact_new(struct mr_replay *r, struct mr_error *err)
{
    r->values = malloc((r->experts * r->terms + 1) * sizeof *r->values);
    r->finite = malloc(r->experts + 1);
    if (!r->values || !r->finite) return no_memory(err);
    for (size_t e = 0; e < r->experts; e++) {
        float *row = r->values + e * r->terms;
        mr_operand_values(&r->gate, e, NULL, NULL, row);
        r->finite[e] = all_finite(row, r->terms);
    }
    return MR_OK;
}

/* The sum of products of which one at least is not finite: NaN, or the one Inf. */
static float special(const float *x, const float *w, size_t n, float bias)
{
    float sum = bias;
    for (size_t i = 0; i < n; i++) {
        float p = isfinite(x[i]) && isfinite(w[i]) ? 0 : x[i] * w[i];
        if (!isfinite(p)) sum += p;
    }
    return sum;
}

static float rounded(struct mr_exact v, enum mr_type type)
{
    /* lo = RN(value - hi) is zero only if nothing is left, and has its sign: all that rounding
     * asks of it. An exact zero has no sign. */
    const struct mr_format *f = type == MR_TYPE_BF16   ? &mr_format_bf16
                                : type == MR_TYPE_FP16 ? &mr_format_fp16
                                                       : &mr_format_fp32;
    return v.hi == 0 ? 0 : (float)mr_round_sum(v.hi, v.lo, f);
}

/* The dot with a bias, exactly: products and bias are multiples of 2^-298, and 2^40 of them lie
 * below 2^298. */
static enum mr_status with_bias(const float *x, const float *w, size_t n, float bias,
                                struct mr_exact *out)
{
    mpfr_t sum, dot;
    mpfr_inits2(640, sum, dot, (mpfr_ptr)0);
    enum mr_status status = mr_bins_dot(x, MR_F32, w, MR_F32, n, dot);
    mpfr_add_d(sum, dot, bias, MPFR_RNDN);
    *out = mr_exact_from_mpfr(sum);
    mpfr_clears(sum, dot, (mpfr_ptr)0);
    return status;
}

static enum mr_status one(const struct mr_replay *r, const float *x, bool finite, size_t e,
                          float *out)
{
    const float *w = r->values + e * r->terms;
    float bias = r->gate_bias ? r->gate_bias[e] : 0;
    struct mr_exact v;
    enum mr_status status;
    if (!finite || !r->finite[e] || !isfinite(bias)) {
        *out = special(x, w, r->terms, bias);
        return MR_OK;
    }
    if (bias != 0) {
        status = with_bias(x, w, r->terms, bias, &v);
    } else {
        struct mr_matrix a = {x, MR_F32, 1, r->terms}, b = {w, MR_F32, 1, r->terms};
        status = mr_exact_dot(&a, 0, &b, 0, &v);
    }
    *out = status ? 0 : rounded(v, r->arith.logits);
    return status;
}

enum mr_status mr_replay_exact_rows(const struct mr_replay *r, size_t row, size_t rows, float *out,
                                    struct mr_error *err)
{
    float *x = malloc((r->terms + 1) * sizeof *x);
    if (!x) return no_memory(err);
    enum mr_status status = MR_OK;
    for (size_t i = 0; i < rows && !status; i++) {
        mr_operand_values(&r->hidden, row + i, NULL, NULL, x);
        bool finite = all_finite(x, r->terms);
        for (size_t e = 0; e < r->experts && !status; e++)
            status = one(r, x, finite, e, out + i * r->experts + e);
    }
    free(x);
    return status ? mr_fail(err, status, "replay: an exact dot failed: %s", mr_status_name(status))
                  : MR_OK;
}
