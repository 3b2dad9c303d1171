/* The fast step of block-scaled FP4 (GROUP_SCALED): lanes are columns of b, as in mma_simd.c.
 *
 * Why it is exact. Products of e2m1 are multiples of 1/4 up to 36: a group of 16 is a multiple of
 * 1/4 up to 576, and times two significands below 16 it has at most 20 bits: all exact in binary32.
 * In binary64 a term times 2^(F - E) is below 2^(35 + 12); adding and subtracting 2^52 while the
 * thread rounds toward zero cuts it to an integer. Four such and c add up below 2^53, exactly; and
 * times 2^(E - F) it is one conversion, toward zero, to the result: subnormals included, as there
 * is no FTZ. A sum that is zero, or that rounds to zero, is +0: x + (+0) is, unless both are -0. A
 * result of 2^128 and above, Inf and NaN: bad. */
#include "../vec.h"
#include "mma_simd.h"

enum { LANES = 2 * MR_LANES, WIDTH = 2 * LANES, GROUP = 16, GROUPS = 4 };
#if defined(__AVX512BW__)
enum { ROWS = 4 };
#else
enum { ROWS = 2 };
#endif

typedef uint32_t vu __attribute__((vector_size(8 * MR_LANES)));

MR_INLINE mr_vf2 load_f2(const float *p)
{
    mr_vf2 v;
    memcpy(&v, p, sizeof v);
    return v;
}

MR_INLINE mr_vi2 load_i2(const int32_t *p)
{
    mr_vi2 v;
    memcpy(&v, p, sizeof v);
    return v;
}

MR_INLINE mr_vf2 splat_f(float x)
{
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    return (mr_vf2)((vu){0} + word);
}

MR_INLINE mr_vl load_wide(const int32_t *p)
{
    mr_vi v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, mr_vl);
}

/* 2^e. Exponents of scales lie in [-254, 254], so e in [-600, 600]. */
MR_INLINE mr_vd power(mr_vl e)
{
    return (mr_vd)((e + 1023) << 52);
}

MR_INLINE mr_vd truncated(mr_vd x)
{
    mr_vl sign = (mr_vl)x & INT64_MIN;
    mr_vd cut = (mr_vd)((mr_vl)x ^ sign) + 0x1p52;
    return (mr_vd)((mr_vl)(cut - 0x1p52) | sign);
}

/* The scaled groups of one step: values in units of 2^(exponent - 2 * fraction of the scale). */
struct groups {
    float value[GROUPS][ROWS][WIDTH];
    int32_t exponent[GROUPS][ROWS][WIDTH];
};

/* Group g, of the n positions from `at`. */
MR_INLINE void sum_group(const struct mr_mma_rows *in, size_t at, size_t n, int g,
                         struct groups *out)
{
    mr_vf2 sum[ROWS][2];
    vu any[ROWS][2];
    memset(sum, 0, sizeof sum);
    memset(any, 0, sizeof any);
    for (size_t k = at; k < at + n; k++) {
        const float *b = in->tile + k * (WIDTH + LANES);
        mr_vf2 b0 = load_f2(b), b1 = load_f2(b + LANES);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            mr_vf2 a = splat_f(in->value[(size_t)r * in->stride + k]);
            mr_vf2 p0 = a * b0, p1 = a * b1;
            sum[r][0] += p0;
            sum[r][1] += p1;
            any[r][0] |= (vu)p0 & 0x7fffffff;
            any[r][1] |= (vu)p1 & 0x7fffffff;
        }
    }
    size_t block = at / (size_t)in->mma->scale_block;
    mr_vi2 zero = (mr_vi2){0} + in->mma->e_zero;
    for (int r = 0; r < ROWS; r++) {
        const struct mr_mma_scale *a = &in->a_scales[(size_t)r * in->a_blocks + block];
        for (int h = 0; h < 2; h++) {
            mr_vf2 scale = load_f2(in->b_significands + block * WIDTH + h * LANES);
            scale *= splat_f(a->significand);
            mr_vf2 value = sum[r][h] * scale;
            mr_vi2 e = load_i2(in->b_exponents + block * WIDTH + h * LANES) + a->exponent;
            mr_vi2 nothing = (mr_vi2)(any[r][h] == 0) | (mr_vi2)(scale == 0);
            e = (e & ~nothing) | (zero & nothing);
            memcpy(&out->value[g][r][h * LANES], &value, sizeof value);
            memcpy(&out->exponent[g][r][h * LANES], &e, sizeof e);
        }
    }
}

/* E of a row, into `largest`. */
MR_INLINE void align(const struct groups *in, int groups, int r, const float *c, int e_zero,
                     int32_t *largest)
{
    for (int h = 0; h < 2; h++) {
        vu magnitude = (vu)load_f2(c + h * LANES) & 0x7fffffff;
        mr_vi2 e = MR_MAX_I2((mr_vi2)(magnitude >> 23), (mr_vi2){0} + 1) - 127;
        mr_vi2 nothing = (mr_vi2)(magnitude == 0);
        e = (e & ~nothing) | (nothing & e_zero);
        for (int g = 0; g < groups; g++) e = MR_MAX_I2(e, load_i2(&in->exponent[g][r][h * LANES]));
        memcpy(largest + h * LANES, &e, sizeof e);
    }
}

/* Adds a row's groups to c. */
MR_INLINE void add_row(const struct groups *in, int groups, int r, int fraction, int scale_fraction,
                       const int32_t *largest, float *c, mr_vl *bad)
{
    for (int part = 0; part < WIDTH / MR_LANES; part++) {
        int at = part * MR_LANES;
        mr_vl up = fraction - load_wide(largest + at);
        mr_vd sum = truncated(MR_WIDEN(mr_load_f(c + at)) * power(up));
        for (int g = 0; g < groups; g++) {
            mr_vl e = load_wide(&in->exponent[g][r][at]) - 2 * scale_fraction;
            sum += truncated(MR_WIDEN(mr_load_f(&in->value[g][r][at])) * power(e + up));
        }
        sum *= power(-up);
        bad[part] |= ((mr_vl)sum & INT64_MAX) >= (int64_t)(1023 + 128) << 52;
        mr_vf d = MR_NARROW(sum) + (mr_vf){0};
        memcpy(c + at, &d, sizeof d);
    }
}

void MR_ISA_NAME(mr_mma_run_groups)(const struct mr_mma_rows *in, float *d, uint32_t *bad)
{
    struct groups sums;
    mr_vl flags[ROWS][WIDTH / MR_LANES];
    int scale_fraction = mr_mma_types[in->mma->scale].fraction;
    for (int r = 0; r < ROWS; r++)
        for (int part = 0; part < WIDTH / MR_LANES; part++) {
            mr_vd c = MR_WIDEN(mr_load_f(d + r * WIDTH + part * MR_LANES));
            flags[r][part] = ((mr_vl)c & INT64_MAX) >= (int64_t)2047 << 52;
        }
    for (size_t k = 0; k < in->n; k += GROUPS * GROUP) {
        int groups = 0;
        for (size_t at = k; at < in->n && groups < GROUPS; at += GROUP)
            sum_group(in, at, in->n - at < GROUP ? in->n - at : GROUP, groups++, &sums);
        for (int r = 0; r < ROWS; r++) {
            int32_t largest[WIDTH];
            align(&sums, groups, r, d + r * WIDTH, in->mma->e_zero, largest);
            add_row(&sums, groups, r, in->mma->fraction, scale_fraction, largest, d + r * WIDTH,
                    flags[r]);
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < WIDTH; i++)
            bad[r * WIDTH + i] = flags[r][i / MR_LANES][i % MR_LANES] != 0;
}
