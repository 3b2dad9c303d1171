/* Scalar functions as CUDA computes them on an H200, bit for bit, NaN included: the approximate PTX
 * instructions, the library functions built on them, and the scores that router kernels build on
 * those. docs/cuda-functions.md describes the model; data/cuda-h200 holds what it is proven by: for
 * every one-argument function checksums of the GPU's outputs for all 2^32 inputs.
 *
 * Sequences are those of nvcc 13.0 for sm_90. In a name, ".ftz" is the form under -ftz=true and
 * ".fast" under -use_fast_math. Needs round-to-nearest and subnormals (no FTZ or DAZ on the CPU).
 */
#ifndef MOEREF_CUDA_H
#define MOEREF_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../isa.h"

/* X(identifier, name, what it is) */
#define MR_CUDA_FUNCTIONS(X)                                                                       \
    X(EX2, "ex2.approx", "2^x; __nv_exp2f, Triton's tl.exp2")                                      \
    X(EX2_FTZ, "ex2.approx.ftz", "2^x, MUFU.EX2 alone")                                            \
    X(RCP, "rcp.approx", "1/x")                                                                    \
    X(RCP_FTZ, "rcp.approx.ftz", "1/x, MUFU.RCP alone")                                            \
    X(RSQRT, "rsqrt.approx", "1/sqrt(x); rsqrtf")                                                  \
    X(RSQRT_FTZ, "rsqrt.approx.ftz", "1/sqrt(x), MUFU.RSQ alone")                                  \
    X(SQRT, "sqrt.approx", "sqrt(x)")                                                              \
    X(SQRT_FTZ, "sqrt.approx.ftz", "sqrt(x), MUFU.SQRT alone; sqrtf under -use_fast_math")         \
    X(LG2, "lg2.approx", "log2(x); __log2f")                                                       \
    X(LG2_FTZ, "lg2.approx.ftz", "log2(x), MUFU.LG2 alone")                                        \
    X(TANH, "tanh.approx", "tanh(x), MUFU.TANH alone; tanhf under -use_fast_math")                 \
    X(EXPF, "expf", "exp(x)")                                                                      \
    X(EXPF_FTZ, "expf.ftz", "exp(x)")                                                              \
    X(FAST_EXPF, "__expf", "exp(x) as ex2.approx(x log2 e); Triton's tl.exp")                      \
    X(FAST_EXPF_FTZ, "__expf.ftz", "expf under -use_fast_math")                                    \
    X(LOGF, "logf", "log(x)")                                                                      \
    X(LOGF_FTZ, "logf.ftz", "log(x)")                                                              \
    X(FAST_LOGF, "__logf", "log(x) as lg2.approx(x) ln 2")                                         \
    X(FAST_LOGF_FTZ, "__logf.ftz", "logf under -use_fast_math")                                    \
    X(LOG1PF, "log1pf", "log(1 + x)")                                                              \
    X(LOG1PF_FTZ, "log1pf.ftz", "log(1 + x), also under -use_fast_math")                           \
    X(LOG2F, "log2f", "log2(x)")                                                                   \
    X(LOG2F_FTZ, "log2f.ftz", "log2(x)")                                                           \
    X(TANHF, "tanhf", "tanh(x)")                                                                   \
    X(TANHF_FTZ, "tanhf.ftz", "tanh(x)")                                                           \
    X(SIGMOID, "sigmoid.expf", "1/(1 + expf(-x)), IEEE division: PyTorch, SGLang")                 \
    X(SIGMOID_FTZ, "sigmoid.expf.ftz", "the same under -ftz=true")                                 \
    X(SIGMOID_FAST_EXPF, "sigmoid.__expf", "1/(1 + __expf(-x)), IEEE division: vLLM")              \
    X(SIGMOID_FAST_EXPF_FTZ, "sigmoid.__expf.ftz", "the same under -ftz=true")                     \
    X(SIGMOID_FDIVIDEF, "sigmoid.__fdividef", "__fdividef(1, 1 + __expf(-x))")                     \
    X(SIGMOID_FAST, "sigmoid.fast", "1/(1 + expf(-x)) under -use_fast_math")                       \
    X(SIGMOID_TRITON, "sigmoid.triton", "1/(1 + tl.exp(-x)), div.full: tl.sigmoid")                \
    X(SIGMOID_TANHF, "sigmoid.tanhf", "0.5 tanhf(0.5 x) + 0.5: FlashInfer, TensorRT-LLM")          \
    X(SIGMOID_TANHF_FTZ, "sigmoid.tanhf.ftz", "the same under -ftz=true")                          \
    X(SIGMOID_TANHF_FAST, "sigmoid.tanhf.fast", "the same under -use_fast_math")                   \
    X(SOFTPLUS_LOG1PF, "softplus.log1pf", "log1pf(expf(x))")                                       \
    X(SOFTPLUS_TORCH, "softplus.torch", "x > 20 ? x : log1pf(expf(x)): PyTorch")                   \
    X(SOFTPLUS_FAST, "softplus.__logf", "x > 20 ? x : __logf(1 + __expf(x))")                      \
    X(SOFTPLUS_LOGF, "softplus.logf", "x > 20 ? x : logf(1 + expf(x))")                            \
    X(SOFTPLUS_FMAXF, "softplus.fmaxf", "fmaxf(x, 0) + log1pf(expf(-|x|))")                        \
    X(SOFTPLUS_TRITON, "softplus.triton", "x > 20 ? x : tl.log(1 + tl.exp(x))")                    \
    X(ROOT_LOG1PF, "sqrt-softplus.log1pf", "sqrtf(log1pf(expf(x))): vLLM, fast kernel")            \
    X(ROOT_TORCH, "sqrt-softplus.torch", "sqrtf of softplus.torch, each rounded")                  \
    X(ROOT_FAST, "sqrt-softplus.__logf", "sqrtf of softplus.__logf: vLLM, classic kernel")         \
    X(ROOT_FMAXF, "sqrt-softplus.fmaxf", "sqrtf of softplus.fmaxf: FlashInfer hash_topk")          \
    X(ROOT_TRITON, "sqrt-softplus.triton", "tl.sqrt (sqrt.approx.ftz) of softplus.triton")         \
    X(ROOT_LOG1PF_FAST, "sqrt-softplus.log1pf.fast", "under -use_fast_math")                       \
    X(ROOT_FAST_FAST, "sqrt-softplus.__logf.fast", "under -use_fast_math")                         \
    X(ROOT_FMAXF_FAST, "sqrt-softplus.fmaxf.fast", "under -use_fast_math")

enum mr_cuda_id {
#define X(id, name, what) MR_CUDA_##id,
    MR_CUDA_FUNCTIONS(X)
#undef X
        MR_CUDA_COUNT
};

struct mr_cuda_function {
    const char *name, *what;
};
extern const struct mr_cuda_function mr_cuda_functions[MR_CUDA_COUNT];

int mr_cuda_find(const char *name); /* its mr_cuda_id, or -1 */

/* y[i] = f(x[i]); y may be x. id must be one of the table. */
void mr_cuda_apply(enum mr_cuda_id id, const float *x, size_t n, float *y);

enum mr_cuda_quotient {
    MR_DIV_FULL,       /* div.full.f32: -prec-div=false, Triton's '/' */
    MR_DIV_FULL_FTZ,   /* div.full.ftz.f32 */
    MR_DIV_APPROX,     /* div.approx.f32: __fdividef */
    MR_DIV_APPROX_FTZ, /* div.approx.ftz.f32: '/' under -use_fast_math */
    MR_DIV_COUNT
};
extern const char *const mr_cuda_quotients[MR_DIV_COUNT]; /* their names in PTX */

/* y[i] = a[i] / b[i]; y may be a or b. */
void mr_cuda_divide(enum mr_cuda_quotient how, const float *a, const float *b, size_t n, float *y);

/* Softmax of a row by one warp, or a part of one: thread t of `threads` (a power of two, at most
 * 32) owns the `vector` consecutive columns from (i threads + t) vector, for i = 0, 1, ...; the row
 * is padded with -Inf. Each thread adds its exp(x - max) in the order of its columns, then the
 * threads exchange by xor of threads/2 ... 1; then a division, or a product with the rounded
 * reciprocal of the sum. */
struct mr_cuda_softmax {
    int threads, vector;
    bool reciprocal;
    enum mr_cuda_id exp;
};

/* PyTorch's softmax of at most 1024 columns (PersistentSoftmax.cuh); n > 0. */
struct mr_cuda_softmax mr_cuda_softmax_torch(size_t n);
/* The topkGating kernel of vLLM and SGLang on fp32 logits (topk_softmax_kernels.cu): 16-byte loads
 * for powers of two, 8-byte ones for other multiples of 64 columns. */
struct mr_cuda_softmax mr_cuda_softmax_gating(size_t n);

void mr_cuda_softmax_row(const struct mr_cuda_softmax *form, const float *x, size_t n, float *y);

/* Order-sensitive checksum of a block of words: the sum modulo 2^64 of h(i 2^32 + word i), h one to
 * one on 64 bits, so that one wrong word always shows. h(z): z *= K1; z ^= z >> 32; z *= K2;
 * z ^= z >> 29. */
#define MR_CUDA_CHECKSUM_K1 UINT64_C(0x9e3779b97f4a7c15)
#define MR_CUDA_CHECKSUM_K2 UINT64_C(0xbf58476d1ce4e5b9)
uint64_t mr_cuda_checksum(const uint32_t *words, size_t n);

MR_ISA_DECLARE(void, mr_cuda_apply, enum mr_cuda_id id, const float *x, size_t n, float *y);
MR_ISA_DECLARE(void, mr_cuda_divide, enum mr_cuda_quotient how, const float *a, const float *b,
               size_t n, float *y);
MR_ISA_DECLARE(uint64_t, mr_cuda_checksum, const uint32_t *words, size_t n);

#endif
