/* Certified comparison of rank keys against MPFR at thousands of bits: never a wrong order, the gap
 * within its radius, ties exactly where theory puts them. Scores are handed over as far off as
 * their promised error allows. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "../ref/exact/compare.h"
#include "../ref/exact/exp_dd.h"
#include "support/mpfr_oracle.h"

enum { MOST = 8, BITS = 2500, ROOM = 2200 };

/* One token: exact logits, biases, and keys made of them. */
static struct world {
    enum mr_score score;
    int n;
    mpfr_t logit[MOST];
    double bias[MOST], common;
    struct mr_key key[MOST];
    struct mr_logit_source source;
    int levels[5];
} w;

static enum mr_status value_of(void *context, int expert, mpfr_t out)
{
    ck_assert_ptr_eq(context, &w);
    mpfr_set_prec(out, mpfr_get_prec(w.logit[expert]));
    mpfr_set(out, w.logit[expert], MPFR_RNDN);
    return MR_OK;
}

static void setup(void)
{
    for (int e = 0; e < MOST; e++) mpfr_init2(w.logit[e], ROOM);
    w.source = (struct mr_logit_source){&w, 0, value_of};
}

static void teardown(void)
{
    for (int e = 0; e < MOST; e++) mpfr_clear(w.logit[e]);
}

static void world(enum mr_score score, int n)
{
    w.score = score;
    w.n = w.source.experts = n;
    w.common = score == MR_SCORE_SOFTMAX ? 0x1p-45 : 0;
}

/* Score of expert e to 400 bits; it may underflow to 0. */
static void true_score(int e, mpfr_t s)
{
    if (w.score == MR_SCORE_SIGMOID) {
        oracle_sigmoid(s, w.logit[e]);
        return;
    }
    mpfr_t t, z;
    mpfr_init2(t, ROOM + 2200);
    mpfr_init2(z, 400);
    mpfr_set_zero(z, 1);
    for (int i = 0; i < w.n; i++) {
        mpfr_sub(t, w.logit[i], w.logit[e], MPFR_RNDN);
        mpfr_exp(s, t, MPFR_RNDN);
        mpfr_add(z, z, s, MPFR_RNDN);
    }
    mpfr_ui_div(s, 1, z, MPFR_RNDN);
    mpfr_clears(t, z, (mpfr_ptr)0);
}

/* Keys whose scores are off by their whole rel, in directions that `wrong` says; all by common. */
static void make_keys(uint64_t wrong)
{
    mpfr_t s, rest;
    mpfr_inits2(400, s, rest, (mpfr_ptr)0);
    double all = w.common * 0.99 * ((int)(wrong >> 50 & 1) * 2 - 1);
    for (int e = 0; e < w.n; e++) {
        struct mr_key *k = &w.key[e];
        double rel = w.score == MR_SCORE_SIGMOID ? MR_SIGMOID_DD_REL : MR_EXP_DD_REL;
        double off = 0.99 * rel * ((int)(wrong >> 2 * e & 3) % 3 - 1);
        true_score(e, s);
        mpfr_mul_d(rest, s, off, MPFR_RNDN);
        mpfr_add(s, s, rest, MPFR_RNDN);
        mpfr_mul_d(rest, s, all, MPFR_RNDN);
        mpfr_add(s, s, rest, MPFR_RNDN);
        struct mr_exact v = mr_exact_from_mpfr(s);
        *k = (struct mr_key){e, mr_exact_from_mpfr(w.logit[e]), w.bias[e], {v.hi, v.lo}, rel};
        if (k->score.hi < 0x1p-1000) k->score = (struct mr_dd){0, 0};
    }
    mpfr_clears(s, rest, (mpfr_ptr)0);
}

/* The sign of key a - key b, or 2 if BITS bits do not show it; difference is the difference. */
static int true_sign(int a, int b, mpfr_t difference)
{
    mpfr_t d;
    mpfr_init2(d, ROOM);
    mpfr_set_d(d, w.bias[a], MPFR_RNDN);
    mpfr_sub_d(d, d, w.bias[b], MPFR_RNDN);
    int sign = mpfr_sgn(d), far = mpfr_cmp_d(d, 1) >= 0 || mpfr_cmp_d(d, -1) <= 0;
    mpfr_clear(d);
    oracle_difference(difference, w.score, w.logit, w.n, w.bias, a, b);
    int order = mpfr_cmp(w.logit[a], w.logit[b]);
    if (sign == 0) return (order > 0) - (order < 0);
    if (far) return sign;
    if (mpfr_zero_p(difference) || mpfr_get_exp(difference) < 100 - BITS) return 2;
    return mpfr_sgn(difference) > 0 ? 1 : -1;
}

static struct mr_order compare(int a, int b)
{
    struct mr_order o;
    const struct mr_key *k = &w.key[a], *l = &w.key[b];
    ck_assert_int_eq(mr_compare_keys(w.score, k, l, w.common, &w.source, &o), MR_OK);
    return o;
}

static struct mr_order judge(int a, int b)
{
    mpfr_t d, r;
    mpfr_inits2(BITS, d, r, (mpfr_ptr)0);
    int sign = true_sign(a, b, d);
    struct mr_order o = compare(a, b), back = compare(b, a);
    const char *of = w.score == MR_SCORE_SIGMOID ? "sigmoid" : "softmax";
    const struct mr_key *k = &w.key[a], *l = &w.key[b];
#define WHERE "%s: logits %a, %a, biases %a, %a: sign %d (truth %d), level %d, gap %a, radius %a"
#define VALUES                                                                                     \
    of, k->logit.hi, l->logit.hi, k->bias, l->bias, o.sign, sign, o.level, o.gap, o.radius
    ck_assert_msg(o.sign == -back.sign && o.level == back.level, "asymmetric, " WHERE, VALUES);
    if (sign == 2)
        ck_assert_msg(o.level >= MR_LEVEL_MPFR, "guessed, " WHERE, VALUES);
    else if (o.level == MR_LEVEL_UNDECIDED)
        ck_abort_msg("undecided, " WHERE, VALUES);
    else
        ck_assert_msg(o.sign == sign, "wrong, " WHERE, VALUES);
    ck_assert_msg((o.level == MR_LEVEL_TIE) == (sign == 0), "tie, " WHERE, VALUES);
    mpfr_abs(d, d, MPFR_RNDN);
    mpfr_sub_d(r, d, o.gap, MPFR_RNDN);
    ck_assert_msg(fabs(mpfr_get_d(r, MPFR_RNDA)) <= o.radius, "gap off, " WHERE, VALUES);
    ck_assert_msg(o.radius <= 1e-12 || o.radius <= 0x1p-52 * o.gap, "radius large, " WHERE, VALUES);
    mpfr_clears(d, r, (mpfr_ptr)0);
    w.levels[o.level]++;
    return o;
}

static void judge_all(void)
{
    for (int a = 0; a < w.n; a++)
        for (int b = a + 1; b < w.n; b++) judge(a, b);
}

START_TEST(corroborate_random)
{
    uint64_t seed = 1 + (uint64_t)_i;
    for (int i = 0; i < (getenv("MOEREF_LONG") ? 2000 : 12); i++) {
        world((enum mr_score)_i, MOST);
        for (int e = 0; e < MOST; e++) {
            double l = oracle_uniform(&seed, -8, 8);
            mpfr_set_d(w.logit[e], i % 2 ? l : (float)l, MPFR_RNDN);
            if (i % 4 == 1) mpfr_add_d(w.logit[e], w.logit[e], l * 0x1p-60, MPFR_RNDN);
            if (i % 8 == 5) mpfr_add_d(w.logit[e], w.logit[e], l * 0x1p-130, MPFR_RNDN);
            w.bias[e] =
                i % 3 ? oracle_uniform(&seed, -1, 1) * (i % 5 ? 1 : 1e4) : (float)(e / 2) * 0.25;
        }
        make_keys(oracle_random(&seed));
        judge_all();
    }
}
END_TEST

/* Saturated scores: [l > 0] -+ a tail that binary64, and for 1e30 MPFR too, makes 0. */
START_TEST(verify_saturated)
{
    static const double logits[] = {0,    0x1p-149, -0x1p-1074, 0x1p-60,  50,       -50,  745,
                                    -745, 1000,     -1000,      1000.5,   1e6,      -1e6, 1e9,
                                    -1e9, 1e30,     -1e30,      0x1p1023, -0x1p1023};
    static const double biases[] = {0,      1,       -1,          0.5,         -0.5, 0x1p-1074,
                                    1e-300, 0x1p-53, 1 - 0x1p-53, 1 + 0x1p-52, 1e6};
    enum { L = sizeof logits / sizeof *logits, B = sizeof biases / sizeof *biases };
    uint64_t seed = 10;
    world((enum mr_score)_i, 4);
    for (int i = 0; i < L; i++)
        for (int j = 0; j < L; j++) {
            if (!getenv("MOEREF_LONG") && (i * L + j) % 3 && i < 13) continue;
            for (int b = 0; b < B * B; b++) {
                if (b % B > b / B || (!getenv("MOEREF_LONG") && b % 4 && b > 3 * B)) continue;
                double four[4] = {logits[i], logits[j], logits[b % L],
                                  logits[oracle_random(&seed) % L]};
                for (int e = 0; e < 4; e++) mpfr_set_d(w.logit[e], four[e], MPFR_RNDN);
                w.bias[0] = biases[b % B];
                w.bias[1] = biases[b / B];
                w.bias[2] = w.bias[3] = 0;
                if (w.score == MR_SCORE_SOFTMAX && fabs(w.bias[0] - w.bias[1]) == 0.5) continue;
                make_keys(oracle_random(&seed));
                judge(0, 1);
            }
        }
}
END_TEST

/* Bias differences that are the binary64 number nearest to a difference of scores. */
START_TEST(corroborate_near_ties)
{
    uint64_t seed = 20 + (uint64_t)_i;
    mpfr_t d;
    mpfr_init2(d, 400);
    for (int i = 0; i < (getenv("MOEREF_LONG") ? 5000 : 150); i++) {
        world((enum mr_score)(_i), 3);
        for (int e = 0; e < 3; e++) {
            double l = oracle_uniform(&seed, -30, 30) * (i % 3 ? 1 : 0.01);
            if (i % 5 == 0 && e == 1)
                l = -mpfr_get_d(w.logit[0], MPFR_RNDN); /* sigma(x) + sigma(-x) = 1 */
            if (i % 7 == 0 && e == 1) l = 0;
            mpfr_set_d(w.logit[e], i % 2 ? l : (float)l, MPFR_RNDN);
            w.bias[e] = 0;
        }
        oracle_difference(d, w.score, w.logit, 3, NULL, 0, 1);
        w.bias[1] = mpfr_get_d(d, MPFR_RNDN);
        if (i % 2) w.bias[1] = nextafter(w.bias[1], i % 4 == 1 ? 9 : -9);
        make_keys(oracle_random(&seed));
        ck_assert_int_ne(judge(0, 1).level, MR_LEVEL_UNDECIDED);
        judge(0, 2);
    }
    ck_assert_int_gt(w.levels[MR_LEVEL_MPFR], 20);
    mpfr_clear(d);
}
END_TEST

/* w.logit[1] = the logit that ties with expert 0, rounded in direction `to` to `bits` bits: so the
 * sign of key 0 - key 1 is known, and about as many bits are needed to see it. */
static void make_tie(long bits, mpfr_rnd_t to)
{
    mpfr_t a, c, d, t;
    mpfr_inits2(bits + 300, a, c, d, t, (mpfr_ptr)0);
    mpfr_set_d(d, w.bias[0], MPFR_RNDN);
    mpfr_sub_d(d, d, w.bias[1], MPFR_RNDN);
    if (w.score == MR_SCORE_SIGMOID) { /* s = sigma(l_0) + d, l_1 = log(s / (1 - s)) */
        mpfr_neg(a, w.logit[0], MPFR_RNDN);
        mpfr_exp(a, a, MPFR_RNDN);
        mpfr_add_ui(a, a, 1, MPFR_RNDN);
        mpfr_ui_div(a, 1, a, MPFR_RNDN);
        mpfr_add(a, a, d, MPFR_RNDN);
        mpfr_ui_sub(c, 1, a, MPFR_RNDN);
    } else { /* d (A + B + C) + A - B = 0: B = (A (1 + d) + d C) / (1 - d) */
        mpfr_set_zero(c, 1);
        for (int e = 2; e < w.n; e++) {
            mpfr_exp(t, w.logit[e], MPFR_RNDN);
            mpfr_add(c, c, t, MPFR_RNDN);
        }
        mpfr_exp(a, w.logit[0], MPFR_RNDN);
        mpfr_add(t, a, c, MPFR_RNDN);
        mpfr_mul(t, t, d, MPFR_RNDN);
        mpfr_add(a, a, t, MPFR_RNDN);
        mpfr_ui_sub(c, 1, d, MPFR_RNDN);
    }
    mpfr_div(a, a, c, MPFR_RNDN);
    mpfr_log(a, a, MPFR_RNDN);
    mpfr_set_prec(w.logit[1], bits);
    mpfr_set(w.logit[1], a, to);
    mpfr_clears(a, c, d, t, (mpfr_ptr)0);
}

/* Four experts, of which the first two would tie but for the rounding of a logit to so many bits.
 */
static void close_call(enum mr_score score, double logit, double bias, long bits, mpfr_rnd_t to)
{
    world(score, 4);
    mpfr_set_d(w.logit[0], logit, MPFR_RNDN);
    mpfr_set_d(w.logit[2], -0.5, MPFR_RNDN);
    mpfr_set_d(w.logit[3], 1.25, MPFR_RNDN);
    w.bias[0] = bias;
    w.bias[1] = w.bias[2] = w.bias[3] = 0;
    make_tie(bits, to);
}

START_TEST(corroborate_deep_ties)
{
    static const long depths[] = {100, 120, 128,  140,  200,   256,  270,
                                  500, 530, 1100, 4000, 30000, 60000};
    static const double starts[][2] = {{0.3, 0.01}, {-4, 0.4}, {2, -0.25}, {20, -1e-9}, {0, 0.125}};
    long depth = depths[_i / 2];
    for (int i = 0; i < (depth > 10000 ? 1 : 5); i++)
        for (int up = 0; up < 2; up++) {
            mpfr_rnd_t to = up ? MPFR_RNDU : MPFR_RNDD;
            close_call((enum mr_score)(_i % 2), starts[i][0], starts[i][1], depth, to);
            make_keys((uint64_t)(i * 37 + up));
            for (int swap = 0; swap < 2; swap++) {
                struct mr_order o = compare(swap, !swap);
                ck_assert_msg(o.level == MR_LEVEL_MPFR && o.sign == (up != swap ? -1 : 1),
                              "%ld bits, start %d, up %d: sign %d, level %d", depth, i, up, o.sign,
                              o.level);
                ck_assert_msg(o.gap <= o.radius + 0x1p-60 && o.radius < 1e-25, "%a, %a", o.gap,
                              o.radius);
            }
            if (depth < BITS - 500) judge(0, 1);
        }
}
END_TEST

/* Past the cap: undecided, and no sign. */
START_TEST(verify_cap)
{
    close_call((enum mr_score)_i, 0.3, 0.01, MR_COMPARE_CAP + 100, MPFR_RNDU);
    make_keys(0);
    struct mr_order o = compare(0, 1);
    ck_assert(o.level == MR_LEVEL_UNDECIDED && o.sign == 0);
    ck_assert(o.gap <= o.radius && o.radius < 1e-12);
}
END_TEST

/* Equal logits and biases tie, and nothing else does: not a difference of 2^-1000, not one ulp. */
START_TEST(verify_ties)
{
    static const double logits[] = {0, 0.3, -50, 1000, -1e30, 0x1p-149, 3};
    world((enum mr_score)_i, 4);
    for (size_t i = 0; i < sizeof logits / sizeof *logits; i++)
        for (int deep = 0; deep < 2; deep++) {
            for (int e = 0; e < 4; e++) {
                mpfr_set_d(w.logit[e], logits[i], MPFR_RNDN);
                w.bias[e] = 0.75;
                if (!deep) continue;
                mpfr_add_d(w.logit[e], w.logit[e], 0x1p-180, MPFR_RNDN);
                mpfr_sub_d(w.logit[e], w.logit[e], e == 2 ? 0x1p-1000 : 0x1p-990, MPFR_RNDN);
            }
            w.bias[3] = nextafter(0.75, 1);
            make_keys(0x9c);
            ck_assert_int_eq(judge(0, 1).level, MR_LEVEL_TIE);
            ck_assert(judge(0, 1).gap <= judge(0, 1).radius);
            ck_assert_int_eq(judge(0, 2).sign, -deep);
            ck_assert_int_eq(judge(3, 0).sign, 1);
            w.bias[0] = +0.0, w.bias[1] = -0.0;
            make_keys(0x36);
            ck_assert_int_eq(judge(0, 1).level, MR_LEVEL_TIE);
        }
}
END_TEST

/* d = 1/k against k equal largest logits: the sums that cancel all but the small ones. */
START_TEST(verify_softmax_multiples)
{
    for (int k = 1; k <= 4; k *= 2)
        for (int far = 0; far < 4; far++)
            for (int sign = -1; sign < 2; sign += 2) {
                static const double low[] = {-1, -300, -1000, -2000};
                world(MR_SCORE_SOFTMAX, k + 2);
                for (int e = 0; e < w.n; e++) {
                    mpfr_set_d(w.logit[e], e < k ? 3 : low[far] + e, MPFR_RNDN);
                    w.bias[e] = e < k ? -sign * 0.125 : 0;
                }
                w.bias[k] = sign * (1.0 / k - 0.125);
                make_keys(0x1234567);
                judge_all();
            }
}
END_TEST

static enum mr_status no_memory(void *context, int expert, mpfr_t out)
{
    (void)context, (void)expert, (void)out;
    return MR_ERR_MEMORY;
}

START_TEST(reject_failing_source)
{
    for (int s = 0; s < 2; s++)
        for (int deep = 0; deep < 2; deep++) {
            close_call((enum mr_score)s, 0.3, 0.01, 300, MPFR_RNDU);
            if (deep) { /* hi and lo tell nothing, and the biases are equal */
                mpfr_set(w.logit[0], w.logit[1], MPFR_RNDN);
                w.bias[0] = 0;
            }
            make_keys(0);
            struct mr_logit_source source = {NULL, 4, no_memory};
            struct mr_order o;
            ck_assert_int_eq(mr_compare_keys(w.score, &w.key[0], &w.key[1], w.common, &source, &o),
                             MR_ERR_MEMORY);
            ck_assert_int_eq(o.sign, 0);
        }
}
END_TEST

Suite *suite_compare(void);
Suite *suite_compare(void)
{
    Suite *suite = suite_create("compare");
    TCase *tc = tcase_create("keys");
    tcase_set_timeout(tc, 600);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, corroborate_random, 0, 2);
    tcase_add_loop_test(tc, verify_saturated, 0, 2);
    tcase_add_loop_test(tc, corroborate_near_ties, 0, 2);
    tcase_add_loop_test(tc, corroborate_deep_ties, 0, getenv("MOEREF_LONG") ? 26 : 22);
    tcase_add_loop_test(tc, verify_cap, 0, getenv("MOEREF_LONG") ? 2 : 1);
    tcase_add_loop_test(tc, verify_ties, 0, 2);
    tcase_add_test(tc, verify_softmax_multiples);
    tcase_add_test(tc, reject_failing_source);
    suite_add_tcase(suite, tc);
    return suite;
}
