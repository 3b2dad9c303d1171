#include "inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/route/rounded_logits.h"
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
    for (size_t i = 0; i < n; i++)
        *lossy += !mr_narrow(wide[i], gpu_type_dtype(type), (uint16_t *)*out + i);
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
    out->rounded = out->given_type != MR_KERNEL_FP32;
    return mr_rounded_logits(layer, gpu_type_dtype(out->given_type), &out->given, err);
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
