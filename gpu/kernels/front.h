/* What merged_front.cu puts beside the gate, and where. Plain C as well, for tests.
 *
 * The harness has no projection, and judges the router alone: so the kernel makes a weight of its
 * own, a fixed pseudo-random bf16 pattern, and the projection's results stay in its scratch. */
#ifndef MOEREF_FRONT_H
#define MOEREF_FRONT_H

#include <stdint.h>

#include "../harness.h"
#include "rank.h"

#define FRONT_ROWS 3584 /* of the projection: 1536 + 2048, what a 7168-wide model stacks there */

/* Element i of the projection, row major: a random sign and 8 random low bits on 2^-7, magnitudes
 * from 2^-7 to 2^-5. The bits are those of i after the finalizer of MurmurHash3. */
MR_BOTH static inline uint16_t front_weight(uint32_t i)
{
    i ^= i >> 16;
    i *= 0x85ebca6bu;
    i ^= i >> 13;
    i *= 0xc2b2ae35u;
    i ^= i >> 16;
    return (uint16_t)((i & 0x80ffu) | 0x3c00u);
}

/* Columns of the merged logits: experts, then the projection. */
static inline uint64_t front_columns(const struct mr_kernel_problem *p)
{
    return (uint64_t)p->router.experts + FRONT_ROWS;
}

/* Bytes of what lies in scratch behind cuBLAS's workspace: merged [rows, columns] fp32, then the
 * rest [rows, FRONT_ROWS] bf16. */
static inline uint64_t front_merged_bytes(const struct mr_kernel_problem *p)
{
    return ((uint64_t)p->rows * front_columns(p) * sizeof(float) + 255) / 256 * 256;
}
static inline uint64_t front_rest_bytes(const struct mr_kernel_problem *p)
{
    return (uint64_t)p->rows * FRONT_ROWS * sizeof(uint16_t);
}

#endif
