/* The word score:NAME: text, what it serves, and whole layers of real models from hidden states to
 * the bits of the weights that the GPU gave. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/arith/cuda.h"
#include "../ref/arith/replay.h"
#include "../ref/io/case_layer.h"
#include "../ref/num/num.h"
#include "support/routed.h"

START_TEST(verify_every_word_comes_back)
{
    int words = 0;
    for (mr_score_word w = MR_SCORE_WORD_SOFTMAX_GATING; w <= MR_CUDA_COUNT; w++) {
        const char *name = mr_score_word_name(w);
        mr_score_word again = 0;
        char line[MR_ARITH_TEXT], text[MR_ARITH_TEXT];
        struct mr_arith a;
        if (!mr_score_word_parse(name, strlen(name), &again)) continue;
        words++;
        ck_assert_int_eq(again, w);
        snprintf(line, sizeof line, "fma/deal:4x8+bf16-scores+score:%s", name);
        ck_assert(!mr_arith_parse(line, &a, NULL));
        ck_assert_int_eq(a.score, w);
        mr_arith_print(&a, text, sizeof text);
        ck_assert_str_eq(text, line);
    }
    ck_assert_int_ge(words, 20);
}
END_TEST

START_TEST(reject_unknown_words)
{
    static const char *const bad[] = {"score:", "score:expf", "score:sigmoid", "score:softmax",
                                      "score:sigmoid.expf+score:sigmoid.expf"};
    static const char *const column[] = {"column 1", "column 7", "column 7", "column 7",
                                         "column 20"};
    for (int i = 0; i < 5; i++) {
        struct mr_arith a;
        struct mr_error err = {{0}};
        ck_assert_int_eq(mr_arith_parse(bad[i], &a, &err), MR_ERR_USAGE);
        ck_assert_msg(strstr(err.text, column[i]) != NULL, "%s: %s", bad[i], err.text);
    }
}
END_TEST

START_TEST(reject_words_of_other_scores)
{
    struct mr_router r = {.experts = 128, .top_k = 8, .score = MR_SCORE_SIGMOID};
    mr_score_word expf = 1 + MR_CUDA_SIGMOID;
    struct mr_error err = {{0}};
    ck_assert(!mr_score_word_check(expf, &r, &err));
    ck_assert(!mr_score_word_check(0, &r, &err));
    ck_assert_int_eq(mr_score_word_check(MR_SCORE_WORD_SOFTMAX_TORCH, &r, &err), MR_ERR_USAGE);
    r.score = MR_SCORE_SOFTMAX;
    ck_assert_int_eq(mr_score_word_check(expf, &r, &err), MR_ERR_USAGE);
    ck_assert(!mr_score_word_check(MR_SCORE_WORD_SOFTMAX_GATING, &r, &err));
    r.experts = 288; /* no warp of topkGating divides it */
    ck_assert_int_eq(mr_score_word_check(MR_SCORE_WORD_SOFTMAX_GATING, &r, &err),
                     MR_ERR_UNSUPPORTED);
    ck_assert(!mr_score_word_check(MR_SCORE_WORD_SOFTMAX_TORCH, &r, &err));
    r.experts = 1025;
    ck_assert_int_eq(mr_score_word_check(MR_SCORE_WORD_SOFTMAX_TORCH, &r, &err),
                     MR_ERR_UNSUPPORTED);
}
END_TEST

/* torch.sum over 8 selected scores of a row; its order was found by search on the GLM capture, and
 * holds on Qwen3's. */
static float sum8(const float *s)
{
    float a = (s[0] + s[4]) + (s[2] + s[6]);
    return a + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* transformers' Glm4MoeTopkRouter: sigmoid, gather, w / (sum + 1e-20) * factor, all in fp32. */
static void glm_weights(const float *selected, float *w)
{
    float sum = sum8(selected) + 1e-20f;
    for (int i = 0; i < 8; i++) w[i] = selected[i] / sum * 2.5f;
}

/* Qwen3MoeTopKRouter: softmax in fp32 over all experts, top-k, w / sum, then to bf16. */
static void qwen_weights(const float *selected, float *w)
{
    float sum = sum8(selected);
    for (int i = 0; i < 8; i++)
        w[i] = mr_bf16_decode(
            mr_bf16_encode((double)(selected[i] / sum), MR_RNE, MR_OVERFLOW_IEEE));
}

struct found {
    size_t tokens, weights, different;
};

static void layer_weights(const struct mr_case_layer *l, const struct mr_arith *arith,
                          void (*weights)(const float *, float *), struct found *f)
{
    size_t tokens = l->hidden.shape[0], experts = l->gate.shape[0];
    struct mr_gemm gemm = {.hidden = {l->hidden.data, l->hidden.dtype, tokens, l->hidden.shape[1]},
                           .gate = {l->gate.data, l->gate.dtype, experts, l->gate.shape[1]}};
    struct mr_replay *replay;
    float *logits = malloc(tokens * experts * sizeof *logits), selected[8], w[8], observed;
    ck_assert(!mr_replay_new(arith, &gemm, &replay, NULL));
    ck_assert(!mr_replay_rows(replay, 0, tokens, logits, NULL));
    mr_replay_free(replay);
    ck_assert_int_eq(l->topk_ids.dtype, MR_I32);
    ck_assert_int_eq(l->topk_weights.dtype, MR_F32);
    for (size_t t = 0; t < tokens; t++) {
        float *row = logits + t * experts;
        mr_score_word_apply(arith->score, row, experts, row);
        for (size_t i = 0; i < 8; i++) {
            int32_t id;
            memcpy(&id, (const char *)l->topk_ids.data + (t * 8 + i) * 4, 4);
            selected[i] = row[id];
        }
        weights(selected, w);
        for (size_t i = 0; i < 8; i++) {
            memcpy(&observed, (const char *)l->topk_weights.data + (t * 8 + i) * 4, 4);
            f->different += memcmp(&observed, &w[i], sizeof observed) != 0;
        }
        f->weights += 8;
    }
    f->tokens += tokens;
    free(logits);
}

static struct found capture(const char *path, const char *phase, const char *line,
                            void (*weights)(const float *, float *))
{
    struct mr_case *c;
    struct mr_error err = {{0}};
    struct mr_arith arith;
    struct found f = {0};
    ck_assert_msg(!mr_case_load(path, NULL, &c, &err), "%s", err.text);
    ck_assert_msg(!mr_arith_parse(line, &arith, &err), "%s", err.text);
    for (size_t i = 0; i < mr_case_layer_count(c); i++) {
        struct mr_case_layer l;
        int number = mr_case_layer_number(c, i);
        if (!mr_case_has(c, number, phase)) continue;
        ck_assert_msg(!mr_case_get(c, number, phase, &l, &err), "%s", err.text);
        layer_weights(&l, &arith, weights, &f);
    }
    mr_case_free(c);
    return f;
}

START_TEST(validate_weights_from_hidden_states)
{
    static const struct {
        const char *path, *phase, *line;
        void (*weights)(const float *, float *);
    } recorded[] = {
        {"cases/glm4moe-tiny.json", "prefill", "fma/deal:4x8+score:sigmoid.expf", glm_weights},
        {"cases/glm4moe-tiny.json", "decode", "fma/deal:64x8+score:sigmoid.expf", glm_weights},
        {"cases/qwen3moe-tiny.json", "prefill", "hopper-bf16+bf16-logits+score:softmax.torch",
         qwen_weights},
        {"cases/qwen3moe-tiny.json", "decode", "hopper-bf16+bf16-logits+score:softmax.torch",
         qwen_weights},
    };
    for (int i = 0; i < 4; i++) {
        struct found f = capture(recorded[i].path, recorded[i].phase, recorded[i].line,
                                 recorded[i].weights);
        ck_assert_uint_ge(f.tokens, 7 * 128);
        ck_assert_msg(f.different == 0, "%s, %s: %zu of %zu weights differ", recorded[i].path,
                      recorded[i].phase, f.different, f.weights);
    }
    struct found f = capture("cases/glm4moe-tiny.json", "prefill",
                             "fma/deal:4x8+score:sigmoid.tanhf", glm_weights);
    ck_assert_uint_gt(f.different, f.weights / 10);
}
END_TEST

START_TEST(verify_route_takes_the_word)
{
    uint64_t state = 21;
    struct problem *p = problem_normal(MR_SCORE_SIGMOID, 64, 6, 256, 200, MR_BF16, MR_BF16, true,
                                       &state, "word");
    struct mr_arith a[2];
    struct answers got;
    struct mr_error err = {{0}};
    ck_assert(!mr_arith_parse("fma+score:sigmoid.tanhf+bf16-scores", &a[0], NULL));
    ck_assert(!mr_arith_parse("score:sigmoid.expf", &a[1], NULL));
    struct mr_route_options o = {.threads = 1, .arith = a, .arith_count = 2};
    routed(&p->layer, &o, &got);
    ck_assert_uint_eq(got.flips[1].tokens, 200);
    ck_assert_uint_le(got.flips[1].flips, got.flips[0].flips);
    ck_assert_uint_gt(got.flips[0].flips, 0);
    answers_free(&got);
    p->router.score = MR_SCORE_SOFTMAX;
    p->layer.bias = NULL;
    p->router.bias = false;
    ck_assert_int_eq(routed_try(&p->layer, &o, &got, &err), MR_ERR_USAGE);
    answers_free(&got);
    problem_free(p);
}
END_TEST

Suite *suite_score_word(void);
Suite *suite_score_word(void)
{
    Suite *s = suite_create("score_word");
    TCase *c = tcase_create("words");
    tcase_add_test(c, verify_every_word_comes_back);
    tcase_add_test(c, reject_unknown_words);
    tcase_add_test(c, reject_words_of_other_scores);
    tcase_add_test(c, validate_weights_from_hidden_states);
    tcase_add_test(c, verify_route_takes_the_word);
    suite_add_tcase(s, c);
    return s;
}
