/* Inside ref/num: the one rounding, from a binary64 value to a smaller format.
 *
 * Integer arithmetic on the binary64 word: independent of the rounding mode, FTZ and DAZ, and of
 * the compiler. Inline, so that the constants of each format fold. */
#ifndef MOEREF_NUM_ENCODE_H
#define MOEREF_NUM_ENCODE_H

#include "bits.h"
#include "num.h"

/* The magnitude n * 2^(exponent - precision + 1), of a finite value; n < 2^precision, or equal to
 * it after a carry: the value, and the code made from it, are right all the same. */
struct rounded {
    uint64_t n;
    int exponent;
};

/* magnitude: a finite binary64 word without its sign. precision <= 24. */
static inline struct rounded round_magnitude(uint64_t magnitude, int precision, int emin,
                                             enum mr_rounding r)
{
    uint64_t m = magnitude & 0xfffffffffffff;
    int biased = (int)(magnitude >> 52);
    if (biased) m |= 1ull << 52;
    /* Subnormal doubles lie far below half of the least value of every format here: what their
     * exponent is does not matter. */
    int e = biased - 1023;
    int exponent = e < emin ? emin : e;
    int shift = 53 - precision + (exponent - e);
    if (shift > 54) shift = 54; /* m < 2^53 is below half of the last place, as for any longer */
    uint64_t n = m >> shift;
    uint64_t rest = m & ((1ull << shift) - 1), half = 1ull << (shift - 1);
    /* No branch: which way a sum rounds is not predictable. */
    n += (r == MR_RNE) & ((rest > half) | ((rest == half) & (n & 1)));
    return (struct rounded){n, exponent};
}

/* What a format's codes are, beside its parameters: codes of positive values. */
struct coding {
    int precision, emin;
    uint32_t largest, infinity, nan; /* infinity = nan in a format that has no Inf */
    uint32_t sign;
};

static inline uint32_t encode(double value, const struct coding c, enum mr_rounding r,
                              enum mr_overflow o)
{
    uint64_t word = f64_bits(value);
    uint64_t magnitude = word & 0x7fffffffffffffff;
    uint64_t inf = 0x7ffull << 52;
    uint32_t sign = word >> 63 ? c.sign : 0;
    uint32_t infinity = c.infinity == c.nan ? c.nan : sign | c.infinity; /* a NaN has no sign */
    if (magnitude > inf) return c.nan;
    if (magnitude == inf) return o == MR_OVERFLOW_SATURATE ? sign | c.largest : infinity;
    struct rounded x = round_magnitude(magnitude, c.precision, c.emin, r);
    /* Codes of positive values are consecutive integers: the hidden bit of n, or its carry, adds
     * one to the exponent field. */
    uint64_t code = ((uint64_t)(x.exponent - c.emin) << (c.precision - 1)) + x.n;
    if (code <= c.largest) return sign | (uint32_t)code;
    return r == MR_RZ || o == MR_OVERFLOW_SATURATE ? sign | c.largest : infinity;
}

#endif
