/* Recordings of data/cuda-h200, and evaluation of what they are checksums of. */
#ifndef CUDA_RECORDED_H
#define CUDA_RECORDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../ref/arith/cuda.h"

enum { CUDA_BLOCK = 1 << 20, CUDA_BLOCKS = 4096 };

/* Opens data/cuda-h200/NAME; fails the test if it cannot. Never closed. */
const struct mr_safetensors *cuda_recording(const char *name);
/* Copies the checksums of a tensor, of which there must be n; false if there is no such tensor. */
bool cuda_recorded(const struct mr_safetensors *file, const char *tensor, uint64_t *sums, size_t n);

/* Checksum of a model's outputs for block b: inputs b 2^20 ...; or set b of pairs. */
uint64_t cuda_block(enum mr_cuda_id id, uint32_t block);
uint64_t cuda_pair_block(enum mr_cuda_quotient how, uint32_t set);

/* Which blocks a test runs over: all if MOEREF_LONG is set; else those where functions change (0
 * and subnormals, 2^-126, 1, 16.6, 20, the ends of exp, Inf and NaN) and `random` others.
 * Returns how many. */
int cuda_choose_blocks(uint32_t *blocks, int random, uint64_t seed);

#endif
