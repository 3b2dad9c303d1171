/* Sum of squares, largest and smallest non-zero magnitude of a piece of a row. */
#include <string.h>

#include "../vec.h"
#include "dot_simd.h"

/* Magnitudes are compared as integers, which order as the numbers do and keep Inf and NaN on top.
 * The smallest non-zero one is found as the largest of (magnitude - 1) ^ INT32_MAX, which is
 * 2^31 - magnitude: zero becomes the most negative integer there, and so never wins. (-(bits | sign)
 * is the same, but overflows for zero, and gcc 12 at -O3 makes use of that.) */
void MR_ISA_NAME(mr_row_scan_add)(struct mr_row_scan *scan, const float *values, size_t n)
{
    mr_vd sum0 = {0}, sum1 = {0};
    const mr_vi sign = (mr_vi){0} + INT32_MIN;
    mr_vi most = {0}, least = sign;
    size_t i = 0;
    for (; i + 2 * MR_LANES <= n; i += 2 * MR_LANES) {
        mr_vf a = mr_load_f(values + i), b = mr_load_f(values + i + MR_LANES);
        mr_vd wide_a = MR_WIDEN(a), wide_b = MR_WIDEN(b);
        sum0 += wide_a * wide_a;
        sum1 += wide_b * wide_b;
        mr_vi p = (mr_vi)a, q = (mr_vi)b;
        mr_vi big_p = p & ~sign, big_q = q & ~sign;
        mr_vi low_p = (big_p - 1) ^ ~sign, low_q = (big_q - 1) ^ ~sign;
        mr_vi gt = big_p > big_q;
        big_p = (big_p & gt) | (big_q & ~gt);
        gt = big_p > most;
        most = (big_p & gt) | (most & ~gt);
        gt = low_p > low_q;
        low_p = (low_p & gt) | (low_q & ~gt);
        gt = low_p > least;
        least = (low_p & gt) | (least & ~gt);
    }
    double sum = scan->sum_squares;
    uint32_t max = scan->max_bits, min = scan->min_bits;
    sum0 += sum1;
    for (int l = 0; l < MR_LANES; l++) {
        sum += sum0[l];
        if ((uint32_t)most[l] > max) max = (uint32_t)most[l];
        uint32_t low = -(uint32_t)least[l] & 0x7fffffff;
        if (low && low < min) min = low;
    }
    for (; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        bits &= 0x7fffffff;
        sum += (double)values[i] * values[i];
        if (bits > max) max = bits;
        if (bits && bits < min) min = bits;
    }
    scan->sum_squares = sum;
    scan->max_bits = max;
    scan->min_bits = min;
    scan->count += n;
}
