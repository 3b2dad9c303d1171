/* Order revealing: known trees are found from sums alone, and sums without a tree are refused. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/arith/mma.h"
#include "../ref/arith/reveal.h"
#include "../ref/arith/tree_line.h"
#include "../ref/num/num.h"
#include "support/mpfr_oracle.h"
#include "support/slow_sum.h"
#include "support/tree_box.h"

Suite *suite_reveal(void);

static bool is_long(void)
{
    return getenv("MOEREF_LONG") != NULL;
}

static struct mr_reveal_options masks(const char *name)
{
    struct mr_reveal_options o = {.seed = 5};
    ck_assert(mr_reveal_masks(name, &o));
    return o;
}

static void find(const struct mr_summer *summer, size_t terms, const struct mr_reveal_options *o,
                 struct mr_tree *out, struct mr_reveal_stats *stats)
{
    struct mr_error err = {{0}};
    enum mr_status status = mr_reveal(summer, terms, o, out, stats, &err);
    ck_assert_msg(status == MR_OK, "%zu terms: %s", terms, err.text);
}

static void check_box(struct tree_box *box, const struct mr_reveal_options *o)
{
    struct mr_tree found, known;
    struct mr_reveal_stats stats;
    find(&(struct mr_summer){tree_box_sum, box}, box->terms, o, &found, &stats);
    ck_assert_uint_eq(stats.rows, box->rows);
    ck_assert_uint_eq(stats.calls, box->calls);
    ck_assert(!mr_tree_make(box->terms, box->nodes, box->parent, &known, NULL));
    ck_assert_msg(mr_tree_same(&found, &known), "%zu terms, %zu nodes", box->terms, box->nodes);
    mr_tree_free(&found);
    mr_tree_free(&known);
}

/* Trees that no line has, of 1 to 300 terms, of all leanings. */
START_TEST(verify_random_trees_are_found)
{
    uint64_t seed = 1;
    struct mr_reveal_options o = masks("fp32");
    for (int i = 0; i < (is_long() ? 3000 : 150); i++) {
        struct tree_box box;
        size_t terms = 1 + oracle_random(&seed) % (i % 10 ? 60 : 300);
        tree_box_random(&seed, terms, 2, i % 2, &box);
        o.seed = (uint64_t)i;
        check_box(&box, &o);
        tree_box_free(&box);
    }
}
END_TEST

/* Fused nodes anywhere, with sums and terms as children. */
START_TEST(verify_fused_nodes_are_found)
{
    static const size_t widths[] = {3, 4, 5, 8, 9, 16, 17, 32, 33, 65};
    uint64_t seed = 2;
    struct mr_reveal_options o = masks("bf16");
    for (int i = 0; i < (is_long() ? 2000 : 100); i++) {
        struct tree_box box;
        size_t terms = 2 + oracle_random(&seed) % 200;
        tree_box_random(&seed, terms, widths[i % 10], i % 3, &box);
        check_box(&box, &o);
        tree_box_free(&box);
    }
}
END_TEST

/* What the caller may choose does not change the tree: rows a call, units a row, draws, runs. */
START_TEST(verify_options_do_not_matter)
{
    uint64_t seed = 3;
    struct tree_box box;
    tree_box_random(&seed, 50, 17, 1, &box);
    for (size_t i = 0; i < 60; i++) {
        static const size_t rows[] = {0, 1, 2, 7, 64, 1000},
                            most[] = {1 << 24, 1, 2, 7, 49, 50, 51};
        struct mr_reveal_options o = masks("fp32");
        o.seed = i;
        o.rows = rows[i % 6];
        o.most = most[i % 7];
        o.times = 1 + (int)(i % 3);
        o.probes = i % 5;
        box.rows = box.calls = 0;
        check_box(&box, &o);
        if (o.rows) ck_assert_uint_ge(box.calls * o.rows, box.rows);
    }
    tree_box_free(&box);
}
END_TEST

/* Rows asked: a chain in either direction within 3 n, a balanced tree within 2 n log2 n. */
START_TEST(verify_few_rows_are_asked)
{
    enum { N = 1024 };
    static const char *const lines[] = {"fma", "fma/every:1:reverse", "fma/every:1:pairs",
                                        "fma/deal:32:halves"};
    static const size_t most[] = {3 * N, 3 * N, 20 * N, 20 * N};
    for (int i = 0; i < 4; i++) {
        struct mr_sum_shape shape;
        struct mr_tree tree, found;
        struct mr_reveal_stats stats;
        ck_assert(!mr_sum_parse(lines[i], 0, strlen(lines[i]), &shape, NULL));
        ck_assert(!mr_tree_of_sum(&shape, N, &tree, NULL));
        struct tree_box box = {
            .terms = N, .nodes = tree.nodes, .begin = tree.begin, .from = tree.child};
        struct mr_reveal_options o = masks("fp32");
        find(&(struct mr_summer){tree_box_sum, &box}, N, &o, &found, &stats);
        ck_assert(mr_tree_same(&tree, &found));
        ck_assert_uint_le(stats.rows, most[i]);
        mr_tree_free(&found);
        mr_tree_free(&tree);
    }
}
END_TEST

struct slow {
    struct mr_sum_shape shape;
    bool halves;          /* operands share the exponent */
    enum mr_type rounded; /* the result */
};

static enum mr_status slow_rows(void *context, const float *rows, size_t count, size_t terms,
                                float *out, struct mr_error *err)
{
    const struct slow *s = context;
    float *a = malloc(2 * terms * sizeof *a), *b = a + terms;
    (void)err;
    for (size_t r = 0; r < count; r++) {
        for (size_t i = 0; i < terms; i++) {
            float v = rows[r * terms + i];
            int e = v != 0 && s->halves ? ilogbf(v) >> 1 : 0;
            b[i] = ldexpf(1, e);
            a[i] = ldexpf(v, -e);
        }
        out[r] = slow_sum(&s->shape, a, b, terms, NULL);
        if (s->rounded == MR_TYPE_BF16)
            out[r] = mr_bf16_decode(mr_bf16_encode(out[r], MR_RNE, MR_OVERFLOW_IEEE));
        if (s->rounded == MR_TYPE_FP16)
            out[r] = mr_fp16_decode(mr_fp16_encode(out[r], MR_RNE, MR_OVERFLOW_IEEE));
    }
    free(a);
    return MR_OK;
}

/* Reveals a sum made from the grammar's text, and compares with the tree made from the plan. */
static void check_slow(const struct slow *s, size_t terms, const struct mr_reveal_options *o)
{
    struct mr_tree tree, found;
    char text[MR_SUM_TEXT];
    mr_sum_print(&s->shape, text, sizeof text);
    ck_assert(!mr_tree_of_sum(&s->shape, terms, &tree, NULL));
    find(&(struct mr_summer){slow_rows, (void *)s}, terms, o, &found, NULL);
    ck_assert_msg(mr_tree_same(&tree, &found), "%s at %zu terms", text, terms);
    mr_tree_free(&tree);
    mr_tree_free(&found);
}

START_TEST(corroborate_revealed_shapes_are_their_plans)
{
    static const char *const instructions[] = {"hopper-bf16", "ampere-bf16", "hopper-tf32",
                                               "ampere-tf32", NULL};
    uint64_t seed = 4;
    struct mr_reveal_options o = masks("fp32");
    for (int i = 0; i < (is_long() ? 3000 : 120); i++) {
        struct slow s = {0};
        size_t terms = 1 + oracle_random(&seed) % 120;
        slow_shape(&seed, terms, 3, instructions, &s.shape);
        check_slow(&s, terms, &o);
    }
}
END_TEST

/* Every kind of masks on what it is for; fp8 with the exponent shared out; promotion in between. */
START_TEST(corroborate_masks_of_every_type)
{
    static const struct {
        const char *line, *masks;
        size_t terms;
    } all[] = {
        {"hopper-fp16", "fp16", 100},
        {"volta-fp16/runs:3", "fp16", 100},
        {"hopper-fp16-fp16", "fp16-fp16", 80},
        {"turing-fp16-fp16", "fp16-fp16", 80},
        {"volta-fp16-fp16", "fp16-fp16", 50},
        {"hopper-e4m3/promote:64", "e4m3", 150},
        {"ada-e4m3", "e4m3", 70},
        {"blackwell-e4m3", "e4m3", 80},
        {"hopper-mma-e4m3", "e4m3", 100},
        {"hopper-e4m3-fp16", "e4m3-fp16", 150},
        {"hopper-e5m2/runs:2", "e5m2", 150},
        {"blackwell-e5m2", "e5m2", 70},
        {"ada-e5m2-fp16", "e5m2-fp16", 70},
        {"hopper-mma-e5m2-fp16", "e5m2-fp16", 100},
        {"blackwell-e4m3-fp16", "e4m3-fp16", 100},
        /* Beyond the most units of one row. */
        {"fma", "e4m3", 700},
        {"fma", "e4m3-fp16", 400},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct slow s = {.halves = all[i].masks[0] == 'e'};
        struct mr_reveal_options o = masks(all[i].masks);
        struct mr_error err = {{0}};
        ck_assert_msg(!mr_sum_parse(all[i].line, 0, strlen(all[i].line), &s.shape, &err), "%s",
                      err.text);
        check_slow(&s, all[i].terms, &o);
    }
    struct mr_reveal_options o = masks("fp32");
    ck_assert(!mr_reveal_masks("fp8", &o));
    ck_assert(!mr_reveal_masks("", &o));
}
END_TEST

/* A result that is rounded to bf16 counts to 256, to fp16 to 2048. */
START_TEST(verify_rounded_results_in_blocks)
{
    struct slow s = {.shape = {.leaf = MR_LEAF_FMA, .levels = 1}, .rounded = MR_TYPE_BF16};
    s.shape.level[0] = (struct mr_sum_level){MR_CUT_DEAL, 3, 4, MR_REDUCE_ORDER};
    struct mr_reveal_options o = masks("bf16");
    struct mr_tree found;
    struct mr_error err;
    ck_assert_int_eq(mr_reveal(&(struct mr_summer){slow_rows, &s}, 300, &o, &found, NULL, &err),
                     MR_ERR_VALUE);
    o.most = 256;
    check_slow(&s, 300, &o);
    s.rounded = MR_TYPE_FP16;
    o.most = 2048;
    check_slow(&s, 300, &o);
}
END_TEST

/* Sums that have no tree. */
enum kind {
    SORTED_UP,
    SORTED_DOWN,
    BY_SIGN,
    BY_SIGN_BACK,
    SHUFFLED,
    EXACT,
    FORGETS_LAST,
    NOT_A_NUMBER,
    DOUBLES,
    KINDS
};
struct odd {
    enum kind kind;
    uint64_t seed;
    bool each_call; /* SHUFFLED: one order for all rows of a call */
};

static int by_magnitude(const void *x, const void *y)
{
    float a = fabsf(*(const float *)x), b = fabsf(*(const float *)y);
    return (a > b) - (a < b);
}

static void shuffle(uint64_t *seed, float *v, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = oracle_random(seed) % i;
        float other = v[i - 1];
        v[i - 1] = v[j];
        v[j] = other;
    }
}

static float odd_sum(struct odd *o, float *v, size_t n)
{
    float sum = 0, plus = 0, minus = 0;
    double exact = 0;
    if (o->kind == SORTED_UP || o->kind == SORTED_DOWN) qsort(v, n, sizeof *v, by_magnitude);
    if (o->kind == SHUFFLED) shuffle(&o->seed, v, n);
    for (size_t k = 0; k < n; k++) {
        size_t i = o->kind == SORTED_DOWN || o->kind == BY_SIGN_BACK ? n - 1 - k : k;
        if (o->kind == FORGETS_LAST && i == n - 1) continue;
        if (fabsf(v[i]) < 0x1p100f) exact += v[i];
        if (v[i] > 0)
            plus += v[i];
        else
            minus += v[i];
        sum += v[i];
    }
    switch (o->kind) {
    case EXACT: return (float)exact; /* big and -big cancel */
    case BY_SIGN:
    case BY_SIGN_BACK: return plus + minus;
    case NOT_A_NUMBER: return NAN;
    case DOUBLES: return 2 * sum;
    default: return sum;
    }
}

static enum mr_status odd_rows(void *context, const float *rows, size_t count, size_t terms,
                               float *out, struct mr_error *err)
{
    struct odd *o = context;
    float *v = malloc(terms * sizeof *v);
    (void)err;
    uint64_t start = o->seed;
    for (size_t r = 0; r < count; r++) {
        memcpy(v, rows + r * terms, terms * sizeof *v);
        if (o->each_call) o->seed = start;
        out[r] = odd_sum(o, v, terms);
    }
    free(v);
    return MR_OK;
}

START_TEST(reject_sums_without_a_tree)
{
    static const char *const words[KINDS] = {
        [SORTED_UP] = "values",    [SORTED_DOWN] = "values", [BY_SIGN] = "values",
        [BY_SIGN_BACK] = "values", [SHUFFLED] = "change",    [EXACT] = "absorb",
        [FORGETS_LAST] = "sum to", [NOT_A_NUMBER] = "unit",  [DOUBLES] = "unit"};
    static const size_t sizes[] = {6, 8, 17, 33, 64, 100, 200};
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < 7; i++)
            for (uint64_t seed = 0; seed < 5; seed++) {
                struct odd odd = {.kind = (enum kind)kind, .seed = seed};
                struct mr_reveal_options o = masks("fp32");
                struct mr_tree found;
                struct mr_error err = {{0}};
                o.seed = seed;
                enum mr_status status = mr_reveal(&(struct mr_summer){odd_rows, &odd}, sizes[i], &o,
                                                  &found, NULL, &err);
                ck_assert_msg(status == MR_ERR_VALUE, "kind %d, %zu terms", kind, sizes[i]);
                ck_assert_msg(strstr(err.text, words[kind]) != NULL, "kind %d: %s", kind, err.text);
                ck_assert_ptr_null(found.begin);
            }
}
END_TEST

/* A fused adder of 140 terms is refused for its width alone. */
START_TEST(reject_wide_nodes)
{
    struct tree_box box = {.terms = 140, .nodes = 1};
    uint32_t begin[2] = {0, 140}, from[140];
    for (uint32_t i = 0; i < 140; i++) from[i] = i;
    box.begin = begin;
    box.from = from;
    struct mr_reveal_options o = masks("fp32");
    struct mr_tree found;
    struct mr_error err;
    const struct mr_summer summer = {tree_box_sum, &box};
    ck_assert_int_eq(mr_reveal(&summer, 140, &o, &found, NULL, &err), MR_ERR_VALUE);
    ck_assert_ptr_nonnull(strstr(err.text, "wide"));
    o.widest = 140;
    find(&summer, 140, &o, &found, NULL);
    ck_assert_uint_eq(mr_tree_widest(&found), 140);
    mr_tree_free(&found);
}
END_TEST

/* Atomics: each run has an order of its own, the same for all rows. Asked twice, the bits differ.
 */
START_TEST(reject_orders_that_change_between_calls)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct odd odd = {.kind = SHUFFLED, .seed = seed, .each_call = true};
        struct mr_reveal_options o = masks("fp32");
        struct mr_tree found;
        struct mr_error err = {{0}};
        o.times = 2;
        o.rows = 64;
        ck_assert_int_eq(mr_reveal(&(struct mr_summer){odd_rows, &odd}, 50, &o, &found, NULL, &err),
                         MR_ERR_VALUE);
        ck_assert_ptr_nonnull(strstr(err.text, "run to run"));
        o.times = 1;
        ck_assert_int_eq(mr_reveal(&(struct mr_summer){odd_rows, &odd}, 50, &o, &found, NULL, &err),
                         MR_ERR_VALUE);
    }
}
END_TEST

static enum mr_status fails(void *context, const float *rows, size_t count, size_t terms,
                            float *out, struct mr_error *err)
{
    (void)context, (void)rows, (void)count, (void)terms, (void)out;
    return mr_fail(err, MR_ERR_IO, "the box is shut");
}

START_TEST(reject_bad_options)
{
    struct mr_tree found;
    struct mr_error err;
    uint64_t seed = 9;
    struct tree_box box;
    tree_box_random(&seed, 40, 2, 0, &box);
    const struct mr_summer good = {tree_box_sum, &box}, bad = {fails, NULL};
    struct mr_reveal_options o = masks("fp32"), p;
    ck_assert_int_eq(mr_reveal(&bad, 40, &o, &found, NULL, &err), MR_ERR_IO);
    ck_assert_str_eq(err.text, "the box is shut");
    ck_assert_int_eq(mr_reveal(&good, 0, &o, &found, NULL, &err), MR_ERR_VALUE);
    ck_assert_int_eq(mr_reveal(&good, ((size_t)1 << 24) + 1, &o, &found, NULL, &err), MR_ERR_VALUE);
    p = o, p.most = 0;
    ck_assert_int_eq(mr_reveal(&good, 40, &p, &found, NULL, &err), MR_ERR_VALUE);
    p = o, p.big = 3;
    ck_assert_int_eq(mr_reveal(&good, 40, &p, &found, NULL, &err), MR_ERR_VALUE);
    p = o, p.unit = 0;
    ck_assert_int_eq(mr_reveal(&good, 40, &p, &found, NULL, &err), MR_ERR_VALUE);
    p = o, p.big = INFINITY;
    ck_assert_int_eq(mr_reveal(&good, 40, &p, &found, NULL, &err), MR_ERR_VALUE);
    /* Too small to absorb units. */
    p = o, p.big = 0x1p20f;
    ck_assert_int_eq(mr_reveal(&good, 40, &p, &found, NULL, &err), MR_ERR_VALUE);
    ck_assert_ptr_nonnull(strstr(err.text, "absorb"));
    tree_box_free(&box);
}
END_TEST

/* The canonical form keeps which terms meet where, by another walk; equal only if that is equal. */
START_TEST(corroborate_trees_keep_meetings)
{
    uint64_t seed = 6;
    for (int i = 0; i < 60; i++) {
        struct tree_box box;
        struct mr_tree t, u;
        size_t n = 2 + oracle_random(&seed) % 30;
        tree_box_random(&seed, n, 2 + (size_t)i % 4, i % 2, &box);
        ck_assert(!mr_tree_make(n, box.nodes, box.parent, &t, NULL));
        /* Again with parents from the tree, and a node of one child above the first term. */
        uint32_t *parent = malloc(3 * n * sizeof *parent);
        for (size_t k = 0; k < t.nodes; k++)
            for (uint32_t c = t.begin[k]; c < t.begin[k + 1]; c++)
                parent[t.child[c]] = (uint32_t)(n + k);
        parent[n + t.nodes - 1] = MR_TREE_ROOT;
        parent[n + t.nodes] = parent[0];
        parent[0] = (uint32_t)(n + t.nodes);
        ck_assert(!mr_tree_make(n, t.nodes + 1, parent, &u, NULL));
        ck_assert(mr_tree_same(&t, &u));
        mr_tree_free(&u);
        struct tree_box again = {.terms = n, .nodes = t.nodes, .parent = parent};
        parent[0] = parent[n + t.nodes];
        for (uint32_t a = 0; a < n; a++)
            for (uint32_t b = 0; b < a; b++)
                ck_assert_uint_eq(tree_box_meet(&box, a, b), tree_box_meet(&again, a, b));
        /* Two terms that have different parents change places. */
        for (uint32_t b = 1; b < n; b++) {
            if (parent[b] == parent[0]) continue;
            uint32_t up = parent[b];
            parent[b] = parent[0];
            parent[0] = up;
            ck_assert(!mr_tree_make(n, t.nodes, parent, &u, NULL));
            ck_assert(!mr_tree_same(&t, &u));
            mr_tree_free(&u);
            break;
        }
        free(parent);
        mr_tree_free(&t);
        tree_box_free(&box);
    }
}
END_TEST

START_TEST(reject_parents_that_are_no_tree)
{
    static const struct {
        size_t terms, nodes;
        uint32_t parent[6];
    } all[] = {
        {2, 1, {2, 2, 2}},                       /* its own parent */
        {2, 1, {2, MR_TREE_ROOT, MR_TREE_ROOT}}, /* two roots */
        {2, 1, {2, 2, 9}},                       /* no such node */
        {2, 1, {2, 0, MR_TREE_ROOT}},            /* below a term */
        {2, 2, {2, 2, MR_TREE_ROOT, 2}},         /* a node without children */
        {2, 3, {2, 2, MR_TREE_ROOT, 4, 3}},      /* a circle beside */
        {3, 2, {3, 3, 4, 4, 3}},                 /* no root */
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct mr_tree t;
        struct mr_error err;
        ck_assert_int_eq(mr_tree_make(all[i].terms, all[i].nodes, all[i].parent, &t, &err),
                         MR_ERR_VALUE);
        ck_assert_ptr_null(t.begin);
    }
    struct mr_tree t;
    ck_assert_int_eq(mr_tree_make(0, 0, all[0].parent, &t, NULL), MR_ERR_VALUE);
}
END_TEST

Suite *suite_reveal(void)
{
    Suite *s = suite_create("reveal");
    TCase *t = tcase_create("reveal");
    tcase_set_timeout(t, 600);
    tcase_add_test(t, verify_random_trees_are_found);
    tcase_add_test(t, verify_fused_nodes_are_found);
    tcase_add_test(t, verify_options_do_not_matter);
    tcase_add_test(t, verify_few_rows_are_asked);
    tcase_add_test(t, corroborate_revealed_shapes_are_their_plans);
    tcase_add_test(t, corroborate_masks_of_every_type);
    tcase_add_test(t, verify_rounded_results_in_blocks);
    tcase_add_test(t, reject_sums_without_a_tree);
    tcase_add_test(t, reject_orders_that_change_between_calls);
    tcase_add_test(t, reject_wide_nodes);
    tcase_add_test(t, reject_bad_options);
    tcase_add_test(t, corroborate_trees_keep_meetings);
    tcase_add_test(t, reject_parents_that_are_no_tree);
    suite_add_tcase(s, t);
    return s;
}
