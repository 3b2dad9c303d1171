#include "encode.h"

float mr_bf16_decode(uint16_t bits)
{
    return f32_from(f32_quiet((uint32_t)bits << 16));
}

uint16_t mr_bf16_encode(double value, enum mr_rounding r, enum mr_overflow o)
{
    static const struct coding bf16 = {8, -126, 0x7f7f, 0x7f80, 0x7fff, 0x8000};
    return (uint16_t)encode(value, bf16, r, o);
}
