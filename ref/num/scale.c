/* OCP Microscaling Formats (MX) Specification 1.0: the scale E8M0 and the element E2M1. */
#include "bits.h"
#include "num.h"

float mr_e8m0_decode(uint8_t bits)
{
    if (bits == 0xff) return f32_from(0x7fc00000);
    return f32_from(bits ? (uint32_t)bits << 23 : 0x00400000); /* 2^-127: a subnormal binary32 */
}

float mr_e2m1_decode(uint8_t bits)
{
    static const float magnitude[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return f32_from(f32_bits(magnitude[bits & 7]) | (uint32_t)(bits & 8) << 28);
}
