/* Routing emulated under lines that hold a sum: what the hardware chose, and what the engine of
 * replay gives. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/arith/replay.h"
#include "../ref/io/case_layer.h"
#include "support/routed.h"

struct hardware {
    const int32_t *ids;
    int top_k;
    size_t tokens, same_set;
};

static int ascending(const void *a, const void *b)
{
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

static enum mr_status compare(void *context, size_t token, size_t arith, const int *chosen,
                              struct mr_error *err)
{
    struct hardware *h = context;
    int mine[64], theirs[64], k = h->top_k;
    (void)arith;
    (void)err;
    for (int i = 0; i < k; i++) {
        mine[i] = chosen[i];
        theirs[i] = h->ids[token * (size_t)k + (size_t)i];
    }
    h->tokens++;
    qsort(mine, (size_t)k, sizeof *mine, ascending);
    qsort(theirs, (size_t)k, sizeof *theirs, ascending);
    h->same_set += !memcmp(mine, theirs, (size_t)k * sizeof *mine);
    return MR_OK;
}

/* All layers of one phase of a capture: emulated experts against those that the GPU chose. */
static struct hardware capture(const char *path, const char *phase, const char *line)
{
    struct mr_case *c;
    struct mr_error err = {{0}};
    struct mr_arith arith;
    struct hardware all = {0};
    ck_assert_msg(!mr_case_load(path, NULL, &c, &err), "%s", err.text);
    ck_assert_msg(!mr_arith_parse(line, &arith, &err), "%s", err.text);
    for (size_t i = 0; i < mr_case_layer_count(c); i++) {
        struct mr_case_layer layer;
        struct mr_case_input in;
        struct mr_route_result result;
        struct mr_flips flips = {0};
        int number = mr_case_layer_number(c, i);
        if (!mr_case_has(c, number, phase)) continue;
        ck_assert_msg(!mr_case_get(c, number, phase, &layer, &err), "%s", err.text);
        ck_assert_msg(!mr_case_input_make(c, &layer, false, &in, &err), "%s", err.text);
        ck_assert_int_eq(layer.topk_ids.dtype, MR_I32);
        size_t ids = layer.topk_ids.shape[0] * layer.topk_ids.shape[1];
        int32_t *copy = malloc(ids * sizeof *copy);
        memcpy(copy, layer.topk_ids.data, ids * sizeof *copy);
        struct hardware h = {.ids = copy, .top_k = mr_case_router(c)->top_k};
        struct mr_route_options o = {.threads = 2, .arith = &arith, .arith_count = 1,
                                     .emulated = compare, .context = &h};
        ck_assert_msg(!mr_route_layer(&in.layer, &o, &result, &flips, &err), "%s", err.text);
        ck_assert_uint_eq(h.tokens, layer.topk_ids.shape[0]);
        all.tokens += h.tokens;
        all.same_set += h.same_set;
        free(copy);
        mr_case_input_free(&in);
    }
    mr_case_free(c);
    return all;
}

static const struct {
    const char *path, *phase, *line;
    size_t tokens;
} recorded[] = {
    {"cases/glm4moe-tiny.json", "prefill", "fma/deal:4x8", 7 * 128},
    {"cases/glm4moe-tiny.json", "decode", "fma/deal:64x8", 7 * 128},
    {"cases/qwen3moe-tiny.json", "prefill", "hopper-bf16+bf16-logits", 8 * 128},
    {"cases/qwen3moe-tiny.json", "decode", "hopper-bf16+bf16-logits", 8 * 128},
};

START_TEST(validate_emulated_experts_are_the_hardwares)
{
    for (int i = 0; i < 4; i++) {
        struct hardware h = capture(recorded[i].path, recorded[i].phase, recorded[i].line);
        ck_assert_uint_eq(h.tokens, recorded[i].tokens);
        ck_assert_msg(h.same_set == h.tokens, "%s, %s: %zu of %zu expert sets",
                      recorded[i].path, recorded[i].phase, h.same_set, h.tokens);
    }
}
END_TEST

/* So that the test above can fail: without the rounding to bf16 there are no ties at the cut. (Sets,
 * not order: GLM's topk is called with sorted=False, and Qwen3's ties come in any order.) */
START_TEST(verify_another_line_is_seen)
{
    struct hardware h = capture("cases/qwen3moe-tiny.json", "prefill", "hopper-bf16");
    ck_assert_uint_lt(h.same_set, h.tokens);
}
END_TEST

/* Replayed logits routed as given ones. */
START_TEST(corroborate_emulation_with_given_logits)
{
    static const char *const lines[] = {"fma/deal:6x8", "hopper-bf16/runs:3x64",
                                        "hopper-bf16+bf16-logits", "fma+fp16-logits",
                                        "ampere-bf16/even:5x16:halves"};
    static const enum mr_score scores[] = {MR_SCORE_SIGMOID, MR_SCORE_SOFTMAX};
    uint64_t state = 5;
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < 5; i++) {
            struct problem *p = problem_normal(scores[s], 60, 6, 500, 300, MR_BF16, MR_BF16,
                                               s == 0, &state, "sums");
            struct mr_arith a, plain = {0};
            struct mr_replay *replay;
            struct answers from_sum, from_logits;
            float *logits = malloc(300 * 60 * sizeof *logits);
            ck_assert(!mr_arith_parse(lines[i], &a, NULL));
            struct mr_gemm gemm = {.hidden = p->layer.hidden, .gate = p->layer.gate};
            ck_assert(!mr_replay_new(&a, &gemm, &replay, NULL));
            ck_assert(!mr_replay_rows(replay, 0, 300, logits, NULL));
            mr_replay_free(replay);
            struct mr_route_options o = {.threads = 1 + i % 2, .arith = &a, .arith_count = 1};
            routed(&p->layer, &o, &from_sum);
            struct mr_layer given = p->layer;
            given.hidden.data = given.gate.data = NULL;
            given.logits = (struct mr_matrix){logits, MR_F32, 300, 60};
            o.arith = &plain;
            routed(&given, &o, &from_logits);
            ck_assert(!memcmp(from_sum.chosen, from_logits.chosen, 300 * 6 * sizeof(int)));
            answers_free(&from_sum);
            answers_free(&from_logits);
            free(logits);
            problem_free(p);
        }
}
END_TEST

START_TEST(verify_threads_and_company)
{
    uint64_t state = 9;
    struct problem *p = problem_normal(MR_SCORE_SIGMOID, 70, 5, 700, 1000, MR_BF16, MR_BF16, true,
                                       &state, "threads");
    struct mr_arith a[3];
    struct answers one, many, alone;
    ck_assert(!mr_arith_parse("fma/deal:4x8", &a[0], NULL));
    ck_assert(!mr_arith_parse("bf16-logits", &a[1], NULL));
    ck_assert(!mr_arith_parse("hopper-bf16/runs:2x64+bf16-bias", &a[2], NULL));
    struct mr_route_options o = {.threads = 1, .arith = a, .arith_count = 3};
    routed(&p->layer, &o, &one);
    o.threads = 3;
    routed(&p->layer, &o, &many);
    ck_assert(!memcmp(one.chosen, many.chosen, 1000 * 3 * 5 * sizeof(int)));
    ck_assert(!memcmp(one.flips, many.flips, 3 * sizeof *one.flips));
    o.arith = &a[2];
    o.arith_count = 1;
    routed(&p->layer, &o, &alone);
    for (size_t t = 0; t < 1000; t++)
        ck_assert(!memcmp(one.chosen + (t * 3 + 2) * 5, alone.chosen + t * 5, 5 * sizeof(int)));
    answers_free(&one);
    answers_free(&many);
    answers_free(&alone);
    problem_free(p);
}
END_TEST

/* Operands that the instruction cannot take. */
START_TEST(reject_operands)
{
    uint64_t state = 3;
    struct problem *p = problem_normal(MR_SCORE_SIGMOID, 8, 2, 40, 5, MR_F32, MR_BF16, false,
                                       &state, "operands");
    struct mr_arith a;
    struct answers got;
    struct mr_error err = {{0}};
    ck_assert(!mr_arith_parse("hopper-bf16", &a, NULL));
    struct mr_route_options o = {.threads = 1, .arith = &a, .arith_count = 1};
    ck_assert_int_eq(routed_try(&p->layer, &o, &got, &err), MR_ERR_VALUE);
    ck_assert_msg(strstr(err.text, "bf16") != NULL, "%s", err.text);
    answers_free(&got);
    problem_free(p);
}
END_TEST

Suite *suite_route_sums(void);
Suite *suite_route_sums(void)
{
    Suite *s = suite_create("route_sums");
    TCase *c = tcase_create("sums");
    tcase_add_test(c, validate_emulated_experts_are_the_hardwares);
    tcase_add_test(c, verify_another_line_is_seen);
    tcase_add_test(c, corroborate_emulation_with_given_logits);
    tcase_add_test(c, verify_threads_and_company);
    tcase_add_test(c, reject_operands);
    suite_add_tcase(s, c);
    return s;
}
