/* `moeref verify`: the captures, every output, and what is refused. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cli.h"

Suite *suite_verify_cli(void);

#define MLP "p.model.layers.0.mlp."
#define TALLY "rows padding verdicts logit_rows logit_error"
#define VERDICTS "exact tie rounding undecided wrong malformed nonfinite"

/* The certified answer of the small case, as a kernel would give it. */
static int32_t ids[CLI_TOKENS * CLI_TOP_K];
static double weights[CLI_TOKENS * CLI_TOP_K];

static void right(void)
{
    struct mr_safetensors *file;
    struct mr_tensor t;
    struct mr_error err;
    cli("route", cli_at("case.json"), "-q", "--tokens", cli_at("right.st"));
    cli_fine();
    ck_assert_int_eq(mr_safetensors_open(cli_at("right.st"), &file, &err), MR_OK);
    ck_assert(mr_safetensors_find(file, MLP "topk_ids", &t));
    memcpy(ids, t.data, sizeof ids);
    ck_assert(mr_safetensors_find(file, MLP "topk_weights", &t));
    memcpy(weights, t.data, sizeof weights);
    mr_safetensors_close(file);
}

static void put(const char *name)
{
    const struct cli_tensor t[] = {{MLP "topk_ids", MR_I32, CLI_TOKENS, CLI_TOP_K, ids},
                                   {MLP "topk_weights", MR_F64, CLI_TOKENS, CLI_TOP_K, weights}};
    cli_put_tensors(name, t, 2);
}

static void start(void)
{
    cli_start();
    right();
}

static json_int_t verdict(const json_t *o, const char *name)
{
    return json_integer_value(json_object_get(json_object_get(o, "verdicts"), name));
}

static const struct {
    const char *path, *layers;
    json_int_t rows, rounding;
} captures[] = {{"cases/glm4moe-tiny.json", "1-7", 1792, 0},
                {"cases/qwen3moe-tiny.json", "0-7", 2048, 55}};

/* What transformers did on an H200 is right or rounded; every row that is not exact is
 * explained. */
START_TEST(validate_captures)
{
    cli("verify", captures[_i].path, "--layers", captures[_i].layers);
    cli_fine();
    size_t lines = 0;
    for (const char *p = cli_last.out; (p = strstr(p, "\nrounding: layer ")); p++) lines++;
    ck_assert_int_eq((json_int_t)lines, captures[_i].rounding);
    for (const char *p = cli_last.out; (p = strstr(p, "\nrounding: layer ")); p++)
        ck_assert(strstr(p, "left out for expert") && strstr(p, "within the radius"));
    cli("verify", captures[_i].path, "--json", "-");
    cli_fine();
    json_t *doc = cli_json(), *f;
    ck_assert_int_eq(verdict(doc, "exact") + verdict(doc, "rounding"), captures[_i].rows);
    ck_assert_int_eq(verdict(doc, "rounding"), captures[_i].rounding);
    size_t i;
    json_array_foreach(json_object_get(doc, "worst"), i, f) {
        ck_assert_double_le(json_real_value(json_object_get(f, "difference")),
                            json_real_value(json_object_get(f, "radius")));
        ck_assert_str_eq(json_string_value(json_object_get(f, "cause")), "set");
    }
    json_decref(doc);
    cli("verify", captures[_i].path, "--strict", "-q");
    ck_assert_int_eq(cli_last.status, captures[_i].rounding != 0);
}
END_TEST

/* Without its arithmetic the Qwen3 capture cannot be explained. */
START_TEST(validate_undeclared)
{
    cli("verify", "cases/qwen3moe-tiny.json", "--arith", "fp32", "--layers", "0", "-q");
    ck_assert_int_eq(cli_last.status, 1);
}
END_TEST

START_TEST(verify_json_keys)
{
    ids[0] = ids[1]; /* token 0: malformed */
    put("o.st");
    cli("verify", cli_at("case.json"), "--observed", cli_at("o.st"), "--json", "-");
    ck_assert_int_eq(cli_last.status, 1);
    json_t *doc = cli_json(), *o;
    cli_keys(doc, "moeref command case arith sources profile strict layers total verdicts worst "
                  "worst_omitted experts power");
    cli_keys(json_object_get(doc, "verdicts"), VERDICTS);
    cli_keys(json_object_get(doc, "total"), TALLY);
    ck_assert(json_is_null(json_object_get(doc, "profile")));
    o = json_array_get(json_object_get(doc, "layers"), 0);
    cli_keys(o, TALLY " layer phase source");
    ck_assert_int_eq(verdict(o, "exact"), CLI_TOKENS - 1);
    ck_assert_int_eq(verdict(doc, "malformed"), 1);
    o = json_array_get(json_object_get(doc, "worst"), 0);
    cli_keys(o, "layer phase token source row verdict cause why omitted included difference radius "
                "right found right_bits found_bits slot gap certificate expected observed");
    ck_assert_str_eq(json_string_value(json_object_get(o, "cause")), "duplicate");
    ck_assert_uint_eq(json_array_size(json_object_get(o, "observed")), CLI_TOP_K);
    json_decref(doc);
}
END_TEST

/* A file of ids and weights that says what made it; NULL: it does not. */
static void put_saying(const char *name, const char *arithmetic)
{
    const uint64_t shape[2] = {CLI_TOKENS, CLI_TOP_K};
    struct mr_writer *w;
    struct mr_error err;
    size_t index[2];
    ck_assert_int_eq(mr_writer_new(cli_at(name), &w, &err), MR_OK);
    if (arithmetic)
        ck_assert_int_eq(mr_writer_metadata(w, "arithmetic", arithmetic, &err), MR_OK);
    mr_writer_declare(w, MLP "topk_ids", MR_I32, 2, shape, &index[0], &err);
    mr_writer_declare(w, MLP "topk_weights", MR_F64, 2, shape, &index[1], &err);
    ck_assert_int_eq(mr_writer_begin(w, &err), MR_OK);
    mr_writer_put(w, index[0], 0, ids, sizeof ids, &err);
    mr_writer_put(w, index[1], 0, weights, sizeof weights, &err);
    ck_assert_int_eq(mr_writer_finish(w, &err), MR_OK);
}

static const char *said(const json_t *doc, size_t i)
{
    const json_t *source = json_array_get(json_object_get(doc, "sources"), i);
    cli_keys(source, "source arith rows padding verdicts logit_rows logit_error");
    ck_assert_int_eq(json_integer_value(json_object_get(source, "rows")), CLI_TOKENS);
    return json_string_value(json_object_get(source, "arith"));
}

/* Weights rounded to bf16 are wrong, but in a file that says that they are; --arith comes before
 * what files say, and that before the case. */
START_TEST(verify_what_files_say)
{
    const char *files[] = {"bf16.st", "fp32.st", "empty.st", "silent.st"};
    const char *say[] = {"bf16-weights", "fp32", "", NULL};
    const char *c = cli_at("says.json");
    cli_put_json("says.json", "{" CLI_HEAD CLI_WEIGHTS "'capture':['hidden.st'],"
                              "'arith':'bf16-weights','router':{" CLI_ROUTER "}}");
    for (size_t i = 0; i < CLI_TOKENS * CLI_TOP_K; i++) {
        uint32_t bits;
        float w = (float)weights[i];
        memcpy(&bits, &w, 4);
        bits = (bits + 0x8000) & 0xffff0000u;
        memcpy(&w, &bits, 4);
        weights[i] = w;
    }
    for (int i = 0; i < 4; i++) put_saying(files[i], say[i]);
    cli("verify", c, "--observed", cli_at("bf16.st"), "--strict", "-q");
    cli_fine();
    cli("verify", c, "--observed", cli_at("silent.st"));
    cli_fine();
    ck_assert(strstr(cli_last.out, "rounding: bf16-weights, sums"));
    cli("verify", c, "--observed", cli_at("empty.st"));
    ck_assert_int_eq(cli_last.status, 1);
    ck_assert(strstr(cli_last.out, "rounding: fp32 (nothing is declared), as the file says, sums"));
    cli("verify", c, "--observed", cli_at("bf16.st"), "--arith", "fp32", "-q");
    ck_assert_int_eq(cli_last.status, 1);
    cli("verify", cli_at("case.json"), "--observed", cli_at("silent.st"), "-q");
    ck_assert_int_eq(cli_last.status, 1);
    /* All at once, each as it says. */
    cli("verify", c, "--observed", cli_at(files[0]), "--observed", cli_at(files[1]), "--observed",
        cli_at(files[2]), "--observed", cli_at(files[3]), "--json", "-");
    ck_assert_int_eq(cli_last.status, 1);
    json_t *doc = cli_json(), *layers = json_object_get(doc, "layers");
    for (size_t i = 0; i < 4; i++)
        ck_assert_int_eq(verdict(json_array_get(layers, i), "wrong") > 0, i == 1 || i == 2);
    ck_assert_str_eq(json_string_value(json_object_get(doc, "arith")), "of each file its own");
    ck_assert(strstr(said(doc, 0), "bf16-weights, as the file says, "));
    ck_assert(strstr(said(doc, 1), "fp32, as the file says, "));
    ck_assert(strstr(said(doc, 3), "bf16-weights, sums"));
    json_decref(doc);
    cli("verify", c, "--observed", cli_at(files[0]), "--observed", cli_at(files[1]), "-v");
    ck_assert(strstr(cli_last.out, "fp32.st\n    fp32, as the file says, sums"));
    put_saying("bad.st", "fp33");
    cli_remember();
    cli("verify", c, "--observed", cli_at("bad.st"));
    cli_refused(3, cli_at("bad.st"), "its metadata key \"arithmetic\"");
    cli("verify", c, "--observed", cli_at("bad.st"), "--arith", "bf16-weights", "-q");
    cli_fine();
}
END_TEST

/* A swap across the cut is WRONG, and names everything. */
START_TEST(verify_wrong)
{
    bool chosen[CLI_EXPERTS] = {false};
    for (int i = 0; i < CLI_TOP_K; i++) chosen[ids[i]] = true;
    int other = 0, first = ids[0];
    while (chosen[other]) other++;
    ids[0] = other;
    const struct cli_tensor t = {MLP "topk_ids", MR_I32, CLI_TOKENS, CLI_TOP_K, ids};
    cli_put_tensors("o.st", &t, 1);
    cli("verify", cli_at("case.json"), "--observed", cli_at("o.st"));
    ck_assert_int_eq(cli_last.status, 1);
    ck_assert_uint_eq(cli_last.err_bytes, 0);
    char line[128];
    snprintf(line, sizeof line, "wrong: layer 0, p, token 0: expert %d, key ", first);
    const char *at = strstr(cli_last.out, line);
    ck_assert_msg(at, "no '%s' in:\n%s", line, cli_last.out);
    snprintf(line, sizeof line, "left out for expert %d, key ", other);
    ck_assert(strstr(at, line) && strstr(at, "(0x") && strstr(at, "more than the radius"));
    ck_assert(strstr(cli_last.out, "1 (11.11 %) are faulty"));
    cli("verify", cli_at("case.json"), "--observed", cli_at("o.st"), "--json", "-");
    json_t *doc = cli_json(), *o = json_array_get(json_object_get(doc, "worst"), 0), *x;
    ck_assert_int_eq(json_integer_value(json_object_get(o, "omitted")), first);
    ck_assert_int_eq(json_integer_value(json_object_get(o, "included")), other);
    double a = json_real_value(json_object_get(o, "omitted_key"));
    double b = json_real_value(json_object_get(o, "included_key"));
    ck_assert_double_eq_tol(json_real_value(json_object_get(o, "difference")), a - b, 1e-15);
    float key = (float)a;
    uint32_t bits;
    memcpy(&bits, &key, sizeof bits);
    snprintf(line, sizeof line, "0x%08x", bits);
    ck_assert_str_eq(json_string_value(json_object_get(o, "omitted_bits")), line);
    size_t i;
    ck_assert_uint_eq(json_array_size(json_object_get(doc, "experts")), 2);
    json_array_foreach(json_object_get(doc, "experts"), i, x) {
        int e = (int)json_integer_value(json_object_get(x, "expert"));
        ck_assert(e == first || e == other);
        ck_assert_int_eq(json_integer_value(json_object_get(x, "gained")), e == other);
        ck_assert_int_eq(json_integer_value(json_object_get(x, "lost")), e == first);
    }
    json_decref(doc);
}
END_TEST

START_TEST(verify_ci_outputs)
{
    put("good.st");
    weights[5] *= 2;
    put("a<b&\"c.st");
    cli("verify", cli_at("case.json"), "-q", "--observed", cli_at("good.st"), "--observed",
        cli_at("a<b&\"c.st"), "--junit", cli_at("x.xml"), "--tap", cli_at("x.tap"), "--json",
        cli_at("x.json"));
    ck_assert_int_eq(cli_last.status, 1);
    size_t n;
    char *xml = cli_get(cli_at("x.xml"), &n), *tap = cli_get(cli_at("x.tap"), &n);
    ck_assert(strstr(xml, "tests=\"2\" failures=\"1\""));
    ck_assert(strstr(xml, "a&lt;b&amp;&quot;c.st"));
    ck_assert(strstr(xml, "<failure message=\"8 exact, 1 wrong\">"));
    ck_assert(strstr(xml, "token 1: wrong: "));
    ck_assert(strstr(tap, "TAP version 13\n1..2\nok 1 - p layer 0 of "));
    ck_assert(strstr(tap, "\nnot ok 2 - p layer 0 of "));
    ck_assert(strstr(tap, "\n# token 1: wrong: slot 1"));
    free(xml);
    free(tap);
    json_decref(cli_json_file(cli_at("x.json")));
    cli("verify", cli_at("case.json"), "--observed", cli_at("good.st"), "--tap", "-");
    cli_fine();
    ck_assert_str_eq(strchr(cli_last.out, '\n') + 1 + 5, strstr(cli_last.out, "ok 1 - "));
}
END_TEST

/* The same bytes for any number of threads, and from plain files. */
START_TEST(verify_same_bytes)
{
    for (int i = 0; i < 8; i++) ids[4 * i] = (ids[4 * i] + 1) % CLI_EXPERTS;
    put("o.st");
    cli("verify", cli_at("case.json"), "--observed", cli_at("o.st"), "--threads", "1", "--json",
        cli_at("1.json"), "-q");
    cli("verify", cli_at("case.json"), "--observed", cli_at("o.st"), "--threads", "3", "--json",
        cli_at("3.json"), "-q");
    ck_assert(cli_same(cli_at("1.json"), cli_at("3.json")));
    json_t *a = cli_json_file(cli_at("1.json")), *b;
    cli("verify", "--config", cli_at("config.json"), "--gate", cli_at("weights.st"), "--layer", "0",
        "--hidden", cli_at("hidden.st"), "--ids", cli_at("o.st"), "--weights", cli_at("o.st"),
        "--json", "-");
    ck_assert_int_eq(cli_last.status, 1);
    b = cli_json();
    ck_assert(json_equal(json_object_get(a, "verdicts"), json_object_get(b, "verdicts")));
    json_decref(a);
    json_decref(b);
}
END_TEST

START_TEST(verify_padding_option)
{
    for (int i = 7 * CLI_TOP_K; i < 9 * CLI_TOP_K; i++) ids[i] = -1;
    put("o.st");
    cli("verify", cli_at("case.json"), "--observed", cli_at("o.st"), "-q");
    ck_assert_int_eq(cli_last.status, 1);
    cli("verify", cli_at("case.json"), "--observed", cli_at("o.st"), "--num-token-non-padded", "7");
    cli_fine();
    ck_assert(strstr(cli_last.out, "7 of 7 rows are right"));
    cli("verify", cli_at("case.json"), "--observed", cli_at("o.st"), "--num-token-non-padded", "6",
        "-q");
    ck_assert_int_eq(cli_last.status, 1);
}
END_TEST

START_TEST(verify_profile_order)
{
    int32_t swap = ids[0];
    double w = weights[0];
    ids[0] = ids[3], ids[3] = swap;
    weights[0] = weights[3], weights[3] = w;
    put("o.st");
    cli("verify", cli_at("case.json"), "--observed", cli_at("o.st"), "-q");
    cli_fine();
    cli("verify", cli_at("case.json"), "--observed", cli_at("o.st"), "--profile", "vllm");
    ck_assert_int_eq(cli_last.status, 1);
    ck_assert(strstr(cli_last.out, "malformed: layer 0, p, token 0: slot 0: expert"));
    ck_assert(strstr(cli_last.out, "stands behind expert"));
}
END_TEST

/* Ids that point outside index nothing: the sanitizer builds watch. */
START_TEST(verify_far_ids)
{
    static const int64_t far[] = {INT64_MAX, INT64_MIN, 1ll << 40, -(1ll << 40), CLI_EXPERTS};
    int64_t wide[CLI_TOKENS * CLI_TOP_K];
    for (int i = 0; i < CLI_TOKENS * CLI_TOP_K; i++) wide[i] = i % 5 ? ids[i] : far[i / 5 % 5];
    const struct cli_tensor t = {MLP "topk_ids", MR_I64, CLI_TOKENS, CLI_TOP_K, wide};
    cli_put_tensors("o.st", &t, 1);
    cli("verify", cli_at("case.json"), "--observed", cli_at("o.st"), "--json", "-");
    ck_assert_int_eq(cli_last.status, 1);
    json_t *doc = cli_json();
    ck_assert_int_eq(verdict(doc, "malformed"), 8);
    json_decref(doc);
}
END_TEST

START_TEST(reject_arguments)
{
    put("o.st");
    cli_remember();
    const char *c = cli_at("case.json"), *o = cli_at("o.st");
    cli("verify");
    cli_refused(2, "CASE", NULL);
    cli("verify", c, c);
    cli_refused(2, "CASE", NULL);
    cli("verify", c, "--ids", o);
    cli_refused(2, "--ids", "--observed");
    cli("verify", c, "--observed", o, "--arith", "fp32", "--arith", "fp32");
    cli_refused(2, "--arith", "twice");
    cli("verify", c, "--observed", o, "--arith", "fp33");
    cli_refused(2, "fp33", NULL);
    cli("verify", c, "--observed", o, "--profile", "nobody");
    cli_refused(2, "nobody", "vllm");
    cli("verify", c, "--observed", o, "--num-token-non-padded", "-1");
    cli_refused(2, "--num-token-non-padded", NULL);
    cli("verify", c, "--observed", o, "--json", "-", "--tap", "-");
    cli_refused(2, "--json and --tap", NULL);
    cli("verify", c, "--observed", o, "--layers", "7");
    cli_refused(3, "no layer 7", NULL);
    cli("verify", c, "--observed", o, "--phase", "q");
    cli_refused(3, "no phase 'q'", NULL);
    cli("verify", "--config", cli_at("config.json"), "--logits", o, "--weights", o);
    cli_refused(2, "--weights needs --ids", NULL);
}
END_TEST

START_TEST(reject_observed)
{
    const struct cli_tensor other[] = {{"q.model.layers.0.mlp.topk_ids", MR_I32, CLI_TOKENS,
                                        CLI_TOP_K, ids}};
    const struct cli_tensor shape[] = {{MLP "topk_ids", MR_I32, CLI_TOKENS, CLI_TOP_K - 1, ids}};
    cli_put_tensors("other.st", other, 1);
    cli_put_tensors("shape.st", shape, 1);
    cli_put("broken.st", "no", 2);
    cli_remember();
    const char *c = cli_at("case.json");
    cli("verify", c);
    cli_refused(3, "nothing to judge", "topk_ids");
    cli("verify", c, "--observed", cli_at("other.st"));
    cli_refused(3, cli_at("other.st"), "nothing to judge");
    cli("verify", c, "--observed", cli_at("right.st"), "--observed", cli_at("other.st"));
    cli_refused(3, cli_at("other.st"), "nothing to judge");
    cli("verify", c, "--observed", cli_at("shape.st"));
    cli_refused(3, cli_at("shape.st"), "[9, 3]");
    cli("verify", c, "--observed", cli_at("broken.st"));
    cli_refused(3, cli_at("broken.st"), NULL);
    cli("verify", c, "--observed", cli_at("nowhere.st"));
    cli_refused(3, cli_at("nowhere.st"), "No such file");
}
END_TEST

Suite *suite_verify_cli(void)
{
    Suite *s = suite_create("verify_cli");
    TCase *c = tcase_create("cli");
    tcase_add_checked_fixture(c, start, cli_stop);
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, validate_captures, 0, 2);
    tcase_add_test(c, validate_undeclared);
    tcase_add_test(c, verify_json_keys);
    tcase_add_test(c, verify_what_files_say);
    tcase_add_test(c, verify_wrong);
    tcase_add_test(c, verify_ci_outputs);
    tcase_add_test(c, verify_same_bytes);
    tcase_add_test(c, verify_padding_option);
    tcase_add_test(c, verify_profile_order);
    tcase_add_test(c, verify_far_ids);
    tcase_add_test(c, reject_arguments);
    tcase_add_test(c, reject_observed);
    suite_add_tcase(s, c);
    return s;
}
