#include "keys_simd.h"

#include "../vec.h"

/* Four roundings of at most u each of their results are covered by 4u of the sizes involved. */
MR_INLINE void outward(mr_vd value, mr_vd radius, mr_vd *lo, mr_vd *hi)
{
    mr_vd size = (mr_vd)((mr_vl)value & INT64_MAX);
    radius = radius * (1 + 0x1p-50) + size * 0x1p-52;
    *lo = value - radius;
    *hi = value + radius;
}

/* Whole vectors, then a tail padded with zeros. */
#define OVER(n) for (size_t i = 0, m; m = (n) - i < MR_LANES ? (n) - i : MR_LANES, i < (n); i += m)

MR_INLINE mr_vd load_part(const double *p, size_t m)
{
    mr_vd v = {0};
    if (m == MR_LANES) return mr_load_d(p);
    memcpy(&v, p, m * sizeof *p);
    return v;
}

MR_INLINE void store_part(double *p, mr_vd v, size_t m)
{
    if (m == MR_LANES) mr_store_d(p, v);
    else memcpy(p, &v, m * sizeof *p);
}

void MR_ISA_NAME(mr_key_intervals)(const double *score, const double *norm, const double *bias,
                                   size_t n, double scale, double offset, double rel, double *lo,
                                   double *hi)
{
    OVER(n)
    {
        mr_vd s = load_part(score + i, m), key = bias ? s + load_part(bias + i, m) : s, a, b;
        mr_vd r = load_part(norm + i, m) * scale + offset + s * rel;
        outward(key, r, &a, &b);
        store_part(lo + i, a, m);
        store_part(hi + i, b, m);
    }
}

void MR_ISA_NAME(mr_value_intervals)(const double *value, const double *norm, size_t n,
                                     double scale, double offset, double *lo, double *hi)
{
    OVER(n)
    {
        mr_vd v = load_part(value + i, m), a, b;
        outward(v, load_part(norm + i, m) * scale + offset, &a, &b);
        store_part(lo + i, a, m);
        store_part(hi + i, b, m);
    }
}

void MR_ISA_NAME(mr_relative_intervals)(const double *value, size_t n, double rel, double *lo,
                                        double *hi)
{
    OVER(n)
    {
        mr_vd v = load_part(value + i, m);
        store_part(lo + i, v * (1 - rel), m);
        store_part(hi + i, v * (1 + rel), m);
    }
}

MR_INLINE void insert(double v, int k, double *top)
{
    if (!(v > top[k - 1])) return;
    int i = k - 1;
    for (; i > 0 && top[i - 1] < v; i--) top[i] = top[i - 1];
    top[i] = v;
}

void MR_ISA_NAME(mr_k_largest)(const double *value, int n, int k, double *top)
{
    for (int i = 0; i < k; i++) top[i] = -__builtin_inf();
    int e = 0;
    for (; e + 2 * MR_LANES <= n; e += 2 * MR_LANES) {
        mr_vd bar = mr_splat(top[k - 1]);
        mr_vl a = mr_load_d(value + e) > bar, b = mr_load_d(value + e + MR_LANES) > bar;
        if (MR_ANY(a | b))
            for (int i = e; i < e + 2 * MR_LANES; i++) insert(value[i], k, top);
    }
    for (; e < n; e++) insert(value[e], k, top);
}

int MR_ISA_NAME(mr_at_least)(const double *value, int n, double bar, int *index)
{
    int count = 0, e = 0;
    for (; e + 2 * MR_LANES <= n; e += 2 * MR_LANES) {
        mr_vl a = mr_load_d(value + e) >= bar, b = mr_load_d(value + e + MR_LANES) >= bar;
        if (MR_ANY(a | b))
            for (int i = e; i < e + 2 * MR_LANES; i++)
                if (value[i] >= bar) index[count++] = i;
    }
    for (; e < n; e++)
        if (value[e] >= bar) index[count++] = e;
    return count;
}

void MR_ISA_NAME(mr_emulated_keys)(const float *score, const float *bias, const double *exact,
                                   size_t n, float *key, double *error)
{
    for (size_t i = 0; i < n; i++) {
        float k = bias ? score[i] + bias[i] : score[i];
        double d = (double)k - exact[i];
        key[i] = k;
        error[i] = d < 0 ? -d : d;
    }
}

MR_INLINE void choose(const float *key, int e, int have, int *chosen)
{
    int i = have - 1;
    for (; i > 0 && key[e] > key[chosen[i - 1]]; i--) chosen[i] = chosen[i - 1];
    chosen[i] = e;
}

void MR_ISA_NAME(mr_select_top)(const float *key, int n, int k, float bar, int *chosen)
{
    int have = 0, e = 0;
    for (; e + 2 * MR_LANES <= n; e += 2 * MR_LANES) {
        mr_vf2 v;
        memcpy(&v, key + e, sizeof v);
        mr_vi2 reaches = v >= (mr_vf2){0} + bar;
        if (!MR_ANY2(reaches)) continue;
        for (int i = e; i < e + 2 * MR_LANES; i++) {
            if (!(key[i] >= bar) || (have == k && !(key[i] > key[chosen[k - 1]]))) continue;
            have += have < k;
            choose(key, i, have, chosen);
            if (have == k) bar = key[chosen[k - 1]];
        }
    }
    for (; e < n; e++) {
        if (!(key[e] >= bar) || (have == k && !(key[e] > key[chosen[k - 1]]))) continue;
        have += have < k;
        choose(key, e, have, chosen);
        if (have == k) bar = key[chosen[k - 1]];
    }
    for (e = 0; e < n && have < k; e++) /* only NaN is left */
        if (key[e] != key[e]) chosen[have++] = e;
}
