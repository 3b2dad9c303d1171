/* How kernels here order rank keys, and what a selected score becomes. Plain C as well, for tests.
 *
 * A key becomes an unsigned integer that orders as its value: NaN below all numbers, -0 as +0. 0 is
 * no key: an expert that is taken, in no chosen group, or not there. So each expert is chosen at
 * most once, whatever the keys are, and a row of NaN gets the lowest ids. */
#ifndef MOEREF_RANK_H
#define MOEREF_RANK_H

#include <stdint.h>

#ifdef __CUDACC__
#define MR_BOTH __host__ __device__
#else
#define MR_BOTH
#endif

#define MR_RANK_NONE 0u
#define MR_RANK_NAN  1u

MR_BOTH static inline uint32_t mr_rank(uint32_t bits)
{
    uint32_t value = bits == 0x80000000u ? 0 : bits;
    value ^= (0u - (value >> 31)) | 0x80000000u;
    return (bits & 0x7fffffffu) > 0x7f800000u ? MR_RANK_NAN : value;
}

/* The denominator when norm_topk_prob: sum + 1e-20, so that scores that are all 0 give 0. */
#define MR_GUARD 1e-20f
MR_BOTH static inline float mr_weight(float score, float sum, int normalise, float scale)
{
    return normalise ? score / (sum + MR_GUARD) * scale : score * scale;
}

#endif
