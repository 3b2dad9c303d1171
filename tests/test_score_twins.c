/* The MPFR twins of the scores: against stored worst cases (ref/route/NAME.wc, values by mpmath),
 * and against the textbook formula at 2000 bits more than asked for. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/exact/exp_dd.h"
#include "../ref/route/score.h"
#include "support/mpfr_oracle.h"

enum { MOST = 64 };

static mpfr_t logits[MOST], got, want;

static void setup(void)
{
    for (int e = 0; e < MOST; e++) mpfr_init2(logits[e], 200);
    mpfr_inits2(53, got, want, (mpfr_ptr)0);
}

static void teardown(void)
{
    for (int e = 0; e < MOST; e++) mpfr_clear(logits[e]);
    mpfr_clears(got, want, (mpfr_ptr)0);
}

static void same(const char *where, int line)
{
    if (!mpfr_equal_p(got, want)) {
        char text[2][80];
        mpfr_snprintf(text[0], sizeof text[0], "%.40Ra", got);
        mpfr_snprintf(text[1], sizeof text[1], "%.40Ra", want);
        ck_abort_msg("%s:%d: %s, expected %s", where, line, text[0], text[1]);
    }
}

/* Reads the next number of a line, exactly: stored values have few bits. */
static bool next(const char **at, mpfr_t out)
{
    char *end;
    mpfr_set_prec(out, 200);
    int inexact = mpfr_strtofr(out, *at, &end, 0, MPFR_RNDN);
    if (end == *at) return false;
    ck_assert_msg(inexact == 0, "more than 200 bits: %s", *at);
    *at = end;
    return true;
}

/* A line without its comment; false at the end of the file. Blank lines come as empty. */
static bool next_line(FILE *f, char *line, size_t size)
{
    if (!fgets(line, (int)size, f)) return false;
    line[strcspn(line, "#\n")] = 0;
    return true;
}

static FILE *open_cases(const char *path)
{
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s: cannot be opened; the tests run in the root of the repository",
                  path);
    return f;
}

/* (hi + lo) 2^scale is within rel of the exact value of want's case, and so rounds to want, or lies
 * within rel of the other side. */
static void double_double_is_near(struct mr_scaled s, int line)
{
    mpfr_t d;
    mpfr_init2(d, 300);
    mpfr_set_d(d, s.m.hi, MPFR_RNDN);
    mpfr_add_d(d, d, s.m.lo, MPFR_RNDN);
    mpfr_mul_2si(d, d, s.scale, MPFR_RNDN);
    mpfr_div(d, d, want, MPFR_RNDN);
    mpfr_sub_ui(d, d, 1, MPFR_RNDN);
    double half = ldexp(1, -(int)mpfr_get_prec(want));
    ck_assert_msg(fabs(mpfr_get_d(d, MPFR_RNDA)) <= half * (1 + half) + MR_SIGMOID_DD_REL,
                  "sigmoid.wc:%d: double-double is off by %a", line, mpfr_get_d(d, MPFR_RNDN));
    mpfr_clear(d);
}

START_TEST(validate_sigmoid_cases)
{
    char text[4096];
    int cases = 0, line = 0;
    FILE *f = open_cases("ref/route/sigmoid.wc");
    for (; next_line(f, text, sizeof text); cases++) {
        line++;
        const char *at = text;
        if (!next(&at, got)) {
            cases--;
            continue;
        }
        long p = mpfr_get_si(got, MPFR_RNDN);
        ck_assert_msg(next(&at, logits[0]) && next(&at, want), "sigmoid.wc:%d: too few numbers",
                      line);
        mpfr_prec_round(want, p, MPFR_RNDN);
        mpfr_set_prec(got, p);
        mr_sigmoid_mpfr(got, logits[0]);
        same("ref/route/sigmoid.wc", line);
        oracle_sigmoid(got, logits[0]);
        same("ref/route/sigmoid.wc, oracle", line);
        double x = mpfr_get_d(logits[0], MPFR_RNDN);
        if (fabs(x) < MR_EXP_DD_MAX)
            double_double_is_near(mr_sigmoid_dd((struct mr_dd){x, 0}), line);
    }
    fclose(f);
    ck_assert_int_ge(cases, 100);
}
END_TEST

START_TEST(validate_softmax_cases)
{
    char text[4096];
    int cases = 0, line = 0;
    FILE *f = open_cases("ref/route/softmax.wc");
    for (; next_line(f, text, sizeof text); cases++) {
        line++;
        const char *at = text;
        if (!next(&at, got)) {
            cases--;
            continue;
        }
        long p = mpfr_get_si(got, MPFR_RNDN);
        ck_assert_msg(next(&at, got), "softmax.wc:%d: no index", line);
        int which = (int)mpfr_get_si(got, MPFR_RNDN), count = 0;
        ck_assert_msg(next(&at, want), "softmax.wc:%d: no value", line);
        while (count < MOST && next(&at, logits[count])) count++;
        ck_assert_msg(which < count, "softmax.wc:%d: index %d of %d", line, which, count);
        mpfr_prec_round(want, p, MPFR_RNDN);
        mpfr_set_prec(got, p);
        mr_softmax_mpfr(got, logits, count, which);
        same("ref/route/softmax.wc", line);
        oracle_softmax(got, logits, count, which);
        same("ref/route/softmax.wc, oracle", line);
    }
    fclose(f);
    ck_assert_int_ge(cases, 60);
}
END_TEST

/* From 2 bits to 2000; logits of a few bits, of binary64, of many bits. */
static const long precisions[] = {2, 8, 11, 24, 53, 64, 113, 400, 2000};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };

static void draw(uint64_t *seed, mpfr_t out, double span)
{
    double l = oracle_uniform(seed, -span, span);
    int kind = (int)(oracle_random(seed) % 6);
    mpfr_set_prec(out, 200);
    mpfr_set_d(out, kind == 0 ? (float)l : l, MPFR_RNDN);
    if (kind == 1) mpfr_div_2ui(out, out, oracle_random(seed) % 160, MPFR_RNDN);
    if (kind == 2) mpfr_add_d(out, out, ldexp(l, -(int)(oracle_random(seed) % 120)), MPFR_RNDN);
    if (kind == 3) mpfr_set_d(out, nearbyint(l), MPFR_RNDN);
}

START_TEST(corroborate_sigmoid)
{
    uint64_t seed = 1 + (uint64_t)_i;
    long p = precisions[_i];
    mpfr_set_prec(got, p);
    mpfr_set_prec(want, p);
    for (int i = 0; i < (getenv("MOEREF_LONG") ? 20000 : 300); i++) {
        draw(&seed, logits[0], i % 3 == 0 ? 2 : i % 3 == 1 ? 50 : 1500);
        mr_sigmoid_mpfr(got, logits[0]);
        oracle_sigmoid(want, logits[0]);
        same("sigmoid", i);
    }
    /* Beyond what e^-|x| can be: 0 and 1, and 1/2 exactly, without delay. */
    static const double ends[][2] = {{0, 0.5}, {-0.0, 0.5}, {1e30, 1}, {-1e30, 0}, {0x1p1023, 1}};
    for (int i = 0; i < 5; i++) {
        mpfr_set_d(logits[0], ends[i][0], MPFR_RNDN);
        mr_sigmoid_mpfr(got, logits[0]);
        ck_assert_msg(mpfr_cmp_d(got, ends[i][1]) == 0, "sigmoid of %g", ends[i][0]);
    }
}
END_TEST

START_TEST(corroborate_softmax)
{
    uint64_t seed = 100 + (uint64_t)_i;
    long p = precisions[_i];
    mpfr_set_prec(got, p);
    mpfr_set_prec(want, p);
    for (int i = 0; i < (getenv("MOEREF_LONG") ? 2000 : 20); i++) {
        int count = i % 5 == 0 ? MOST : 1 + (int)(oracle_random(&seed) % 9);
        double span = i % 4 == 0 ? 1 : i % 4 == 1 ? 20 : i % 4 == 2 ? 1000 : 1e5;
        for (int e = 0; e < count; e++) draw(&seed, logits[e], span);
        if (i % 7 == 0) mpfr_set(logits[count - 1], logits[0], MPFR_RNDN);
        int which = (int)(oracle_random(&seed) % (uint64_t)count);
        mr_softmax_mpfr(got, logits, count, which);
        oracle_softmax(want, logits, count, which);
        same("softmax", i);
    }
}
END_TEST

/* out = the logit whose sigmoid is a midpoint of `got`'s precision, off by about 2^-depth. */
static void beside_midpoint(uint64_t *seed, long depth, mpfr_rnd_t to, mpfr_t out)
{
    mpfr_t m, t;
    mpfr_inits2(depth + 200, m, t, (mpfr_ptr)0);
    mpfr_set_d(m, oracle_uniform(seed, 0.01, 0.6), MPFR_RNDN);
    mpfr_prec_round(m, mpfr_get_prec(got), MPFR_RNDN);
    mpfr_prec_round(m, depth + 200, MPFR_RNDN);
    mpfr_set_ui_2exp(t, 1, mpfr_get_exp(m) - mpfr_get_prec(got) - 1, MPFR_RNDN);
    mpfr_add(m, m, t, MPFR_RNDN);
    mpfr_ui_sub(t, 1, m, MPFR_RNDN);
    mpfr_div(m, m, t, MPFR_RNDN);
    mpfr_log(m, m, MPFR_RNDN);
    mpfr_set_prec(out, depth);
    mpfr_set(out, m, to);
    mpfr_clears(m, t, (mpfr_ptr)0);
}

/* Logits made so that every depth of doubt occurs: below, at and beyond each working precision. The
 * softmax ones are moved by 1000, and two more logits far below take part. */
START_TEST(corroborate_beside_midpoints)
{
    static const long few[] = {2, 8, 24, 53};
    uint64_t seed = 200;
    for (int i = 0; i < 4; i++)
        for (long depth = few[i] + 2; depth < 220; depth += getenv("MOEREF_LONG") ? 1 : 3)
            for (int up = 0; up < 2; up++) {
                mpfr_set_prec(got, few[i]);
                mpfr_set_prec(want, few[i]);
                beside_midpoint(&seed, depth, up ? MPFR_RNDU : MPFR_RNDD, logits[0]);
                mr_sigmoid_mpfr(got, logits[0]);
                oracle_sigmoid(want, logits[0]);
                same("sigmoid, depth", (int)depth);
                mpfr_prec_round(logits[0], 400, MPFR_RNDN);
                mpfr_add_ui(logits[0], logits[0], 1000, MPFR_RNDN);
                mpfr_set_ui(logits[1], 1000, MPFR_RNDN);
                mpfr_set_si(logits[2], depth % 2 ? 1000 - (int)depth : 850, MPFR_RNDN);
                mpfr_set_si(logits[3], -1000, MPFR_RNDN);
                mr_softmax_mpfr(got, logits, 4, 0);
                oracle_softmax(want, logits, 4, 0);
                same("softmax, depth", (int)depth);
            }
}
END_TEST

Suite *suite_score_twins(void);
Suite *suite_score_twins(void)
{
    Suite *suite = suite_create("score_twins");
    TCase *tc = tcase_create("twins");
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, validate_sigmoid_cases);
    tcase_add_test(tc, validate_softmax_cases);
    tcase_add_loop_test(tc, corroborate_sigmoid, 0, PRECISIONS);
    tcase_add_loop_test(tc, corroborate_softmax, 0, PRECISIONS);
    tcase_add_test(tc, corroborate_beside_midpoints);
    suite_add_tcase(suite, tc);
    return suite;
}
