/* What the tests of the exact layer hold it against: GMP integers at one fixed scale, and MPFR with
 * bits to spare. Written without a look at ref/exact: other decodings, other formulas. */
#ifndef MPFR_ORACLE_H
#define MPFR_ORACLE_H

#include <gmp.h>
#include <mpfr.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../ref/exact/exact.h"
#include "../../ref/route/router.h"

/* Sebastiano Vigna's splitmix64: one word of state, any seed. */
uint64_t oracle_random(uint64_t *state);
double oracle_uniform(uint64_t *state, double least, double most);

/* A stored format: bits of the fraction, bytes, the exponent field of its largest numbers. */
struct oracle_fields {
    int fraction, bytes, top;
};
struct oracle_fields oracle_fields(enum mr_dtype dtype);

/* Writes element i from its fields; m is cut to the fraction. */
void oracle_put(void *row, enum mr_dtype dtype, size_t i, int sign, int exponent, uint32_t m);

/* Random signs and fractions, exponent fields from [low, low + span], cut to the finite ones; 0 is
 * subnormal or zero. */
void oracle_fill(uint64_t *seed, void *row, enum mr_dtype dtype, size_t n, int low, int span);

/* Makes the second half of the products the first half's with the other sign, all shuffled; the
 * last `rest` ones stay. */
void oracle_cancel(uint64_t *seed, void *x, enum mr_dtype x_dtype, void *w, enum mr_dtype w_dtype,
                   size_t n, size_t rest);

/* Element i of a stored vector (BF16, F16, F32) from its fields. */
double oracle_value(const void *data, enum mr_dtype dtype, size_t i);
/* out = element i times 2^149. */
void oracle_element(mpz_t out, const void *data, enum mr_dtype dtype, size_t i);

/* sum = the dot product, size = the sum of |products|, both in units of 2^-298, the finest any
 * product of binary32 numbers needs. least = the lowest set bit of any product (0 if all are zero).
 */
struct oracle_dot {
    mpz_t sum, size;
    unsigned long least;
};
void oracle_dot_init(struct oracle_dot *dot);
void oracle_dot_clear(struct oracle_dot *dot);
void oracle_dot(struct oracle_dot *dot, const void *x, enum mr_dtype x_dtype, const void *w,
                enum mr_dtype w_dtype, size_t n);

/* NULL if hi is sum rounded to nearest, lo the rest rounded to nearest, and complete tells whether
 * that is all; else what is wrong. sum in units of 2^-298. */
const char *oracle_judge(const mpz_t sum, struct mr_exact got);

/* Scores by the textbook formula at 2000 bits more than out holds (and the bits that the span of
 * the logits costs), then one rounding. */
void oracle_sigmoid(mpfr_t out, const mpfr_t x);
void oracle_softmax(mpfr_t out, const mpfr_t *logits, int count, int which);

/* out = key a - key b, with key = score(logit) + bias. out's precision is that of the evaluation:
 * absolute error below 2^(8 - precision), if biases are below 2. */
void oracle_difference(mpfr_t out, enum mr_score score, const mpfr_t *logits, int count,
                       const double *bias, int a, int b);

#endif
