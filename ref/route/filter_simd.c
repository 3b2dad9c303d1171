#include "filter_simd.h"

#include "../vec.h"

/* Running state of one row in vectors; see mr_row_scan_add for the integer tricks. */
struct take {
    mr_vd squares0, squares1, sum[MR_CHECKS];
    mr_vi2 most, least;
};

MR_INLINE void take_begin(struct take *t)
{
    const mr_vd zero = {0};
    t->squares0 = t->squares1 = zero;
    for (int c = 0; c < MR_CHECKS; c++) t->sum[c] = zero;
    t->most = (mr_vi2){0};
    t->least = (mr_vi2){0} + INT32_MIN;
}

MR_INLINE void take_step(struct take *t, mr_vf2 x, const double *v, size_t stride)
{
    const mr_vi2 sign = (mr_vi2){0} + INT32_MIN;
    union {
        mr_vf2 full;
        mr_vf half[2];
    } parts = {x};
    mr_vd a = MR_WIDEN(parts.half[0]), b = MR_WIDEN(parts.half[1]);
    mr_vi2 bits = (mr_vi2)x;
    t->most = MR_MAX_I2(t->most, bits & ~sign);
    t->least = MR_MAX_I2(t->least, ((bits & ~sign) - 1) ^ ~sign);
    t->squares0 = mr_fma(a, a, t->squares0);
    t->squares1 = mr_fma(b, b, t->squares1);
    for (int c = 0; c < MR_CHECKS; c++) {
        const double *row = v + (size_t)c * stride;
        t->sum[c] = mr_fma(a, mr_load_d(row), t->sum[c]);
        t->sum[c] = mr_fma(b, mr_load_d(row + MR_LANES), t->sum[c]);
    }
}

MR_INLINE void take_end(const struct take *t, size_t n, struct mr_row_scan *scan, double *sums)
{
    mr_vd squares = t->squares0 + t->squares1;
    for (int l = 0; l < MR_LANES; l++) {
        scan->sum_squares += squares[l];
        for (int c = 0; c < MR_CHECKS; c++) sums[c] += t->sum[c][l];
    }
    for (int l = 0; l < 2 * MR_LANES; l++) {
        if ((uint32_t)t->most[l] > scan->max_bits) scan->max_bits = (uint32_t)t->most[l];
        uint32_t low = -(uint32_t)t->least[l] & 0x7fffffff;
        if (low && low < scan->min_bits) scan->min_bits = low;
    }
    scan->count += n;
}

enum { STEP = 2 * MR_LANES };

/* A tail padded with zeros changes none of the results. */
#define TAKE(load, load_part)                                                                      \
    struct take t;                                                                                 \
    take_begin(&t);                                                                                \
    size_t i = 0;                                                                                  \
    for (; i + STEP <= n; i += STEP) take_step(&t, load, v + i, stride);                           \
    if (i < n) {                                                                                   \
        double padded[MR_CHECKS * STEP];                                                           \
        memset(padded, 0, sizeof padded);                                                          \
        for (int c = 0; c < MR_CHECKS; c++)                                                        \
            memcpy(padded + c * STEP, v + (size_t)c * stride + i, (n - i) * sizeof *v);            \
        take_step(&t, load_part, padded, STEP);                                                    \
    }                                                                                              \
    take_end(&t, n, scan, sums)

MR_INLINE mr_vf2 widen_bf16(const char *src, size_t m, float *x)
{
    mr_vh2 half = {0};
    if (m == STEP) memcpy(&half, src, sizeof half);
    else memcpy(&half, src, m * sizeof(uint16_t));
    mr_vf2 v = (mr_vf2)(__builtin_convertvector(half, mr_vi2) << 16);
    if (m == STEP) memcpy(x, &v, sizeof v);
    else memcpy(x, &v, m * sizeof *x);
    return v;
}

void MR_ISA_NAME(mr_take_bf16)(const void *src, size_t n, const double *v, size_t stride, float *x,
                               struct mr_row_scan *scan, double *sums)
{
    const char *from = src;
    TAKE(widen_bf16(from + 2 * i, STEP, x + i), widen_bf16(from + 2 * i, n - i, x + i));
}

MR_INLINE mr_vf2 load_f32(const float *x, size_t m)
{
    mr_vf2 v = {0};
    if (m == STEP) memcpy(&v, x, sizeof v);
    else memcpy(&v, x, m * sizeof *x);
    return v;
}

void MR_ISA_NAME(mr_take_f32)(const float *x, size_t n, const double *v, size_t stride,
                              struct mr_row_scan *scan, double *sums)
{
    TAKE(load_f32(x + i, STEP), load_f32(x + i, n - i));
}

double MR_ISA_NAME(mr_signed_sums)(const double *value, const double *scale, const double *sign,
                                   size_t n, double *sums)
{
    typedef double four __attribute__((vector_size(8 * MR_CHECKS)));
    four sum = {0};
    double largest = 0;
    for (size_t e = 0; e < n; e++) {
        four s;
        memcpy(&s, sign + e * MR_CHECKS, sizeof s);
        sum += s * (value[e] * scale[e]);
        largest = scale[e] > largest ? scale[e] : largest;
    }
    for (int c = 0; c < MR_CHECKS; c++) sums[c] += sum[c];
    return largest;
}

void MR_ISA_NAME(mr_accumulate_f32)(const float *c, size_t n, double *acc)
{
    size_t i = 0;
    for (; i + MR_LANES <= n; i += MR_LANES)
        mr_store_d(acc + i, mr_load_d(acc + i) + MR_WIDEN(mr_load_f(c + i)));
    for (; i < n; i++) acc[i] += c[i];
}

void MR_ISA_NAME(mr_accumulate_f64)(const double *c, size_t n, double *acc)
{
    for (size_t i = 0; i < n; i++) acc[i] += c[i];
}
