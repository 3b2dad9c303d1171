/* Hot loops over the experts of one token. */
#ifndef MOEREF_KEYS_SIMD_H
#define MOEREF_KEYS_SIMD_H

#include <stddef.h>

#include "../isa.h"

/* Key intervals: key = score + bias, lo/hi = key -+ r rounded outward,
 * r = slope * radius + rel * score + u |key|, radius = scale * norm + offset. bias NULL: zeros. */
MR_ISA_DECLARE(void, mr_key_intervals, const double *score, const double *norm,
               const double *bias, size_t n, double scale, double offset, double rel, double *lo,
               double *hi);
/* top[0..k) = the k largest of n values, descending; -Inf where there are fewer, NaN counts as
 * smallest. */
MR_ISA_DECLARE(void, mr_k_largest, const double *value, int n, int k, double *top);
/* Ascending indices of the values >= bar; returns how many. */
MR_ISA_DECLARE(int, mr_at_least, const double *value, int n, double bar, int *index);
/* lo/hi = value -+ (scale * norm + offset), outward. */
MR_ISA_DECLARE(void, mr_value_intervals, const double *value, const double *norm, size_t n,
               double scale, double offset, double *lo, double *hi);
/* Indices of the k <= n largest keys, descending, the lowest index among equals; NaN is never
 * larger. bar: a number that k keys are known to reach, -Inf if none is known: spares most of the
 * work. */
MR_ISA_DECLARE(void, mr_select_top, const float *key, int n, int k, float bar, int *chosen);
/* lo/hi = value * (1 -+ rel), for value >= 0. */
MR_ISA_DECLARE(void, mr_relative_intervals, const double *value, size_t n, double rel, double *lo,
               double *hi);
/* key = score + bias in binary32; error = |key - exact|. bias NULL: zeros. */
MR_ISA_DECLARE(void, mr_emulated_keys, const float *score, const float *bias, const double *exact,
               size_t n, float *key, double *error);

#endif
