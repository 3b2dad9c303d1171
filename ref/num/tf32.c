#include "encode.h"

/* A tf32 value is a binary32 word whose low 13 bits no one reads (PTX ISA, "Alternate
 * Floating-Point Data Formats"). They are cleared before the word is looked at: a NaN with no
 * payload bit above them is an Inf. */
float mr_tf32_decode(uint32_t bits)
{
    return f32_from(f32_quiet(bits & 0xffffe000));
}

uint32_t mr_tf32_encode(double value, enum mr_rounding r, enum mr_overflow o)
{
    static const struct coding tf32 = {11, -126, 0x3fbff, 0x3fc00, 0x3ffff, 0x40000};
    return encode(value, tf32, r, o) << 13;
}
