/* The program's outputs for good input: text, JSON, CSV and tokens files, which must agree. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cli.h"

Suite *suite_cli(void);

static const char *const certificates[6] = {"bound", "exact", "mpfr", "tie", "undecided",
                                            "nonfinite"};
static const char *const gaps[7] = {"min", "p001", "p01", "p10", "p50", "p90", "max"};

static json_int_t whole(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    ck_assert_msg(json_is_integer(v), "%s: no integer", key);
    return json_integer_value(v);
}

/* Keys of DESIGN section 7 (and blas); sums within one layer or the total. */
static void check_row(const json_t *row, bool total)
{
    cli_keys(row, total ? "tokens experts top_k certified gap arith blas"
                        : "layer phase tokens experts top_k certified gap arith blas");
    const json_t *certified = json_object_get(row, "certified"), *gap = json_object_get(row, "gap");
    cli_keys(certified, "bound exact mpfr tie undecided nonfinite");
    cli_keys(gap, "min p001 p01 p10 p50 p90 max");
    json_int_t tokens = whole(row, "tokens"), sum = 0;
    for (int c = 0; c < 6; c++) sum += whole(certified, certificates[c]);
    ck_assert_int_eq(sum, tokens);
    double before = 0;
    for (int q = 0; q < 7; q++) {
        const json_t *v = json_object_get(gap, gaps[q]);
        if (json_is_null(v)) continue;
        ck_assert_double_ge(json_real_value(v), before);
        before = json_real_value(v);
    }
    size_t i;
    json_t *a;
    json_array_foreach(json_object_get(row, "arith"), i, a) {
        cli_keys(a, "name flips flip_rate weight_moved key_error_p50 key_error_p99");
        ck_assert_int_ge(whole(a, "flips"), 0);
        ck_assert_int_le(whole(a, "flips"), tokens);
        if (!tokens) continue;
        ck_assert_double_eq_tol(json_real_value(json_object_get(a, "flip_rate")),
                                (double)whole(a, "flips") / (double)tokens, 1e-15);
    }
}

/* One document of `route --json`; returns the tokens in total. */
static json_int_t check_route(const json_t *doc, const char *name)
{
    cli_keys(doc, "moeref command case layers total ties ties_omitted");
    cli_keys(json_object_get(doc, "moeref"), "version");
    ck_assert_str_eq(json_string_value(json_object_get(doc, "command")), "route");
    ck_assert_str_eq(json_string_value(json_object_get(doc, "case")), name);
    const json_t *total = json_object_get(doc, "total");
    json_int_t tokens = 0, certified[6] = {0}, flips[64] = {0};
    size_t i, j;
    json_t *row, *a;
    json_array_foreach(json_object_get(doc, "layers"), i, row) {
        check_row(row, false);
        tokens += whole(row, "tokens");
        for (int c = 0; c < 6; c++)
            certified[c] += whole(json_object_get(row, "certified"), certificates[c]);
        json_array_foreach(json_object_get(row, "arith"), j, a) flips[j] += whole(a, "flips");
    }
    check_row(total, true);
    ck_assert_int_eq(whole(total, "tokens"), tokens);
    for (int c = 0; c < 6; c++)
        ck_assert_int_eq(whole(json_object_get(total, "certified"), certificates[c]), certified[c]);
    json_array_foreach(json_object_get(total, "arith"), j, a)
        ck_assert_int_eq(whole(a, "flips"), flips[j]);
    return tokens;
}

static const char *const cases[][2] = {{"cases/toy.json", "toy"},
                                       {"cases/glm4moe-tiny.json", "glm4moe-tiny"},
                                       {"cases/qwen3moe-tiny.json", "qwen3moe-tiny"},
                                       {"cases/glm-5.3-flash.json", "glm-5.3-flash"}};

START_TEST(validate_cases)
{
    static const json_int_t tokens[] = {2, 7 * 2 * 128, 8 * 2 * 128, 1024};
    cli("route", cases[_i][0], "--json", cli_at("x.json"));
    cli_fine();
    json_t *doc = cli_json_file(cli_at("x.json"));
    ck_assert_int_eq(check_route(doc, cases[_i][1]), tokens[_i]);
    ck_assert_int_eq(whole(json_object_get(json_object_get(doc, "total"), "certified"),
                           "undecided"), 0);
    const json_t *arith = json_object_get(json_object_get(doc, "total"), "arith");
    static const char *const names[] = {"fp32", "bf16-logits", "bf16-bias",
                                        "bf16-logits+bf16-bias"};
    ck_assert_uint_eq(json_array_size(arith), 4);
    for (size_t i = 0; i < 4; i++)
        ck_assert_str_eq(json_string_value(json_object_get(json_array_get(arith, i), "name")),
                         names[i]);
    /* The table's last row. */
    char *row = strstr(cli_last.out, "\ntotal "), *end;
    ck_assert_ptr_nonnull(row);
    ck_assert_int_eq(strtol(row + 7, &end, 10), tokens[_i]);
    ck_assert_int_eq(strtol(end, &end, 10),
                     whole(json_object_get(json_object_get(doc, "total"), "certified"), "bound"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "proven"));
    json_decref(doc);
}
END_TEST

/* A dense first layer (first_k_dense_replace 1) leaves 1 to 7, captured in both phases. */
START_TEST(validate_glm4moe_layers)
{
    cli("route", cases[1][0], "--json", "-");
    cli_fine();
    json_t *doc = cli_json(), *row;
    size_t i;
    bool seen[2][8] = {{false}};
    json_array_foreach(json_object_get(doc, "layers"), i, row) {
        const char *phase = json_string_value(json_object_get(row, "phase"));
        json_int_t layer = whole(row, "layer");
        ck_assert(strcmp(phase, "prefill") == 0 || strcmp(phase, "decode") == 0);
        ck_assert(layer >= 1 && layer <= 7 && !seen[*phase == 'd'][layer]);
        seen[*phase == 'd'][layer] = true;
        ck_assert_int_eq(whole(row, "tokens"), 128);
        ck_assert_int_eq(whole(row, "experts"), 128);
        ck_assert_int_eq(whole(row, "top_k"), 8);
    }
    ck_assert_uint_eq(i, 14);
    json_decref(doc);
}
END_TEST

/* The figures of the case's "about" and "expect", worked out by hand. */
START_TEST(validate_toy_figures)
{
    cli("route", cases[0][0], "--json", cli_at("x.json"));
    cli_fine();
    ck_assert_ptr_nonnull(strstr(cli_last.out, "experts 2 5, weights 0.503 0.497"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "experts 5 0, weights 0.531 0.469"));
    char *biased = strstr(cli_last.out, "experts 5 0");
    ck_assert_ptr_nonnull(strstr(biased, "; bf16-bias 0 2;"));
    json_t *doc = cli_json_file(cli_at("x.json"));
    const json_t *row = json_array_get(json_object_get(doc, "layers"), 1);
    double gap = json_real_value(json_object_get(json_object_get(row, "gap"), "min"));
    ck_assert_double_eq_tol(gap, 0.018, 0.0005);
    /* Key of expert 0 - key of expert 2, from the fp32 inputs; libm in long double. */
    long double wanted = 1 / (1 + expl(-(long double)1.2f)) + (long double)8.13f -
                         1 / (1 + expl(-2.0L)) - 8.0L;
    ck_assert_double_eq_tol(gap, (double)wanted, 1e-12);
    const json_t *arith = json_object_get(row, "arith");
    ck_assert_int_eq(whole(json_array_get(arith, 0), "flips"), 0);
    ck_assert_int_eq(whole(json_array_get(arith, 2), "flips"), 1);
    json_decref(doc);
}
END_TEST

/* Both are printed with 17 digits, so that reading brings back the same bits. */
static void same_bits(double a, double b)
{
    ck_assert_msg(memcmp(&a, &b, sizeof a) == 0, "%.17g and %.17g", a, b);
}

/* The next field of a CSV line. */
static const char *field(char **at)
{
    static char text[256];
    size_t n = strcspn(*at, ",\n");
    ck_assert_uint_lt(n, sizeof text);
    memcpy(text, *at, n);
    text[n] = '\0';
    *at += n + ((*at)[n] == ',');
    return text;
}

static void same_number(const char *csv, const json_t *value)
{
    if (json_is_null(value)) ck_assert_str_eq(csv, "");
    else same_bits(strtod(csv, NULL), json_number_value(value));
}

static void csv_line(char **at, const json_t *row, const json_t *arith)
{
    bool total = !json_object_get(row, "layer");
    const char *text = field(at);
    if (total) ck_assert_str_eq(text, "");
    else same_number(text, json_object_get(row, "layer"));
    ck_assert_str_eq(field(at), total ? "" : json_string_value(json_object_get(row, "phase")));
    same_number(field(at), json_object_get(row, "tokens"));
    same_number(field(at), json_object_get(row, "experts"));
    same_number(field(at), json_object_get(row, "top_k"));
    for (int c = 0; c < 6; c++)
        same_number(field(at), json_object_get(json_object_get(row, "certified"), certificates[c]));
    for (int q = 0; q < 7; q++)
        same_number(field(at), json_object_get(json_object_get(row, "gap"), gaps[q]));
    ck_assert_str_eq(field(at), json_string_value(json_object_get(arith, "name")));
    static const char *const keys[] = {"flips", "flip_rate", "weight_moved", "key_error_p50",
                                       "key_error_p99"};
    for (int k = 0; k < 5; k++) same_number(field(at), json_object_get(arith, keys[k]));
    ck_assert_int_eq(**at, '\n');
    ++*at;
}

START_TEST(corroborate_csv_and_json)
{
    size_t bytes, i, j;
    json_t *row, *a;
    cli("route", cases[1][0], "--csv", cli_at("x.csv"), "--json", "-");
    cli_fine();
    json_t *doc = cli_json();
    char *text = cli_get(cli_at("x.csv"), &bytes), *at = text;
    static const char head[] =
        "layer,phase,tokens,experts,top_k,bound,exact,mpfr,tie,undecided,nonfinite,gap_min,"
        "gap_p001,gap_p01,gap_p10,gap_p50,gap_p90,gap_max,arith,flips,flip_rate,weight_moved,"
        "key_error_p50,key_error_p99\n";
    ck_assert_int_eq(strncmp(at, head, sizeof head - 1), 0);
    at += sizeof head - 1;
    json_array_foreach(json_object_get(doc, "layers"), i, row)
        json_array_foreach(json_object_get(row, "arith"), j, a) csv_line(&at, row, a);
    row = json_object_get(doc, "total");
    json_array_foreach(json_object_get(row, "arith"), j, a) csv_line(&at, row, a);
    ck_assert_str_eq(at, "");
    /* The same on standard output, and nothing else there. */
    cli("route", cases[1][0], "--csv", "-");
    cli_fine();
    ck_assert_str_eq(cli_last.out, text);
    free(text);
    json_decref(doc);
}
END_TEST

static struct mr_tensor tensor(const struct mr_safetensors *file, const json_t *row,
                               const char *what, enum mr_dtype dtype, json_int_t cols)
{
    char name[256];
    struct mr_tensor t;
    snprintf(name, sizeof name, "%s.model.layers.%lld.mlp.%s",
             json_string_value(json_object_get(row, "phase")), (long long)whole(row, "layer"),
             what);
    ck_assert_msg(mr_safetensors_find(file, name, &t), "no %s", name);
    ck_assert_str_eq(mr_dtype_name(t.dtype), mr_dtype_name(dtype));
    ck_assert_int_eq(t.ndim, cols ? 2 : 1);
    ck_assert_int_eq((json_int_t)t.shape[0], whole(row, "tokens"));
    if (cols) ck_assert_int_eq((json_int_t)t.shape[1], cols);
    return t;
}

/* Tensors as DESIGN section 6 (and gap_radius), against the counts and quantiles of the JSON. */
static void check_tokens(const struct mr_safetensors *file, const json_t *row, double scaling)
{
    size_t tokens = (size_t)whole(row, "tokens"), k = (size_t)whole(row, "top_k");
    const struct mr_tensor ids = tensor(file, row, "topk_ids", MR_I32, (json_int_t)k),
                           weights = tensor(file, row, "topk_weights", MR_F64, (json_int_t)k),
                           gap = tensor(file, row, "gap", MR_F64, 0),
                           radius = tensor(file, row, "gap_radius", MR_F64, 0),
                           certificate = tensor(file, row, "certificate", MR_U8, 0);
    json_int_t count[6] = {0};
    double least = INFINITY, most = 0;
    for (size_t t = 0; t < tokens; t++) {
        bool seen[1024] = {false};
        double sum = 0, v;
        for (size_t i = 0; i < k; i++) {
            int32_t id;
            memcpy(&id, (const char *)ids.data + 4 * (t * k + i), 4);
            ck_assert(id >= 0 && id < whole(row, "experts") && !seen[id]);
            seen[id] = true;
            memcpy(&v, (const char *)weights.data + 8 * (t * k + i), 8);
            ck_assert_double_ge(v, 0);
            sum += v;
        }
        ck_assert_double_eq_tol(sum, scaling, 1e-13);
        memcpy(&v, (const char *)gap.data + 8 * t, 8);
        if (v < least) least = v;
        if (v > most) most = v;
        memcpy(&v, (const char *)radius.data + 8 * t, 8);
        ck_assert(v >= 0 && v <= 1e-12);
        unsigned char c = ((const unsigned char *)certificate.data)[t];
        ck_assert_uint_lt(c, 6);
        count[c]++;
    }
    for (int c = 0; c < 6; c++)
        ck_assert_int_eq(count[c], whole(json_object_get(row, "certified"), certificates[c]));
    const json_t *quantiles = json_object_get(row, "gap");
    same_bits(json_real_value(json_object_get(quantiles, "min")), least);
    same_bits(json_real_value(json_object_get(quantiles, "max")), most);
}

START_TEST(corroborate_tokens_and_json)
{
    static const double scaling[] = {1, 2.5, 1, 2.5};
    struct mr_error err;
    struct mr_safetensors *file;
    json_t *row;
    size_t i;
    cli("route", cases[_i][0], "--tokens", cli_at("x.st"), "--json", "-", "--arith", "none");
    cli_fine();
    json_t *doc = cli_json();
    ck_assert_msg(mr_safetensors_open(cli_at("x.st"), &file, &err) == MR_OK, "%s", err.text);
    json_array_foreach(json_object_get(doc, "layers"), i, row) check_tokens(file, row, scaling[_i]);
    ck_assert_uint_eq(mr_safetensors_count(file), 5 * i);
    ck_assert_str_eq(mr_safetensors_metadata(file, "moeref_case"), cases[_i][1]);
    mr_safetensors_close(file);
    json_decref(doc);
}
END_TEST

Suite *suite_cli(void)
{
    Suite *suite = suite_create("cli");
    TCase *tc = tcase_create("cli");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, cli_start, cli_stop);
    tcase_add_loop_test(tc, validate_cases, 0, 4);
    tcase_add_test(tc, validate_glm4moe_layers);
    tcase_add_test(tc, validate_toy_figures);
    tcase_add_test(tc, corroborate_csv_and_json);
    tcase_add_loop_test(tc, corroborate_tokens_and_json, 0, 4);
    suite_add_tcase(suite, tc);
    return suite;
}
