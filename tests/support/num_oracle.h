/* Oracles for ref/num: decoding by ldexp of the fields, rounding by MPFR, codes by looking a value
 * up in the table of all decoded values. Nothing here calls the code under test. */
#ifndef NUM_ORACLE_H
#define NUM_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../ref/num/num.h"

struct num_format {
    const char *name;
    int exponent_bits, fraction_bits, bias;
    int low_bits;  /* bits of the word below the format's own: 13 for tf32 */
    bool has_inf;
    uint32_t nan;  /* the canonical NaN that num.h states */
    const struct mr_format *parameters;
};
extern const struct num_format num_bf16, num_fp16, num_tf32, num_fp32, num_e4m3, num_e5m2;

/* The value of a word; NaN (of no stated sign) for a NaN. */
double num_decode(const struct num_format *format, uint32_t word);

/* The words of all finite values that are not negative, in ascending order, are 0, 1, 2 ... shifted
 * by low_bits: how many there are. */
uint32_t num_finite(const struct num_format *format);
uint32_t num_sign(const struct num_format *format); /* the sign bit of its words */

/* The exact sum hi + lo at 2200 bits, rounded once by MPFR to precision and range; then the word
 * that num_decode reads as that value. */
double num_round(const struct num_format *format, double hi, double lo, enum mr_rounding r);
uint32_t num_encode(const struct num_format *format, double value, enum mr_rounding r,
                    enum mr_overflow o);

uint64_t num_random(uint64_t *state); /* splitmix64 */
uint64_t num_word64(double value);
double num_double(uint64_t word);

#endif
