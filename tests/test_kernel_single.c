/* The kernels of gpu/kernels/single.cu on the CPU, where mma.sync is the reference's mr_mma_step:
 * logits against their arithmetic line, ids and weights against the stated operations on those
 * logits, sorted positions against harness.h. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../gpu/harness.h"
#include "../ref/arith/replay.h"
#include "../ref/num/num.h"
#include "support/kernel_run.h"
#include "support/slow_sum.h"

Suite *suite_kernel_single(void);

struct gemm {
    struct mr_kernel_router router;
    int rows;
    uint16_t *x, *w;
    float *bias, *gate_bias;
};

static uint16_t *fill_bf16(uint64_t *seed, enum slow_class class, size_t n)
{
    float *wide = malloc(n * sizeof *wide);
    uint16_t *out = malloc(n * sizeof *out);
    slow_fill(seed, class, 8, wide, n);
    for (size_t i = 0; i < n; i++) out[i] = mr_bf16_encode(wide[i], MR_RNE, MR_OVERFLOW_IEEE);
    free(wide);
    return out;
}

static void gemm_new(struct gemm *g, const struct mr_kernel_router *router, int rows,
                     enum slow_class class, uint64_t *seed)
{
    size_t experts = (size_t)router->experts, hidden = (size_t)router->hidden;
    *g = (struct gemm){.router = *router, .rows = rows};
    g->x = fill_bf16(seed, class, (size_t)rows * hidden);
    g->w = fill_bf16(seed, class == SLOW_SPECIAL ? SLOW_NORMAL : class, experts * hidden);
    g->bias = malloc(experts * sizeof(float));
    g->gate_bias = malloc(experts * sizeof(float));
    slow_fill(seed, SLOW_NORMAL, 24, g->bias, experts);
    slow_fill(seed, SLOW_NORMAL, 24, g->gate_bias, experts);
}

static void gemm_free(struct gemm *g)
{
    free(g->x);
    free(g->w);
    free(g->bias);
    free(g->gate_bias);
}

static void gemm_run(const char *name, const struct gemm *g, int rows, struct kernel_run *run)
{
    kernel_run(name, &g->router, rows,
               &(struct kernel_inputs){.hidden = g->x,
                                       .gate = g->w,
                                       .bias = g->router.bias ? g->bias : NULL,
                                       .gate_bias = g->router.gate_bias ? g->gate_bias : NULL},
               run);
}

static void expect_line(const char *name, const struct gemm *g, const struct kernel_run *run)
{
    size_t rows = (size_t)g->rows, experts = (size_t)g->router.experts;
    size_t hidden = (size_t)g->router.hidden;
    struct mr_arith arith;
    struct mr_error err = {{0}};
    struct mr_replay *replay;
    struct mr_gemm in = {.hidden = {g->x, MR_BF16, rows, hidden},
                         .gate = {g->w, MR_BF16, experts, hidden},
                         .gate_bias = g->router.gate_bias ? g->gate_bias : NULL};
    float *expected = malloc(rows * experts * sizeof *expected);
    ck_assert_msg(!mr_arith_parse(run->line, &arith, &err), "%s", err.text);
    ck_assert_int_ne(arith.sum.leaf, MR_LEAF_EXACT);
    ck_assert_msg(!mr_replay_new(&arith, &in, &replay, &err), "%s", err.text);
    ck_assert_msg(!mr_replay_rows(replay, 0, rows, expected, &err), "%s", err.text);
    for (size_t i = 0; i < rows * experts; i++)
        ck_assert_msg(slow_bits(expected[i]) == slow_bits(run->logits[i]),
                      "%s, %zu x %zu x %zu, logit %zu: %a, %s makes it %a", name, rows, experts,
                      hidden, i, run->logits[i], run->line, expected[i]);
    mr_replay_free(replay);
    free(expected);
}

static void expect_routed(const char *name, const struct gemm *g, const struct kernel_run *run)
{
    int32_t ids[32];
    float weights[32];
    size_t k = (size_t)g->router.top_k;
    for (size_t t = 0; t < (size_t)g->rows; t++) {
        stated_route(&g->router, run->logits + t * (size_t)g->router.experts,
                     g->router.bias ? g->bias : NULL, ids, weights);
        ck_assert_msg(memcmp(ids, run->ids + t * k, k * 4) == 0, "%s: ids of row %zu of %d", name,
                      t, g->rows);
        for (size_t j = 0; j < k; j++)
            ck_assert_msg(slow_bits(weights[j]) == slow_bits(run->weights[t * k + j]),
                          "%s: row %zu, weight %zu is %a, not %a", name, t, j,
                          run->weights[t * k + j], weights[j]);
    }
}

static const char *const names[] = {"single", "single_sorted", "single_sorted_128"};

static void expect_kernel(const char *name, const struct gemm *g, bool line)
{
    struct kernel_run run;
    gemm_run(name, g, g->rows, &run);
    if (line) expect_line(name, g, &run);
    expect_routed(name, g, &run);
    if (run.sorted) expect_sorted(&g->router, g->rows, &run);
    kernel_run_free(&run);
}

/* Ends of K in the first half of a lane's group, of a warp, of a slice; experts and rows around
 * multiples of 8, 16 and 32; one unit, several for a block; one block that finishes, and more. */
static const struct {
    int rows, experts, hidden, top_k;
} shapes[] = {{1, 1, 16, 1},   {3, 17, 48, 4},   {8, 60, 112, 6}, {2, 20, 528, 8},
              {9, 16, 64, 8},  {33, 33, 80, 3},  {5, 96, 32, 32}, {1, 49, 512, 8},
              {70, 9, 144, 2}, {1, 896, 16, 16}, {6, 700, 16, 8}, {2, 7, 1616, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

START_TEST(corroborate_single_is_its_line)
{
    uint64_t seed = 51 + (uint64_t)_i;
    for (size_t i = (size_t)_i % 4; i < SHAPES; i += getenv("MOEREF_LONG") ? 1 : 4) {
        struct mr_kernel_router r = {.experts = shapes[i].experts,
                                     .top_k = shapes[i].top_k,
                                     .hidden = shapes[i].hidden,
                                     .score = (int)(i + (size_t)_i / 4) % 3,
                                     .bias = i % 4 != 1,
                                     .gate_bias = i % 3 == 1,
                                     .n_group = 1,
                                     .topk_group = 1,
                                     .norm_topk_prob = i % 5 != 2,
                                     .routed_scaling_factor = 2.5};
        struct gemm g;
        gemm_new(&g, &r, shapes[i].rows, (enum slow_class)_i, &seed);
        expect_kernel(names[(i + i / 4 + (size_t)_i) % 3], &g, true);
        gemm_free(&g);
    }
}
END_TEST

/* Groups, and ranking by logit. */
START_TEST(corroborate_single_routers)
{
    uint64_t seed = 7;
    for (int i = 0; i < 6; i++) {
        struct mr_kernel_router r = {.experts = 64,
                                     .top_k = 6,
                                     .hidden = 32,
                                     .score = i % 3,
                                     .bias = i < 3,
                                     .n_group = i < 3 ? 8 : 1,
                                     .topk_group = i < 3 ? 3 : 1,
                                     .group_score = i % 2 ? MR_KERNEL_MAX : MR_KERNEL_TOP2_SUM,
                                     .rank_by_logit = i == 3 || i == 4,
                                     .norm_topk_prob = 1,
                                     .routed_scaling_factor = 1};
        struct gemm g;
        gemm_new(&g, &r, 11, SLOW_NORMAL, &seed);
        expect_kernel(names[i % 3], &g, i == 0);
        gemm_free(&g);
    }
}
END_TEST

/* Many rows, in tiles of 64 by 288 experts: units of all of K and of a slice, two tiles of experts,
 * ends of rows, experts and K. */
static const struct {
    int rows, experts, hidden;
} tiles[] = {{97, 20, 80}, {161, 300, 16}, {321, 9, 592}, {170, 9, 592}};

START_TEST(corroborate_single_tiles)
{
    uint64_t seed = 91 + (uint64_t)_i;
    struct mr_kernel_router r = {.experts = tiles[_i].experts,
                                 .top_k = 8,
                                 .hidden = tiles[_i].hidden,
                                 .bias = 1,
                                 .n_group = 1,
                                 .topk_group = 1,
                                 .norm_topk_prob = 1,
                                 .routed_scaling_factor = 2.5};
    struct gemm g;
    gemm_new(&g, &r, tiles[_i].rows, _i == 1 ? SLOW_SPECIAL : SLOW_NORMAL, &seed);
    expect_kernel(names[_i % 3], &g, true);
    gemm_free(&g);
}
END_TEST

/* A row's bits are the same in any launch. */
START_TEST(verify_single_rows)
{
    uint64_t seed = 3;
    struct mr_kernel_router r = {.experts = 40,
                                 .top_k = 5,
                                 .hidden = 592,
                                 .n_group = 1,
                                 .topk_group = 1,
                                 .norm_topk_prob = 1,
                                 .routed_scaling_factor = 1};
    struct gemm g;
    struct kernel_run all, some;
    gemm_new(&g, &r, 75, SLOW_NORMAL, &seed);
    gemm_run("single", &g, 75, &all);
    static const int rows[] = {1, 8, 9, 40};
    for (int i = 0; i < 4; i++) {
        struct gemm part = g;
        size_t from = (size_t)(75 - rows[i]), n = (size_t)rows[i];
        part.x += from * 592;
        gemm_run(names[i % 3], &part, rows[i], &some);
        ck_assert_mem_eq(some.logits, all.logits + from * 40, n * 160);
        ck_assert_mem_eq(some.ids, all.ids + from * 5, n * 20);
        ck_assert_mem_eq(some.weights, all.weights + from * 5, n * 20);
        kernel_run_free(&some);
    }
    kernel_run_free(&all);
    gemm_free(&g);
}
END_TEST

START_TEST(reject_what_single_does_not_serve)
{
    struct mr_kernel_problem p = {
        .rows = 4,
        .router = {.experts = 60, .top_k = 2, .hidden = 24, .n_group = 1, .topk_group = 1}};
    char text[128] = "";
    struct mr_kernel_why why = {text, sizeof text};
    ck_assert(!kernel_find("single")->supports(&p, why));
    ck_assert_str_eq(text, "hidden 24: not a multiple of 16");
    p.router.hidden = 48;
    ck_assert(kernel_find("single")->supports(&p, why));
    p.router.top_k = 33;
    ck_assert(!kernel_find("single_sorted")->supports(&p, why));
    ck_assert_str_eq(text, "top_k 33: at most 32");
    p.router.top_k = 2;
    p.router.experts = 1040;
    ck_assert(!kernel_find("single")->supports(&p, why));
    ck_assert_str_eq(text, "1040 experts: at most 1024");
}
END_TEST

Suite *suite_kernel_single(void)
{
    Suite *s = suite_create("kernel_single");
    TCase *t = tcase_create("kernel_single");
    tcase_add_loop_test(t, corroborate_single_is_its_line, 0, SLOW_CLASSES);
    tcase_add_test(t, corroborate_single_routers);
    tcase_add_test(t, verify_single_rows);
    tcase_add_test(t, reject_what_single_does_not_serve);
    TCase *many = tcase_create("kernel_single_tiles");
    tcase_add_loop_test(many, corroborate_single_tiles, 0, sizeof tiles / sizeof *tiles);
    tcase_set_timeout(many, 120);
    suite_add_tcase(s, t);
    suite_add_tcase(s, many);
    return s;
}
