/* Quantiles against sorting: the histogram within its bins, the spill exactly. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/spill.h"
#include "../ref/route/histogram.h"
#include "support/routed.h"

static const double shares[] = {1e-9, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1};
enum { SHARES = sizeof shares / sizeof *shares };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nearest rank of sorted values. */
static double ranked(const double *sorted, size_t n, double q)
{
    double rank = ceil(q * (double)n);
    return sorted[rank < 1 ? 0 : (size_t)rank - 1];
}

/* Sizes over many binades, with zeros, repeats and the edges of bins. */
static double *numbers(size_t n, uint64_t *state)
{
    double *v = malloc((n + 1) * sizeof *v);
    ck_assert_ptr_nonnull(v);
    for (size_t i = 0; i < n; i++) {
        double size = ldexp(1 + fabs(routed_uniform(state)), -(int)(routed_random(state) % 60));
        uint64_t kind = routed_random(state) % 16;
        v[i] = kind == 0   ? 0
               : kind == 1 ? 0.25
               : kind == 2 ? ldexp(1 + (double)(i % 512) / 512, -5)
                           : size;
    }
    return v;
}

START_TEST(corroborate_histogram_and_sorting)
{
    uint64_t state = 31;
    static const size_t counts[] = {1, 2, 3, 10, 999, 1000, 30000};
    for (int c = 0; c < 7; c++) {
        size_t n = counts[c];
        struct mr_histogram h = {0};
        double *v = numbers(n, &state);
        mr_histogram_add(&h, v, n);
        qsort(v, n, sizeof *v, by_size);
        ck_assert_uint_eq(h.total, n);
        for (int i = 0; i < SHARES; i++) {
            double want = ranked(v, n, shares[i]), got = mr_histogram_quantile(&h, shares[i]);
            ck_assert_msg(fabs(got - want) <= want * 0x1p-10, "%zu values, %g: %g, expected %g", n,
                          shares[i], got, want);
        }
        free(v);
    }
}
END_TEST

START_TEST(verify_histogram_merges)
{
    uint64_t state = 32;
    double *v = numbers(5000, &state);
    struct mr_histogram all = {0}, a = {0}, b = {0};
    mr_histogram_add(&all, v, 5000);
    for (size_t i = 0; i < 5000; i += 10) mr_histogram_add(i % 3 ? &a : &b, v + i, 10);
    mr_histogram_merge(&b, &a);
    ck_assert(!memcmp(&all, &b, sizeof all));
    free(v);
}
END_TEST

START_TEST(verify_histogram_edges)
{
    struct mr_histogram h = {0};
    ck_assert(isnan(mr_histogram_quantile(&h, 0.5)));
    const double low[] = {0, -0.0, 0x1p-1074, 0x1.fffp-65};
    mr_histogram_add(&h, low, 4);
    ck_assert(mr_histogram_quantile(&h, 1) <= 0);
    const double within[] = {0x1p-64, 0x1.fffffffffffffp7};
    for (int i = 0; i < 2; i++) {
        memset(&h, 0, sizeof h);
        mr_histogram_add(&h, &within[i], 1);
        ck_assert_double_le(fabs(mr_histogram_quantile(&h, 0.5) / within[i] - 1), 0x1p-10);
    }
    memset(&h, 0, sizeof h);
    const double high[] = {0x1p8, 1e300, HUGE_VAL, NAN};
    mr_histogram_add(&h, high, 4);
    ck_assert(isinf(mr_histogram_quantile(&h, 1e-9)) && mr_histogram_quantile(&h, 1) > 0);
}
END_TEST

static void expect_spill(struct mr_spill *s, const double *values, size_t n)
{
    struct mr_error err = {{0}};
    double *v = malloc((n + 1) * sizeof *v), out[SHARES];
    ck_assert_ptr_nonnull(v);
    memcpy(v, values, n * sizeof *v);
    qsort(v, n, sizeof *v, by_size);
    ck_assert_uint_eq(mr_spill_count(s), n);
    ck_assert_msg(!mr_spill_quantiles(s, shares, SHARES, out, &err), "%s", err.text);
    for (int i = 0; i < SHARES; i++) {
        double want = n ? ranked(v, n, shares[i]) : NAN;
        ck_assert_msg(!memcmp(&out[i], &want, sizeof want) || (!n && isnan(out[i])),
                      "%zu values, %g: %.17g, expected %.17g", n, shares[i], out[i], want);
    }
    free(v);
}

/* In memory, at its limit of 2^17 and in the file; then shorter again, and longer. */
START_TEST(corroborate_spill_and_sorting)
{
    uint64_t state = 33;
    enum { MOST = 400000 };
    double *v = numbers(MOST, &state);
    v[5] = v[100000] = v[300000] = HUGE_VAL;
    static const size_t upto[] = {0, 1, 2, 1000, 131071, 131072, 131073, 262145, MOST};
    static const size_t back[] = {399999, 262145, 262144, 262143, 131072, 131071, 77, 1, 0};
    struct mr_spill *s;
    struct mr_error err = {{0}};
    ck_assert(!mr_spill_new(&s, &err));
    size_t at = 0;
    for (int i = 0; i < 9; i++) {
        while (at < upto[i]) {
            size_t n = routed_random(&state) % 5000 + 1;
            if (n > upto[i] - at) n = upto[i] - at;
            ck_assert(!mr_spill_add(s, v + at, n, &err));
            at += n;
        }
        expect_spill(s, v, at);
    }
    for (int i = 0; i < 9; i++) {
        ck_assert(!mr_spill_truncate(s, back[i] + 1000000, &err)); /* more than there is: nothing */
        ck_assert(!mr_spill_truncate(s, back[i], &err));
        expect_spill(s, v, back[i]);
        if (i != 3 && i != 5) continue; /* grows again from the middle of the file */
        ck_assert(!mr_spill_add(s, v + back[i], 100000, &err));
        expect_spill(s, v, back[i] + 100000);
        ck_assert(!mr_spill_truncate(s, back[i], &err));
    }
    mr_spill_free(s);
    free(v);
}
END_TEST

START_TEST(corroborate_spill_of_infinities)
{
    const double v[] = {HUGE_VAL, 1, HUGE_VAL, 0};
    struct mr_spill *s;
    struct mr_error err = {{0}};
    ck_assert(!mr_spill_new(&s, &err));
    ck_assert(!mr_spill_add(s, v, 4, &err));
    expect_spill(s, v, 4);
    const double q[] = {0, 0.5, 0.51};
    double out[3];
    ck_assert(!mr_spill_quantiles(s, q, 3, out, &err));
    ck_assert(out[0] <= 0 && !(out[1] < 1) && !(out[1] > 1) && isinf(out[2]));
    mr_spill_free(s);
    mr_spill_free(NULL);
}
END_TEST

Suite *suite_quantiles(void);
Suite *suite_quantiles(void)
{
    Suite *s = suite_create("quantiles");
    TCase *c = tcase_create("against sorting");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, corroborate_histogram_and_sorting);
    tcase_add_test(c, verify_histogram_merges);
    tcase_add_test(c, verify_histogram_edges);
    tcase_add_test(c, corroborate_spill_and_sorting);
    tcase_add_test(c, corroborate_spill_of_infinities);
    suite_add_tcase(s, c);
    return s;
}
