/* Selection by logit, with scores of the selected alone, and the linear bias of a gate. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/brute_groups.h"

static const enum mr_dtype types[] = {MR_BF16, MR_F16, MR_F32};

static struct problem *by_logit(enum mr_score score, int experts, int top_k, int hidden,
                                size_t tokens, enum mr_dtype x, enum mr_dtype w, const char *name)
{
    struct problem *p = problem_new(score, experts, top_k, hidden, tokens, x, w, false);
    p->router.selection = MR_SELECT_LOGIT;
    p->name = name;
    return p;
}

static void normal(struct problem *p, double size, uint64_t *state)
{
    problem_fill(&p->layer.hidden, 1, state);
    problem_fill(&p->layer.gate, size / sqrt((double)p->router.hidden), state);
}

static void done(struct problem *p)
{
    expect_groups(p, false);
    problem_free(p);
}

/* gpt-oss: 4 of 128, softmax over them, a linear bias in the gate. */
START_TEST(corroborate_gpt_oss_shape)
{
    uint64_t state = 1;
    for (int type = 0; type < 3; type++) {
        struct problem *p = by_logit(MR_SCORE_SOFTMAX, 128, 4, 300, 6, types[type], types[type],
                                     "gpt-oss");
        double bias[128];
        for (int e = 0; e < 128; e++) bias[e] = (float)routed_normal(&state);
        normal(p, 2, &state);
        p->layer.gate_bias = bias;
        p->router.gate_bias = true;
        done(p);
    }
}
END_TEST

/* Llama 4: one of 16, its sigmoid, not normalised. */
START_TEST(corroborate_llama4_shape)
{
    uint64_t state = 2;
    struct problem *p = by_logit(MR_SCORE_SIGMOID, 16, 1, 100, 12, MR_BF16, MR_BF16, "Llama 4");
    p->router.norm_topk_prob = false;
    normal(p, 6, &state);
    done(p);
}
END_TEST

/* All scores, normalised or not: softmax over the selected is so by construction. */
START_TEST(corroborate_scores_and_normalisation)
{
    uint64_t state = 3;
    static const enum mr_score scores[] = {MR_SCORE_SIGMOID, MR_SCORE_SOFTMAX,
                                           MR_SCORE_SQRT_SOFTPLUS};
    for (int i = 0; i < 12; i++) {
        struct problem *p = by_logit(scores[i % 3], 20, 5, 64, 3, types[i % 2], types[i / 4 % 3],
                                     "normalisation");
        p->router.norm_topk_prob = i / 3 % 2;
        p->router.routed_scaling_factor = i / 6 ? 2.5 : 1;
        normal(p, 4, &state);
        done(p);
    }
}
END_TEST

/* Ties, -0, one ulp, logits that no exponential holds, all negative; weights far apart. */
START_TEST(corroborate_named_rows)
{
    static const double rows[][8] = {
        {1, 1, 1, 1, 1, 1, 1, 1},
        {0, -0.0, 0x1p-149, -0x1p-149, 0, 0, -0.0, 0},
        {2, 0x1.000002p1, 0x1.fffffep0, 2, 2, 0x1.000004p1, 1, 0},
        {3e38, -3e38, 1e38, 3e38, 2e38, -1e38, 0, 1},
        {-9, -1, -3, -2, -1, -5, -6, -7},
        {0, -600, -800, -900, -1000, -1e5, -699, -701},
        {17, 18, 16.7, 30, 88, 17, 18, 20},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    for (int s = 0; s < 2; s++)
        for (int k = 1; k <= 8; k++) {
            struct problem *p = by_logit(s ? MR_SCORE_SOFTMAX : MR_SCORE_SIGMOID, 8, k, 0, ROWS,
                                         MR_F32, MR_F32, "named rows");
            p->router.norm_topk_prob = s;
            for (size_t t = 0; t < ROWS; t++)
                for (size_t e = 0; e < 8; e++) problem_set(&p->layer.logits, t, e, rows[t][e]);
            done(p);
        }
}
END_TEST

/* Dots that differ and biases that make up for it exactly, or all but the last bit of what binary32
 * numbers can hold: ties, and sums that hi + lo do not hold. */
START_TEST(corroborate_bias_ties)
{
    uint64_t state = 4;
    for (int type = 0; type < 3; type++)
        for (int i = 0; i < 6; i++) {
            enum { E = 12, H = 50 };
            struct problem *p = by_logit(MR_SCORE_SOFTMAX, E, 3, H, 2, types[type], types[type],
                                         "bias ties");
            double bias[E];
            normal(p, 1, &state);
            for (size_t t = 0; t < 2; t++) problem_set(&p->layer.hidden, t, 0, 1);
            for (int e = 0; e < E; e++) {
                /* Row e is row 0 but for a first weight that bias e gives back. */
                for (size_t j = 0; j < H; j++)
                    problem_set(&p->layer.gate, (size_t)e, j, brute_element(&p->layer.gate, 0, j));
                problem_set(&p->layer.gate, (size_t)e, 0, ldexp(e % 5, -2));
                bias[e] = 3 - ldexp(e % 5, -2);
                if (i == 1 && e % 2) bias[e] = nextafterf((float)bias[e], 9);
                if (i == 2 && e == 5) bias[e] = FLT_TRUE_MIN;
                if (i == 3) bias[e] = (e % 4 - 2) * (double)FLT_TRUE_MIN;
                if (i == 4) bias[e] = 0x1p100 + (e % 3) * 0x1p77;
                if (i == 5) bias[e] = e % 3 ? -0.0 : 0;
            }
            p->layer.gate_bias = bias;
            done(p);
        }
}
END_TEST

/* Rows whose dot products need the integer bins. */
START_TEST(corroborate_bias_on_wide_rows)
{
    uint64_t state = 5;
    enum { E = 8, H = 40 };
    for (int i = 0; i < 4; i++) {
        struct problem *p = by_logit(MR_SCORE_SOFTMAX, E, 2, H, 2, MR_F32, MR_F32, "wide rows");
        double bias[E];
        for (size_t j = 0; j < H; j++) {
            for (size_t t = 0; t < 2; t++)
                problem_set(&p->layer.hidden, t, j,
                            ldexp(routed_normal(&state), (int)(j * 37 % 60) - 40 * i));
            for (size_t e = 0; e < E; e++)
                problem_set(&p->layer.gate, e, j,
                            ldexp(routed_normal(&state), -(int)(j * 53 % 90)));
        }
        for (int e = 0; e < E; e++) bias[e] = (float)ldexp(routed_normal(&state), -i * 30);
        p->layer.gate_bias = bias;
        done(p);
    }
}
END_TEST

/* With a correction bias too, under sigmoid: both biases have their place. */
START_TEST(corroborate_both_biases)
{
    uint64_t state = 6;
    double bias[32];
    struct problem *p = problem_new(MR_SCORE_SIGMOID, 32, 6, 80, 6, MR_BF16, MR_BF16, true);
    p->name = "both biases";
    normal(p, 2, &state);
    problem_fill_bias(p, 0.1, &state);
    for (int e = 0; e < 32; e++) bias[e] = (float)routed_normal(&state);
    p->layer.gate_bias = bias;
    done(p);
}
END_TEST

/* The filter, narrow and wide, and no filter give the same bytes; a bias of zeros none at all. */
START_TEST(verify_filters_agree)
{
    uint64_t state = 7;
    double bias[48], zeros[48] = {0};
    struct problem *p = by_logit(MR_SCORE_SOFTMAX, 48, 4, 500, 30, MR_BF16, MR_BF16, "filters");
    normal(p, 2, &state);
    for (int e = 0; e < 48; e++) bias[e] = (float)(100 * routed_normal(&state));
    for (int with = 0; with < 2; with++) {
        struct answers a, b, c;
        p->layer.gate_bias = with ? bias : NULL;
        routed(&p->layer, &(struct mr_route_options){.threads = 1}, &a);
        routed(&p->layer, &(struct mr_route_options){.threads = 2, .wide_filter = true}, &b);
        if (!with) p->layer.gate_bias = zeros;
        routed(&p->layer, &(struct mr_route_options){.threads = 1, .without_blas = true}, &c);
        ck_assert_uint_eq(a.result.blas_alarms + b.result.blas_alarms, 0);
        expect_same(&a, 0, &b, 0, 30, true, "wide");
        expect_same(&a, 0, &c, 0, 30, true, "without BLAS");
        answers_free(&a);
        answers_free(&b);
        answers_free(&c);
    }
    problem_free(p);
}
END_TEST

/* bf16 logits: 1 and 1.001 become equal, the lower id is chosen; weights are of the chosen
 * alone. */
START_TEST(verify_emulated_logits)
{
    struct mr_arith arith[] = {{0}, {.logits = MR_TYPE_BF16}};
    static const double row[] = {1, 1.001, 3, -5};
    for (int s = 0; s < 2; s++) {
        struct problem *p = by_logit(s ? MR_SCORE_SOFTMAX : MR_SCORE_SIGMOID, 4, 2, 0, 1, MR_F32,
                                     MR_F32, "emulated");
        for (size_t e = 0; e < 4; e++) problem_set(&p->layer.logits, 0, e, row[e]);
        struct answers a;
        routed(&p->layer,
               &(struct mr_route_options){.threads = 1, .arith = arith, .arith_count = 2}, &a);
        ck_assert(a.chosen[0] == 2 && a.chosen[1] == 1 && a.chosen[2] == 2 && a.chosen[3] == 0);
        ck_assert_uint_eq(a.flips[0].flips, 0);
        ck_assert_uint_eq(a.flips[1].flips, 1);
        double x = s ? 1 : 1 / (1 + exp(-3)), y = s ? exp(-2) : 1 / (1 + exp(-1));
        ck_assert_msg(fabs(a.flips[1].weight_moved - y / (x + y)) < 1e-6, "%g",
                      a.flips[1].weight_moved);
        answers_free(&a);
        problem_free(p);
    }
}
END_TEST

START_TEST(reject_what_has_no_meaning)
{
    struct problem *p = by_logit(MR_SCORE_SOFTMAX, 8, 2, 0, 1, MR_F32, MR_F32, "rejected");
    double bias[8] = {0};
    struct answers a;
    struct mr_error err = {{0}};
    p->router.n_group = 2;
    ck_assert_int_eq(routed_try(&p->layer, NULL, &a, &err), MR_ERR_VALUE);
    ck_assert_msg(strstr(err.text, "neither a correction bias nor groups") != NULL, "%s", err.text);
    answers_free(&a);
    p->router.n_group = 1;
    p->layer.bias = bias;
    ck_assert_int_eq(routed_try(&p->layer, NULL, &a, &err), MR_ERR_VALUE);
    ck_assert_msg(strstr(err.text, "logits rank") != NULL, "%s", err.text);
    answers_free(&a);
    p->layer.bias = NULL;
    p->layer.gate_bias = bias;
    static const double bad[] = {NAN, HUGE_VAL, 0.1, 1e300};
    for (int i = 0; i < 4; i++) {
        bias[3] = bad[i];
        ck_assert_int_eq(routed_try(&p->layer, NULL, &a, &err), MR_ERR_VALUE);
        ck_assert_msg(strstr(err.text, "gate bias [3]") != NULL, "%s", err.text);
        answers_free(&a);
    }
    problem_free(p);
}
END_TEST

Suite *suite_after_topk(void);
Suite *suite_after_topk(void)
{
    Suite *s = suite_create("after_topk");
    TCase *c = tcase_create("logits rank");
    tcase_set_timeout(c, getenv("MOEREF_LONG") ? 1800 : 60);
    tcase_add_test(c, corroborate_gpt_oss_shape);
    tcase_add_test(c, corroborate_llama4_shape);
    tcase_add_test(c, corroborate_scores_and_normalisation);
    tcase_add_test(c, corroborate_named_rows);
    tcase_add_test(c, corroborate_bias_ties);
    tcase_add_test(c, corroborate_bias_on_wide_rows);
    tcase_add_test(c, corroborate_both_biases);
    tcase_add_test(c, verify_filters_agree);
    tcase_add_test(c, verify_emulated_logits);
    tcase_add_test(c, reject_what_has_no_meaning);
    suite_add_tcase(s, c);
    return s;
}
