/* Operands for tensor-core arithmetic, by classes that look for trouble. All random numbers come
 * from one stream. */
#ifndef MMA_INPUTS_H
#define MMA_INPUTS_H

#include "../../ref/arith/mma_chain.h"

enum mma_class {
    MMA_RANDOM,  /* uniformly random encodings */
    MMA_NORMAL,  /* N(0,1) */
    MMA_SPREAD,  /* exponents over up to 250 binades */
    MMA_CANCEL,  /* products in pairs of opposite sign, equal or one unit apart */
    MMA_TIES,    /* one large product; others at the places where truncation cuts */
    MMA_ZEROS,   /* rows, columns, heads and tails of zeros of both signs, single elements */
    MMA_SMALL,   /* least exponents and subnormals, small accumulators */
    MMA_LARGE,   /* greatest exponents and accumulators: the edge of overflow */
    MMA_SPECIAL, /* N(0,1) with Inf and NaN here and there */
    MMA_FULL,    /* greatest significands, equal exponents and signs: the greatest sums */
    MMA_EDGE,    /* exponent sums around the ends of what the loops serve */
    MMA_CLASSES
};
extern const char *const mma_class_names[MMA_CLASSES];

uint64_t mma_random(uint64_t *state); /* splitmix64 */
uint32_t mma_below(uint64_t *state, uint32_t n);

struct mma_case {
    const struct mr_mma *mma;
    size_t rows, cols, k;
    uint32_t *a, *b;  /* [rows, k], [cols, k]: encodings */
    uint32_t *c;      /* [rows, cols] */
    uint8_t *sa, *sb; /* [rows, blocks], [cols, blocks] */
    size_t blocks;
    unsigned char *packed_a, *packed_b; /* the same as stored elements */
};
void mma_case_make(struct mma_case *m, const struct mr_mma *mma, enum mma_class class, size_t rows,
                   size_t cols, size_t k, uint64_t *state);
void mma_case_free(struct mma_case *m);
struct mr_mma_operand mma_case_a(const struct mma_case *m), mma_case_b(const struct mma_case *m);
/* One output by the reference. order may be NULL, c_bits is the accumulator. */
uint32_t mma_case_reference(const struct mma_case *m, size_t row, size_t col, size_t begin,
                            size_t end, const uint32_t *order, uint32_t c);

/* All rows of the table whose parameters or types differ from those of any row before. */
size_t mma_distinct(const struct mr_mma **out, size_t most);

#endif
