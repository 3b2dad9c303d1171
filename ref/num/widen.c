#include "widen.h"

#include <fenv.h>
#include <stdbool.h>

#include "bits.h"
#include "num.h"

void mr_widen_f32(const void *src, enum mr_dtype dtype, size_t n, float *dst)
{
    switch (dtype) {
    case MR_BF16: MR_ISA_PICK(mr_widen_bf16_f32)(src, n, dst); return;
    case MR_F16: MR_ISA_PICK(mr_widen_f16_f32)(src, n, dst); return;
    case MR_F32: MR_ISA_PICK(mr_widen_f32_f32)(src, n, dst); return;
    default: break;
    }
    /* Callers check the dtype. Should one not, NaN shows, where stale numbers would not. */
    for (size_t i = 0; i < n; i++) dst[i] = f32_from(0x7fc00000);
}

/* Whether this thread's mode clears subnormal operands (DAZ on x86, FZ on Arm). */
static bool clears_subnormals(void)
{
    volatile float least = 0x1p-149f;
    return f64_bits((double)least) == 0;
}

void mr_widen_f64(const void *src, enum mr_dtype dtype, size_t n, double *dst)
{
    /* The default environment has no such mode (glibc sets all of MXCSR, or FPCR). Asked first: it
     * takes as long as widening a thousand elements to change it and back. */
    bool clears = clears_subnormals();
    fenv_t env;
    if (clears) {
        fegetenv(&env);
        fesetenv(FE_DFL_ENV);
    }
    switch (dtype) {
    case MR_BF16: MR_ISA_PICK(mr_widen_bf16_f64)(src, n, dst); break;
    case MR_F16: MR_ISA_PICK(mr_widen_f16_f64)(src, n, dst); break;
    case MR_F32: MR_ISA_PICK(mr_widen_f32_f64)(src, n, dst); break;
    case MR_F64: MR_ISA_PICK(mr_widen_f64_f64)(src, n, dst); break;
    default:
        for (size_t i = 0; i < n; i++) dst[i] = f64_from(0x7ff8000000000000);
    }
    if (clears) fesetenv(&env);
}
