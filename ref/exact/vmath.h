/* exp and sigmoid over arrays in binary64, with proven error bounds, and rounding of intervals to
 * smaller formats. u = 2^-53. All need round-to-nearest. */
#ifndef MOEREF_VMATH_H
#define MOEREF_VMATH_H

#include <stddef.h>
#include <stdint.h>

#include "../isa.h"

/* Relative error bounds, in units of u, of what follows (derivations in vmath_simd.c). Results
 * below 2^-1020 are only within 2^-1020 of the truth. */
#define MR_EXP_ULPS 3.0
#define MR_SIGMOID_ULPS 6.0
#define MR_TINY 0x1p-1020

/* y[i] = 1 / (1 + exp(-x[i])); x finite. y may be x. */
void mr_vec_sigmoid(const double *x, size_t n, double *y);
/* y[i] = exp(x[i] - m) for x[i] <= m; the rounded subtraction adds |x[i] - m| u to the relative
 * error. y may be x. */
void mr_vec_exp_below(const double *x, double m, size_t n, double *y);

/* out[i] = the value in [lo[i], hi[i]] rounded once (RNE) to `precision` significand bits (24, 11,
 * 8), if all of that interval rounds to one value and it lies within the normal range
 * [least, most]; else undecided[i] = 1 and out[i] is not promised. Returns how many are undecided. */
size_t mr_vec_round(const double *lo, const double *hi, size_t n, int precision, double least,
                    double most, float *out, uint8_t *undecided);

MR_ISA_DECLARE(void, mr_vec_sigmoid, const double *x, size_t n, double *y);
MR_ISA_DECLARE(void, mr_vec_exp_below, const double *x, double m, size_t n, double *y);
MR_ISA_DECLARE(size_t, mr_vec_round, const double *lo, const double *hi, size_t n, int precision,
               double least, double most, float *out, uint8_t *undecided);

#endif
