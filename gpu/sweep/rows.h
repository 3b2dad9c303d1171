/* The rows on which softmax is recorded, by a rule that the GPU programs, the CPU tests and
 * tests/oracle/cuda_torch.py share; all values are short dyadic numbers. w = pair_mix(2^50 + kind
 * 2^40 + row 2^16 + column), s = the sum of its four 16-bit parts - 131070:
 *   kind 0: s / 2^14 (about normal, deviation 2.3); 1: floor(s / 2^14) / 2 (many ties);
 *   kind 2: s / 2^9 (spread of 500);
 *   kind 3: as 0, but -Inf where w % 8 == 0; row 0 all -Inf, row 1 NaN in column 3, row 2 +Inf in
 *   column 5, row 3 all 0. */
#ifndef SWEEP_ROWS_H
#define SWEEP_ROWS_H

#include "pairs.h"

enum { ROW_KINDS = 4, ROWS = 2048 };

PAIR_FN float row_value(uint32_t kind, uint32_t row, uint32_t column)
{
    uint64_t w = pair_mix((UINT64_C(1) << 50) + ((uint64_t)kind << 40) + (row << 16) + column);
    int32_t s = (int32_t)((w & 0xffff) + (w >> 16 & 0xffff) + (w >> 32 & 0xffff) + (w >> 48));
    s -= 131070;
    const float inf = (float)1e300;
    if (kind == 1) return (float)(s >> 14) * 0.5f;
    if (kind == 2) return (float)s * 0.001953125f;
    if (kind == 3) {
        if (row == 0 || (row > 3 && (w & 7) == 0)) return -inf;
        if (row == 1 && column == 3) return inf - inf;
        if (row == 2 && column == 5) return inf;
        if (row == 3) return 0;
    }
    return (float)s * 0.00006103515625f;
}

#endif
