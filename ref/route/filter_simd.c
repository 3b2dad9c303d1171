#include "filter_simd.h"

#include "../vec.h"

void MR_ISA_NAME(mr_check_dots)(const float *x, const double *v, size_t stride, size_t n,
                                double *sums)
{
    mr_vd s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    size_t i = 0;
    for (; i + MR_LANES <= n; i += MR_LANES) {
        mr_vd a = MR_WIDEN(mr_load_f(x + i));
        s0 = mr_fma(a, mr_load_d(v + i), s0);
        s1 = mr_fma(a, mr_load_d(v + i + stride), s1);
        s2 = mr_fma(a, mr_load_d(v + i + 2 * stride), s2);
        s3 = mr_fma(a, mr_load_d(v + i + 3 * stride), s3);
    }
    double t[MR_CHECKS] = {0};
    for (int l = 0; l < MR_LANES; l++) {
        t[0] += s0[l];
        t[1] += s1[l];
        t[2] += s2[l];
        t[3] += s3[l];
    }
    for (; i < n; i++)
        for (int c = 0; c < MR_CHECKS; c++) t[c] += (double)x[i] * v[i + (size_t)c * stride];
    for (int c = 0; c < MR_CHECKS; c++) sums[c] += t[c];
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
