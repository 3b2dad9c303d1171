/* moeref reveal: plugins good and bad, replayed lines, what is refused. */
#include <check.h>
#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../ref/arith/mma.h"
#include "support/cli.h"

Suite *suite_reveal_cli(void);

/* build/tests/plugins/sums.so, beside this program. */
static const char *sums(void)
{
    static char path[PATH_MAX + 32];
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    ck_assert_int_gt(n, 0);
    self[n] = '\0';
    snprintf(path, sizeof path, "%s/plugins/sums.so", dirname(self));
    return path;
}

static void shows(const char *text)
{
    ck_assert_msg(strstr(cli_last.out, text) != NULL, "no \"%s\" in:\n%s", text, cli_last.out);
}

START_TEST(verify_plugins_are_revealed)
{
    static const struct {
        const char *symbol, *terms, *tree, *line;
    } all[] = {
        {"moeref_sum", "1000", "chain of 1000 terms: 0..999\n", "line: fma\n"},
        {"backwards", "100", "chain of 100 terms: 99..0\n", "line: fma/"},
        {"pairwise", "64", "chain of 2 terms: 0, 1\n", "line: fma/runs:64:pairs\n"},
        {"lanes8", "64", "chain of 8 terms: 0, 8, .., 56\n", "line: fma/deal:8:pairs\n"},
        {"pairwise", "100", "100 terms", "line: "},
        {"moeref_sum", "1", "0\n", "line: fma\n"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cli("reveal", "--plugin", sums(), "--symbol", all[i].symbol, "--terms", all[i].terms);
        cli_fine();
        shows(all[i].tree);
        shows(all[i].line);
    }
    cli("reveal", "--plugin", sums(), "--terms", "20", "--operands", "fp16", "--nested");
    cli_fine();
    shows("terms of fp16\n");
    shows("\n(((((((((((((((((((0 1) 2) 3) ");
    cli("reveal", "--plugin", sums(), "--symbol", "from_last", "--terms", "20", "--start");
    cli_fine();
    shows("chain of 20 terms: c, 0..18\n");
    shows("line: none, since lines start from +0\n");
}
END_TEST

/* A library of the system: its order depends on the processor, so only that it has one. */
START_TEST(verify_openblas_has_an_order)
{
    for (int i = 0; i < 2; i++) {
        cli("reveal", "--plugin", sums(), "--symbol", i ? "openblas_sgemv" : "openblas_sdot",
            "--terms", "200");
        cli_fine();
        shows("foretold from the tree");
    }
}
END_TEST

START_TEST(reject_bad_plugins)
{
    static const struct {
        const char *symbol, *first, *second;
    } all[] = {
        {"sorted", "depends on values", NULL}, {"unsteady", "run to run", NULL},
        {"crashes", "crashes", "Aborted"},     {"ends", "ended its process", "status 7"},
        {"says_no", "says_no", "returned 5"},  {"writes_nothing", "nan", NULL},
        {"no_such", "no_such", "symbol"},      {"hangs", "hangs", "1 s"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cli("reveal", "--plugin", sums(), "--symbol", all[i].symbol, "--terms", "40", "--seconds",
            i + 1 == sizeof all / sizeof *all ? "1" : "60");
        cli_refused(3, all[i].first, all[i].second);
    }
    cli("reveal", "--plugin", sums(), "--symbol", "lanes8", "--terms", "41");
    cli_refused(3, "lanes8", "returned 1");
    cli("reveal", "--plugin", "/nowhere/sum.so", "--terms", "40");
    cli_refused(3, "/nowhere/sum.so", NULL);
    cli("reveal", "--plugin", "case.json", "--terms", "40");
    cli_refused(3, "case.json", NULL);
}
END_TEST

START_TEST(corroborate_lines_and_their_replay)
{
    static const char *const lines[][3] = {
        {"fma/deal:6x8", "1000", "line: fma/deal:6x8\n"},
        {"mul-add/runs:5:reverse", "300", "line: fma/runs:5:reverse\n"},
        {"hopper-bf16/runs:3x64", "600", "line: hopper-bf16/runs:3x64\n"},
        {"hopper-bf16+bf16-logits", "300", "line: hopper-bf16\n"},
        {"hopper-e4m3/promote:64", "200", "line: hopper-e4m3/"},
        {"hopper-mma-e5m2-fp16", "100", "line: "},
        {"ampere-fp16-fp16/even:7", "200", "line: ampere-fp16-fp16/even:7"},
        {"fma/deal:32:halves+bf16-hidden", "512", "line: fma/deal:32:halves\n"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        cli("reveal", "--arith", lines[i][0], "--terms", lines[i][1]);
        cli_fine();
        shows(lines[i][2]);
        shows("the tree is that of the line\n");
    }
}
END_TEST

/* Where no hardware vouches for an instruction, its line says so. */
START_TEST(verify_unverified_is_said)
{
    for (size_t i = 0; i < mr_mma_count(); i++) {
        const struct mr_mma *m = mr_mma_at(i);
        if (m->a != MR_MMA_E5M2 || m->b != MR_MMA_E5M2 || m->scale_block) continue;
        cli("reveal", "--arith", m->name, "--terms", "70", "--json", cli_at("u.json"));
        cli_fine();
        json_t *doc = cli_json_file(cli_at("u.json"));
        const json_t *line = json_array_get(json_object_get(doc, "lines"), 0);
        const char *name = json_string_value(json_object_get(line, "arith"));
        bool marked = *mr_mma_mark(mr_mma_find(name, strlen(name))) != 0;
        ck_assert_int_eq(json_is_true(json_object_get(line, "unverified")), marked);
        ck_assert_int_eq(strstr(cli_last.out, "unverified") != NULL, marked);
        json_decref(doc);
    }
}
END_TEST

START_TEST(verify_json)
{
    cli("reveal", "--arith", "hopper-bf16/runs:2x16", "--terms", "48", "--json", "-");
    cli_fine();
    json_t *doc = cli_json();
    cli_keys(doc, "moeref command arith symbol operands terms start tree lines same_tree asked");
    cli_keys(json_object_get(doc, "tree"), "additions fused widest nested");
    cli_keys(json_object_get(doc, "asked"), "calls rows foretold");
    ck_assert_str_eq(json_string_value(json_object_get(doc, "command")), "reveal");
    ck_assert_int_eq(json_integer_value(json_object_get(doc, "terms")), 48);
    ck_assert(json_is_null(json_object_get(doc, "start")));
    ck_assert(json_is_true(json_object_get(doc, "same_tree")));
    const json_t *tree = json_object_get(doc, "tree");
    ck_assert_int_eq(json_integer_value(json_object_get(tree, "additions")), 4);
    ck_assert_int_eq(json_integer_value(json_object_get(tree, "fused")), 3);
    ck_assert_int_eq(json_integer_value(json_object_get(tree, "widest")), 17);
    ck_assert_str_eq(
        json_string_value(json_object_get(tree, "nested")),
        "(((0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) 16 17 18 19 20 21 22 23 24 25 26 27 "
        "28 29 30 31) (32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47))");
    const json_t *first = json_array_get(json_object_get(doc, "lines"), 0);
    cli_keys(first, "arith unverified");
    ck_assert_str_eq(json_string_value(json_object_get(first, "arith")), "hopper-bf16/runs:2x32");
    json_decref(doc);

    cli("reveal", "--plugin", sums(), "--symbol", "from_last", "--terms", "9", "--start", "--json",
        "-", "--rows", "3", "--probes", "5", "--times", "1");
    cli_fine();
    doc = cli_json();
    cli_keys(doc, "moeref command plugin symbol operands terms start tree lines same_tree asked");
    ck_assert_int_eq(json_integer_value(json_object_get(doc, "start")), 8);
    ck_assert_uint_eq(json_array_size(json_object_get(doc, "lines")), 0);
    ck_assert(json_is_null(json_object_get(doc, "same_tree")));
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(doc, "asked"), "foretold")),
                     5);
    json_decref(doc);

    cli("reveal", "--arith", "fma", "--terms", "9", "--json", cli_at("r.json"), "-q");
    cli_fine();
    ck_assert_uint_eq(cli_last.out_bytes, 0);
    json_decref(cli_json_file(cli_at("r.json")));
}
END_TEST

/* The same bytes for the same arguments, however rows are cut into calls. */
START_TEST(verify_reruns)
{
    cli("reveal", "--arith", "fma/deal:6x8", "--terms", "200", "--nested", "-q", "--json",
        cli_at("a.json"));
    cli_fine();
    cli("reveal", "--arith", "fma/deal:6x8", "--terms", "200", "--json", cli_at("b.json"));
    cli_fine();
    ck_assert(cli_same(cli_at("a.json"), cli_at("b.json")));
}
END_TEST

START_TEST(reject_usage)
{
    cli("reveal");
    cli_refused(2, "--plugin", "--arith");
    cli("reveal", "--arith", "fma");
    cli_refused(2, "--terms", NULL);
    cli("reveal", "--arith", "fma", "--plugin", "x.so", "--terms", "3");
    cli_refused(2, "--plugin", "--arith");
    cli("reveal", "--arith", "fma", "--terms", "3", "--symbol", "x");
    cli_refused(2, "--symbol", "--plugin");
    cli("reveal", "--arith", "fma", "--terms", "0");
    cli_refused(2, "--terms", NULL);
    cli("reveal", "--arith", "fma", "--terms", "3", "more");
    cli_refused(2, "more", NULL);
    cli("reveal", "--arith", "fp32", "--terms", "3");
    cli_refused(2, "exact", NULL);
    cli("reveal", "--arith", "fma/deal", "--terms", "3");
    cli_refused(2, "column", NULL);
    cli("reveal", "--arith", "blackwell-nvf4", "--terms", "64");
    cli_refused(3, "nvf4", NULL);
    cli("reveal", "--arith", "blackwell-e2m1", "--terms", "64");
    cli_refused(3, "e2m1", NULL);
    cli("reveal", "--plugin", sums(), "--terms", "3", "--operands", "int8");
    cli_refused(2, "int8", NULL);
    cli("reveal", "--plugin", sums(), "--terms", "1", "--start");
    cli_refused(2, "--start", NULL);
}
END_TEST

Suite *suite_reveal_cli(void)
{
    Suite *s = suite_create("reveal_cli");
    TCase *t = tcase_create("reveal_cli");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, cli_start, cli_stop);
    tcase_add_test(t, verify_plugins_are_revealed);
    tcase_add_test(t, verify_openblas_has_an_order);
    tcase_add_test(t, reject_bad_plugins);
    tcase_add_test(t, corroborate_lines_and_their_replay);
    tcase_add_test(t, verify_unverified_is_said);
    tcase_add_test(t, verify_json);
    tcase_add_test(t, verify_reruns);
    tcase_add_test(t, reject_usage);
    suite_add_tcase(s, t);
    return s;
}
