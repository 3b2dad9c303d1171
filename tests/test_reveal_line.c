/* Trees and lines: what tree a line has, which line has a tree, and what is printed. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/arith/mma.h"
#include "../ref/arith/tree_line.h"
#include "support/mpfr_oracle.h"
#include "support/slow_sum.h"
#include "support/tree_box.h"

Suite *suite_reveal_line(void);

enum { ROOM = 16 };

static struct mr_sum_shape shape_of(const char *line)
{
    struct mr_sum_shape shape;
    struct mr_error err = {{0}};
    ck_assert_msg(!mr_sum_parse(line, 0, strlen(line), &shape, &err), "%s: %s", line, err.text);
    return shape;
}

static struct mr_tree tree_of(const struct mr_sum_shape *shape, size_t terms)
{
    struct mr_tree tree;
    struct mr_error err = {{0}};
    ck_assert_msg(!mr_tree_of_sum(shape, terms, &tree, &err), "%s", err.text);
    return tree;
}

/* Whether the names of a tree have it, by the hash that identify uses, where trees are equal. */
static void check_names(const struct mr_sum_shape *shape, size_t terms)
{
    char text[MR_SUM_TEXT];
    struct mr_sum_shape out[ROOM];
    struct mr_tree tree = tree_of(shape, terms);
    size_t found;
    mr_sum_print(shape, text, sizeof text);
    ck_assert(!mr_tree_lines(&tree, NULL, out, ROOM, &found, NULL));
    ck_assert_msg(found > 0, "%s at %zu terms has no name", text, terms);
    for (size_t i = 0; i < found; i++) {
        struct mr_tree again = tree_of(&out[i], terms);
        ck_assert_msg(mr_tree_same(&tree, &again), "%s at %zu terms", text, terms);
        ck_assert_int_le(out[i].levels, shape->levels);
        for (size_t k = 0; k < i; k++) ck_assert(!mr_sum_same(&out[i], &out[k]));
        mr_tree_free(&again);
    }
    mr_tree_free(&tree);
}

START_TEST(verify_every_line_is_named)
{
    static const char *const instructions[] = {"hopper-bf16", "ampere-bf16",     "hopper-e4m3",
                                               "ampere-tf32", "hopper-mma-e4m3", NULL};
    uint64_t seed = 11;
    for (int i = 0; i < (getenv("MOEREF_LONG") ? 20000 : 200); i++) {
        struct mr_sum_shape shape;
        size_t terms = 1 + oracle_random(&seed) % 4096;
        if (i % 2) terms = (size_t)64 << oracle_random(&seed) % 7;
        slow_shape(&seed, i % 3 ? 64 : terms, 3, instructions, &shape);
        check_names(&shape, terms);
    }
}
END_TEST

static void named(const char *line, size_t terms, const char *operands, const char *want)
{
    struct mr_sum_shape shape = shape_of(line), out[ROOM];
    struct mr_tree tree = tree_of(&shape, terms);
    char text[MR_SUM_TEXT] = "nothing";
    size_t found;
    ck_assert(!mr_tree_lines(&tree, operands, out, ROOM, &found, NULL));
    if (found) mr_sum_print(&out[0], text, sizeof text);
    ck_assert_msg(!strcmp(text, want), "%s at %zu terms: %s", line, terms, text);
    mr_tree_free(&tree);
}

/* More runs than tiles: the empty ones show in parts of other sizes only. */
START_TEST(verify_empty_runs_are_found)
{
    static const struct {
        const char *line;
        size_t terms;
    } all[] = {{"hopper-e4m3/runs:21/every:65", 256},
               {"fma/runs:25/runs:8:pairs/runs:15", 512},
               {"hopper-bf16/runs:40:halves/deal:27x34", 1800},
               {"fma/every:65/runs:34:pairs/runs:17", 1891}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct mr_sum_shape shape = shape_of(all[i].line);
        check_names(&shape, all[i].terms);
    }
}
END_TEST

/* The lines of real kernels come back as they are written; others as the first of their equals. */
START_TEST(verify_lines_of_kernels)
{
    static const char *const same[] = {"fma",
                                       "hopper-bf16",
                                       "hopper-bf16/runs:3x64",
                                       "hopper-bf16/runs:2",
                                       "fma/deal:6x8",
                                       "fma/deal:16x8",
                                       "fma/deal:32x8",
                                       "fma/deal:32:halves",
                                       "fma/even:7x24",
                                       "fma/deal:32:pairs/deal:4:reverse"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) named(same[i], 4096, "bf16", same[i]);
    named("fma/deal:64x8", 512, NULL, "fma/runs:64");
    named("fma/even:32:halves", 512, NULL, "fma/runs:32:halves");
    named("mul-add/deal:4x8", 512, NULL, "fma/deal:4x8");
    named("hopper-e4m3/promote:128", 7168, NULL, "hopper-e4m3/runs:56");
    named("hopper-e4m3/promote:128", 16384, NULL, "hopper-e4m3/every:128");
    named("fma/every:1:pairs", 4096, NULL, "fma/every:1:pairs");
    named("fma/runs:1", 100, NULL, "fma");
    named("fma/deal:3", 1, NULL, "fma");
}
END_TEST

/* An instruction stands for its number of terms: one of the operands' type if there is one. */
START_TEST(verify_operands_choose_the_instruction)
{
    static const struct {
        const char *line, *operands;
        enum mr_mma_type type, accumulator;
    } all[] = {
        {"ampere-bf16", "bf16", MR_MMA_BF16, MR_MMA_FP32},
        {"ampere-bf16", "tf32", MR_MMA_TF32, MR_MMA_FP32},
        {"hopper-bf16", "fp16", MR_MMA_FP16, MR_MMA_FP32},
        {"blackwell-fp16-fp16", "fp16-fp16", MR_MMA_FP16, MR_MMA_FP16},
        {"hopper-e4m3", "e5m2", MR_MMA_E5M2, MR_MMA_FP32},
        {"volta-fp16", "fp16", MR_MMA_FP16, MR_MMA_FP32},
        {"hopper-mma-e5m2", "e4m3", MR_MMA_E4M3, MR_MMA_FP32},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct mr_sum_shape shape = shape_of(all[i].line), out[ROOM];
        struct mr_tree tree = tree_of(&shape, 512);
        size_t found;
        ck_assert(!mr_tree_lines(&tree, all[i].operands, out, ROOM, &found, NULL));
        ck_assert_uint_ge(found, 1);
        ck_assert_int_eq(out[0].leaf, MR_LEAF_MMA);
        ck_assert_int_eq(out[0].mma->a, all[i].type);
        ck_assert_int_eq(out[0].mma->accumulator, all[i].accumulator);
        ck_assert_int_eq(out[0].mma->form, shape.mma->form);
        ck_assert_int_eq(out[0].mma->terms, shape.mma->terms);
        mr_tree_free(&tree);
    }
}
END_TEST

/* At the number of terms where they differ, a line is not named after another. */
START_TEST(verify_names_hold_at_their_terms)
{
    struct mr_sum_shape a = shape_of("hopper-bf16/runs:3x64"),
                        b = shape_of("hopper-bf16/runs:3x128");
    struct mr_tree x = tree_of(&a, 4096), y = tree_of(&b, 4096);
    ck_assert(mr_tree_same(&x, &y));
    mr_tree_free(&x);
    mr_tree_free(&y);
    x = tree_of(&a, 4300), y = tree_of(&b, 4300);
    ck_assert(!mr_tree_same(&x, &y));
    mr_tree_free(&x);
    mr_tree_free(&y);
    named("hopper-bf16/runs:3x128", 4300, NULL, "hopper-bf16/runs:3x128");
    named("hopper-bf16/runs:3x64", 4300, NULL, "hopper-bf16/runs:3x64");
}
END_TEST

static size_t names(const struct mr_tree *tree)
{
    struct mr_sum_shape out[ROOM];
    size_t found;
    ck_assert(!mr_tree_lines(tree, NULL, out, ROOM, &found, NULL));
    return found;
}

START_TEST(reject_trees_that_are_no_line)
{
    uint64_t seed = 12;
    for (int i = 0; i < 60; i++) {
        struct tree_box box;
        struct mr_tree tree;
        size_t n = 20 + oracle_random(&seed) % 280;
        tree_box_random(&seed, n, i % 2 ? 2 : 16, i % 3, &box);
        ck_assert(!mr_tree_make(n, box.nodes, box.parent, &tree, NULL));
        ck_assert_uint_eq(names(&tree), 0);
        mr_tree_free(&tree);
        tree_box_free(&box);
    }
}
END_TEST

/* A line's tree with two terms of different parents exchanged has that line no more. */
START_TEST(reject_lines_with_two_terms_exchanged)
{
    static const char *const lines[] = {"fma", "fma/deal:6x8", "hopper-bf16/runs:3x64",
                                        "fma/deal:32:halves", "hopper-bf16/deal:2x64"};
    uint64_t seed = 13;
    for (int i = 0; i < 50; i++) {
        struct mr_sum_shape shape = shape_of(lines[i % 5]), out[ROOM];
        size_t n = 600, found;
        struct mr_tree tree = tree_of(&shape, n), other;
        uint32_t *parent = malloc(2 * n * sizeof *parent);
        for (size_t k = 0; k < tree.nodes; k++)
            for (uint32_t c = tree.begin[k]; c < tree.begin[k + 1]; c++)
                parent[tree.child[c]] = (uint32_t)(n + k);
        parent[n + tree.nodes - 1] = MR_TREE_ROOT;
        size_t a, b;
        do {
            a = oracle_random(&seed) % n;
            b = oracle_random(&seed) % n;
        } while (parent[a] == parent[b]);
        uint32_t up = parent[a];
        parent[a] = parent[b];
        parent[b] = up;
        ck_assert(!mr_tree_make(n, tree.nodes, parent, &other, NULL));
        ck_assert(!mr_tree_lines(&other, NULL, out, ROOM, &found, NULL));
        ck_assert_uint_eq(found, 0);
        free(parent);
        mr_tree_free(&other);
        mr_tree_free(&tree);
    }
}
END_TEST

START_TEST(reject_sums_that_are_no_tree)
{
    struct mr_tree tree;
    struct mr_error err;
    const struct mr_sum_shape exact = {0}, nvf4 = shape_of("blackwell-nvf4");
    ck_assert_int_eq(mr_tree_of_sum(&exact, 10, &tree, &err), MR_ERR_UNSUPPORTED);
    ck_assert_int_eq(mr_tree_of_sum(&nvf4, 64, &tree, &err), MR_ERR_UNSUPPORTED);
}
END_TEST

static void printed(const char *line, size_t terms, size_t start, size_t lines, const char *want)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    struct mr_sum_shape shape = shape_of(line);
    struct mr_tree tree = tree_of(&shape, terms);
    mr_tree_print(&tree, start, lines, to);
    fclose(to);
    ck_assert_str_eq(text, want);
    free(text);
    mr_tree_free(&tree);
}

START_TEST(verify_what_is_printed)
{
    printed("fma", 1, 1, 0, "0\n");
    printed("fma", 2, 2, 0, "chain of 2 terms: 0, 1\n");
    printed("fma", 4096, 4096, 0, "chain of 4096 terms: 0..4095\n");
    printed("fma/every:1:reverse", 64, 64, 0, "chain of 64 terms: 63..0\n");
    printed("fma/every:1:reverse", 64, 63, 0, "chain of 64 terms: c, 62..0\n");
    printed("hopper-bf16", 16, 16, 0, "16 terms at once: 0..15\n");
    printed("hopper-bf16", 40, 40, 0, "chain of 2 steps of 16 terms, then 8: 0..39\n");
    printed("fma/deal:2x3", 14, 14, 0,
            "14 terms, in order:\n"
            "  chain of 8 terms: 0..2, 6..8, 12, 13\n"
            "  + chain of 6 terms: 3..5, 9..11\n");
    printed("hopper-bf16/runs:3x64", 4096, 4096, 0,
            "4096 terms, in order:\n"
            "  2 alike, +1408 apart:\n"
            "    chain of 88 steps of 16 terms: 0..1407\n"
            "  + chain of 80 steps of 16 terms: 2816..4095\n");
    printed("fma/deal:32:halves", 4096, 4096, 0,
            "2 alike, +1 apart:\n"
            "  2 alike, +2 apart:\n"
            "    2 alike, +4 apart:\n"
            "      2 alike, +8 apart:\n"
            "        2 alike, +16 apart:\n"
            "          chain of 128 terms: 0, 32, .., 4064\n");
    printed("hopper-e4m3/promote:128", 1000, 1000, 0,
            "1000 terms, in order:\n"
            "  7 alike in order, +128 apart: chain of 4 steps of 32 terms: 0..127\n"
            "  + chain of 3 steps of 32 terms, then 8: 896..999\n");
    printed("fma/deal:6x8", 4096, 4096, 2,
            "4096 terms, in order:\n"
            "  2 alike, +8 apart:\n"
            "... and 2 more lines\n");
}
END_TEST

START_TEST(verify_nested_brackets)
{
    static const struct {
        const char *line, *want;
        size_t terms;
    } all[] = {{"fma", "0", 1},
               {"fma", "(((0 1) 2) 3)", 4},
               {"ampere-tf32", "((0 1 2 3) 4 5)", 6},
               {"fma/runs:2", "((0 1) (2 3))", 4},
               {"fma/every:1:halves", "((0 2) (1 3))", 4},
               {"hopper-mma-e4m3", "((0 1 4 5) 2 3)", 6}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *to = open_memstream(&text, &bytes);
        struct mr_sum_shape shape = shape_of(all[i].line);
        struct mr_tree tree = tree_of(&shape, all[i].terms);
        mr_tree_nested(&tree, to);
        fclose(to);
        ck_assert_str_eq(text, all[i].want);
        free(text);
        mr_tree_free(&tree);
    }
}
END_TEST

/* Whatever the tree, printing tells each term or stays within its lines. */
START_TEST(verify_random_trees_are_printed)
{
    uint64_t seed = 14;
    for (int i = 0; i < 100; i++) {
        struct tree_box box;
        struct mr_tree tree;
        char *text = NULL;
        size_t bytes = 0, n = 1 + oracle_random(&seed) % 200, lines = 0;
        FILE *to = open_memstream(&text, &bytes);
        tree_box_random(&seed, n, 2 + (size_t)i % 9, i % 2, &box);
        ck_assert(!mr_tree_make(n, box.nodes, box.parent, &tree, NULL));
        mr_tree_print(&tree, n - 1, (size_t)i % 30, to);
        fclose(to);
        for (const char *c = text; *c; c++) lines += *c == '\n';
        if (i % 30) ck_assert_uint_le(lines, (size_t)i % 30 + 1);
        ck_assert_uint_ge(lines, 1);
        free(text);
        mr_tree_free(&tree);
        tree_box_free(&box);
    }
}
END_TEST

Suite *suite_reveal_line(void)
{
    Suite *s = suite_create("reveal_line");
    TCase *t = tcase_create("reveal_line");
    tcase_set_timeout(t, 600);
    tcase_add_test(t, verify_every_line_is_named);
    tcase_add_test(t, verify_empty_runs_are_found);
    tcase_add_test(t, verify_lines_of_kernels);
    tcase_add_test(t, verify_operands_choose_the_instruction);
    tcase_add_test(t, verify_names_hold_at_their_terms);
    tcase_add_test(t, reject_trees_that_are_no_line);
    tcase_add_test(t, reject_lines_with_two_terms_exchanged);
    tcase_add_test(t, reject_sums_that_are_no_tree);
    tcase_add_test(t, verify_what_is_printed);
    tcase_add_test(t, verify_nested_brackets);
    tcase_add_test(t, verify_random_trees_are_printed);
    suite_add_tcase(s, t);
    return s;
}
