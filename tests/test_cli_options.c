/* What the program's options do; help; the router command. */
#include <check.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cli.h"

Suite *suite_cli_options(void);

#define GLM "cases/glm4moe-tiny.json"
#define FLASH "cases/glm-5.3-flash.json"
#define GLM_DATA "data/captures/glm4moe-tiny/"

/* "prefill 3 decode 4 ...": the layers of the last run, which wrote JSON to standard output. */
static const char *layers(void)
{
    static char text[4096];
    json_t *doc = cli_json(), *row;
    size_t i, used = 0;
    json_array_foreach(json_object_get(doc, "layers"), i, row)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %d", i ? " " : "",
                                 json_string_value(json_object_get(row, "phase")),
                                 (int)json_integer_value(json_object_get(row, "layer")));
    json_decref(doc);
    return text;
}

START_TEST(validate_layers_phase)
{
    cli("route", GLM, "--layers", "3", "--json", "-");
    cli_fine();
    ck_assert_str_eq(layers(), "prefill 3 decode 3");
    cli("route", GLM, "--layers=7,1,3-5", "--phase", "decode", "--json", "-", "--arith", "fp32");
    cli_fine();
    ck_assert_str_eq(layers(), "decode 1 decode 3 decode 4 decode 5 decode 7");
    cli("route", "--phase=prefill", "--json=-", GLM);
    cli_fine();
    ck_assert_str_eq(layers(), "prefill 1 prefill 2 prefill 3 prefill 4 prefill 5 prefill 6 "
                               "prefill 7");
}
END_TEST

START_TEST(validate_arith)
{
    cli("route", GLM, "--layers", "2", "--json", "-", "--arith", "bf16-logits+bf16-weights",
        "--arith", "fp16-logits");
    cli_fine();
    json_t *doc = cli_json();
    const json_t *arith = json_object_get(json_object_get(doc, "total"), "arith");
    ck_assert_uint_eq(json_array_size(arith), 2);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(arith, 0), "name")),
                     "bf16-logits+bf16-weights");
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(arith, 1), "name")),
                     "fp16-logits");
    json_decref(doc);
    cli("route", GLM, "--layers", "2", "--json", "-", "--arith", "none");
    cli_fine();
    doc = cli_json();
    ck_assert_uint_eq(json_array_size(json_object_get(json_object_get(doc, "total"), "arith")), 0);
    json_decref(doc);
}
END_TEST

/* The captured logits are those of a kernel in fp32: they may differ from the exact ones in the
 * seventh digit, and choose the same experts nearly always. */
START_TEST(validate_from_logits)
{
    cli("route", GLM, "--from", "logits", "--tokens", cli_at("given.st"), "--arith", "none");
    cli_fine();
    ck_assert_ptr_nonnull(strstr(cli_last.out, "from given logits"));
    cli("route", GLM, "--tokens", cli_at("exact.st"), "--arith", "none", "-q");
    cli_fine();
    ck_assert_uint_eq(cli_last.out_bytes, 0);
    ck_assert(!cli_same(cli_at("given.st"), cli_at("exact.st")));
    struct mr_safetensors *a, *b;
    ck_assert_int_eq(mr_safetensors_open(cli_at("given.st"), &a, NULL), MR_OK);
    ck_assert_int_eq(mr_safetensors_open(cli_at("exact.st"), &b, NULL), MR_OK);
    struct mr_tensor x, y;
    size_t differ = 0;
    ck_assert(mr_safetensors_find(a, "decode.model.layers.3.mlp.topk_ids", &x));
    ck_assert(mr_safetensors_find(b, "decode.model.layers.3.mlp.topk_ids", &y));
    for (size_t t = 0; t < 128; t++)
        differ += memcmp((const char *)x.data + 32 * t, (const char *)y.data + 32 * t, 32) != 0;
    ck_assert_uint_le(differ, 3);
    mr_safetensors_close(a);
    mr_safetensors_close(b);
}
END_TEST

START_TEST(verify_capture)
{
    cli("route", GLM, "--json", cli_at("a.json"), "-q");
    cli_fine();
    cli("route", GLM, "--json", cli_at("b.json"), "-q", "--capture",
        GLM_DATA "capture.safetensors");
    cli_fine();
    ck_assert(cli_same(cli_at("a.json"), cli_at("b.json")));
    /* Another token's values in place of one: that file was read, and one token's answer moved. */
    struct cli_values v;
    cli_values(&v);
    memcpy(v.hidden, v.hidden + CLI_HIDDEN, CLI_HIDDEN * sizeof *v.hidden);
    cli_put_hidden("other.st", &v);
    cli("route", cli_at("case.json"), "--tokens", cli_at("a.st"), "-q");
    cli_fine();
    cli("route", cli_at("case.json"), "--tokens", cli_at("b.st"), "-q", "--capture",
        cli_at("other.st"));
    cli_fine();
    ck_assert(!cli_same(cli_at("a.st"), cli_at("b.st")));
}
END_TEST

START_TEST(verify_seed)
{
    static const char *const seeds[] = {"1", "2"}, *const files[] = {"1.st", "2.st"};
    cli("route", FLASH, "--arith", "none", "-q", "--tokens", cli_at("0.st"));
    cli_fine();
    for (int i = 0; i < 2; i++) {
        cli("route", FLASH, "--arith", "none", "-q", "--tokens", cli_at(files[i]), "--seed",
            seeds[i]);
        cli_fine();
    }
    ck_assert(cli_same(cli_at("0.st"), cli_at("1.st")));
    ck_assert(!cli_same(cli_at("0.st"), cli_at("2.st")));
}
END_TEST

/* Logits of few values: exact ties at the cut, in every block of rows. */
enum { TIED = 700 };
static size_t put_tied(const char *name)
{
    static float logits[TIED * CLI_EXPERTS];
    size_t ties = 0;
    uint64_t state = 7;
    for (size_t t = 0; t < TIED; t++) {
        int count[32] = {0}, above = 0;
        for (size_t e = 0; e < CLI_EXPERTS; e++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            count[state >> 59]++;
            logits[t * CLI_EXPERTS + e] = (float)(state >> 59) / 8;
        }
        int v = 31;
        while (above + count[v] < CLI_TOP_K) above += count[v--];
        ties += above + count[v] > CLI_TOP_K; /* the 4th and 5th largest are equal */
    }
    cli_put_tensors(name, &(struct cli_tensor){"all.model.layers.0.mlp.gate.logits", MR_F32, TIED,
                                               CLI_EXPERTS, logits}, 1);
    cli_put_json("tied.json", "{'moeref_case':1,'name':'tied','input':'logits',"
                 "'capture':['tied.st'],'router':{'experts':16,'top_k':4,'score':'softmax',"
                 "'bias':false,'n_group':1,'topk_group':1,'norm_topk_prob':true,"
                 "'routed_scaling_factor':1.0}}");
    return ties;
}

START_TEST(verify_threads)
{
    static const char *const threads[] = {"1", "2"};
    size_t ties = put_tied("tied.st");
    char *const cases[] = {FLASH, strdup(cli_at("tied.json"))};
    for (int c = 0; c < 2; c++) {
        for (int i = 0; i < 2; i++) {
            char name[3][32];
            snprintf(name[0], sizeof name[0], "%d.json", i);
            snprintf(name[1], sizeof name[1], "%d.csv", i);
            snprintf(name[2], sizeof name[2], "%d.st", i);
            cli("route", cases[c], "-q", "--threads", threads[i], "--json", cli_at(name[0]),
                "--csv", cli_at(name[1]), "--tokens", cli_at(name[2]));
            cli_fine();
            ck_assert(cli_same(cli_at(name[0]), cli_at("0.json")));
            ck_assert(cli_same(cli_at(name[1]), cli_at("0.csv")));
            ck_assert(cli_same(cli_at(name[2]), cli_at("0.st")));
        }
    }
    free(cases[1]);
    json_t *doc = cli_json_file(cli_at("0.json"));
    const json_t *certified = json_object_get(json_object_get(doc, "total"), "certified");
    ck_assert_uint_gt(ties, 100);
    ck_assert_int_eq(json_integer_value(json_object_get(certified, "tie")), (json_int_t)ties);
    ck_assert_uint_eq(json_array_size(json_object_get(doc, "ties")), ties);
    json_decref(doc);
}
END_TEST

/* Correct rounding and the usual way differ by at most 4 ulp; without BLAS nothing changes. */
START_TEST(verify_exact_weights_no_blas)
{
    cli("route", GLM, "-q", "--arith", "none", "--layers", "1", "--tokens", cli_at("a.st"));
    cli_fine();
    cli("route", GLM, "-q", "--arith", "none", "--layers", "1", "--tokens", cli_at("b.st"),
        "--exact-weights");
    cli_fine();
    cli("route", GLM, "-v", "--arith", "none", "--layers", "1", "--tokens", cli_at("c.st"),
        "--no-blas");
    cli_fine();
    const char *dots = strstr(cli_last.out, "exact dot products: ");
    ck_assert_ptr_nonnull(dots);
    ck_assert_int_ge(strtol(dots + 20, NULL, 10), 2 * 128 * 128); /* at least every logit once */
    ck_assert(!cli_same(cli_at("a.st"), cli_at("b.st"))); /* some weight is not rounded correctly */
    struct mr_safetensors *file[3];
    struct mr_tensor w[3], ids[3];
    static const char *const names[] = {"a.st", "b.st", "c.st"};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(mr_safetensors_open(cli_at(names[i]), &file[i], NULL), MR_OK);
        ck_assert(mr_safetensors_find(file[i], "prefill.model.layers.1.mlp.topk_weights", &w[i]));
        ck_assert(mr_safetensors_find(file[i], "prefill.model.layers.1.mlp.topk_ids", &ids[i]));
        ck_assert_int_eq(memcmp(ids[0].data, ids[i].data, ids[0].bytes), 0);
    }
    for (size_t i = 0; i < 128 * 8; i++) {
        double a, b;
        memcpy(&a, (const char *)w[0].data + 8 * i, 8);
        memcpy(&b, (const char *)w[1].data + 8 * i, 8);
        ck_assert_double_le(fabs(a - b), 4 * (nextafter(b, INFINITY) - b));
    }
    for (int i = 0; i < 3; i++) mr_safetensors_close(file[i]);
}
END_TEST

/* The layer of the last run's JSON without what plain files name otherwise. */
static char *layer_text(void)
{
    json_t *doc = cli_json(), *row = json_array_get(json_object_get(doc, "layers"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(doc, "layers")), 1);
    json_object_del(row, "phase");
    char *text = json_dumps(row, JSON_REAL_PRECISION(17));
    json_decref(doc);
    return text;
}

START_TEST(verify_plain_files)
{
    cli("route", GLM, "--layers", "3", "--phase", "prefill", "--json", "-");
    cli_fine();
    char *wanted = layer_text();
#define GATE GLM_DATA "router.safetensors"
#define CAPTURE GLM_DATA "capture.safetensors"
#define LAYER3 "model.layers.3.mlp."
    static const char *const plain[][10] = {
        {"--gate", GATE, "--layer", "3", "--hidden", CAPTURE ":prefill." LAYER3 "gate.input"},
        {"--gate", GATE ":" LAYER3 "gate.weight", "--hidden",
         CAPTURE ":prefill." LAYER3 "gate.input"},
        {"--hidden", CAPTURE ":prefill." LAYER3 "gate.input", "--bias",
         GATE ":" LAYER3 "gate.e_score_correction_bias", "--gate", GATE ":" LAYER3 "gate.weight"},
    };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        const char *const *p = plain[i];
        cli("route", "--config", GLM_DATA "config.json", "--json=-", p[0], p[1], p[2], p[3],
            p[4], p[5], p[6], p[7]);
        cli_fine();
        char *found = layer_text();
        ck_assert_str_eq(found, wanted);
        free(found);
    }
    free(wanted);
    /* From logits, and without :TENSOR where a file holds one tensor. */
    cli("route", GLM, "--layers", "3", "--phase", "decode", "--json", "-", "--from", "logits");
    cli_fine();
    wanted = layer_text();
    cli("route", "--config", GLM_DATA "config.json", "--json=-", "--bias", GATE, "--layer", "3",
        "--logits", CAPTURE ":decode." LAYER3 "gate.logits");
    cli_fine();
    char *found = layer_text();
    ck_assert_str_eq(found, wanted);
    free(found);
    free(wanted);
    cli("route", cli_at("case.json"), "--json", "-");
    cli_fine();
    wanted = layer_text();
    cli("route", "--config", cli_at("config.json"), "--json=-", "--gate", cli_at("weights.st"),
        "--layer", "0", "--hidden", cli_at("hidden.st"));
    cli_fine();
    found = layer_text();
    ck_assert_str_eq(found, wanted);
    free(found);
    free(wanted);
}
END_TEST

/* One config: understood, with all its keys, or refused in one line. */
static bool understood(const char *path)
{
    cli("router", path, "--json", "-");
    if (cli_last.status) {
        cli_refused(3, path, NULL);
        return false;
    }
    cli_fine();
    json_t *doc = cli_json(), *router = json_object_get(doc, "router");
    cli_keys(doc, "router");
    cli_keys(router, "model_type text_model_type experts top_k hidden score selection bias gate_bias "
                     "n_group topk_group group_score norm_topk_prob routed_scaling_factor "
                     "expert_scale shared_experts moe_intermediate hash_layers layers moe_layers "
                     "from");
    ck_assert_int_ge(json_integer_value(json_object_get(router, "experts")),
                     json_integer_value(json_object_get(router, "top_k")));
    ck_assert_uint_gt(json_object_size(json_object_get(router, "from")), 8);
    const char *score = json_string_value(json_object_get(router, "score"));
    cli("router", path);
    cli_fine();
    ck_assert_int_eq(strncmp(cli_last.out, path, strlen(path)), 0);
    ck_assert_ptr_nonnull(strstr(cli_last.out, score));
    json_decref(doc);
    return true;
}

START_TEST(validate_router)
{
    size_t good = 0, bad = 0;
    DIR *d = opendir("data/configs");
    ck_assert_msg(d != NULL, "data/configs: run the tests from the repository root");
    for (struct dirent *e; (e = readdir(d));) {
        char path[512];
        if (!strstr(e->d_name, ".json")) continue;
        snprintf(path, sizeof path, "data/configs/%s", e->d_name);
        if (understood(path)) good++;
        else bad++;
    }
    closedir(d);
    ck_assert_uint_eq(bad, 27); /* as data/MANIFEST says */
    ck_assert_uint_ge(good, 10);
    ck_assert(understood("data/captures/qwen3moe-tiny/config.json"));
    ck_assert(understood(GLM_DATA "config.json"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "n_routed_experts"));
    cli("router", GLM_DATA "config.json", "--json", cli_at("r.json"), "-q");
    cli_fine();
    ck_assert_uint_eq(cli_last.out_bytes, 0);
    json_decref(cli_json_file(cli_at("r.json")));
}
END_TEST

START_TEST(validate_help_version)
{
    static const char *const commands[] = {"route", "router", "help", "version"};
    cli("help");
    cli_fine();
    char *all = strdup(cli_last.out);
    for (int i = 0; i < 4; i++) {
        ck_assert_ptr_nonnull(strstr(all, commands[i]));
        cli("help", commands[i]);
        cli_fine();
        char start[64], *text = strdup(cli_last.out);
        snprintf(start, sizeof start, "usage: moeref %s", commands[i]);
        ck_assert_int_eq(strncmp(text, start, strlen(start)), 0);
        ck_assert(i > 1 || strstr(text, "\nexample: moeref "));
        cli(commands[i], "--help");
        cli_fine();
        ck_assert_str_eq(cli_last.out, text);
        free(text);
    }
    static const char *const same[] = {"--help", "-h"};
    for (int i = 0; i < 2; i++) {
        cli(same[i]);
        cli_fine();
        ck_assert_str_eq(cli_last.out, all);
    }
    cli("version");
    cli_fine();
    ck_assert_int_eq(strncmp(cli_last.out, "moeref ", 7), 0);
    ck_assert_uint_eq(strspn(cli_last.out + 7, "0123456789."), cli_last.out_bytes - 8);
    cli_run(NULL, (const char *const[]){NULL});
    ck_assert_int_eq(cli_last.status, 2);
    ck_assert_uint_eq(cli_last.out_bytes, 0);
    ck_assert_str_eq(cli_last.err, all);
    free(all);
}
END_TEST

Suite *suite_cli_options(void)
{
    Suite *suite = suite_create("cli_options");
    TCase *tc = tcase_create("cli_options");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, cli_start, cli_stop);
    tcase_add_test(tc, validate_layers_phase);
    tcase_add_test(tc, validate_arith);
    tcase_add_test(tc, validate_from_logits);
    tcase_add_test(tc, verify_capture);
    tcase_add_test(tc, verify_seed);
    tcase_add_test(tc, verify_threads);
    tcase_add_test(tc, verify_exact_weights_no_blas);
    tcase_add_test(tc, verify_plain_files);
    tcase_add_test(tc, validate_router);
    tcase_add_test(tc, validate_help_version);
    suite_add_tcase(suite, tc);
    return suite;
}
