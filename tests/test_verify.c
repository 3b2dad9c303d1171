/* Judging layers as they are routed: a small binary32 kernel, sound and then faulty. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/num/num.h"
#include "../ref/route/verify.h"
#include "support/small_kernel.h"

Suite *suite_verify(void);

enum { TOKENS = SMALL_TOKENS, EXPERTS = SMALL_EXPERTS, K = SMALL_K };

struct outcome {
    struct mr_verify_result result;
    struct mr_verify_tally tally[2];
    uint64_t gained[EXPERTS], lost[EXPERTS], power[2];
    struct mr_findings found;
};

static void judge(const struct problem *p, const struct mr_observed *o, size_t count, int threads,
                  size_t most, struct outcome *out)
{
    static const struct mr_arith bf16 = {.logits = MR_TYPE_BF16};
    const struct mr_error_model power[2] = {mr_error_model(NULL), mr_error_model(&bf16)};
    struct mr_verify_options options = {.threads = threads, .model = power[0], .phase = "all",
                                        .power = power, .power_count = 2};
    struct mr_error err = {{0}};
    memset(out, 0, sizeof *out);
    out->result.tally = out->tally;
    out->result.gained = out->gained;
    out->result.lost = out->lost;
    out->result.power = out->power;
    ck_assert_int_eq(mr_findings_new(most, K, &out->found), MR_OK);
    enum mr_status status =
        mr_verify_layer(&p->layer, &options, o, count, &out->result, &out->found, &err);
    ck_assert_msg(!status, "%s", err.text);
}

START_TEST(verify_sound_kernel)
{
    uint64_t state = 17 + (uint64_t)_i;
    struct problem *p = small_problem(_i, &state);
    struct small_kernel *k = malloc(sizeof *k);
    struct outcome out;
    small_kernel_run(p, k);
    judge(p, &k->observed, 1, 1, 10, &out);
    ck_assert_uint_eq(out.tally[0].rows, TOKENS);
    ck_assert_uint_eq(out.tally[0].verdicts[MR_EXACT] + out.tally[0].verdicts[MR_ROUNDING], TOKENS);
    ck_assert_uint_ge(out.tally[0].verdicts[MR_EXACT], TOKENS - 3);
    ck_assert_uint_eq(out.result.power_tokens, TOKENS);
    ck_assert_uint_gt(out.power[0], TOKENS * 9 / 10);
    ck_assert_uint_gt(out.power[0], out.power[1]);
    /* Its logits alone. */
    struct mr_observed logits = {.source = "logits", .rows = TOKENS, .tokens = TOKENS,
                                 .logits = small_view(k->logits, MR_F32, EXPERTS),
                                 .non_padded = UINT64_MAX};
    mr_findings_free(&out.found);
    judge(p, &logits, 1, 1, 10, &out);
    ck_assert_uint_eq(out.tally[0].verdicts[MR_EXACT], TOKENS);
    ck_assert_uint_eq(out.tally[0].logit_rows, TOKENS);
    ck_assert(out.tally[0].logit_error > 0 && out.tally[0].logit_error < 1e-4);
    k->logits[5 * EXPERTS + 3] *= 1.01f;
    k->logits[6 * EXPERTS + 3] = NAN;
    mr_findings_free(&out.found);
    judge(p, &logits, 1, 1, 10, &out);
    ck_assert_uint_eq(out.tally[0].verdicts[MR_WRONG], 1);
    ck_assert_uint_eq(out.tally[0].verdicts[MR_NONFINITE], 1);
    ck_assert_uint_eq(out.found.item[1].token, 5);
    ck_assert_int_eq(out.found.item[1].judgement.included, 3);
    mr_findings_free(&out.found);
    problem_free(p);
    free(k);
}
END_TEST

/* One fault in every row: what it is called, and what is named. */
START_TEST(verify_faults)
{
    uint64_t state = 31 + (uint64_t)_i;
    struct problem *p = small_problem(_i, &state);
    struct small_kernel *k = malloc(sizeof *k);
    struct outcome out;
    struct answers a;
    small_kernel_run(p, k);
    routed(&p->layer, NULL, &a);
    uint64_t wrong = 0, replaced = 0;
    for (size_t t = 0; t < TOKENS; t++) {
        int32_t *ids = k->ids + t * K;
        float *w = k->weights + t * K;
        if (t % 4 == 0) { /* the lowest expert not chosen takes the place of the best */
            int e = 0;
            while (e == ids[0] || e == ids[1] || e == ids[2] || e == ids[3]) e++;
            ids[0] = e;
            replaced++;
        } else if (t % 4 == 1) {
            w[1] *= 1.001f;
        } else if (t % 4 == 2) {
            float swap = w[0];
            w[0] = w[3];
            w[3] = swap;
        } else {
            w[2] = INFINITY;
        }
    }
    k->observed.weights.data = _i % 2 ? k->observed.weights.data : NULL;
    judge(p, &k->observed, 1, 2, TOKENS, &out);
    const uint64_t *v = out.tally[0].verdicts;
    if (_i % 2) {
        wrong = v[MR_WRONG] + v[MR_MALFORMED] + v[MR_NONFINITE];
        ck_assert_uint_eq(wrong, TOKENS);
        ck_assert_uint_eq(v[MR_NONFINITE], TOKENS / 4);
        ck_assert_uint_ge(v[MR_MALFORMED], TOKENS / 4 - 2);
        ck_assert_uint_eq(v[MR_WRONG], TOKENS - v[MR_NONFINITE] - v[MR_MALFORMED]);
    } else {
        ck_assert_uint_ge(v[MR_WRONG], replaced - 2);
        ck_assert_uint_le(v[MR_WRONG], replaced);
    }
    uint64_t gained = 0, lost = 0;
    for (int e = 0; e < EXPERTS; e++) {
        gained += out.gained[e];
        lost += out.lost[e];
    }
    ck_assert_uint_eq(gained, lost);
    ck_assert_uint_ge(gained, replaced);
    for (size_t i = 0; i < out.found.count; i++) {
        const struct mr_finding *f = &out.found.item[i];
        if (i) ck_assert_int_le(mr_judgement_compare(&f[-1].judgement, &f->judgement), 0);
        ck_assert(!memcmp(mr_finding_expected(&out.found, i), a.ids + f->token * K, 4 * K));
        for (int s = 0; s < K; s++)
            ck_assert(mr_finding_observed(&out.found, i)[s] == k->ids[f->token * K + (size_t)s]);
        if (f->judgement.cause != MR_CAUSE_SET) continue;
        ck_assert_uint_eq(f->token % 4, 0);
        ck_assert_int_eq(f->judgement.omitted, a.ids[f->token * K]);
    }
    mr_findings_free(&out.found);
    answers_free(&a);
    problem_free(p);
    free(k);
}
END_TEST

/* The same findings whatever the number of threads, and the bounded list is the head of the
 * full. */
START_TEST(verify_threads)
{
    uint64_t state = 41;
    struct problem *p = small_problem(0, &state);
    struct small_kernel *k = malloc(sizeof *k);
    struct outcome one, other;
    small_kernel_run(p, k);
    for (size_t t = 0; t < TOKENS; t++)
        k->ids[t * K + t % K] = (int32_t)(routed_random(&state) % EXPERTS);
    judge(p, &k->observed, 1, 1, TOKENS, &one);
    static const int threads[] = {1, 2, 3};
    static const size_t most[] = {TOKENS, 7, 1};
    for (int i = 0; i < 3; i++) {
        judge(p, &k->observed, 1, threads[i], most[i], &other);
        ck_assert(!memcmp(one.tally, other.tally, sizeof one.tally));
        ck_assert(!memcmp(one.gained, other.gained, sizeof one.gained));
        ck_assert_uint_eq(other.found.count, most[i] < one.found.count ? most[i] : one.found.count);
        for (size_t f = 0; f < other.found.count; f++) {
            ck_assert_uint_eq(one.found.item[f].token, other.found.item[f].token);
            const struct mr_judgement *a = &one.found.item[f].judgement;
            const struct mr_judgement *b = &other.found.item[f].judgement;
            ck_assert(a->verdict == b->verdict && a->cause == b->cause && a->slot == b->slot);
            ck_assert(a->omitted == b->omitted && a->included == b->included);
            ck_assert(!memcmp(&a->omitted_key, &b->omitted_key, 4 * sizeof(double)));
            ck_assert(!memcmp(mr_finding_observed(&one.found, f),
                              mr_finding_observed(&other.found, f), K * sizeof(int64_t)));
        }
        mr_findings_free(&other.found);
    }
    mr_findings_free(&one.found);
    problem_free(p);
    free(k);
}
END_TEST

/* Rows of any tokens, twice and in any order; padding; an input that is not finite. */
START_TEST(verify_rows)
{
    uint64_t state = 43;
    struct problem *p = small_problem(2, &state);
    struct small_kernel *k = malloc(sizeof *k);
    struct outcome out;
    static int64_t token[TOKENS];
    int32_t ids[TOKENS * K];
    problem_set(&p->layer.hidden, 9, 4, NAN);
    small_kernel_run(p, k);
    for (size_t i = 0; i < TOKENS; i++) {
        token[i] = (int64_t)(routed_random(&state) % TOKENS / 2 * 2); /* even ones, so never 9 */
        memcpy(ids + i * K, k->ids + (size_t)token[i] * K, K * sizeof *ids);
    }
    struct mr_observed o[2] = {k->observed, {.source = "rows", .rows = TOKENS, .tokens = TOKENS,
                               .ids = small_view(ids, MR_I32, K), .non_padded = 290}};
    o[0].weights.data = NULL;
    for (int s = 0; s < K; s++) k->ids[9 * K + s] = s;
    o[1].token_index = (struct mr_tensor){.dtype = MR_I64, .ndim = 1, .shape = {TOKENS},
                                          .data = token};
    for (size_t i = 290 * K; i < 299 * K; i++) ids[i] = -1; /* and the last row is not masked */
    ck_assert_int_eq(mr_observed_index(&o[1], "token_index", NULL), MR_OK);
    judge(p, o, 2, 2, TOKENS, &out);
    ck_assert_uint_eq(out.tally[0].verdicts[MR_UNDECIDED], 1);
    ck_assert_uint_eq(out.tally[1].rows, TOKENS);
    ck_assert_uint_eq(out.tally[1].padding, 9);
    ck_assert_uint_eq(out.tally[1].verdicts[MR_MALFORMED], 1);
    ck_assert_uint_eq(out.tally[1].verdicts[MR_EXACT] + out.tally[1].verdicts[MR_ROUNDING], 290);
    ck_assert_int_eq(out.found.item[0].judgement.cause, MR_CAUSE_PADDING);
    ck_assert_uint_eq(out.found.item[0].row, TOKENS - 1);
    ck_assert_uint_eq(out.found.item[0].source, 1);
    mr_observed_free(&o[1]);
    mr_findings_free(&out.found);
    problem_free(p);
    free(k);
}
END_TEST

/* Weights and logits that a kernel stored in 16 bits were rounded to them. */
START_TEST(verify_narrow_types)
{
    uint64_t state = 47;
    struct problem *p = small_problem(0, &state);
    struct small_kernel *k = malloc(sizeof *k);
    struct outcome out;
    uint16_t narrow[TOKENS * K];
    small_kernel_run(p, k);
    for (int half = 0; half < 2; half++) {
        for (size_t i = 0; i < TOKENS * K; i++)
            narrow[i] = half ? mr_fp16_encode(k->weights[i], MR_RNE, MR_OVERFLOW_IEEE)
                             : mr_bf16_encode(k->weights[i], MR_RNE, MR_OVERFLOW_IEEE);
        k->observed.weights = small_view(narrow, half ? MR_F16 : MR_BF16, K);
        judge(p, &k->observed, 1, 1, 10, &out);
        ck_assert_uint_eq(out.tally[0].verdicts[MR_EXACT] + out.tally[0].verdicts[MR_ROUNDING],
                          TOKENS);
        mr_findings_free(&out.found);
    }
    narrow[0] += 3; /* three units in the last place */
    judge(p, &k->observed, 1, 1, 10, &out);
    ck_assert_uint_eq(out.tally[0].verdicts[MR_WRONG], 1);
    mr_findings_free(&out.found);
    problem_free(p);
    free(k);
}
END_TEST

Suite *suite_verify(void)
{
    Suite *s = suite_create("verify");
    TCase *c = tcase_create("layer");
    tcase_add_loop_test(c, verify_sound_kernel, 0, small_kinds);
    tcase_add_loop_test(c, verify_faults, 0, small_kinds);
    tcase_add_test(c, verify_threads);
    tcase_add_test(c, verify_rows);
    tcase_add_test(c, verify_narrow_types);
    suite_add_tcase(s, c);
    return s;
}
