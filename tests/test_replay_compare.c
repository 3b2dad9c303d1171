/* Replayed logits against observed ones: NaN, zeros, distances; and operands that are refused. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "../ref/arith/replay_compare.h"
#include "support/slow_sum.h"

Suite *suite_replay_compare(void);

static struct mr_arith line(const char *text)
{
    struct mr_arith a;
    struct mr_error err = {{0}};
    ck_assert_msg(!mr_arith_parse(text, &a, &err), "%s", err.text);
    return a;
}

/* The logit of one negative product that is too small for binary32. */
static uint32_t underflow(const char *text)
{
    float x = -0x1p-80f, w = 0x1p-80f, out;
    struct mr_gemm gemm = {.hidden = {&x, MR_F32, 1, 1}, .gate = {&w, MR_F32, 1, 1}};
    struct mr_arith a = line(text);
    struct mr_replay *r;
    ck_assert(!mr_replay_new(&a, &gemm, &r, NULL));
    ck_assert(!mr_replay_rows(r, 0, 1, &out, NULL));
    mr_replay_free(r);
    return slow_bits(out);
}

/* NaN, -0 and distances. */
START_TEST(verify_comparison)
{
    float x[4] = {1, -0.0f, NAN, INFINITY}, w[1] = {1};
    struct mr_gemm gemm = {.hidden = {x, MR_F32, 4, 1}, .gate = {w, MR_F32, 1, 1}};
    struct mr_arith a = line("fma");
    struct mr_replay *r;
    struct mr_replay_tally t;
    float out[4];
    ck_assert(!mr_replay_new(&a, &gemm, &r, NULL));
    ck_assert(!mr_replay_rows(r, 0, 4, out, NULL));
    ck_assert_uint_eq(slow_bits(out[1]), 0);         /* fma(-0, 1, +0) */
    ck_assert_uint_eq(underflow("fma"), 0x80000000); /* below half of the least subnormal */
    ck_assert_uint_eq(underflow("mul-add"), 0);      /* +0 + -0 */
    ck_assert_uint_eq(underflow("fma/promote:8"), 0);
    ck_assert_uint_eq(underflow("fma/every:8"), 0x80000000);
    ck_assert_uint_eq(underflow("fp32"), 0x80000000);
    uint32_t word;
    memcpy(&word, &out[2], sizeof word);
    ck_assert_uint_eq(word, 0x7fffffff);
    struct mr_matrix observed = {out, MR_F32, 4, 1};
    ck_assert(!mr_replay_compare(r, &observed, 0, &t, NULL));
    ck_assert_uint_eq(t.checked, 4);
    ck_assert_uint_eq(t.mismatches, 0);
    ck_assert_uint_eq(t.nans, 1);
    out[2] = -NAN;
    out[1] = -0.0f;
    ck_assert(!mr_replay_compare(r, &observed, 0, &t, NULL));
    ck_assert_uint_eq(t.mismatches, 1);
    ck_assert_uint_eq(t.nans, 1);
    ck_assert_uint_eq(t.worst_ulp, 1);
    ck_assert_uint_eq(t.first.token, 1);
    out[0] = nextafterf(1, 0);
    out[2] = 5;
    observed.rows = 2;
    ck_assert(!mr_replay_compare(r, &observed, 0, &t, NULL));
    ck_assert_uint_eq(t.checked, 2);
    ck_assert_uint_eq(t.mismatches, 2);
    ck_assert_uint_eq(t.worst_ulp, 1);
    observed.rows = 3;
    ck_assert(!mr_replay_compare(r, &observed, 0, &t, NULL));
    ck_assert_uint_eq(t.mismatches, 3);
    ck_assert_uint_eq(t.worst_ulp, MR_ULP_NONE);
    mr_replay_free(r);
    ck_assert_uint_eq(mr_ulp_distance(MR_TYPE_FP32, 0x1p-149f, -0x1p-149f), 3); /* +0 and -0 */
    ck_assert_uint_eq(mr_ulp_distance(MR_TYPE_BF16, 1, 1.0078125f), 1);
    ck_assert_uint_eq(mr_ulp_distance(MR_TYPE_BF16, 1, nextafterf(1, 2)), 1);
    ck_assert_uint_eq(mr_ulp_distance(MR_TYPE_FP16, 65504, INFINITY), 1);
    ck_assert_uint_eq(mr_ulp_distance(MR_TYPE_FP32, -INFINITY, INFINITY), 0xff000001);
}
END_TEST

static void refuse(const char *text, const struct mr_gemm *gemm, enum mr_status want,
                   const char *word)
{
    struct mr_arith a = line(text);
    struct mr_replay *r;
    struct mr_error err = {{0}};
    float out[64];
    enum mr_status status = mr_replay_new(&a, gemm, &r, &err);
    if (!status) status = mr_replay_rows(r, 0, gemm->hidden.rows, out, &err);
    ck_assert_msg(status == want, "%s: %s (%s)", text, mr_status_name(status), err.text);
    ck_assert_msg(strstr(err.text, word) != NULL, "%s: '%s' lacks '%s'", text, err.text, word);
    mr_replay_free(r);
}

START_TEST(reject_operands)
{
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 1.001f}, w[8] = {1, 1, 1, 1, 1, 1.001f, 1, 1}, s[8] = {0};
    struct mr_gemm gemm = {.hidden = {x, MR_F32, 2, 4}, .gate = {w, MR_F32, 2, 4}}, g;
    refuse("hopper-bf16", &gemm, MR_ERR_VALUE, "gate, row 1, column 1");
    refuse("hopper-bf16+bf16-gate", &gemm, MR_ERR_VALUE, "hidden, row 1, column 3");
    g = gemm;
    g.gate.dtype = MR_F64;
    refuse("fma", &g, MR_ERR_DTYPE, "F64");
    g = gemm;
    g.hidden.cols = 3;
    refuse("fma", &g, MR_ERR_SHAPE, "3");
    g = gemm;
    g.hidden_scale = s;
    refuse("fma/promote:2", &g, MR_ERR_USAGE, "together");
    g.gate_scale = s;
    refuse("fma", &g, MR_ERR_USAGE, "promote");
    refuse("fma/promote:2/promote:4", &g, MR_ERR_USAGE, "2");
    refuse("blackwell-nvf4", &gemm, MR_ERR_UNSUPPORTED, "blackwell-nvf4");
    struct mr_arith a = line("fma");
    struct mr_replay *r;
    struct mr_replay_tally t;
    struct mr_matrix observed = {s, MR_F32, 3, 2};
    ck_assert(!mr_replay_new(&a, &gemm, &r, NULL));
    ck_assert_int_eq(mr_replay_rows(r, 1, 2, s, NULL), MR_ERR_USAGE);
    ck_assert_int_eq(mr_replay_compare(r, &observed, 0, &t, NULL), MR_ERR_SHAPE);
    observed = (struct mr_matrix){s, MR_F64, 2, 2};
    ck_assert_int_eq(mr_replay_compare(r, &observed, 0, &t, NULL), MR_ERR_DTYPE);
    mr_replay_free(r);
    /* Hidden states are looked at when their turn comes. */
    struct mr_error err = {{0}};
    a = line("hopper-bf16+bf16-gate");
    observed = (struct mr_matrix){s, MR_F32, 2, 2};
    ck_assert(!mr_replay_new(&a, &gemm, &r, NULL));
    ck_assert_int_eq(mr_replay_compare(r, &observed, 0, &t, &err), MR_ERR_VALUE);
    ck_assert_ptr_nonnull(strstr(err.text, "hidden, row 1, column 3"));
    mr_replay_free(r);
}
END_TEST

Suite *suite_replay_compare(void)
{
    Suite *s = suite_create("replay_compare");
    TCase *compare = tcase_create("compare");
    tcase_add_test(compare, verify_comparison);
    tcase_add_test(compare, reject_operands);
    suite_add_tcase(s, compare);
    return s;
}
