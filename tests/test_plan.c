/* Plans: every term once, one tree, the depth, and the key by which equal sums are known. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/arith/arith.h"
#include "../ref/arith/mma.h"
#include "support/mpfr_oracle.h"
#include "support/slow_sum.h"

Suite *suite_plan(void);

static const char *const instructions[] = {"hopper-bf16", "ampere-bf16", NULL};

static void ck_plan(const struct mr_sum_shape *sum, size_t n, const struct mr_plan *p)
{
    char text[MR_SUM_TEXT];
    mr_sum_print(sum, text, sizeof text);
    ck_assert_uint_eq(p->terms, n);
    if (!n) {
        ck_assert_uint_eq(p->parts, 0);
        ck_assert_uint_eq(p->steps, 0);
        ck_assert_uint_eq(p->depth, 0);
        return;
    }
    char *seen = calloc(n + p->parts, 1), *gone = seen + n;
    ck_assert_uint_eq(p->begin[0], 0);
    ck_assert_msg(p->begin[p->parts] == n, "%s, %zu terms", text, n);
    for (size_t i = 0; i < p->parts; i++)
        ck_assert_msg(p->begin[i] < p->begin[i + 1], "%s, %zu terms: part %zu is empty", text, n,
                      i);
    for (size_t i = 0; i < n; i++) {
        size_t term = p->order ? p->order[i] : i;
        ck_assert_uint_lt(term, n);
        ck_assert_msg(!seen[term]++, "%s, %zu terms: term %zu twice", text, n, term);
    }
    /* Each partial sum but the first goes into another, once, and is not touched after that. */
    size_t left = p->parts;
    for (size_t i = 0; i < p->steps; i++) {
        const struct mr_plan_step *s = &p->step[i];
        ck_assert_uint_lt(s->into, p->parts);
        ck_assert_uint_lt(s->from, p->parts);
        ck_assert_msg(!gone[s->into] && !gone[s->from], "%s, %zu terms: step %zu", text, n, i);
        if (s->into == s->from) {
            ck_assert_int_ge(s->block, 0);
            continue;
        }
        gone[s->from] = 1;
        left--;
    }
    ck_assert_msg(left == 1 && !gone[0], "%s, %zu terms: %zu partial sums are left", text, n, left);
    free(seen);
}

START_TEST(verify_one_tree)
{
    uint64_t seed = 31;
    for (int i = 0; i < 1500; i++) {
        struct mr_sum_shape sum;
        struct mr_plan plan;
        size_t n = oracle_random(&seed) % (i % 10 ? 150 : 5000);
        slow_shape(&seed, n, MR_SUM_LEVELS, instructions, &sum);
        ck_assert(!mr_plan_make(&sum, n, &plan, NULL));
        ck_plan(&sum, n, &plan);
        mr_plan_free(&plan);
    }
}
END_TEST

static struct mr_sum_shape shape(const char *text)
{
    struct mr_arith a;
    struct mr_error err = {{0}};
    ck_assert_msg(!mr_arith_parse(text, &a, &err), "%s", err.text);
    return a.sum;
}

/* Parts of known kernels, counted by hand: numerics of cuBLAS on an H200 at K = 4096. */
START_TEST(validate_parts)
{
    static const struct {
        const char *line;
        size_t terms, parts, first, last, depth;
    } rows[] = {
        {"fma", 4096, 1, 4096, 4096, 4096},
        {"mul-add", 4096, 1, 4096, 4096, 4097},
        {"hopper-bf16", 4096, 1, 4096, 4096, 256},
        {"hopper-bf16/runs:3x64", 4096, 3, 22 * 64, 20 * 64, 88 + 2},
        {"hopper-bf16/runs:2x64", 4096, 2, 2048, 2048, 128 + 1},
        {"hopper-bf16/runs:3x64", 64, 1, 64, 64, 4},
        {"hopper-bf16/even:3x64", 4096, 3, 22 * 64, 21 * 64, 88 + 2},
        {"fma/deal:6x8", 4096, 6, 688, 680, 688 + 5},
        {"fma/deal:16x8", 4096, 16, 256, 256, 256 + 15},
        {"fma/deal:32:halves", 4096, 32, 128, 128, 128 + 5},
        {"fma/even:32:halves", 512, 32, 16, 16, 16 + 5},
        {"fma/deal:64x8", 512, 64, 8, 8, 8 + 63},
        {"fma/runs:64", 5, 5, 1, 1, 1 + 4},
        {"fma/every:128", 300, 3, 128, 44, 128 + 2},
        {"hopper-e4m3/promote:128", 300, 3, 128, 44, 4 + 2 * 3},
        {"fma/runs:7", 10, 5, 2, 2, 2 + 4},
        {"fma/even:7", 10, 7, 2, 1, 2 + 6},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mr_sum_shape sum = shape(rows[i].line);
        struct mr_plan p;
        ck_assert(!mr_plan_make(&sum, rows[i].terms, &p, NULL));
        const char *line = rows[i].line;
        ck_assert_msg(p.parts == rows[i].parts, "%s: %zu parts", line, p.parts);
        ck_assert_msg(p.begin[1] == rows[i].first, "%s: %u", line, p.begin[1]);
        ck_assert_msg(p.begin[p.parts] - p.begin[p.parts - 1] == rows[i].last, "%s: %u", line,
                      p.begin[p.parts] - p.begin[p.parts - 1]);
        ck_assert_msg(p.depth == rows[i].depth, "%s: depth %zu", line, p.depth);
        mr_plan_free(&p);
    }
}
END_TEST

static uint64_t key_of(const struct mr_sum_shape *sum, size_t n)
{
    struct mr_plan p;
    uint64_t key;
    ck_assert(!mr_plan_make(sum, n, &p, NULL));
    ck_assert(!mr_plan_key(sum, &p, &key, NULL));
    mr_plan_free(&p);
    return key;
}

/* Spellings that are one sum at this K, and pairs that are not. */
START_TEST(validate_keys)
{
    static const struct {
        const char *a, *b;
        size_t terms;
        bool same;
    } rows[] = {
        {"fma", "fma/runs:1", 64, true},
        {"fma", "fma/deal:1x8", 64, true},
        {"fma", "mul-add", 64, false},
        {"fma/runs:2x4", "fma/even:2x4", 64, true},
        {"fma/runs:2x4", "fma/every:32", 64, true},
        {"fma/runs:4:halves", "fma/runs:4:pairs", 64, false},
        {"fma/runs:2:halves", "fma/runs:2:reverse", 64, true},
        {"fma/runs:3", "fma/runs:3:reverse", 63, false},
        {"fma/runs:3x8", "fma/even:3x8", 64, true},
        {"fma/runs:3x8", "fma/even:3x8", 56, false},
        {"fma/runs:5x8", "fma/even:5x8", 64, false},
        {"fma/deal:4x8", "fma/deal:4x4", 64, false},
        {"fma/deal:4x8", "fma/runs:4x8", 32, true},
        {"hopper-bf16/runs:3x64", "hopper-bf16/runs:3x128", 4096, true},
        {"hopper-bf16/runs:3x64", "hopper-bf16/runs:3x512", 4096, false},
        {"hopper-bf16", "ampere-bf16", 64, false},
        {"hopper-bf16/deal:2x64", "hopper-bf16/deal:2x32", 128, false},
        {"hopper-bf16/deal:2x8", "hopper-bf16/deal:2x4", 32, false},
        {"hopper-bf16/every:16:pairs", "hopper-bf16/runs:4:pairs", 64, true},
        {"fma/promote:64", "fma/every:64", 128, false},
        {"fma/deal:2:pairs/deal:2:pairs", "fma/deal:4:pairs", 16, false},
        {"fma/deal:2:halves/deal:2:halves", "fma/deal:4:halves", 16, true},
        {"mul-add", "mul-add/every:1", 64, true},
        {"fma", "fma/every:1", 64, false},
        {"mul-add/every:8:pairs", "mul-add/every:1/every:8:pairs", 64, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mr_sum_shape a = shape(rows[i].a), b = shape(rows[i].b);
        ck_assert_msg((key_of(&a, rows[i].terms) == key_of(&b, rows[i].terms)) == rows[i].same,
                      "%s, %s at %zu", rows[i].a, rows[i].b, rows[i].terms);
    }
}
END_TEST

/* Equal keys are equal bits, and different ones differ on some input, if both are made of the same
 * steps: all pairs of random shapes. (A part of one term is one product, fused or not.) */
START_TEST(corroborate_keys)
{
    enum { N = 24, SHAPES = 300, PROBES = 40 };
    static float x[PROBES * N], w[PROBES * N];
    static struct mr_sum_shape sum[SHAPES];
    static uint64_t key[SHAPES];
    static uint32_t bits[SHAPES][PROBES];
    uint64_t seed = 41;
    slow_fill(&seed, SLOW_NORMAL, 24, x, PROBES * N);
    slow_fill(&seed, SLOW_NORMAL, 24, w, PROBES * N);
    for (int i = 0; i < SHAPES; i++) {
        slow_shape(&seed, N, 2, NULL, &sum[i]);
        for (int l = 0; l < sum[i].levels; l++) /* by 1 it is every, and another tree */
            if (sum[i].level[l].cut == MR_CUT_PROMOTE) sum[i].level[l].cut = MR_CUT_EVERY;
        key[i] = key_of(&sum[i], N);
        for (int k = 0; k < PROBES; k++)
            bits[i][k] = slow_bits(slow_sum(&sum[i], x + k * N, w + k * N, N, NULL));
    }
    for (int i = 0; i < SHAPES; i++)
        for (int j = 0; j < i; j++) {
            char a[MR_SUM_TEXT], b[MR_SUM_TEXT];
            bool same = !memcmp(bits[i], bits[j], sizeof bits[i]);
            mr_sum_print(&sum[i], a, sizeof a);
            mr_sum_print(&sum[j], b, sizeof b);
            if (key[i] == key[j])
                ck_assert_msg(same, "%s, %s", a, b);
            else
                ck_assert_msg(!same || sum[i].leaf != sum[j].leaf, "%s, %s", a, b);
        }
}
END_TEST

Suite *suite_plan(void)
{
    Suite *s = suite_create("plan");
    TCase *plan = tcase_create("plan");
    tcase_add_test(plan, verify_one_tree);
    tcase_add_test(plan, validate_parts);
    tcase_add_test(plan, validate_keys);
    tcase_add_test(plan, corroborate_keys);
    suite_add_tcase(s, plan);
    return s;
}
