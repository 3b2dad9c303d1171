/* identify on what an H200 computed: every recording of cublas-h200 and both captures has the line
 * that replays it among its lines. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/case.h"
#include "support/identify_puzzle.h"

Suite *suite_identify(void);

static bool is_long(void)
{
    return getenv("MOEREF_LONG") != NULL;
}

static struct mr_matrix matrix_of(const struct mr_tensor *t)
{
    return (struct mr_matrix){t->data, t->dtype, (size_t)t->shape[0], (size_t)t->shape[1]};
}

/* One layer of one phase of a case. */
static void identify(const char *path, int layer, const char *phase, struct mr_identified *found,
                     size_t *terms)
{
    struct mr_case *c;
    struct mr_case_layer l;
    struct mr_error err = {{0}};
    ck_assert_msg(!mr_case_load(path, NULL, &c, &err), "%s", err.text);
    if (layer < 0) layer = mr_case_layer_number(c, 0);
    ck_assert_msg(!mr_case_get(c, layer, phase, &l, &err), "%s", err.text);
    struct mr_gemm gemm = {.hidden = matrix_of(&l.hidden), .gate = matrix_of(&l.gate)};
    struct mr_matrix observed = matrix_of(&l.logits);
    ck_assert_msg(!mr_identify(&gemm, &observed, NULL, found, &err), "%s", err.text);
    *terms = gemm.hidden.cols;
    ck_assert_uint_eq(found->checked, observed.rows * observed.cols);
    mr_case_free(c);
}

static void is_named(const struct mr_identified *found, const char *line, size_t terms)
{
    struct mr_arith a;
    ck_assert(!mr_arith_parse(line, &a, NULL));
    ck_assert_msg(puzzle_listed(found, line) || puzzle_equal_listed(found, &a, terms),
                  "%s is not among %zu lines, nearest %s", line, found->lines, found->nearest);
    ck_assert_uint_eq(found->mismatches, 0);
    ck_assert(!found->everything);
}

static const struct recording {
    const char *phase, *line;
    size_t sums; /* how many sums these logits cannot tell apart; 0: many */
    bool quick;
} recordings[] = {
    {"m1", "hopper-bf16/runs:3x64", 1, false},     {"m6", "hopper-bf16/runs:3x64", 1, false},
    {"m16", "hopper-bf16/runs:3x64", 1, false},   {"m17", "hopper-bf16/runs:3x64", 1, false},
    {"m32", "hopper-bf16/runs:3x64", 1, false},   {"m64", "hopper-bf16/runs:3x64", 1, false},
    {"m96", "hopper-bf16/runs:3x64", 1, true},    {"m256", "hopper-bf16/runs:3x64", 1, false},
    {"m512", "hopper-bf16", 1, false},            {"m1024", "hopper-bf16/runs:2x64", 1, true},
    {"m2048", "hopper-bf16", 1, false},           {"m4096", "hopper-bf16", 1, false},
    {"m8192", "hopper-bf16", 1, false},            {"fp32_in_m1", "fma/deal:32:halves", 1, true},
    {"fp32_in_m96", "fma/deal:16x8", 1, true},
    {"bf16_out_m512", "hopper-bf16+bf16-logits", 0, true},
    {"bf16_out_m1", "hopper-bf16+bf16-logits", 0, false}};
enum { RECORDINGS = sizeof recordings / sizeof *recordings };

START_TEST(validate_cublas_recordings)
{
    const struct recording *r = &recordings[_i];
    struct mr_identified found;
    size_t terms;
    if (!r->quick && !is_long()) return;
    identify("cases/cublas-h200.json", -1, r->phase, &found, &terms);
    is_named(&found, r->line, terms);
    if (r->sums) ck_assert_uint_eq(found.sums, r->sums);
    if (!strcmp(r->phase, "bf16_out_m1")) {
        /* One row in bf16 does not tell splits apart. */
        is_named(&found, "hopper-bf16/runs:2x64+bf16-logits", terms);
        is_named(&found, "hopper-bf16/runs:3x64+bf16-logits", terms);
    }
    mr_identified_free(&found);
}
END_TEST

static const char *const phases[] = {"prefill", "decode"};

START_TEST(validate_glm_capture)
{
    static const char *const lines[] = {"fma/deal:4x8", "fma/deal:64x8"};
    for (int layer = is_long() ? 1 : 1 + _i * 4; layer <= (is_long() ? 7 : 1 + _i * 4); layer++) {
        struct mr_identified found;
        size_t terms;
        identify("cases/glm4moe-tiny.json", layer, phases[_i], &found, &terms);
        is_named(&found, lines[_i], terms);
        mr_identified_free(&found);
    }
}
END_TEST

START_TEST(validate_qwen_capture)
{
    for (int layer = 0; layer <= (is_long() ? 7 : 0); layer++) {
        struct mr_identified found;
        size_t terms;
        identify("cases/qwen3moe-tiny.json", layer, phases[_i], &found, &terms);
        is_named(&found, "hopper-bf16+bf16-logits", terms);
        mr_identified_free(&found);
    }
}
END_TEST

Suite *suite_identify(void)
{
    Suite *s = suite_create("identify");
    TCase *tc = tcase_create("recordings");
    tcase_set_timeout(tc, 240);
    tcase_add_loop_test(tc, validate_cublas_recordings, 0, RECORDINGS);
    tcase_add_loop_test(tc, validate_glm_capture, 0, 2);
    tcase_add_loop_test(tc, validate_qwen_capture, 0, 2);
    suite_add_tcase(s, tc);
    return s;
}
