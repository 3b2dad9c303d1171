#include "inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "registry.h"

#define TRY(call)                                     \
    do {                                              \
        enum mr_status try_status_ = (call);          \
        if (try_status_ != MR_OK) return try_status_; \
    } while (0)

size_t gpu_type_bytes(int32_t type)
{
    return type == MR_KERNEL_FP32 ? 4 : type ? 2 : 0;
}

enum mr_dtype gpu_type_dtype(int32_t type)
{
    return type == MR_KERNEL_FP32 ? MR_F32 : type == MR_KERNEL_FP16 ? MR_F16 : MR_BF16;
}

static int32_t type_of(enum mr_dtype dtype)
{
    return dtype == MR_F32 ? MR_KERNEL_FP32 : dtype == MR_F16 ? MR_KERNEL_FP16
           : dtype == MR_BF16 ? MR_KERNEL_BF16 : 0;
}

enum mr_status gpu_router(const struct mr_router *r, struct mr_kernel_router *out,
                          struct mr_error *err)
{
    if (r->hash_layers)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "this router chooses experts by token id in its "
                       "first %d layers: no kernel interface for that", r->hash_layers);
    *out = (struct mr_kernel_router){
        .experts = r->experts, .top_k = r->top_k, .hidden = r->hidden,
        .score = r->score == MR_SCORE_SIGMOID ? MR_KERNEL_SIGMOID
                 : r->score == MR_SCORE_SOFTMAX ? MR_KERNEL_SOFTMAX : MR_KERNEL_SQRT_SOFTPLUS,
        .rank_by_logit = r->selection == MR_SELECT_LOGIT,
        .bias = r->bias, .gate_bias = r->gate_bias, .n_group = r->n_group,
        .topk_group = r->topk_group,
        .group_score = r->group_score == MR_GROUP_MAX ? MR_KERNEL_MAX : MR_KERNEL_TOP2_SUM,
        .norm_topk_prob = r->norm_topk_prob, .routed_scaling_factor = r->routed_scaling_factor};
    return MR_OK;
}

/* The encoding of a binary32 value in a type of two bytes; false if it has none. NaN has. */
static bool narrow(float value, int32_t type, uint16_t *out)
{
    *out = type == MR_KERNEL_BF16 ? mr_bf16_encode(value, MR_RNE, MR_OVERFLOW_IEEE)
                                  : mr_fp16_encode(value, MR_RNE, MR_OVERFLOW_IEEE);
    float back = type == MR_KERNEL_BF16 ? mr_bf16_decode(*out) : mr_fp16_decode(*out);
    return isnan(value) || memcmp(&back, &value, sizeof value) == 0;
}

/* n values of a matrix in another type. *lossy: how many changed. */
static enum mr_status convert(const void *from, enum mr_dtype dtype, size_t n, int32_t type,
                              void **out, size_t *lossy, struct mr_error *err)
{
    *lossy = 0;
    *out = malloc(n * gpu_type_bytes(type) + 1);
    if (!*out) return mr_fail(err, MR_ERR_MEMORY, "out of memory");
    if (type_of(dtype) == type) {
        memcpy(*out, from, n * gpu_type_bytes(type));
        return MR_OK;
    }
    if (type == MR_KERNEL_FP32) {
        mr_widen_f32(from, dtype, n, *out);
        return MR_OK;
    }
    float *wide = malloc(n * sizeof *wide + 1);
    if (!wide) return mr_fail(err, MR_ERR_MEMORY, "out of memory");
    mr_widen_f32(from, dtype, n, wide);
    for (size_t i = 0; i < n; i++) *lossy += !narrow(wide[i], type, (uint16_t *)*out + i);
    free(wide);
    return MR_OK;
}

/* The stored type if the kernel takes it, else fp32, which holds all, else whichever does. */
static enum mr_status take(const char *name, const struct mr_matrix *m, int32_t types,
                           int32_t *type, void **out, struct mr_error *err)
{
    const int32_t order[] = {type_of(m->dtype), MR_KERNEL_FP32, MR_KERNEL_BF16, MR_KERNEL_FP16};
    size_t n = m->rows * m->cols, lossy = 0;
    for (int i = 0; i < 4; i++) {
        if (!(types & order[i])) continue;
        free(*out);
        *out = NULL;
        TRY(convert(m->data, m->dtype, n, order[i], out, &lossy, err));
        *type = order[i];
        if (!lossy) return MR_OK;
    }
    return mr_fail(err, MR_ERR_UNSUPPORTED, "%s: %zu of %zu %s values are none of %s, and the "
                   "kernel takes nothing wider", name, lossy, n, mr_dtype_name(m->dtype),
                   gpu_type_name(*type));
}

/* One exact logit, rounded once to binary32 or to a narrower type, as a value; the gate bias is
 * added in binary32 before a narrower rounding. */
static float rounded_logit(const struct mr_layer *layer, size_t token, size_t expert,
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

static enum mr_status exact_logits(const struct mr_layer *layer, struct gpu_inputs *out,
                                   struct mr_error *err)
{
    int experts = layer->router->experts;
    const struct mr_format *narrower = out->given_type == MR_KERNEL_FP32 ? NULL
                                       : out->given_type == MR_KERNEL_BF16 ? &mr_format_bf16
                                                                           : &mr_format_fp16;
    size_t n = out->tokens * (size_t)experts;
    float *logits = malloc(n * sizeof *logits + 1);
    out->given = malloc(n * gpu_type_bytes(out->given_type) + 1);
    if (!logits || !out->given) {
        free(logits);
        return mr_fail(err, MR_ERR_MEMORY, "out of memory");
    }
    long tokens = (long)out->tokens;
#pragma omp parallel for schedule(static)
    for (long t = 0; t < tokens; t++)
        for (int e = 0; e < experts; e++)
            logits[(size_t)t * (size_t)experts + (size_t)e] =
                rounded_logit(layer, (size_t)t, (size_t)e, narrower);
    if (!narrower) memcpy(out->given, logits, n * sizeof *logits);
    else
        for (size_t i = 0; i < n; i++)
            narrow(logits[i], out->given_type, (uint16_t *)out->given + i);
    out->rounded = narrower != NULL;
    free(logits);
    return MR_OK;
}

static enum mr_status biases(const double *from, size_t n, const char *name, float **out,
                             struct mr_error *err)
{
    if (!from) return MR_OK;
    *out = malloc(n * sizeof **out);
    if (!*out) return mr_fail(err, MR_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        (*out)[i] = (float)from[i];
        if ((double)(*out)[i] != from[i])
            return mr_fail(err, MR_ERR_UNSUPPORTED, "%s of expert %zu is no binary32 value", name,
                           i);
    }
    return MR_OK;
}

static enum mr_status make(const struct mr_layer *layer, const struct mr_kernel *k,
                           struct gpu_inputs *out, struct mr_error *err)
{
    bool logits = layer->logits.data != NULL;
    size_t experts = (size_t)layer->router->experts;
    out->tokens = logits ? layer->logits.rows : layer->hidden.rows;
    TRY(biases(layer->bias, experts, "the bias", &out->bias, err));
    if (k->hidden_types) {
        if (logits)
            return mr_fail(err, MR_ERR_UNSUPPORTED, "takes hidden states, and the case starts from "
                           "logits");
        TRY(biases(layer->gate_bias, experts, "the gate's bias", &out->gate_bias, err));
        TRY(take("hidden states", &layer->hidden, k->hidden_types, &out->hidden_type, &out->hidden,
                 err));
        return take("gate weight", &layer->gate, k->gate_types, &out->gate_type, &out->gate, err);
    }
    if (logits)
        return take("logits", &layer->logits, k->given_types, &out->given_type, &out->given, err);
    out->given_type = k->given_types & MR_KERNEL_FP32   ? MR_KERNEL_FP32
                      : k->given_types & MR_KERNEL_BF16 ? MR_KERNEL_BF16 : MR_KERNEL_FP16;
    return exact_logits(layer, out, err);
}

enum mr_status gpu_inputs_make(const struct mr_layer *layer, const struct mr_kernel *kernel,
                               struct gpu_inputs *out, struct mr_error *err)
{
    *out = (struct gpu_inputs){0};
    if (layer->given)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "this layer chooses experts by token id");
    enum mr_status status = make(layer, kernel, out, err);
    if (status) gpu_inputs_free(out);
    return status;
}

void gpu_inputs_free(struct gpu_inputs *in)
{
    free(in->hidden);
    free(in->gate);
    free(in->given);
    free(in->bias);
    free(in->gate_bias);
    *in = (struct gpu_inputs){0};
}
