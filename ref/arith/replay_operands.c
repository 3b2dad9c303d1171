#include "replay_operands.h"

#include <string.h>

#include "../num/bits.h"
#include "../num/num.h"

bool mr_operand_served(enum mr_dtype dtype)
{
    return dtype == MR_BF16 || dtype == MR_F16 || dtype == MR_F32 || dtype == MR_F8_E4M3 ||
           dtype == MR_F8_E5M2;
}

int mr_operand_bits(const struct mr_operand *operand)
{
    if (operand->type == MR_TYPE_BF16) return 8;
    switch (operand->matrix.dtype) {
    case MR_BF16: return 8;
    case MR_F16: return 11;
    case MR_F8_E4M3: return 4;
    case MR_F8_E5M2: return 3;
    default: return 24;
    }
}

static void widen(const struct mr_operand *o, size_t row, float *out)
{
    const struct mr_matrix *m = &o->matrix;
    const uint8_t *src = (const uint8_t *)m->data + row * m->cols * (mr_dtype_bits(m->dtype) / 8);
    if (m->dtype == MR_F8_E4M3)
        for (size_t i = 0; i < m->cols; i++) out[i] = mr_e4m3_decode(src[i]);
    else if (m->dtype == MR_F8_E5M2)
        for (size_t i = 0; i < m->cols; i++) out[i] = mr_e5m2_decode(src[i]);
    else
        mr_widen_f32(src, m->dtype, m->cols, out);
    if (o->type != MR_TYPE_BF16 || m->dtype == MR_BF16) return;
    for (size_t i = 0; i < m->cols; i++)
        out[i] = mr_bf16_decode(mr_bf16_encode(out[i], MR_RNE, MR_OVERFLOW_IEEE));
}

void mr_operand_values(const struct mr_operand *o, size_t row, const uint32_t *order,
                       float *scratch, float *out)
{
    if (!order) {
        widen(o, row, out);
        return;
    }
    widen(o, row, scratch);
    for (size_t i = 0; i < o->matrix.cols; i++) out[i] = scratch[order[i]];
}

const struct mr_operand_range mr_operand_no_range = {1 << 20, -(1 << 20)};

void mr_operand_widen_range(struct mr_operand_range *range, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t word = f32_bits(values[i]) & 0x7fffffff;
        if (word == 0 || word >= 0x7f800000) continue;
        int field = (int)(word >> 23), exponent = field ? field - 127 : -126;
        uint32_t significand = (word & 0x7fffff) | (field ? 0x800000u : 0);
        int lsb = exponent - 23 + __builtin_ctz(significand);
        if (lsb < range->lsb) range->lsb = lsb;
        if (exponent + 1 > range->top) range->top = exponent + 1;
    }
}
