/* Vectors of binary32 values and of their encodings, with the operations that CUDA's sequences
 * need. Only for cuda_simd.c. Every operation rounds as written: a fused one is fused for every
 * instruction set. */
#ifndef MOEREF_CUDA_LANES_H
#define MOEREF_CUDA_LANES_H

#include <stdbool.h>

#include "../vec.h"
#include "cuda_tables.h"

enum { LANES = 2 * MR_LANES };

typedef mr_vf2 vf;
typedef mr_vi2 vi;
typedef uint32_t vu __attribute__((vector_size(8 * MR_LANES)));

#define SIGN      0x80000000u
#define INFINITE  0x7f800000u
#define QUIET_NAN 0x7fffffffu /* every NaN that a floating-point instruction of the GPU makes */

MR_INLINE vf splat(float x)
{
    return (vf){0} + x;
}

MR_INLINE vu splat_u(uint32_t x)
{
    return (vu){0} + x;
}

/* A float by its bits, in every lane. */
MR_INLINE vf bits(uint32_t x)
{
    return (vf)splat_u(x);
}

MR_INLINE vu pick_u(vi mask, vu a, vu b)
{
    return (a & (vu)mask) | (b & ~(vu)mask);
}

MR_INLINE vf pick(vi mask, vf a, vf b)
{
    return (vf)pick_u(mask, (vu)a, (vu)b);
}

MR_INLINE vf absolute(vf x)
{
    return (vf)((vu)x & ~SIGN);
}

MR_INLINE vf negate(vf x)
{
    return (vf)((vu)x ^ SIGN);
}

MR_INLINE vi is_nan(vf x)
{
    return (vi)(((vu)x & ~SIGN) > INFINITE);
}

MR_INLINE vf quiet(vf x)
{
    return pick(is_nan(x), bits(QUIET_NAN), x);
}

/* FTZ: a subnormal becomes a zero of its sign. */
MR_INLINE vf flush(vf x)
{
    vi small = (vi)(((vu)x & ~SIGN) < 0x00800000u);
    return (vf)((vu)x & ~((vu)small & ~SIGN));
}

MR_INLINE vf flush_if(bool ftz, vf x)
{
    return ftz ? flush(x) : x;
}

MR_INLINE vf fma_(vf a, vf b, vf c)
{
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX__) && defined(__FMA__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    for (int i = 0; i < LANES; i++) a[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return a;
#endif
}

/* The two halves of a vector of words, one lane for each double. */
MR_INLINE void halves(vi v, mr_vi part[2])
{
    memcpy(part, &v, sizeof v);
}

MR_INLINE vf root(vf x)
{
#if defined(__AVX512F__)
    return (vf)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX__)
    return (vf)_mm256_sqrt_ps((__m256)x);
#else
    for (int i = 0; i < LANES; i++) x[i] = __builtin_sqrtf(x[i]);
    return x;
#endif
}

/* Results are flushed where ftz is set; operands must be flushed already. */
MR_INLINE vf fma_z(bool ftz, vf a, vf b, vf c)
{
    return flush_if(ftz, fma_(a, b, c));
}

MR_INLINE vf mul_z(bool ftz, vf a, vf b)
{
    return flush_if(ftz, a * b);
}

MR_INLINE vu gather(const uint32_t *table, vu index)
{
#if defined(__AVX512F__)
    return (vu)_mm512_i32gather_epi32((__m512i)index, table, 4);
#elif defined(__AVX2__)
    return (vu)_mm256_i32gather_epi32((const int *)table, (__m256i)index, 4);
#else
    for (int i = 0; i < LANES; i++) index[i] = table[index[i]];
    return index;
#endif
}

MR_INLINE mr_vd gather_d(const double *table, mr_vi index)
{
#if defined(__AVX512F__)
    return (mr_vd)_mm512_i32gather_pd((__m256i)index, table, 8);
#elif defined(__AVX2__)
    return (mr_vd)_mm256_i32gather_pd(table, (__m128i)index, 8);
#else
    mr_vd v;
    for (int i = 0; i < MR_LANES; i++) v[i] = table[index[i]];
    return v;
#endif
}

MR_INLINE void look_up(const struct mr_mufu_segment *table, vu index, vu *c0, vu *c1, vu *c2)
{
    *c0 = gather(&table->c0, index * 2);
    vu c12 = gather(&table->c0 + 1, index * 2);
    *c1 = c12 >> 12;
    *c2 = c12 & 0xfff;
}

#endif
