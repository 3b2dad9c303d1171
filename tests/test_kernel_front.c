/* The kernels of gpu/kernels/merged_front.cu on the CPU: the radix select where its bins are hard
 * (test_kernel_lines.c has all classes and routers), and the whole front: stacked weight, logits,
 * the cast of the rest. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../gpu/kernels/front.h"
#include "../ref/arith/replay.h"
#include "../ref/num/num.h"
#include "support/kernel_run.h"
#include "support/slow_sum.h"

Suite *suite_kernel_front(void);

enum { EXPERTS = 1024 };

/* Keys that share all digits, all but one, few values, and any bits at all. */
static uint32_t key_bits(int class, uint64_t random)
{
    uint32_t r = (uint32_t)(random >> 29);
    switch (class) {
    case 0: return 0x413d8a00u;
    case 1: return 0x413d8a00u | (r & 0xff);
    case 2: return 0x413d0012u | (r & 0xff) << 8;
    case 3: return 0x41000012u | (r & 0x7f) << 16;
    case 4: return 0x00003412u | (r & 0xff) << 24; /* both signs, NaN at 0x7f, 0xff, ... */
    case 5: return 0x413d8a00u | (r & 3);
    case 6: return r & 1 ? 0x80000000u : r & 2 ? 0 : 0xff800000u | (r & 4) << 10;
    default: return r;
    }
}

/* By logit, so that the keys are these very bits; top_k above and below the number of threads. */
START_TEST(corroborate_radix_select_on_hard_bins)
{
    static const int top_k[] = {1, 16, 255, 300, 1024};
    uint64_t random = 8;
    float *logits = malloc(2 * EXPERTS * sizeof *logits);
    int32_t *ids = malloc(2 * EXPERTS * sizeof *ids);
    float *weights = malloc(2 * EXPERTS * sizeof *weights);
    for (int i = 0; i < 2 * EXPERTS; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint32_t bits = key_bits(_i, random);
        memcpy(&logits[i], &bits, 4);
    }
    for (int i = 0; i < 10; i++) {
        struct mr_kernel_router r = {.experts = i < 5 ? EXPERTS : 1000,
                                     .top_k = top_k[i % 5],
                                     .score = MR_KERNEL_SIGMOID,
                                     .rank_by_logit = 1,
                                     .n_group = 1,
                                     .topk_group = 1,
                                     .norm_topk_prob = i & 1,
                                     .routed_scaling_factor = 1};
        struct kernel_run run;
        if (r.top_k > r.experts) r.top_k = r.experts;
        for (int t = 0; t < 2; t++)
            stated_route(&r, logits + t * r.experts, NULL, ids + t * r.top_k,
                         weights + t * r.top_k);
        kernel_run("radix_select", &r, 2, &(struct kernel_inputs){.given = logits}, &run);
        for (int j = 0; j < 2 * r.top_k; j++) {
            ck_assert_msg(ids[j] == run.ids[j], "class %d, top %d of %d, slot %d: %d, not %d", _i,
                          r.top_k, r.experts, j, run.ids[j], ids[j]);
            ck_assert_msg(slow_bits(weights[j]) == slow_bits(run.weights[j]),
                          "class %d, top %d, slot %d: %a, not %a", _i, r.top_k, j, run.weights[j],
                          weights[j]);
        }
        kernel_run_free(&run);
    }
    free(logits);
    free(ids);
    free(weights);
}
END_TEST

struct front {
    struct mr_kernel_problem p;
    uint16_t *x, *stacked, *state;
    float *bias, *weights, *logits;
    int32_t *ids;
    char *scratch;
};

static void front_run(struct front *f, int rows, int experts, int hidden, enum slow_class class)
{
    uint64_t seed = 17 + (uint64_t) class;
    char text[128] = "";
    struct mr_kernel_why why = {text, sizeof text};
    const struct mr_kernel *k = kernel_find("merged_front_logits");
    size_t nx = (size_t)rows * (size_t)hidden, nw = (size_t)(experts + FRONT_ROWS) * (size_t)hidden;
    size_t gate = (size_t)experts * (size_t)hidden;
    float *x = malloc((nx + gate) * sizeof *x);
    struct mr_kernel_sizes sizes = {0, 0};
    void *handle = NULL;
    *f = (struct front){.p = {.router = {.experts = experts,
                                         .top_k = 3,
                                         .hidden = hidden,
                                         .score = MR_KERNEL_SIGMOID,
                                         .bias = 1,
                                         .n_group = 1,
                                         .topk_group = 1,
                                         .norm_topk_prob = 1,
                                         .routed_scaling_factor = 2.5},
                              .rows = rows,
                              .hidden_type = MR_KERNEL_BF16,
                              .gate_type = MR_KERNEL_BF16},
                        .x = malloc(nx * 2),
                        .stacked = malloc(nw * 2),
                        .bias = malloc((size_t)experts * 4),
                        .weights = malloc((size_t)rows * 12),
                        .ids = malloc((size_t)rows * 12),
                        .logits = malloc((size_t)rows * (size_t)experts * 4)};
    slow_fill(&seed, class, 8, x, nx + gate);
    slow_fill(&seed, SLOW_NORMAL, 24, f->bias, (size_t)experts);
    for (size_t i = 0; i < nx; i++) f->x[i] = mr_bf16_encode(x[i], MR_RNE, MR_OVERFLOW_IEEE);
    for (size_t i = 0; i < nw; i++)
        f->stacked[i] = i < gate ? mr_bf16_encode(x[nx + i], MR_RNE, MR_OVERFLOW_IEEE)
                                 : front_weight((uint32_t)(i - gate));
    free(x);
    ck_assert_int_eq(k->sizes(&f->p, &sizes, why), MR_KERNEL_OK);
    ck_assert_uint_eq(sizes.state, nw * 2);
    f->state = malloc(sizes.state);
    f->scratch = malloc(sizes.scratch);
    memset(f->scratch, 0xcb, sizes.scratch);
    struct mr_kernel_buffers b = {.hidden = f->x,
                                  .gate = f->stacked,
                                  .bias = f->bias,
                                  .logits = f->logits,
                                  .ids = f->ids,
                                  .weights = f->weights,
                                  .state = f->state,
                                  .scratch = f->scratch};
    ck_assert_int_eq(k->prepare(&f->p, &b, NULL, &handle, why), MR_KERNEL_OK);
    ck_assert_mem_eq(f->state, f->stacked, nw * 2);
    ck_assert_int_eq(k->launch(handle, &f->p, &b, NULL, why), MR_KERNEL_OK);
    k->release(handle);
}

static void front_free(struct front *f)
{
    free(f->x);
    free(f->stacked);
    free(f->state);
    free(f->bias);
    free(f->weights);
    free(f->logits);
    free(f->ids);
    free(f->scratch);
}

/* The replay of the declared line over the whole stack: its first columns are the logits, and the
 * rest of it, rounded once, is the rest. Experts that let four be cast at a time, and not. */
START_TEST(corroborate_front_is_its_stack)
{
    static const int experts[] = {60, 61, 62, 288};
    for (int i = 0; i < 4; i++) {
        struct front f;
        struct mr_arith arith;
        struct mr_error err = {{0}};
        struct mr_replay *replay;
        int rows = 3, hidden = 16, n = experts[i];
        size_t columns = (size_t)(n + FRONT_ROWS);
        float *all = malloc((size_t)rows * columns * sizeof *all);
        char line[64] = "";
        front_run(&f, rows, n, hidden, (enum slow_class)_i);
        kernel_find("merged_front")->arith(&f.p, line, sizeof line);
        struct mr_gemm in = {.hidden = {f.x, MR_BF16, (size_t)rows, (size_t)hidden},
                             .gate = {f.stacked, MR_BF16, columns, (size_t)hidden}};
        ck_assert_msg(!mr_arith_parse(line, &arith, &err), "%s", err.text);
        ck_assert_msg(!mr_replay_new(&arith, &in, &replay, &err), "%s", err.text);
        ck_assert_msg(!mr_replay_rows(replay, 0, (size_t)rows, all, &err), "%s", err.text);
        const uint16_t *rest = (const uint16_t *)(f.scratch + front_merged_bytes(&f.p));
        for (int t = 0; t < rows; t++) {
            const float *row = all + (size_t)t * columns;
            int32_t ids[3];
            float weights[3];
            for (int e = 0; e < n; e++)
                ck_assert_uint_eq(slow_bits(row[e]), slow_bits(f.logits[t * n + e]));
            for (int c = 0; c < FRONT_ROWS; c++) {
                uint16_t expected = mr_bf16_encode(row[n + c], MR_RNE, MR_OVERFLOW_IEEE);
                uint16_t found = rest[t * FRONT_ROWS + c];
                if ((expected & 0x7fff) > 0x7f80) expected = 0x7fff; /* CUDA's NaN */
                ck_assert_msg(expected == found, "%d experts, row %d, column %d: %a became %04x", n,
                              t, c, row[n + c], found);
            }
            stated_route(&f.p.router, f.logits + t * n, f.bias, ids, weights);
            ck_assert_mem_eq(ids, f.ids + 3 * t, sizeof ids);
            for (int j = 0; j < 3; j++)
                ck_assert_uint_eq(slow_bits(weights[j]), slow_bits(f.weights[3 * t + j]));
        }
        mr_replay_free(replay);
        free(all);
        front_free(&f);
    }
}
END_TEST

/* A gate bias, softmax, groups; no logits asked for. */
START_TEST(corroborate_front_without_its_logits)
{
    struct kernel_run run;
    struct mr_kernel_router r = {.experts = 9,
                                 .top_k = 4,
                                 .hidden = 16,
                                 .score = MR_KERNEL_SOFTMAX,
                                 .gate_bias = 1,
                                 .n_group = 3,
                                 .topk_group = 2,
                                 .norm_topk_prob = 1,
                                 .routed_scaling_factor = 1};
    uint16_t x[32], w[144];
    float gate_bias[9], logits[18];
    uint64_t seed = 4;
    for (int i = 0; i < 32; i++) x[i] = (uint16_t)(0x3f80 + i % 7);
    for (int i = 0; i < 144; i++) w[i] = (uint16_t)(0x3c00 + i * 5 % 256);
    slow_fill(&seed, SLOW_NORMAL, 8, gate_bias, 9);
    kernel_run("merged_front", &r, 2,
               &(struct kernel_inputs){.hidden = x, .gate = w, .gate_bias = gate_bias}, &run);
    for (int t = 0; t < 2; t++)
        for (int e = 0; e < 9; e++) {
            float sum = 0;
            for (int i = 0; i < 16; i++)
                sum = __builtin_fmaf(mr_bf16_decode(x[t * 16 + i]), mr_bf16_decode(w[e * 16 + i]),
                                     sum);
            logits[t * 9 + e] = sum + gate_bias[e];
        }
    for (int t = 0; t < 2; t++) {
        int32_t ids[4];
        float weights[4];
        stated_route(&r, logits + t * 9, NULL, ids, weights);
        ck_assert_mem_eq(ids, run.ids + 4 * t, sizeof ids);
        ck_assert_mem_eq(weights, run.weights + 4 * t, sizeof weights);
    }
    kernel_run_free(&run);
}
END_TEST

Suite *suite_kernel_front(void)
{
    Suite *s = suite_create("kernel_front");
    TCase *t = tcase_create("kernel_front");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, corroborate_radix_select_on_hard_bins, 0, 8);
    tcase_add_loop_test(t, corroborate_front_is_its_stack, 0, SLOW_CLASSES);
    tcase_add_test(t, corroborate_front_without_its_logits);
    suite_add_tcase(s, t);
    return s;
}
