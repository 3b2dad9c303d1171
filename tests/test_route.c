/* The driver: real captures against brute force, rows that are not finite, no rows, refusals. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/case.h"
#include "../ref/num/num.h"
#include "support/routed.h"

static struct mr_matrix as_matrix(const struct mr_tensor *t)
{
    return (struct mr_matrix){t->data, t->dtype, (size_t)t->shape[0], (size_t)t->shape[1]};
}

/* A few tokens of each layer and phase; all of them with MOEREF_LONG. */
static void expect_case(const char *path)
{
    struct mr_error err = {{0}};
    struct mr_case *c;
    ck_assert_msg(!mr_case_load(path, NULL, &c, &err), "%s", err.text);
    size_t layers = 0;
    for (size_t p = 0; p < mr_case_phase_count(c); p++)
        for (size_t i = 0; i < mr_case_layer_count(c); i++) {
            int number = mr_case_layer_number(c, i);
            struct mr_case_layer l;
            if (!mr_case_has(c, number, mr_case_phase(c, p))) continue;
            ck_assert(!mr_case_get(c, number, mr_case_phase(c, p), &l, &err));
            double *bias = NULL;
            if (l.bias.data) {
                bias = malloc(l.bias.shape[0] * sizeof *bias);
                ck_assert_ptr_nonnull(bias);
                mr_widen_f64(l.bias.data, l.bias.dtype, l.bias.shape[0], bias);
            }
            struct mr_layer layer = {.router = mr_case_router(c),
                                     .hidden = as_matrix(&l.hidden),
                                     .gate = as_matrix(&l.gate),
                                     .bias = bias};
            struct answers a;
            routed(&layer, NULL, &a);
            ck_assert_uint_eq(a.result.blas_wrong, 0);
            size_t step = getenv("MOEREF_LONG") ? 1 : a.rows / 3 + 1;
            for (size_t t = i % step; t < a.rows; t += step)
                expect_truth(&layer, &a, t, false, path);
            answers_free(&a);
            free(bias);
            layers++;
        }
    ck_assert_uint_gt(layers, 1);
    mr_case_free(c);
}

START_TEST(corroborate_capture_of_glm4moe)
{
    expect_case("cases/glm4moe-tiny.json");
}
END_TEST

START_TEST(corroborate_capture_of_qwen3moe)
{
    expect_case("cases/qwen3moe-tiny.json");
}
END_TEST

static struct problem *made(enum mr_score score, size_t tokens, enum mr_dtype x, enum mr_dtype w,
                            bool bias)
{
    uint64_t state = 21;
    struct problem *p = problem_new(score, 24, 4, 300, tokens, x, w, bias);
    problem_fill(&p->layer.hidden, 1, &state);
    problem_fill(&p->layer.gate, 0.1, &state);
    if (bias) problem_fill_bias(p, 0.1, &state);
    return p;
}

/* One element that is not finite makes its token nonfinite and changes no bit of any other. */
START_TEST(verify_nonfinite_row_leaves_others_alone)
{
    static const double bad[] = {NAN, HUGE_VAL, -HUGE_VAL};
    static const enum mr_dtype types[] = {MR_BF16, MR_F16, MR_F32};
    for (int i = 0; i < 9; i++) {
        struct problem *p = made(i % 2 ? MR_SCORE_SOFTMAX : MR_SCORE_SIGMOID, 20, types[i / 3],
                                 types[i % 3], i % 2 == 0);
        struct answers right, a;
        routed(&p->layer, NULL, &right);
        problem_set(&p->layer.hidden, 7, (size_t)(i * 37), bad[i % 3]);
        routed(&p->layer, NULL, &a);
        expect_truth(&p->layer, &a, 7, false, "nonfinite");
        ck_assert_uint_eq(a.result.certified[MR_CERT_NONFINITE], 1);
        expect_same(&a, 0, &right, 0, 7, true, "before");
        expect_same(&a, 8, &right, 8, 12, true, "after");
        ck_assert(!memcmp(a.radius, right.radius, 7 * sizeof(double)));
        answers_free(&a);
        answers_free(&right);
        problem_free(p);
    }
}
END_TEST

START_TEST(verify_nonfinite_logits)
{
    struct problem *p = problem_new(MR_SCORE_SIGMOID, 5, 2, 0, 4, MR_BF16, MR_BF16, false);
    for (size_t e = 0; e < 5; e++)
        for (size_t t = 0; t < 4; t++) problem_set(&p->layer.logits, t, e, (double)(e * 3 % 5));
    problem_set(&p->layer.logits, 1, 4, NAN);
    problem_set(&p->layer.logits, 2, 0, -HUGE_VAL);
    struct answers a;
    routed(&p->layer, NULL, &a);
    for (size_t t = 0; t < 4; t++) expect_truth(&p->layer, &a, t, false, "logits");
    answers_free(&a);
    problem_free(p);
}
END_TEST

START_TEST(verify_no_tokens)
{
    for (int logits = 0; logits < 2; logits++) {
        struct problem *p =
            problem_new(MR_SCORE_SIGMOID, 5, 2, logits ? 0 : 9, 0, MR_BF16, MR_BF16, false);
        struct answers a;
        struct mr_flips flips = {0};
        struct mr_arith arith = {0};
        routed(&p->layer, &(struct mr_route_options){.arith = &arith, .arith_count = 1}, &a);
        ck_assert_uint_eq(a.result.tokens, 0);
        ck_assert(!memcmp(&flips, a.flips, sizeof flips));
        answers_free(&a);
        problem_free(p);
    }
}
END_TEST

/* Spoils a good layer, and expects the status and a word of the message. */
static void refused(void (*spoil)(struct problem *p), enum mr_status status, const char *word)
{
    struct problem *p = made(MR_SCORE_SIGMOID, 3, MR_BF16, MR_BF16, true);
    struct mr_error err = {{0}};
    struct answers a;
    spoil(p);
    enum mr_status found = routed_try(&p->layer, NULL, &a, &err);
    ck_assert_msg(found == status && strstr(err.text, word), "%s: %s", mr_status_name(found),
                  err.text);
    for (size_t t = 0; t < a.rows; t++) ck_assert_int_eq(a.seen[t], 0);
    answers_free(&a);
    problem_free(p);
}

static void nan_in_gate(struct problem *p)
{
    problem_set(&p->layer.gate, 11, 256, NAN);
}
static void inf_in_gate(struct problem *p)
{
    problem_set(&p->layer.gate, 23, 299, -HUGE_VAL);
}
static void nan_in_bias(struct problem *p)
{
    p->bias[23] = NAN;
}
static void inf_in_bias(struct problem *p)
{
    p->bias[0] = HUGE_VAL;
}
static void no_k(struct problem *p)
{
    p->router.top_k = 0;
}
static void large_k(struct problem *p)
{
    p->router.top_k = 25;
}
static void groups(struct problem *p)
{
    p->router.n_group = 5;
}
static void factor(struct problem *p)
{
    p->router.routed_scaling_factor = NAN;
}
static void gate_rows(struct problem *p)
{
    p->layer.gate.rows = 23;
}
static void gate_cols(struct problem *p)
{
    p->layer.gate.cols = 299;
}
static void logit_cols(struct problem *p)
{
    p->layer.logits = (struct mr_matrix){p->layer.hidden.data, MR_BF16, 3, 23};
    p->layer.hidden.data = NULL;
}

START_TEST(reject_values_and_shapes)
{
    refused(nan_in_gate, MR_ERR_VALUE, "[11, 256] is NaN");
    refused(inf_in_gate, MR_ERR_VALUE, "[23, 299] is Inf");
    refused(nan_in_bias, MR_ERR_VALUE, "bias [23] is NaN");
    refused(inf_in_bias, MR_ERR_VALUE, "bias [0] is Inf");
    refused(no_k, MR_ERR_VALUE, "top_k");
    refused(large_k, MR_ERR_VALUE, "top_k is 25");
    refused(groups, MR_ERR_VALUE, "n_group that divides experts = 24");
    refused(factor, MR_ERR_VALUE, "routed_scaling_factor");
    refused(gate_rows, MR_ERR_SHAPE, "[23, 300]");
    refused(gate_cols, MR_ERR_SHAPE, "[24, 299]");
    refused(logit_cols, MR_ERR_SHAPE, "23 columns");
}
END_TEST

static enum mr_status fail_rows(void *context, const struct mr_rows *rows, struct mr_error *err)
{
    (void)context;
    return mr_fail(err, MR_ERR_IO, "row %zu cannot be kept", rows->first);
}

START_TEST(reject_failing_callback)
{
    for (int threads = 1; threads < 4; threads++) {
        struct problem *p = made(MR_SCORE_SIGMOID, 700, MR_BF16, MR_BF16, false);
        struct mr_route_options o = {.threads = threads, .rows = fail_rows};
        struct mr_route_result result;
        struct mr_error err = {{0}};
        ck_assert_int_eq(mr_route_layer(&p->layer, &o, &result, NULL, &err), MR_ERR_IO);
        ck_assert_ptr_nonnull(strstr(err.text, "cannot be kept"));
        problem_free(p);
    }
}
END_TEST

Suite *suite_route(void);
Suite *suite_route(void)
{
    Suite *s = suite_create("route");
    TCase *c = tcase_create("layers");
    tcase_set_timeout(c, getenv("MOEREF_LONG") ? 1800 : 60);
    tcase_add_test(c, corroborate_capture_of_glm4moe);
    tcase_add_test(c, corroborate_capture_of_qwen3moe);
    tcase_add_test(c, verify_nonfinite_row_leaves_others_alone);
    tcase_add_test(c, verify_nonfinite_logits);
    tcase_add_test(c, verify_no_tokens);
    tcase_add_test(c, reject_values_and_shapes);
    tcase_add_test(c, reject_failing_callback);
    suite_add_tcase(s, c);
    return s;
}
