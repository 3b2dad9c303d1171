/* Plain and split accumulation (see exact.h), four vectors of lanes. The lanes add exactly, so every
 * instruction set gives the same bits. */
#include "dot_simd.h"

#include "../vec.h"

enum { VECTORS = 4, STEP = VECTORS * MR_LANES };

/* next - acc must stay an operation of its own: -ffp-contract=off, and no fast-math. */
#define SPLIT_STEP(v, load_w)                                                                      \
    {                                                                                              \
        mr_vd p = mr_load_d(x + i + v * MR_LANES) * load_w(w + i + v * MR_LANES);                  \
        mr_vd next = acc##v + p;                                                                   \
        rest##v += p - (next - acc##v);                                                            \
        acc##v = next;                                                                             \
    }

#define SPLIT_DOT(load_w)                                                                          \
    mr_vd acc0 = mr_splat(magic), acc1 = acc0, acc2 = acc0, acc3 = acc0;                           \
    mr_vd rest0 = {0}, rest1 = {0}, rest2 = {0}, rest3 = {0};                                      \
    size_t i = 0;                                                                                  \
    for (; i + STEP <= n; i += STEP) {                                                             \
        SPLIT_STEP(0, load_w)                                                                      \
        SPLIT_STEP(1, load_w)                                                                      \
        SPLIT_STEP(2, load_w)                                                                      \
        SPLIT_STEP(3, load_w)                                                                      \
    }                                                                                              \
    mr_vd his = (acc0 - magic) + (acc1 - magic) + (acc2 - magic) + (acc3 - magic);                 \
    mr_vd los = (rest0 + rest1) + (rest2 + rest3);                                                 \
    double hi = 0, lo = 0, acc = magic;                                                            \
    for (int l = 0; l < MR_LANES; l++) {                                                           \
        hi += his[l];                                                                              \
        lo += los[l];                                                                              \
    }                                                                                              \
    for (; i < n; i++) {                                                                           \
        double p = x[i] * w[i], next = acc + p;                                                    \
        lo += p - (next - acc);                                                                    \
        acc = next;                                                                                \
    }                                                                                              \
    struct mr_dd sum = mr_two_sum(hi + (acc - magic), lo);                                         \
    return (struct mr_exact){sum.hi, sum.lo, true}

#define LOAD_F32(p) MR_WIDEN(mr_load_f(p))

struct mr_exact MR_ISA_NAME(mr_split_dot_f32)(const double *x, const float *w, size_t n,
                                              double magic)
{
    SPLIT_DOT(LOAD_F32);
}

struct mr_exact MR_ISA_NAME(mr_split_dot_f64)(const double *x, const double *w, size_t n,
                                              double magic)
{
    SPLIT_DOT(mr_load_d);
}

#define PLAIN_DOT(load_w)                                                                          \
    mr_vd s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                                  \
    size_t i = 0;                                                                                  \
    for (; i + STEP <= n; i += STEP) {                                                             \
        s0 = mr_fma(mr_load_d(x + i), load_w(w + i), s0);                                          \
        s1 = mr_fma(mr_load_d(x + i + MR_LANES), load_w(w + i + MR_LANES), s1);                    \
        s2 = mr_fma(mr_load_d(x + i + 2 * MR_LANES), load_w(w + i + 2 * MR_LANES), s2);            \
        s3 = mr_fma(mr_load_d(x + i + 3 * MR_LANES), load_w(w + i + 3 * MR_LANES), s3);            \
    }                                                                                              \
    s0 = (s0 + s1) + (s2 + s3);                                                                    \
    double sum = 0;                                                                                \
    for (int l = 0; l < MR_LANES; l++) sum += s0[l];                                               \
    for (; i < n; i++) sum += x[i] * w[i];                                                         \
    return sum

double MR_ISA_NAME(mr_plain_dot_f32)(const double *x, const float *w, size_t n)
{
    PLAIN_DOT(LOAD_F32);
}

double MR_ISA_NAME(mr_plain_dot_f64)(const double *x, const double *w, size_t n)
{
    PLAIN_DOT(mr_load_d);
}

/* Four rows of w at once: x is read once, and the loop waits for nothing but conversions. */
#define PLAIN_DOTS(load_w)                                                                         \
    mr_vd s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, t0 = {0}, t1 = {0}, t2 = {0}, t3 = {0};          \
    size_t i = 0;                                                                                  \
    for (; i + 2 * MR_LANES <= n; i += 2 * MR_LANES) {                                             \
        mr_vd a = mr_load_d(x + i), b = mr_load_d(x + i + MR_LANES);                               \
        s0 = mr_fma(a, load_w(w[0] + i), s0);                                                      \
        t0 = mr_fma(b, load_w(w[0] + i + MR_LANES), t0);                                           \
        s1 = mr_fma(a, load_w(w[1] + i), s1);                                                      \
        t1 = mr_fma(b, load_w(w[1] + i + MR_LANES), t1);                                           \
        s2 = mr_fma(a, load_w(w[2] + i), s2);                                                      \
        t2 = mr_fma(b, load_w(w[2] + i + MR_LANES), t2);                                           \
        s3 = mr_fma(a, load_w(w[3] + i), s3);                                                      \
        t3 = mr_fma(b, load_w(w[3] + i + MR_LANES), t3);                                           \
    }                                                                                              \
    mr_vd sums[4] = {s0 + t0, s1 + t1, s2 + t2, s3 + t3};                                          \
    for (int k = 0; k < 4; k++) {                                                                  \
        double sum = 0;                                                                            \
        for (int l = 0; l < MR_LANES; l++) sum += sums[k][l];                                      \
        for (size_t j = i; j < n; j++) sum += x[j] * w[k][j];                                      \
        out[k] = sum;                                                                              \
    }

void MR_ISA_NAME(mr_plain_dots_f32)(const double *x, const float *const *w, size_t n, double *out)
{
    PLAIN_DOTS(LOAD_F32)
}

void MR_ISA_NAME(mr_plain_dots_f64)(const double *x, const double *const *w, size_t n, double *out)
{
    PLAIN_DOTS(mr_load_d)
}
