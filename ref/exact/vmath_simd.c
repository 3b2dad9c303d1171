/* Vectors of exp and sigmoid.
 *
 * exp(x), |x| <= 708: k = rint(x log2 e), r = x - k L1 - k L2 with ln 2 = L1 + L2 + d, where L1 has
 * 32 bits (k L1 is exact) and |d| < 2^-86. |r| <= 0.3466.
 * Error of r: x - k L1 is exact but for at most u|r|, the last subtraction rounds by u|r|, the
 * product k L2 (< 2^-22) and k d are negligible: at most 0.70 u, and so much relative in exp(r).
 * Taylor's polynomial of degree 13: remainder below |r|^14 / 14! * 1.03 < 0.04 u of exp(r) >= 0.7;
 * rounded coefficients change it by less than 0.01 u.
 * Horner p_i = c_i + r p_(i+1), each step at most two roundings: e_i <= |r| e_(i+1) + u |r p_(i+1)|
 * + u |p_i|. With |p_3| <= 0.19 (e_3 <= 0.3 u): r = -0.3466 gives e_2 <= 0.61 u, e_1 <= 1.22 u,
 * e_0 <= 1.43 u, which is 2.02 u of p_0 = 0.707; r = +0.3466 gives 1.71 u. Scaling by 2^k is exact.
 * In all 0.70 + 0.05 + 2.02 < 3 u (MR_EXP_ULPS), second-order terms included.
 *
 * sigmoid: t = exp(-x) within 3u, fl(1 + t) within (3 t/(1+t) + 1) u <= 4u, its reciprocal rounds
 * once more: 5u, below MR_SIGMOID_ULPS with all second-order terms. */
#include "vmath.h"

#include "../vec.h"

static const double taylor[12] = {
    /* 1/13! ... 1/2! */
    0x1.6124613a86d09p-33, 0x1.1eed8eff8d898p-29, 0x1.ae64567f544e4p-26, 0x1.27e4fb7789f5cp-22,
    0x1.71de3a556c734p-19, 0x1.a01a01a01a01ap-16, 0x1.a01a01a01a01ap-13, 0x1.6c16c16c16c17p-10,
    0x1.1111111111111p-7,  0x1.5555555555555p-5,  0x1.5555555555555p-3,  0x1p-1};

MR_INLINE mr_vd clamp(mr_vd x)
{
    const mr_vd low = mr_splat(-708), high = mr_splat(708);
    x = MR_SELECT(mr_vd, x < low, low, x);
    return MR_SELECT(mr_vd, x > high, high, x);
}

MR_INLINE mr_vd exp_lanes(mr_vd x)
{
    const double shift = 0x1.8p52;
    x = clamp(x);
    mr_vd z = mr_fma(x, mr_splat(0x1.71547652b82fep0), mr_splat(shift));
    mr_vd k = z - shift;
    mr_vd r = mr_fma(k, mr_splat(-0x1.62e42feep-1), x);
    r = mr_fma(k, mr_splat(-0x1.a39ef35793c76p-33), r);
    mr_vd p = mr_splat(taylor[0]);
    for (int i = 1; i < 12; i++) p = mr_fma(p, r, mr_splat(taylor[i]));
    p = mr_fma(p, r, mr_splat(1));
    p = mr_fma(p, r, mr_splat(1));
    return (mr_vd)((mr_vl)p + ((mr_vl)z << 52)); /* the low bits of z are k */
}

#define OVER_ARRAY(expr)                                                                           \
    size_t i = 0;                                                                                  \
    for (; i + MR_LANES <= n; i += MR_LANES) {                                                     \
        mr_vd v = mr_load_d(x + i);                                                                \
        mr_store_d(y + i, expr);                                                                   \
    }                                                                                              \
    if (i < n) {                                                                                   \
        mr_vd v = {0};                                                                             \
        memcpy(&v, x + i, (n - i) * sizeof *x);                                                    \
        v = expr;                                                                                  \
        memcpy(y + i, &v, (n - i) * sizeof *y);                                                    \
    }

void MR_ISA_NAME(mr_vec_sigmoid)(const double *x, size_t n, double *y)
{
    OVER_ARRAY(1 / (1 + exp_lanes(-v)))
}

void MR_ISA_NAME(mr_vec_exp_below)(const double *x, double m, size_t n, double *y)
{
    OVER_ARRAY(exp_lanes(v - m))
}

/* RNE to 53 - drop bits by an integer add on the encoding; a carry into the exponent is right. */
MR_INLINE mr_vl round_bits(mr_vd v, int drop)
{
    mr_vl bits = (mr_vl)v;
    mr_vl half = ((mr_vl){0} + ((INT64_C(1) << (drop - 1)) - 1)) + ((bits >> drop) & 1);
    return (bits + half) & -(INT64_C(1) << drop);
}

size_t MR_ISA_NAME(mr_vec_round)(const double *lo, const double *hi, size_t n, int precision,
                                 double least, double most, float *out, uint8_t *undecided)
{
    int drop = 53 - precision;
    size_t count = 0;
    for (size_t i = 0; i < n; i += MR_LANES) {
        size_t m = n - i < MR_LANES ? n - i : MR_LANES;
        mr_vd a = {0}, b = {0};
        if (m == MR_LANES) {
            a = mr_load_d(lo + i);
            b = mr_load_d(hi + i);
        } else {
            memcpy(&a, lo + i, m * sizeof *lo);
            memcpy(&b, hi + i, m * sizeof *hi);
        }
        mr_vl ra = round_bits(a, drop), rb = round_bits(b, drop);
        mr_vd value = (mr_vd)ra, size = (mr_vd)(ra & INT64_MAX);
        /* The other comparison order would let NaN through. */
        mr_vl good = (ra == rb) & (mr_vl)(size >= least) & (mr_vl)(size <= most);
        mr_vf narrow = MR_NARROW(value);
        memcpy(out + i, &narrow, m * sizeof *out);
        if (m == MR_LANES && !MR_ANY(~good)) {
            memset(undecided + i, 0, MR_LANES);
            continue;
        }
        for (size_t l = 0; l < m; l++) count += undecided[i + l] = !good[l];
    }
    return count;
}
