/* Chains of binary32 operations. Called with the default floating-point environment: cuBLAS's
 * kernels do not flush subnormals, so neither FTZ nor DAZ may be on (replay.c sees to it).
 *
 * A NaN is a NaN here; which bits it has is settled at the end. */
#include "replay_simd.h"

#include <stdbool.h>

#include "../num/bits.h"
#include "../vec.h"

#define WIDTH (2 * MR_LANES) /* floats of a vector */

/* Vectors of experts by rows, held in registers: eight chains or more hide the latency of four
 * cycles of two units, and 16 registers hold no more than 8 and their operands. */
#if defined(__AVX512F__)
#define VECS 4
#else
#define VECS 2
#endif
#define ROWS 4

MR_INLINE mr_vf2 load(const float *p)
{
    mr_vf2 v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Not (mr_vf2){0} + x, which makes +0 of -0. */
#if defined(__AVX512F__)
#define SPLAT(x) ((mr_vf2)_mm512_set1_ps(x))
#elif defined(__AVX__)
#include <immintrin.h>
#define SPLAT(x) ((mr_vf2)_mm256_set1_ps(x))
#else
#define SPLAT(x) ((mr_vf2){(x), (x), (x), (x)})
#endif

MR_INLINE mr_vf2 mul_add(mr_vf2 a, mr_vf2 b, mr_vf2 c)
{
    return a * b + c;
}

#if defined(__AVX512F__)
#define FUSED
MR_INLINE mr_vf2 fused(mr_vf2 a, mr_vf2 b, mr_vf2 c)
{
    return (mr_vf2)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
#elif defined(__AVX__) && defined(__FMA__)
#define FUSED
MR_INLINE mr_vf2 fused(mr_vf2 a, mr_vf2 b, mr_vf2 c)
{
    return (mr_vf2)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
#endif

/* `rows` is a constant wherever this is inlined. */
#define CHAIN(NAME, OP)                                                                            \
    MR_INLINE void NAME(const float *gate, const float *x, size_t pitch, size_t n, size_t rows,    \
                        float *sum)                                                                \
    {                                                                                              \
        for (size_t at = 0; at < MR_REPLAY_LANES; at += VECS * WIDTH) {                            \
            mr_vf2 c[ROWS][VECS];                                                                  \
            for (size_t r = 0; r < rows; r++)                                                      \
                for (size_t v = 0; v < VECS; v++)                                                  \
                    c[r][v] = load(sum + r * MR_REPLAY_LANES + at + v * WIDTH);                    \
            for (size_t i = 0; i < n; i++) {                                                       \
                mr_vf2 g[VECS];                                                                    \
                for (size_t v = 0; v < VECS; v++)                                                  \
                    g[v] = load(gate + i * MR_REPLAY_LANES + at + v * WIDTH);                      \
                for (size_t r = 0; r < rows; r++) {                                                \
                    mr_vf2 a = SPLAT(x[r * pitch + i]);                                            \
                    for (size_t v = 0; v < VECS; v++) c[r][v] = OP(a, g[v], c[r][v]);              \
                }                                                                                  \
            }                                                                                      \
            for (size_t r = 0; r < rows; r++)                                                      \
                for (size_t v = 0; v < VECS; v++)                                                  \
                    memcpy(sum + r * MR_REPLAY_LANES + at + v * WIDTH, &c[r][v], sizeof c[r][v]);  \
        }                                                                                          \
    }

#define ALL_ROWS(NAME)                                                                             \
    size_t r = 0;                                                                                  \
    for (; r + ROWS <= rows; r += ROWS)                                                            \
        NAME(gate, x + r * pitch, pitch, n, ROWS, sum + r * MR_REPLAY_LANES);                      \
    for (; r < rows; r++) NAME(gate, x + r * pitch, pitch, n, 1, sum + r * MR_REPLAY_LANES)

CHAIN(some_mul_add, mul_add)

void MR_ISA_NAME(mr_chain_mul_add)(const float *gate, const float *x, size_t pitch, size_t n,
                                   size_t rows, float *sum)
{
    ALL_ROWS(some_mul_add);
}

#ifdef FUSED
CHAIN(some_fma, fused)

void MR_ISA_NAME(mr_chain_fma)(const float *gate, const float *x, size_t pitch, size_t n,
                               size_t rows, float *sum)
{
    ALL_ROWS(some_fma);
}
#endif

/* fma without the instruction. The product is exact in binary64 (48 bits, exponents far inside).
 * Its sum with c is rounded to odd: to nearest first, then the error, which Knuth's two-sum has
 * exactly, says to which side the last bit must be made odd. 53 >= 24 + 2 bits, so rounding that
 * once more is rounding the exact sum (Boldo and Melquiond, IEEE TC 2008). Inf and NaN pass through
 * the sum; a zero has the sign that the sum gives it, since then nothing was rounded. */
static inline float emulated(float a, float b, float c)
{
    double p = (double)a * b, s = p + c;
    double part = s - p, error = (p - (s - part)) + (c - part);
    uint64_t word = f64_bits(s);
    bool finite = (word & 0x7ff0000000000000) != 0x7ff0000000000000;
    bool below = (word ^ f64_bits(error)) >> 63;
    if (finite && error != 0 && !(word & 1)) word += below ? UINT64_MAX : 1;
    return (float)f64_from(word);
}

#ifndef FUSED
void MR_ISA_NAME(mr_chain_fma)(const float *gate, const float *x, size_t pitch, size_t n,
                               size_t rows, float *sum)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++)
            for (size_t e = 0; e < MR_REPLAY_LANES; e++) {
                float *c = &sum[r * MR_REPLAY_LANES + e];
                *c = emulated(x[r * pitch + i], gate[i * MR_REPLAY_LANES + e], *c);
            }
}
#endif

void MR_ISA_NAME(mr_add_partials)(float *into, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++) into[i] += from[i];
}

/* Not hot: by the emulation everywhere. */
void MR_ISA_NAME(mr_promote_partials)(float *into, const float *from, const float *scale, size_t n)
{
    bool first = into == from;
    for (size_t i = 0; i < n; i++) into[i] = emulated(scale[i], from[i], first ? 0 : into[i]);
}
