/* Inside ref/num: the bits of floats and doubles, and the decodings that scalar and loop share.
 *
 * All is integer arithmetic, but for conversions of small integers and products with normal
 * results, which are exact: so neither the rounding mode nor FTZ and DAZ (which a host program, or
 * a library of it that was linked with -ffast-math, may have set) can change a value. */
#ifndef MOEREF_NUM_BITS_H
#define MOEREF_NUM_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float f32_from(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t f64_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double f64_from(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Select by mask, not by branch: the loops of widen_simd.c must vectorise. */
static inline uint32_t mask32(int condition)
{
    return -(uint32_t)condition;
}

static inline uint64_t mask64(int condition)
{
    return -(uint64_t)condition;
}

/* A binary32 word as it is, but every NaN quiet. */
static inline uint32_t f32_quiet(uint32_t bits)
{
    return bits | (mask32((bits & 0x7fffffff) > 0x7f800000) & 0x00400000);
}

/* binary16 word -> binary32 word. A subnormal is an integer times 2^-24, and so converted: the
 * well-known product of the shifted word and 2^112 has a subnormal operand, which DAZ clears. */
static inline uint32_t f16_to_f32(uint32_t half)
{
    uint32_t magnitude = half & 0x7fff;
    uint32_t shifted = magnitude << 13;
    uint32_t subnormal = f32_bits((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t rebias = 112u << 23; /* 127 - 15 */
    rebias += mask32(magnitude >= 0x7c00) & (112u << 23); /* exponent 31 becomes 255 */
    uint32_t small = mask32(magnitude < 0x0400);
    uint32_t word = (subnormal & small) | ((shifted + rebias) & ~small);
    word |= mask32(magnitude > 0x7c00) & 0x00400000;
    return word | (half & 0x8000) << 16;
}

#endif
