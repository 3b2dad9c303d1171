/* The router kernels of gpu/kernels, run on the CPU by gpu/kernels/simt.h, against the reference:
 * logits against their arithmetic line, ids and weights against the operations that select.cuh
 * states, sorted positions against harness.h, and all of it before the judge. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../gpu/harness.h"
#include "../ref/arith/replay.h"
#include "../ref/io/generate_edge.h"
#include "../ref/num/num.h"
#include "../ref/route/verify.h"
#include "support/kernel_run.h"
#include "support/slow_sum.h"

Suite *suite_kernel_lines(void);

/* --- logits --- */

struct gemm {
    int rows, experts, hidden;
    uint16_t *x, *w;
    float *bias;
};

static void gemm_new(struct gemm *g, int rows, int experts, int hidden, enum slow_class class,
                     uint64_t *seed)
{
    size_t nx = (size_t)rows * (size_t)hidden, nw = (size_t)experts * (size_t)hidden;
    float *x = malloc(nx * sizeof *x), *w = malloc(nw * sizeof *w);
    *g = (struct gemm){rows,           experts,        hidden,
                       malloc(nx * 2), malloc(nw * 2), malloc((size_t)experts * sizeof(float))};
    slow_fill(seed, class, 8, x, nx);
    slow_fill(seed, class == SLOW_SPECIAL ? SLOW_NORMAL : class, 8, w, nw);
    slow_fill(seed, SLOW_NORMAL, 24, g->bias, (size_t)experts);
    for (size_t i = 0; i < nx; i++) g->x[i] = mr_bf16_encode(x[i], MR_RNE, MR_OVERFLOW_IEEE);
    for (size_t i = 0; i < nw; i++) g->w[i] = mr_bf16_encode(w[i], MR_RNE, MR_OVERFLOW_IEEE);
    free(x);
    free(w);
}

static void gemm_free(struct gemm *g)
{
    free(g->x);
    free(g->w);
    free(g->bias);
}

/* The kernel's logits equal a replay of the line that it declares. */
static void expect_line(const char *name, const struct gemm *g, bool bias)
{
    struct kernel_run run;
    struct mr_kernel_router r = {.experts = g->experts,
                                 .top_k = 1,
                                 .hidden = g->hidden,
                                 .gate_bias = bias,
                                 .n_group = 1,
                                 .topk_group = 1,
                                 .norm_topk_prob = 1,
                                 .routed_scaling_factor = 1};
    kernel_run(
        name, &r, g->rows,
        &(struct kernel_inputs){.hidden = g->x, .gate = g->w, .gate_bias = bias ? g->bias : NULL},
        &run);
    struct mr_arith arith;
    struct mr_error err = {{0}};
    struct mr_replay *replay;
    struct mr_gemm in = {
        .hidden = {g->x, MR_BF16, (size_t)g->rows, (size_t)g->hidden},
        .gate = {g->w, MR_BF16, (size_t)g->experts, (size_t)g->hidden},
        .gate_bias = bias ? g->bias : NULL,
    };
    size_t n = (size_t)g->rows * (size_t)g->experts;
    float *expected = malloc(n * sizeof *expected);
    ck_assert_msg(!mr_arith_parse(run.line, &arith, &err), "%s", err.text);
    ck_assert_int_ne(arith.sum.leaf, MR_LEAF_EXACT);
    ck_assert_msg(!mr_replay_new(&arith, &in, &replay, &err), "%s", err.text);
    ck_assert_msg(!mr_replay_rows(replay, 0, (size_t)g->rows, expected, &err), "%s", err.text);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(slow_bits(expected[i]) == slow_bits(run.logits[i]),
                      "%s, %d x %d x %d, logit %zu: %a, %s makes it %a", name, g->rows, g->experts,
                      g->hidden, i, run.logits[i], run.line, expected[i]);
    mr_replay_free(replay);
    free(expected);
    kernel_run_free(&run);
}

/* Tiles for a part of the block, for all of it, for more, for two rounds and more; odd experts; all
 * ways to share out rows. */
static const struct {
    int rows, experts, hidden;
} shapes[] = {{1, 1, 16},    {3, 5, 512},  {2, 4, 528},  {1, 3, 4096}, {5, 2, 4096},
              {16, 2, 2880}, {11, 3, 112}, {4, 2, 7168}, {9, 1, 4112}, {3, 1, 12304}};

START_TEST(corroborate_tiny_gemm_is_its_line)
{
    uint64_t seed = 41 + (uint64_t)_i;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct gemm g;
        gemm_new(&g, shapes[i].rows, shapes[i].experts, shapes[i].hidden, (enum slow_class)_i,
                 &seed);
        expect_line("tiny_gemm_16", &g, i % 3 == 1);
        if (i % 3 == 2) expect_line("tiny_gemm_64", &g, false);
        if (i % 4 == 0) expect_line("pair", &g, false);
        gemm_free(&g);
    }
}
END_TEST

/* All products round to -0: so does every sum of them, and threads without a tile leave it. */
START_TEST(corroborate_minus_zero)
{
    uint64_t seed = 6;
    struct gemm g;
    gemm_new(&g, 2, 3, 48, SLOW_NORMAL, &seed);
    for (int i = 0; i < 96; i++) g.x[i] = mr_bf16_encode(-0x1p-100, MR_RNE, MR_OVERFLOW_IEEE);
    for (int i = 0; i < 144; i++) g.w[i] = mr_bf16_encode(0x1p-100, MR_RNE, MR_OVERFLOW_IEEE);
    expect_line("tiny_gemm_16", &g, false);
    gemm_free(&g);
}
END_TEST

/* Rows are shared out among blocks otherwise, and their logits stay. */
START_TEST(verify_tiny_gemm_rows)
{
    uint64_t seed = 5;
    struct gemm g;
    struct kernel_run all, some;
    gemm_new(&g, 37, 3, 144, SLOW_NORMAL, &seed);
    struct mr_kernel_router r = {
        .experts = 3, .top_k = 1, .hidden = 144, .n_group = 1, .topk_group = 1};
    struct kernel_inputs in = {.hidden = g.x, .gate = g.w};
    kernel_run("tiny_gemm_64", &r, 37, &in, &all);
    for (int rows = 1; rows < 37; rows += 5) {
        in.hidden = g.x + (37 - rows) * 144;
        kernel_run(rows <= 16 ? "tiny_gemm_16" : "tiny_gemm_64", &r, rows, &in, &some);
        ck_assert_mem_eq(some.logits, all.logits + (37 - rows) * 3, (size_t)rows * 3 * 4);
        kernel_run_free(&some);
    }
    kernel_run_free(&all);
    gemm_free(&g);
}
END_TEST

/* --- ids and weights --- */

static struct mr_kernel_router kernel_router(const struct mr_router *r)
{
    return (struct mr_kernel_router){
        .experts = r->experts,
        .top_k = r->top_k,
        .hidden = 0,
        .score = r->score == MR_SCORE_SIGMOID   ? MR_KERNEL_SIGMOID
                 : r->score == MR_SCORE_SOFTMAX ? MR_KERNEL_SOFTMAX
                                                : MR_KERNEL_SQRT_SOFTPLUS,
        .rank_by_logit = r->selection == MR_SELECT_LOGIT,
        .bias = r->bias,
        .n_group = r->n_group,
        .topk_group = r->topk_group,
        .group_score = r->group_score == MR_GROUP_MAX ? MR_KERNEL_MAX : MR_KERNEL_TOP2_SUM,
        .norm_topk_prob = r->norm_topk_prob,
        .routed_scaling_factor = r->routed_scaling_factor};
}

struct input {
    struct mr_router router;
    size_t tokens;
    float *logits, *bias;
};

static void input_free(struct input *in)
{
    free(in->logits);
    free(in->bias);
}

/* tokens 0: each pattern of the class once. */
static void input_edge(struct input *in, const struct mr_edge *class, int layer, size_t tokens)
{
    struct mr_error err = {{0}};
    in->router = class->router;
    in->tokens = tokens ? tokens : mr_edge_least(class, 1);
    size_t n = (size_t)in->router.experts;
    in->logits = malloc((in->tokens * n + 1) * sizeof(float));
    in->bias = in->router.bias ? malloc(n * sizeof(float)) : NULL;
    ck_assert_msg(
        !mr_edge_layer(class, &in->router, 9, layer, in->tokens, n, in->logits, in->bias, &err),
        "%s", err.text);
}

/* Verdicts of ids and weights. */
static void judge(const struct input *in, const struct kernel_run *run, const char *line,
                  uint64_t verdicts[MR_VERDICT_COUNT])
{
    size_t n = (size_t)in->router.experts, k = (size_t)in->router.top_k;
    double *bias = calloc(n, sizeof *bias);
    uint64_t *changed = calloc(2 * n, sizeof *changed);
    struct mr_arith arith;
    struct mr_error err = {{0}};
    struct mr_verify_tally tally = {0};
    struct mr_findings found;
    for (size_t e = 0; e < n && in->bias; e++) bias[e] = in->bias[e];
    struct mr_layer layer = {.router = &in->router,
                             .logits = {in->logits, MR_F32, in->tokens, n},
                             .bias = in->bias ? bias : NULL};
    struct mr_observed o = {
        .source = "kernel",
        .rows = in->tokens,
        .tokens = in->tokens,
        .non_padded = UINT64_MAX,
        .ids = {MR_I32, 2, {in->tokens, k}, run->ids, in->tokens * k * 4},
        .weights = {MR_F32, 2, {in->tokens, k}, run->weights, in->tokens * k * 4}};
    ck_assert(!mr_arith_parse(line, &arith, &err));
    struct mr_verify_options options = {
        .threads = 1, .model = mr_error_model(&arith), .ordered = true, .phase = "all"};
    struct mr_verify_result result = {.tally = &tally, .gained = changed, .lost = changed + n};
    ck_assert(!mr_findings_new(1, (int)k, &found));
    ck_assert_msg(!mr_verify_layer(&layer, &options, &o, 1, &result, &found, &err), "%s", err.text);
    memcpy(verdicts, tally.verdicts, sizeof tally.verdicts);
    mr_findings_free(&found);
    free(changed);
    free(bias);
}

static const char *const topk_kernels[] = {"fused_topk", "naive_steps", "routing_stage",
                                           "radix_select"};

/* ids and weights of every top-k kernel are those that the stated operations give; the judge finds
 * nothing against them. */
static void expect_routed(const struct input *in, const char *about)
{
    struct mr_kernel_router r = kernel_router(&in->router);
    size_t n = in->tokens * (size_t)r.top_k;
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    float *weights = malloc((n + 1) * sizeof *weights);
    for (size_t t = 0; t < in->tokens; t++)
        stated_route(&r, in->logits + t * (size_t)r.experts, in->bias, ids + t * (size_t)r.top_k,
                     weights + t * (size_t)r.top_k);
    for (int i = 0; i < 4; i++) {
        struct kernel_run run;
        uint64_t verdicts[MR_VERDICT_COUNT];
        if (i == 2 && r.top_k > 32) continue;
        kernel_run(topk_kernels[i], &r, (int)in->tokens,
                   &(struct kernel_inputs){.given = in->logits, .bias = in->bias}, &run);
        ck_assert_msg(memcmp(ids, run.ids, n * 4) == 0, "%s: %s: ids", about, topk_kernels[i]);
        for (size_t j = 0; j < n; j++)
            ck_assert_msg(slow_bits(weights[j]) == slow_bits(run.weights[j]),
                          "%s: %s: weight %zu is %a, not %a", about, topk_kernels[i], j,
                          run.weights[j], weights[j]);
        if (i == 0) {
            judge(in, &run, "fp32", verdicts);
            ck_assert_msg(verdicts[MR_MALFORMED] + verdicts[MR_NONFINITE] + verdicts[MR_WRONG] == 0,
                          "%s: %d malformed, %d nonfinite, %d wrong", about,
                          (int)verdicts[MR_MALFORMED], (int)verdicts[MR_NONFINITE],
                          (int)verdicts[MR_WRONG]);
        }
        if (i == 2) expect_sorted(&r, (int)in->tokens, &run);
        kernel_run_free(&run);
    }
    free(ids);
    free(weights);
}

START_TEST(corroborate_topk_on_hard_inputs)
{
    const struct mr_edge *class = mr_edge_at((size_t)_i);
    for (int layer = 0; layer < class->layers; layer++) {
        struct input in;
        input_edge(&in, class, layer, 0);
        if (in.tokens > 0) expect_routed(&in, class->name);
        /* Ranked by logit, where NaN, Inf and -0 are keys. */
        if (!strstr("nan-columns nan-rows inf-columns minus-zero tie-at-cut", class->name)) {
            input_free(&in);
            continue;
        }
        in.router.selection = MR_SELECT_LOGIT;
        in.router.score = MR_SCORE_SOFTMAX;
        in.router.bias = false;
        in.router.n_group = in.router.topk_group = 1;
        free(in.bias);
        in.bias = NULL;
        if (in.tokens > 0) expect_routed(&in, class->name);
        input_free(&in);
    }
}
END_TEST

/* Every kind of router, numbers of experts around multiples of 32, top_k around 32. */
START_TEST(corroborate_topk_of_all_routers)
{
    static const int experts[] = {1, 8, 33, 60, 160, 200, 288, 512, 896, 1000};
    uint64_t seed = 77 + (uint64_t)_i;
    for (int kind = 0; kind < 7; kind++) {
        struct input in = {.router = {.experts = experts[_i],
                                      .n_group = 1,
                                      .topk_group = 1,
                                      .routed_scaling_factor = 2.5,
                                      .norm_topk_prob = true}};
        struct mr_router *r = &in.router;
        char about[64];
        int most = r->experts < 70 ? r->experts : 40;
        r->score = kind % 3 == 0   ? MR_SCORE_SIGMOID
                   : kind % 3 == 1 ? MR_SCORE_SOFTMAX
                                   : MR_SCORE_SQRT_SOFTPLUS;
        r->bias = kind < 3;
        r->norm_topk_prob = kind != 5;
        r->top_k = kind == 1 ? most : r->experts < 8 ? 1 : 8 - kind;
        if (kind == 4) r->selection = MR_SELECT_LOGIT;
        if (kind == 6) {
            r->selection = MR_SELECT_LOGIT;
            r->top_k = 1;
        }
        if (kind == 2 && r->experts % 4 == 0 && r->experts > 8) {
            r->n_group = 4;
            r->topk_group = 2;
            r->group_score = _i % 2 ? MR_GROUP_MAX : MR_GROUP_TOP2_SUM;
        }
        in.tokens = 3;
        size_t n = (size_t)r->experts;
        in.logits = malloc(in.tokens * n * sizeof(float));
        in.bias = r->bias ? malloc(n * sizeof(float)) : NULL;
        slow_fill(&seed, SLOW_NORMAL, kind == 3 ? 3 : 24, in.logits, in.tokens * n);
        if (in.bias) slow_fill(&seed, SLOW_NORMAL, 24, in.bias, n);
        snprintf(about, sizeof about, "router %d, %d experts", kind, r->experts);
        expect_routed(&in, about);
        input_free(&in);
    }
}
END_TEST

/* bf16 logits are read as they are. */
START_TEST(corroborate_bf16_logits)
{
    struct mr_kernel_router r = {.experts = 60,
                                 .top_k = 6,
                                 .score = MR_KERNEL_SOFTMAX,
                                 .n_group = 1,
                                 .topk_group = 1,
                                 .norm_topk_prob = 1,
                                 .routed_scaling_factor = 1};
    uint64_t seed = 3;
    float wide[5 * 60];
    uint16_t narrow[5 * 60];
    struct kernel_run a, b;
    slow_fill(&seed, SLOW_NORMAL, 8, wide, 300);
    for (int i = 0; i < 300; i++) narrow[i] = mr_bf16_encode(wide[i], MR_RNE, MR_OVERFLOW_IEEE);
    for (int i = 0; i < 300; i++) wide[i] = mr_bf16_decode(narrow[i]);
    static const char *const names[2][2] = {{"fused_topk", "fused_topk_bf16"},
                                            {"naive_steps", "naive_steps_bf16"}};
    kernel_run(names[_i][0], &r, 5, &(struct kernel_inputs){.given = wide}, &a);
    kernel_run(names[_i][1], &r, 5, &(struct kernel_inputs){.given = narrow}, &b);
    ck_assert_mem_eq(a.ids, b.ids, 30 * 4);
    ck_assert_mem_eq(a.weights, b.weights, 30 * 4);
    kernel_run_free(&a);
    kernel_run_free(&b);
}
END_TEST

/* --- sorted positions --- */

/* Each way to sort, at both of its ends; few experts, so that some have many tiles, and many. */
START_TEST(corroborate_sorted_positions)
{
    static const int rows[] = {1, 4, 5, 16, 17, 31, 32, 33, 255, 256, 257, 272, 513};
    struct mr_kernel_router r = {.experts = 9,
                                 .top_k = 3,
                                 .score = MR_KERNEL_SIGMOID,
                                 .n_group = 1,
                                 .topk_group = 1,
                                 .norm_topk_prob = 1,
                                 .routed_scaling_factor = 1};
    uint64_t seed = 19;
    float *logits = malloc(513 * 600 * sizeof *logits);
    struct kernel_run all, some;
    for (int many = 0; many < 2; many++) {
        r.experts = many ? 600 : 9;
        slow_fill(&seed, SLOW_NORMAL, 24, logits, 513 * (size_t)r.experts);
        kernel_run("fused_topk", &r, 513, &(struct kernel_inputs){.given = logits}, &all);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            if (many && rows[i] > 33 && rows[i] != 272) continue;
            kernel_run(i % 2 ? "routing_stage" : "routing_stage_128", &r, rows[i],
                       &(struct kernel_inputs){.given = logits}, &some);
            ck_assert_mem_eq(some.ids, all.ids, (size_t)rows[i] * 3 * 4);
            ck_assert_mem_eq(some.weights, all.weights, (size_t)rows[i] * 3 * 4);
            expect_sorted(&r, rows[i], &some);
            kernel_run_free(&some);
        }
        kernel_run_free(&all);
    }
    free(logits);
}
END_TEST

START_TEST(reject_what_no_kernel_serves)
{
    struct mr_kernel_problem p = {
        .rows = 4,
        .router = {.experts = 1025, .top_k = 2, .hidden = 32, .n_group = 1, .topk_group = 1}};
    char text[128] = "";
    struct mr_kernel_why why = {text, sizeof text};
    ck_assert(!kernel_find("fused_topk")->supports(&p, why));
    ck_assert_str_eq(text, "1025 experts: at most 1024");
    p.router.experts = 1000;
    ck_assert(kernel_find("fused_topk")->supports(&p, why));
    p.router.n_group = 40;
    ck_assert(!kernel_find("naive_steps")->supports(&p, why));
    ck_assert_str_eq(text, "40 groups: at most 32");
    p.router.n_group = 1;
    p.router.top_k = 33;
    ck_assert(!kernel_find("routing_stage")->supports(&p, why));
    ck_assert_str_eq(text, "top_k 33: at most 32");
    p.router.hidden = 24;
    ck_assert(!kernel_find("tiny_gemm_16")->supports(&p, why));
    ck_assert_str_eq(text, "hidden 24: not a multiple of 16");
    ck_assert(!kernel_find("pair")->supports(&p, why));
}
END_TEST

Suite *suite_kernel_lines(void)
{
    Suite *s = suite_create("kernel_lines");
    TCase *t = tcase_create("kernel_lines");
    tcase_add_loop_test(t, corroborate_tiny_gemm_is_its_line, 0, SLOW_CLASSES);
    tcase_add_test(t, corroborate_minus_zero);
    tcase_add_test(t, verify_tiny_gemm_rows);
    tcase_add_loop_test(t, corroborate_topk_on_hard_inputs, 0, (int)mr_edge_count());
    tcase_add_loop_test(t, corroborate_topk_of_all_routers, 0, 10);
    tcase_add_loop_test(t, corroborate_bf16_logits, 0, 2);
    tcase_add_test(t, corroborate_sorted_positions);
    tcase_add_test(t, reject_what_no_kernel_serves);
    suite_add_tcase(s, t);
    return s;
}
