/* Tensor-core steps recorded on eight GPUs (data/tensor-core), and controls that must fail. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "../ref/arith/mma_vectors.h"
#include "../ref/io/safetensors.h"

enum { ROWS = 2500, OLDER_ROWS = 1000 };

static struct mr_safetensors *file, *older;
static char gpu[8], format[8], output[8];

static void open_file(void)
{
    struct mr_error err = {{0}};
    ck_assert_msg(!mr_safetensors_open("data/tensor-core/vectors.safetensors", &file, &err), "%s",
                  err.text);
    ck_assert_msg(!mr_safetensors_open("data/tensor-core/older.safetensors", &older, &err), "%s",
                  err.text);
}

static void close_file(void)
{
    mr_safetensors_close(file);
    mr_safetensors_close(older);
}

static struct mr_tensor part(const char *what)
{
    char name[32];
    struct mr_tensor t = {.data = NULL};
    snprintf(name, sizeof name, "%s.%s.%s", gpu, format, what);
    ck_assert_msg(mr_safetensors_find(file, name, &t) || mr_safetensors_find(older, name, &t), "%s",
                  name);
    return t;
}

/* An operand: stored in its own type, tf32 as words. */
static void operand(const char *what, uint32_t words[ROWS * 32], uint64_t k[2])
{
    struct mr_tensor t = part(what);
    ck_assert(mr_mma_stored(format, t.dtype));
    ck_assert_int_eq(t.dtype == MR_F32, !strcmp(format, "tf32"));
    ck_assert_uint_le(t.shape[0] * t.shape[1], ROWS * 32);
    mr_mma_words(t.data, t.dtype, (size_t)(t.shape[0] * t.shape[1]), words);
    memcpy(k, t.shape, 2 * sizeof *k);
}

static const void *result(const char *what)
{
    struct mr_tensor t = part(what);
    ck_assert_int_eq(t.dtype, MR_F32);
    return t.data;
}

static struct mr_mma_group group(const char *name)
{
    uint64_t k[2];
    char d[16];
    ck_assert_int_eq(sscanf(name, "%7[^.].%7[^.].%7s", gpu, format, output), 3);
    snprintf(d, sizeof d, "d_%s", output);
    static uint32_t a[ROWS * 32], b[ROWS * 32];
    operand("a", a, k);
    operand("b", b, k);
    return (struct mr_mma_group){gpu, format, output,      (size_t)k[0], (size_t)k[1],
                                 a,   b,      result("c"), result(d)};
}

static const char *const names[] = {
    "H200.bf16.fp32", "H200.fp16.fp32", "H200.fp16.fp16", "H200.tf32.fp32", "H200.E4M3.fp32",
    "H200.E5M2.fp32", "H200.E4M3.fp16", "H200.E5M2.fp16", "B200.bf16.fp32", "B200.fp16.fp32",
    "B200.fp16.fp16", "B200.tf32.fp32", "B200.E4M3.fp32", "B200.E5M2.fp32", "B200.E4M3.fp16",
    "B200.E5M2.fp16", "V100.fp16.fp32", "V100.fp16.fp16", "A100.bf16.fp32", "A100.fp16.fp32",
    "A100.fp16.fp16", "A100.tf32.fp32", "A2.bf16.fp32",   "A2.fp16.fp32",   "A2.fp16.fp16",
    "A2.tf32.fp32",   "Ada.bf16.fp32",  "Ada.fp16.fp32",  "Ada.fp16.fp16",  "Ada.tf32.fp32",
    "Ada.E4M3.fp32",  "Ada.E5M2.fp32",  "Ada.E4M3.fp16",  "Ada.E5M2.fp16",  "L40S.bf16.fp32",
    "L40S.fp16.fp32", "L40S.fp16.fp16", "L40S.tf32.fp32", "L40S.E4M3.fp32", "L40S.E5M2.fp32"};
enum { NAMES = sizeof names / sizeof *names };

START_TEST(validate_recorded_steps)
{
    struct mr_mma_group g = group(names[_i]);
    struct mr_mma_replayed r;
    struct mr_error err = {{0}};
    ck_assert_msg(!mr_mma_group_replay(&g, &r, &err), "%s", err.text);
    ck_assert_uint_eq(r.checked, _i < 16 ? ROWS : OLDER_ROWS);
    ck_assert_msg(r.mismatches == 0, "%s, %s: %zu mismatches, first row %zu: %08x, recorded %08x",
                  names[_i], r.mma->name, r.mismatches, r.first, r.computed, r.expected);
    ck_assert_str_eq(mr_mma_mark(r.mma), "");
}
END_TEST

/* Every group of the files is among those above. */
START_TEST(validate_no_recording_is_left_out)
{
    size_t outputs = 0;
    for (size_t i = 0; i < mr_safetensors_count(file); i++)
        outputs += strstr(mr_safetensors_name(file, i), ".d_fp") != NULL;
    for (size_t i = 0; i < mr_safetensors_count(older); i++)
        outputs += strstr(mr_safetensors_name(older, i), ".d_fp") != NULL;
    ck_assert_uint_eq(outputs, NAMES);
}
END_TEST

/* The mma of the group, changed in one point: how many of the 2500 rows tell. */
static const struct {
    const char *name, *what;
    int fraction, terms;
    enum mr_mma_form form;
    int rounding; /* -1: as it is */
    size_t mismatches;
} controls[] = {
    {"H200.bf16.fp32", "F = 24", 24, 16, MR_MMA_PLAIN, -1, 244},
    {"H200.bf16.fp32", "F = 26", 26, 16, MR_MMA_PLAIN, -1, 79},
    {"H200.bf16.fp32", "two steps of 8", 25, 8, MR_MMA_PLAIN, -1, 464},
    {"H200.E4M3.fp32", "F = 12", 12, 32, MR_MMA_PLAIN, -1, 984},
    {"H200.E4M3.fp32", "F = 14", 14, 32, MR_MMA_PLAIN, -1, 446},
    {"H200.E4M3.fp32", "23 fraction bits", 13, 32, MR_MMA_PLAIN, MR_MMA_RZ_FP32, 726},
    {"A100.bf16.fp32", "F = 25", 25, 8, MR_MMA_PLAIN, -1, 83},
    {"V100.fp16.fp32", "F = 24", 24, 4, MR_MMA_PLAIN, -1, 250},
    {"Ada.E4M3.fp32", "one step of 32", 13, 32, MR_MMA_PLAIN, -1, 222},
    {"H200.E4M3.fp16", "one sum of 32", 25, 32, MR_MMA_PLAIN, -1, 905},
    {"B200.E5M2.fp32", "one sum of 32", 25, 32, MR_MMA_PLAIN, -1, 911},
};

START_TEST(reject_wrong_models)
{
    struct mr_mma_group g = group(controls[_i].name);
    struct mr_mma_replayed r;
    struct mr_error err = {{0}};
    const struct mr_mma *mma;
    bool c_is_zero;
    ck_assert_int_eq(mr_mma_group_row(&g, &mma, &c_is_zero, &err), MR_OK);
    struct mr_mma wrong = *mma;
    wrong.fraction = controls[_i].fraction;
    wrong.terms = controls[_i].terms;
    wrong.form = controls[_i].form;
    if (controls[_i].rounding >= 0) wrong.rounding = (enum mr_mma_rounding)controls[_i].rounding;
    ck_assert_msg(!mr_mma_group_replay_as(&g, &wrong, c_is_zero, &r, &err), "%s", err.text);
    ck_assert_msg(r.mismatches == controls[_i].mismatches, "%s with %s: %zu mismatches",
                  controls[_i].name, controls[_i].what, r.mismatches);
}
END_TEST

/* fp8 by fp16: columns of a row in another order are other groups of 16. */
START_TEST(reject_wrong_grouping)
{
    static uint32_t a[ROWS * 32], b[ROWS * 32];
    struct mr_mma_group g = group(_i ? "B200.E5M2.fp16" : "H200.E4M3.fp16");
    for (int r = 0; r < ROWS; r++) {
        for (int k = 0; k < 32; k++) { /* halves: 0 .. 15 to places 0, 1 of every four */
            int to = k < 16 ? k / 2 * 4 + k % 2 : (k - 16) / 2 * 4 + 2 + k % 2;
            memcpy(&a[r * 32 + to], (const char *)g.a + 4 * (r * 32 + k), 4);
            memcpy(&b[r * 32 + to], (const char *)g.b + 4 * (r * 32 + k), 4);
        }
    }
    g.a = a;
    g.b = b;
    struct mr_mma_replayed r;
    struct mr_error err = {{0}};
    ck_assert_msg(!mr_mma_group_replay(&g, &r, &err), "%s", err.text);
    ck_assert_msg(r.mismatches > 500, "halves: %zu mismatches", r.mismatches);
}
END_TEST

START_TEST(reject_unknown_groups)
{
    struct mr_mma_group g = group("H200.bf16.fp32");
    struct mr_mma_replayed r;
    struct mr_error err = {{0}};
    g.gpu = "T4";
    ck_assert_int_eq(mr_mma_group_replay(&g, &r, &err), MR_ERR_UNSUPPORTED);
    ck_assert_str_eq(err.text,
                     "T4.bf16: unknown GPU (known: V100 A100 A2 Ada L40S H100 H200 B200)");
    g.gpu = "B200";
    g.format = "e4m3";
    ck_assert_int_eq(mr_mma_group_replay(&g, &r, &err), MR_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "B200.e4m3.d_fp32"));
    ck_assert_ptr_nonnull(strstr(err.text, "E4M3"));
    g.format = "bf16";
    g.output = "fp16";
    ck_assert_int_eq(mr_mma_group_replay(&g, &r, &err), MR_ERR_UNSUPPORTED);
    g.gpu = "A100 A2";
    g.output = "fp32";
    ck_assert_int_eq(mr_mma_group_replay(&g, &r, &err), MR_ERR_UNSUPPORTED);
    g.gpu = "A100";
    g.format = "E4M3";
    ck_assert_int_eq(mr_mma_group_replay(&g, &r, &err), MR_ERR_UNSUPPORTED);
    g = group("H200.bf16.fp32");
    g.k = 5000;
    ck_assert_int_eq(mr_mma_group_replay(&g, &r, &err), MR_ERR_UNSUPPORTED);
}
END_TEST

START_TEST(reject_values_outside_of_the_format)
{
    struct mr_mma_group g = group("H200.E4M3.fp16");
    uint32_t a[2 * 32], d[2];
    struct mr_mma_replayed r;
    struct mr_error err = {{0}};
    memcpy(a, g.a, sizeof a);
    memcpy(d, g.d, sizeof d);
    g.rows = 2;
    g.a = a;
    g.d = d;
    ck_assert_int_eq(mr_mma_group_replay(&g, &r, &err), MR_OK);
    a[32 + 5] = 0x43e80000; /* 464 */
    ck_assert_int_eq(mr_mma_group_replay(&g, &r, &err), MR_ERR_VALUE);
    ck_assert_str_eq(err.text, "H200.E4M3.a: row 1, column 5: 464 (0x43e80000) is no e4m3 number");
    a[32 + 5] = 0;
    d[0] |= 1;
    ck_assert_int_eq(mr_mma_group_replay(&g, &r, &err), MR_ERR_VALUE);
    ck_assert_ptr_nonnull(strstr(err.text, "H200.E4M3.d_fp16: row 0"));
}
END_TEST

/* One changed result is found, with its bits. */
START_TEST(reject_one_changed_bit)
{
    static uint32_t d[ROWS];
    struct mr_mma_group g = group("B200.bf16.fp32");
    struct mr_mma_replayed r;
    memcpy(d, g.d, sizeof d);
    d[1234] ^= 1;
    g.d = d;
    ck_assert_int_eq(mr_mma_group_replay(&g, &r, NULL), MR_OK);
    ck_assert_uint_eq(r.mismatches, 1);
    ck_assert_uint_eq(r.first, 1234);
    ck_assert_uint_eq(r.expected, d[1234]);
    ck_assert_uint_eq(r.computed, d[1234] ^ 1);
}
END_TEST

Suite *suite_mma_vectors(void);
Suite *suite_mma_vectors(void)
{
    Suite *suite = suite_create("mma_vectors");
    TCase *steps = tcase_create("steps");
    tcase_add_checked_fixture(steps, open_file, close_file);
    tcase_add_loop_test(steps, validate_recorded_steps, 0, NAMES);
    tcase_add_test(steps, validate_no_recording_is_left_out);
    tcase_add_loop_test(steps, reject_wrong_models, 0, sizeof controls / sizeof *controls);
    tcase_add_loop_test(steps, reject_wrong_grouping, 0, 2);
    tcase_add_test(steps, reject_unknown_groups);
    tcase_add_test(steps, reject_values_outside_of_the_format);
    tcase_add_test(steps, reject_one_changed_bit);
    suite_add_tcase(suite, steps);
    return suite;
}
