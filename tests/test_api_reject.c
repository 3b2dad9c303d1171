/* What the narrow API refuses: one line, no answer, and no byte read outside of what it was given. */
#include <check.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/api_problem.h"

Suite *suite_api_reject(void);

enum { TOKENS = SMALL_TOKENS, EXPERTS = SMALL_EXPERTS, K = SMALL_K, HIDDEN = SMALL_HIDDEN };

static const char good_router[] =
    "{\"experts\": 24, \"top_k\": 4, \"score\": \"sigmoid\", \"bias\": true, \"n_group\": 1, "
    "\"topk_group\": 1, \"norm_topk_prob\": true, \"routed_scaling_factor\": 1}";

static const struct {
    const char *config, *text, *words;
} routers[] = {
    {NULL, NULL, "neither"},
    {NULL, "", "Router"},
    {NULL, "[]", "object"},
    {NULL, "{", "Router"},
    {NULL, "{\"experts\": 4}", "router.top_k"},
    {NULL, "{\"expert\": 4}", "expert"},
    {NULL, "{\"experts\": 24, \"experts\": 24}", "duplicate"},
    {NULL, "{\"experts\": 24, \"top_k\": 25, \"score\": \"sigmoid\", \"bias\": true, \"n_group\": "
           "1, \"topk_group\": 1, \"norm_topk_prob\": true, \"routed_scaling_factor\": 1}",
     "top_k from 1 to experts = 24, found 25"},
    {NULL, "{\"experts\": 24, \"top_k\": 4, \"score\": \"relu\", \"bias\": true, \"n_group\": 1, "
           "\"topk_group\": 1, \"norm_topk_prob\": true, \"routed_scaling_factor\": 1}",
     "\"relu\""},
    {NULL, "{\"experts\": 24, \"top_k\": 4, \"score\": \"sigmoid\", \"bias\": true, \"n_group\": "
           "2, \"topk_group\": 1, \"norm_topk_prob\": true, \"routed_scaling_factor\": 1}",
     "group_score"},
    {NULL, "{\"experts\": 24, \"top_k\": 4, \"score\": \"sigmoid\", \"bias\": true, \"n_group\": "
           "5, \"topk_group\": 1, \"norm_topk_prob\": true, \"routed_scaling_factor\": 1, "
           "\"group_score\": \"max\"}", "divides"},
    {NULL, "{\"experts\": 2147483647, \"top_k\": 4, \"score\": \"sigmoid\", \"bias\": true, "
           "\"n_group\": 1, \"topk_group\": 1, \"norm_topk_prob\": true, "
           "\"routed_scaling_factor\": 1}", "at most 1048576 experts"},
    {"no/such/config.json", NULL, "no/such/config.json"},
    {"Makefile", NULL, "Makefile"},
    {"data/captures/glm4moe-tiny/config.json", "{\"top_k\": 1000}", "top_k"},
};

START_TEST(reject_routers)
{
    struct mr_api_router *r = (void *)1;
    char why[API_WHY], little[8];
    ck_assert_int_ne(mr_api_router_new(routers[_i].config, routers[_i].text, &r, why, sizeof why),
                     0);
    ck_assert_ptr_null(r);
    ck_assert_msg(strstr(why, routers[_i].words), "%s", why);
    ck_assert_ptr_null(strchr(why, '\n'));
    ck_assert_int_ne(mr_api_router_new(routers[_i].config, routers[_i].text, &r, NULL, 0), 0);
    ck_assert_int_ne(mr_api_router_new(routers[_i].config, routers[_i].text, &r, little, 8), 0);
    ck_assert_uint_eq(strlen(little), 7);
}
END_TEST

/* One array of a shape, a dtype and a size in bytes that do not fit. */
static const struct {
    const char *name, *dtype;
    uint64_t shape[2], bytes;
    int ndim;
    const char *words;
} arrays[] = {
    {"hiden", "F32", {1, 1}, 4, 2, "no such array"},
    {"", "F32", {1, 1}, 4, 2, "no such array"},
    {"hidden", "F64", {1, 1}, 8, 2, "found F64"},
    {"hidden", "", {1, 1}, 8, 2, "found "},
    {"hidden", "F3", {1, 1}, 4, 2, "found F3"},
    {"hidden", "F16 F32", {1, 1}, 4, 2, "found F16 F32"},
    {"hidden", "F32", {1, 1}, 4, 1, "expected shape [tokens, hidden], found [1]"},
    {"hidden", "F32", {1, 1}, 4, 0, "found []"},
    {"hidden", "F32", {1, 1}, 4, -1, "found []"},
    {"hidden", "F32", {1, 0}, 0, 2, "expected shape"},
    {"hidden", "F32", {0, 1ull << 40}, 0, 2, "expected shape"},
    {"hidden", "F32", {3, 5}, 59, 2, "take 60 bytes, but there are 59"},
    {"hidden", "F32", {3, 5}, 64, 2, "take 60 bytes, but there are 64"},
    {"hidden", "F32", {1ull << 62, 4}, 0, 2, "bytes"},
    {"hidden", "F32", {UINT64_MAX, 1}, UINT64_MAX - 3, 2, "more than"},
    {"logits", "BF16", {2, 23}, 92, 2, "expected shape [tokens, 24], found [2, 23]"},
    {"gate", "BF16", {23, 8}, 368, 2, "expected shape [24, hidden], found [23, 8]"},
    {"bias", "F32", {24, 1}, 96, 2, "expected shape [24], found [24, 1]"},
    {"bias", "F32", {23}, 92, 1, "expected shape [24], found [23]"},
    {"topk_ids", "F32", {2, 4}, 32, 2, "found F32"},
    {"topk_ids", "I32", {2, 3}, 24, 2, "expected shape [rows, 4], found [2, 3]"},
    {"topk_weights", "I32", {2, 4}, 32, 2, "found I32"},
    {"token_index", "I32", {2}, 8, 1, "expected dtype I64, found I32"},
};

START_TEST(reject_arrays)
{
    struct mr_api_router *r;
    struct mr_api_input *input;
    char why[API_WHY], data[128] = {0};
    ck_assert_int_eq(mr_api_router_new(NULL, good_router, &r, why, sizeof why), 0);
    ck_assert_int_eq(mr_api_input_new(r, &input, why, sizeof why), 0);
    mr_api_router_free(r); /* the input has its own */
    ck_assert_int_ne(mr_api_input_set(input, arrays[_i].name, arrays[_i].dtype, data,
                                      arrays[_i].bytes, arrays[_i].shape, arrays[_i].ndim, why,
                                      sizeof why), 0);
    ck_assert_msg(strstr(why, arrays[_i].words), "%s", why);
    const uint64_t shape[2] = {2, 4};
    ck_assert_int_ne(mr_api_input_set(input, "topk_ids", "I32", NULL, 32, shape, 2, why,
                                      sizeof why), 0);
    ck_assert_msg(strstr(why, "no data"), "%s", why);
    ck_assert_int_eq(mr_api_input_set(input, "topk_ids", "I32", data, 32, shape, 2, why,
                                      sizeof why), 0);
    ck_assert_int_ne(mr_api_input_set(input, "topk_ids", "I32", data, 32, shape, 2, why,
                                      sizeof why), 0);
    ck_assert_msg(strstr(why, "twice"), "%s", why);
    mr_api_input_free(input);
}
END_TEST

struct arrays {
    float hidden[5 * 8], gate[EXPERTS * 8], bias[EXPERTS], logits[5 * EXPERTS], weights[6 * K];
    int32_t ids[6 * K];
    int64_t token[6];
};

/* Arrays that are right alone, and no layer together; l of the letters: h hidden of 5 tokens, n of
 * 7 columns, g gate, b bias, B a bias with a NaN, l logits, N hidden with an Inf, G gate with a NaN,
 * i ids of 5 rows, s of 6 rows, w weights of 5, v of 6, t token_index of 6 with a bad token, a gate
 * bias. */
static void set(struct api_problem *a, struct arrays *x, char letter)
{
    memset(x, 0, sizeof *x);
    for (int i = 0; i < EXPERTS * 8; i++) x->gate[i] = (float)(i % 13);
    for (int i = 0; i < 5 * 8; i++) x->hidden[i] = (float)(i % 7);
    if (letter == 'B') x->bias[7] = NAN;
    if (letter == 'N') x->hidden[3 * 8 + 2] = -INFINITY;
    if (letter == 'G') x->gate[9] = NAN;
    x->token[4] = letter == 't' ? -1 : 4;
    switch (letter) {
    case 'h': case 'N': api_problem_must(a, "hidden", "F32", x->hidden, 5, 8); break;
    case 'n': api_problem_must(a, "hidden", "F32", x->hidden, 5, 7); break;
    case 'g': case 'G': api_problem_must(a, "gate", "F32", x->gate, EXPERTS, 8); break;
    case 'b': case 'B': api_problem_must(a, "bias", "F32", x->bias, EXPERTS, 0); break;
    case 'a': api_problem_must(a, "gate_bias", "F32", x->bias, EXPERTS, 0); break;
    case 'l': api_problem_must(a, "logits", "F32", x->logits, 5, EXPERTS); break;
    case 'L': api_problem_must(a, "gate_logits", "F32", x->logits, 5, EXPERTS); break;
    case 'i': api_problem_must(a, "topk_ids", "I32", x->ids, 5, K); break;
    case 's': api_problem_must(a, "topk_ids", "I32", x->ids, 6, K); break;
    case 'w': api_problem_must(a, "topk_weights", "F32", x->weights, 5, K); break;
    case 'v': api_problem_must(a, "topk_weights", "F32", x->weights, 6, K); break;
    case 't': api_problem_must(a, "token_index", "I64", x->token, 6, 0); break;
    default: ck_abort_msg("%c", letter);
    }
}

static const struct {
    const char *set, *options; /* options: "r..." of route, else of verify */
    uint64_t rows;
    const char *words;
} calls[] = {
    {"", "r{}", 5, "expected hidden and gate, or logits"},
    {"hb", "r{}", 5, "hidden needs gate"},
    {"gb", "r{}", 5, "expected hidden"},
    {"hglb", "r{}", 5, "exclude each other"},
    {"lgb", "r{}", 5, "gate belongs to hidden"},
    {"lba", "r{}", 5, "gate_bias belongs to hidden"},
    {"hg", "r{}", 5, "expected bias"},
    {"hgba", "r{}", 5, "gate_bias: the router has none"},
    {"ngb", "r{}", 5, "hidden has 7 columns, gate 8"},
    {"hgb", "r{}", 4, "outputs are for 4 tokens, the input has 5"},
    {"Ngb", "r{}", 5, "hidden[3, 2] is -Inf"},
    {"hGb", "r{}", 5, "NaN"},
    {"hgB", "r{}", 5, "bias [7] is NaN"},
    {"hgbi", "r{}", 5, "what was observed is mr_api_verify's"},
    {"hgb", "r{\"threads\": -1}", 5, "threads"},
    {"hgb", "r{\"threads\": 100000}", 5, "at most 1024"},
    {"hgb", "r{\"threads\": 1.5}", 5, "threads"},
    {"hgb", "r{\"thread\": 1}", 5, "thread"},
    {"hgb", "r{\"arith\": \"fp32\"}", 5, "arith"},
    {"hgb", "r[]", 5, "object"},
    {"hgb", "r", 5, "options"},
    {"hgb", "{}", 5, "expected topk_ids or gate_logits"},
    {"hgbw", "{}", 5, "topk_weights of which experts?"},
    {"hgbs", "{}", 6, "6 rows for 5 tokens"},
    {"hgbiv", "{}", 5, "expected shape [5, 4], found [6, 4]"},
    {"hgbst", "{}", 6, "row 4: token -1"},
    {"hgbi", "{}", 4, "has 5 rows, expected 4"},
    {"lbiL", "{}", 5, "gate_logits belongs to hidden"},
    {"hgbi", "{\"arith\": \"bf17-logits\"}", 5, "bf17-logits"},
    {"hgbi", "{\"arith\": \"\"}", 5, "arith"},
    {"hgbi", "{\"arith\": 3}", 5, "arith"},
    {"hgbi", "{\"arith\": \"score:softmax.expf\"}", 5, "score:softmax.expf"},
    {"hgbi", "{\"profile\": \"megatron\"}", 5, "megatron"},
    {"hgbi", "{\"non_padded\": -1}", 5, "non_padded"},
    {"hgbi", "{\"worst\": 1000000000}", 5, "at most 100000"},
    {"hgbi", "{\"exact_weights\": true}", 5, "exact_weights"},
    {"Ngbi", "{}", 5, "hidden[3, 2] is -Inf"},
};

START_TEST(reject_calls)
{
    struct api_problem a = {0};
    struct arrays x;
    uint8_t verdict[8] = {99, 99, 99, 99, 99, 99, 99, 99};
    int32_t ids[8 * K];
    char *text = (void *)1;
    const char *options = calls[_i].options;
    ck_assert_int_eq(mr_api_router_new(NULL, good_router, &a.router, a.why, sizeof a.why), 0);
    ck_assert_int_eq(mr_api_input_new(a.router, &a.input, a.why, sizeof a.why), 0);
    for (const char *letter = calls[_i].set; *letter; letter++) set(&a, &x, *letter);
    int status = *options == 'r'
                     ? mr_api_route(a.input, options + 1, calls[_i].rows, ids, NULL, NULL, NULL,
                                    NULL, NULL, NULL, &text, a.why, sizeof a.why)
                     : mr_api_verify(a.input, options, calls[_i].rows,
                                     strchr(calls[_i].set, 'i') || strchr(calls[_i].set, 's')
                                         ? verdict : NULL,
                                     NULL, &text, a.why, sizeof a.why);
    ck_assert_int_ne(status, 0);
    ck_assert_ptr_null(text);
    ck_assert_msg(strstr(a.why, calls[_i].words), "%s", a.why);
    ck_assert_ptr_null(strchr(a.why, '\n'));
    api_problem_free(&a);
}
END_TEST

/* Rows that are not finite are judged if that is allowed, and the others with them. */
START_TEST(verify_nonfinite)
{
    struct api_problem a = {0};
    struct arrays x;
    uint8_t verdict[5], certificate[5];
    int32_t ids[5 * K];
    ck_assert_int_eq(mr_api_router_new(NULL, good_router, &a.router, a.why, sizeof a.why), 0);
    ck_assert_int_eq(mr_api_input_new(a.router, &a.input, a.why, sizeof a.why), 0);
    set(&a, &x, 'N');
    set(&a, &x, 'g');
    set(&a, &x, 'b');
    ck_assert_msg(!mr_api_route(a.input, "{\"allow_nonfinite\": true}", 5, ids, NULL, NULL, NULL,
                                NULL, NULL, certificate, NULL, a.why, sizeof a.why), "%s", a.why);
    ck_assert_int_eq(certificate[3], MR_CERT_NONFINITE);
    ck_assert_int_eq(ids[3 * K], -1);
    for (int i = 0; i < K; i++) ids[3 * K + i] = i;
    api_problem_must(&a, "topk_ids", "I32", ids, 5, K);
    ck_assert_msg(!mr_api_verify(a.input, "{\"allow_nonfinite\": true}", 5, verdict, NULL, NULL,
                                 a.why, sizeof a.why), "%s", a.why);
    for (int t = 0; t < 5; t++)
        ck_assert_str_eq(mr_api_verdict_name(verdict[t]),
                         t == 3 ? "undecided" : certificate[t] == MR_CERT_TIE ? "tie" : "exact");
    api_problem_free(&a);
}
END_TEST

/* No tokens at all is an answer, and needs no data. */
START_TEST(verify_no_tokens)
{
    struct api_problem a = {0};
    const uint64_t shape[2] = {0, EXPERTS}, none[2] = {0, K};
    const float bias[EXPERTS] = {0};
    char *text;
    ck_assert_int_eq(mr_api_router_new(NULL, good_router, &a.router, a.why, sizeof a.why), 0);
    ck_assert_int_eq(mr_api_input_new(a.router, &a.input, a.why, sizeof a.why), 0);
    api_problem_must(&a, "bias", "F32", bias, EXPERTS, 0);
    ck_assert_int_eq(mr_api_input_set(a.input, "logits", "BF16", NULL, 0, shape, 2, NULL, 0), 0);
    ck_assert_int_eq(mr_api_route(a.input, "{}", 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, &text,
                                  a.why, sizeof a.why), 0);
    mr_api_text_free(text);
    ck_assert_int_eq(mr_api_input_set(a.input, "topk_ids", "I32", NULL, 0, none, 2, NULL, 0), 0);
    ck_assert_int_eq(mr_api_verify(a.input, "{}", 0, NULL, NULL, &text, a.why, sizeof a.why), 0);
    mr_api_text_free(text);
    api_problem_free(&a);
    mr_api_text_free(NULL);
    mr_api_router_free(NULL);
    mr_api_input_free(NULL);
    ck_assert_str_eq(mr_api_certificate_name(-1), "?");
    ck_assert_str_eq(mr_api_verdict_name(INT_MAX), "?");
    ck_assert_str_eq(mr_api_status_name(INT_MAX), "unknown");
}
END_TEST

Suite *suite_api_reject(void)
{
    Suite *s = suite_create("api_reject");
    TCase *t = tcase_create("api_reject");
    tcase_add_loop_test(t, reject_routers, 0, sizeof routers / sizeof *routers);
    tcase_add_loop_test(t, reject_arrays, 0, sizeof arrays / sizeof *arrays);
    tcase_add_loop_test(t, reject_calls, 0, sizeof calls / sizeof *calls);
    tcase_add_test(t, verify_nonfinite);
    tcase_add_test(t, verify_no_tokens);
    suite_add_tcase(s, t);
    return s;
}
