/* moeref-gpu run with plugins on the CPU: from a kernel to files, verdicts, JSON and exit
 * status. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/gpu_cli.h"

Suite *suite_gpu_run(void);

#define ENTRY "kernel family rows arith verdicts flips bit_changes batch_flips batch_bits " \
              "unstable_rows logits us_cold us_warm spread spread_warm events_cold events_warm " \
              "method pdl launches against status reason"
#define TOP "moeref command case device driver cuda commit seed floor against kernels"
#define MLP "p.model.layers.0.mlp."

static const char *observed(const char *kernel, int rows)
{
    char name[128];
    snprintf(name, sizeof name, "%s.m%d.safetensors", kernel, rows);
    return cli_at(name);
}

/* `moeref verify` says the same of a file as the entry. */
static void same_verdicts(const json_t *entry, const char *kernel, int rows)
{
    static const char *const name[] = {"exact", "tie", "rounding", "undecided", "wrong",
                                       "malformed", "nonfinite"};
    const char *line = gpu_word(entry, "arith");
    cli("verify", cli_at("case.json"), "--observed", observed(kernel, rows), "--arith",
        line[0] ? line : "fp32", "--json", "-");
    json_t *doc = cli_json();
    for (int i = 0; i < 7; i++)
        ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(doc, "verdicts"),
                                                            name[i])),
                         gpu_verdict(entry, name[i]));
    json_decref(doc);
}

START_TEST(verify_right_kernels)
{
    static const char *const kernel[] = {"plain", "plain_state", "topk", "plain_logits"};
    static const int rows[] = {1, 2, 9, 20};
    gpu("run", cli_at("case.json"), "--kernel", "all", "--plugin", gpu_plugin("right"), "--rows",
        "1,2,5,9,20", "--out", cli_at("."), "--json", "-");
    ck_assert_msg(cli_last.status == 0, "%s", cli_last.err);
    json_t *doc = cli_json(), *entry;
    size_t i;
    cli_keys(doc, TOP);
    json_array_foreach(json_object_get(doc, "kernels"), i, entry) cli_keys(entry, ENTRY);
    ck_assert_uint_eq(i, 6 * 5);
    for (int k = 0; k < 4; k++)
        for (int m = 0; m < 4; m++) {
            entry = gpu_entry(doc, kernel[k], rows[m]);
            int launches = (CLI_TOKENS + rows[m] - 1) / rows[m];
            ck_assert_str_eq(gpu_word(entry, "status"), "ok");
            ck_assert_int_eq(gpu_verdict(entry, "exact"), launches * rows[m]);
            ck_assert_int_eq(gpu_int(entry, "batch_bits"), 0);
            ck_assert_int_eq(gpu_int(entry, "unstable_rows"), 0);
            ck_assert_int_eq(gpu_int(entry, "flips"), k == 3 ? -1 : 0);
            json_t *logits = json_object_get(entry, "logits");
            ck_assert_int_eq(json_is_null(logits), k > 0);
            if (k == 0) {
                ck_assert_int_eq(gpu_int(logits, "checked"), launches * rows[m] * CLI_EXPERTS);
                ck_assert_int_eq(gpu_int(logits, "equal"), launches * rows[m] * CLI_EXPERTS);
            }
            same_verdicts(entry, kernel[k], rows[m]);
        }
    ck_assert_int_eq(gpu_int(gpu_entry(doc, "plain", 1), "bit_changes"), -1);
    ck_assert_int_eq(gpu_int(gpu_entry(doc, "plain", 2), "bit_changes"), 0);
    ck_assert_str_eq(gpu_word(gpu_entry(doc, "plain_state", 2), "arith"), "fp32");
    ck_assert_str_eq(gpu_word(gpu_entry(doc, "topk_bf16", 2), "arith"), "bf16-logits");
    ck_assert_str_eq(gpu_word(gpu_entry(doc, "plain_8", 8 + 1), "reason"), "serves 1 to 8 rows");
    ck_assert_str_eq(gpu_word(gpu_entry(doc, "plain_8", 5), "reason"), "no 5 rows");
    ck_assert_str_eq(gpu_word(gpu_entry(doc, "plain_8", 5), "status"), "unsupported");
    json_decref(doc);
}
END_TEST

/* Layout, token index and provenance of a file; rows beyond the tokens repeat them. */
START_TEST(verify_files)
{
    struct mr_safetensors *file;
    struct mr_tensor t;
    struct mr_error err;
    gpu("run", cli_at("case.json"), "--kernel", "plain", "--plugin", gpu_plugin("right"), "--rows",
        "4,20", "--out", cli_at("."), "-q");
    ck_assert_int_eq(cli_last.status, 0);
    ck_assert_uint_eq(cli_last.out_bytes, 0);
    for (int rows = 4; rows <= 20; rows += 16) {
        size_t all = rows == 4 ? 12 : 20;
        int seen[CLI_TOKENS] = {0};
        ck_assert_msg(!mr_safetensors_open(observed("plain", rows), &file, &err), "%s", err.text);
        ck_assert(mr_safetensors_find(file, MLP "topk_ids", &t));
        ck_assert(t.dtype == MR_I32 && t.shape[0] == all && t.shape[1] == CLI_TOP_K);
        ck_assert(mr_safetensors_find(file, MLP "topk_weights", &t) && t.dtype == MR_F32);
        ck_assert(mr_safetensors_find(file, MLP "gate.logits", &t));
        ck_assert(t.dtype == MR_F32 && t.shape[0] == all && t.shape[1] == CLI_EXPERTS);
        ck_assert(mr_safetensors_find(file, MLP "gate.token_index", &t) && t.dtype == MR_I64);
        int64_t before = -1, token;
        for (size_t i = 0; i < all; i++) {
            memcpy(&token, (const char *)t.data + 8 * i, 8);
            ck_assert(before < 0 || token == (before + 1) % CLI_TOKENS);
            seen[token]++;
            before = token;
        }
        for (int i = 0; i < CLI_TOKENS; i++) ck_assert_int_ge(seen[i], 1);
        ck_assert_str_eq(mr_safetensors_metadata(file, "kernel"), "plain");
        ck_assert_str_eq(mr_safetensors_metadata(file, "rows"), rows == 4 ? "4" : "20");
        ck_assert_str_eq(mr_safetensors_metadata(file, "device"), "CPU");
        ck_assert_ptr_nonnull(mr_safetensors_metadata(file, "commit"));
        mr_safetensors_close(file);
    }
    /* Again: the same bytes. */
    size_t n;
    char *first = cli_get(observed("plain", 4), &n);
    cli_put("first", first, n);
    free(first);
    gpu("run", cli_at("case.json"), "--kernel", "plain", "--plugin", gpu_plugin("right"), "--rows",
        "4", "--out", cli_at("."), "-q");
    ck_assert(cli_same(cli_at("first"), observed("plain", 4)));
}
END_TEST

static const struct {
    const char *kernel, *status, *reason, *fine; /* fine: the status at 1 row */
} faults[] = {
    {"holes", "faulty", "holes: 3 elements not written (not written: weights, row 3)", "ok"},
    {"outside", "faulty", "wrote outside: 4 bytes behind ids, from 0 after its end on", "ok"},
    {"before", "faulty", "before weights", "faulty"},
    {"input", "faulty", "wrote into its input bias", "faulty"},
    {"no_bias", "wrong", "rows fail", "wrong"},
    {"unstable", "ok", "", "ok"},
    {"unstable_promise", "faulty", "promises to be deterministic", "faulty"},
    {"stale", "faulty", "reads memory that nobody wrote", "faulty"},
    {"counts", "faulty", "counts: expert 1", "faulty"},
    {"sorted", "faulty", "sorted: element 0", "faulty"},
    {"delay", "faulty", "does not wait for its own earlier kernels", "faulty"},
    {"line", "faulty", "unknown word 'nonsense'", "faulty"},
    {"refused", "not_run", "prepare: no licence?for this", "not_run"},
};
enum { FAULTS = sizeof faults / sizeof *faults };

START_TEST(verify_faulty_kernels)
{
    gpu("run", cli_at("case.json"), "--kernel", "all", "--plugin", gpu_plugin("faulty"), "--rows",
        "1,4,6", "--json", cli_at("out.json"));
    ck_assert_int_eq(cli_last.status, 1);
    ck_assert_ptr_nonnull(strstr(cli_last.out, "faulty: holes: holes: 3 elements"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "\nworst:\n  no_bias, 1 rows: "));
    json_t *doc = cli_json_file(cli_at("out.json"));
    for (int i = 0; i < FAULTS; i++) {
        const json_t *entry = gpu_entry(doc, faults[i].kernel, 4);
        ck_assert_msg(!strcmp(gpu_word(entry, "status"), faults[i].status), "%s: %s",
                      faults[i].kernel, gpu_word(entry, "status"));
        ck_assert_msg(strstr(gpu_word(entry, "reason"), faults[i].reason) != NULL, "%s: %s",
                      faults[i].kernel, gpu_word(entry, "reason"));
        entry = gpu_entry(doc, faults[i].kernel, 1);
        ck_assert_msg(!strcmp(gpu_word(entry, "status"), faults[i].fine), "%s, 1 row: %s",
                      faults[i].kernel, gpu_word(entry, "status"));
    }
    json_t *logits = json_object_get(gpu_entry(doc, "other_line", 6), "logits");
    ck_assert_int_eq(gpu_int(logits, "checked"), 12 * CLI_EXPERTS);
    ck_assert_int_lt(gpu_int(logits, "equal"), 12 * CLI_EXPERTS - 12);
    ck_assert_ptr_nonnull(strstr(gpu_word(gpu_entry(doc, "other_line", 6), "reason"),
                                 "logits are not those of its arithmetic"));
    ck_assert_str_eq(gpu_word(gpu_entry(doc, "other_line", 4), "status"), "ok");
    ck_assert_int_gt(gpu_verdict(gpu_entry(doc, "no_bias", 4), "malformed"), 0);
    ck_assert_int_eq(gpu_verdict(gpu_entry(doc, "holes", 4), "nonfinite"), 3);
    ck_assert_int_eq(gpu_int(gpu_entry(doc, "unstable", 4), "unstable_rows"), 3);
    ck_assert_int_eq(gpu_verdict(gpu_entry(doc, "refused", 4), "exact"), -1);
    json_decref(doc);
}
END_TEST

/* Another order of the sum above 4 rows: bits change there, and sets do not. */
START_TEST(verify_batch_bits)
{
    static const char *const kernel[] = {"batch", "batch_promise"};
    gpu("run", cli_at("case.json"), "--kernel", kernel[_i], "--plugin", gpu_plugin("faulty"),
        "--rows", "1,4,6,18", "--json", "-");
    ck_assert_int_eq(cli_last.status, _i);
    json_t *doc = cli_json();
    static const int rows[] = {1, 4, 6, 18};
    for (int m = 0; m < 4; m++) {
        const json_t *entry = gpu_entry(doc, kernel[_i], rows[m]);
        bool other = rows[m] > 4;
        ck_assert_str_eq(gpu_word(entry, "status"), other && _i ? "faulty" : "ok");
        ck_assert_int_eq(gpu_int(entry, "bit_changes"),
                         m == 0 ? -1 : rows[m] == 6 ? CLI_TOKENS : 0);
        ck_assert_int_eq(gpu_int(entry, "batch_bits"), other ? CLI_TOKENS : 0);
        ck_assert_int_eq(gpu_int(entry, "batch_flips"), 0);
        ck_assert_int_eq(gpu_int(entry, "flips"), 0);
    }
    json_decref(doc);
}
END_TEST

/* What dies at 4 rows leaves its other files, and nothing under the name of the one it owes. */
START_TEST(verify_deadly_kernels)
{
    static const char *const kernel[] = {"hang", "crash", "die", "quit", "fail"};
    static const char *const reason[] = {"still running after 1 s", "", "", "ended by itself",
                                         "launch: out of luck"};
    cli_put("crash.m4.safetensors", "stale", 5);
    gpu("run", cli_at("case.json"), "--kernel", kernel[_i], "--plugin", gpu_plugin("deadly"),
        "--rows", "2,4,6", "--timeout", "1", "--out", cli_at("."), "--json", cli_at("out.json"));
    ck_assert_int_eq(cli_last.status, 1);
    json_t *doc = cli_json_file(cli_at("out.json"));
    const json_t *entry = gpu_entry(doc, kernel[_i], 4);
    ck_assert_str_eq(gpu_word(entry, "status"), "not_run");
    ck_assert_ptr_nonnull(strstr(gpu_word(entry, "reason"), reason[_i]));
    ck_assert_str_eq(gpu_word(gpu_entry(doc, kernel[_i], 2), "status"), "ok");
    ck_assert_str_eq(gpu_word(gpu_entry(doc, kernel[_i], 6), "status"), "ok");
    ck_assert_int_eq(access(observed(kernel[_i], 2), F_OK), 0);
    ck_assert_int_eq(access(observed(kernel[_i], 6), F_OK), 0);
    ck_assert_int_ne(access(observed(kernel[_i], 4), F_OK), 0);
    json_decref(doc);
}
END_TEST

START_TEST(verify_given_up)
{
    gpu("run", cli_at("case.json"), "--kernel", "always", "--plugin", gpu_plugin("deadly"),
        "--json", "-");
    ck_assert_int_eq(cli_last.status, 1);
    json_t *doc = cli_json();
    ck_assert_ptr_nonnull(strstr(gpu_word(gpu_entry(doc, "always", 4), "reason"), "signal 9"));
    ck_assert_ptr_nonnull(strstr(gpu_word(gpu_entry(doc, "always", 8192), "reason"), "not tried"));
    json_decref(doc);
}
END_TEST

/* Real hidden states; and logits as given, where kernels that take hidden states are not served. */
START_TEST(corroborate_captures)
{
    static const char *const path[] = {"cases/glm4moe-tiny.json", "cases/qwen3moe-tiny.json"};
    gpu("run", path[_i], "--layers", "3", "--phase", "decode", "--kernel", "all", "--plugin",
        gpu_plugin("right"), "--rows", "1,33,129", "--json", "-");
    ck_assert_msg(cli_last.status == 0, "%.300s", cli_last.err);
    json_t *doc = cli_json();
    const json_t *entry = gpu_entry(doc, "plain", 33);
    ck_assert_int_eq(gpu_verdict(entry, "exact") + gpu_verdict(entry, "rounding"), 132);
    ck_assert_int_ge(gpu_verdict(entry, "exact"), 130);
    entry = gpu_entry(doc, "topk_bf16", 129);
    ck_assert_int_eq(gpu_verdict(entry, "exact") + gpu_verdict(entry, "rounding"), 129);
    ck_assert_int_gt(gpu_verdict(entry, "rounding"), 3);
    json_decref(doc);
}
END_TEST

START_TEST(verify_from_logits)
{
    gpu("run", "cases/toy.json", "--kernel", "all", "--plugin", gpu_plugin("right"), "--rows",
        "1,3");
    ck_assert_int_eq(cli_last.status, 0);
    ck_assert_ptr_nonnull(strstr(cli_last.out, "unsupported: plain: takes hidden states, and the "
                                               "case starts from logits: rows 1,3\n"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "topk_bf16: logits: 5 of 8 F32 values are none of "
                                               "bf16"));
    gpu("run", "cases/glm4moe-tiny.json", "--from", "logits", "--layers", "2", "--phase", "decode",
        "--kernel", "topk", "--plugin", gpu_plugin("right"), "--rows", "7", "--json", "-");
    ck_assert_msg(cli_last.status == 0, "%s", cli_last.err);
    json_t *doc = cli_json();
    ck_assert_int_eq(gpu_verdict(gpu_entry(doc, "topk", 7), "exact"), 133);
    json_decref(doc);
}
END_TEST

/* Fewer launches than all tokens need: fewer rows, and the same verdicts for them. */
START_TEST(verify_launches)
{
    gpu("run", cli_at("case.json"), "--kernel", "plain", "--plugin", gpu_plugin("right"), "--rows",
        "1,2", "--launches", "3", "--json", "-");
    ck_assert_int_eq(cli_last.status, 0);
    json_t *doc = cli_json();
    ck_assert_int_eq(gpu_verdict(gpu_entry(doc, "plain", 1), "exact"), 3);
    ck_assert_int_eq(gpu_verdict(gpu_entry(doc, "plain", 2), "exact"), 6);
    json_decref(doc);
}
END_TEST

/* Above 4 rows `batch` adds in reverse: other bits than at the same rows of `holes`, which is right
 * in its logits, and the same experts. */
START_TEST(verify_against)
{
    gpu("run", cli_at("case.json"), "--kernel", "batch", "--against", "holes", "--plugin",
        gpu_plugin("faulty"), "--rows", "4,6", "--json", cli_at("out.json"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "\nagainst holes, row by row:\n"));
    json_t *doc = cli_json_file(cli_at("out.json"));
    ck_assert_str_eq(gpu_word(doc, "against"), "holes");
    ck_assert(json_is_null(json_object_get(gpu_entry(doc, "holes", 4), "against")));
    for (int rows = 4; rows <= 6; rows += 2) {
        const json_t *a = json_object_get(gpu_entry(doc, "batch", rows), "against");
        double off = json_real_value(json_object_get(a, "logit_difference"));
        ck_assert_int_eq(gpu_int(a, "rows"), 12);
        ck_assert_int_eq(gpu_int(a, "bits"), rows == 4 ? 0 : 12);
        ck_assert_int_eq(gpu_int(a, "sets"), 0);
        ck_assert(rows == 4 ? off == 0 : off > 0 && off < 1e-5);
    }
    json_decref(doc);
}
END_TEST

Suite *suite_gpu_run(void)
{
    Suite *s = suite_create("gpu_run");
    TCase *c = tcase_create("plugins");
    tcase_add_checked_fixture(c, cli_start, cli_stop);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, verify_right_kernels);
    tcase_add_test(c, verify_files);
    tcase_add_test(c, verify_faulty_kernels);
    tcase_add_loop_test(c, verify_batch_bits, 0, 2);
    tcase_add_loop_test(c, verify_deadly_kernels, 0, 5);
    tcase_add_test(c, verify_given_up);
    tcase_add_loop_test(c, corroborate_captures, 0, 2);
    tcase_add_test(c, verify_from_logits);
    tcase_add_test(c, verify_launches);
    tcase_add_test(c, verify_against);
    suite_add_tcase(s, c);
    return s;
}
