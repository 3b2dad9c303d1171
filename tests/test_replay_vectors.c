/* moeref replay --vectors: single tensor-core steps of real GPUs, and files that are refused. */
#include <check.h>
#include <jansson.h>
#include <string.h>

#include "support/cli.h"

Suite *suite_replay_vectors(void);

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

START_TEST(validate_vectors)
{
    static const char *const paths[] = {"data/tensor-core/vectors.safetensors",
                                        "data/tensor-core/older.safetensors"};
    cli("replay", "--vectors", paths[_i], "--json", "-");
    cli_fine();
    json_t *doc = cli_json(), *g;
    size_t i;
    cli_keys(doc, "moeref command case groups total");
    ck_assert_str_eq(text(doc, "case"), paths[_i]);
    ck_assert_uint_ge(json_array_size(json_object_get(doc, "groups")), 10);
    json_array_foreach(json_object_get(doc, "groups"), i, g)
    {
        cli_keys(g, "name arith unverified rows checked mismatches first");
        ck_assert_int_eq(whole(g, "checked"), whole(g, "rows"));
        ck_assert_int_eq(whole(g, "mismatches"), 0);
    }
    ck_assert_int_ge(whole(json_object_get(doc, "total"), "checked"), 10000);
    json_decref(doc);
}
END_TEST

/* The same steps in binary32 words and in the operands' own types. */
START_TEST(verify_stored_types)
{
    static const float a[16] = {1, -2, 448, 0.0625f, 0x1p-9f, -0x1p-9f, 3, -0.0f};
    static const float b[16] = {5, 0.5f, 1, 2, 1, 1, -1, 1};
    static const uint8_t a8[16] = {0x38, 0xc0, 0x7e, 0x18, 0x01, 0x81, 0x44, 0x80};
    static const uint8_t b8[16] = {0x4a, 0x30, 0x38, 0x40, 0x38, 0x38, 0xb8, 0x38};
    static const float d[1] = {449.125f}; /* 5 - 1 + 448 + 0.125 + 0 - 3 */
    const struct cli_tensor wide[] = {{"Ada.E4M3.a", MR_F32, 1, 16, a},
                                      {"Ada.E4M3.b", MR_F32, 1, 16, b},
                                      {"Ada.E4M3.d_fp32", MR_F32, 1, 0, d}},
                            narrow[] = {{"Ada.E4M3.a", MR_F8_E4M3, 1, 16, a8},
                                        {"Ada.E4M3.b", MR_F8_E4M3, 1, 16, b8},
                                        {"Ada.E4M3.d_fp32", MR_F32, 1, 0, d}};
    for (int i = 0; i < 2; i++) {
        cli_put_tensors("steps.st", i ? narrow : wide, 3);
        cli("replay", "--vectors", cli_at("steps.st"));
        cli_fine();
    }
}
END_TEST

/* Files of steps that are not as they should be. */
START_TEST(reject_vectors)
{
    static const float a[2 * 16] = {1, 1.001f}, d[3] = {0};
    static const struct {
        const char *what;
        struct cli_tensor t[4];
        size_t count;
        const char *word, *second;
    } rows[] = {
        {"another name", {{"H200.bf16.e", MR_F32, 2, 16, a}}, 1, "H200.bf16.e", "GPU.FORMAT"},
        {"two parts", {{"bf16.a", MR_F32, 2, 16, a}}, 1, "bf16.a", "GPU.FORMAT"},
        {"no results", {{"H200.bf16.a", MR_F32, 2, 16, a}}, 1, "H200.bf16.a", "no results"},
        {"no b",
         {{"H200.bf16.a", MR_F32, 2, 16, a}, {"H200.bf16.d_fp32", MR_F32, 2, 0, d}},
         2,
         "H200.bf16.b",
         "beside"},
        {"other rows",
         {{"H200.bf16.a", MR_F32, 2, 16, a},
          {"H200.bf16.b", MR_F32, 2, 16, a},
          {"H200.bf16.d_fp32", MR_F32, 3, 0, d}},
         3,
         "H200.bf16.d_fp32",
         "2 rows"},
        {"other columns",
         {{"H200.bf16.a", MR_F32, 2, 16, a},
          {"H200.bf16.b", MR_F32, 2, 8, a},
          {"H200.bf16.d_fp32", MR_F32, 2, 0, d}},
         3,
         "H200.bf16.b",
         "columns"},
        {"no bf16 number",
         {{"H200.bf16.a", MR_F32, 2, 16, a},
          {"H200.bf16.b", MR_F32, 2, 16, a},
          {"H200.bf16.d_fp32", MR_F32, 2, 0, d}},
         3,
         "row 0, column 1",
         "bf16"},
        {"unknown GPU",
         {{"H1.bf16.a", MR_F32, 2, 16, a},
          {"H1.bf16.b", MR_F32, 2, 16, a},
          {"H1.bf16.d_fp32", MR_F32, 2, 0, d}},
         3,
         "H1",
         "known"},
        {"unknown format",
         {{"H200.int8.a", MR_F32, 2, 16, a},
          {"H200.int8.b", MR_F32, 2, 16, a},
          {"H200.int8.d_fp32", MR_F32, 2, 0, d}},
         3,
         "int8",
         "known"},
        {"unknown output",
         {{"H200.bf16.a", MR_F32, 2, 16, a},
          {"H200.bf16.b", MR_F32, 2, 16, a},
          {"H200.bf16.d_int", MR_F32, 2, 0, d}},
         3,
         "H200.bf16.a",
         "no results"},
        {"another type",
         {{"H200.bf16.a", MR_F16, 2, 16, a},
          {"H200.bf16.b", MR_F32, 2, 16, a},
          {"H200.bf16.d_fp32", MR_F32, 2, 0, d}},
         3,
         "H200.bf16.a",
         "F16"},
        {"another type, of b",
         {{"H200.bf16.a", MR_BF16, 2, 16, a},
          {"H200.bf16.b", MR_F16, 2, 16, a},
          {"H200.bf16.d_fp32", MR_F32, 2, 0, d}},
         3,
         "H200.bf16.b",
         "F16"},
        {"a narrow result",
         {{"H200.bf16.a", MR_BF16, 2, 16, a},
          {"H200.bf16.b", MR_BF16, 2, 16, a},
          {"H200.bf16.d_fp32", MR_BF16, 2, 0, d}},
         3,
         "H200.bf16.d_fp32",
         "BF16"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cli_put_tensors("steps.st", rows[i].t, rows[i].count);
        cli_remember();
        cli("replay", "--vectors", cli_at("steps.st"));
        ck_assert_msg(cli_last.status == 3, "%s: %d", rows[i].what, cli_last.status);
        cli_refused(3, rows[i].word, rows[i].second);
    }
    /* A step that is wrong is told: 0 for 1 * 1. */
    static const float one[16] = {1};
    const struct cli_tensor wrong[] = {{"B200.fp16.a", MR_F32, 1, 16, one},
                                       {"B200.fp16.b", MR_F32, 1, 16, one},
                                       {"B200.fp16.d_fp16", MR_F32, 1, 0, d}};
    cli_put_tensors("steps.st", wrong, 3);
    cli("replay", "--vectors", cli_at("steps.st"));
    ck_assert_int_eq(cli_last.status, 1);
    ck_assert_ptr_nonnull(strstr(cli_last.out, "first at row 0: observed 0 (0x00000000), replayed "
                                               "1 (0x3f800000)"));
}
END_TEST

Suite *suite_replay_vectors(void)
{
    Suite *s = suite_create("replay_vectors");
    TCase *recordings = tcase_create("recordings");
    tcase_add_loop_test(recordings, validate_vectors, 0, 2);
    suite_add_tcase(s, recordings);
    TCase *small = tcase_create("small");
    tcase_add_checked_fixture(small, cli_start, cli_stop);
    tcase_add_test(small, verify_stored_types);
    tcase_add_test(small, reject_vectors);
    suite_add_tcase(s, small);
    return s;
}
