#include "encode.h"

float mr_fp16_decode(uint16_t bits)
{
    return f32_from(f16_to_f32(bits));
}

uint16_t mr_fp16_encode(double value, enum mr_rounding r, enum mr_overflow o)
{
    static const struct coding fp16 = {11, -14, 0x7bff, 0x7c00, 0x7fff, 0x8000};
    return (uint16_t)encode(value, fp16, r, o);
}
