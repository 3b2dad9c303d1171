/* The pairs (a, b) on which two-argument functions are swept: 4096 sets of 2^20, for the GPU and
 * for the CPU alike (tests/support/cuda_pairs.h includes nothing else). Set s, pair i:
 *   s < 1024:  a = all numerator fractions (8 sets of 2^20) of a few exponents, b one of 16
 * divisors; s < 2048:  b all divisors in steps of 2^12 (i 2^12 plus an offset by s), a by s; above:
 * both words by a counter-based generator (splitmix64 of s 2^20 + i); in every other set the
 * exponents of b are drawn near both ends, where the scaling begins. */
#ifndef SWEEP_PAIRS_H
#define SWEEP_PAIRS_H

#include <stdint.h>

#ifdef __CUDACC__
#define PAIR_FN __host__ __device__ static inline
#else
#define PAIR_FN static inline
#endif

struct pair_words {
    uint32_t a, b;
};

PAIR_FN uint64_t pair_mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

PAIR_FN struct pair_words pair_of(uint32_t set, uint32_t i)
{
    struct pair_words p;
    if (set < 1024) {
        uint32_t fraction = ((set & 7) << 20) | i, way = set >> 3; /* 128 ways */
        uint64_t word = pair_mix(1000 + (way & 15));
        /* a's exponents: 0, 1, 2, 63, 127, 190, 253, 254; b's: near 127, and the ends by bit 4. */
        const uint64_t exponents = UINT64_C(0xfefdbe7f3f020100);
        uint32_t exponent = (uint32_t)(exponents >> (8 * (way >> 4))) & 0xff;
        p.a = exponent << 23 | fraction;
        p.b = (uint32_t)word;
        if (way & 1) p.b = (p.b & 0x807fffff) | ((126 + (p.b >> 23 & 3)) << 23);
    } else if (set < 2048) {
        p.b = (i << 12) | ((set * 2654435761u) >> 20);
        uint64_t word = pair_mix(2000 + (set & 127));
        p.a = (uint32_t)word;
        if (set & 1) p.a = (p.a & 0x807fffff) | 0x3f800000;
    } else {
        uint64_t word = pair_mix(((uint64_t)set << 20 | i) + UINT64_C(0x100000000));
        p.a = (uint32_t)word;
        p.b = (uint32_t)(word >> 32);
        if (set & 1) {
            uint32_t near = p.b >> 23 & 7; /* exponents 0 to 3 and 252 to 255 */
            p.b = (p.b & 0x807fffff) | ((near < 4 ? near : 248 + near) << 23);
        }
    }
    return p;
}

#endif
