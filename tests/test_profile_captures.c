/* Profiles: hf against what transformers did on an H200, from the logits that it recorded. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/case.h"
#include "../ref/num/num.h"
#include "../ref/route/profile_emulate.h"

Suite *suite_profile_captures(void);

struct tally {
    size_t tokens, sets, tied, weights, exact; /* equal sets; ties at the cut; equal weights */
    int ulps; /* of the weights that differ, the most */
};

static int by_id(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static bool same_set(const int32_t *a, const int32_t *b, int k)
{
    int32_t x[64], y[64];
    memcpy(x, a, (size_t)k * sizeof *x);
    memcpy(y, b, (size_t)k * sizeof *y);
    qsort(x, (size_t)k, sizeof *x, by_id);
    qsort(y, (size_t)k, sizeof *y, by_id);
    return !memcmp(x, y, (size_t)k * sizeof *x);
}

static int32_t id_at(const struct mr_tensor *t, size_t i)
{
    int64_t wide;
    int32_t narrow;
    if (t->dtype == MR_I64) {
        memcpy(&wide, (const char *)t->data + 8 * i, 8);
        return (int32_t)wide;
    }
    memcpy(&narrow, (const char *)t->data + 4 * i, 4);
    return narrow;
}

static void token(const struct mr_profile_row *row, const struct mr_router *r,
                  const struct mr_case_layer *l, enum mr_type type, const float *bias, size_t t,
                  struct mr_profile_scratch *s, struct tally *out)
{
    float logits[512], weights[64], observed[64];
    int32_t seen[64], ids[64];
    size_t e = (size_t)r->experts, k = (size_t)r->top_k;
    struct mr_profile_batch batch = {(size_t)l->logits.shape[0], type};
    struct mr_profile_note note;
    size_t logit_bytes = mr_dtype_bits(l->logits.dtype) / 8;
    size_t weight_bytes = mr_dtype_bits(l->topk_weights.dtype) / 8;
    mr_widen_f32((const char *)l->logits.data + t * e * logit_bytes, l->logits.dtype, e, logits);
    mr_widen_f32((const char *)l->topk_weights.data + t * k * weight_bytes, l->topk_weights.dtype,
                 k, observed);
    for (size_t i = 0; i < k; i++) seen[i] = id_at(&l->topk_ids, t * k + i);
    mr_profile_emulate(row, r, &batch, logits, bias, s, ids, weights, &note);
    out->tokens++;
    out->sets += same_set(ids, seen, r->top_k);
    out->tied += note.tie;
    /* Weights of the experts that were chosen, in the order recorded. */
    mr_profile_weigh(row, r, &batch, logits, bias, s, seen, weights);
    for (size_t i = 0; i < k; i++) {
        int32_t a, b;
        memcpy(&a, &weights[i], 4);
        memcpy(&b, &observed[i], 4);
        out->weights++;
        out->exact += a == b;
        if (abs(a - b) > out->ulps) out->ulps = abs(a - b);
    }
}

/* type: that of the logits; the captures hold them widened. */
static struct tally judge(const char *path, enum mr_type type, enum mr_sum_rule order)
{
    struct mr_case *c;
    struct mr_error err = {{0}};
    struct tally out = {0};
    struct mr_profile_scratch s;
    const struct mr_profile_row *found;
    struct mr_profile_row row;
    ck_assert_msg(mr_case_load(path, NULL, &c, &err) == MR_OK, "%s", err.text);
    const struct mr_router *r = mr_case_router(c);
    ck_assert_int_eq(mr_profile_row(mr_profile_find("hf"), r, false, &found, &err), MR_OK);
    row = *found;
    row.cell[MR_CELL_SUM].value = (unsigned char)order;
    ck_assert_int_eq(mr_profile_scratch_new(r->experts, &s), MR_OK);
    for (size_t p = 0; p < mr_case_phase_count(c); p++) {
        for (size_t i = 0; i < mr_case_layer_count(c); i++) {
            struct mr_case_layer l;
            float bias[512];
            ck_assert_int_eq(mr_case_get(c, mr_case_layer_number(c, i), mr_case_phase(c, p), &l,
                                         &err), MR_OK);
            if (l.bias.data) mr_widen_f32(l.bias.data, l.bias.dtype, (size_t)r->experts, bias);
            for (size_t t = 0; t < l.logits.shape[0]; t++)
                token(&row, r, &l, type, l.bias.data ? bias : NULL, t, &s, &out);
        }
    }
    mr_profile_scratch_free(&s);
    mr_case_free(c);
    return out;
}

/* All weights, bit for bit, in the right order of the sum alone. */
START_TEST(validate_glm4moe)
{
    struct tally t = judge("cases/glm4moe-tiny.json", MR_TYPE_FP32, MR_SUM_BUTTERFLY);
    ck_assert_uint_eq(t.tokens, 1792);
    ck_assert_uint_eq(t.sets, t.tokens);
    ck_assert_uint_eq(t.tied, 0);
    ck_assert_int_eq(t.ulps, 0);
    ck_assert_uint_eq(t.exact, t.weights);
    static const enum mr_sum_rule others[] = {MR_SUM_SEQUENTIAL, MR_SUM_UNKNOWN};
    for (int i = 0; i < 2; i++) {
        struct tally u = judge("cases/glm4moe-tiny.json", MR_TYPE_FP32, others[i]);
        ck_assert_uint_lt(u.exact + t.weights / 20, t.exact);
    }
}
END_TEST

/* Logits in bf16 tie: torch.topk, which promises nothing, took the lowest id 120 times of 120. */
START_TEST(validate_qwen3moe)
{
    struct tally t = judge("cases/qwen3moe-tiny.json", MR_TYPE_BF16, MR_SUM_BUTTERFLY);
    ck_assert_uint_eq(t.tokens, 2048);
    ck_assert_uint_eq(t.sets, t.tokens);
    ck_assert_uint_eq(t.tied, 120);
    ck_assert_uint_eq(t.exact, t.weights);
}
END_TEST

Suite *suite_profile_captures(void)
{
    Suite *suite = suite_create("profile_captures");
    TCase *tc = tcase_create("captures");
    tcase_add_test(tc, validate_glm4moe);
    tcase_add_test(tc, validate_qwen3moe);
    suite_add_tcase(suite, tc);
    return suite;
}
