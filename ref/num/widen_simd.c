/* Stored elements to values. Tensors in a file promise no alignment: hence memcpy, which becomes an
 * unaligned load. gcc 12 vectorises every loop at -O3 (clang 14 does not touch a floating-point
 * conversion under -frounding-math); except in cache, memory bounds them.
 *
 * Called with the default floating-point environment: DAZ would clear subnormals on their way to
 * binary64. */
#include "widen.h"

#include "bits.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors are little endian");

static inline uint32_t load16(const unsigned char *src, size_t i)
{
    uint16_t word;
    memcpy(&word, src + i * sizeof word, sizeof word);
    return word;
}

static inline uint32_t load32(const unsigned char *src, size_t i)
{
    uint32_t word;
    memcpy(&word, src + i * sizeof word, sizeof word);
    return word;
}

void MR_ISA_NAME(mr_widen_bf16_f32)(const void *restrict src, size_t n, float *restrict dst)
{
    for (size_t i = 0; i < n; i++) dst[i] = f32_from(f32_quiet(load16(src, i) << 16));
}

/* The instruction does what f16_to_f32 does, a third of the time (and heeds no DAZ either: Intel
 * SDM, VCVTPH2PS). */
void MR_ISA_NAME(mr_widen_f16_f32)(const void *restrict src, size_t n, float *restrict dst)
{
    size_t i = 0;
#ifdef __F16C__
    const unsigned char *bytes = src;
    for (; n - i >= 8; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(bytes + 2 * i))));
#endif
    for (; i < n; i++) dst[i] = f32_from(f16_to_f32(load16(src, i)));
}

void MR_ISA_NAME(mr_widen_f32_f32)(const void *restrict src, size_t n, float *restrict dst)
{
    for (size_t i = 0; i < n; i++) dst[i] = f32_from(f32_quiet(load32(src, i)));
}

/* Conversion to binary64 is exact and makes a NaN quiet. */
void MR_ISA_NAME(mr_widen_bf16_f64)(const void *restrict src, size_t n, double *restrict dst)
{
    for (size_t i = 0; i < n; i++) dst[i] = (double)f32_from(load16(src, i) << 16);
}

void MR_ISA_NAME(mr_widen_f16_f64)(const void *restrict src, size_t n, double *restrict dst)
{
    size_t i = 0;
#ifdef __F16C__
    const unsigned char *bytes = src;
    for (; n - i >= 8; i += 8) {
        __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(bytes + 2 * i)));
        _mm256_storeu_pd(dst + i, _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
        _mm256_storeu_pd(dst + i + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
    }
#endif
    for (; i < n; i++) dst[i] = (double)f32_from(f16_to_f32(load16(src, i)));
}

void MR_ISA_NAME(mr_widen_f32_f64)(const void *restrict src, size_t n, double *restrict dst)
{
    for (size_t i = 0; i < n; i++) dst[i] = (double)f32_from(load32(src, i));
}

void MR_ISA_NAME(mr_widen_f64_f64)(const void *restrict src, size_t n, double *restrict dst)
{
    const unsigned char *bytes = src;
    for (size_t i = 0; i < n; i++) {
        uint64_t word;
        memcpy(&word, bytes + i * sizeof word, sizeof word);
        word |= mask64((word & 0x7fffffffffffffff) > 0x7ff0000000000000) & 1ull << 51;
        dst[i] = f64_from(word);
    }
}
