/* CUDA's binary32 library functions, lane by lane, as nvcc 13.0 compiles them for sm_90: every step
 * is one rounding, fused where it fuses. `ftz` is -ftz=true. Results may be NaN of any payload: the
 * caller makes them QUIET_NAN. Only for cuda_simd.c. */
#ifndef MOEREF_CUDA_MATH_H
#define MOEREF_CUDA_MATH_H

#include "cuda_mufu.h"

#define MINIMUM 0x1p-126f
#define LOG2E   bits(0x3fb8aa3bu)
#define LN2     bits(0x3f317218u)

/* Compiler code around MUFU where results or operands may be subnormal. */
MR_INLINE vf ex2_approx(vf x)
{
    vi low = x < -126;
    vf r = mufu_ex2(pick(low, x * 0.5f, x));
    return pick(low, r * r, r);
}

MR_INLINE vi is_tiny(vf x)
{
    return (vi)(((vu)x & ~SIGN) < 0x00800000u);
}

MR_INLINE vf lg2_approx(vf x)
{
    vi tiny = is_tiny(x);
    vf r = mufu_lg2(pick(tiny, x * 0x1p24f, x));
    return pick(tiny, r - 24, r);
}

MR_INLINE vf rsqrt_approx(vf x)
{
    vi tiny = is_tiny(x);
    vf r = mufu_rsq(pick(tiny, x * 0x1p24f, x));
    return pick(tiny, r * 0x1p12f, r);
}

MR_INLINE vf sqrt_approx(vf x)
{
    vi tiny = is_tiny(x);
    vf r = mufu_sqrt(pick(tiny, x * 0x1p24f, x));
    return pick(tiny, r * 0x1p-12f, r);
}

MR_INLINE vf scale_of_divisor(vf b)
{
    vf scale = pick(is_tiny(b), splat(0x1p24f), splat(1));
    return pick(absolute(b) > 0x1p126f, splat(0.25f), scale);
}

MR_INLINE vf rcp_approx(vf x)
{
    vf scale = scale_of_divisor(x);
    return scale * mufu_rcp(x * scale);
}

MR_INLINE vf div_full(vf a, vf b)
{
    vf scale = scale_of_divisor(b);
    return mufu_rcp(b * scale) * (a * scale);
}

MR_INLINE vf div_full_ftz(vf a, vf b)
{
    vf scale = pick(absolute(b) > 0x1p126f, splat(0.25f), splat(1));
    return flush(mufu_rcp(b * scale) * flush(flush(a) * scale));
}

MR_INLINE vf div_approx(vf a, vf b)
{
    vf scale = pick(is_tiny(b), splat(0x1p24f), splat(1));
    return mufu_rcp(b * scale) * (a * scale);
}

MR_INLINE vf div_approx_ftz(vf a, vf b)
{
    return flush(flush(a) * mufu_rcp(b));
}

/* exp(x) = scale * 2^f with f in about [-1/2, 1/2]: the two factors, so that a sum can fuse the
 * last product. t 252 + 12582913 is rounded down, that is to the floor of t 252, as the sum's ulp
 * is 1. The constants are 2^23 3/2 + 1 and that plus 126. */
MR_INLINE vf exp_factors(bool ftz, vf x, vf *scale)
{
    vf t = fma_z(ftz, x, bits(0x3bbb989du), splat(0.5f));
    t = pick(t > 0, t, splat(0)); /* .SAT: NaN gives 0 */
    t = pick(t < 1, t, splat(1));
    vf product = t * 252;
    vi floor = __builtin_convertvector(product, vi);
    vf error = fma_(t, splat(252), negate(__builtin_convertvector(floor, vf)));
    floor += error < 0; /* the product had been rounded up to an integer */
    *scale = (vf)((floor + 1) << 23);
    vf k = __builtin_convertvector(floor - 126, vf);
    vf f = fma_z(ftz, x, LOG2E, negate(k));
    f = fma_z(ftz, x, bits(0x32a57060u), f);
    return mufu_ex2(f);
}

MR_INLINE vf expf_(bool ftz, vf x)
{
    vf scale, r = exp_factors(ftz, flush_if(ftz, x), &scale);
    return mul_z(ftz, scale, r);
}

/* 1 + expf(x): nvcc fuses the last product. */
MR_INLINE vf one_plus_expf(bool ftz, vf x)
{
    vf scale, r = exp_factors(ftz, flush_if(ftz, x), &scale);
    return fma_z(ftz, scale, r, splat(1));
}

MR_INLINE vf fast_expf(bool ftz, vf x)
{
    return ftz ? mufu_ex2(flush(flush(x) * LOG2E)) : ex2_approx(x * LOG2E);
}

MR_INLINE vf fast_logf(bool ftz, vf x)
{
    return ftz ? flush(mufu_lg2(x) * LN2) : lg2_approx(x) * LN2;
}

/* What logf and log2f share: x = 2^e (1 + m), m from the given bound, less 1, on. */
MR_INLINE vf log_reduce(bool ftz, vf *x, uint32_t bound, vf *e)
{
    vf seen = flush_if(ftz, *x);
    vi low = seen < MINIMUM; /* not for NaN */
    *x = pick(low, flush_if(ftz, seen * 0x1p23f), *x);
    vu ex = ((vu)*x - bound) & 0xff800000u;
    vf m = flush_if(ftz, (vf)((vu)*x - ex)) - 1;
    vf bias = pick(low, splat(-23), splat(0));
    *e = fma_(__builtin_convertvector((vi)ex, vf), splat(0x1p-23f), bias);
    return m;
}

MR_INLINE vf log_specials(bool ftz, vf x, vf r)
{
    vi special = (vi)((vu)x >= INFINITE);
    r = pick(special, fma_(x, bits(INFINITE), bits(INFINITE)), r);
    return pick(flush_if(ftz, x) == 0, bits(INFINITE | SIGN), r);
}

MR_INLINE vf logf_(bool ftz, vf x)
{
    vf e, m = log_reduce(ftz, &x, 0x3f2aaaabu, &e);
    vf p = fma_z(ftz, m, bits(0xbe055027u), bits(0x3e1039f6u));
    p = fma_z(ftz, m, p, bits(0xbdf8cdccu));
    p = fma_z(ftz, m, p, bits(0x3e0f2955u));
    p = fma_z(ftz, m, p, bits(0xbe2ad8b9u));
    p = fma_z(ftz, m, p, bits(0x3e4ced0bu));
    p = fma_z(ftz, m, p, bits(0xbe7fff22u));
    p = fma_z(ftz, m, p, bits(0x3eaaaa78u));
    p = fma_z(ftz, m, p, splat(-0.5f));
    p = mul_z(ftz, m, p);
    p = fma_z(ftz, m, p, m);
    return log_specials(ftz, x, fma_z(ftz, e, LN2, p));
}

MR_INLINE vf log2f_(bool ftz, vf x)
{
    vf e, m = log_reduce(ftz, &x, 0x3f3504f3u, &e);
    vf p = fma_z(ftz, m, bits(0x3dc6b27fu), bits(0xbe2c7f30u));
    p = fma_z(ftz, m, p, bits(0x3e2fcf2au));
    p = fma_z(ftz, m, p, bits(0xbe374e43u));
    p = fma_z(ftz, m, p, bits(0x3e520bf4u));
    p = fma_z(ftz, m, p, bits(0xbe763c8bu));
    p = fma_z(ftz, m, p, bits(0x3e93bf99u));
    p = fma_z(ftz, m, p, bits(0xbeb8aa49u));
    p = fma_z(ftz, m, p, bits(0x3ef6384au));
    p = fma_z(ftz, m, p, bits(0xbf38aa3bu));
    p = mul_z(ftz, m, p);
    p = mul_z(ftz, m, p);
    p = fma_z(ftz, m, LOG2E, p);
    return log_specials(ftz, x, flush_if(ftz, e + p));
}

/* x + 1 rounded towards zero. The error of the rounded sum is exact (Knuth's two-sum). */
MR_INLINE vf plus_one_rz(vf x)
{
    vf s = x + 1, b = s - x, error = (x - (s - b)) + (1 - b);
    vi outward = (error != 0) & ((vi)(((vu)s ^ (vu)error)) < 0);
    return (vf)((vi)s + outward);
}

MR_INLINE vf log1pf_(bool ftz, vf x)
{
    vf seen = flush_if(ftz, x);
    vu ex = ((vu)plus_one_rz(seen) - 0x3f400000u) & 0xff800000u;
    vf m = flush_if(ftz, (vf)((vu)x - ex));
    vf s = fma_z(ftz, flush_if(ftz, (vf)(0x40800000u - ex)), splat(0.25f), splat(-1));
    m = flush_if(ftz, m + s);
    vf e = __builtin_convertvector((vi)ex, vf) * 0x1p-23f;
    vf p = fma_z(ftz, m, bits(0xbd39bf78u), bits(0x3dd80012u));
    p = fma_z(ftz, m, p, bits(0xbe0778e0u));
    p = fma_z(ftz, m, p, bits(0x3e146475u));
    p = fma_z(ftz, m, p, bits(0xbe2a68ddu));
    p = fma_z(ftz, m, p, bits(0x3e4caf9eu));
    p = fma_z(ftz, m, p, bits(0xbe800042u));
    p = fma_z(ftz, m, p, bits(0x3eaaaae6u));
    p = fma_z(ftz, m, p, splat(-0.5f));
    p = mul_z(ftz, m, p);
    p = fma_z(ftz, m, p, m);
    vf r = fma_z(ftz, e, LN2, p);
    /* Negative numbers come here too, and only x < -1 makes NaN of it. */
    vi special = (vi)((vu)x >= INFINITE), outside = (vi)x >= (vi)splat_u(0xbf800001u);
    r = pick(special & outside, fma_(x, bits(INFINITE), bits(INFINITE)), r);
    return pick(special & (seen == 0), bits(SIGN), r);
}

MR_INLINE vf tanhf_(bool ftz, vf x)
{
    x = flush_if(ftz, x);
    vf size = absolute(x);
    vf d = mufu_ex2(flush_if(ftz, size * bits(0x4038aa3bu))) + 1;
    vf t = fma_z(ftz, mufu_rcp(d), splat(-2), splat(1));
    t = pick(size >= bits(0x41102cb4u), splat(1), t);
    t = (vf)(((vu)t & ~SIGN) | ((vu)x & SIGN));
    vf square = mul_z(ftz, x, x);
    vf p = fma_z(ftz, square, bits(0x3c80f082u), bits(0xbd563caeu));
    p = fma_z(ftz, square, p, bits(0x3e085941u));
    p = fma_z(ftz, square, p, bits(0xbeaaa9edu));
    p = fma_z(ftz, square, p, splat(0));
    return pick(size >= bits(0x3f19999au), t, fma_z(ftz, x, p, x));
}

#endif
