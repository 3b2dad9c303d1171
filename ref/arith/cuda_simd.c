/* The functions of cuda.h over arrays, and the checksum of blocks. */
#include "cuda.h"
#include "cuda_math.h"

MR_INLINE vf sigmoid_of_exp(bool ftz, vf one_plus_exp)
{
    return flush_if(ftz, 1 / one_plus_exp);
}

MR_INLINE vf sigmoid_tanhf(bool ftz, vf x)
{
    vf half = splat(0.5f);
    return fma_z(ftz, tanhf_(ftz, mul_z(ftz, flush_if(ftz, x), half)), half, half);
}

MR_INLINE vf sigmoid_tanh_approx(vf x)
{
    vf half = splat(0.5f);
    return fma_z(true, flush(mufu_tanh(mul_z(true, flush(x), half))), half, half);
}

MR_INLINE vf above_20(vf x, vf y)
{
    return pick(x > 20, x, y);
}

/* fmaxf(x, 0) is +0 for NaN. */
MR_INLINE vf softplus_fmaxf(vf x, vf log1p)
{
    return pick(x > 0, x, splat(0)) + log1p;
}

MR_INLINE vf softplus_fast(bool ftz, vf x)
{
    return above_20(x, fast_logf(ftz, 1 + fast_expf(ftz, x)));
}

/* Its logarithm is libdevice's with FTZ, but what it takes is at least 1. */
MR_INLINE vf softplus_triton(vf x)
{
    return above_20(x, logf_(false, 1 + fast_expf(false, x)));
}

MR_INLINE vf minus_size(vf x)
{
    return (vf)((vu)x | SIGN);
}

#define CASE(id, expression)                                                                       \
    case MR_CUDA_##id:                                                                             \
        for (; i + LANES <= n; i += LANES) {                                                       \
            vf v;                                                                                  \
            memcpy(&v, x + i, sizeof v);                                                           \
            v = quiet(expression);                                                                 \
            memcpy(y + i, &v, sizeof v);                                                           \
        }                                                                                          \
        if (i < n) {                                                                               \
            vf v = {0};                                                                            \
            memcpy(&v, x + i, (n - i) * sizeof *x);                                                \
            v = quiet(expression);                                                                 \
            memcpy(y + i, &v, (n - i) * sizeof *y);                                                \
        }                                                                                          \
        break;

void MR_ISA_NAME(mr_cuda_apply)(enum mr_cuda_id id, const float *x, size_t n, float *y)
{
    size_t i = 0;
    switch (id) {
        CASE(EX2, ex2_approx(v))
        CASE(EX2_FTZ, mufu_ex2(v))
        CASE(RCP, rcp_approx(v))
        CASE(RCP_FTZ, mufu_rcp(v))
        CASE(RSQRT, rsqrt_approx(v))
        CASE(RSQRT_FTZ, mufu_rsq(v))
        CASE(SQRT, sqrt_approx(v))
        CASE(SQRT_FTZ, mufu_sqrt(v))
        CASE(LG2, lg2_approx(v))
        CASE(LG2_FTZ, mufu_lg2(v))
        CASE(TANH, mufu_tanh(v))
        CASE(EXPF, expf_(false, v))
        CASE(EXPF_FTZ, expf_(true, v))
        CASE(FAST_EXPF, fast_expf(false, v))
        CASE(FAST_EXPF_FTZ, fast_expf(true, v))
        CASE(LOGF, logf_(false, v))
        CASE(LOGF_FTZ, logf_(true, v))
        CASE(FAST_LOGF, fast_logf(false, v))
        CASE(FAST_LOGF_FTZ, fast_logf(true, v))
        CASE(LOG1PF, log1pf_(false, v))
        CASE(LOG1PF_FTZ, log1pf_(true, v))
        CASE(LOG2F, log2f_(false, v))
        CASE(LOG2F_FTZ, log2f_(true, v))
        CASE(TANHF, tanhf_(false, v))
        CASE(TANHF_FTZ, tanhf_(true, v))
        CASE(SIGMOID, sigmoid_of_exp(false, one_plus_expf(false, negate(v))))
        CASE(SIGMOID_FTZ, sigmoid_of_exp(true, one_plus_expf(true, negate(v))))
        CASE(SIGMOID_FAST_EXPF, sigmoid_of_exp(false, 1 + fast_expf(false, negate(v))))
        CASE(SIGMOID_FAST_EXPF_FTZ, sigmoid_of_exp(true, 1 + fast_expf(true, negate(v))))
        CASE(SIGMOID_FDIVIDEF, mufu_rcp(1 + fast_expf(false, negate(v))))
        CASE(SIGMOID_FAST, mufu_rcp(1 + fast_expf(true, negate(v))))
        CASE(SIGMOID_TRITON, div_full(splat(1), 1 + fast_expf(false, negate(v))))
        CASE(SIGMOID_TANHF, sigmoid_tanhf(false, v))
        CASE(SIGMOID_TANHF_FTZ, sigmoid_tanhf(true, v))
        CASE(SIGMOID_TANHF_FAST, sigmoid_tanh_approx(v))
        CASE(SOFTPLUS_LOG1PF, log1pf_(false, expf_(false, v)))
        CASE(SOFTPLUS_TORCH, above_20(v, log1pf_(false, expf_(false, v))))
        CASE(SOFTPLUS_FAST, softplus_fast(false, v))
        CASE(SOFTPLUS_LOGF, above_20(v, logf_(false, one_plus_expf(false, v))))
        CASE(SOFTPLUS_FMAXF, softplus_fmaxf(v, log1pf_(false, expf_(false, minus_size(v)))))
        CASE(SOFTPLUS_TRITON, softplus_triton(v))
        CASE(ROOT_LOG1PF, root(log1pf_(false, expf_(false, v))))
        CASE(ROOT_TORCH, root(above_20(v, log1pf_(false, expf_(false, v)))))
        CASE(ROOT_FAST, root(softplus_fast(false, v)))
        CASE(ROOT_FMAXF, root(softplus_fmaxf(v, log1pf_(false, expf_(false, minus_size(v))))))
        CASE(ROOT_TRITON, mufu_sqrt(softplus_triton(v)))
        CASE(ROOT_LOG1PF_FAST, mufu_sqrt(log1pf_(true, fast_expf(true, v))))
        CASE(ROOT_FAST_FAST, mufu_sqrt(softplus_fast(true, v)))
        CASE(ROOT_FMAXF_FAST, mufu_sqrt(flush(softplus_fmaxf(
                                  flush(v), log1pf_(true, fast_expf(true, minus_size(v)))))))
    case MR_CUDA_COUNT: break;
    }
}

#undef CASE
#define CASE(id, expression)                                                                       \
    case id:                                                                                       \
        for (size_t i = 0; i < n; i += LANES) {                                                    \
            size_t m = n - i < LANES ? n - i : LANES;                                              \
            vf u = {0}, v = {0};                                                                   \
            memcpy(&u, a + i, m * sizeof *a);                                                      \
            memcpy(&v, b + i, m * sizeof *b);                                                      \
            u = quiet(expression);                                                                 \
            memcpy(y + i, &u, m * sizeof *y);                                                      \
        }                                                                                          \
        break;

void MR_ISA_NAME(mr_cuda_divide)(enum mr_cuda_quotient how, const float *a, const float *b,
                                 size_t n, float *y)
{
    switch (how) {
        CASE(MR_DIV_FULL, div_full(u, v))
        CASE(MR_DIV_FULL_FTZ, div_full_ftz(u, v))
        CASE(MR_DIV_APPROX, div_approx(u, v))
        CASE(MR_DIV_APPROX_FTZ, div_approx_ftz(u, v))
    case MR_DIV_COUNT: break;
    }
}

uint64_t MR_ISA_NAME(mr_cuda_checksum)(const uint32_t *words, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t z = ((uint64_t)i << 32 | words[i]) * MR_CUDA_CHECKSUM_K1;
        z = (z ^ (z >> 32)) * MR_CUDA_CHECKSUM_K2;
        sum += z ^ (z >> 29);
    }
    return sum;
}
