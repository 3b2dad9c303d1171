/* Inside ref/num: the loops of widen_simd.c, one of each for every instruction set. */
#ifndef MOEREF_NUM_WIDEN_H
#define MOEREF_NUM_WIDEN_H

#include <stddef.h>

#include "../isa.h"

MR_ISA_DECLARE(void, mr_widen_bf16_f32, const void *restrict src, size_t n, float *restrict dst);
MR_ISA_DECLARE(void, mr_widen_f16_f32, const void *restrict src, size_t n, float *restrict dst);
MR_ISA_DECLARE(void, mr_widen_f32_f32, const void *restrict src, size_t n, float *restrict dst);
MR_ISA_DECLARE(void, mr_widen_bf16_f64, const void *restrict src, size_t n, double *restrict dst);
MR_ISA_DECLARE(void, mr_widen_f16_f64, const void *restrict src, size_t n, double *restrict dst);
MR_ISA_DECLARE(void, mr_widen_f32_f64, const void *restrict src, size_t n, double *restrict dst);
MR_ISA_DECLARE(void, mr_widen_f64_f64, const void *restrict src, size_t n, double *restrict dst);

#endif
