/* The scalar forms of the score functions: CUDA's functions, bit for bit (ref/arith/cuda.h). */
#include <math.h>

#include "../num/num.h"
#include "profile_private.h"

/* Triton's kernel of SGLang writes log1p(z) of z = exp(-|x|) out: with u = 1 + z, z itself where u
 * is 1, else z * log(u) / (u - 1). */
static float softplus_abs(float x)
{
    float z = -fabsf(x), u, l;
    mr_cuda_apply(MR_CUDA_FAST_EXPF, &z, 1, &z);
    u = 1.0f + z;
    mr_cuda_apply(MR_CUDA_FAST_LOGF, &u, 1, &l);
    return fmaxf(x, 0.0f) + (u == 1.0f ? z : mr_quotient(z * l, u - 1.0f, MR_DIVISION_FULL));
}

static enum mr_cuda_id function_of(enum mr_score_form form)
{
    switch (form) {
    case MR_FORM_SIGMOID_EXP: return MR_CUDA_SIGMOID;
    case MR_FORM_SIGMOID_FAST: return MR_CUDA_SIGMOID_FAST_EXPF;
    case MR_FORM_SIGMOID_FASTMATH: return MR_CUDA_SIGMOID_FAST;
    case MR_FORM_SIGMOID_TRITON: return MR_CUDA_SIGMOID_TRITON;
    case MR_FORM_SIGMOID_TANH: return MR_CUDA_SIGMOID_TANHF;
    case MR_FORM_SIGMOID_TANH_FAST: return MR_CUDA_SIGMOID_TANHF_FAST;
    case MR_FORM_SOFTPLUS_LOG_FAST: return MR_CUDA_ROOT_FAST;
    case MR_FORM_SOFTPLUS_LOG: return MR_CUDA_SOFTPLUS_LOGF;
    case MR_FORM_SOFTPLUS_TRITON: return MR_CUDA_ROOT_TRITON;
    case MR_FORM_SOFTPLUS_LOG1P: return MR_CUDA_ROOT_LOG1PF;
    case MR_FORM_SOFTPLUS_TORCH: return MR_CUDA_ROOT_TORCH;
    case MR_FORM_SOFTPLUS_STABLE: return MR_CUDA_ROOT_FMAXF;
    case MR_FORM_SOFTPLUS_STABLE_FAST: return MR_CUDA_ROOT_FMAXF_FAST;
    default: return MR_CUDA_COUNT; /* of a row, not of one logit; or of several functions */
    }
}

void mr_form_scores(enum mr_score_form form, const float *x, int n, float *y)
{
    enum mr_cuda_id id = function_of(form);
    if (id != MR_CUDA_COUNT) {
        mr_cuda_apply(id, x, (size_t)n, y);
        for (int i = 0; i < n && form == MR_FORM_SOFTPLUS_LOG; i++) y[i] = sqrtf(y[i]);
        return;
    }
    for (int i = 0; i < n; i++) y[i] = form == MR_FORM_SOFTPLUS_ABS ? softplus_abs(x[i]) : NAN;
    if (form == MR_FORM_SOFTPLUS_ABS) mr_cuda_apply(MR_CUDA_SQRT_FTZ, y, (size_t)n, y);
}

float mr_form_score(enum mr_score_form form, float x)
{
    float y;
    mr_form_scores(form, &x, 1, &y);
    return y;
}

float mr_round_type(double value, enum mr_type type)
{
    switch (type) {
    case MR_TYPE_BF16: return mr_bf16_decode(mr_bf16_encode(value, MR_RNE, MR_OVERFLOW_IEEE));
    case MR_TYPE_FP16: return mr_fp16_decode(mr_fp16_encode(value, MR_RNE, MR_OVERFLOW_IEEE));
    default: return (float)value;
    }
}
