/* Profiles: types, softmax, shared slots, weights of given ids; by examples worked out by hand. */
#include "support/profiled.h"

Suite *suite_profile_weights(void);

START_TEST(validate_types)
{
    float logits[4] = {1.0f, 0.5f, -3, -3}, bias[4] = {0};
    struct mr_router r = sigmoid_router(4, 2);
    /* sigmoid(1) = .7310586, sigmoid(.5) = .6224593; shares .5401174, .4598826 */
    route("hf", &r, logits, bias);
    ck_assert_float_eq_tol(weights[0], 0.5401174f, 2e-7);
    route("flashinfer", &r, logits, bias);
    ck_assert_float_eq(weights[0], 0.5390625f); /* bf16 spacing 2^-8 */
    route("flashinfer-tc", &r, logits, bias);
    ck_assert_float_eq_tol(weights[0], 0.5401174f, 2e-4); /* tanh.approx: 2^-11 */
    route_typed("flashinfer-tc", &r, logits, bias, 1, MR_TYPE_BF16);
    ck_assert_float_eq(weights[0], 0.5390625f);
    /* DeepSeek's code keeps bf16 all the way: .73046875 + .62109375 rounds to 1.3515625 (spacing
     * 2^-7), .73046875 / 1.3515625 = .54046 to .5390625. */
    route_typed("deepseek", &r, logits, bias, 1, MR_TYPE_BF16);
    ck_assert_float_eq(weights[0], 0.5390625f);
    ck_assert_float_eq(weights[1], 0.458984375f);
    /* 2^-9 apart in bf16 scores means nothing to the fp32 ones. */
    float close[4] = {1.0f, 1.0009765625f, -3, -3};
    r.top_k = 1;
    route("deepseek", &r, close, bias);
    expect_ids(1);
    route_typed("deepseek", &r, close, bias, 1, MR_TYPE_BF16);
    expect_ids(0);
    ck_assert(note.tie && note.undefined);
}
END_TEST

START_TEST(validate_softmax_rules)
{
    float logits[8] = {3, 2, 1, 0, 0, 0, 0, -1};
    struct mr_router r = sigmoid_router(8, 2);
    r.score = MR_SCORE_SOFTMAX;
    r.bias = false;
    double z = 0, p[2];
    for (int e = 0; e < 8; e++) z += exp((double)logits[e]);
    for (int i = 0; i < 2; i++) p[i] = exp(3.0 - i) / z;
    for (int norm = 0; norm < 2; norm++) {
        r.norm_topk_prob = norm;
        for (size_t i = 0; mr_profile_at(i); i++) {
            const char *name = mr_profile_at(i)->name;
            const struct mr_profile_row *row;
            if (mr_profile_row(mr_profile_at(i), &r, false, &row, NULL)) continue;
            route(name, &r, logits, NULL);
            expect_ids(0, 1);
            bool divided = norm && row->cell[MR_CELL_GUARD].value != MR_GUARD_NEVER;
            double tol = row->cell[MR_CELL_OUTPUT].value == MR_PROFILE_BF16 ? 0x1p-9 : 0x1p-22;
            for (int j = 0; j < 2; j++)
                ck_assert_double_eq_tol(weights[j], p[j] / (divided ? p[0] + p[1] : 1), tol);
        }
    }
    /* Logits that differ where their softmax does not: by logit the larger, else the lower. */
    r.norm_topk_prob = true;
    r.top_k = 1;
    r.experts = 2;
    float pair[2] = {0.0f, 0x1p-26f};
    route("flashinfer", &r, pair, NULL);
    expect_ids(1);
    route("vllm", &r, pair, NULL);
    expect_ids(0);
    ck_assert(note.tie && !note.undefined);
    route("hf", &r, pair, NULL);
    ck_assert(note.tie && note.undefined);
    /* e * (1 / sum) and e / sum: of eight quotients some round apart. */
    for (int e = 0; e < 8; e++) logits[e] = 3 - 0.37f * (float)e;
    r.experts = 8;
    r.top_k = 8;
    r.norm_topk_prob = false;
    route("vllm", &r, logits, NULL);
    float multiplied[8];
    memcpy(multiplied, weights, sizeof multiplied);
    route("hf", &r, logits, NULL);
    int differ = 0;
    for (int i = 0; i < 8; i++) differ += bits(multiplied[i]) != bits(weights[i]);
    ck_assert_int_gt(differ, 0);
    /* After the top-k: softmax of {3, 2}. */
    for (int e = 1; e < 8; e++) logits[e] = e == 1 ? 2 : 0;
    r.top_k = 2;
    r.selection = MR_SELECT_LOGIT;
    route("hf", &r, logits, NULL);
    ck_assert_float_eq_tol(weights[0], 0.7310586f, 1e-6);
    r.score = MR_SCORE_SIGMOID;
    r.top_k = 1;
    route("flashinfer", &r, logits, NULL);
    ck_assert_float_eq(weights[0], 0.953125f); /* bf16 of .9525741 */
}
END_TEST

START_TEST(verify_shared_weight)
{
    struct mr_router r = sigmoid_router(256, 8);
    float w = -1;
    r.routed_scaling_factor = 2.5;
    ck_assert(mr_profile_shared_weight(row_of("sglang-jit", &r), &r, 3.0f, &w));
    ck_assert_float_eq_tol(w, 0.4f, 1e-7); /* (3 / 2.5) / 3 */
    ck_assert(!mr_profile_shared_weight(row_of("hf", &r), &r, 3.0f, &w));
    r.n_group = 8;
    r.topk_group = 4;
    ck_assert(mr_profile_shared_weight(row_of("flashinfer", &r), &r, 3.0f, &w));
    ck_assert_float_eq(w, 1);
    ck_assert(!mr_profile_scales(row_of("sglang-jit", &r)) && mr_profile_scales(row_of("hf", &r)));
    ck_assert(!mr_profile_promises_order(row_of("hf", &r)));
    ck_assert(mr_profile_promises_order(row_of("vllm", &r)));
}
END_TEST

/* Hash layers: weights of given ids, in their order; an id outside is NaN and reads nothing. */
START_TEST(validate_weigh)
{
    float logits[256] = {0};
    const int32_t given[6] = {7, 3, 0, 5, 255, 100};
    struct mr_router r = sigmoid_router(256, 6);
    struct mr_profile_scratch s;
    struct mr_profile_batch batch = {1, MR_TYPE_FP32};
    const struct mr_profile_row *row;
    r.score = MR_SCORE_SQRT_SOFTPLUS;
    r.routed_scaling_factor = 1.5;
    logits[7] = 90;
    logits[3] = -200;
    ck_assert_int_eq(mr_profile_scratch_new(256, &s), MR_OK);
    ck_assert_int_eq(mr_profile_row(mr_profile_find("vllm"), &r, true, &row, NULL), MR_OK);
    mr_profile_weigh(row, &r, &batch, logits, NULL, &s, given, weights);
    double sum = sqrt(90) + 4 * sqrt(log(2));
    ck_assert_double_eq_tol(weights[0], 1.5 * sqrt(90) / sum, 1e-6);
    ck_assert_uint_eq(bits(weights[1]), 0);
    ck_assert_int_eq(mr_profile_row(mr_profile_find("flashinfer"), &r, true, &row, NULL), MR_OK);
    mr_profile_weigh(row, &r, &batch, logits, NULL, &s, given, weights);
    ck_assert_double_eq_tol(weights[0], sqrt(90) / sum, 1e-6); /* and the factor is left out */
    ck_assert_uint_eq(bits(weights[1]), 0);
    const int32_t wild[6] = {1, 256, -1, INT32_MAX, INT32_MIN, 2};
    mr_profile_weigh(row, &r, &batch, logits, NULL, &s, wild, weights);
    for (int i = 1; i < 5; i++) ck_assert(isnan(weights[i]));
    mr_profile_scratch_free(&s);
}
END_TEST

Suite *suite_profile_weights(void)
{
    Suite *suite = suite_create("profile_weights");
    TCase *tc = tcase_create("weights");
    tcase_add_test(tc, validate_types);
    tcase_add_test(tc, validate_softmax_rules);
    tcase_add_test(tc, verify_shared_weight);
    tcase_add_test(tc, validate_weigh);
    suite_add_tcase(suite, tc);
    return suite;
}
