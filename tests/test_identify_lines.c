/* identify on logits whose arithmetic is known: lines of the family, drawn at random and computed
 * by slow_sum.c, are named; sums outside of it are not. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/arith/replay_compare.h"
#include "../ref/num/bits.h"
#include "../ref/num/num.h"
#include "support/identify_puzzle.h"
#include "support/mpfr_oracle.h"

Suite *suite_identify_lines(void);

static bool is_long(void)
{
    return getenv("MOEREF_LONG") != NULL;
}

/* Draws a line, computes logits by it, and has them named. */
static bool is_named(uint64_t seed, const struct mr_family *simt, const struct mr_family *mma,
                     enum mr_dtype dtype, enum mr_type logits, size_t rows, size_t experts)
{
    struct identify_puzzle p;
    struct mr_identified found;
    struct mr_arith a;
    char text[MR_ARITH_TEXT];
    puzzle_line(&seed, simt, mma, dtype, &a);
    a.logits = logits;
    puzzle_new(&seed, dtype, rows, experts, simt->terms, &p);
    puzzle_solve(&p, &a);
    puzzle_identify(&p, &found);
    mr_arith_print(&a, text, sizeof text);
    bool hit = puzzle_listed(&found, text) || puzzle_equal_listed(&found, &a, p.terms);
    if (!hit) printf("%zu terms, %s: not among %zu lines\n", p.terms, text, found.lines);
    hit &= !found.everything && found.checked == rows * experts && !found.mismatches;
    mr_identified_free(&found);
    puzzle_free(&p);
    return hit;
}

/* How many of `count` lines are named; a thread does a line alone. */
static int named(uint64_t seed, enum mr_dtype dtype, enum mr_type logits, size_t terms,
                 size_t rows, size_t experts, int count)
{
    struct mr_family simt, mma;
    int hits = 0;
    if (is_long()) count *= 2;
    ck_assert(!mr_family_make(MR_FAMILY_SIMT, terms, &simt, NULL));
    ck_assert(!mr_family_make(MR_FAMILY_MMA, terms, &mma, NULL));
#pragma omp parallel for schedule(dynamic) reduction(+ : hits)
    for (int i = 0; i < count; i++)
        hits += is_named(seed * 1000 + (uint64_t)i, &simt, &mma, dtype, logits, rows, experts);
    mr_family_free(&simt);
    mr_family_free(&mma);
    return hits;
}

/* 200 lines of the family: every one. */
START_TEST(corroborate_random_lines_are_named)
{
    int hits = named(1, MR_BF16, MR_TYPE_FP32, 512, 1, 24, 40) +
               named(2, MR_BF16, MR_TYPE_FP32, 256, 1, 24, 145) +
               named(3, MR_BF16, MR_TYPE_FP32, 1000, 1, 24, 8) +
               named(4, MR_BF16, MR_TYPE_FP32, 2048, 1, 24, 2) +
               named(5, MR_BF16, MR_TYPE_FP32, 4096, 1, 24, 1) +
               named(6, MR_F32, MR_TYPE_FP32, 256, 1, 24, 2) +
               named(7, MR_F16, MR_TYPE_FP32, 256, 1, 24, 1) +
               named(8, MR_BF16, MR_TYPE_BF16, 512, 16, 128, 1);
    ck_assert_int_eq(hits, is_long() ? 400 : 200);
}
END_TEST

START_TEST(corroborate_many_random_lines_are_named)
{
    if (!is_long()) return;
    int hits = named(11, MR_BF16, MR_TYPE_FP32, 4096, 2, 30, 20) +
               named(12, MR_BF16, MR_TYPE_FP32, 7168, 2, 30, 5) +
               named(13, MR_BF16, MR_TYPE_FP32, 2048, 2, 30, 25) +
               named(14, MR_BF16, MR_TYPE_FP32, 512, 1, 24, 100) +
               named(15, MR_F32, MR_TYPE_FP32, 512, 2, 30, 20) +
               named(16, MR_F16, MR_TYPE_FP32, 512, 2, 30, 10) +
               named(17, MR_BF16, MR_TYPE_BF16, 1000, 16, 128, 15) +
               named(18, MR_F16, MR_TYPE_FP16, 512, 16, 128, 5);
    ck_assert_int_eq(hits, 400);
}
END_TEST

/* What the family does not hold is not named, and the nearest line is measured. */
START_TEST(reject_sums_outside_the_family)
{
    uint64_t seed = 21;
    struct identify_puzzle p;
    struct mr_identified found;
    puzzle_new(&seed, MR_BF16, 2, 40, is_long() ? 4096 : 512, &p);
    outside_solve(&p, _i);
    puzzle_identify(&p, &found);
    ck_assert_msg(!found.lines && !found.everything, "%s: named %s", outside_name(_i),
                  found.lines ? found.line[0].text : "everything");
    ck_assert_uint_ge(found.mismatches, 1);
    ck_assert_uint_le(found.mismatches, 80);
    struct mr_arith nearest;
    ck_assert(!mr_arith_parse(found.nearest, &nearest, NULL));
    /* The nearest line is as far as it is said to be. */
    float *wanted = malloc(80 * sizeof *wanted);
    memcpy(wanted, p.logits, 80 * sizeof *wanted);
    puzzle_solve(&p, &nearest);
    uint64_t differ = 0;
    for (int i = 0; i < 80; i++) differ += f32_bits(wanted[i]) != f32_bits(p.logits[i]);
    ck_assert_uint_eq(differ, found.mismatches);
    free(wanted);
    mr_identified_free(&found);
    puzzle_free(&p);
}
END_TEST

static void solve_line(struct identify_puzzle *p, const char *line)
{
    struct mr_arith a;
    ck_assert(!mr_arith_parse(line, &a, NULL));
    puzzle_solve(p, &a);
}

/* Whether the text is the same tree. */
static bool same_sum(const struct mr_arith *a, const char *text, size_t terms)
{
    char copy[MR_ARITH_TEXT];
    struct mr_identified one = {.line = &(struct mr_identified_line){.text = copy}, .lines = 1};
    snprintf(copy, sizeof copy, "%s", text);
    return puzzle_equal_listed(&one, a, terms);
}

/* One wrong bit in any one logit, be it a telling one or not: the line is the nearest, with one
 * mismatch. */
START_TEST(reject_one_wrong_bit)
{
    static const char *const lines[] = {"fma/deal:16x8", "hopper-bf16/runs:3x64",
                                        "hopper-bf16+bf16-logits"};
    uint64_t seed = 31;
    for (int l = 0; l < 3; l++) {
        struct identify_puzzle p;
        size_t rows = l < 2 ? 2 : 16;
        puzzle_new(&seed, MR_BF16, rows, 50, 512, &p);
        solve_line(&p, lines[l]);
        for (size_t n = 0; n < 6; n++) {
            size_t at = n * (rows * 50 / 6) + n;
            float right = p.logits[at];
            struct mr_identified found;
            p.logits[at] = f32_from(f32_bits(right) ^ (l < 2 ? 1u : 0x10000u));
            puzzle_identify(&p, &found);
            ck_assert_uint_eq(found.lines, 0);
            ck_assert_uint_eq(found.mismatches, 1);
            struct mr_arith a;
            ck_assert(!mr_arith_parse(lines[l], &a, NULL));
            if (l < 2) ck_assert(same_sum(&a, found.nearest, 512));
            mr_identified_free(&found);
            p.logits[at] = right;
        }
        puzzle_free(&p);
    }
}
END_TEST

/* NaN and Inf are left out, all else must fit; without anything finite everything does. */
START_TEST(verify_logits_that_are_not_finite)
{
    uint64_t seed = 41;
    struct identify_puzzle p;
    struct mr_identified found;
    puzzle_new(&seed, MR_BF16, 3, 20, 256, &p);
    solve_line(&p, "fma/deal:4x8");
    p.logits[3] = NAN;
    p.logits[17] = INFINITY;
    for (int i = 20; i < 40; i++) p.logits[i] = -NAN;
    puzzle_identify(&p, &found);
    ck_assert_uint_eq(found.not_finite, 22);
    ck_assert_uint_eq(found.checked, 38);
    ck_assert(puzzle_listed(&found, "fma/deal:4x8"));
    mr_identified_free(&found);
    for (int i = 0; i < 60; i++) p.logits[i] = NAN;
    puzzle_identify(&p, &found);
    ck_assert(found.everything);
    ck_assert_uint_eq(found.checked, 0);
    mr_identified_free(&found);
    puzzle_free(&p);
}
END_TEST

/* No rows; hidden states of zeros; a sum that is exact in every order. */
START_TEST(verify_logits_that_tell_nothing)
{
    uint64_t seed = 51;
    for (int i = 0; i < 3; i++) {
        struct identify_puzzle p;
        struct mr_identified found;
        puzzle_new(&seed, MR_BF16, 2, 20, 64, &p);
        for (size_t j = 0; j < 2 * 64; j++) {
            float v = i == 2 ? (float)(j % 3) : 0;
            ((uint16_t *)p.stored_x)[j] = mr_bf16_encode(v, MR_RNE, MR_OVERFLOW_IEEE);
            p.x[j] = v;
        }
        for (size_t j = 0; j < 20 * 64; j++) {
            p.w[j] = (float)(int)(j * j % 5) - 2;
            ((uint16_t *)p.stored_w)[j] = mr_bf16_encode(p.w[j], MR_RNE, MR_OVERFLOW_IEEE);
        }
        solve_line(&p, "hopper-bf16");
        if (i == 0) p.rows = 0;
        puzzle_identify(&p, &found);
        ck_assert_msg(found.everything, "%d", i);
        ck_assert_uint_eq(found.checked, i ? 40 : 0);
        ck_assert_uint_gt(found.lines, 0);
        mr_identified_free(&found);
        puzzle_free(&p);
    }
}
END_TEST

/* Fewer rows of logits than tokens; a gate bias; types other than binary32 as stored. */
START_TEST(verify_partial_rows_bias_and_stored_types)
{
    uint64_t seed = 61;
    struct identify_puzzle p;
    struct mr_identified found;
    float bias[40];
    uint16_t stored[16 * 40];
    puzzle_new(&seed, MR_BF16, 16, 40, 256, &p);
    solve_line(&p, "fma/runs:6x16:halves");
    for (int e = 0; e < 40; e++) bias[e] = (float)e * 0.013f - 0.2f;
    for (int i = 0; i < 16 * 40; i++) {
        p.logits[i] += bias[i % 40];
        stored[i] = mr_fp16_encode(p.logits[i], MR_RNE, MR_OVERFLOW_IEEE);
    }
    struct mr_gemm gemm = puzzle_gemm(&p);
    struct mr_matrix observed = puzzle_observed(&p);
    gemm.gate_bias = bias;
    observed.rows = 5;
    ck_assert(!mr_identify(&gemm, &observed, NULL, &found, NULL));
    ck_assert(puzzle_listed(&found, "fma/runs:6x16:halves"));
    ck_assert_uint_eq(found.checked, 200);
    mr_identified_free(&found);
    observed = (struct mr_matrix){stored, MR_F16, 16, 40};
    ck_assert(!mr_identify(&gemm, &observed, NULL, &found, NULL));
    ck_assert(puzzle_listed(&found, "fma/runs:6x16:halves+fp16-logits"));
    ck_assert(!puzzle_listed(&found, "fma/runs:6x16:halves"));
    mr_identified_free(&found);
    gemm.gate_bias = NULL;
    observed = puzzle_observed(&p);
    ck_assert(!mr_identify(&gemm, &observed, NULL, &found, NULL));
    ck_assert_uint_eq(found.lines, 0);
    mr_identified_free(&found);
    puzzle_free(&p);
}
END_TEST

/* The same answer from any number of threads. */
START_TEST(verify_threads_do_not_matter)
{
    static const char *const lines[] = {"fma/deal:7x8+bf16-logits", "fma/every:24"};
    uint64_t seed = 71;
    for (int l = 0; l < 2; l++) {
        struct identify_puzzle p;
        struct mr_identified one, other;
        puzzle_new(&seed, MR_BF16, 16, 64, 256, &p);
        solve_line(&p, lines[l]);
        struct mr_gemm gemm = puzzle_gemm(&p);
        struct mr_matrix observed = puzzle_observed(&p);
        ck_assert(!mr_identify(&gemm, &observed, &(struct mr_identify_options){.threads = 1}, &one,
                               NULL));
        for (int threads = 2; threads < 4 + 4 * is_long(); threads++) {
            struct mr_identify_options options = {.threads = threads};
            ck_assert(!mr_identify(&gemm, &observed, &options, &other, NULL));
            ck_assert_uint_eq(one.lines, other.lines);
            ck_assert_uint_eq(one.sums, other.sums);
            ck_assert_uint_eq(one.mismatches, other.mismatches);
            ck_assert_str_eq(one.nearest, other.nearest);
            for (size_t i = 0; i < one.lines; i++) {
                ck_assert_str_eq(one.line[i].text, other.line[i].text);
                ck_assert_uint_eq(one.line[i].sum, other.line[i].sum);
            }
            mr_identified_free(&other);
        }
        mr_identified_free(&one);
        puzzle_free(&p);
    }
}
END_TEST

/* Every line that is listed gives all bits, each sum is listed once, and lines of one sum agree on
 * other operands too. */
START_TEST(corroborate_listed_lines_fit)
{
    uint64_t seed = 81;
    struct identify_puzzle p, other;
    struct mr_identified found;
    puzzle_new(&seed, MR_BF16, 4, 64, 256, &p);
    puzzle_new(&seed, MR_BF16, 1, 8, 256, &other);
    solve_line(&p, "hopper-bf16/runs:2x64+bf16-logits");
    puzzle_identify(&p, &found);
    ck_assert_uint_gt(found.sums, 10);
    ck_assert(puzzle_listed(&found, "hopper-bf16/runs:2x64+bf16-logits"));
    float wanted[4 * 64], first[8];
    memcpy(wanted, p.logits, sizeof wanted);
    size_t stride = found.lines / 40 + 1;
    for (size_t i = 0; i < found.lines; i += stride) {
        solve_line(&p, found.line[i].text);
        ck_assert_msg(!memcmp(wanted, p.logits, sizeof wanted), "%s", found.line[i].text);
        struct mr_arith a;
        ck_assert(!mr_arith_parse(found.line[i].text, &a, NULL));
        if (a.sum.leaf == MR_LEAF_EXACT) continue;
        a.logits = MR_TYPE_FP32;
        puzzle_solve(&other, &a);
        memcpy(first, other.logits, sizeof first);
        size_t next = i + 1;
        if (next == found.lines || found.line[next].sum != found.line[i].sum) continue;
        ck_assert(!mr_arith_parse(found.line[next].text, &a, NULL));
        a.logits = MR_TYPE_FP32;
        puzzle_solve(&other, &a);
        ck_assert_msg(!memcmp(first, other.logits, sizeof first), "%s", found.line[next].text);
    }
    mr_identified_free(&found);
    puzzle_free(&p);
    puzzle_free(&other);
}
END_TEST

/* Outputs that are skipped, since a line cannot err so far, do agree: every sum that is listed gives
 * all bits, by the engine of replay. */
START_TEST(corroborate_every_sum_with_replay)
{
    static const char *const lines[] = {"fma/deal:32:halves+bf16-logits",
                                        "hopper-bf16/runs:2x16+bf16-logits",
                                        "fma/even:5x8+fp16-logits"};
    uint64_t seed = 85;
    for (int l = 0; l < 3; l++) {
        struct identify_puzzle p;
        struct mr_identified found;
        puzzle_new(&seed, MR_BF16, 48, 96, 64, &p);
        solve_line(&p, lines[l]);
        puzzle_identify(&p, &found);
        struct mr_gemm gemm = puzzle_gemm(&p);
        struct mr_matrix observed = puzzle_observed(&p);
        ck_assert(puzzle_listed(&found, lines[l]));
        ck_assert_uint_gt(found.sums, 1);
        for (size_t i = 0; i < found.lines; i++) {
            if (i && found.line[i].sum == found.line[i - 1].sum) continue;
            struct mr_arith a;
            struct mr_replay *replay;
            struct mr_replay_tally tally;
            ck_assert(!mr_arith_parse(found.line[i].text, &a, NULL));
            ck_assert(!mr_replay_new(&a, &gemm, &replay, NULL));
            ck_assert(!mr_replay_compare(replay, &observed, 1, &tally, NULL));
            mr_replay_free(replay);
            ck_assert_msg(!tally.mismatches, "%s: %d differ", found.line[i].text,
                          (int)tally.mismatches);
        }
        mr_identified_free(&found);
        puzzle_free(&p);
    }
}
END_TEST

START_TEST(reject_what_does_not_belong_together)
{
    uint64_t seed = 91;
    struct identify_puzzle p;
    struct mr_identified found;
    struct mr_error err = {{0}};
    puzzle_new(&seed, MR_BF16, 2, 20, 64, &p);
    struct mr_gemm gemm = puzzle_gemm(&p);
    struct mr_matrix observed = puzzle_observed(&p), bad = observed;
    bad.cols = 19;
    ck_assert_int_eq(mr_identify(&gemm, &bad, NULL, &found, &err), MR_ERR_SHAPE);
    ck_assert(strstr(err.text, "found 2 of 19"));
    bad = observed;
    bad.rows = 3;
    ck_assert_int_eq(mr_identify(&gemm, &bad, NULL, &found, &err), MR_ERR_SHAPE);
    bad = observed;
    bad.dtype = MR_F64;
    ck_assert_int_eq(mr_identify(&gemm, &bad, NULL, &found, &err), MR_ERR_DTYPE);
    ck_assert(strstr(err.text, "F64"));
    gemm.gate.cols = 63;
    ck_assert_int_eq(mr_identify(&gemm, &observed, NULL, &found, &err), MR_ERR_SHAPE);
    gemm = puzzle_gemm(&p);
    gemm.hidden.dtype = MR_I32;
    ck_assert_int_eq(mr_identify(&gemm, &observed, NULL, &found, &err), MR_ERR_DTYPE);
    gemm = puzzle_gemm(&p);
    gemm.hidden.cols = gemm.gate.cols = 0;
    ck_assert_int_eq(mr_identify(&gemm, &observed, NULL, &found, &err), MR_ERR_UNSUPPORTED);
    gemm = puzzle_gemm(&p);
    gemm.hidden_scale = gemm.gate_scale = p.x;
    ck_assert_int_eq(mr_identify(&gemm, &observed, NULL, &found, &err), MR_ERR_UNSUPPORTED);
    ck_assert_uint_eq(found.lines, 0);
    puzzle_free(&p);
}
END_TEST

Suite *suite_identify_lines(void)
{
    Suite *s = suite_create("identify_lines");
    TCase *tc = tcase_create("lines");
    tcase_set_timeout(tc, is_long() ? 1200 : 240);
    tcase_add_test(tc, corroborate_random_lines_are_named);
    tcase_add_test(tc, corroborate_many_random_lines_are_named);
    tcase_add_loop_test(tc, reject_sums_outside_the_family, 0, OUTSIDE);
    tcase_add_test(tc, reject_one_wrong_bit);
    tcase_add_test(tc, verify_logits_that_are_not_finite);
    tcase_add_test(tc, verify_logits_that_tell_nothing);
    tcase_add_test(tc, verify_partial_rows_bias_and_stored_types);
    tcase_add_test(tc, verify_threads_do_not_matter);
    tcase_add_test(tc, corroborate_listed_lines_fit);
    tcase_add_test(tc, corroborate_every_sum_with_replay);
    tcase_add_test(tc, reject_what_does_not_belong_together);
    suite_add_tcase(s, tc);
    return s;
}
