/* A sum of one dot product from the text of ref/arith/sum.h alone: no plan, no vectors, one scalar
 * operation after the other. And random shapes and numbers to hold it against. */
#ifndef SLOW_SUM_H
#define SLOW_SUM_H

#include "../../ref/arith/arith.h"

/* x, w: values, n of each; scale: of each tile of the promote level, NULL: 1. */
float slow_sum(const struct mr_sum_shape *sum, const float *x, const float *w, size_t n,
               const float *scale);

/* A shape with up to `levels` levels and parts and tiles of the order of n; instructions only of
 * the list (NULL at its end), which may be empty. */
void slow_shape(uint64_t *seed, size_t n, int levels, const char *const *instructions,
                struct mr_sum_shape *out);

/* Kinds of numbers: what is hard for a sum. */
enum slow_class {
    SLOW_NORMAL,  /* of the order of 1 */
    SLOW_TIES,    /* small integers by powers of two: sums that lie halfway */
    SLOW_HALVES,  /* bits 24: sums next to halfway, by less than binary64 has */
    SLOW_SPREAD,  /* exponents far apart, and some zeros of both signs */
    SLOW_TINY,    /* products around and below the least subnormal */
    SLOW_HUGE,    /* sums that overflow */
    SLOW_SPECIAL, /* now and then an Inf or a NaN */
    SLOW_CANCEL,  /* as many negative as positive, of the same few values */
    SLOW_CLASSES
};
/* bits: significand bits of the values, 8 (bf16) or 24. */
void slow_fill(uint64_t *seed, enum slow_class class, int bits, float *to, size_t n);

uint32_t slow_bits(float v); /* of any NaN: 0x7fffffff */

#endif
