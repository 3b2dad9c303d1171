/* What is swept: F(label, model, CUDA expression in x). The label names the entry, model the
 * function of ref/arith/cuda.h that must give the same bits. One list for each set of flags. */
#ifndef SWEEP_FUNCTIONS_H
#define SWEEP_FUNCTIONS_H

#if FLAVOUR == 0
#define FUNCTIONS(F)                                                                               \
    F("ex2.approx", "ex2.approx", ptx_ex2(x))                                                      \
    F("ex2.approx.ftz", "ex2.approx.ftz", ptx_ex2_ftz(x))                                          \
    F("rcp.approx", "rcp.approx", ptx_rcp(x))                                                      \
    F("rcp.approx.ftz", "rcp.approx.ftz", ptx_rcp_ftz(x))                                          \
    F("rsqrt.approx", "rsqrt.approx", ptx_rsqrt(x))                                                \
    F("rsqrt.approx.ftz", "rsqrt.approx.ftz", ptx_rsqrt_ftz(x))                                    \
    F("sqrt.approx", "sqrt.approx", ptx_sqrt(x))                                                   \
    F("sqrt.approx.ftz", "sqrt.approx.ftz", ptx_sqrt_ftz(x))                                       \
    F("lg2.approx", "lg2.approx", ptx_lg2(x))                                                      \
    F("lg2.approx.ftz", "lg2.approx.ftz", ptx_lg2_ftz(x))                                          \
    F("tanh.approx", "tanh.approx", ptx_tanh(x))                                                   \
    F("exp2f", "ex2.approx", exp2f(x))                                                             \
    F("rsqrtf", "rsqrt.approx", rsqrtf(x))                                                         \
    F("__log2f", "lg2.approx", __log2f(x))                                                         \
    F("expf", "expf", expf(x))                                                                     \
    F("__expf", "__expf", __expf(x))                                                               \
    F("logf", "logf", logf(x))                                                                     \
    F("__logf", "__logf", __logf(x))                                                               \
    F("log1pf", "log1pf", log1pf(x))                                                               \
    F("log2f", "log2f", log2f(x))                                                                  \
    F("tanhf", "tanhf", tanhf(x))                                                                  \
    F("sigmoid.expf", "sigmoid.expf", 1.0f / (1.0f + expf(-x)))                                    \
    F("sigmoid.__expf", "sigmoid.__expf", 1.0f / (1.0f + __expf(-x)))                              \
    F("sigmoid.__fdividef", "sigmoid.__fdividef", __fdividef(1.0f, 1.0f + __expf(-x)))             \
    F("sigmoid.triton", "sigmoid.triton",                                                          \
      ptx_div_full(1.0f, 1.0f + ptx_ex2(-x * 1.4426950408889634f)))                                \
    F("sigmoid.tanhf", "sigmoid.tanhf", 0.5f * tanhf(0.5f * x) + 0.5f)                             \
    F("softplus.log1pf", "softplus.log1pf", log1pf(expf(x)))                                       \
    F("softplus.torch", "softplus.torch", x > 20.0f ? x : log1pf(expf(x)))                         \
    F("softplus.__logf", "softplus.__logf", x > 20.0f ? x : __logf(1.0f + __expf(x)))              \
    F("softplus.logf", "softplus.logf", x > 20.0f ? x : logf(1.0f + expf(x)))                      \
    F("softplus.fmaxf", "softplus.fmaxf", fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))))                \
    F("sqrt-softplus.log1pf", "sqrt-softplus.log1pf", sqrtf(log1pf(expf(x))))                      \
    F("sqrt-softplus.torch", "sqrt-softplus.torch", sqrtf(x > 20.0f ? x : log1pf(expf(x))))        \
    F("sqrt-softplus.__logf", "sqrt-softplus.__logf",                                              \
      sqrtf(x > 20.0f ? x : __logf(1.0f + __expf(x))))                                             \
    F("sqrt-softplus.fmaxf", "sqrt-softplus.fmaxf", sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)))))
#elif FLAVOUR == 1 /* -ftz=true */
#define FUNCTIONS(F)                                                                               \
    F("expf.ftz", "expf.ftz", expf(x))                                                             \
    F("__expf.ftz", "__expf.ftz", __expf(x))                                                       \
    F("exp2f.ftz", "ex2.approx.ftz", exp2f(x))                                                     \
    F("rsqrtf.ftz", "rsqrt.approx.ftz", rsqrtf(x))                                                 \
    F("logf.ftz", "logf.ftz", logf(x))                                                             \
    F("__logf.ftz", "__logf.ftz", __logf(x))                                                       \
    F("log1pf.ftz", "log1pf.ftz", log1pf(x))                                                       \
    F("log2f.ftz", "log2f.ftz", log2f(x))                                                          \
    F("tanhf.ftz", "tanhf.ftz", tanhf(x))                                                          \
    F("sigmoid.expf.ftz", "sigmoid.expf.ftz", 1.0f / (1.0f + expf(-x)))                            \
    F("sigmoid.__expf.ftz", "sigmoid.__expf.ftz", 1.0f / (1.0f + __expf(-x)))                      \
    F("sigmoid.tanhf.ftz", "sigmoid.tanhf.ftz", 0.5f * tanhf(0.5f * x) + 0.5f)
#else /* -use_fast_math */
#define FUNCTIONS(F)                                                                               \
    F("expf.fast", "__expf.ftz", expf(x))                                                          \
    F("logf.fast", "__logf.ftz", logf(x))                                                          \
    F("log1pf.fast", "log1pf.ftz", log1pf(x))                                                      \
    F("sqrtf.fast", "sqrt.approx.ftz", sqrtf(x))                                                   \
    F("tanhf.fast", "tanh.approx", tanhf(x))                                                       \
    F("sigmoid.fast", "sigmoid.fast", 1.0f / (1.0f + expf(-x)))                                    \
    F("sigmoid.__expf.fast", "sigmoid.fast", 1.0f / (1.0f + __expf(-x)))                           \
    F("sigmoid.tanhf.fast", "sigmoid.tanhf.fast", 0.5f * tanhf(0.5f * x) + 0.5f)                   \
    F("sqrt-softplus.log1pf.fast", "sqrt-softplus.log1pf.fast", sqrtf(log1pf(expf(x))))            \
    F("sqrt-softplus.__logf.fast", "sqrt-softplus.__logf.fast",                                    \
      sqrtf(x > 20.0f ? x : __logf(1.0f + __expf(x))))                                             \
    F("sqrt-softplus.fmaxf.fast", "sqrt-softplus.fmaxf.fast",                                      \
      sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)))))
#endif

#endif
