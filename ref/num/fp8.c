/* OCP 8-bit Floating Point Specification 1.0, section 5. */
#include "encode.h"

float mr_e4m3_decode(uint8_t bits)
{
    uint32_t magnitude = bits & 0x7f;
    uint32_t word = (magnitude << 20) + (120u << 23);                      /* 127 - 7 */
    if (magnitude < 0x08) word = f32_bits((float)(int)magnitude * 0x1p-9f); /* subnormal */
    if (magnitude == 0x7f) word = 0x7fc00000;
    return f32_from(word | (uint32_t)(bits & 0x80) << 24);
}

/* E5M2 is binary16 without its low eight bits. */
float mr_e5m2_decode(uint8_t bits)
{
    return f32_from(f16_to_f32((uint32_t)bits << 8));
}

uint8_t mr_e4m3_encode(double value, enum mr_rounding r, enum mr_overflow o)
{
    /* The exponent field of all ones holds numbers up to 448: only S.1111.111 is NaN, so the last
     * rounding up, from above 464, lands on it. */
    static const struct coding e4m3 = {4, -6, 0x7e, 0x7f, 0x7f, 0x80};
    return (uint8_t)encode(value, e4m3, r, o);
}

uint8_t mr_e5m2_encode(double value, enum mr_rounding r, enum mr_overflow o)
{
    static const struct coding e5m2 = {3, -14, 0x7b, 0x7c, 0x7f, 0x80};
    return (uint8_t)encode(value, e5m2, r, o);
}
