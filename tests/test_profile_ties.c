/* Profiles: ties, NaN, the scalar forms. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <mpfr.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/route/profile_emulate.h"

Suite *suite_profile_ties(void);

static int32_t ids[64];
static float weights[64];
static struct mr_profile_note note;

static void route_rows(const char *name, const struct mr_router *r, const float *logits,
                       const float *bias, size_t rows)
{
    struct mr_error err = {{0}};
    struct mr_profile_batch batch = {rows, MR_TYPE_FP32};
    enum mr_status status = mr_profile_route(mr_profile_find(name), r, &batch, logits, bias, ids,
                                             weights, &note, &err);
    ck_assert_msg(status == MR_OK, "%s: %s", name, err.text);
}

static struct mr_router sigmoid_router(int experts, int top_k)
{
    return (struct mr_router){.experts = experts, .top_k = top_k, .score = MR_SCORE_SIGMOID,
                              .bias = true, .n_group = 1, .topk_group = 1, .norm_topk_prob = true,
                              .routed_scaling_factor = 1};
}

#define expect_ids(...) do { \
    const int32_t want_[] = {__VA_ARGS__}; \
    for (size_t i_ = 0; i_ < sizeof want_ / sizeof *want_; i_++) \
        ck_assert_msg(ids[i_] == want_[i_], "slot %zu: %d, expected %d", i_, ids[i_], want_[i_]); \
} while (0)

/* Two experts tied above all others. */
static int tied(int a, int b, int experts)
{
    float key[512] = {0};
    key[a] = key[b] = 1;
    return mr_shuffle_tree(key, experts);
}

/* Counts that were found by a simulation of the published kernels, apart from this code. */
START_TEST(validate_tree_counts)
{
    ck_assert_int_eq(tied(1, 2, 384), 2);
    ck_assert_int_eq(tied(1, 4, 384), 4);
    ck_assert_int_eq(tied(8, 16, 384), 16);
    ck_assert_int_eq(tied(0, 31, 384), 0);
    int higher = 0;
    for (int a = 0; a < 32; a++)
        for (int b = a + 1; b < 32; b++) higher += tied(a, b, 384) == b;
    ck_assert_int_eq(higher, 208);
    static const int warps[3] = {12, 16, 8}, want[3] = {25, 44, 8};
    for (int i = 0; i < 3; i++) {
        higher = 0;
        for (int a = 0; a < warps[i]; a++)
            for (int b = a + 1; b < warps[i]; b++)
                higher += tied(32 * a, 32 * b, 32 * warps[i]) == 32 * b;
        ck_assert_int_eq(higher, want[i]);
    }
}
END_TEST

/* The tree by its recursion: after the step of width w, lane l holds the better of what it and lane
 * l + w held before, its own at equality. */
static int better(const float *v, int lane, int width)
{
    if (width == 32) return lane;
    int own = better(v, lane, 2 * width), other = lane + width;
    if (other >= 32) return own;
    other = better(v, other, 2 * width);
    return v[other] > v[own] ? other : own;
}

START_TEST(corroborate_tree)
{
    srand(11);
    for (int trial = 0; trial < 2000; trial++) {
        float key[512], warp[32], pad[512];
        int experts = 1 + rand() % 512, from[32];
        for (int e = 0; e < 512; e++) pad[e] = -FLT_MAX;
        for (int e = 0; e < experts; e++) pad[e] = key[e] = (float)(rand() % 5);
        for (int w = 0; w < 32; w++) {
            from[w] = w < 16 ? 32 * w + better(pad + 32 * w, 0, 1) : -1;
            warp[w] = w < 16 ? pad[from[w]] : -FLT_MAX;
        }
        ck_assert_int_eq(mr_shuffle_tree(key, experts), from[better(warp, 0, 1)]);
    }
}
END_TEST

/* 8 and 16 tied at the cut of 384 experts: 16 up to 512 rows, 8 above. */
START_TEST(validate_tie_by_rows)
{
    float logits[384], bias[384] = {0};
    for (int e = 0; e < 384; e++) logits[e] = -2;
    logits[100] = 3;
    logits[8] = logits[16] = 1;
    struct mr_router r = sigmoid_router(384, 2);
    static const size_t rows[] = {1, 512, 513, 4096};
    for (int i = 0; i < 4; i++) {
        route_rows("sglang-jit", &r, logits, bias, rows[i]);
        expect_ids(100, rows[i] <= 512 ? 16 : 8);
        ck_assert(note.tie && !note.undefined);
    }
    static const char *const lowest[] = {"vllm", "flashinfer", "sglang-triton", "hf"};
    for (int i = 0; i < 4; i++) {
        route_rows(lowest[i], &r, logits, bias, 1);
        expect_ids(100, 8);
        ck_assert(note.tie);
        ck_assert_int_eq(note.undefined, i == 3);
    }
    r.top_k = 3; /* both are in: no tie at the cut */
    route_rows("hf", &r, logits, bias, 1);
    ck_assert(!note.tie);
    /* Groups: two of four tie for the second place. */
    float grouped[16] = {0, 0, 0, 0, 5, 5, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0};
    struct mr_router g = sigmoid_router(16, 4);
    g.n_group = 4;
    g.topk_group = 2;
    route_rows("sglang", &g, grouped, bias, 1);
    expect_ids(4, 5, 8, 9);
    ck_assert(note.tie && !note.undefined);
    /* SGLang's softmax: lowest id in the warp kernel only. */
    struct mr_router s = sigmoid_router(60, 1);
    s.score = MR_SCORE_SOFTMAX;
    s.bias = false;
    float flat[64] = {0};
    route_rows("sglang", &s, flat, NULL, 1);
    ck_assert(note.undefined);
    s.experts = 64;
    route_rows("sglang", &s, flat, NULL, 1);
    ck_assert(note.tie && !note.undefined);
}
END_TEST

START_TEST(validate_nan_rows)
{
    float logits[8], bias[8] = {0};
    for (int e = 0; e < 8; e++) logits[e] = NAN;
    struct mr_router r = sigmoid_router(8, 3), softmax = r;
    softmax.score = MR_SCORE_SOFTMAX;
    softmax.bias = false;
    /* All NaN: vLLM's softmax kernel makes scores 0 and ranks by id. */
    route_rows("vllm", &softmax, logits, NULL, 1);
    expect_ids(0, 1, 2);
    for (int i = 0; i < 3; i++) ck_assert_float_eq(weights[i], 0);
    ck_assert(note.nonfinite && !note.repeated);
    /* SGLang's gate finds nobody, and writes expert 0, weight 0, three times. */
    route_rows("sglang-jit", &r, logits, bias, 1);
    expect_ids(0, 0, 0);
    for (int i = 0; i < 3; i++) ck_assert_float_eq(weights[i], 0);
    ck_assert(note.nonfinite && note.repeated);
    route_rows("sglang-jit", &r, logits, bias, 513);
    expect_ids(0, 0, 0);
    /* Triton: keys -1e30 rank by id, the weights stay NaN. */
    route_rows("sglang-triton", &r, logits, bias, 1);
    expect_ids(0, 1, 2);
    ck_assert(isnan(weights[0]));
    /* One NaN: above all for torch, below all for others; by bits it would be above. */
    for (int e = 0; e < 8; e++) logits[e] = (float)e;
    logits[2] = NAN;
    route_rows("hf", &r, logits, bias, 1);
    expect_ids(2, 7, 6);
    ck_assert(isnan(weights[1]));
    route_rows("flashinfer", &r, logits, bias, 1);
    expect_ids(2, 7, 6);
    static const char *const last[] = {"sglang-jit", "sglang-triton", "vllm"};
    for (int i = 0; i < 3; i++) {
        route_rows(last[i], &r, logits, bias, 1);
        expect_ids(7, 6, 5);
        ck_assert(isfinite(weights[0]) && note.nonfinite);
    }
    /* By bits -0 ranks below +0; as numbers they tie, and the lowest id wins. */
    float zeros[2] = {-0.0f, 0.0f};
    struct mr_router two = {.experts = 2, .top_k = 1, .score = MR_SCORE_SOFTMAX, .n_group = 1,
                            .topk_group = 1, .selection = MR_SELECT_LOGIT,
                            .routed_scaling_factor = 1};
    route_rows("flashinfer", &two, zeros, NULL, 1);
    expect_ids(1);
    ck_assert(!note.tie);
    route_rows("hf", &two, zeros, NULL, 1);
    expect_ids(0);
    ck_assert(note.tie);
}
END_TEST

/* Bias -Inf but for one expert: what a kernel puts in place of a chosen key matters. -10000 beats
 * -Inf, so that it comes again; -Inf ties with the rest at the lowest id. */
START_TEST(validate_taken_out)
{
    float logits[4] = {0}, bias[4] = {-INFINITY, -INFINITY, 0, -INFINITY};
    struct mr_router r = sigmoid_router(4, 3);
    r.score = MR_SCORE_SOFTMAX;
    route_rows("vllm", &r, logits, bias, 1);
    expect_ids(2, 2, 2);
    ck_assert(note.repeated);
    r.score = MR_SCORE_SIGMOID;
    route_rows("flashinfer", &r, logits, bias, 1);
    expect_ids(2, 0, 0);
    ck_assert(note.repeated);
    route_rows("sglang-jit", &r, logits, bias, 1);
    expect_ids(2, 0, 0);
    ck_assert_float_eq(weights[1], 0);
    route_rows("hf", &r, logits, bias, 1);
    expect_ids(2, 0, 1);
    ck_assert(!note.repeated);
    /* vLLM's general kernel: the last chosen group's score is -Inf, so ids 0.. and 1 / k each. */
    float grouped[320] = {0}, masked[320];
    for (int e = 0; e < 320; e++) masked[e] = e < 10 ? 0 : -INFINITY;
    grouped[9] = 3;
    struct mr_router g = sigmoid_router(320, 4);
    g.n_group = 32;
    g.topk_group = 2;
    route_rows("vllm", &g, grouped, masked, 1);
    expect_ids(0, 1, 2, 3);
    for (int i = 0; i < 4; i++) ck_assert_float_eq(weights[i], 0.25f);
}
END_TEST

START_TEST(validate_forms)
{
    /* Where the tails end (notes of the sources; each by one step of fp32 on both sides). */
    ck_assert_float_eq(mr_form_score(MR_FORM_SIGMOID_TANH, -18.03f), 0);
    ck_assert_float_gt(mr_form_score(MR_FORM_SIGMOID_TANH, -17.0f), 0);
    ck_assert_float_eq(mr_form_score(MR_FORM_SIGMOID_TANH, 16.93f), 1);
    ck_assert_float_lt(mr_form_score(MR_FORM_SIGMOID_TANH, 16.5f), 1);
    ck_assert_float_eq(mr_form_score(MR_FORM_SIGMOID_EXP, 16.64f), 1);
    ck_assert_float_lt(mr_form_score(MR_FORM_SIGMOID_EXP, 16.63f), 1);
    ck_assert_float_gt(mr_form_score(MR_FORM_SIGMOID_EXP, -88.7f), 0);
    ck_assert_float_eq(mr_form_score(MR_FORM_SIGMOID_EXP, -89), 0); /* 1 / Inf */
    static const struct {
        enum mr_score_form form;
        double at[3]; /* -17, -200, 90 */
    } want[] = {{MR_FORM_SOFTPLUS_LOG_FAST, {0, 0, 9.486832980505138}},
                {MR_FORM_SOFTPLUS_LOG, {0, 0, 9.486832980505138}},
                {MR_FORM_SOFTPLUS_LOG1P, {2.0346836901e-4, 0, INFINITY}},
                {MR_FORM_SOFTPLUS_TORCH, {2.0346836901e-4, 0, 9.486832980505138}},
                {MR_FORM_SOFTPLUS_STABLE, {2.0346836901e-4, 0, 9.486832980505138}}};
    for (int i = 0; i < 5; i++) {
        static const float x[3] = {-17, -200, 90};
        for (int j = 0; j < 3; j++) {
            float got = mr_form_score(want[i].form, x[j]);
            if (isinf(want[i].at[j])) ck_assert(isinf(got));
            else ck_assert_double_eq_tol(got, want[i].at[j],
                                         want[i].at[j] * 1e-7 + 1e-30);
        }
    }
    ck_assert_float_gt(mr_form_score(MR_FORM_SOFTPLUS_LOG, -16.63f), 0);
    ck_assert_float_eq(mr_form_score(MR_FORM_SOFTPLUS_LOG, -16.64f), 0);
    ck_assert_float_eq(mr_form_score(MR_FORM_SOFTPLUS_STABLE, 25), sqrtf(25));
    /* All logits -17, then +90 (sglang#34459): 0 / 0 is guarded, and above 20 there is no exp. */
    float logits[256], bias[256] = {0};
    struct mr_router r = sigmoid_router(256, 6);
    r.score = MR_SCORE_SQRT_SOFTPLUS;
    for (int pass = 0; pass < 2; pass++) {
        for (int e = 0; e < 256; e++) logits[e] = pass ? 90 : -17;
        static const char *const triton[] = {"sglang-triton", "vllm"};
        for (int p = 0; p < 2; p++) {
            route_rows(triton[p], &r, logits, bias, 1);
            /* SGLang's log1p keeps them, log(1 + e^x) does not. */
            ck_assert_float_eq_tol(weights[0], pass || p == 0 ? 1.0f / 6 : 0, 1e-7);
        }
        route_rows("hf", &r, logits, bias, 1);
        ck_assert_float_eq_tol(weights[0], 1.0f / 6, 1e-7);
    }
    for (int e = 0; e < 256; e++) logits[e] = -200;
    route_rows("vllm", &r, logits, bias, 1);
    ck_assert_float_eq(weights[0], 0);
    route_rows("sglang-jit", &r, logits, bias, 1);
    ck_assert_float_eq(weights[0], 0);
}
END_TEST

Suite *suite_profile_ties(void)
{
    Suite *suite = suite_create("profile_ties");
    TCase *ties = tcase_create("ties"), *forms = tcase_create("forms");
    tcase_set_timeout(forms, getenv("MOEREF_LONG") ? 600 : 30);
    tcase_add_test(ties, validate_tree_counts);
    tcase_add_test(ties, corroborate_tree);
    tcase_add_test(ties, validate_tie_by_rows);
    tcase_add_test(ties, validate_nan_rows);
    tcase_add_test(ties, validate_taken_out);
    tcase_add_test(forms, validate_forms);
    suite_add_tcase(suite, ties);
    suite_add_tcase(suite, forms);
    return suite;
}
