/* The text form of sums: what comes back, and what is refused, where. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "../ref/arith/arith.h"
#include "../ref/arith/cuda.h"
#include "../ref/arith/mma.h"
#include "support/mpfr_oracle.h"
#include "support/slow_sum.h"

Suite *suite_sum(void);

static const char *const instructions[] = {"hopper-bf16",
                                           "ampere-fp16-fp16",
                                           "hopper-mma-e4m3",
                                           "ada-e5m2-e4m3",
                                           "blackwell-nvf4",
                                           "volta-fp16",
                                           NULL};

static void ck_back(const struct mr_arith *a)
{
    char text[MR_ARITH_TEXT], again[MR_ARITH_TEXT];
    struct mr_arith b;
    struct mr_error err = {{0}};
    mr_arith_print(a, text, sizeof text);
    ck_assert_uint_lt(strlen(text), MR_ARITH_TEXT - 1);
    ck_assert_msg(!mr_arith_parse(text, &b, &err), "%s: %s", text, err.text);
    ck_assert_msg(mr_arith_same(a, &b), "%s", text);
    mr_arith_print(&b, again, sizeof again);
    ck_assert_str_eq(text, again);
}

/* Every leaf, cut, reduce and count of levels, beside words of types. */
START_TEST(verify_random_lines_come_back)
{
    uint64_t seed = 21;
    int seen_leaf[4] = {0}, seen_levels[MR_SUM_LEVELS + 1] = {0}, seen_cut[5] = {0};
    int seen_reduce[4] = {0};
    for (int i = 0; i < 20000; i++) {
        struct mr_arith a = {.logits = (enum mr_type)(oracle_random(&seed) % 3)};
        a.hidden = (enum mr_type)(oracle_random(&seed) % 2);
        a.gate = (enum mr_type)(oracle_random(&seed) % 2);
        a.bias = (enum mr_type)(oracle_random(&seed) % 2);
        a.scores = (enum mr_type)(oracle_random(&seed) % 2);
        a.weights = (enum mr_type)(oracle_random(&seed) % 2);
        slow_shape(&seed, i % 2 ? 100 : 1 << 20, MR_SUM_LEVELS, instructions, &a.sum);
        ck_back(&a);
        seen_leaf[a.sum.leaf]++;
        seen_levels[a.sum.levels]++;
        for (int l = 0; l < a.sum.levels; l++) {
            seen_cut[a.sum.level[l].cut]++;
            seen_reduce[a.sum.level[l].reduce]++;
        }
    }
    for (int i = 1; i < 4; i++) ck_assert_int_gt(seen_leaf[i], 100);
    for (int i = 0; i <= MR_SUM_LEVELS; i++) ck_assert_int_gt(seen_levels[i], 100);
    for (int i = 0; i < 5; i++) ck_assert_int_gt(seen_cut[i], 100);
    for (int i = 0; i < 4; i++) ck_assert_int_gt(seen_reduce[i], 100);
}
END_TEST

static mr_score_word longest_score(void)
{
    mr_score_word longest = MR_SCORE_WORD_SOFTMAX_TORCH, w;
    for (int i = 1; i <= MR_CUDA_COUNT; i++) {
        const char *name = mr_score_word_name(i);
        if (strlen(name) > strlen(mr_score_word_name(longest)) &&
            mr_score_word_parse(name, strlen(name), &w))
            longest = w;
    }
    return longest;
}

/* The longest line that there is, and the largest numbers. */
START_TEST(verify_longest_line)
{
    struct mr_arith a = {.logits = MR_TYPE_BF16,
                         .bias = MR_TYPE_BF16,
                         .scores = MR_TYPE_BF16,
                         .weights = MR_TYPE_BF16,
                         .hidden = MR_TYPE_BF16,
                         .gate = MR_TYPE_BF16,
                         .score = longest_score(),
                         .sum = {.leaf = MR_LEAF_MMA, .levels = MR_SUM_LEVELS}};
    for (size_t i = 0; i < mr_mma_count(); i++)
        if (!a.sum.mma || strlen(mr_mma_at(i)->name) > strlen(a.sum.mma->name))
            a.sum.mma = mr_mma_at(i);
    for (int i = 0; i < MR_SUM_LEVELS; i++)
        a.sum.level[i] =
            (struct mr_sum_level){MR_CUT_RUNS, MR_SUM_PARTS, MR_SUM_TILE, MR_REDUCE_REVERSE};
    ck_back(&a);
}
END_TEST

/* Spellings of one sum, and the canonical one. */
START_TEST(verify_spellings)
{
    static const char *const pairs[][2] = {
        {"fma/deal:6x8", "fma/deal:6x8"},
        {"bf16-logits+hopper-bf16/runs:3x64", "hopper-bf16/runs:3x64+bf16-logits"},
        {"fp32+fma/runs:4x1", "fma/runs:4"},
        {"fp32+mul-add", "mul-add"},
        {"fp32+fma/every:4:pairs/promote:128/even:2x1", "fma/every:4:pairs/promote:128/even:2"},
        {"bf16-gate+bf16-hidden+hopper-bf16", "hopper-bf16+bf16-hidden+bf16-gate"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct mr_arith a;
        struct mr_error err = {{0}};
        char text[MR_ARITH_TEXT];
        ck_assert_msg(!mr_arith_parse(pairs[i][0], &a, &err), "%s", err.text);
        mr_arith_print(&a, text, sizeof text);
        ck_assert_str_eq(text, pairs[i][1]);
    }
}
END_TEST

/* Every way to be wrong: the column of what is at fault, and a word of the message. */
static const struct {
    const char *line;
    int column;
    const char *word;
} refusals[] = {
    {"", 1, "missing"},
    {"+fma", 1, "missing"},
    {"fma+", 5, "missing"},
    {"fma++bf16-logits", 5, "missing"},
    {"fma+fma", 5, "second sum"},
    {"bf16-logits+fma/deal:2+hopper-bf16", 24, "second sum"},
    {"fmax", 1, "unknown word"},
    {" fma", 1, "unknown word"},
    {"FMA", 1, "unknown word"},
    {"bf16-logits+bf16-logits", 13, "second time"},
    {"fp32+fp32", 6, "twice"},
    {"fma/", 5, "level must be"},
    {"fma//runs:3", 5, "level must be"},
    {"bf16-logits+fma/", 17, "level must be"},
    {"fma/foo:3", 5, "level must be"},
    {"fma/run:3", 5, "level must be"},
    {"fma/runs", 9, "number of parts"},
    {"fma/deal/runs:3", 9, "number of parts"},
    {"fma/every", 10, "terms of a tile"},
    {"fma/promote", 12, "terms of a tile"},
    {"fma/runs:", 10, "1 to 65536"},
    {"fma/runs:0", 10, "1 to 65536"},
    {"fma/runs:03", 10, "1 to 65536"},
    {"fma/runs:-3", 10, "1 to 65536"},
    {"fma/runs:65537", 10, "1 to 65536"},
    {"fma/runs:99999999999999999999999", 10, "1 to 65536"},
    {"fma/runs:x8", 10, "1 to 65536"},
    {"fma/runs:3x", 12, "1 to 1048576"},
    {"fma/runs:3x0", 12, "1 to 1048576"},
    {"fma/runs:3x1048577", 12, "1 to 1048576"},
    {"fma/every:0", 11, "1 to 1048576"},
    {"fma/promote:", 13, "1 to 1048576"},
    {"fma/runs:3y", 11, "expected 'x'"},
    {"fma/runs:3 ", 11, "expected 'x'"},
    {"fma/runs:3x8x8", 13, "expected ':'"},
    {"fma/every:8x2", 12, "expected ':'"},
    {"fma/runs:3:", 12, "halves"},
    {"fma/runs:3:half", 12, "halves"},
    {"fma/runs:3:halves:pairs", 12, "halves"},
    {"fma/runs:3x8:order", 14, "halves"},
    {"fma/promote:128:halves", 16, "always added in order"},
    {"fma/runs:2/deal:3/even:4/every:5/runs:6", 34, "at most 4 levels"},
    {"x/runs:3", 1, "x"},
    {"hopper-bf17", 1, "bf17"},
    {"bf16-logits+hopper-bf17/runs:3", 13, "bf17"},
    {"ampere-e4m3", 1, "FP8"},
    {"volta-bf16", 1, "bf16"},
    {"hopper-e2m1", 1, "Blackwell"},
};

/* Loop over refusals. */
START_TEST(reject_lines)
{
    struct mr_arith a;
    struct mr_error err = {{0}};
    char column[32];
    const char *line = refusals[_i].line;
    enum mr_status status = mr_arith_parse(line, &a, &err);
    ck_assert_msg(status == MR_ERR_USAGE || status == MR_ERR_UNSUPPORTED, "%s: %s", line,
                  mr_status_name(status));
    snprintf(column, sizeof column, "column %d:", refusals[_i].column);
    ck_assert_msg(strstr(err.text, column) != NULL, "%s: %s lacks '%s'", line, err.text, column);
    ck_assert_msg(strstr(err.text, refusals[_i].word) != NULL, "%s: %s lacks '%s'", line, err.text,
                  refusals[_i].word);
}
END_TEST

/* No text makes the reader run off, and what it takes it gives back. */
START_TEST(verify_random_text)
{
    static const char *const pieces[] = {
        "fma",  "mul-add", "hopper-bf16", "/",           ":",      "x",     "+",       "runs",
        "even", "deal",    "every",       "promote",     "halves", "pairs", "reverse", "1",
        "8",    "64",      "0",           "bf16-logits", "fp32",   "-"};
    uint64_t seed = 77;
    int taken = 0;
    for (int i = 0; i < 200000; i++) {
        char line[256] = "";
        size_t n = oracle_random(&seed) % 12;
        for (size_t j = 0; j < n; j++)
            strcat(line, pieces[oracle_random(&seed) % (sizeof pieces / sizeof *pieces)]);
        struct mr_arith a;
        if (mr_arith_parse(line, &a, NULL)) continue;
        ck_back(&a);
        taken++;
    }
    ck_assert_int_gt(taken, 500);
}
END_TEST

Suite *suite_sum(void)
{
    Suite *s = suite_create("sum");
    TCase *text = tcase_create("text");
    tcase_add_test(text, verify_random_lines_come_back);
    tcase_add_test(text, verify_longest_line);
    tcase_add_test(text, verify_spellings);
    tcase_add_loop_test(text, reject_lines, 0, sizeof refusals / sizeof *refusals);
    tcase_add_test(text, verify_random_text);
    suite_add_tcase(s, text);
    return s;
}
