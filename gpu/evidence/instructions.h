/* The tensor-core instructions of sm_90a, one launcher each, over tiles of
 * tests/support/mma_classes.h. */
#ifndef EVIDENCE_INSTRUCTIONS_H
#define EVIDENCE_INSTRUCTIONS_H

#include <stdint.h>

#include "../../tests/support/mma_classes.h"

/* Tiles as the kernels read them, packed: A [64][32 bytes], B [8][32 bytes], C and D [64][8] words
 * (fp16 in the low half). */
struct device_tile {
    uint8_t a[MMA_ROWS * 32], b[MMA_COLS * 32];
    uint32_t c[MMA_ROWS * MMA_COLS];
};

struct instruction {
    /* PTX name without .sync and .aligned: mma.mMnNkK.D.A.B, and what differs from the plain form:
     * +ra: A from registers; +na, +nb: imm-scale -1; +ta, +tb: that operand MN-major; +z: scale-d
     * 0; +sat: .satfinite. Sparse forms (mma.sp, wgmma.sp) read A compressed: its elements are the
     * first two of each four of B's positions, and what stands in B at the others is NaN. */
    const char *name;
    const char *set; /* of mma_sets */
    int k;           /* how many of the set's k positions it reads: the first ones */
    void (*launch)(const struct device_tile *tiles, uint32_t *d, int count);
};
extern const struct instruction instructions[];
extern const int instruction_count;

/* wgmma's MN-major layout has two strides whose names differ between descriptions: swaps them. */
void instructions_swap_strides(int swapped);

#endif
