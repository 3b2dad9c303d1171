#include "mma_format.h"

#include <string.h>

const struct mr_mma_type_info mr_mma_types[MR_MMA_TYPE_COUNT] = {
    [MR_MMA_FP32] = {"fp32", 4, 32, 23, -126, 255, 0x80000000, true, 0},
    [MR_MMA_BF16] = {"bf16", 2, 16, 7, -126, 255, 0x8000, true, 0},
    [MR_MMA_FP16] = {"fp16", 2, 16, 10, -14, 31, 0x8000, true, 0},
    [MR_MMA_TF32] = {"tf32", 4, 32, 10, -126, 255, 0x40000, true, 0},
    [MR_MMA_E4M3] = {"e4m3", 1, 8, 3, -6, 15, 0x80, false, 0x7f},
    [MR_MMA_E5M2] = {"e5m2", 1, 8, 2, -14, 31, 0x80, true, 0},
    [MR_MMA_E3M2] = {"e3m2", 1, 6, 2, -2, 7, 0x20, false, 0},
    [MR_MMA_E2M3] = {"e2m3", 1, 6, 3, 0, 3, 0x20, false, 0},
    [MR_MMA_E2M1] = {"e2m1", 1, 4, 1, 0, 3, 0x8, false, 0},
    [MR_MMA_UE8M0] = {"ue8m0", 1, 8, 0, -127, 255, 0, false, 0xff},
    [MR_MMA_UE4M3] = {"ue4m3", 1, 8, 3, -6, 15, 0, false, 0x7f},
};

const char *mr_mma_type_name(enum mr_mma_type type)
{
    return (unsigned)type < MR_MMA_TYPE_COUNT ? mr_mma_types[type].name : "?";
}

int mr_mma_type_parse(const char *name, size_t length)
{
    for (int t = 0; t < MR_MMA_TYPE_COUNT; t++)
        if (strlen(mr_mma_types[t].name) == length && !memcmp(mr_mma_types[t].name, name, length))
            return t;
    return -1;
}

struct mr_mma_number mr_mma_decode(enum mr_mma_type type, uint32_t bits)
{
    const struct mr_mma_type_info *t = &mr_mma_types[type];
    if (type == MR_MMA_UE8M0) /* no fraction, no zero: the field is the exponent */
        return (struct mr_mma_number){bits == t->nan ? MR_MMA_NAN : MR_MMA_FINITE, false, 1,
                                      (int)bits - 127};
    /* With the low 13 bits goes a NaN that has its payload only there: it becomes Inf. */
    if (type == MR_MMA_TF32) bits >>= 13;
    if (type == MR_MMA_UE4M3) bits &= 0x7f;
    uint32_t magnitude = bits & ((t->sign ? t->sign : 0x80) - 1);
    uint32_t fraction = magnitude & ((1u << t->fraction) - 1);
    int field = (int)(magnitude >> t->fraction);
    struct mr_mma_number x = {MR_MMA_FINITE, (bits & t->sign) != 0, fraction, t->emin};
    if (field > 0) {
        x.significand |= 1u << t->fraction;
        x.exponent = t->emin + field - 1;
    }
    if (t->has_inf && field == t->top) x.class = fraction ? MR_MMA_NAN : MR_MMA_INF;
    if (t->nan && magnitude == t->nan) x.class = MR_MMA_NAN;
    return x;
}

uint32_t mr_mma_encode_exact(enum mr_mma_type type, uint32_t fp32, bool *exact)
{
    const struct mr_mma_type_info *t = &mr_mma_types[type];
    struct mr_mma_number x = mr_mma_decode(MR_MMA_FP32, fp32);
    int shift = type == MR_MMA_TF32 ? 13 : 0;
    uint32_t sign = x.negative ? t->sign : 0;
    *exact = true;
    if (x.class == MR_MMA_NAN) {
        *exact = t->has_inf || t->nan;
        return t->nan ? t->nan : (t->sign - 1) << shift;
    }
    if (x.class == MR_MMA_INF) {
        *exact = t->has_inf;
        return (sign | (uint32_t)t->top << t->fraction) << shift;
    }
    if (x.significand == 0) return sign << shift;
    while (x.significand < 1u << 23) x.significand <<= 1, x.exponent--;
    /* One place of the format in units of the significand's last. */
    int drop = 23 - t->fraction + (x.exponent < t->emin ? t->emin - x.exponent : 0);
    if (drop > 23) drop = 24;
    uint32_t kept = x.significand >> drop;
    int step = x.exponent < t->emin ? 0 : x.exponent - t->emin; /* the hidden bit adds one more */
    uint32_t magnitude = ((uint32_t)step << t->fraction) + kept;
    uint32_t beyond = t->has_inf ? (uint32_t)t->top << t->fraction
                      : t->nan   ? t->nan
                                 : (uint32_t)(t->top + 1) << t->fraction;
    *exact = kept << drop == x.significand && step <= t->top && magnitude < beyond &&
             (t->sign || !x.negative);
    return (sign | magnitude) << shift;
}
