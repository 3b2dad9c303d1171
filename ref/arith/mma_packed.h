/* Inside ref/arith: operand b, decoded. */
#ifndef MOEREF_MMA_PACKED_H
#define MOEREF_MMA_PACKED_H

#include "mma_chain.h"
#include "mma_simd.h"

struct mr_mma_packed {
    struct mr_mma mma;
    size_t cols, k;
    struct mr_mma_shape shape;
    size_t tiles;
    uint32_t *order; /* [k], or NULL */
    uint32_t *codes; /* [cols, k], encodings in chain order */
    uint8_t *scales; /* [cols, blocks], or NULL */
    size_t blocks;
    float *panels;       /* [tiles, k, 3/2 width]; NULL: the reference does it all */
    uint8_t *special;    /* [cols]: a column that the loops cannot have */
    float *significands; /* GROUP_SCALED: [tiles, blocks, width], and exponents */
    int32_t *exponents;
};

struct mr_mma_reading mr_mma_how(const struct mr_mma *mma, enum mr_mma_type type);
/* Encodings of row r at positions [begin, end). */
void mr_mma_gather(const struct mr_mma_operand *m, enum mr_mma_type type, const uint32_t *order,
                   size_t r, size_t begin, size_t end, uint32_t *codes);
/* Positions from `begin` on; scales: of the row, from column 0, or NULL. Returns whether the row is
 * one that the loops cannot have. */
bool mr_mma_read_row(const struct mr_mma *mma, enum mr_mma_type type, const uint32_t *codes,
                     size_t begin, size_t n, const uint8_t *scales, float *value, uint32_t *code);

/* GROUP_SCALED: the scales of n blocks; returns whether one is NaN. */
bool mr_mma_read_scales(const struct mr_mma *mma, const uint8_t *scales, size_t n,
                        struct mr_mma_scale *out);

#endif
