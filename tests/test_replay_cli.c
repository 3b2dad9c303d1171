/* moeref replay: the recordings of this repository come back bit for bit, what differs is told, and
 * what cannot be is refused. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cli.h"

Suite *suite_replay_cli(void);

static json_int_t whole(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    ck_assert_msg(json_is_integer(v), "%s: no integer", key);
    return json_integer_value(v);
}

static const char *text(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    ck_assert_msg(s != NULL, "%s: no text", key);
    return s;
}

static const json_t *group(const json_t *doc, size_t i)
{
    return json_array_get(json_object_get(doc, "groups"), i);
}

/* The document's keys, and that the total is the sum. */
static json_t *document(const char *name, size_t groups)
{
    json_t *doc = cli_json(), *g;
    json_int_t checked = 0, mismatches = 0;
    size_t i;
    cli_keys(doc, "moeref command case groups total");
    cli_keys(json_object_get(doc, "moeref"), "version");
    ck_assert_str_eq(text(doc, "command"), "replay");
    ck_assert_str_eq(text(doc, "case"), name);
    ck_assert_uint_eq(json_array_size(json_object_get(doc, "groups")), groups);
    json_array_foreach(json_object_get(doc, "groups"), i, g)
    {
        cli_keys(g, "name phase layer arith unverified rows experts checked mismatches worst_ulp "
                    "nan first");
        checked += whole(g, "checked");
        mismatches += whole(g, "mismatches");
        ck_assert_int_eq(whole(g, "checked"), whole(g, "rows") * whole(g, "experts"));
        ck_assert_int_eq(json_is_null(json_object_get(g, "first")), whole(g, "mismatches") == 0);
    }
    const json_t *total = json_object_get(doc, "total");
    cli_keys(total, "checked mismatches worst_ulp nan");
    ck_assert_int_eq(whole(total, "checked"), checked);
    ck_assert_int_eq(whole(total, "mismatches"), mismatches);
    return doc;
}

/* Each recorded logit of an H200 in this repository, under the line that its case has for it. */
START_TEST(validate_recordings)
{
    static const struct {
        const char *path, *name;
        size_t groups;
        json_int_t checked;
    } rows[] = {{"cases/cublas-h200.json", "cublas-h200", 17, 3 * 288 + 14 * 4 * 288},
                {"cases/glm4moe-tiny.json", "glm4moe-tiny", 14, 14 * 128 * 128},
                {"cases/qwen3moe-tiny.json", "qwen3moe-tiny", 16, 16 * 128 * 128},
                {"cases/cublas-h200-n288k4096.json", "cublas-h200-n288k4096", 72, 273 * 288},
                {"cases/cublas-h200-n128k512.json", "cublas-h200-n128k512", 72, 273 * 128}};
    cli("replay", rows[_i].path, "--json", "-");
    cli_fine();
    json_t *doc = document(rows[_i].name, rows[_i].groups);
    ck_assert_int_eq(whole(json_object_get(doc, "total"), "checked"), rows[_i].checked);
    ck_assert_int_eq(whole(json_object_get(doc, "total"), "mismatches"), 0);
    json_decref(doc);
}
END_TEST

/* A wrong line is seen to be wrong, in every recording but those of which numerics say that they
 * cannot tell: one row in bf16. */
START_TEST(validate_wrong_lines)
{
    static const struct {
        const char *phase, *line;
    } rows[] = {{"m1", "hopper-bf16"},
                {"m16", "hopper-bf16/runs:2x64"},
                {"m96", "hopper-bf16/even:3x64"},
                {"m256", "ampere-bf16/runs:3x64"},
                {"m512", "hopper-bf16/runs:2x64"},
                {"m1024", "hopper-bf16/deal:2x64"},
                {"m8192", "hopper-tf32"},
                {"bf16_out_m512", "hopper-bf16"},
                {"bf16_out_m512", "hopper-bf16/runs:3x64+bf16-logits"},
                {"fp32_in_m1", "fma/even:32:halves"},
                {"fp32_in_m1", "fma/deal:32:pairs"},
                {"fp32_in_m1", "fma/deal:32"},
                {"fp32_in_m96", "fma/deal:16x8:reverse"},
                {"fp32_in_m96", "fma/deal:16x4"},
                {"fp32_in_m96", "fma/runs:16x8"},
                {"m512", "fp32"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cli("replay", "cases/cublas-h200.json", "--phase", rows[i].phase, "--arith", rows[i].line,
            "--json", "-");
        ck_assert_msg(cli_last.status == 1, "%s, %s", rows[i].phase, rows[i].line);
        json_t *doc = document("cublas-h200", 1);
        ck_assert_str_eq(text(group(doc, 0), "arith"), rows[i].line);
        ck_assert_int_gt(whole(group(doc, 0), "mismatches"), 0);
        json_decref(doc);
    }
    /* Splits 1, 2 and 3 give one bf16 row. */
    cli("replay", "cases/cublas-h200.json", "--phase", "bf16_out_m1", "--arith",
        "hopper-bf16+bf16-logits", "--arith", "hopper-bf16/runs:2x64+bf16-logits", "--arith",
        "hopper-bf16/runs:3x64+bf16-logits", "-q");
    cli_fine();
    ck_assert_uint_eq(cli_last.out_bytes, 0);
}
END_TEST

/* The same bytes for any number of threads and any instruction set. */
START_TEST(verify_threads_and_isa)
{
    static const char *const isas[] = {"base", "v3", "v4"}, *const threads[] = {"1", "2", "7"};
    char *first = NULL;
    for (int i = 0; i < 3; i++) {
        setenv("MOEREF_ISA", isas[i], 1);
        for (int t = 0; t < 3; t++) {
            cli("replay", "cases/glm4moe-tiny.json", "--layers", "3", "--arith", "fma/deal:4x8",
                "--arith", "hopper-bf16", "--arith", "mul-add/even:3:reverse+bf16-logits",
                "--threads", threads[t], "--json", "-");
            ck_assert_int_eq(cli_last.status, 1);
            if (!first) first = strdup(cli_last.out);
            ck_assert_str_eq(first, cli_last.out);
        }
    }
    free(first);
    unsetenv("MOEREF_ISA");
}
END_TEST

/* The small case with logits of its first `rows` tokens, all equal. */
static void put_logits(const char *capture, size_t rows, float value)
{
    struct cli_values v;
    float logits[CLI_TOKENS * CLI_EXPERTS];
    cli_values(&v);
    for (size_t i = 0; i < CLI_TOKENS * CLI_EXPERTS; i++) logits[i] = value;
    const struct cli_tensor tensors[] = {
        {CLI_INPUT, MR_BF16, CLI_TOKENS, CLI_HIDDEN, v.hidden},
        {"p.model.layers.0.mlp.gate.logits", MR_F32, rows, CLI_EXPERTS, logits}};
    cli_put_tensors(capture, tensors, 2);
}

START_TEST(verify_first_mismatch)
{
    put_logits("capture.st", 2, 0.5f);
    cli("replay", cli_at("case.json"), "--capture", cli_at("capture.st"), "--arith", "fma");
    ck_assert_int_eq(cli_last.status, 1);
    ck_assert_ptr_nonnull(
        strstr(cli_last.out, "first at token 0, expert 0: observed 0.5 (0x3f000000)"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "ulp of fp32"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "is bf16-logits missing"));
    cli("replay", cli_at("case.json"), "--capture", cli_at("capture.st"), "--arith", "fma",
        "--json", cli_at("x.json"), "-q");
    ck_assert_int_eq(cli_last.status, 1);
    ck_assert_uint_eq(cli_last.out_bytes, 0);
    json_t *doc = cli_json_file(cli_at("x.json"));
    const json_t *first = json_object_get(group(doc, 0), "first");
    cli_keys(first, "token expert observed observed_bits replayed replayed_bits");
    ck_assert_str_eq(text(first, "observed_bits"), "0x3f000000");
    ck_assert_int_eq(whole(group(doc, 0), "checked"), 2 * CLI_EXPERTS);
    json_decref(doc);
}
END_TEST

/* Plain files: the same as the case. */
START_TEST(verify_plain_files)
{
    put_logits("capture.st", CLI_TOKENS, 0.5f);
    cli("replay", "--config", cli_at("config.json"), "--gate", cli_at("weights.st"), "--layer", "0",
        "--hidden", cli_at("hidden.st"), "--logits",
        cli_at("capture.st:p.model.layers.0.mlp.gate.logits"), "--arith", "fma/runs:2", "--json",
        "-");
    ck_assert_int_eq(cli_last.status, 1);
    json_t *doc = cli_json();
    char *bits = strdup(text(json_object_get(group(doc, 0), "first"), "replayed_bits"));
    json_decref(doc);
    cli("replay", cli_at("case.json"), "--capture", cli_at("capture.st"), "--arith", "fma/runs:2",
        "--json", "-");
    doc = cli_json();
    ck_assert_str_eq(text(json_object_get(group(doc, 0), "first"), "replayed_bits"), bits);
    json_decref(doc);
    free(bits);
}
END_TEST

/* Where the line comes from: --arith, then "replay", then "arith" with a sum. */
START_TEST(verify_case_lines)
{
#define WITH(more)                                                                                 \
    "{" CLI_HEAD CLI_WEIGHTS "'capture':['capture.st'],'router':{" CLI_ROUTER "}" more "}"
    put_logits("capture.st", 1, 0.5f);
    static const struct {
        const char *json, *arith;
    } rows[] = {{WITH(",'replay':'fma/runs:2'"), "fma/runs:2"},
                {WITH(",'replay':{'p':'fma/runs:3'},'arith':'fma'"), "fma/runs:3"},
                {WITH(",'replay':{},'arith':'mul-add+bf16-logits'"), "mul-add+bf16-logits"},
                {WITH(",'replay':'fp32'"), "fp32"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cli_put_json("lines.json", rows[i].json);
        cli("replay", cli_at("lines.json"), "--json", "-");
        ck_assert_msg(cli_last.status == 1, "%s", cli_last.err);
        json_t *doc = cli_json();
        ck_assert_str_eq(text(group(doc, 0), "arith"), rows[i].arith);
        json_decref(doc);
    }
    static const struct {
        const char *json;
        int status;
        const char *word, *second;
    } bad[] = {{WITH(""), 2, "--arith", "phase 'p'"},
               {WITH(",'arith':'bf16-logits'"), 2, "--arith", "no sum"},
               {WITH(",'replay':{'q':'fma'}"), 3, "replay.q", NULL},
               {WITH(",'replay':{'p':1}"), 3, "\"p\"", NULL},
               {WITH(",'replay':[]"), 3, "\"replay\"", NULL},
               {WITH(",'replay':'fma/run:3'"), 2, "column 5", NULL}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cli_put_json("lines.json", bad[i].json);
        cli_remember();
        cli("replay", cli_at("lines.json"));
        cli_refused(bad[i].status, bad[i].word, bad[i].second);
    }
}
END_TEST

/* Fewer observed rows than tokens serve the other commands too; more are refused. */
START_TEST(verify_fewer_rows)
{
    put_logits("capture.st", 3, 0.5f);
    cli("route", cli_at("case.json"), "--capture", cli_at("capture.st"), "-q");
    cli_fine();
    cli("verify", cli_at("case.json"), "--capture", cli_at("capture.st"), "--json", "-");
    ck_assert_int_eq(cli_last.status, 1);
    json_t *doc = cli_json();
    ck_assert_int_eq(whole(json_object_get(doc, "total"), "logit_rows"), 3);
    json_decref(doc);
    cli("route", cli_at("case.json"), "--capture", cli_at("capture.st"), "--from", "logits", "-q");
    cli_fine();
    cli("verify", "cases/cublas-h200.json", "--phase", "m1", "-q");
    cli_fine();
    struct cli_values v;
    float logits[(CLI_TOKENS + 1) * CLI_EXPERTS] = {0};
    cli_values(&v);
    const struct cli_tensor tensors[] = {
        {CLI_INPUT, MR_BF16, CLI_TOKENS, CLI_HIDDEN, v.hidden},
        {"p.model.layers.0.mlp.gate.logits", MR_F32, CLI_TOKENS + 1, CLI_EXPERTS, logits}};
    cli_put_tensors("more.st", tensors, 2);
    cli_remember();
    cli("replay", cli_at("case.json"), "--capture", cli_at("more.st"), "--arith", "fma");
    cli_refused(3, "gate.logits", "at most 9");
}
END_TEST

START_TEST(reject_options)
{
    cli_remember();
#define REFUSED(status, word, second, ...)                                                         \
    do {                                                                                           \
        cli("replay", __VA_ARGS__);                                                                \
        cli_refused(status, word, second);                                                         \
    } while (0)
    REFUSED(2, "CASE", NULL, NULL);
    REFUSED(2, "CASE", NULL, cli_at("case.json"), cli_at("case.json"));
    REFUSED(2, "column 10", "1 to 65536", cli_at("case.json"), "--arith", "fma/runs:0");
    REFUSED(2, "column 13", "bf17", cli_at("case.json"), "--arith", "bf16-logits+hopper-bf17");
    REFUSED(2, "FP8", "column 1", cli_at("case.json"), "--arith", "ampere-e4m3");
    REFUSED(3, "nothing to replay", NULL, cli_at("case.json"), "--arith", "fma");
    REFUSED(3, "phase 'q'", NULL, cli_at("case.json"), "--arith", "fma", "--phase", "q");
    REFUSED(3, "layer 7", NULL, cli_at("case.json"), "--arith", "fma", "--layers", "7");
    REFUSED(3, "its input is logits", NULL, "cases/toy.json", "--arith", "fma");
    REFUSED(2, "--capture", NULL, "cases/glm-5.3-flash.json", "--arith", "fma", "--capture",
            cli_at("hidden.st"));
    REFUSED(2, "--layers", NULL, cli_at("case.json"), "--layer", "0");
    REFUSED(2, "--logits", NULL, "--config", cli_at("config.json"), "--gate", cli_at("weights.st"),
            "--hidden", cli_at("hidden.st"), "--arith", "fma");
    REFUSED(2, "--arith", NULL, "--config", cli_at("config.json"), "--gate", cli_at("weights.st"),
            "--hidden", cli_at("hidden.st"), "--logits", cli_at("hidden.st"));
    REFUSED(2, "--vectors", NULL, cli_at("case.json"), "--vectors", cli_at("hidden.st"));
    REFUSED(2, "unknown or ambiguous", NULL, cli_at("case.json"), "--foo");
    REFUSED(3, CLI_INPUT, "GPU.FORMAT", "--vectors", cli_at("hidden.st"));
    REFUSED(3, "none.st", NULL, "--vectors", cli_at("none.st"));
}
END_TEST

Suite *suite_replay_cli(void)
{
    Suite *s = suite_create("replay_cli");
    TCase *recordings = tcase_create("recordings");
    tcase_add_loop_test(recordings, validate_recordings, 0, 5);
    tcase_add_test(recordings, validate_wrong_lines);
    tcase_add_test(recordings, verify_threads_and_isa);
    suite_add_tcase(s, recordings);
    TCase *small = tcase_create("small");
    tcase_add_checked_fixture(small, cli_start, cli_stop);
    tcase_add_test(small, verify_first_mismatch);
    tcase_add_test(small, verify_plain_files);
    tcase_add_test(small, verify_case_lines);
    tcase_add_test(small, verify_fewer_rows);
    tcase_add_test(small, reject_options);
    suite_add_tcase(s, small);
    return s;
}
