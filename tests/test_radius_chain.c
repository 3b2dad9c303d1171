/* The radius of tensor-core chains, and of sums that nothing is declared of. */
#include <check.h>
#include <math.h>
#include <mpfr.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/radius_rows.h"

static const struct mr_sum fp32 = {.kind = MR_SUM_FP32};

static bool thorough(void)
{
    return getenv("MOEREF_LONG") != NULL;
}

static struct mr_sum chain_of(size_t splits)
{
    return (struct mr_sum){.kind = MR_SUM_TENSOR, .step = 16, .fraction = 25, .splits = (int)splits};
}

/* c = 1, then steps of 16 products k q + (q - 2^-8 q), q = 2^-25, which lose almost q each; their
 * cut sum is 3 q more than a multiple of the last place of binary32, 4 q, which the final cut
 * takes. */
START_TEST(verify_tensor_chain_is_attained)
{
    static struct rows r;
    struct mr_sum sum = chain_of(1);
    const double q = 0x1p-25;
    for (size_t steps = 4; steps <= 256; steps *= 4) {
        r.n = 16 * steps;
        for (size_t i = 0; i < r.n; i++) {
            double size = i % 16 < 3 ? 2 - 0x1p-7 : 1 - 0x1p-8; /* cut to q; to 0 */
            r.x[i] = rows_bf16(i ? size : 1);
            r.w[i] = rows_bf16(i ? q : 1);
        }
        float s = kernel_tensor(r.x, r.w, r.n, 1);
        ck_assert_double_eq(s, 1);
        double exact;
        struct mr_dot d = rows_dot(&r, &exact);
        double ratio = fabs(s - exact) / mr_sum_radius(&sum, &d, exact, 0);
        ck_assert_msg(ratio <= 1 && (ratio > 0.93 || steps == 4), "%zu steps: %g", steps, ratio);
        if (steps == 256) fprintf(stderr, "radius: tensor chain, constructed: %.4f\n", ratio);
    }
}
END_TEST

START_TEST(verify_tensor_chain_is_never_violated)
{
    uint64_t state = 2;
    double worst = 0;
    static const size_t splits[] = {1, 2, 3, 5};
    for (int i = 0; i < 4; i++)
        for (size_t n = 1; n <= 256; n *= 4) {
            struct kernel k = {.tensor = true, .splits = splits[i]};
            struct mr_sum sum = chain_of(splits[i]);
            if (n >= splits[i])
                worst = fmax(worst, rows_climb(&k, &sum, n, thorough() ? 20000 : 800, &state));
        }
    ck_assert_double_le(worst, 1);
    ck_assert_double_gt(worst, 0.3);
    fprintf(stderr, "radius: tensor chain, hill climbing: %.3f\n", worst);
}
END_TEST

/* One product a step, the others zero: every step may cut its sum, so the number of products that
 * are not zero does not bound the chain. */
START_TEST(verify_sparse_chain)
{
    static struct rows r;
    static double x[ROWS_MOST];
    r.n = ROWS_MOST;
    for (size_t i = 0; i < r.n; i++) {
        r.x[i] = i % 16 ? 0 : rows_bf16(i ? 0x1.fcp-1 : 1); /* just below 4 q = 2^-23 */
        r.w[i] = rows_bf16(i ? 0x1p-23 : 1);
        x[i] = r.x[i];
    }
    struct mr_sum sum = chain_of(1);
    double exact, s = kernel_tensor(r.x, r.w, r.n, 1);
    struct mr_dot d = rows_dot(&r, &exact);
    d.magnitude = mr_dot_magnitude(x, r.w, r.n, &d.terms);
    double error = fabs(s - exact), radius = mr_sum_radius(&sum, &d, exact, 0);
    ck_assert_double_le(error, radius);
    d.terms = ROWS_MOST / 16;
    ck_assert_double_gt(error, mr_sum_radius(&sum, &d, exact, 0));
}
END_TEST

/* Cancellation and spread: exponents in all of bf16's range, where the exact sum needs 200 bits. */
START_TEST(verify_wide_exponents)
{
    uint64_t state = 3;
    static struct rows r;
    struct mr_sum tensor = chain_of(1);
    mpfr_t s, p, error;
    mpfr_inits2(600, s, p, error, (mpfr_ptr)0);
    for (int trial = 0; trial < 400; trial++) {
        r.n = 1 + kernel_random(&state) % 100;
        struct mr_dot d = {.terms = r.n, .exact = true};
        mpfr_set_zero(s, 1);
        for (size_t i = 0; i < r.n; i++) {
            r.x[i] = rows_any(&state) * ldexpf(1, (int)(kernel_random(&state) % 50) - 25);
            r.w[i] = rows_any(&state) * ldexpf(1, (int)(kernel_random(&state) % 50) - 25);
            if (i && trial % 2) r.x[i] = r.x[i - 1], r.w[i] = i % 2 ? -r.w[i - 1] : r.w[i];
            mpfr_set_flt(p, r.x[i], MPFR_RNDN);
            mpfr_mul_d(p, p, r.w[i], MPFR_RNDN);
            mpfr_add(s, s, p, MPFR_RNDN);
            d.magnitude += fabs((double)r.x[i] * r.w[i]);
        }
        d.magnitude *= 1 + 0x1p-40;
        double logit = mpfr_get_d(s, MPFR_RNDN), slack = fabs(logit) * 0x1p-53;
        float got[] = {kernel_tensor(r.x, r.w, r.n, 1),
                       kernel_sum(ORDER_SEQUENTIAL, true, r.x, r.w, r.n, &state),
                       kernel_sum(ORDER_TREE, false, r.x, r.w, r.n, &state)};
        for (int i = 0; i < 3; i++) {
            mpfr_sub_d(error, s, got[i], MPFR_RNDN);
            double e = fabs(mpfr_get_d(error, MPFR_RNDA));
            ck_assert_double_le(e, mr_sum_radius(i ? &fp32 : &tensor, &d, logit, slack));
            ck_assert_double_le(e, mr_sum_radius(&mr_sum_default, &d, logit, slack));
        }
    }
    mpfr_clears(s, p, error, (mpfr_ptr)0);
}
END_TEST

START_TEST(verify_default_and_growth)
{
    struct mr_sum kinds[] = {mr_sum_default, fp32, chain_of(1), {.kind = MR_SUM_EXACT}};
    for (size_t n = 1; n <= 8192; n *= 2)
        for (int l = -8; l <= 8; l++) {
            struct mr_dot d = {.terms = n, .exact = true};
            double last[4] = {0};
            for (double a = 1; a < 1e4; a *= 1.3) {
                d.magnitude = a;
                double r[4];
                for (int i = 0; i < 4; i++) {
                    r[i] = mr_sum_radius(&kinds[i], &d, l, 0);
                    ck_assert_double_ge(r[i], last[i]);
                    last[i] = r[i];
                }
                ck_assert_double_ge(r[0], r[1]);
                ck_assert_double_ge(r[0], r[2]);
                ck_assert_double_eq(r[3], 0);
            }
        }
}
END_TEST

/* What no bound can serve gives an infinite one, not a wrong one. */
START_TEST(reject_overflow_and_unknown_steps)
{
    struct mr_dot d = {.terms = 100, .magnitude = 0x1p127, .exact = true};
    ck_assert(isinf(mr_sum_radius(&fp32, &d, 0x1p127, 0)));
    ck_assert(isinf(mr_sum_radius(&mr_sum_default, &d, 0x1p127, 0)));
    d.magnitude = INFINITY;
    ck_assert(isinf(mr_sum_radius(&fp32, &d, 1, 0)));
    d.magnitude = 1;
    struct mr_sum bad[] = {{.kind = MR_SUM_TENSOR, .step = 0, .fraction = 25, .splits = 1},
                           {.kind = MR_SUM_TENSOR, .step = 16, .fraction = 13, .splits = 1},
                           {.kind = MR_SUM_TENSOR, .step = 16, .fraction = 25, .splits = 0},
                           {.kind = MR_SUM_TENSOR, .step = 65, .fraction = 25, .splits = 1}};
    for (int i = 0; i < 4; i++) ck_assert(isinf(mr_sum_radius(&bad[i], &d, 1, 0)));
    d.exact = false;
    struct mr_sum tensor = chain_of(1);
    ck_assert(isinf(mr_sum_radius(&tensor, &d, 1, 0)));
    ck_assert(!isinf(mr_sum_radius(&mr_sum_default, &d, 1, 0)));
    d.terms = (size_t)1 << 40;
    ck_assert_double_gt(mr_sum_radius(&fp32, &d, 1, 0), 1);
    d.terms = 0;
    ck_assert_double_eq(mr_sum_radius(&mr_sum_default, &d, 0, 0), 0);
}
END_TEST

Suite *suite_radius_chain(void);
Suite *suite_radius_chain(void)
{
    Suite *s = suite_create("radius_chain");
    TCase *c = tcase_create("chains");
    tcase_set_timeout(c, 600);
    tcase_add_test(c, verify_tensor_chain_is_attained);
    tcase_add_test(c, verify_tensor_chain_is_never_violated);
    tcase_add_test(c, verify_sparse_chain);
    tcase_add_test(c, verify_wide_exponents);
    tcase_add_test(c, verify_default_and_growth);
    tcase_add_test(c, reject_overflow_and_unknown_steps);
    suite_add_tcase(s, c);
    return s;
}
