/* Hot loops of the filter. */
#ifndef MOEREF_FILTER_SIMD_H
#define MOEREF_FILTER_SIMD_H

#include "../isa.h"
#include "filter.h"

/* Takes in n elements of a row in one pass: x = the values widened, scan goes on over them, and
 * sums[c] += x . v[c], c < MR_CHECKS; rows of v are `stride` apart. */
MR_ISA_DECLARE(void, mr_take_bf16, const void *src, size_t n, const double *v, size_t stride,
               float *x, struct mr_row_scan *scan, double *sums);
/* The same of values already widened. */
MR_ISA_DECLARE(void, mr_take_f32, const float *x, size_t n, const double *v, size_t stride,
               struct mr_row_scan *scan, double *sums);
/* sums[c] += sum_e value[e] * scale[e] * sign[e * MR_CHECKS + c]; returns max_e scale[e]. */
MR_ISA_DECLARE(double, mr_signed_sums, const double *value, const double *scale,
               const double *sign, size_t n, double *sums);
/* acc[i] += c[i] */
MR_ISA_DECLARE(void, mr_accumulate_f32, const float *c, size_t n, double *acc);
MR_ISA_DECLARE(void, mr_accumulate_f64, const double *c, size_t n, double *acc);

#endif
