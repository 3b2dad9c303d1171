/* The hot loops of the exact layer, one symbol for each instruction set; contracts in exact.h. */
#ifndef MOEREF_DOT_SIMD_H
#define MOEREF_DOT_SIMD_H

#include "../isa.h"
#include "exact.h"

MR_ISA_DECLARE(struct mr_exact, mr_split_dot_f32, const double *x, const float *w, size_t n,
               double magic);
MR_ISA_DECLARE(struct mr_exact, mr_split_dot_f64, const double *x, const double *w, size_t n,
               double magic);
MR_ISA_DECLARE(double, mr_plain_dot_f32, const double *x, const float *w, size_t n);
MR_ISA_DECLARE(double, mr_plain_dot_f64, const double *x, const double *w, size_t n);
MR_ISA_DECLARE(void, mr_plain_dots_f32, const double *x, const float *const *w, size_t n,
               double *out);
MR_ISA_DECLARE(void, mr_plain_dots_f64, const double *x, const double *const *w, size_t n,
               double *out);
MR_ISA_DECLARE(void, mr_row_scan_add, struct mr_row_scan *scan, const float *values, size_t n);

#endif
