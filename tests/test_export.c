/* moeref export: what is written routes and verifies as what it was made from; logits are the exact
 * ones, rounded once, by MPFR; nothing is overwritten by something else. */
#include <check.h>
#include <dirent.h>
#include <mpfr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/generate_edge.h"
#include "../ref/moeref.h"
#include "support/brute.h"
#include "support/cli.h"

Suite *suite_export(void);

/* Names of files and cases, in which the two may differ. */
static void drop_names(json_t *doc)
{
    static const char *const lists[] = {"sources", "layers", "worst"};
    json_object_del(doc, "case");
    for (size_t i = 0; i < 3; i++) {
        json_t *entry;
        size_t n;
        json_array_foreach(json_object_get(doc, lists[i]), n, entry)
            json_object_del(entry, "source");
    }
}

static json_t *answer(const char *command, const char *path)
{
    if (strcmp(command, "route")) cli(command, path, "--json", "-");
    else cli(command, path, "--json", "-", "--arith", "fp32");
    if (cli_last.status > 1) return json_null();
    json_t *doc = cli_json();
    drop_names(doc);
    return doc;
}

static void expect_twin(const char *path)
{
    struct mr_case *c;
    struct mr_error err = {{0}};
    char twin[512];
    ck_assert_msg(!mr_case_load(path, NULL, &c, &err), "%s", err.text);
    snprintf(twin, sizeof twin, "twin/%s.json", mr_case_name(c));
    mr_case_free(c);
    cli("export", path, "-o", cli_at("twin"));
    cli_fine();
    for (int i = 0; i < 2; i++) {
        const char *command = i ? "verify" : "route";
        json_t *a = answer(command, path), *b = answer(command, cli_at(twin));
        ck_assert_msg(json_equal(a, b), "%s %s: not that of its twin", command, path);
        ck_assert_msg(i || json_is_object(a), "%s: %s", path, cli_last.err);
        json_decref(a);
        json_decref(b);
    }
}

static void stop(void)
{
    const char *folder = cli_at("twin");
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[600];
        snprintf(path, sizeof path, "twin/%.400s", e->d_name);
        if (e->d_name[0] != '.') remove(cli_at(path));
    }
    if (d) closedir(d);
    cli_stop();
}

static void expect_twins(const char *folder)
{
    struct dirent **entry;
    int n = scandir(folder, &entry, NULL, alphasort);
    size_t found = 0;
    for (int i = 0; i < n; i++) {
        char path[600];
        const char *end = strrchr(entry[i]->d_name, '.');
        snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        if (end && !strcmp(end, ".json")) {
            expect_twin(path);
            found++;
        }
        free(entry[i]);
    }
    free(entry);
    ck_assert_uint_gt(found, 8);
}

START_TEST(corroborate_exported_cases)
{
    expect_twins(_i ? "cases/bugs" : "cases");
}
END_TEST

START_TEST(corroborate_exported_classes)
{
    for (size_t i = 0; i < mr_edge_count(); i++) {
        char name[64];
        cli("gen", mr_edge_at(i)->name, "-o", cli_at("."));
        cli_fine();
        snprintf(name, sizeof name, "%s.json", mr_edge_at(i)->name);
        expect_twin(cli_at(name));
    }
}
END_TEST

static const struct {
    const char *name;
    enum mr_dtype dtype;
    enum mr_type type;
} types[] = {{"fp32", MR_F32, MR_TYPE_FP32},
             {"bf16", MR_BF16, MR_TYPE_BF16},
             {"fp16", MR_F16, MR_TYPE_FP16}};

/* The exact logit, rounded as rounded_logits.h says. */
static double right(const struct cli_values *v, size_t t, size_t e, enum mr_type type, bool biased)
{
    const struct mr_matrix x = {v->hidden, MR_BF16, CLI_TOKENS, CLI_HIDDEN},
                           w = {v->gate, MR_BF16, CLI_EXPERTS, CLI_HIDDEN};
    mpfr_t sum, product;
    mpfr_init2(sum, 600);
    mpfr_init2(product, 100);
    mpfr_set_zero(sum, 1);
    for (size_t i = 0; i < CLI_HIDDEN; i++) {
        mpfr_set_d(product, brute_element(&x, t, i), MPFR_RNDN);
        mpfr_mul_d(product, product, brute_element(&w, e, i), MPFR_RNDN);
        mpfr_add(sum, sum, product, MPFR_RNDN);
    }
    if (biased)
        mpfr_set_d(sum, (double)((float)brute_round(sum, MR_TYPE_FP32) + v->bias[e]), MPFR_RNDN);
    double value = brute_round(sum, type);
    mpfr_clears(sum, product, (mpfr_ptr)NULL);
    return value;
}

START_TEST(corroborate_exported_logits)
{
    bool biased = _i % 2;
    struct cli_values v;
    struct mr_safetensors *file;
    struct mr_tensor logits;
    char name[64];
    double found[CLI_TOKENS * CLI_EXPERTS];
    cli_values(&v);
    const struct cli_tensor tensors[] = {
        {CLI_GATE, MR_BF16, CLI_EXPERTS, CLI_HIDDEN, v.gate},
        {CLI_BIAS, MR_F32, CLI_EXPERTS, 0, v.bias},
        {"model.layers.0.mlp.gate.bias", MR_F32, CLI_EXPERTS, 0, v.bias}};
    cli_put_tensors("weights.st", tensors, 3);
    cli_put_json("case.json", biased ? "{" CLI_HEAD CLI_WEIGHTS "'capture':['hidden.st'],'router':{"
                                       CLI_ROUTER ",'gate_bias':true}}"
                                     : "{" CLI_HEAD CLI_WEIGHTS "'capture':['hidden.st'],'router':{"
                                       CLI_ROUTER "}}");
    expect_twin(cli_at("case.json"));
    cli("export", cli_at("case.json"), "--logits", types[_i / 2].name, "-o", cli_at("twin"));
    cli_fine();
    snprintf(name, sizeof name, "twin/small.%s-logits.safetensors", types[_i / 2].name);
    ck_assert(!mr_safetensors_open(cli_at(name), &file, NULL));
    ck_assert_uint_eq(mr_safetensors_count(file), 2); /* and the bias */
    ck_assert(mr_safetensors_find(file, "p.model.layers.0.mlp.gate.logits", &logits));
    ck_assert_int_eq(logits.dtype, types[_i / 2].dtype);
    ck_assert_uint_eq(logits.shape[0], CLI_TOKENS);
    mr_widen_f64(logits.data, logits.dtype, CLI_TOKENS * CLI_EXPERTS, found);
    for (size_t t = 0; t < CLI_TOKENS; t++)
        for (size_t e = 0; e < CLI_EXPERTS; e++) {
            double want = right(&v, t, e, types[_i / 2].type, biased);
            ck_assert_msg(memcmp(&found[t * CLI_EXPERTS + e], &want, sizeof want) == 0,
                          "token %zu, expert %zu: %a, not %a", t, e, found[t * CLI_EXPERTS + e],
                          want);
        }
    mr_safetensors_close(file);
    snprintf(name, sizeof name, "twin/small.%s-logits.json", types[_i / 2].name);
    cli("route", cli_at(name), "-q");
    cli_fine();
}
END_TEST

/* Given logits: the numbers that are there, and no others. */
START_TEST(verify_exported_given_logits)
{
    cli("gen", "nan-rows", "-o", cli_at("."));
    cli_fine();
    cli("export", cli_at("nan-rows.json"), "--logits", "fp32", "-o", cli_at("twin"));
    cli_fine();
    json_t *a = answer("route", cli_at("nan-rows.json"));
    json_t *b = answer("route", cli_at("twin/nan-rows.fp32-logits.json"));
    ck_assert(json_is_object(a) && json_equal(a, b));
    json_decref(a);
    json_decref(b);
    cli("export", cli_at("nan-rows.json"), "--logits", "bf16", "-o", cli_at("twin"));
    cli_fine();
    cli("route", cli_at("twin/nan-rows.bf16-logits.json"), "-q");
    cli_fine();
}
END_TEST

START_TEST(verify_export_twice)
{
    const char *glm = "cases/glm4moe-tiny.json", *twin = "twin/glm4moe-tiny.safetensors";
    size_t n;
    cli("export", glm, "--layers", "1", "-o", cli_at("twin"));
    cli_fine();
    char *before = cli_get(cli_at(twin), &n);
    cli("export", glm, "--layers", "1", "-o", cli_at("twin"));
    cli_fine();
    cli("export", glm, "-o", cli_at("twin"));
    cli_refused(3, "holds something else", "glm4moe-tiny.json");
    cli("export", glm, "--layers", "1", "--phase", "decode", "-o", cli_at("twin"));
    cli_refused(3, "holds something else", "glm4moe-tiny.json");
    /* The case as it was, but tensors that are not its own. */
    cli_put(twin, "other", 5);
    cli("export", glm, "--layers", "1", "-o", cli_at("twin"));
    cli_refused(3, "holds something else", "glm4moe-tiny.safetensors");
    remove(cli_at(twin));
    cli("export", glm, "--layers", "1", "-o", cli_at("twin"));
    cli_fine();
    size_t m;
    char *after = cli_get(cli_at(twin), &m);
    ck_assert(n == m && memcmp(before, after, n) == 0);
    free(before);
    free(after);
    cli("route", cli_at("twin/glm4moe-tiny.json"), "--layers", "1", "-q");
    cli_fine();
    cli("route", cli_at("twin/glm4moe-tiny.json"), "--layers", "2", "-q");
    cli_refused(3, "no layer 2", NULL);
    cli("export", "cases/glm-5.3-flash.json", "--seed", "2", "--logits", "fp16", "-o",
        cli_at("twin"));
    cli_fine();
    cli("export", "cases/glm-5.3-flash.json", "--logits", "fp16", "-o", cli_at("twin"));
    cli_refused(3, "holds something else", "fp16-logits.json");
}
END_TEST

START_TEST(reject_export)
{
    const char *toy = "cases/toy.json", *at = cli_at("twin");
    cli_remember();
    cli("export", toy);
    cli_refused(2, "-o DIR", NULL);
    cli("export", "-o", at);
    cli_refused(2, "one CASE", NULL);
    cli("export", toy, toy, "-o", at);
    cli_refused(2, "one CASE", NULL);
    cli("export", toy, "--logits", "fp8", "-o", at);
    cli_refused(2, "fp8", "bf16");
    cli("export", toy, "--seed", "2", "-o", at);
    cli_refused(2, "--seed", "generates nothing");
    cli("export", toy, "--layers", "7", "-o", at);
    cli_refused(3, "no layer 7", NULL);
    cli("export", toy, "--phase", "x", "-o", at);
    cli_refused(3, "no phase 'x'", NULL);
    cli("export", toy, "-o", cli_at("none/twin"));
    cli_refused(3, "none/twin", "No such file");
    cli("export", toy, "-o", cli_at("case.json"));
    cli_refused(3, "case.json", "Not a directory");
    cli_put_json("up.json", "{'moeref_case':1,'name':'../up','input':'logits','router':{"
                 "'experts':2,'top_k':1,'score':'sigmoid','bias':false,'n_group':1,'topk_group':1,"
                 "'norm_topk_prob':true,'routed_scaling_factor':1},"
                 "'inline':{'0':{'logits':[[0,1]]}}}");
    cli_remember();
    cli("export", cli_at("up.json"), "-o", cli_at("."));
    cli_refused(3, "../up", "file's name");
    /* The case's own names fit; a default name with that phase does not. */
    char phase[501] = "", text[1000];
    memset(phase, 'p', 500);
    snprintf(text, sizeof text, "{'moeref_case':1,'name':'wide','input':'logits','phases':['%s'],"
             "'router':{'experts':2,'top_k':1,'score':'sigmoid','bias':false,'n_group':1,"
             "'topk_group':1,'norm_topk_prob':true,'routed_scaling_factor':1},"
             "'inline':{'0':{'logits':[[0,1]]}}}", phase);
    cli_put_json("long.json", text);
    cli_remember();
    cli("export", cli_at("long.json"), "-o", cli_at("."));
    cli_refused(3, "a tensor name", "more than 511 bytes");
}
END_TEST

Suite *suite_export(void)
{
    Suite *s = suite_create("export");
    TCase *twins = tcase_create("twins"), *rest = tcase_create("rest");
    tcase_set_timeout(twins, 240);
    tcase_set_timeout(rest, 60);
    tcase_add_checked_fixture(twins, cli_start, stop);
    tcase_add_checked_fixture(rest, cli_start, stop);
    tcase_add_loop_test(twins, corroborate_exported_cases, 0, 2);
    tcase_add_test(twins, corroborate_exported_classes);
    tcase_add_loop_test(rest, corroborate_exported_logits, 0, 6);
    tcase_add_test(rest, verify_exported_given_logits);
    tcase_add_test(rest, verify_export_twice);
    tcase_add_test(rest, reject_export);
    suite_add_tcase(s, twins);
    suite_add_tcase(s, rest);
    return s;
}
