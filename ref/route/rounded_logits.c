#include "rounded_logits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../exact/exact.h"
#include "../num/num.h"

bool mr_narrow(float value, enum mr_dtype type, uint16_t *out)
{
    *out = type == MR_BF16 ? mr_bf16_encode(value, MR_RNE, MR_OVERFLOW_IEEE)
                           : mr_fp16_encode(value, MR_RNE, MR_OVERFLOW_IEEE);
    float back = type == MR_BF16 ? mr_bf16_decode(*out) : mr_fp16_decode(*out);
    return isnan(value) || memcmp(&back, &value, sizeof value) == 0;
}

/* narrower: NULL for binary32. */
static float rounded_dot(const struct mr_layer *layer, size_t token, size_t expert,
                         const struct mr_format *narrower)
{
    struct mr_exact dot;
    bool biased = layer->gate_bias != NULL;
    if (mr_exact_dot(&layer->hidden, token, &layer->gate, expert, &dot)) return NAN;
    if (narrower && !biased) return (float)mr_round_sum(dot.hi, dot.lo, narrower);
    float logit = (float)mr_round_sum(dot.hi, dot.lo, &mr_format_fp32);
    if (biased) logit += (float)layer->gate_bias[expert];
    return narrower && isfinite(logit) ? (float)mr_round_sum(logit, 0, narrower) : logit;
}

static void dots(const struct mr_layer *layer, const struct mr_format *narrower, float *out)
{
    long tokens = (long)layer->hidden.rows;
    size_t experts = (size_t)layer->router->experts;
#pragma omp parallel for schedule(static)
    for (long t = 0; t < tokens; t++)
        for (size_t e = 0; e < experts; e++)
            out[(size_t)t * experts + e] = rounded_dot(layer, (size_t)t, e, narrower);
}

enum mr_status mr_rounded_logits(const struct mr_layer *layer, enum mr_dtype type, void **out,
                                 struct mr_error *err)
{
    const struct mr_matrix *given = &layer->logits;
    const struct mr_format *narrower = type == MR_BF16  ? &mr_format_bf16
                                       : type == MR_F16 ? &mr_format_fp16 : NULL;
    *out = NULL;
    if (!narrower && type != MR_F32)
        return mr_fail(err, MR_ERR_DTYPE, "logits are F32, BF16 or F16, not %s",
                       mr_dtype_name(type));
    size_t n = (given->data ? given->rows : layer->hidden.rows) * (size_t)layer->router->experts;
    float *wide = malloc(n * sizeof *wide + 1);
    if (!wide) return mr_fail(err, MR_ERR_MEMORY, "no memory for %zu logits", n);
    if (given->data) mr_widen_f32(given->data, given->dtype, n, wide);
    else dots(layer, narrower, wide);
    /* Narrow values lie within the room of wide ones, and behind none that is still to be read. */
    for (size_t i = 0; narrower && i < n; i++) {
        uint16_t bits;
        mr_narrow(wide[i], type, &bits);
        memcpy((char *)wide + i * sizeof bits, &bits, sizeof bits);
    }
    *out = wide;
    return MR_OK;
}
