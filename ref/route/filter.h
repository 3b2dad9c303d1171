/* First step of certified routing: approximate logits of a block of rows by BLAS, with a rigorous
 * error radius.
 *
 * Columns go in chunks of 256. u32 = 2^-24, u = 2^-53, p the products of a row pair, P = ||x|| ||w||
 * >= sum|p| (Cauchy-Schwarz; norms rounded up). Any order of summation of n terms errs by at most
 * (n-1) u sum|terms| (C.-P. Jeannerod, S. M. Rump, SIAM J. Matrix Anal. Appl. 34 (2013)).
 *   fp64: a chunk errs by 255 u sum|p|, adding the C chunk results by (C-1) u (1 + 255 u) P:
 *         radius = (255 + 1.001 C) u P, products being exact (at most 48 bits).
 *   fp32: for bf16 and fp16 inputs products (at most 22 bits) are exact in binary32 unless they
 *         underflow, which costs at most 2^-150 each (2^-126 if FTZ or DAZ is on); sums of binary32
 *         numbers underflow exactly. Two chunks are summed in binary32, then added in binary64:
 *         radius = (511 u32 + 1.001 C u) P + n 2^-150, C the number of pairs.
 *         512 max|x| max|w| < 2^127 excludes overflow; other rows are computed exactly instead.
 * The chunk keeps the radius small (a whole fp64 row of 4096 would have 4095 u) at the price of one
 * addition in 256 or 512 multiply-adds. */
#ifndef MOEREF_FILTER_H
#define MOEREF_FILTER_H

#include <stdbool.h>

#include "../exact/exact.h"
#include "../status.h"
#include "blas.h"

enum {
    MR_CHUNK = 256,
    MR_CHECKS = 4,     /* +-1 vectors of the BLAS check */
    MR_BLOCK_ROWS = 256 /* fixed: results must not depend on the number of threads */
};

/* A gate weight made ready; shared by all threads. */
struct mr_gate {
    struct mr_matrix stored;
    bool narrow;   /* fp32 filter: f32 is filled, else f64 */
    float *f32;    /* [experts, hidden] */
    double *f64;   /* [experts, hidden] */
    struct mr_row_stats *stats; /* [experts] */
    double *norm, *inverse_norm; /* [experts]; inverse 0 for a zero row */
    double *check; /* [MR_CHECKS, hidden]: sum_e sign(c, e) w_e / ||w_e|| */
    double *signs; /* [experts, MR_CHECKS] */
    size_t *zero_row, zero_rows; /* experts whose weights are all zero */
    double max;    /* max |w| */
    double underflow; /* error of one product by underflow, as the MXCSR says */
};

/* narrow: the fp32 filter may serve (bf16 and fp16 inputs on both sides; ignored otherwise).
 * MR_ERR_VALUE names the first element that is not finite. */
enum mr_status mr_gate_prepare(const struct mr_matrix *stored, enum mr_dtype hidden_dtype,
                               bool narrow, int threads, struct mr_gate *out,
                               struct mr_error *err);
void mr_gate_free(struct mr_gate *gate);
/* +1 or -1: the sign of expert e in check vector c. */
double mr_check_sign(int c, size_t e);

/* Buffers of one thread. */
struct mr_filter {
    float *x32, *c32;
    double *x64, *c64;
    struct mr_row_scan *scans;
    struct mr_row_stats *stats; /* [MR_BLOCK_ROWS] out */
    double *check;              /* [MR_BLOCK_ROWS, MR_CHECKS] out: x . gate->check[c] */
    double *logits;             /* [MR_BLOCK_ROWS, experts] out */
};
enum mr_status mr_filter_new(const struct mr_gate *gate, struct mr_filter *out);
void mr_filter_free(struct mr_filter *f);

/* Rows of stored hidden states, at most MR_BLOCK_ROWS. */
void mr_filter_block(struct mr_filter *f, const struct mr_gate *gate, const void *hidden,
                     enum mr_dtype dtype, size_t rows, const struct mr_blas *blas);

/* radius(e) = scale * gate->norm[e] + offset. false: the row must be computed without the filter. */
struct mr_radius {
    double scale, offset;
};
bool mr_filter_radius(const struct mr_gate *gate, const struct mr_row_stats *row,
                      struct mr_radius *out);

/* The BLAS check of one row: true if it passes. */
bool mr_blas_check(const struct mr_gate *gate, const double *logits, const double *check,
                   const struct mr_radius *radius);

#endif
