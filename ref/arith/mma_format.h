/* Number formats as the tensor core reads them: sign, integer significand, exponent. */
#ifndef MOEREF_MMA_FORMAT_H
#define MOEREF_MMA_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mr_mma_type {
    MR_MMA_FP32, /* accumulators only */
    MR_MMA_BF16,
    MR_MMA_FP16,
    MR_MMA_TF32, /* a word of 32 bits, the low 13 are cleared before all else */
    MR_MMA_E4M3, /* no Inf, NaN S.1111.111 */
    MR_MMA_E5M2,
    MR_MMA_E3M2, /* e3m2, e2m3, e2m1: no Inf, no NaN; in the low bits of a byte */
    MR_MMA_E2M3,
    MR_MMA_E2M1,
    MR_MMA_UE8M0, /* scales: 2^(x-127), 0xff NaN */
    MR_MMA_UE4M3, /* scales: e4m3, sign ignored */
    MR_MMA_TYPE_COUNT
};

struct mr_mma_type_info {
    const char *name;
    unsigned bytes; /* of one stored element: 1, 2 or 4 */
    int bits;       /* of the encoding, sign included */
    int fraction;   /* fraction bits */
    int emin;       /* exponent of subnormals and of the least normal number */
    int top;        /* exponent field of all ones */
    uint32_t sign;  /* sign bit */
    bool has_inf;   /* all-ones exponent: Inf if the fraction is 0, else NaN */
    uint32_t nan;   /* without has_inf: the one magnitude that is NaN; 0: none */
};
extern const struct mr_mma_type_info mr_mma_types[MR_MMA_TYPE_COUNT];

const char *mr_mma_type_name(enum mr_mma_type type);
/* The type of that name, or -1. */
int mr_mma_type_parse(const char *name, size_t length);

enum mr_mma_class { MR_MMA_FINITE, MR_MMA_INF, MR_MMA_NAN };

/* (-1)^negative * significand * 2^(exponent - fraction of the type). A subnormal (and zero) has
 * emin and no hidden bit: never normalised, never flushed. */
struct mr_mma_number {
    enum mr_mma_class class;
    bool negative;
    uint32_t significand;
    int exponent;
};
struct mr_mma_number mr_mma_decode(enum mr_mma_type type, uint32_t bits);

/* The encoding of a binary32 number, *exact false if the format has none of that value (its bits
 * are then unspecified). Inf and NaN go to Inf and a NaN where the format has them; of a tf32 word
 * the low 13 bits must be 0. */
uint32_t mr_mma_encode_exact(enum mr_mma_type type, uint32_t fp32, bool *exact);

#endif
