/* Exact dot products of stored bf16, fp16 and fp32 vectors, and certified comparison of rank keys.
 *
 * A dot product of such vectors is a rational with a power of two below, so it can be had exactly.
 * Products are exact in binary64 (at most 48 significand bits). Let S bound sum|p| and let every
 * product be a multiple of L. Three ways, fastest first:
 *
 * Plain binary64 sum (dot_simd.c), about 0.3 us at n = 4096. All partial sums, in any order, are
 * multiples of L of size at most S: exact when S <= 2^53 L.
 *
 * Split accumulation (dot_simd.c), about twice that. Let G be a power of two with S <= 2^50 G. An
 * accumulator that starts at
 * M = 1.5 * 2^52 G stays in the binade [2^52 G, 2^53 G), where numbers are the multiples of G, as
 * long as the rounded terms sum to at most 2^51 G: each adds at most |p| + G/2, together
 * S + n G/2 <= (2^50 + n/2) G, fine for n <= 2^50. So acc' = fl(acc + p) adds t = acc' - acc, a
 * multiple of G with |p - t| <= G/2, and t is exact (Sterbenz). The rest p - t is a multiple of L
 * below G/2, and so are all partial sums of the rests, below n G/2; both are exact when
 *     n G / 2 <= 2^53 L.
 * Then the dot is (acc - M) + rest without any error: no summation order matters.
 * Both conditions need only per-row facts (norm, smallest non-zero magnitude): S <= ||x|| ||w|| and
 * L = ulp_min(x) ulp_min(w). The split allows 38 binades more than the plain sum at n = 4096, and
 * serves fp32 vectors too.
 *
 * Integer bins (bins.c), one 128-bit bin for each exponent, always possible, about 10 us. */
#ifndef MOEREF_EXACT_H
#define MOEREF_EXACT_H

#include <mpfr.h>
#include <stdbool.h>
#include <stddef.h>

#include "../status.h"
#include "../tensor.h"
#include "dd.h"

/* An exact logit. hi = RN(value), lo = RN(value - hi). */
struct mr_exact {
    double hi, lo;
    bool complete; /* value == hi + lo; if not, mr_exact_value gives the value */
};

/* What the filter, the radius and the split dot need to know about a row of a matrix. */
struct mr_row_stats {
    double norm;  /* >= ||row||_2, by at most (n + 8) 2^-52 relative */
    double max;   /* max |element| */
    int ulp;      /* every element is a multiple of 2^ulp; 0 for a zero row */
    bool finite;  /* no Inf, no NaN; if false the rest says nothing */
};

/* A running form, so that a row may come in pieces. */
struct mr_row_scan {
    double sum_squares;
    uint32_t max_bits, min_bits; /* binary32 magnitudes; min over non-zero elements */
    size_t count;
};
void mr_row_scan_begin(struct mr_row_scan *scan);
void mr_row_scan_add(struct mr_row_scan *scan, const float *values, size_t n);
/* dtype: what the values were stored as (BF16, F16, F32): it fixes the ulp. */
struct mr_row_stats mr_row_scan_end(const struct mr_row_scan *scan, enum mr_dtype dtype);

enum mr_dot_way { MR_DOT_PLAIN, MR_DOT_SPLIT, MR_DOT_BINS };
struct mr_dot_plan {
    enum mr_dot_way way;
    double magic; /* M of the split */
};

/* The fastest way that is exact for these two finite rows of n elements. */
struct mr_dot_plan mr_dot_choose(const struct mr_row_stats *x, const struct mr_row_stats *w,
                                 size_t n);

/* PLAIN and SPLIT. x: n elements widened to binary64, w: to binary32 or binary64. */
struct mr_exact mr_dot_f32(struct mr_dot_plan plan, const double *x, const float *w, size_t n);
struct mr_exact mr_dot_f64(struct mr_dot_plan plan, const double *x, const double *w, size_t n);
/* Four rows at once, each of which would be PLAIN. */
void mr_dots_f32(const double *x, const float *const w[4], size_t n, double out[4]);
void mr_dots_f64(const double *x, const double *const w[4], size_t n, double out[4]);

/* Exact dot of two stored vectors (BF16, F16, F32, all elements finite) by integer bins. out is
 * reset to a precision that holds the value exactly. n <= 2^40. */
enum mr_status mr_bins_dot(const void *x, enum mr_dtype x_dtype, const void *w,
                           enum mr_dtype w_dtype, size_t n, mpfr_t out);
struct mr_exact mr_exact_from_mpfr(const mpfr_t value);

/* The dot product of row i of a and row j of b, by whichever way applies; for callers that have
 * nothing prepared. MR_ERR_VALUE if an element is not finite, MR_ERR_SHAPE if the rows differ in
 * length. */
enum mr_status mr_exact_dot(const struct mr_matrix *a, size_t i, const struct mr_matrix *b,
                            size_t j, struct mr_exact *out);

#endif
