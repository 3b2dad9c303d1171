/* Inside ref/arith: the loops of mma_chain.c. See mma_simd.c for why they are exact. */
#ifndef MOEREF_MMA_SIMD_H
#define MOEREF_MMA_SIMD_H

#include "../isa.h"
#include "mma.h"

/* A code is 0 for a zero element, else the exponent + CODE_BIAS: the sum of two codes is a
 * product's exponent + 2 * CODE_BIAS, or less than that of any nonzero product. */
enum {
    MMA_CODE_BIAS = 512,
    MMA_LEAST = -100, /* exponents of alignment for which the loops are exact */
    MMA_MOST = 120
};

/* What decodes elements: value as binary32, code twice (in both halves of a word). */
struct mr_mma_reading {
    enum mr_mma_type type;
    int emin; /* -14 for an 8-bit type that is read as fp16 */
};
/* Elements codes[n] (encodings); scales (of blocks of scale_block elements, from element 0) or
 * NULL. Returns whether an element is not finite, or does not fit with its scale: then the loops
 * must not be used. */
MR_ISA_DECLARE(bool, mr_mma_read, struct mr_mma_reading how, const uint32_t *codes, size_t n,
               float *value, uint32_t *code);

/* Columns of a tile, rows that go together. A tile has for every position `width` values, then
 * width / 2 words: codes of columns i (low half) and i + width / 2 (high half). */
struct mr_mma_shape {
    size_t width, rows;
};
MR_ISA_DECLARE(struct mr_mma_shape, mr_mma_shape, void);

/* GROUP_SCALED: a scale is significand * 2^(exponent - fraction of its type), both integers. */
struct mr_mma_scale {
    float significand;
    int32_t exponent;
};

struct mr_mma_rows {
    const struct mr_mma *mma;
    const float *tile;  /* from the first position of the chain */
    const float *value; /* rows at value + r * stride, code + r * stride */
    const uint32_t *code;
    size_t stride, n;
    /* GROUP_SCALED, from the first block of the chain: */
    const struct mr_mma_scale *a_scales; /* rows at a_scales + r * a_blocks */
    size_t a_blocks;
    const float *b_significands; /* [blocks, width] */
    const int32_t *b_exponents;
};
/* d [rows, width]: in the c, out the results, as binary32 numbers (also of fp16 accumulators).
 * bad [rows, width]: not zero where d is not to be used. The caller has set rounding toward zero
 * (to nearest for BY_FP16), and neither FTZ nor DAZ. */
MR_ISA_DECLARE(void, mr_mma_run, const struct mr_mma_rows *in, float *d, uint32_t *bad);
/* The same for GROUP_SCALED. */
MR_ISA_DECLARE(void, mr_mma_run_groups, const struct mr_mma_rows *in, float *d, uint32_t *bad);

#endif
