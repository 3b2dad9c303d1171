/* The special-function unit, lane by lane: MUFU.EX2, RCP, RSQ, SQRT, LG2 as an H200 computes them;
 * ex2.approx.ftz.f32 and its like are these instructions alone. Only for cuda_simd.c.
 *
 * A quadratic in each segment (Oberman, Siu, ARITH 2005): with the fraction's upper bits the index
 * and its lower bits xl, S = C0 2^a +- C1 xl 2^b +- C2 q(xl) 2^c + bias, then truncated. Here in
 * units of the lowest column that any term has; docs/cuda-functions.md has the whole. */
#ifndef MOEREF_CUDA_MUFU_H
#define MOEREF_CUDA_MUFU_H

#include "cuda_lanes.h"

struct datapath {
    int a, b, c;
    bool minus1, minus2;
    int32_t bias;
};

/* The squarer's result over 2^19, for 17 bits: the rows of bits 2 to 8 of x lose the columns
 * below 2^19 (row i is x's bits above i, shifted by i + 1, and its own square, bit 2i); those of
 * bits 0 and 1 lie there whole. The rows above 8 are (x >> 9)^2 << 18, of which one column is lost.
 */
MR_INLINE vu truncated_square(vu x)
{
    vu top = x >> 9, q = (top * top) >> 1;
    for (int i = 2; i <= 8; i++) q += (x >> (18 - i)) & -((x >> i) & 1);
    return q;
}

/* S >> 10, exactly, though S has 41 bits: xl is split at bit 10, and then the low part, a signed
 * sum below 2^30, carries into the high one by its floor. */
MR_INLINE vu interpolate(const struct mr_mufu_segment *table, struct datapath d, vu index, vu xl,
                         vu q, vi *low)
{
    vu c0, c1, c2;
    look_up(table, index, &c0, &c1, &c2);
    vu high1 = (c1 * (xl >> 10)) << d.b, low1 = (c1 * (xl & 1023)) << d.b, low2 = (c2 * q) << d.c;
    vu high = c0 << (d.a - 10);
    high = d.minus1 ? high - high1 : high + high1;
    *low = (vi)((d.minus1 ? -low1 : low1) + (d.minus2 ? -low2 : low2) + (uint32_t)d.bias);
    return high + (vu)(*low >> 10);
}

MR_INLINE vf mufu_ex2(vf x)
{
    const struct datapath d = {15, 2, 2, false, false, 0x6fc4 << 1};
    vu size = (vu)x & ~SIGN;
    vi negative = (vi)x >> 31;
    /* 255 and more: 0 or Inf anyway. */
    vf clamped = pick((vi)(size > 0x437f0000u), splat(255), (vf)size);
    /* Fixed point with 23 fraction bits, truncated; a negative one by its one's complement unless
     * its fraction is 0. */
    vi fixed = __builtin_convertvector(clamped * 0x1p23f, vi);
    vi whole = (fixed & 0x7fffff) == 0;
    fixed = (fixed ^ negative) - (negative & whole);
    vi n = fixed >> 23;
    vu f = (vu)fixed & 0x7fffff, xl = f & 0x1ffff;
    vi low;
    vu s = interpolate(mr_mufu_ex2, d, f >> 17, xl, truncated_square(xl), &low);
    vu y = ((vu)(n + 127) << 23) | ((s >> 7) & 0x7fffff);
    y = pick_u(n > 127, splat_u(INFINITE), y);
    y &= (vu)(n >= -126);
    return pick(is_nan(x), bits(QUIET_NAN), (vf)y);
}

MR_INLINE vf mufu_rcp(vf x)
{
    const struct datapath d = {13, 0, 0, true, false, 0x67e7};
    vu size = (vu)x & ~SIGN, m = size & 0x7fffff, xl = m & 0xffff;
    vi e = (vi)(size >> 23);
    vi low;
    vu s = interpolate(mr_mufu_rcp, d, m >> 16, xl, truncated_square(xl << 1), &low);
    vi one = m == 0;          /* powers of two are exact */
    vi field = 253 - e - one; /* -1 where it is one */
    vu y = ((vu)field << 23) | ((s >> 5) & 0x7fffff & ~(vu)one);
    y &= (vu)(field > 0);
    y = pick_u(e == 0, splat_u(INFINITE), y);
    y &= (vu)(e != 255);
    y |= (vu)x & SIGN;
    return pick(is_nan(x), bits(QUIET_NAN), (vf)y);
}

/* Index and exponent of a root: x = 2^(2k + odd) 1.m. */
MR_INLINE vu root_index(vu size, vi *k)
{
    vi e = (vi)(size >> 23) - 127;
    *k = e >> 1;
    return ((vu)(e & 1) << 6) | ((size >> 17) & 63);
}

/* What a root is of negative numbers, zeros and subnormals (as zeros), Inf and NaN. */
MR_INLINE vf root_specials(vf x, vu y, uint32_t of_zero, uint32_t of_inf)
{
    vu size = (vu)x & ~SIGN;
    y = pick_u(size == INFINITE, splat_u(of_inf), y);
    y = pick_u((vi)((vu)x >= SIGN), splat_u(QUIET_NAN), y);
    y = pick_u(size < 0x00800000u, ((vu)x & SIGN) | of_zero, y);
    return pick(is_nan(x), bits(QUIET_NAN), (vf)y);
}

MR_INLINE vf mufu_rsq(vf x)
{
    const struct datapath d = {14, 0, 2, true, false, 0xffff};
    vu size = (vu)x & ~SIGN, xl = size & 0x1ffff;
    vi k, low;
    vu index = root_index(size, &k);
    vu s = interpolate(mr_mufu_rsqrt, d, index, xl, truncated_square(xl), &low);
    vi one = (vi)(((size & 0x7fffff) | (index & 64)) == 0); /* powers of four are exact */
    vu y = ((vu)(126 - k - one) << 23) | ((s >> 6) & 0x7fffff & ~(vu)one);
    return root_specials(x, y, INFINITE, 0);
}

MR_INLINE vf mufu_sqrt(vf x)
{
    const struct datapath d = {16, 1, 2, false, true, 0x1fffe};
    vu size = (vu)x & ~SIGN, xl = size & 0x1ffff;
    vi k, low;
    vu index = root_index(size, &k);
    vu s = interpolate(mr_mufu_sqrt, d, index, xl, truncated_square(xl), &low);
    vu y = ((vu)(127 + k) << 23) | ((s >> 8) & 0x7fffff);
    return root_specials(x, y, 0, INFINITE);
}

/* Towards zero to 24 bits; v is no float's neighbour beyond the normal range. */
MR_INLINE mr_vf truncate_24(mr_vd v)
{
    return MR_NARROW((mr_vd)((mr_vl)v & ~INT64_C(0x1fffffff)));
}

/* Half of the lanes of lg2: |e + S / 2^39|, its columns below 2^-36 cleared, truncated to 24 bits.
 * Doubles hold it exactly: 8 + 39 bits. */
MR_INLINE mr_vf lg2_half(mr_vi e, mr_vi high, mr_vi low)
{
    mr_vd v = __builtin_convertvector(high, mr_vd) * 1024 + __builtin_convertvector(low, mr_vd);
    v = v * 0x1p-39 + __builtin_convertvector(e, mr_vd);
    mr_vl sign = (mr_vl)v & INT64_MIN;
    /* In units of 2^-36 it is a multiple of 1/8, so rounding 7/16 less is the floor. */
    mr_vd t = (mr_vd)((mr_vl)v & INT64_MAX) * 0x1p36 - 0.4375;
    t = ((t + 0x1p52) - 0x1p52) * 0x1p-36;
    return truncate_24((mr_vd)(((mr_vl)t & INT64_MAX) | sign));
}

MR_INLINE vf mufu_lg2(vf x)
{
    const struct datapath d = {13, 1, 2, false, true, 0x868b};
    vu size = (vu)x & ~SIGN, xl = size & 0x1ffff;
    vi e = (vi)(size >> 23) - 127, low;
    vu high = interpolate(mr_mufu_lg2, d, (size >> 17) & 63, xl, truncated_square(xl), &low);
    low &= 1023;
    mr_vi es[2], highs[2], lows[2];
    halves(e, es);
    halves((vi)high, highs);
    halves(low, lows);
    mr_vf half[2];
    for (int i = 0; i < 2; i++) half[i] = lg2_half(es[i], highs[i], lows[i]);
    vf y;
    memcpy(&y, half, sizeof y);
    y = pick(size == 0x3f800000u, splat(0), y);
    y = pick(size == INFINITE, bits(INFINITE), y);
    y = pick((vi)((vu)x >= SIGN), bits(QUIET_NAN), y);
    y = pick(size < 0x00800000u, bits(INFINITE | SIGN), y);
    return pick(is_nan(x), bits(QUIET_NAN), y);
}

/* Below 2^-8 x itself, from 8 on 1; sums of doubles that are exact (41 bits), truncated once. */
MR_INLINE vf mufu_tanh(vf x)
{
    vu size = (vu)x & ~SIGN, m = size & 0x7fffff;
    vi e = (vi)(size >> 23);
    vi octave = e - 119;
    octave &= (octave >= 0) & (octave < MR_MUFU_TANH_OCTAVES);
    vu layout = gather(mr_mufu_tanh_octave, (vu)octave), index_bits = layout >> 8;
    vu xl = (m >> (6 - index_bits)) & 0x1ffff, q = truncated_square(xl);
    mr_vi index[2], xls[2], qs[2];
    halves((vi)(((layout & 0xff) + (m >> (23 - index_bits))) * 3), index);
    halves((vi)xl, xls);
    halves((vi)q, qs);
    mr_vf half[2];
    for (int i = 0; i < 2; i++) {
        const double *table = &mr_mufu_tanh[0].c0;
        mr_vd v = gather_d(table, index[i]) +
                  gather_d(table + 1, index[i]) * __builtin_convertvector(xls[i], mr_vd);
        v -= gather_d(table + 2, index[i]) * __builtin_convertvector(qs[i], mr_vd);
        half[i] = truncate_24(v);
    }
    vf y;
    memcpy(&y, half, sizeof y);
    y = pick(e < 119, (vf)size, y);
    y = pick(e >= 130, splat(1), y);
    y = (vf)((vu)y | ((vu)x & SIGN));
    return pick(is_nan(x), bits(QUIET_NAN), y);
}

#endif
