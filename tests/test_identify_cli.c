/* moeref identify: what it writes, its exit status, and what it refuses. */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "support/cli.h"

Suite *suite_identify_cli(void);

static const json_t *recording(const json_t *doc, size_t i)
{
    return json_array_get(json_object_get(doc, "recordings"), i);
}

static json_int_t whole(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    ck_assert_msg(json_is_integer(v), "%s: no integer", key);
    return json_integer_value(v);
}

static bool has_line(const json_t *r, const char *line)
{
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(r, "lines"), i, v)
        if (!strcmp(json_string_value(v), line)) return true;
    return false;
}

START_TEST(validate_a_recording)
{
    cli("identify", "cases/cublas-h200.json", "--phase", "m1024", "--json", "-");
    cli_fine();
    json_t *doc = cli_json();
    cli_keys(doc, "moeref command case recordings unidentified");
    ck_assert_str_eq(json_string_value(json_object_get(doc, "command")), "identify");
    ck_assert_str_eq(json_string_value(json_object_get(doc, "case")), "cublas-h200");
    ck_assert_uint_eq(json_array_size(json_object_get(doc, "recordings")), 1);
    const json_t *r = recording(doc, 0);
    cli_keys(r, "name phase layer rows experts terms identified everything unverified lines sums "
                "checked not_finite mismatches searched nearest");
    ck_assert_str_eq(json_string_value(json_object_get(r, "name")), "m1024");
    ck_assert_int_eq(whole(r, "checked"), 4 * 288);
    ck_assert_int_eq(whole(r, "mismatches"), 0);
    ck_assert_int_gt(whole(r, "searched"), 100000);
    ck_assert(has_line(r, "hopper-bf16/runs:2x64"));
    ck_assert_uint_eq(json_array_size(json_object_get(r, "sums")), 1);
    json_decref(doc);
    cli("identify", "cases/glm4moe-tiny.json", "--layer", "2", "--phase", "prefill");
    cli_fine();
    ck_assert_ptr_nonnull(strstr(cli_last.out, "prefill layer 2"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "fma/deal:4x8\n1 of 1 identified"));
    ck_assert_ptr_null(strstr(cli_last.out, "layer 3"));
}
END_TEST

/* The same bytes for any number of threads and any instruction set. */
START_TEST(verify_threads_and_isa)
{
    static const char *const isas[] = {"v4", "v3", "base"}, *const threads[] = {"1", "2", "3"};
    char *first = NULL;
    for (int i = 0; i < 3; i++) {
        setenv("MOEREF_ISA", isas[i], 1);
        cli("identify", "cases/qwen3moe-tiny.json", "--layer", "4", "--phase", "decode",
            "--threads", threads[i], "--json", "-");
        cli_fine();
        if (!first) first = strdup(cli_last.out);
        ck_assert_str_eq(first, cli_last.out);
    }
    ck_assert_ptr_nonnull(strstr(first, "\"hopper-bf16+bf16-logits\""));
    free(first);
    unsetenv("MOEREF_ISA");
}
END_TEST

/* The small case with logits of its first `rows` tokens. */
static void put_logits(const char *capture, size_t rows, float step)
{
    struct cli_values v;
    float logits[CLI_TOKENS * CLI_EXPERTS];
    cli_values(&v);
    for (size_t i = 0; i < CLI_TOKENS * CLI_EXPERTS; i++) logits[i] = 0.5f + step * (float)i;
    const struct cli_tensor tensors[] = {
        {CLI_INPUT, MR_BF16, CLI_TOKENS, CLI_HIDDEN, v.hidden},
        {"p.model.layers.0.mlp.gate.logits", MR_F32, rows, CLI_EXPERTS, logits}};
    cli_put_tensors(capture, tensors, 2);
}

START_TEST(verify_unidentified_is_said)
{
    put_logits("capture.st", 2, 0.01f);
    cli("identify", cli_at("case.json"), "--capture", cli_at("capture.st"));
    ck_assert_int_eq(cli_last.status, 1);
    ck_assert_ptr_nonnull(strstr(cli_last.out, "unidentified; nearest "));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "of 32 differ"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "0 of 1 identified"));
    cli("identify", cli_at("case.json"), "--capture", cli_at("capture.st"), "-q", "--json",
        cli_at("x.json"));
    ck_assert_int_eq(cli_last.status, 1);
    ck_assert_uint_eq(cli_last.out_bytes, 0);
    json_t *doc = cli_json_file(cli_at("x.json"));
    ck_assert_int_eq(whole(doc, "unidentified"), 1);
    ck_assert_uint_eq(json_array_size(json_object_get(recording(doc, 0), "lines")), 0);
    ck_assert(json_is_false(json_object_get(recording(doc, 0), "identified")));
    ck_assert_int_ge(whole(recording(doc, 0), "mismatches"), 1);
    json_decref(doc);
    /* Plain files: the same. */
    cli("identify", "--config", cli_at("config.json"), "--gate", cli_at("weights.st"), "--layer",
        "0", "--hidden", cli_at("hidden.st"), "--logits",
        cli_at("capture.st:p.model.layers.0.mlp.gate.logits"));
    ck_assert_int_eq(cli_last.status, 1);
    ck_assert_ptr_nonnull(strstr(cli_last.out, "unidentified; nearest "));
}
END_TEST

START_TEST(reject_misuse)
{
    put_logits("capture.st", 2, 0);
    cli_remember();
    cli("identify");
    cli_refused(2, "expected one CASE", NULL);
    cli("identify", cli_at("case.json"), "--layer", "0", "--layers", "0");
    cli_refused(2, "--layer and --layers", NULL);
    cli("identify", cli_at("case.json"), "--gate-bias", "x");
    cli_refused(2, "--gate-bias belongs", NULL);
    cli("identify", "--gate", "x", "--hidden", "y");
    cli_refused(2, "--logits is missing", NULL);
    cli("identify", cli_at("case.json"), "--phase", "q");
    cli_refused(3, "no phase 'q'", NULL);
    cli("identify", cli_at("case.json"), "--layer", "7");
    cli_refused(3, "no layer 7", NULL);
    cli("identify", cli_at("case.json"));
    cli_refused(3, "nothing to identify", NULL);
    cli("identify", cli_at("case.json"), "--arith", "fma");
    cli_refused(2, "unknown or ambiguous option --arith", NULL);
}
END_TEST

Suite *suite_identify_cli(void)
{
    Suite *s = suite_create("identify_cli");
    TCase *tc = tcase_create("cli");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, cli_start, cli_stop);
    tcase_add_test(tc, validate_a_recording);
    tcase_add_test(tc, verify_threads_and_isa);
    tcase_add_test(tc, verify_unidentified_is_said);
    tcase_add_test(tc, reject_misuse);
    suite_add_tcase(s, tc);
    return s;
}
