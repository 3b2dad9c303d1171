/* Wrong BLAS, and right BLAS, in the filter's place. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/route/filter.h"
#include "support/routed.h"

/* What the stub adds, after the right result of a block: hidden sizes here are one chunk. */
struct damage {
    size_t row, expert;
    double add; /* NaN: the element becomes NaN; -Inf: it becomes 0 */
};
static struct {
    const struct damage *list;
    size_t count, row; /* rows served so far */
} stub;

static double spoilt(double v, double add)
{
    return isnan(add) ? NAN : isinf(add) ? 0 : v + add;
}

static void stub_sgemm(size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b,
                       size_t ldb, float beta, float *c, size_t ldc)
{
    mr_openblas.sgemm_nt(m, n, k, a, lda, b, ldb, beta, c, ldc);
    for (size_t i = 0; i < stub.count; i++) {
        const struct damage *d = &stub.list[i];
        if (d->row < stub.row || d->row >= stub.row + m) continue;
        float *at = &c[(d->row - stub.row) * ldc + d->expert];
        *at = (float)spoilt(*at, d->add);
    }
    stub.row += m;
}

static void stub_dgemm(size_t m, size_t n, size_t k, const double *a, size_t lda, const double *b,
                       size_t ldb, double beta, double *c, size_t ldc)
{
    mr_openblas.dgemm_nt(m, n, k, a, lda, b, ldb, beta, c, ldc);
    for (size_t i = 0; i < stub.count; i++) {
        const struct damage *d = &stub.list[i];
        if (d->row < stub.row || d->row >= stub.row + m) continue;
        double *at = &c[(d->row - stub.row) * ldc + d->expert];
        *at = spoilt(*at, d->add);
    }
    stub.row += m;
}

static const struct mr_blas stub_blas = {stub_sgemm, stub_dgemm};

static void with_damage(const struct problem *p, bool wide, const struct damage *list, size_t count,
                        struct answers *a)
{
    stub.list = list;
    stub.count = count;
    stub.row = 0;
    routed(&p->layer,
           &(struct mr_route_options){.threads = 1, .blas = &stub_blas, .wide_filter = wide}, a);
}

enum { EXPERTS = 288, HIDDEN = 96 };

static struct problem *random_layer(size_t tokens, enum mr_score score)
{
    uint64_t state = 51;
    struct problem *p = problem_new(score, EXPERTS, 8, HIDDEN, tokens, MR_BF16, MR_BF16, true);
    problem_fill(&p->layer.hidden, 1, &state);
    problem_fill(&p->layer.gate, 0.2, &state);
    problem_fill_bias(p, 0.1, &state);
    for (int e = 0; e < EXPERTS; e += 5) /* norms that differ */
        for (size_t j = 0; j < HIDDEN; j++)
            problem_set(&p->layer.gate, (size_t)e, j,
                        brute_element(&p->layer.gate, (size_t)e, j) * ldexp(1, e % 7 - 3));
    return p;
}

/* The radius of filter.h, without its slack. */
static double radius(const struct problem *p, bool wide, size_t row, size_t expert)
{
    return (wide ? 255 * 0x1p-53 : 511 * 0x1p-24) * problem_norm(&p->layer.hidden, row) *
           problem_norm(&p->layer.gate, expert);
}

static void expect_right(const struct problem *p, const struct answers *a)
{
    struct answers right;
    routed(&p->layer, NULL, &right);
    ck_assert_uint_eq(right.result.blas_alarms, 0);
    expect_same(&right, 0, a, 0, a->rows, p->router.score == MR_SCORE_SIGMOID, "wrong BLAS");
    answers_free(&right);
}

/* Every position of a row in turn, both signs: row r has expert r wrong. */
START_TEST(verify_one_logit_wrong)
{
    for (int c = 0; c < 4; c++) {
        bool wide = c & 1;
        struct problem *p = random_layer(EXPERTS, MR_SCORE_SIGMOID);
        struct damage list[EXPERTS];
        for (size_t e = 0; e < EXPERTS; e++)
            list[e] = (struct damage){e, e, (c & 2 ? -4 : 4) * radius(p, wide, e, e)};
        struct answers a;
        with_damage(p, wide, list, EXPERTS, &a);
        ck_assert_uint_eq(a.result.blas_alarms, EXPERTS);
        ck_assert_uint_eq(a.result.blas_wrong, EXPERTS);
        ck_assert_int_eq(a.restarts, 1);
        expect_right(p, &a);
        answers_free(&a);
        problem_free(p);
    }
}
END_TEST

START_TEST(verify_tile_of_zeros)
{
    for (size_t at = 0; at < 280; at += 37)
        for (int score = 0; score < 2; score++) {
            struct problem *p = random_layer(64, score ? MR_SCORE_SOFTMAX : MR_SCORE_SIGMOID);
            struct damage list[32];
            for (size_t i = 0; i < 32; i++)
                list[i] = (struct damage){at % 60 + i / 8, at + i % 8, -HUGE_VAL};
            struct answers a;
            with_damage(p, false, list, 32, &a);
            ck_assert_uint_eq(a.result.blas_wrong, 4);
            ck_assert_int_eq(a.restarts, 1);
            expect_right(p, &a);
            answers_free(&a);
            problem_free(p);
        }
}
END_TEST

START_TEST(verify_nan_and_infinity)
{
    for (int c = 0; c < 2; c++) {
        struct problem *p = random_layer(40, MR_SCORE_SIGMOID);
        for (size_t j = 0; j < HIDDEN; j++)
            problem_set(&p->layer.gate, 9, j, 0); /* weighs nothing */
        struct damage list[] = {{0, 17, NAN}, {20, 287, NAN}, {39, 9, NAN}, {30, 9, 1}};
        struct answers a;
        with_damage(p, c, list, 4, &a);
        ck_assert_uint_eq(a.result.blas_wrong, 4);
        expect_right(p, &a);
        answers_free(&a);
        problem_free(p);
    }
}
END_TEST

/* How many of these pairs raise no alarm. */
static size_t missed(struct problem *p, const struct damage *list, size_t rows, size_t *wrong)
{
    struct answers a;
    with_damage(p, false, list, 2 * rows, &a);
    *wrong = a.result.blas_wrong;
    if (a.result.blas_alarms == rows) expect_right(p, &a);
    size_t missed = rows - a.result.blas_alarms;
    answers_free(&a);
    return missed;
}

/* Two errors in an aligned group of eight, of one normalised or one absolute size, alike or
 * opposed. */
START_TEST(verify_two_wrong_in_a_group)
{
    for (int c = 0; c < 4; c++) {
        enum { ROWS = EXPERTS / 8 * 28 };
        struct problem *p = random_layer(ROWS, MR_SCORE_SIGMOID);
        struct damage *list = calloc(2 * ROWS, sizeof *list);
        ck_assert_ptr_nonnull(list);
        size_t row = 0, wrong;
        for (size_t group = 0; group < EXPERTS; group += 8)
            for (size_t i = 0; i < 8; i++)
                for (size_t j = i + 1; j < 8; j++, row++) {
                    double d = 4 * radius(p, false, row, group + i);
                    double e = 4 * radius(p, false, row, group + j);
                    if (c & 2) d = e = d > e ? d : e;
                    list[2 * row] = (struct damage){row, group + i, d};
                    list[2 * row + 1] = (struct damage){row, group + j, c & 1 ? -e : e};
                }
        ck_assert_uint_eq(missed(p, list, ROWS, &wrong), 0);
        ck_assert_uint_eq(wrong, ROWS);
        free(list);
        problem_free(p);
    }
}
END_TEST

/* Across groups a sixteenth may escape. */
START_TEST(verify_two_wrong_across_groups)
{
    uint64_t state = 52;
    size_t rows = getenv("MOEREF_LONG") ? 20000 : 2000;
    for (int c = 0; c < 2; c++) {
        struct problem *p = random_layer(rows, MR_SCORE_SIGMOID);
        struct damage *list = calloc(2 * rows, sizeof *list);
        ck_assert_ptr_nonnull(list);
        size_t wrong;
        for (size_t row = 0; row < rows; row++) {
            size_t i = routed_random(&state) % EXPERTS, j = i;
            while (j / 8 == i / 8) j = routed_random(&state) % EXPERTS;
            double sign = c ? -4 : 4;
            list[2 * row] = (struct damage){row, i, 4 * radius(p, false, row, i)};
            list[2 * row + 1] = (struct damage){row, j, sign * radius(p, false, row, j)};
        }
        double share = 1 - (double)missed(p, list, rows, &wrong) / (double)rows;
        if (getenv("MOEREF_LONG")) printf("two wrong across groups: %.4f caught\n", share);
        ck_assert_double_ge(share, 0.92);
        free(list);
        problem_free(p);
    }
}
END_TEST

/* Every logit off by nine tenths of its radius: alarms are allowed, reports are not. */
START_TEST(verify_wrong_within_the_radius)
{
    uint64_t state = 53;
    for (int c = 0; c < 8; c++) {
        enum { ROWS = 60 };
        bool wide = c & 1, all = c & 2;
        struct problem *p = random_layer(ROWS, c & 4 ? MR_SCORE_SOFTMAX : MR_SCORE_SIGMOID);
        if (c & 4) wide = true;
        struct damage *list = calloc(ROWS * EXPERTS, sizeof *list);
        ck_assert_ptr_nonnull(list);
        size_t count = 0;
        for (size_t t = 0; t < ROWS; t++)
            for (size_t e = 0; e < EXPERTS; e++)
                if (all || e == t * 4)
                    list[count++] = (struct damage){
                        t, e, (routed_random(&state) % 2 ? 0.9 : -0.9) * radius(p, wide, t, e)};
        struct answers a;
        with_damage(p, wide, list, count, &a);
        ck_assert_uint_eq(a.result.blas_wrong, 0);
        ck_assert_int_eq(a.restarts, 0);
        if (!all) ck_assert_uint_eq(a.result.blas_alarms, 0);
        expect_right(p, &a);
        answers_free(&a);
        free(list);
        problem_free(p);
    }
}
END_TEST

/* The worst that a legal BLAS can do: it puts the last selected expert behind others. Rows are so
 * much alike that many keys lie within a radius. */
START_TEST(verify_wrong_within_the_radius_at_the_cut)
{
    for (int c = 0; c < 3; c++) {
        enum { ROWS = 300 };
        uint64_t state = 55;
        bool wide = c > 0;
        struct problem *p = random_layer(ROWS, c > 1 ? MR_SCORE_SOFTMAX : MR_SCORE_SIGMOID);
        struct mr_matrix *g = &p->layer.gate;
        for (size_t e = 0; e < EXPERTS; e++) {
            p->bias[e] = 1e-12 * routed_normal(&state);
            for (size_t j = 0; j < HIDDEN; j++) /* fp64 radii see differences only in one product */
                problem_set(g, e, j, wide ? 1 : 1 + 0.01 * routed_normal(&state));
            if (wide) problem_set(g, e, 0, 1 + 0x1p-7 * (double)(e % 3));
        }
        for (size_t t = 0; wide && t < ROWS; t++) problem_set(&p->layer.hidden, t, 0, 0x1p-34);
        struct damage list[ROWS];
        struct answers a;
        routed(&p->layer, NULL, &a);
        for (size_t t = 0; t < ROWS; t++) {
            size_t e = (size_t)a.ids[t * 8 + 7];
            list[t] = (struct damage){t, e, -0.9 * radius(p, wide, t, e)};
        }
        answers_free(&a);
        with_damage(p, wide, list, ROWS, &a);
        ck_assert_uint_eq(a.result.blas_wrong, 0);
        ck_assert_uint_eq(a.result.blas_alarms, 0);
        expect_right(p, &a);
        answers_free(&a);
        problem_free(p);
    }
}
END_TEST

/* One expert's norm makes its radius larger than the whole range of logits, and the filter uses
 * nearly all of it: softmax's denominator must not be believed. */
START_TEST(corroborate_softmax_with_a_huge_radius)
{
    static const double sizes[] = {0x1p24, 0x1p25, 0x1p26};
    for (int c = 0; c < 12; c++) {
        struct problem *p = problem_new(MR_SCORE_SOFTMAX, 8, 2, 4, 1, MR_F32, MR_F32, c & 1);
        struct mr_matrix *x = &p->layer.hidden, *g = &p->layer.gate;
        p->router.norm_topk_prob = !(c & 2);
        p->name = "huge radius";
        problem_set(x, 0, 0, sizes[c / 4]);
        problem_set(x, 0, 1, sizes[c / 4]);
        problem_set(x, 0, 2, 0x1p20); /* small norms for the others: their radii are 1e-12 */
        for (size_t e = 0; e < 8; e++)
            problem_set(g, e, 2, (e == 5 ? -3.0 : -0.1 * (double)e) * 0x1p-20);
        problem_set(g, 5, 0, 0x1p26);
        problem_set(g, 5, 1, -0x1p26);
        struct damage down = {0, 5, -0.9999 * radius(p, true, 0, 5)};
        struct answers a;
        with_damage(p, true, &down, 1, &a);
        ck_assert_uint_eq(a.result.blas_alarms, 0);
        ck_assert_uint_eq(a.result.blas_wrong, 0);
        expect_truth(&p->layer, &a, 0, false, p->name);
        answers_free(&a);
        problem_free(p);
    }
}
END_TEST

/* The right BLAS: largest |sum - check| in radii (the threshold is 2). */
static double largest_sum(struct problem *p, bool narrow, size_t rounds, uint64_t *state)
{
    struct mr_gate g;
    struct mr_filter f;
    double most = 0;
    size_t experts = p->layer.gate.rows, rows = p->layer.hidden.rows;
    ck_assert(!mr_gate_prepare(&p->layer.gate, p->layer.hidden.dtype, narrow, 2, &g, NULL));
    ck_assert(!mr_filter_new(&g, &f));
    for (size_t round = 0; round < rounds; round++) {
        if (round) problem_fill(&p->layer.hidden, 1, state);
        mr_filter_block(&f, &g, p->layer.hidden.data, p->layer.hidden.dtype, rows, &mr_openblas);
        for (size_t t = 0; t < rows; t++) {
            struct mr_radius r;
            const double *logits = f.logits + t * experts, *check = f.check + t * MR_CHECKS;
            if (!mr_filter_radius(&g, &f.stats[t], &r)) continue;
            ck_assert_msg(mr_blas_check(&g, logits, check, &r), "%s: false alarm", p->name);
            for (int c = 0; c < MR_CHECKS; c++) {
                double sum = -check[c];
                for (size_t e = 0; e < experts; e++)
                    sum += mr_check_sign(c, e) * logits[e] * g.inverse_norm[e];
                if (fabs(sum) > most * r.scale) most = fabs(sum) / r.scale;
            }
        }
    }
    mr_filter_free(&f);
    mr_gate_free(&g);
    return most;
}

START_TEST(verify_right_blas_never_alarms)
{
    static const struct {
        int experts, hidden;
        enum mr_dtype x, w;
        bool narrow;
        double offset; /* added to all elements: rows that are much alike */
    } shapes[] = {
        {288, 256, MR_BF16, MR_BF16, true, 0}, {288, 1024, MR_BF16, MR_BF16, true, 0},
        {64, 300, MR_BF16, MR_BF16, false, 0}, {1024, 128, MR_BF16, MR_BF16, true, 0},
        {128, 2048, MR_F16, MR_F16, true, 0},  {288, 512, MR_F32, MR_F32, false, 0},
        {288, 256, MR_BF16, MR_BF16, true, 1}, {288, 256, MR_BF16, MR_BF16, false, 1},
        {1024, 256, MR_F32, MR_F32, false, 1}, {8, 7, MR_BF16, MR_BF16, true, 0},
    };
    uint64_t state = 54;
    size_t rounds = getenv("MOEREF_LONG") ? 80 : 1; /* of 128 tokens: 10^5 in all */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct problem *p = problem_new(MR_SCORE_SIGMOID, shapes[i].experts, 1, shapes[i].hidden,
                                        128, shapes[i].x, shapes[i].w, false);
        p->name = "right BLAS";
        problem_fill(&p->layer.gate, 0.1, &state);
        problem_fill(&p->layer.hidden, 1, &state);
        for (size_t e = 0; shapes[i].offset > 0 && e < p->layer.gate.rows; e++)
            for (size_t j = 0; j < p->layer.gate.cols; j++)
                problem_set(&p->layer.gate, e, j,
                            brute_element(&p->layer.gate, e, j) + shapes[i].offset);
        double most = largest_sum(p, shapes[i].narrow, rounds, &state);
        if (getenv("MOEREF_LONG"))
            printf("right BLAS, %4d x %4d, %s filter%s: largest sum %.3f of the threshold\n",
                   shapes[i].experts, shapes[i].hidden, shapes[i].narrow ? "fp32" : "fp64",
                   shapes[i].offset > 0 ? ", rows alike" : "", most / 2);
        fflush(stdout);
        problem_free(p);
    }
}
END_TEST

Suite *suite_blas(void);
Suite *suite_blas(void)
{
    Suite *s = suite_create("blas");
    TCase *c = tcase_create("wrong and right");
    tcase_set_timeout(c, getenv("MOEREF_LONG") ? 1800 : 120);
    tcase_add_test(c, verify_one_logit_wrong);
    tcase_add_test(c, verify_tile_of_zeros);
    tcase_add_test(c, verify_nan_and_infinity);
    tcase_add_test(c, verify_two_wrong_in_a_group);
    tcase_add_test(c, verify_two_wrong_across_groups);
    tcase_add_test(c, verify_wrong_within_the_radius);
    tcase_add_test(c, verify_wrong_within_the_radius_at_the_cut);
    tcase_add_test(c, corroborate_softmax_with_a_huge_radius);
    tcase_add_test(c, verify_right_blas_never_alarms);
    suite_add_tcase(s, c);
    return s;
}
