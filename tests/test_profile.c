/* Profiles: each cell with a numeric consequence, by examples worked out by hand. */
#include "support/profiled.h"

Suite *suite_profile(void);

START_TEST(verify_tables)
{
    const struct mr_profile_row *row;
    size_t kinds[MR_KIND_COUNT] = {0};
    for (size_t i = 0; (row = mr_profile_row_at(i)) != NULL; i++) {
        ck_assert_ptr_nonnull(mr_profile_find(row->profile));
        ck_assert_uint_lt(row->kind, MR_KIND_COUNT);
        kinds[row->kind]++;
        ck_assert_uint_le(strlen(row->kernel), 16);
        ck_assert_int_eq(row->serves != NULL, row->when != NULL);
        for (int c = 0; c < MR_CELL_COUNT; c++) {
            const char *text = mr_cell_text(c, row->cell[c].value), *from = mr_cell_source(row, c);
            ck_assert_str_ne(text, "?");
            ck_assert_uint_le(strlen(text), 16); /* a column of `moeref profiles` */
            ck_assert_uint_gt(strlen(from), 8);
            /* A commit, a pull request, or the documentation of a promise. */
            ck_assert_msg(strpbrk(from, "@#") || strstr(from, "PyTorch") ||
                              strstr(from, "torch.topk") || strstr(from, "data/captures"),
                          "%s, %s, %s: source '%s'", row->profile, row->kernel, mr_cell_name(c),
                          from);
        }
        bool groups = row->kind == MR_KIND_SIGMOID_GROUPS || row->kind == MR_KIND_SOFTMAX_GROUPS;
        ck_assert_int_eq(groups, row->cell[MR_CELL_GROUP].value != MR_PGROUP_NONE);
        ck_assert_int_eq(groups, row->cell[MR_CELL_MASK].value != MR_MASK_NONE);
    }
    for (int k = 0; k < MR_KIND_COUNT; k++) ck_assert_uint_gt(kinds[k], 1);
    for (size_t i = 0; mr_profile_at(i); i++)
        ck_assert_ptr_nonnull(strstr(mr_profile_names(), mr_profile_at(i)->name));
    ck_assert_ptr_null(mr_profile_find("vLLM"));
    ck_assert_str_eq(mr_cell_text(MR_CELL_TIE, 99), "?");
}
END_TEST

START_TEST(reject_unserved)
{
    struct mr_router r = sigmoid_router(256, 6);
    struct mr_error err = {{0}};
    struct mr_profile_batch batch = {1, MR_TYPE_FP32};
    float logits[256] = {0};
    r.score = MR_SCORE_SQRT_SOFTPLUS; /* flashinfer#5211: no such method */
    ck_assert_int_eq(mr_profile_route(mr_profile_find("flashinfer"), &r, &batch, logits, NULL, ids,
                                      weights, NULL, &err), MR_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "sqrt-softplus"));
    r = sigmoid_router(1024, 8);
    r.n_group = 8;
    ck_assert_int_eq(mr_profile_route(mr_profile_find("flashinfer"), &r, &batch, logits, NULL, ids,
                                      weights, NULL, &err), MR_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "1024 experts"));
}
END_TEST

/* All logits -20, bias 12 (flashinfer#3803): tanh gives scores of exactly 0, and 0 / 0 without a
 * guard; exp keeps 2.06e-9 each. */
START_TEST(validate_underflow_and_guard)
{
    float logits[16], bias[16];
    fill(logits, 16, -20.0f);
    fill(bias, 16, 12.0f);
    struct mr_router r = sigmoid_router(16, 4);
    route("hf", &r, logits, bias);
    for (int i = 0; i < 4; i++) ck_assert_float_eq_tol(weights[i], 0.25f, 1e-6);
    static const char *const tanh_form[] = {"vllm", "flashinfer", "flashinfer-tc"};
    for (int p = 0; p < 3; p++) {
        route(tanh_form[p], &r, logits, bias);
        for (int i = 0; i < 4; i++) ck_assert_uint_eq(bits(weights[i]), 0);
    }
    route_with("flashinfer", &r, logits, bias, MR_CELL_GUARD, MR_GUARD_NONE);
    for (int i = 0; i < 4; i++) ck_assert(isnan(weights[i]));
    ck_assert(note.nonfinite);
    route_with("flashinfer", &r, logits, bias, MR_CELL_GUARD, MR_GUARD_POSITIVE);
    ck_assert_uint_eq(bits(weights[0]), 0);
    /* One expert of score 1e-20 (exp(-46.0517)): the guards in turn. */
    logits[0] = -46.051701859880914f;
    r.top_k = 1;
    bias[0] = 13;
    static const double want[] = {1, 1, 0.5, 0.5, 1, 1e-20};
    for (int g = MR_GUARD_NONE; g <= MR_GUARD_NEVER; g++) {
        route_with("hf", &r, logits, bias, MR_CELL_GUARD, g);
        ck_assert_int_eq(ids[0], 0);
        ck_assert_double_eq_tol(weights[0], want[g], want[g] * 1e-5);
    }
    logits[0] = -50.65687204586900f; /* 1e-22: the floor of max(sum, 1e-20) is 100 times that */
    route_with("hf", &r, logits, bias, MR_CELL_GUARD, MR_GUARD_MAX_EPS);
    ck_assert_double_eq_tol(weights[0], 0.01, 1e-7);
}
END_TEST

/* Three scores of 1/2, factor 2.5. (1/2)/(3/2) rounds up to 0x3eaaaaab, times 2.5 to 0x3f555556;
 * 2.5/1.5 rounds down to 0x3fd55555, half of it is 0x3f555555, and so is 1.25/1.5. 1/1.5 rounds up
 * to 0x3f2aaaab, half of it is 0x3eaaaaab. */
START_TEST(validate_scaling_order)
{
    float logits[4] = {0, 0, 0, -100}, bias[4] = {0};
    struct mr_router r = sigmoid_router(4, 3);
    r.routed_scaling_factor = 2.5;
    static const uint32_t want[] = {0x3f555556, 0x3f555555, 0x3f555556, 0x3f555555,
                                    0x3f555555, 0x3f555555, 0x3eaaaaab};
    for (int s = MR_SCALING_LAST; s <= MR_SCALING_OUTSIDE; s++) {
        route_with("hf", &r, logits, bias, MR_CELL_SCALING, s);
        for (int i = 0; i < 3; i++) ck_assert_uint_eq(bits(weights[i]), want[s]);
    }
    /* Without renormalisation all are 1.25, or 0.5 where the model scales. */
    r.norm_topk_prob = false;
    for (int s = MR_SCALING_LAST; s <= MR_SCALING_OUTSIDE; s++) {
        route_with("hf", &r, logits, bias, MR_CELL_SCALING, s);
        ck_assert_float_eq(weights[0], s == MR_SCALING_OUTSIDE ? 0.5f : 1.25f);
    }
}
END_TEST

/* 1 and seven times 0.9 * 2^-24. In turn each is lost; lane by lane they pair up to 0.9 * 2^-23 and
 * more, and 3 * 2^-23 stays. */
START_TEST(validate_sum_order)
{
    float logits[8], bias[8] = {0};
    fill(logits, 8, logf(0.9f * 0x1p-24f));
    logits[0] = 30;
    struct mr_router r = sigmoid_router(8, 8);
    route_with("hf", &r, logits, bias, MR_CELL_SUM, MR_SUM_SEQUENTIAL);
    ck_assert_uint_eq(bits(weights[0]), bits(1.0f));
    route_with("hf", &r, logits, bias, MR_CELL_SUM, MR_SUM_BUTTERFLY);
    ck_assert_uint_eq(bits(weights[0]), bits((float)(1 / (1 + 3 * 0x1p-23))));
    route_with("hf", &r, logits, bias, MR_CELL_SUM, MR_SUM_UNKNOWN);
    ck_assert_uint_eq(bits(weights[0]), bits((float)(1 / (1 + 3 * 0x1p-23))));
}
END_TEST

/* Two groups of four, one stays, all keys negative: with 0.0 for the excluded they win. */
START_TEST(validate_mask)
{
    float logits[8] = {-1, -1, -1, -1, 1, 2, 0, 0}, bias[8];
    fill(bias, 8, -1.0f);
    struct mr_router r = sigmoid_router(8, 2);
    r.n_group = 2;
    static const char *const right[] = {"hf",         "vllm",          "sglang",  "sglang-triton",
                                        "flashinfer", "flashinfer-tc", "deepseek"};
    for (int p = 0; p < 7; p++) {
        route(right[p], &r, logits, bias);
        expect_ids(5, 4);
        ck_assert(!note.tie && !note.repeated);
    }
    route("hf-mask0", &r, logits, bias);
    expect_ids(0, 1);
    fill(bias, 8, 1.0f);
    route("hf-mask0", &r, logits, bias);
    expect_ids(5, 4);
}
END_TEST

/* Biases 6.90 and 6.92 are both 6.90625 in bf16. */
START_TEST(validate_bias_type)
{
    float logits[256] = {0}, bias[256];
    for (int e = 0; e < 256; e++) bias[e] = 1.0f - 0.05f * (float)(e / 32); /* no groups tie */
    bias[3] = 6.90f;
    bias[7] = 6.92f;
    struct mr_router r = sigmoid_router(256, 1);
    r.n_group = 8;
    r.topk_group = 4;
    route("flashinfer", &r, logits, bias);
    expect_ids(3);
    ck_assert(note.tie);
    static const char *const fp32[] = {"hf", "vllm", "sglang", "flashinfer-tc"};
    for (int p = 0; p < 4; p++) {
        route(fp32[p], &r, logits, bias);
        expect_ids(7);
        ck_assert(!note.tie);
    }
    /* In SGLang's kernel the bias has the type of the logits. */
    route_typed("sglang", &r, logits, bias, 1, MR_TYPE_BF16);
    expect_ids(3);
    ck_assert(note.tie && !note.undefined);
    r.n_group = r.topk_group = 1;
    route("flashinfer", &r, logits, bias);
    expect_ids(7);
}
END_TEST

/* The largest two of a group are equal: largest + largest below it loses the group. */
START_TEST(validate_group_score)
{
    float logits[20] = {2, 2, -2, -2, 0.5f, 0.4f, 0, 0, 0.5f, 0.3f, 0, 0}, bias[20] = {0};
    fill(logits + 12, 8, -3.0f);
    struct mr_router r = sigmoid_router(20, 2);
    r.n_group = 5;
    r.topk_group = 2;
    route("hf", &r, logits, bias);
    expect_ids(0, 1);
    route("sglang-triton", &r, logits, bias); /* 0.88 + 0.12 against 0.62 + 0.60 and 0.62 + 0.57 */
    expect_ids(4, 8);
    route_with("hf", &r, logits, bias, MR_CELL_GROUP, MR_PGROUP_MAX);
    expect_ids(0, 1);
    /* By the maximum {0.73, ...} beats {0.62, 0.62}, by the sum of two it loses. */
    struct mr_router two = sigmoid_router(4, 1);
    two.n_group = 2;
    two.topk_group = 1;
    float pair[4] = {1, -9, 0.5f, 0.5f};
    route("hf", &two, pair, bias);
    expect_ids(2);
    two.score = MR_SCORE_SOFTMAX;
    two.bias = false;
    route("vllm", &two, pair, NULL);
    expect_ids(0);
}
END_TEST

/* b = 8.08: (s + b) - b. The spacing of fp32 there is 2^-20, so what is left of s is a multiple. */
START_TEST(validate_cancellation)
{
    float logits[4] = {-6, -30, -100, -100}, bias[4];
    fill(bias, 4, 8.08f);
    struct mr_router r = sigmoid_router(4, 2);
    r.score = MR_SCORE_SQRT_SOFTPLUS;
    r.norm_topk_prob = false;
    route("vllm", &r, logits, bias); /* the classic kernel: k is not 6 */
    expect_ids(0, 1);
    float s = sqrtf(logf(1 + expf(-6.0f)));
    ck_assert_float_eq((weights[0] * 0x1p20f), floorf(weights[0] * 0x1p20f));
    ck_assert_float_ne(weights[0], s);
    ck_assert_float_eq_tol(weights[0], s, 0x1p-21f);
    ck_assert_uint_eq(bits(weights[1]), 0); /* log(1 + e^-30) is 0 in that form too */
    /* The score itself. lg2.approx errs by 2^-22 at most below 2 (PTX): 2^-22 ln 2 in the log1p, half of
     * that over the root 0.0498 in its root, and roundings of a few 2^-24 of it. */
    route("sglang-triton", &r, logits, bias);
    ck_assert_uint_eq(bits(weights[0]), bits(mr_form_score(MR_FORM_SOFTPLUS_ABS, -6)));
    ck_assert_float_ne(weights[0] * 0x1p20f, floorf(weights[0] * 0x1p20f));
    ck_assert_double_eq_tol(weights[0], sqrt(log1p(exp(-6.0))), 0x1p-22 * log(2) / 2 / 0.0497 + 0x1p-26);
}
END_TEST

Suite *suite_profile(void)
{
    Suite *suite = suite_create("profile");
    TCase *tables = tcase_create("tables"), *cells = tcase_create("cells");
    tcase_add_test(tables, verify_tables);
    tcase_add_test(tables, reject_unserved);
    tcase_add_test(cells, validate_underflow_and_guard);
    tcase_add_test(cells, validate_scaling_order);
    tcase_add_test(cells, validate_sum_order);
    tcase_add_test(cells, validate_mask);
    tcase_add_test(cells, validate_bias_type);
    tcase_add_test(cells, validate_group_score);
    tcase_add_test(cells, validate_cancellation);
    suite_add_tcase(suite, tables);
    suite_add_tcase(suite, cells);
    return suite;
}
