/* cuBLAS on an H200 at the row counts of the row axis: the orders that gpu/reveal revealed
 * (data/reveal-h200/orders.tsv), and the logits that their lines give back. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../gpu/kernels/cublas_lines.h"
#include "../ref/arith/tree_line.h"
#include "../ref/io/case.h"
#include "support/cli.h"

Suite *suite_cublas_h200(void);

static bool thorough(void)
{
    return getenv("MOEREF_LONG") != NULL;
}

static void parse_sum(const char *line, struct mr_sum_shape *out)
{
    struct mr_error err;
    size_t length = strcspn(line, "+");
    if (mr_sum_parse(line, 0, length, out, &err) != MR_OK) ck_abort_msg("%s: %s", line, err.text);
}

static void make_tree(const char *line, size_t terms, struct mr_tree *out)
{
    struct mr_sum_shape sum;
    struct mr_error err;
    parse_sum(line, &sum);
    if (mr_tree_of_sum(&sum, terms, out, &err) != MR_OK) ck_abort_msg("%s: %s", line, err.text);
}

static void open_case(const char *shape, struct mr_case **out)
{
    char path[96];
    struct mr_error err;
    snprintf(path, sizeof path, "cases/cublas-h200-%s.json", shape);
    if (mr_case_load(path, NULL, out, &err) != MR_OK) ck_abort_msg("%s", err.text);
}

/* What the case replays is the tree that was revealed, whatever its spelling. */
START_TEST(verify_replayed_lines_have_the_revealed_trees)
{
    size_t bytes, compared = 0;
    char *text = cli_get("data/reveal-h200/orders.tsv", &bytes);
    struct mr_case *cases[2];
    open_case("n288k4096", &cases[0]);
    open_case("n128k512", &cases[1]);
    for (char *row = strtok(text, "\n"); row; row = strtok(NULL, "\n")) {
        unsigned n, k, rows;
        char types[16], line[64], phase[32];
        if (sscanf(row, "%u %u %15s %u %63s", &n, &k, types, &rows, line) != 5) continue;
        if (k == 7168 || line[0] == '-') continue; /* no logits; not asked */
        snprintf(phase, sizeof phase, "%s%u", types[0] == 'f' ? "fp32_in_m" : "m", rows);
        const char *replayed = mr_case_replay(cases[k == 512], phase);
        ck_assert_msg(replayed != NULL, "%s: no line", phase);
        struct mr_tree a, b;
        make_tree(line, k, &a);
        make_tree(replayed, k, &b);
        ck_assert_msg(mr_tree_same(&a, &b), "%u x %u, %s: revealed %s, replayed %s", n, k, phase,
                      line, replayed);
        mr_tree_free(&a);
        mr_tree_free(&b);
        compared++;
    }
    ck_assert_uint_eq(compared, 96);
    mr_case_free(cases[0]);
    mr_case_free(cases[1]);
    free(text);
}
END_TEST

/* What the kernels of gpu/kernels declare of cuBLAS is what was revealed, at these shapes and row
 * counts and at no others. */
START_TEST(verify_kernels_declare_the_revealed_lines)
{
    size_t bytes, seen = 0;
    char *text = cli_get("data/reveal-h200/orders.tsv", &bytes);
    struct mr_kernel_problem p = {.router = {.top_k = 1}};
    for (char *row = strtok(text, "\n"); row; row = strtok(NULL, "\n")) {
        unsigned n, k, rows;
        char types[16], line[64];
        if (sscanf(row, "%u %u %15s %u %63s", &n, &k, types, &rows, line) != 5) continue;
        p.router.experts = (int)n;
        p.router.hidden = (int)k;
        p.rows = (int)rows;
        if (!strcmp(types, "bf16-fp32")) ck_assert_str_eq(cublas_line(&p), line);
        if (!strcmp(types, "fp32")) ck_assert_str_eq(cublas_line_fp32(&p), line);
        if (!strcmp(types, "bf16-bf16"))
            ck_assert_str_eq(cublas_line_bf16(&p), k == 7168 ? "" : cublas_line(&p));
        seen++;
    }
    ck_assert_uint_eq(seen, 3 * CUBLAS_SEEN);
    p.rows = 3;
    ck_assert_str_eq(cublas_line(&p), "");
    p.rows = 1;
    p.router.hidden = 7160;
    ck_assert_str_eq(cublas_line_fp32(&p), "");
    free(text);
}
END_TEST

static long long checked;

/* Replays one phase, or all (NULL): no mismatch. */
static void replay(const char *shape, const char *phase)
{
    char path[96];
    snprintf(path, sizeof path, "cases/cublas-h200-%s.json", shape);
    if (phase)
        cli("replay", path, "--phase", phase, "--json", "-");
    else
        cli("replay", path, "--json", "-");
    ck_assert_msg(cli_last.status == 0, "%s, %s: %s", path, phase ? phase : "all", cli_last.err);
    json_t *doc = cli_json(), *total = json_object_get(doc, "total");
    checked += json_integer_value(json_object_get(total, "checked"));
    ck_assert_int_eq(json_integer_value(json_object_get(total, "mismatches")), 0);
    json_decref(doc);
}

START_TEST(validate_logits_at_all_row_counts)
{
    static const char *const some[] = {"m2",           "m257",          "m1025",
                                       "bf16_out_m33", "fp32_in_m5",    "fp32_in_m16",
                                       "fp32_in_m32",  "fp32_in_m257",  "fp32_in_m1",
                                       "fp32_in_m512", "fp32_in_m1025", "fp32_in_m8192"};
    checked = 0;
    replay("n128k512", NULL);
    ck_assert_int_eq(checked, 34944);
    checked = 0;
    if (thorough()) {
        replay("n288k4096", NULL);
        ck_assert_int_eq(checked, 78624);
    } else {
        for (size_t i = 0; i < sizeof some / sizeof *some; i++) replay("n288k4096", some[i]);
        ck_assert_int_eq(checked, 288 * (4 * 10 + 2 + 1));
    }
}
END_TEST

Suite *suite_cublas_h200(void)
{
    Suite *s = suite_create("cublas_h200");
    TCase *t = tcase_create("rows");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, cli_start, cli_stop);
    tcase_add_test(t, verify_replayed_lines_have_the_revealed_trees);
    tcase_add_test(t, verify_kernels_declare_the_revealed_lines);
    tcase_add_test(t, validate_logits_at_all_row_counts);
    suite_add_tcase(s, t);
    return s;
}
