/* Hot loops of the filter. */
#ifndef MOEREF_FILTER_SIMD_H
#define MOEREF_FILTER_SIMD_H

#include "../isa.h"
#include "filter.h"

/* sums[c] += x . v[c], c < MR_CHECKS; rows of v are `stride` apart. */
MR_ISA_DECLARE(void, mr_check_dots, const float *x, const double *v, size_t stride, size_t n,
               double *sums);
/* acc[i] += c[i] */
MR_ISA_DECLARE(void, mr_accumulate_f32, const float *c, size_t n, double *acc);
MR_ISA_DECLARE(void, mr_accumulate_f64, const double *c, size_t n, double *acc);

#endif
