/* The radius of binary32 sums: never violated in any order, and attained. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/radius_rows.h"

static const struct mr_sum fp32 = {.kind = MR_SUM_FP32};

static bool thorough(void)
{
    return getenv("MOEREF_LONG") != NULL;
}

/* 1 + 2^-24 + 2^-24 ...: every addition is a tie that goes down. */
START_TEST(verify_any_order_is_attained)
{
    static struct rows r;
    for (size_t n = 2; n <= ROWS_MOST; n *= 2) {
        r.n = n;
        for (size_t i = 0; i < n; i++) {
            r.x[i] = i ? 0x1p-12f : 1;
            r.w[i] = i ? 0x1p-12f : 1;
        }
        for (int fused = 0; fused < 2; fused++) {
            float s = kernel_sum(ORDER_SEQUENTIAL, fused, r.x, r.w, n, NULL);
            ck_assert_double_gt(rows_ratio(&fp32, &r, s), 0.9999);
        }
    }
}
END_TEST

/* Products that are not binary32 numbers: one rounding each, in the same direction as the sum's. */
START_TEST(verify_inexact_products_are_attained)
{
    static struct rows r;
    r.n = 256;
    /* (1 + 2^-23) (1 - 2^-12) = 1 - 2^-12 + 2^-23 - 2^-35: below a tie of [1/2, 1). */
    double exact = 0, magnitude = 0, s = 0;
    for (size_t i = 0; i < r.n; i++) {
        float x = 1 + 0x1p-12f, w = 1 + 0x1p-12f; /* 1 + 2^-11 + 2^-24: a tie, to even: down */
        if (i) x = 0x1p-12f * (1 + 0x1p-11f), w = 0x1p-12f * (1 - 0x1p-11f); /* below half a unit */
        s = (float)(s + x * w);
        exact += (double)x * w;
        magnitude += (double)x * w;
    }
    struct mr_dot d = {.terms = r.n, .magnitude = magnitude, .exact = false};
    double radius = mr_sum_radius(&fp32, &d, exact, 0);
    ck_assert_double_le(fabs(s - exact), radius);
    ck_assert_double_gt(fabs(s - exact), 0.99 * radius);
    d.exact = true; /* the products' own rounding is part of it */
    ck_assert_double_gt(fabs(s - exact), mr_sum_radius(&fp32, &d, exact, 0));
}
END_TEST

START_TEST(verify_any_order_is_never_violated)
{
    uint64_t state = 1;
    int moves = thorough() ? 40000 : 1500;
    double worst = 0;
    for (int order = 0; order < ORDER_COUNT; order++)
        for (int fused = 0; fused < 2; fused++)
            for (size_t n = 2; n <= 128; n *= 4) {
                struct kernel k = {.order = (enum order)order, .fused = fused};
                worst = fmax(worst, rows_climb(&k, &fp32, n, moves, &state));
            }
    ck_assert_double_le(worst, 1);
    ck_assert_double_ge(worst, 0.9); /* two terms: half a unit of the sum */
    fprintf(stderr, "radius: any order, hill climbing: best error / radius %.3f\n", worst);
}
END_TEST

/* Data that looks like a router's, and the same with full significands, in an order chosen against
 * it and in the orders of kernels. (Sums of bf16 products are often exact: that the bound does not
 * use.) */
START_TEST(verify_ordinary_data)
{
    static struct rows r;
    static float p[ROWS_MOST];
    uint64_t state = 7;
    r.n = thorough() ? 4096 : 512;
    for (int full = 0; full < 2; full++) {
        double greedy = 0, usual = 0;
        for (int trial = 0; trial < 4; trial++) {
            for (size_t i = 0; i < r.n; i++) {
                double g = 0, h = 0;
                for (int j = 0; j < 12; j++) {
                    g += kernel_uniform(&state);
                    h += kernel_uniform(&state);
                }
                r.x[i] = full ? (float)((g - 6) * (h - 6)) : rows_bf16(g - 6);
                r.w[i] = full ? 1 : rows_bf16((h - 6) * 0.02);
                p[i] = r.x[i] * r.w[i];
            }
            int sign = trial % 2 ? 1 : -1;
            greedy = fmax(greedy, rows_ratio(&fp32, &r, kernel_greedy_sum(p, r.n, sign)));
            for (int order = 0; order < ORDER_COUNT; order++)
                usual = fmax(
                    usual, rows_ratio(&fp32, &r,
                                      kernel_sum((enum order)order, false, r.x, r.w, r.n, &state)));
        }
        ck_assert_double_gt(greedy, full ? 1 / 4. : 1 / 12.);
        fprintf(stderr, "radius: normal data%s, %zu terms: chosen order %.3f, usual orders %.4f\n",
                full ? ", full significands" : "", r.n, greedy, usual);
    }
}
END_TEST

/* A declared depth: 32 lanes of n/32 and a butterfly of 5. */
START_TEST(verify_declared_depth)
{
    uint64_t state = 4;
    struct kernel k = {.order = ORDER_LANES};
    for (size_t n = 64; n <= 256; n *= 2) {
        struct mr_sum sum = {.kind = MR_SUM_FP32, .depth = (int)n / 32 + 5};
        rows_climb(&k, &sum, n, 500, &state);
        struct mr_dot d = {.terms = n, .magnitude = 1, .exact = true};
        ck_assert_double_lt(mr_sum_radius(&sum, &d, 1, 0), mr_sum_radius(&fp32, &d, 1, 0));
    }
}
END_TEST

START_TEST(corroborate_magnitude)
{
    uint64_t state = 5;
    static double x[3000];
    static float w[3000];
    for (size_t n = 0; n < 3000; n += 1 + n / 7) {
        double sum = 0;
        size_t nonzero = 0, terms = 0;
        unsigned sparse = n % 2 ? 2 : 40;
        for (size_t i = 0; i < n; i++) {
            x[i] = kernel_random(&state) % sparse ? 0 : rows_any(&state);
            w[i] = kernel_random(&state) % 4 ? rows_any(&state) : 0;
            sum += fabs(x[i] * w[i]);
            nonzero += x[i] != 0 && w[i] != 0;
        }
        double got = mr_dot_magnitude(x, w, n, &terms);
        ck_assert_double_ge(got, sum);
        ck_assert_double_le(got, sum * (1 + 1e-12));
        ck_assert_uint_eq(terms, 64 * nonzero < n ? 64 * nonzero : n);
    }
}
END_TEST

Suite *suite_radius(void);
Suite *suite_radius(void)
{
    Suite *s = suite_create("radius");
    TCase *c = tcase_create("sums");
    tcase_set_timeout(c, 600);
    tcase_add_test(c, verify_any_order_is_attained);
    tcase_add_test(c, verify_inexact_products_are_attained);
    tcase_add_test(c, verify_any_order_is_never_violated);
    tcase_add_test(c, verify_ordinary_data);
    tcase_add_test(c, verify_declared_depth);
    tcase_add_test(c, corroborate_magnitude);
    suite_add_tcase(s, c);
    return s;
}
