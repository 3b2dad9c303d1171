/* One swept function: a launcher of each kernel. sweep.cu knows nothing else of the kernels. */
#ifndef SWEEP_KERNELS_H
#define SWEEP_KERNELS_H

#include <stdint.h>

enum { BLOCK_BITS = 20, BLOCKS = 4096 };

struct swept {
    const char *label, *model;
    /* sums[b] = checksum (ref/arith/cuda.h) of the outputs for the inputs b 2^20 ... */
    void (*checksums)(uint64_t *sums);
    /* out[i] = output for the input first + i, i < n */
    void (*values)(uint32_t first, uint32_t n, uint32_t *out);
};

struct swept_list {
    const struct swept *at;
    int count;
};

struct swept_list sweep_functions_0(void); /* default flags */
struct swept_list sweep_functions_1(void); /* -ftz=true */
struct swept_list sweep_functions_2(void); /* -use_fast_math */

/* Two arguments. The pairs are those of pair_of: set < 4096, i < 2^20. */
struct swept2 {
    const char *label;
    void (*checksums)(uint64_t *sums);
    void (*values)(uint32_t set, uint32_t *out);
};
extern const struct swept2 sweep_quotients[4];

#endif
