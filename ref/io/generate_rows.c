#include "generate_rows.h"

#include <string.h>

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15) /* 2^64 / golden ratio, odd: splitmix64's step */

static inline uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t bits_at(uint64_t key, uint64_t index)
{
    return mix(key + (index + 1) * GOLDEN);
}

static inline int32_t normal(uint64_t bits)
{
    /* Ones counted in parallel: without -mpopcnt the builtin is a call. */
    uint32_t n = (uint32_t)bits;
    n -= (n >> 1) & 0x55555555u;
    n = (n & 0x33333333u) + ((n >> 2) & 0x33333333u);
    n = (((n + (n >> 4)) & 0x0f0f0f0fu) * 0x01010101u) >> 24;
    return ((int32_t)n - 16) * 65536 + (int32_t)(bits >> 48) - (int32_t)(bits >> 32 & 0xffff);
}

static inline uint16_t bf16(double value)
{
    uint64_t b;
    memcpy(&b, &value, sizeof b);
    uint64_t sign = b >> 63 << 15, magnitude = b & ~(UINT64_C(1) << 63);
    /* 52 fraction bits to 7; a carry out of the fraction is the next exponent, as it should be. */
    magnitude += (UINT64_C(1) << 44) - 1 + (magnitude >> 45 & 1);
    uint64_t rebias = (UINT64_C(1023) - 127) << 7, word = magnitude >> 45;
    return word < rebias + 0x80 ? 0 : (uint16_t)(sign | (word - rebias));
}

uint64_t mr_generate_key(uint64_t key, uint64_t value)
{
    /* Mixed twice, so that neighbouring values do not start neighbouring streams. */
    return mix(mix(key + GOLDEN) + (value + 1) * GOLDEN);
}

uint64_t mr_generate_bits(uint64_t key, uint64_t index)
{
    return bits_at(key, index);
}

double mr_generate_uniform(uint64_t bits)
{
    return (double)(bits >> 32 << 1 | 1) * 0x1p-33;
}

int32_t mr_generate_normal(uint64_t bits)
{
    return normal(bits);
}

uint16_t mr_generate_bf16(double value)
{
    return bf16(value);
}

void mr_generate_rows(uint64_t key, size_t rows, size_t cols, const float *base, const float *gain,
                      uint16_t *out)
{
#pragma omp parallel for schedule(static) if (rows > 64)
    for (size_t r = 0; r < rows; r++) {
        uint64_t stream = mr_generate_key(key, r);
        for (size_t c = 0; c < cols; c++) {
            double n = normal(bits_at(stream, c));
            out[r * cols + c] = bf16((double)base[c] + (double)gain[c] * n);
        }
    }
}
