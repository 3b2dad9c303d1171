/* sqrt(log(1 + e^x)): its binary64, double-double and MPFR forms against MPFR with bits to spare
 * and against stored worst cases; and routing by it. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/exact/sum_sign.h"
#include "../ref/route/score.h"
#include "../ref/route/sqrt_softplus.h"
#include "support/brute_groups.h"
#include "support/mpfr_oracle.h"

enum { BITS = 3000 };

/* By the textbook: e^x, 1 + e^x, log, root, with the bits that 1 + e^x loses for negative x. */
static void oracle(mpfr_t out, double x)
{
    mpfr_t t;
    mpfr_init2(t, BITS + (x < 0 ? (long)(-x * 1.5) + 64 : 0));
    mpfr_set_d(t, x, MPFR_RNDN);
    mpfr_exp(t, t, MPFR_RNDN);
    mpfr_add_ui(t, t, 1, MPFR_RNDN);
    mpfr_log(t, t, MPFR_RNDN);
    mpfr_sqrt(t, t, MPFR_RNDN);
    mpfr_set(out, t, MPFR_RNDN);
    mpfr_clear(t);
}

/* |got - truth| / truth, got = hi + lo. */
static double relative(struct mr_dd got, const mpfr_t truth)
{
    mpfr_t d;
    mpfr_init2(d, BITS);
    mpfr_set_d(d, got.hi, MPFR_RNDN);
    mpfr_add_d(d, d, got.lo, MPFR_RNDN);
    mpfr_sub(d, d, truth, MPFR_RNDN);
    mpfr_div(d, d, truth, MPFR_RNDN);
    double r = fabs(mpfr_get_d(d, MPFR_RNDA));
    mpfr_clear(d);
    return r;
}

static double draw(uint64_t *state, int i)
{
    static const double spans[] = {1, 20, 75.5, 120, 700, 0x1p-30};
    double x = routed_uniform(state) * spans[i % 6];
    if (i % 7 == 0) x = (float)x;
    return x;
}

START_TEST(corroborate_double_and_double_double)
{
    uint64_t state = 1;
    int rounds = getenv("MOEREF_LONG") ? 100000 : 3000;
    double worst = 0, worst_dd = 0;
    mpfr_t truth;
    mpfr_init2(truth, BITS);
    for (int i = 0; i < rounds; i++) {
        double x = draw(&state, i), y, rel;
        oracle(truth, x);
        mr_vec_sqrt_softplus(&x, 1, &y);
        double off = relative((struct mr_dd){y, 0}, truth);
        if (off > worst) worst = off;
        ck_assert_msg(off <= MR_SQRT_SOFTPLUS_ULPS * 0x1p-53, "%a: binary64 is off by %g u", x,
                      off * 0x1p53);
        struct mr_dd dd = mr_sqrt_softplus_dd((struct mr_dd){x, 0}, &rel);
        off = relative(dd, truth);
        if (off > worst_dd) worst_dd = off;
        ck_assert_msg(rel <= MR_SQRT_SOFTPLUS_DD_REL && off <= rel,
                      "%a: double-double is off by 2^%g", x, log2(off));
    }
    mpfr_clear(truth);
    if (getenv("MOEREF_LONG"))
        printf("sqrt-softplus: worst %.2f u, double-double 2^%.1f\n", worst * 0x1p53,
               log2(worst_dd));
}
END_TEST

/* Beyond the series: logits that overflow or underflow what e^x can be. */
START_TEST(verify_tails)
{
    static const double xs[] = {-1e30, -1e5, -1401, -1400, -1399, -800, -709,
                                -708,  -75,  75,    709,   1e5,   1e30};
    for (size_t i = 0; i < sizeof xs / sizeof *xs; i++) {
        double y, rel;
        mr_vec_sqrt_softplus(&xs[i], 1, &y);
        struct mr_dd dd = mr_sqrt_softplus_dd((struct mr_dd){xs[i], 0}, &rel);
        double right = xs[i] > 0 ? sqrt(xs[i]) : exp(xs[i] / 2);
        ck_assert_msg(fabs(y - right) <= 1e-14 * right + MR_SQRT_SOFTPLUS_TINY, "%g: %a, not %a",
                      xs[i], y, right);
        ck_assert_msg(fabs(dd.hi - right) <= 1e-14 * right + 0x1p-1000, "%g: %a, not %a", xs[i],
                      dd.hi, right);
    }
    double y, x = 0;
    mr_vec_sqrt_softplus(&x, 1, &y);
    ck_assert(fabs(y - 0.83255461115769776) < 1e-15); /* sqrt(log 2) */
}
END_TEST

/* A logit off by r moves the score by at most 0.354 r, and by nearly 0.319 r where that is
 * worst. */
START_TEST(verify_slope)
{
    double most = 0;
    for (double x = -60; x < 60; x += 0x1p-9) {
        double y[2], at[2] = {x, x + 0x1p-9};
        mr_vec_sqrt_softplus(at, 2, y);
        double slope = (y[1] - y[0]) * 0x1p9;
        if (slope > most) most = slope;
    }
    ck_assert_msg(most < 0.3192 && most > 0.319, "%.17g", most);
}
END_TEST

/* Reads the next number of a line, exactly. */
static bool next(const char **at, mpfr_t out)
{
    char *end;
    mpfr_set_prec(out, 200);
    ck_assert_int_eq(mpfr_strtofr(out, *at, &end, 0, MPFR_RNDN), 0);
    if (end == *at) return false;
    *at = end;
    return true;
}

START_TEST(validate_worst_cases)
{
    char text[512];
    int cases = 0, line = 0;
    FILE *f = fopen("ref/route/sqrt_softplus.wc", "r");
    ck_assert_msg(f != NULL,
                  "ref/route/sqrt_softplus.wc: the tests run in the root of the repository");
    mpfr_t p, x, want, got;
    mpfr_inits2(200, p, x, want, got, (mpfr_ptr)0);
    while (fgets(text, sizeof text, f)) {
        const char *at = text;
        line++;
        text[strcspn(text, "#\n")] = 0;
        if (!next(&at, p)) continue;
        ck_assert_msg(next(&at, x) && next(&at, want), "line %d", line);
        mpfr_set_prec(got, mpfr_get_si(p, MPFR_RNDN));
        mr_sqrt_softplus_mpfr(got, x);
        ck_assert_msg(mpfr_equal_p(got, want), "sqrt_softplus.wc:%d", line);
        cases++;
    }
    fclose(f);
    mpfr_clears(p, x, want, got, (mpfr_ptr)0);
    ck_assert_int_ge(cases, 100);
}
END_TEST

START_TEST(corroborate_twin)
{
    uint64_t state = 2;
    static const long precisions[] = {2, 8, 24, 53, 113, 400, 2000};
    mpfr_t x, want, got, wide;
    mpfr_inits2(64, x, want, got, (mpfr_ptr)0);
    mpfr_init2(wide, BITS);
    for (int i = 0; i < 400; i++) {
        double v = draw(&state, i);
        mpfr_set_d(x, v, MPFR_RNDN);
        mpfr_set_prec(got, precisions[i % 7]);
        mpfr_set_prec(want, precisions[i % 7]);
        oracle(wide, v);
        mpfr_set(want, wide, MPFR_RNDN);
        mr_sqrt_softplus_mpfr(got, x);
        ck_assert_msg(mpfr_equal_p(got, want), "%a at %ld bits", v, precisions[i % 7]);
    }
    /* Below MPFR's exponents for e^x, not for its root: e^-4e8. */
    mpfr_set_prec(got, 24);
    mpfr_set_prec(want, 24);
    mpfr_set_d(x, -8e8, MPFR_RNDN);
    mr_sqrt_softplus_mpfr(got, x);
    mpfr_set_d(want, -4e8, MPFR_RNDN);
    mpfr_exp(want, want, MPFR_RNDN);
    ck_assert(mpfr_equal_p(got, want));
    mpfr_clears(x, want, got, wide, (mpfr_ptr)0);
}
END_TEST

/* A difference that no theorem excludes and no precision up to the cap shows is left undecided:
 * here the bias is the difference itself, to more bits than the cap. */
START_TEST(verify_undecided_at_the_cap)
{
    for (int extra = 0; extra < 2; extra++) {
        mpfr_t x, y, a, b;
        mpfr_inits2(64, x, y, (mpfr_ptr)0);
        mpfr_inits2(3 * MR_COMPARE_CAP_OPEN, a, b, (mpfr_ptr)0);
        mpfr_set_d(x, 1.5, MPFR_RNDN);
        mpfr_set_d(y, -0.75, MPFR_RNDN);
        mr_sqrt_softplus_mpfr(a, x);
        mr_sqrt_softplus_mpfr(b, y);
        mpfr_sub(b, b, a, MPFR_RNDN);
        mpfr_prec_round(b, extra ? 2000 : 2 * MR_COMPARE_CAP_OPEN, MPFR_RNDN);
        struct mr_signed_logit term[] = {{x, 1}, {y, -1}};
        struct mr_order o = {.level = MR_LEVEL_UNDECIDED};
        struct mr_logit_source none = {0};
        ck_assert_int_eq(mr_sum_sign(MR_SCORE_SQRT_SOFTPLUS, term, 2, b, &none, &o), MR_OK);
        ck_assert_int_eq(o.level, extra ? MR_LEVEL_MPFR : MR_LEVEL_UNDECIDED);
        ck_assert_int_eq(o.sign != 0, extra);
        mpfr_clears(x, y, a, b, (mpfr_ptr)0);
    }
}
END_TEST

static void expect(struct problem *p)
{
    expect_groups(p, false);
    problem_free(p);
}

START_TEST(corroborate_random_layers)
{
    uint64_t state = 3;
    static const enum mr_dtype types[] = {MR_BF16, MR_F16, MR_F32};
    for (int i = 0; i < 18; i++) {
        struct problem *p = problem_new(MR_SCORE_SQRT_SOFTPLUS, 24, 6, 60, 3, types[i % 3],
                                        types[i / 3 % 3], i / 9);
        problem_fill(&p->layer.hidden, 1, &state);
        problem_fill(&p->layer.gate, (i % 4 + 1) / sqrt(60), &state);
        if (i / 9) problem_fill_bias(p, 0.1, &state);
        p->router.norm_topk_prob = i % 2;
        p->router.routed_scaling_factor = 1.5;
        p->name = "random";
        expect(p);
    }
}
END_TEST

/* Tails, ties, -0, large biases against small scores (a kernel that recovers the score as key -
 * bias loses it), all negative. */
START_TEST(corroborate_named_rows)
{
    static const double rows[][8] = {
        {-17, -17, -17, -17, -17, -17, -17, -17},
        {-200, -201, -199, -300, -150, -104, -250, -200},
        {90, 88.8, 200, 91, 89, 1000, 5000, 90},
        {-6, -12, -16, -20, -30, -25, -8, -40},
        {0, -0.0, 0, -0.0, 0x1p-149, -0x1p-149, 0, 0},
        {-9, -1, -2, -3, -4, -5, -6, -7},
        {-1400, -2600, -1400, -1500, -1600, -2000, -2400, -2700},
        {3e38, 1e38, 2e38, 3e38, 1e30, 1, 2, 3},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    for (int bias = 0; bias < 3; bias++)
        for (int k = 1; k <= 8; k += 3) {
            struct problem *p =
                problem_new(MR_SCORE_SQRT_SOFTPLUS, 8, k, 0, ROWS, MR_F32, MR_F32, bias);
            for (size_t t = 0; t < ROWS; t++)
                for (size_t e = 0; e < 8; e++) problem_set(&p->layer.logits, t, e, rows[t][e]);
            for (int e = 0; e < 8 && bias; e++) p->bias[e] = bias == 1 ? 8.08 : 8 + e % 3 * 0.25;
            p->name = "named rows";
            expect(p);
        }
}
END_TEST

/* Scores that no format holds: their ratio is the weight. */
START_TEST(verify_weights_of_vanishing_scores)
{
    static const double rows[][4] = {{-3e38, -1e38, -2e38, -1e38}, {-1e9, -1e9, -1e9, -1e9},
                                     {-2e6, -2e6 - 2, -3e6, -1e38}};
    struct problem *p = problem_new(MR_SCORE_SQRT_SOFTPLUS, 4, 2, 0, 3, MR_F32, MR_F32, false);
    for (size_t t = 0; t < 3; t++)
        for (size_t e = 0; e < 4; e++) problem_set(&p->layer.logits, t, e, rows[t][e]);
    struct answers a;
    routed(&p->layer, NULL, &a);
    static const int ids[] = {1, 3, 0, 1, 0, 1};
    for (int i = 0; i < 6; i++) ck_assert_int_eq(a.ids[i], ids[i]);
    for (int i = 0; i < 4; i++) ck_assert(a.weights[i] >= 0.5 && a.weights[i] <= 0.5);
    ck_assert(fabs(a.weights[4] - 1 / (1 + exp(-1))) < 1e-15);
    answers_free(&a);
    problem_free(p);
}
END_TEST

/* A larger logit against a bias that makes up for it to binary64, then to twice that. */
START_TEST(corroborate_bias_makes_up_for_the_logit)
{
    uint64_t state = 4;
    for (int i = 0; i < 60; i++) {
        struct problem *p = problem_new(MR_SCORE_SQRT_SOFTPLUS, 4, 1, 0, 1, MR_F32, MR_F32, true);
        for (size_t e = 0; e < 4; e++)
            problem_set(&p->layer.logits, 0, e,
                        e < 2 ? 3 * routed_normal(&state) : -40.0 - (double)e);
        struct brute_group_truth b;
        brute_groups_route(&p->layer, 0, NULL, &b);
        mpfr_sub(b.key[0], b.key[0], b.key[1], MPFR_RNDN);
        p->bias[1] = mpfr_get_d(b.key[0], MPFR_RNDN);
        brute_groups_free(&b);
        p->name = "bias makes up";
        expect(p);
    }
    ck_assert_int_gt(brute_groups_seen[MR_CERT_MPFR], 30);
}
END_TEST

Suite *suite_sqrt_softplus(void);
Suite *suite_sqrt_softplus(void)
{
    Suite *s = suite_create("sqrt_softplus");
    TCase *c = tcase_create("sqrt-softplus");
    tcase_set_timeout(c, getenv("MOEREF_LONG") ? 1800 : 60);
    tcase_add_test(c, corroborate_double_and_double_double);
    tcase_add_test(c, verify_tails);
    tcase_add_test(c, verify_slope);
    tcase_add_test(c, validate_worst_cases);
    tcase_add_test(c, corroborate_twin);
    tcase_add_test(c, verify_undecided_at_the_cap);
    tcase_add_test(c, corroborate_random_layers);
    tcase_add_test(c, corroborate_named_rows);
    tcase_add_test(c, verify_weights_of_vanishing_scores);
    tcase_add_test(c, corroborate_bias_makes_up_for_the_logit);
    suite_add_tcase(s, c);
    return s;
}
