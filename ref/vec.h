/* Vectors as wide as the instruction set of this compilation, for the *_simd.c files. Wider ones
 * would be correct too, but gcc 12 keeps them in memory. Loads are by memcpy: no alignment. */
#ifndef MOEREF_VEC_H
#define MOEREF_VEC_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define MR_LANES 8
#elif defined(__AVX__)
#define MR_LANES 4
#else
#define MR_LANES 2
#endif

typedef double mr_vd __attribute__((vector_size(8 * MR_LANES)));
typedef int64_t mr_vl __attribute__((vector_size(8 * MR_LANES)));
typedef float mr_vf __attribute__((vector_size(4 * MR_LANES))); /* one for each double lane */
typedef int32_t mr_vi __attribute__((vector_size(4 * MR_LANES)));
typedef float mr_vf2 __attribute__((vector_size(8 * MR_LANES))); /* a full vector of floats */
typedef int32_t mr_vi2 __attribute__((vector_size(8 * MR_LANES)));
typedef uint16_t mr_vh2 __attribute__((vector_size(4 * MR_LANES)));

#define MR_INLINE static inline __attribute__((always_inline))

MR_INLINE mr_vd mr_load_d(const double *p)
{
    mr_vd v;
    memcpy(&v, p, sizeof v);
    return v;
}

MR_INLINE mr_vf mr_load_f(const float *p)
{
    mr_vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

MR_INLINE void mr_store_d(double *p, mr_vd v)
{
    memcpy(p, &v, sizeof v);
}

MR_INLINE mr_vd mr_splat(double x)
{
    return (mr_vd){0} + x;
}

/* gcc 12 widens a whole vector badly through __builtin_convertvector. mr_fma is fused where the
 * instruction set has it and two roundings elsewhere: users' bounds hold for both. */
#if defined(__AVX512F__)
#include <immintrin.h>
#define MR_WIDEN(v) ((mr_vd)_mm512_cvtps_pd((__m256)(v)))
#define MR_NARROW(v) ((mr_vf)_mm512_cvtpd_ps((__m512d)(v)))
#define mr_fma(a, b, c) ((mr_vd)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#elif defined(__AVX__) && defined(__FMA__)
#include <immintrin.h>
#define MR_WIDEN(v) ((mr_vd)_mm256_cvtps_pd((__m128)(v)))
#define MR_NARROW(v) ((mr_vf)_mm256_cvtpd_ps((__m256d)(v)))
#define mr_fma(a, b, c) ((mr_vd)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#else
#define MR_WIDEN(v) __builtin_convertvector((v), mr_vd)
#define MR_NARROW(v) __builtin_convertvector((v), mr_vf)
#define mr_fma(a, b, c) ((a) * (b) + (c))
#endif

/* Whether any lane of a comparison's mask is set: of doubles, of mr_vf2. */
#if defined(__AVX512DQ__)
#define MR_ANY(mask) (_mm512_movepi64_mask((__m512i)(mask)) != 0)
#define MR_ANY2(mask) (_mm512_movepi32_mask((__m512i)(mask)) != 0)
#elif defined(__AVX__)
#define MR_ANY(mask) (_mm256_movemask_pd((__m256d)(mask)) != 0)
#define MR_ANY2(mask) (_mm256_movemask_ps((__m256)(mask)) != 0)
#else
#define MR_ANY(mask) (((mask)[0] | (mask)[1]) != 0)
#define MR_ANY2(mask) (((mask)[0] | (mask)[1] | (mask)[2] | (mask)[3]) != 0)
#endif

/* Lane-wise signed maximum of mr_vi2. */
#if defined(__AVX512F__)
#define MR_MAX_I2(a, b) ((mr_vi2)_mm512_max_epi32((__m512i)(a), (__m512i)(b)))
#elif defined(__AVX2__)
#define MR_MAX_I2(a, b) ((mr_vi2)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))
#else
MR_INLINE mr_vi2 mr_max_i2(mr_vi2 a, mr_vi2 b)
{
    mr_vi2 gt = a > b;
    return (a & gt) | (b & ~gt);
}
#define MR_MAX_I2(a, b) mr_max_i2(a, b)
#endif

/* Lane-wise choice: mask lanes are all ones or all zeros, as vector comparisons give them. */
#define MR_SELECT(type, mask, a, b) \
    ((type)(((mr_vl)(a) & (mr_vl)(mask)) | ((mr_vl)(b) & ~(mr_vl)(mask))))

#endif
