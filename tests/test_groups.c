/* Group-limited selection against brute force over all experts and groups, by named classes. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/route/groups.h"
#include "support/brute_groups.h"

static const enum mr_score scores[] = {MR_SCORE_SIGMOID, MR_SCORE_SOFTMAX, MR_SCORE_SQRT_SOFTPLUS};

static struct problem *grouped(enum mr_score score, int experts, int n_group, int topk_group,
                               int top_k, int hidden, size_t tokens, bool bias, const char *name)
{
    struct problem *p = problem_new(score, experts, top_k, hidden, tokens,
                                    hidden ? MR_BF16 : MR_F32, MR_BF16, bias);
    p->router.n_group = n_group;
    p->router.topk_group = topk_group;
    p->name = name;
    return p;
}

static void logits(struct problem *p, size_t token, int first, const double *v, int count)
{
    for (int i = 0; i < count; i++)
        problem_set(&p->layer.logits, token, (size_t)(first + i), v[i]);
}

static void normal(struct problem *p, uint64_t *state)
{
    problem_fill(&p->layer.hidden, 1, state);
    problem_fill(&p->layer.gate, 2 / sqrt((double)p->router.hidden), state);
    if (p->bias) problem_fill_bias(p, 0.1, state);
}

static void done(struct problem *p)
{
    expect_groups(p, false);
    problem_free(p);
}

START_TEST(corroborate_random)
{
    uint64_t state = 1;
    static const int shapes[][4] = {{24, 4, 2, 5}, {32, 8, 3, 6}, {12, 6, 5, 4}, {20, 2, 1, 10},
                                    {18, 9, 1, 1}, {16, 16, 5, 5}};
    for (int s = 0; s < 6; s++)
        for (int c = 0; c < 12; c++) {
            const int *n = shapes[s];
            struct problem *p = grouped(scores[c % 3], n[0], n[1], n[2], n[3], 40, 3, c / 3 % 2,
                                        "random");
            p->router.group_score = c / 6 || n[0] == n[1] ? MR_GROUP_MAX : MR_GROUP_TOP2_SUM;
            p->router.norm_topk_prob = (s + c) % 2;
            p->router.routed_scaling_factor = 2.5;
            normal(p, &state);
            done(p);
        }
}
END_TEST

/* 256 experts, 8 groups of which 4 stay, 8 experts (DeepSeek-V3). */
START_TEST(corroborate_deepseek_v3_shape)
{
    uint64_t state = 2;
    bool slow = getenv("MOEREF_LONG") != NULL;
    struct problem *p = grouped(MR_SCORE_SIGMOID, 256, 8, 4, 8, 512, slow ? 400 : 12, true,
                                "256 experts, 8/4 groups");
    p->router.routed_scaling_factor = 2.5;
    normal(p, &state);
    for (int e = 0; e < 256; e++) p->bias[e] += 8; /* as real checkpoints have it */
    done(p);
}
END_TEST

/* DeepSeek-V2: softmax, the largest key of a group, weights that are not normalised. */
START_TEST(corroborate_deepseek_v2_shape)
{
    uint64_t state = 3;
    struct problem *p = grouped(MR_SCORE_SOFTMAX, 160, 8, 3, 6, 256, 8, false, "160 experts, 8/3");
    p->router.group_score = MR_GROUP_MAX;
    p->router.norm_topk_prob = false;
    p->router.routed_scaling_factor = 16;
    normal(p, &state);
    done(p);
}
END_TEST

/* Groups are copies of each other, whole or in their two largest, in another order. */
START_TEST(corroborate_ties_across_groups)
{
    static const double rows[][16] = {
        {3, 1, 0, -2, 1, -2, 3, 0, 0, 3, 1, -2, -9, -9, -9, -9}, /* three of four equal */
        {3, 1, 0, -2, 3, 1, -5, -6, 2, 0, 0, 0, 2, 0, -1, -1},   /* two pairs of equal sums */
        {5, 1, 0, -2, 2, 2, 2, 2, 1, 5, 4, -4, 7, -7, 0, 0},
        {-0.0, 0, 0, -0.0, 0, -0.0, 0, 0, 0, 0, 0, 0, 0, 0, -0.0, 0}, /* all equal, -0 */
        {-800, -800, -900, -900, -800, -900, -800, -900, -700, -950, -950, -950, -850, -850, -850,
         -850},
    };
    for (int s = 0; s < 3; s++)
        for (int keep = 1; keep < 4; keep++)
            for (int max = 0; max < 2; max++)
                for (int bias = 0; bias < 2; bias++) {
                    struct problem *p = grouped(scores[s], 16, 4, keep, 3, 0, 5, bias,
                                                "ties across groups");
                    p->router.group_score = max ? MR_GROUP_MAX : MR_GROUP_TOP2_SUM;
                    for (size_t t = 0; t < 5; t++) logits(p, t, 0, rows[t], 16);
                    for (int e = 0; e < 16 && bias; e++) p->bias[e] = -0.375;
                    done(p);
                }
}
END_TEST

/* Sums that are equal though neither keys nor logits are: biases that move between the two
 * largest. */
START_TEST(corroborate_sums_equal_by_bias)
{
    for (int s = 0; s < 3; s++) {
        struct problem *p = grouped(scores[s], 8, 2, 1, 2, 0, 2, true, "sums equal by bias");
        static const double rows[][8] = {{2, 1, -5, -6, 1, 2, -6, -6},
                                         {0.5, 0.25, -9, -9, 0.5, 0.25, -9, -8}};
        static const double bias[8] = {0.125, 0.5, 0, 0, 0.25, 0.375, 0, 0};
        for (size_t t = 0; t < 2; t++) logits(p, t, 0, rows[t], 8);
        memcpy(p->bias, bias, sizeof bias);
        done(p);
    }
}
END_TEST

/* The two largest of a group are equal (an implementation that looks for "below the largest" loses
 * one), and ties of the second with the third. */
START_TEST(corroborate_equal_top2)
{
    static const double rows[][16] = {
        {0.9, 0.9, 0.1, 0.1, 0.8, 0.7, 0, 0, 0.85, 0.7, 0, 0, 0.6, 0.6, 0.6, 0.6},
        {1, 1, 1, 1, 2, 0, 0, 0, 0, 2, 0, 0, 1, 1, 0.5, 1},
        {4, 0, 0, 0, 3, 3, 0, 0, 3, 3, 3, 3, 5, -5, -5, -5},
    };
    for (int s = 0; s < 3; s++)
        for (int keep = 1; keep < 4; keep++) {
            struct problem *p = grouped(scores[s], 16, 4, keep, 4, 0, 3, false, "equal top-2");
            for (size_t t = 0; t < 3; t++) logits(p, t, 0, rows[t], 16);
            done(p);
        }
}
END_TEST

/* Ties at the expert cut, inside one group and across groups that stay. */
START_TEST(corroborate_ties_inside_groups)
{
    static const double rows[][12] = {
        {3, 2, 2, 2, 1, 2, -1, 0, -7, -7, -7, -7},
        {2, 2, 2, 2, 2, 2, 2, 2, -7, -7, -7, -7},
        {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2},
    };
    for (int s = 0; s < 3; s++)
        for (int k = 1; k <= 8; k++) {
            struct problem *p = grouped(scores[s], 12, 3, 2, k, 0, 3, true, "ties inside groups");
            for (size_t t = 0; t < 3; t++) logits(p, t, 0, rows[t], 12);
            for (int e = 0; e < 12; e++) p->bias[e] = 2;
            done(p);
        }
}
END_TEST

/* sigma(x) + sigma(-x) = 1 = 2 sigma(0), and sums a hair from that. */
START_TEST(corroborate_sigmoid_reflection)
{
    static const struct {
        double logit[8], bias[8];
    } rows[] = {
        {{3, -3, -50, -60, 1.5, -1.5, -40, -30}, {0}},
        {{0, 0, -50, -60, 7, -7, -40, -30}, {0}},
        {{5, -5, -50, -60, 0.25, -0.25, -40, -30}, {1, 2, 0, 0, 3, 0, 0, 0}},
        {{5, -5, -50, -60, 5, -5, -40, -30}, {2, 2, 0, 0, 3, 1, 0, 0}},
        /* sigma(0) + bias: 1/2 + 1/2 = sigma(x) + sigma(-x) with biases that do not match */
        {{0, 2, -90, -90, 2, -2, -90, -90}, {0.5, -0.25, 0, 0, -0.25, 0, 0, 0}},
        {{0, 2, -90, -90, 2, 0, -90, -90}, {0.5, 0.25, 0, 0, 0.5, 0.25, 0, 0}},
        /* a bias difference of one against sigma(x) + sigma(-x) */
        {{4, -4, -90, -90, 90, 80, -90, -90}, {1, 0, 0, 0, 0, 0, 0, 0}},
        /* not equal: the reflection is off by one ulp */
        {{3, -0x1.7fffffp1, -50, -60, 1.5, -1.5, -40, -30}, {0}},
        {{0x1p-100, -0x1p-100, -9, -9, 0x1p-149, 0x1p-149, -9, -9}, {0}},
        {{0x1p-100, -0x1p-100, -9, -9, 0x1p-149, -0x1p-149, -9, -9}, {0}},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    for (int i = 0; i < ROWS; i++) {
        struct problem *p = grouped(MR_SCORE_SIGMOID, 8, 2, 1, 2, 0, 1, true, "reflected sigmoids");
        logits(p, 0, 0, rows[i].logit, 8);
        memcpy(p->bias, rows[i].bias, sizeof rows[i].bias);
        done(p);
    }
}
END_TEST

/* Sums that differ by less than binary64, and less than double-double, shows. */
START_TEST(corroborate_sums_close_together)
{
    uint64_t state = 5;
    for (int s = 0; s < 3; s++)
        for (int i = 0; i < 40; i++) {
            struct problem *p = grouped(scores[s], 8, 2, 1, 3, 0, 1, true, "sums close together");
            double v[8];
            for (int e = 0; e < 8; e++) v[e] = (float)(e % 4 < 2 ? routed_normal(&state) : -40 - e);
            logits(p, 0, 0, v, 8);
            struct brute_group_truth b;
            brute_groups_route(&p->layer, 0, NULL, &b);
            /* Makes up for most of the difference; what is left is a bias' rounding. */
            mpfr_t d;
            mpfr_init2(d, 4000);
            mpfr_sub(d, b.group[0], b.group[1], MPFR_RNDN);
            p->bias[4] = mpfr_get_d(d, MPFR_RNDN);
            if (i % 2) {
                mpfr_sub_d(d, d, p->bias[4], MPFR_RNDN);
                p->bias[5] = mpfr_get_d(d, MPFR_RNDN);
            }
            mpfr_clear(d);
            brute_groups_free(&b);
            done(p);
        }
    ck_assert_int_gt(brute_groups_seen[MR_CERT_MPFR], 20);
}
END_TEST

/* Keys of -1 everywhere: a kernel that masks excluded groups with 0 picks from them. */
START_TEST(corroborate_negative_biases)
{
    uint64_t state = 6;
    for (int s = 0; s < 3; s++)
        for (int k = 1; k <= 8; k += 7) {
            struct problem *p = grouped(scores[s], 32, 8, 2, k, 64, 4, true, "negative biases");
            normal(p, &state);
            for (int e = 0; e < 32; e++) p->bias[e] -= 5; /* k = 8: all of both groups */
            done(p);
        }
}
END_TEST

/* Tails in which scores underflow or saturate, and logits that only their order tells apart. */
START_TEST(corroborate_tails)
{
    static const double rows[][8] = {
        {-200, -104, -88, -30, -200, -104, -89, -30},
        {17, 18, 16.7, 16.6, 19, 20, 17, 16.7},
        {88.8, 200, 90, 700, 701, 800, 300, 1000},
        {-700, -800, -745, -1000, -690, -2000, -1300, -1500},
        {0x1p-149, -0x1p-149, 0, -0.0, 0x1p-148, 0, 0, 0},
    };
    for (int s = 0; s < 3; s++)
        for (int bias = 0; bias < 2; bias++)
            for (int k = 1; k <= 4; k += 3) {
                struct problem *p = grouped(scores[s], 8, 2, 1, k, 0, 5, bias, "tails");
                for (size_t t = 0; t < 5; t++) logits(p, t, 0, rows[t], 8);
                for (int e = 0; e < 8 && bias; e++) p->bias[e] = 0.5 * (e % 2);
                done(p);
            }
}
END_TEST

/* The same bytes as without groups when no group is excluded. */
START_TEST(verify_groups_that_all_stay)
{
    uint64_t state = 7;
    struct answers a, b;
    struct problem *p = grouped(MR_SCORE_SIGMOID, 24, 4, 4, 6, 64, 40, true, "all stay");
    normal(p, &state);
    routed(&p->layer, NULL, &a);
    p->router.n_group = p->router.topk_group = 1;
    routed(&p->layer, NULL, &b);
    expect_same(&a, 0, &b, 0, 40, true, "all stay");
    answers_free(&a);
    answers_free(&b);
    problem_free(p);
}
END_TEST

/* Emulated groups: binary32 sums with one rounding, lowest id among equals, excluded never
 * chosen. */
START_TEST(verify_emulated_groups)
{
    struct mr_router r = {.experts = 8, .top_k = 2, .n_group = 4, .topk_group = 2,
                          .group_score = MR_GROUP_TOP2_SUM};
    float score[4];
    uint8_t stays[4];
    static const struct {
        float key[8];
        uint8_t sum[4], max[4];
    } rows[] = {
        {{1, 1, 2, -1, 1.5f, 0.25f, 0, 0}, {1, 0, 1, 0}, {0, 1, 1, 0}},
        {{1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 0, 0}, {1, 1, 0, 0}},
        {{-1, -1, -2, -2, -1, -1, -3, -1}, {1, 0, 1, 0}, {1, 0, 1, 0}},
        /* 2^24 + 1 rounds to even: equal to 2^24, the lower id stays */
        {{0x1p24f, 0, 0x1p24f, 1, 0, 0, 0x1p24f, 2}, {1, 0, 0, 1}, {1, 1, 0, 0}},
        {{-0.0f, -0.0f, 0, 0, -1, -1, -1, -1}, {1, 1, 0, 0}, {1, 1, 0, 0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        r.group_score = MR_GROUP_TOP2_SUM;
        mr_emulated_groups(&r, rows[i].key, score, stays);
        ck_assert_msg(!memcmp(stays, rows[i].sum, 4), "row %zu, sums", i);
        r.group_score = MR_GROUP_MAX;
        mr_emulated_groups(&r, rows[i].key, score, stays);
        ck_assert_msg(!memcmp(stays, rows[i].max, 4), "row %zu, largest", i);
    }
}
END_TEST

/* Two groups that tie exactly, sigma(x) + sigma(-x) against sigma(y) + sigma(-y): scores rounded to
 * bf16 break the tie either way, and neither choice is a flip. */
START_TEST(verify_flips_with_tied_groups)
{
    enum { TOKENS = 64 };
    uint64_t state = 8;
    struct mr_arith bf16 = {.scores = MR_TYPE_BF16};
    struct problem *p = grouped(MR_SCORE_SIGMOID, 8, 2, 1, 2, 0, TOKENS, true, "flips");
    for (size_t t = 0; t < TOKENS; t++) {
        double x = (float)(3 * routed_uniform(&state)), y = (float)(3 * routed_uniform(&state));
        const double row[] = {x, -x, -30, -40, y, -y, -30, -40};
        logits(p, t, 0, row, 8);
    }
    struct answers a;
    struct mr_route_options o = {.threads = 1, .arith = &bf16, .arith_count = 1};
    int other = 0;
    routed(&p->layer, &o, &a);
    for (size_t t = 0; t < TOKENS; t++) {
        ck_assert_int_eq(a.certificate[t], MR_CERT_TIE);
        ck_assert_int_lt(a.ids[2 * t], 4);
        other += a.chosen[2 * t] >= 4;
    }
    ck_assert_msg(other > 0 && other < TOKENS, "%d of the higher group", other);
    ck_assert_uint_eq(a.flips[0].tokens, TOKENS);
    ck_assert_uint_eq(a.flips[0].flips, 0);
    answers_free(&a);
    problem_free(p);
}
END_TEST

/* bf16 logits make groups 0 and 1 equal though 1 is right: the flip has all of its weight moved. */
START_TEST(verify_flip_of_a_group)
{
    struct mr_arith bf16 = {.logits = MR_TYPE_BF16};
    struct problem *p = grouped(MR_SCORE_SIGMOID, 4, 2, 1, 2, 0, 1, false, "flip of a group");
    const double row[] = {1, 0.5, 1.001, 0.5};
    logits(p, 0, 0, row, 4);
    struct answers a;
    routed(&p->layer, &(struct mr_route_options){.threads = 1, .arith = &bf16, .arith_count = 1},
           &a);
    ck_assert_int_eq(a.ids[0], 2);
    ck_assert_int_eq(a.chosen[0], 0);
    ck_assert_uint_eq(a.flips[0].flips, 1);
    ck_assert(fabs(a.flips[0].weight_moved - 1) < 1e-15);
    answers_free(&a);
    problem_free(p);
}
END_TEST

START_TEST(reject_one_expert_a_group)
{
    struct problem *p = grouped(MR_SCORE_SIGMOID, 8, 8, 4, 2, 0, 1, true, "one expert a group");
    struct answers a;
    struct mr_error err = {{0}};
    ck_assert_int_eq(routed_try(&p->layer, NULL, &a, &err), MR_ERR_VALUE);
    ck_assert_msg(strstr(err.text, "one expert a group") != NULL, "%s", err.text);
    answers_free(&a);
    p->router.n_group = 2;
    p->router.topk_group = 1;
    p->router.top_k = 5;
    ck_assert_int_eq(routed_try(&p->layer, NULL, &a, &err), MR_ERR_VALUE);
    ck_assert_msg(strstr(err.text, "hold only 4 experts") != NULL, "%s", err.text);
    answers_free(&a);
    problem_free(p);
}
END_TEST

Suite *suite_groups(void);
Suite *suite_groups(void)
{
    Suite *s = suite_create("groups");
    TCase *c = tcase_create("against brute force");
    tcase_set_timeout(c, getenv("MOEREF_LONG") ? 1800 : 60);
    tcase_add_test(c, corroborate_random);
    tcase_add_test(c, corroborate_deepseek_v3_shape);
    tcase_add_test(c, corroborate_deepseek_v2_shape);
    tcase_add_test(c, corroborate_ties_across_groups);
    tcase_add_test(c, corroborate_sums_equal_by_bias);
    tcase_add_test(c, corroborate_equal_top2);
    tcase_add_test(c, corroborate_ties_inside_groups);
    tcase_add_test(c, corroborate_sigmoid_reflection);
    tcase_add_test(c, corroborate_sums_close_together);
    tcase_add_test(c, corroborate_negative_biases);
    tcase_add_test(c, corroborate_tails);
    tcase_add_test(c, verify_groups_that_all_stay);
    tcase_add_test(c, verify_emulated_groups);
    tcase_add_test(c, verify_flips_with_tied_groups);
    tcase_add_test(c, verify_flip_of_a_group);
    tcase_add_test(c, reject_one_expert_a_group);
    suite_add_tcase(s, c);
    return s;
}
