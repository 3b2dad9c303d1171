/* The inputs of the tensor-core evidence (data/mma-h200): tiles of operands made by class, from
 * integers alone, so that the program that asks the GPU (gpu/evidence) and the tests that ask the
 * model see the same words, and fresh tiles cost nothing.
 *
 * A tile is A [64][k], B [8][k], C [64][8]; an instruction makes D [64][8], each output a step of
 * its own. k fills 32 bytes: 8 tf32, 16 half-precision, 32 of the 8-bit formats. */
#ifndef MMA_CLASSES_H
#define MMA_CLASSES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MMA_ROWS = 64, MMA_COLS = 8, MMA_MAX_K = 32 };

/* An encoding: sign, exponent and fraction fields, above `low` bits that hardware ignores. */
struct mma_format {
    const char *name;
    int bits, exponent, fraction, low;
    int bias, top; /* largest exponent of a finite value */
};
extern const struct mma_format mma_bf16, mma_fp16, mma_tf32, mma_e4m3, mma_e5m2, mma_fp32, mma_s8,
    mma_s32;

/* Operand types that instructions share. Name: A-C, or A-B-C where A and B differ. */
struct mma_set {
    const char *name;
    const struct mma_format *a, *b, *c;
    int k;
};
extern const struct mma_set mma_sets[];
extern const int mma_set_count;

extern const char *const mma_classes[];
extern const int mma_class_count;

struct mma_tile {
    uint32_t a[MMA_ROWS * MMA_MAX_K], b[MMA_COLS * MMA_MAX_K], c[MMA_ROWS * MMA_COLS];
};
/* a and b have row pitch set->k. Same arguments, same words. */
void mma_tile_make(const struct mma_set *set, int class_index, uint32_t number,
                   struct mma_tile *tile);

#ifdef __cplusplus
}
#endif
#endif
