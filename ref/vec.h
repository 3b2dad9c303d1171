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

/* Lane-wise choice: mask lanes are all ones or all zeros, as vector comparisons give them. */
#define MR_SELECT(type, mask, a, b) \
    ((type)(((mr_vl)(a) & (mr_vl)(mask)) | ((mr_vl)(b) & ~(mr_vl)(mask))))

#endif
