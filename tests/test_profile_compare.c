/* Why a profile parts from the certified answer: the cell at fault is named. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/route/profile_compare.h"

Suite *suite_profile_compare(void);

enum { MOST = 512 };
static struct mr_profile_part part;
static int32_t ids[MOST];
static float weights[MOST];

/* What certification would say: ids given, weights by libm in binary64. */
static void compare(const char *name, const struct mr_router *r, const float *logits,
                    const float *bias, const int32_t *certified, const int *ties, int tie_count)
{
    const struct mr_profile_row *row;
    struct mr_profile_scratch s;
    struct mr_profile_batch batch = {1, MR_TYPE_FP32};
    double w[MOST], sum = 0;
    int32_t right[MOST];
    ck_assert_int_eq(mr_profile_row(mr_profile_find(name), r, false, &row, NULL), MR_OK);
    for (int i = 0; i < r->top_k; i++) {
        double x = logits[right[i] = certified[i]];
        w[i] = r->score == MR_SCORE_SIGMOID ? 1 / (1 + exp(-x)) : sqrt(log1p(exp(x)));
        sum += w[i];
    }
    for (int i = 0; i < r->top_k; i++) w[i] *= r->routed_scaling_factor / sum;
    struct mr_routed routed = {.ids = right, .weights = w, .ties = ties, .tie_count = tie_count,
                               .tie_slots = tie_count ? 1 : 0,
                               .certificate = tie_count ? MR_CERT_TIE : MR_CERT_EXACT};
    ck_assert_int_eq(mr_profile_scratch_new(r->experts, &s), MR_OK);
    mr_profile_compare(row, r, &batch, false, logits, bias, &routed, &s, ids, weights, &part);
    mr_profile_scratch_free(&s);
}

static struct mr_router router(int experts, int top_k, int groups, int topk_group)
{
    return (struct mr_router){.experts = experts, .top_k = top_k, .score = MR_SCORE_SIGMOID,
                              .bias = true, .n_group = groups, .topk_group = topk_group,
                              .norm_topk_prob = true, .routed_scaling_factor = 2.5};
}

START_TEST(validate_set_reasons)
{
    float logits[384], bias[384] = {0};
    for (int e = 0; e < 384; e++) logits[e] = -2 - 0.001f * (float)e;
    logits[8] = logits[16] = 1;
    struct mr_router r = router(384, 1, 1, 1);
    static const int ties[] = {8, 16};
    static const int32_t eight[] = {8};
    compare("sglang-jit", &r, logits, bias, eight, ties, 2);
    ck_assert_int_eq(part.set, MR_PART_TIE);
    ck_assert_int_eq(part.why, MR_CELL_TIE);
    compare("vllm", &r, logits, bias, eight, ties, 2);
    ck_assert_int_eq(part.set, MR_PART_SAME);
    ck_assert_int_eq(part.why, MR_WHY_NONE);
    compare("sglang-jit", &r, logits, bias, eight, NULL, 0); /* were it no tie */
    ck_assert_int_eq(part.set, MR_PART_OTHER);

    static const int32_t five[] = {5};
    struct mr_router g = router(8, 1, 2, 1);
    float grouped[8] = {-1, -1.5f, -1, -1, 1, 2, 0, 0}, minus[8];
    for (int e = 0; e < 8; e++) minus[e] = -1;
    compare("hf-mask0", &g, grouped, minus, five, NULL, 0);
    ck_assert_int_eq(part.set, MR_PART_OTHER);
    ck_assert_int_eq(part.why, MR_CELL_MASK);
    ck_assert_str_eq(mr_why_name(part.why), "excluded");

    float close[8] = {0, 0, -5, -5, -6, -6, -6, -6}, split[8] = {6.90f, 6.92f, 0, 0, 0, 0, 0, 0};
    static const int32_t one[] = {1};
    compare("flashinfer", &g, close, split, one, NULL, 0);
    ck_assert_int_eq(part.set, MR_PART_OTHER);
    ck_assert_int_eq(part.why, MR_CELL_BIAS);

    struct mr_router lost = router(20, 2, 5, 2);
    float group[20] = {2, 2, -2, -2, 0.5f, 0.4f, 0, 0, 0.5f, 0.3f, 0, 0}, none[20] = {0};
    for (int e = 12; e < 20; e++) group[e] = -3;
    static const int32_t both[] = {0, 1};
    compare("sglang-triton", &lost, group, none, both, NULL, 0);
    ck_assert_int_eq(part.why, MR_CELL_GROUP);

    /* tanh makes both scores 0, so that the lower id wins: the score's form. */
    struct mr_router tail = router(4, 1, 1, 1);
    float deep[4] = {-25, -19, -40, -40}, flat[4] = {0};
    compare("vllm", &tail, deep, flat, one, NULL, 0);
    ck_assert_int_eq(part.why, MR_CELL_SCORE);
    ck_assert_str_eq(mr_why_name(part.why), "score");
    /* Bias 12 makes them equal for every fp32 key. */
    for (int e = 0; e < 4; e++) flat[e] = 12;
    compare("hf", &tail, deep, flat, one, NULL, 0);
    ck_assert_int_eq(part.why, MR_WHY_FP32);
}
END_TEST

START_TEST(validate_weight_reasons)
{
    float logits[16], bias[16];
    for (int e = 0; e < 16; e++) logits[e] = -20;
    for (int e = 0; e < 16; e++) bias[e] = e < 2 ? 13 : 12;
    struct mr_router r = router(16, 2, 1, 1);
    static const int32_t two[] = {0, 1};
    compare("hf", &r, logits, bias, two, NULL, 0);
    ck_assert_int_eq(part.set, MR_PART_SAME);
    ck_assert_int_eq(part.weight_why, MR_WHY_NONE);
    ck_assert_double_le(part.weight_error, 0x1p-20);
    compare("vllm", &r, logits, bias, two, NULL, 0);
    ck_assert_double_eq(part.weight_error, 1);
    ck_assert_int_eq(part.weight_why, MR_WHY_SEVERAL); /* of 16 experts the weight is key - bias */
    logits[0] = 1;
    compare("flashinfer", &r, logits, bias, two, NULL, 0); /* both bf16 and the lost tail */
    ck_assert_int_eq(part.weight_why, MR_CELL_SCORE);
    logits[1] = 0.3f;
    compare("flashinfer", &r, logits, bias, two, NULL, 0);
    ck_assert_int_eq(part.weight_why, MR_CELL_OUTPUT);
    /* Scaling left to the model is put back. */
    compare("sglang", &r, logits, bias, two, NULL, 0);
    ck_assert_double_le(part.weight_error, 0x1p-20);
    ck_assert_float_eq_tol(weights[0] + weights[1], 1, 1e-6);
    /* 1e-20 beside a sum of 4e-20. */
    logits[0] = logits[1] = -45.36f;
    compare("hf", &r, logits, bias, two, NULL, 0);
    ck_assert_int_eq(part.weight_why, MR_CELL_GUARD);
    r.score = MR_SCORE_SQRT_SOFTPLUS;
    logits[0] = 1;
    logits[1] = -4.6f; /* s = 0.1, beside 200 of spacing 2^-16 */
    bias[0] = bias[1] = 200;
    compare("vllm", &r, logits, bias, two, NULL, 0);
    ck_assert_int_eq(part.weight_why, MR_CELL_WEIGHT);
}
END_TEST

START_TEST(verify_nothing_to_compare)
{
    float logits[4] = {NAN, 1, 2, 3}, bias[4] = {0};
    struct mr_router r = router(4, 2, 1, 1);
    const struct mr_profile_row *row;
    struct mr_profile_scratch s;
    struct mr_profile_batch batch = {1, MR_TYPE_FP32};
    int32_t no[2] = {-1, -1};
    double w[2] = {NAN, NAN};
    struct mr_routed routed = {.ids = no, .weights = w, .certificate = MR_CERT_NONFINITE};
    ck_assert_int_eq(mr_profile_row(mr_profile_find("hf"), &r, false, &row, NULL), MR_OK);
    ck_assert_int_eq(mr_profile_scratch_new(4, &s), MR_OK);
    mr_profile_compare(row, &r, &batch, false, logits, bias, &routed, &s, ids, weights, &part);
    ck_assert_int_eq(part.set, MR_PART_UNKNOWN);
    ck_assert(part.note.nonfinite && part.weight_error < 0);
    ck_assert_int_eq(ids[0], 0);
    mr_profile_scratch_free(&s);
    ck_assert_str_eq(mr_why_name(MR_WHY_NONE), "");
    ck_assert_str_eq(mr_why_name(MR_WHY_COUNT), "");
}
END_TEST

Suite *suite_profile_compare(void)
{
    Suite *suite = suite_create("profile_compare");
    TCase *tc = tcase_create("compare");
    tcase_add_test(tc, validate_set_reasons);
    tcase_add_test(tc, validate_weight_reasons);
    tcase_add_test(tc, verify_nothing_to_compare);
    suite_add_tcase(suite, tc);
    return suite;
}
