/* Bad command lines and bad files: one clear line, the exit status of DESIGN section 4, and nothing
 * left behind. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/cli.h"

Suite *suite_cli_bad(void);

#define TOY "cases/toy.json"

START_TEST(reject_command_lines)
{
    static const struct {
        const char *arguments[6];
        int status;
        const char *words[2];
    } bad[] = {
        {{"rout"}, 2, {"no command 'rout'", "moeref help"}},
        {{""}, 2, {"no command ''", NULL}},
        {{"a\nb"}, 2, {"a?b", NULL}},
        {{"-q"}, 2, {"no command '-q'", NULL}},
        {{"help", "rout"}, 2, {"no command 'rout'", NULL}},
        {{"help", "route", "route"}, 2, {"one command", NULL}},
        {{"version", "1"}, 2, {"no arguments", NULL}},
        {{"router"}, 2, {"CONFIG", "help router"}},
        {{"router", "a", "b"}, 2, {"one CONFIG", NULL}},
        {{"router", "a", "--csv", "b"}, 2, {"--csv", "help router"}},
        {{"router", "--json"}, 2, {"--json needs a value", NULL}},
        {{"route"}, 2, {"one CASE", "--config"}},
        {{"route", TOY, TOY}, 2, {"one CASE", NULL}},
        {{"route", TOY, "--config", "x"}, 2, {"one CASE", NULL}},
        {{"route", "--hidden", "x", "--gate", "x"}, 2, {"--config", NULL}},
        {{"route", "--config", "x", "--gate", "x"}, 2, {"--hidden", "--logits"}},
        {{"route", TOY, "--frobnicate"}, 2, {"--frobnicate", "help route"}},
        {{"route", TOY, "--la", "1"}, 2, {"ambiguous option --la", NULL}},
        {{"route", TOY, "-z"}, 2, {"unknown option -z", NULL}},
        {{"route", "-zq", TOY}, 2, {"unknown option -z", NULL}},
        {{"route", TOY, "--exact-weights=1"}, 2, {"--exact-weights", "no value"}},
        {{"route", TOY, "--layers"}, 2, {"--layers needs a value", NULL}},
        {{"route", TOY, "--arith"}, 2, {"--arith needs a value", NULL}},
        {{"route", TOY, "--json"}, 2, {"--json needs a value", NULL}},
        {{"route", TOY, "--layers", "1-"}, 2, {"--layers 1-", NULL}},
        {{"route", TOY, "--layers", "x"}, 2, {"--layers x", NULL}},
        {{"route", TOY, "--layers", "5-3"}, 2, {"--layers 5-3", NULL}},
        {{"route", TOY, "--layers", "1,"}, 2, {"--layers 1,", NULL}},
        {{"route", TOY, "--layers", "0,,1"}, 2, {"at ',1'", NULL}},
        {{"route", TOY, "--layers", "-1"}, 2, {"--layers -1", NULL}},
        {{"route", TOY, "--layers", "0x1"}, 2, {"--layers 0x1", NULL}},
        {{"route", TOY, "--layers="}, 2, {"--layers", NULL}},
        {{"route", TOY, "--layers", "0,2"}, 3, {"toy", "no layer 2"}},
        {{"route", TOY, "--layers", "0-999999999999999999999999"}, 3, {"no layer 2", NULL}},
        {{"route", TOY, "--phase", "prefill"}, 3, {"toy", "no phase 'prefill'"}},
        {{"route", TOY, "--arith", "fp32+bf17-logits"}, 2, {"column 6", "'bf17-logits'"}},
        {{"route", TOY, "--arith", "bf16-bias+"}, 2, {"column 11", "missing"}},
        {{"route", TOY, "--arith", ""}, 2, {"column 1", NULL}},
        {{"route", TOY, "--from", "hidden"}, 2, {"--from hidden", "'logits'"}},
        {{"route", TOY, "--threads", "0"}, 2, {"--threads 0", "1 to"}},
        {{"route", TOY, "--threads", "2x"}, 2, {"--threads 2x", NULL}},
        {{"route", TOY, "--threads", "99999999999999999999"}, 2, {"--threads", NULL}},
        {{"route", TOY, "--seed", "-1"}, 2, {"--seed -1", NULL}},
        {{"route", TOY, "--seed", "1"}, 2, {"--seed", "toy"}},
        {{"route", TOY, "--capture", TOY}, 3, {TOY, NULL}},
        {{"route", TOY, "--layer", "1"}, 2, {"--layer ", "--layers"}},
        {{"route", TOY, "--bias", "x"}, 2, {"--bias", "CASE"}},
        {{"route", TOY, "--tokens", "-"}, 2, {"--tokens -", NULL}},
        {{"route", TOY, "--json=-", "--csv=-"}, 2, {"--json", "--csv"}},
        {{"route", TOY, "--json", ""}, 2, {"--json", "empty"}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *const *a = bad[i].arguments;
        cli(a[0], a[1], a[2], a[3], a[4], a[5]);
        cli_refused(bad[i].status, bad[i].words[0], bad[i].words[1]);
    }
}
END_TEST

/* `moeref route FILE` and `moeref router FILE`: an input that cannot be read. */
START_TEST(reject_unreadable)
{
    cli_put("empty", "", 0);
    cli_put("text", "no JSON\n", 8);
    cli_put_json("unknown.json", "{" CLI_HEAD CLI_WEIGHTS "'capture':['hidden.st'],'rooter':{"
                 CLI_ROUTER "}}");
    cli_put_json("twice.json", "{" CLI_HEAD CLI_HEAD CLI_WEIGHTS "'capture':['hidden.st'],"
                 "'router':{" CLI_ROUTER "}}");
    cli_put_json("type.json", "{'model_type':'gpt2','n_embd':768}");
    cli_put_json("list.json", "[]");
    mkdir(cli_at("folder"), 0777);
    static const struct {
        const char *command, *file, *word;
    } bad[] = {
        {"route", "nothing.json", "cannot open"}, {"router", "nothing.json", "cannot open"},
        {"route", "folder", "irectory"},          {"router", "folder", "irectory"},
        {"route", "empty", "not JSON"},           {"router", "empty", "not JSON"},
        {"route", "text", "not JSON"},            {"router", "text", "not JSON"},
        {"route", "list.json", "list.json"},      {"router", "list.json", "list.json"},
        {"route", "unknown.json", "rooter"},      {"router", "type.json", "gpt2"},
        {"route", "twice.json", "duplicate"},     {"route", "hidden.st", "UTF-8"},
    };
    cli_remember();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cli(bad[i].command, cli_at(bad[i].file));
        cli_refused(3, bad[i].word, cli_at(bad[i].file));
    }
    /* No rights: root may read all the same. */
    cli_put("secret", "{}", 2);
    chmod(cli_at("secret"), 0);
    cli_remember();
    cli("route", cli_at("secret"));
    cli_refused(3, cli_at("secret"), geteuid() ? "denied" : NULL);
}
END_TEST

/* Routes the small case with hidden states from that file; a refusal names it. Beside the capture
 * wait outputs that must not come to be. */
static void refused_capture(const char *file, const char *word)
{
    cli_remember();
    cli("route", cli_at("case.json"), "--capture", cli_at(file), "--tokens", cli_at("t.st"),
        "--json", cli_at("t.json"), "--csv", cli_at("t.csv"));
    cli_refused(3, cli_at(file), word);
}

START_TEST(reject_broken_safetensors)
{
    size_t n;
    char *image = cli_get(cli_at("hidden.st"), &n), *copy = malloc(n + 1);
    uint64_t header;
    memcpy(&header, image, 8);
    for (size_t i = 0; i < 20; i++) {
        size_t cut = i < 4    ? 2 * i + 1 /* in the length of the header */
                     : i < 18 ? 8 + header * (i - 4) / 13 /* in the header, before and behind it */
                     : i < 19 ? n / 2
                              : n - 1;
        cli_put("cut.st", image, cut);
        refused_capture("cut.st", NULL);
    }
    memcpy(copy, image, n);
    copy[n] = 0;
    cli_put("long.st", copy, n + 1);
    refused_capture("long.st", NULL);
    /* Offsets swapped: "[0,1152]" becomes "[1152,0]". */
    char *at = memmem(copy, n, "[0,1152]", 8);
    ck_assert_ptr_nonnull(at);
    memcpy(at, "[1152,0]", 8);
    cli_put("swapped.st", copy, n);
    refused_capture("swapped.st", "data_offsets");
    memset(copy, 0xff, 8);
    cli_put("huge.st", copy, n);
    refused_capture("huge.st", "header");
    cli_put("empty.st", "", 0);
    refused_capture("empty.st", NULL);
    mkdir(cli_at("folder"), 0777);
    refused_capture("folder", NULL);
    refused_capture("nothing.st", "cannot open");
    free(copy);
    free(image);
}
END_TEST

START_TEST(reject_wrong_tensors)
{
    static struct cli_values v;
    static const int32_t integers[CLI_TOKENS * CLI_HIDDEN];
    cli_values(&v);
    const struct {
        struct cli_tensor tensor;
        const char *word;
    } captures[] = {
        {{CLI_INPUT, MR_I32, CLI_TOKENS, CLI_HIDDEN, integers}, "found I32"},
        {{CLI_INPUT, MR_BF16, CLI_TOKENS, CLI_HIDDEN - 1, v.hidden}, "[tokens, 64], found [9, 63]"},
        {{CLI_INPUT, MR_BF16, CLI_TOKENS, 0, v.hidden}, "[tokens, 64], found [9]"},
    };
    for (size_t i = 0; i < 3; i++) {
        cli_put_tensors("bad.st", &captures[i].tensor, 1);
        refused_capture("bad.st", captures[i].word);
    }
    const struct {
        struct cli_tensor tensor[2];
        const char *word;
    } weights[] = {
        {{{CLI_GATE, MR_BF16, CLI_EXPERTS, CLI_HIDDEN, v.gate},
          {CLI_BIAS, MR_F32, CLI_EXPERTS - 1, 0, v.bias}}, "expected shape [16], found [15]"},
        {{{CLI_GATE, MR_BF16, CLI_EXPERTS, CLI_HIDDEN, v.gate},
          {CLI_BIAS, MR_F64, CLI_EXPERTS / 2, 0, v.bias}}, "found F64"},
        {{{CLI_GATE, MR_BF16, CLI_EXPERTS, CLI_HIDDEN / 2, v.gate},
          {CLI_BIAS, MR_F32, CLI_EXPERTS, 0, v.bias}}, "[16, 64]"},
        {{{CLI_GATE, MR_BF16, CLI_EXPERTS - 1, CLI_HIDDEN, v.gate},
          {CLI_BIAS, MR_F32, CLI_EXPERTS, 0, v.bias}}, "found [15, 64]"},
        {{{"model.layers.1.mlp.gate.weight", MR_BF16, CLI_EXPERTS, CLI_HIDDEN, v.gate},
          {CLI_BIAS, MR_F32, CLI_EXPERTS, 0, v.bias}}, CLI_GATE},
        {{{CLI_GATE, MR_BF16, CLI_EXPERTS, CLI_HIDDEN, v.gate},
          {"model.layers.1.mlp.bias", MR_F32, CLI_EXPERTS, 0, v.bias}}, CLI_BIAS},
    };
    for (size_t i = 0; i < 6; i++) {
        cli_put_tensors("weights.st", weights[i].tensor, 2);
        cli_remember();
        cli("route", cli_at("case.json"), "--tokens", cli_at("t.st"), "--json", cli_at("t.json"));
        cli_refused(3, "weights.st", weights[i].word);
        cli("route", "--config", cli_at("config.json"), "--gate", cli_at("weights.st"), "--layer",
            "0", "--hidden", cli_at("hidden.st"), "--csv", cli_at("t.csv"));
        ck_assert_int_eq(cli_last.status, 3);
    }
}
END_TEST

START_TEST(reject_wrong_weights)
{
    static struct cli_values v;
    const struct {
        size_t gate, bias; /* the element that is broken; beyond the end: none */
        float value;
        const char *word;
    } bad[] = {{5 * CLI_HIDDEN + 3, CLI_EXPERTS, NAN, "gate"},
               {15 * CLI_HIDDEN + 63, CLI_EXPERTS, INFINITY, "gate"},
               {SIZE_MAX, 3, NAN, "bias"}, {SIZE_MAX, 15, -INFINITY, "bias"}};
    for (size_t i = 0; i < 4; i++) {
        cli_values(&v);
        uint32_t bits;
        memcpy(&bits, &bad[i].value, sizeof bits);
        if (bad[i].gate < SIZE_MAX) v.gate[bad[i].gate] = (uint16_t)(bits >> 16);
        else v.bias[bad[i].bias] = bad[i].value;
        cli_put_weights("weights.st", &v);
        cli_remember();
        cli("route", cli_at("case.json"), "--tokens", cli_at("t.st"), "--json", cli_at("t.json"));
        cli_refused(3, "layer 0, phase p", bad[i].word);
    }
}
END_TEST

static void small_router(const char *change, const char *with)
{
    char router[512] = CLI_ROUTER, text[1024], *at = strstr(router, change);
    ck_assert_ptr_nonnull(at);
    memmove(at + strlen(with), at + strlen(change), strlen(at + strlen(change)) + 1);
    memcpy(at, with, strlen(with));
    snprintf(text, sizeof text, "{%s'capture':['hidden.st'],'router':{%s}}", CLI_HEAD CLI_WEIGHTS,
             router);
    cli_put_json("router.json", text);
}

START_TEST(reject_router)
{
    static const char *const bad[][3] = {
        {"'top_k':4", "'top_k':17", "top_k"},       {"'top_k':4", "'top_k':0", "top_k"},
        {"'n_group':1", "'n_group':3", "n_group"},  {"'topk_group':1", "'topk_group':2", "topk"},
        {"'score':'sigmoid'", "'score':'relu'", "relu"}, {"'top_k':4", "'top_k':4.5", "top_k"},
        {"'experts':16", "'experts':-16", "experts"},
        {"'norm_topk_prob':true", "'norm_topk_prob':1", "norm_topk_prob"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        small_router(bad[i][0], bad[i][1]);
        cli_remember();
        cli("route", cli_at("router.json"));
        cli_refused(3, cli_at("router.json"), bad[i][2]);
    }
}
END_TEST

START_TEST(validate_borders)
{
    /* k = E: all experts, and no gap to speak of. */
    small_router("'top_k':4", "'top_k':16");
    cli("route", cli_at("router.json"), "--json", "-");
    cli_fine();
    json_t *doc = cli_json(), *total = json_object_get(doc, "total");
    ck_assert_int_eq(json_integer_value(json_object_get(total, "top_k")), 16);
    ck_assert_int_eq(json_integer_value(json_object_get(total, "tokens")), CLI_TOKENS);
    ck_assert(json_is_null(json_object_get(json_object_get(total, "gap"), "min")));
    json_decref(doc);
    /* No rows: all outputs, all empty. */
    cli_put_tensors("none.st", &(struct cli_tensor){CLI_INPUT, MR_BF16, 0, CLI_HIDDEN, ""}, 1);
    cli("route", cli_at("case.json"), "--capture", cli_at("none.st"), "--tokens", cli_at("t.st"),
        "--csv", cli_at("t.csv"), "--json", cli_at("t.json"));
    cli_fine();
    ck_assert_ptr_nonnull(strstr(cli_last.out, "No tokens"));
    ck_assert_ptr_null(strstr(cli_last.out, "nan"));
    doc = cli_json_file(cli_at("t.json"));
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(doc, "total"), "tokens")),
                     0);
    json_decref(doc);
}
END_TEST

/* One broken element spoils its token alone. */
START_TEST(validate_nonfinite_token)
{
    static const uint16_t values[] = {0x7fc0, 0x7f80, 0xff80}; /* NaN, Inf, -Inf */
    static const char *const names[] = {"topk_ids", "topk_weights", "gap", "certificate"};
    static struct cli_values v;
    cli("route", cli_at("case.json"), "-q", "--tokens", cli_at("good.st"));
    cli_fine();
    for (size_t i = 0; i < 3; i++) {
        size_t broken = 4 * i; /* the last value in the last token */
        cli_values(&v);
        v.hidden[broken * CLI_HIDDEN + 21 * i] = values[i];
        cli_put_hidden("bad.st", &v);
        cli("route", cli_at("case.json"), "--capture", cli_at("bad.st"), "--tokens", cli_at("t.st"),
            "--json", cli_at("t.json"));
        cli_fine();
        ck_assert_ptr_nonnull(strstr(cli_last.out, "1 with Inf or NaN"));
        double least = INFINITY, most = 0; /* gaps of the others */
        struct mr_safetensors *a, *b;
        ck_assert_int_eq(mr_safetensors_open(cli_at("good.st"), &a, NULL), MR_OK);
        ck_assert_int_eq(mr_safetensors_open(cli_at("t.st"), &b, NULL), MR_OK);
        for (size_t k = 0; k < 4; k++) {
            char name[64];
            struct mr_tensor x, y;
            snprintf(name, sizeof name, "p.model.layers.0.mlp.%s", names[k]);
            ck_assert(mr_safetensors_find(a, name, &x) && mr_safetensors_find(b, name, &y));
            size_t row = x.bytes / CLI_TOKENS;
            for (size_t t = 0; t < CLI_TOKENS; t++) {
                const char *p = (const char *)x.data + t * row, *q = (const char *)y.data + t * row;
                if (t != broken) ck_assert_int_eq(memcmp(p, q, row), 0);
                if (t != broken && k == 2) {
                    double gap;
                    memcpy(&gap, q, sizeof gap);
                    least = fmin(least, gap);
                    most = fmax(most, gap);
                }
                if (t != broken) continue;
                if (k == 3) ck_assert_int_eq(*q, 5);
                else if (k == 0) ck_assert_int_eq(memcmp(q, "\xff\xff\xff\xff", 4), 0); /* -1 */
            }
        }
        mr_safetensors_close(a);
        mr_safetensors_close(b);
        json_t *doc = cli_json_file(cli_at("t.json"));
        const json_t *total = json_object_get(doc, "total"), *gap = json_object_get(total, "gap"),
                     *certified = json_object_get(total, "certified");
        ck_assert_int_eq(json_integer_value(json_object_get(certified, "nonfinite")), 1);
        const double found[2] = {json_real_value(json_object_get(gap, "min")),
                                 json_real_value(json_object_get(gap, "max"))};
        ck_assert_int_eq(memcmp(found, (double[2]){least, most}, sizeof found), 0);
        json_decref(doc);
    }
}
END_TEST

Suite *suite_cli_bad(void)
{
    Suite *suite = suite_create("cli_bad");
    TCase *tc = tcase_create("cli_bad");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, cli_start, cli_stop);
    tcase_add_test(tc, reject_command_lines);
    tcase_add_test(tc, reject_unreadable);
    tcase_add_test(tc, reject_broken_safetensors);
    tcase_add_test(tc, reject_wrong_tensors);
    tcase_add_test(tc, reject_wrong_weights);
    tcase_add_test(tc, reject_router);
    tcase_add_test(tc, validate_borders);
    tcase_add_test(tc, validate_nonfinite_token);
    suite_add_tcase(suite, tc);
    return suite;
}
