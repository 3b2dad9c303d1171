/* Case files that are right: the shipped ones, and small ones made here. */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "support/case_folder.h"

Suite *suite_case(void);

static double number(struct mr_tensor t, size_t i)
{
    uint32_t bits = 0;
    float x;
    if (t.dtype == MR_BF16) {
        memcpy(&bits, (const char *)t.data + 2 * i, 2);
        bits <<= 16;
    } else {
        ck_assert_int_eq(t.dtype, MR_F32);
        memcpy(&bits, (const char *)t.data + 4 * i, 4);
    }
    memcpy(&x, &bits, 4);
    return (double)x;
}

static int id(struct mr_tensor t, size_t i)
{
    int32_t x;
    ck_assert_int_eq(t.dtype, MR_I32);
    memcpy(&x, (const char *)t.data + 4 * i, 4);
    return x;
}

/* The figures of "expect", which are to three decimals, from the inputs by libm. */
static double expected(const struct mr_case *c, const char *layer, const char *key, int i)
{
    const json_t *expect = json_object_get(json_object_get(mr_case_json(c), "expect"), layer);
    const json_t *row = json_array_get(json_object_get(expect, key), 0);
    ck_assert(json_is_number(json_array_get(row, (size_t)i)));
    return json_number_value(json_array_get(row, (size_t)i));
}

static void top2(const double *key, int *ids)
{
    for (int r = 0; r < 2; r++) {
        ids[r] = -1;
        for (int e = 0; e < 8; e++)
            if (!(r && e == ids[0]) && (ids[r] < 0 || key[e] > key[ids[r]])) ids[r] = e;
    }
}

START_TEST(validate_toy)
{
    struct mr_case *c;
    case_load("cases/toy.json", &c);
    ck_assert(mr_case_from_logits(c));
    ck_assert_str_eq(mr_case_name(c), "toy");
    ck_assert_ptr_null(mr_case_config(c));
    ck_assert_ptr_null(mr_case_arith(c));
    ck_assert_uint_eq(mr_case_phase_count(c), 1);
    ck_assert_uint_eq(mr_case_layer_count(c), 2);
    for (int l = 0; l < 2; l++) {
        struct mr_case_layer t;
        const char *layer = l ? "1" : "0";
        ck_assert_int_eq(mr_case_layer_number(c, (size_t)l), l);
        case_get(c, l, "all", &t);
        ck_shape(t.logits, MR_F32, 1, 8);
        ck_shape(t.bias, MR_F32, 8, 0);
        ck_assert_ptr_null(t.hidden.data);
        ck_assert_ptr_null(t.gate.data);
        ck_assert_ptr_null(t.topk_ids.data);
        double score[8], key[8], coarse[8];
        for (size_t e = 0; e < 8; e++) {
            score[e] = 1 / (1 + exp(-number(t.logits, e)));
            key[e] = score[e] + number(t.bias, e);
            /* bf16 keeps 8 significant bits. */
            int exponent;
            double m = frexp(number(t.bias, e), &exponent);
            coarse[e] = score[e] + ldexp(rint(ldexp(m, 8)), exponent - 8);
        }
        int ids[2], coarse_ids[2];
        top2(key, ids);
        top2(coarse, coarse_ids);
        double sum = score[ids[0]] + score[ids[1]];
        for (int r = 0; r < 2; r++) {
            ck_assert_int_eq(ids[r], (int)expected(c, layer, "topk_ids", r));
            ck_assert_double_eq_tol(score[ids[r]], expected(c, layer, "scores", r), 0.0005);
            ck_assert_double_eq_tol(score[ids[r]] / sum, expected(c, layer, "topk_weights", r),
                                    0.0005);
        }
        if (l == 0) continue;
        ck_assert_double_eq_tol(key[5], 8.900, 0.0005);
        ck_assert_double_eq_tol(key[0], 8.899, 0.0005);
        ck_assert_double_eq_tol(key[2], 8.881, 0.0005);
        ck_assert_double_eq_tol(key[0] - key[2], 0.018, 0.0005);
        ck_assert_int_eq(coarse_ids[0], 0);
        ck_assert_int_eq(coarse_ids[1], 2);
    }
    mr_case_free(c);
}
END_TEST

/* Rows that were cut from one run must still fit each other: logits are hidden times gate, and the
 * ids stand for the largest keys. */
static void rows_fit(const struct mr_case *c, const struct mr_case_layer *t, bool sigmoid)
{
    const struct mr_router *r = mr_case_router(c);
    size_t experts = (size_t)r->experts, hidden = (size_t)r->hidden, k = (size_t)r->top_k;
    for (size_t row = 0; row < t->hidden.shape[0]; row += 17) {
        double key[128], least = INFINITY, most = -INFINITY;
        bool chosen[128] = {false};
        for (size_t e = 0; e < experts; e++) {
            double sum = 0, logit = number(t->logits, row * experts + e);
            for (size_t h = 0; h < hidden; h++)
                sum += number(t->hidden, row * hidden + h) * number(t->gate, e * hidden + h);
            ck_assert_double_eq_tol(sum, logit, 0.004 * fabs(logit) + 0.004); /* bf16: 2^-8 */
            key[e] = sigmoid ? 1 / (1 + exp(-logit)) + number(t->bias, e) : logit;
        }
        for (size_t i = 0; i < k; i++) {
            int e = id(t->topk_ids, row * k + i);
            ck_assert_int_ge(e, 0);
            ck_assert_int_lt(e, r->experts);
            ck_assert(!chosen[e]);
            chosen[e] = true;
        }
        for (size_t e = 0; e < experts; e++) {
            if (chosen[e]) least = fmin(least, key[e]);
            else most = fmax(most, key[e]);
        }
        ck_assert_double_ge(least, most - 1e-6);
        double sum = 0;
        for (size_t i = 0; i < k; i++) sum += number(t->topk_weights, row * k + i);
        ck_assert_double_eq_tol(sum, r->routed_scaling_factor, 0.01);
    }
}

START_TEST(validate_captures)
{
    bool glm = _i == 0;
    struct mr_case *c;
    case_load(glm ? "cases/glm4moe-tiny.json" : "cases/qwen3moe-tiny.json", &c);
    ck_assert(!mr_case_from_logits(c));
    ck_assert_int_eq(mr_case_router(c)->experts, 128);
    ck_assert_uint_eq(mr_case_phase_count(c), 2);
    ck_assert_uint_eq(mr_case_layer_count(c), glm ? 7 : 8);
    if (glm) ck_assert_ptr_null(mr_case_arith(c));
    else ck_assert_str_eq(mr_case_arith(c), "bf16-logits+bf16-weights");
    for (size_t i = 0; i < mr_case_layer_count(c); i++) {
        int layer = mr_case_layer_number(c, i);
        ck_assert_int_eq(layer, (int)i + glm);
        for (size_t p = 0; p < 2; p++) {
            const char *phase = mr_case_phase(c, p);
            struct mr_case_layer t;
            ck_assert_str_eq(phase, p ? "decode" : "prefill");
            ck_assert(mr_case_has(c, layer, phase));
            case_get(c, layer, phase, &t);
            ck_assert_int_eq(t.layer, layer);
            ck_assert_str_eq(t.phase, phase);
            ck_shape(t.hidden, MR_BF16, 128, 512);
            ck_shape(t.gate, MR_BF16, 128, 512);
            ck_shape(t.logits, MR_F32, 128, 128);
            ck_shape(t.topk_ids, MR_I32, 128, 8);
            ck_shape(t.topk_weights, MR_F32, 128, 8);
            if (glm) ck_shape(t.bias, MR_F32, 128, 0);
            else ck_assert_ptr_null(t.bias.data);
            rows_fit(c, &t, glm);
        }
    }
    mr_case_free(c);
}
END_TEST

START_TEST(validate_glm_flash)
{
    struct mr_case *c;
    struct mr_case_layer t, again;
    case_load("cases/glm-5.3-flash.json", &c);
    ck_assert_uint_eq(mr_case_layer_count(c), 1);
    ck_assert_int_eq(mr_case_layer_number(c, 0), 0);
    ck_assert_str_eq(mr_case_phase(c, 0), "prompt");
    case_get(c, 0, "prompt", &t);
    ck_shape(t.hidden, MR_BF16, 1024, 4096);
    ck_shape(t.gate, MR_BF16, 288, 4096);
    ck_shape(t.bias, MR_F32, 288, 0);
    ck_assert_ptr_null(t.logits.data);
    case_get(c, 0, "prompt", &again);
    ck_assert_ptr_eq(again.hidden.data, t.hidden.data); /* made once */
    mr_case_release(c, 0, "prompt");
    mr_case_release(c, 0, "prompt");
    mr_case_free(c);
}
END_TEST

START_TEST(validate_small_case)
{
    struct mr_case *c;
    struct mr_case_layer t;
    ck_assert_msg(case_parse("{" HIDDEN ",'profile':'hf'}", NULL, &c) == MR_OK, "%s",
                  case_err.text);
    /* 0 is dense, 3 and 4 have no input, 2 has none in b. */
    ck_assert_uint_eq(mr_case_layer_count(c), 2);
    ck_assert_int_eq(mr_case_layer_number(c, 0), 1);
    ck_assert_int_eq(mr_case_layer_number(c, 1), 2);
    ck_assert(mr_case_has(c, 2, "a") && !mr_case_has(c, 2, "b") && !mr_case_has(c, 3, "a"));
    ck_assert_str_eq(mr_case_profile(c), "hf");
    ck_assert_str_eq(mr_case_about(c), "");
    case_get(c, 1, "a", &t);
    ck_shape(t.hidden, MR_F16, 3, 8);
    ck_shape(t.topk_ids, MR_I64, 3, 2);
    ck_shape(t.topk_weights, MR_F64, 3, 2);
    ck_shape(t.logits, MR_F32, 3, 4);
    case_get(c, 1, "b", &t);
    ck_shape(t.hidden, MR_BF16, 0, 8);
    ck_shape(t.topk_ids, MR_U8, 0, 2);
    ck_assert_ptr_null(t.topk_weights.data);
    ck_assert_int_eq(mr_case_get(c, 2, "b", &t, &case_err), MR_ERR_MISSING);
    ck_assert(strstr(case_err.text, "b.model.layers.2.mlp.gate.input") != NULL);
    ck_assert_int_eq(mr_case_get(c, 3, "a", &t, &case_err), MR_ERR_MISSING);
    ck_assert(strstr(case_err.text, "layer 3") != NULL);
    ck_assert_int_eq(mr_case_get(c, 1, "z", &t, &case_err), MR_ERR_MISSING);
    ck_assert(strstr(case_err.text, "\"z\"") != NULL);
    mr_case_free(c);
}
END_TEST

START_TEST(validate_overrides)
{
    struct mr_case *c;
    struct mr_case_layer t;
    /* Router, names and layers in place of the config's; mixtral's second gate name. */
    folder_put_tensors("m.st", "x1.in F32 2 8; x0.in F32 2 8;");
    ck_assert_msg(case_parse("{" HEAD "'input':'hidden','config':'mixtral.json','checkpoint':"
                             "['mixtral.st'],'capture':['m.st'],'names':{'hidden':'x{layer}.in'},"
                        "'router':{'top_k':3,'routed_scaling_factor':2}}", NULL, &c) == MR_OK,
                  "%s", case_err.text);
    ck_assert_int_eq(mr_case_router(c)->top_k, 3);
    ck_assert_double_eq(mr_case_router(c)->routed_scaling_factor, 2.0);
    ck_assert_str_eq(mr_case_config(c)->model_type, "mixtral");
    ck_assert_uint_eq(mr_case_layer_count(c), 2);
    case_get(c, 0, "all", &t);
    case_get(c, 1, "all", &t);
    ck_assert_ptr_null(t.bias.data);
    mr_case_free(c);
    /* The capture of the command line in place of the case's. */
    folder_put_tensors("other.st", MLP("a", "3") "gate.input F32 1 8;");
    struct mr_case_options options = {.capture = folder_at("other.st"), .seed = -1};
    ck_assert_msg(case_parse("{" HIDDEN "}", &options, &c) == MR_OK, "%s", case_err.text);
    ck_assert_uint_eq(mr_case_layer_count(c), 1);
    ck_assert_int_eq(mr_case_layer_number(c, 0), 3);
    mr_case_free(c);
    /* Explicit layers come out ascending. */
    ck_assert_msg(case_parse("{" HIDDEN ",'layers':[2,1]}", NULL, &c) == MR_OK, "%s",
                  case_err.text);
    ck_assert_int_eq(mr_case_layer_number(c, 0), 1);
    mr_case_free(c);
}
END_TEST

START_TEST(verify_seed)
{
    unsigned char bytes[3][640];
    for (int i = 0; i < 3; i++) {
        struct mr_case *c;
        struct mr_case_layer t;
        struct mr_case_options options = {.seed = i == 1 ? 8 : 7};
        ck_assert_msg(case_parse("{" GENERATE ",'seed':7,'layers':[4,2]},'phases':['p','q']}",
                                 i ? &options : NULL, &c) == MR_OK, "%s", case_err.text);
        ck_assert_uint_eq(mr_case_layer_count(c), 2);
        ck_assert_int_eq(mr_case_layer_number(c, 0), 2);
        case_get(c, 4, "q", &t);
        ck_shape(t.hidden, MR_BF16, 0, 64);
        case_get(c, 4, "p", &t);
        ck_shape(t.hidden, MR_BF16, 5, 64);
        ck_shape(t.bias, MR_F32, 4, 0);
        memcpy(bytes[i], t.hidden.data, sizeof bytes[i]);
        mr_case_free(c);
    }
    ck_assert_mem_eq(bytes[0], bytes[2], sizeof bytes[0]);
    ck_assert_mem_ne(bytes[0], bytes[1], sizeof bytes[0]);
}
END_TEST

/* One rounding of the decimal's binary64 to fp32; bias from a checkpoint. */
START_TEST(validate_inline)
{
    struct mr_case *c;
    struct mr_case_layer t;
    ck_assert_msg(case_parse(INLINE(NO_BIAS, "{'10':{'logits':[[0.1,16777217,-1e-50,3]]},"
                               "'9':{'logits':[]}}"), NULL, &c) == MR_OK, "%s", case_err.text);
    ck_assert_int_eq(mr_case_layer_number(c, 0), 9);
    ck_assert_int_eq(mr_case_layer_number(c, 1), 10);
    case_get(c, 10, "all", &t);
    uint32_t bits[4];
    memcpy(bits, t.logits.data, sizeof bits);
    ck_assert_uint_eq(bits[0], 0x3dcccccd);
    ck_assert_uint_eq(bits[1], 0x4b800000);
    ck_assert_uint_eq(bits[2], 0x80000000);
    case_get(c, 9, "all", &t);
    ck_shape(t.logits, MR_F32, 0, 4);
    mr_case_release(c, 10, "all"); /* inline numbers stay */
    case_get(c, 10, "all", &t);
    mr_case_free(c);
    ck_assert_msg(case_parse("{" HEAD "'input':'logits','router':{" WITH_BIAS "},'checkpoint':"
                        "['router.st'],'inline':{'2':{'logits':[[1,2,3,4]]}}}", NULL, &c) == MR_OK,
                  "%s", case_err.text);
    case_get(c, 2, "all", &t);
    ck_shape(t.bias, MR_BF16, 4, 0);
    mr_case_free(c);
}
END_TEST

START_TEST(reject_missing_case)
{
    struct mr_case *c;
    ck_assert_int_eq(mr_case_load("cases/none.json", NULL, &c, &case_err), MR_ERR_IO);
    ck_assert_ptr_null(c);
    ck_assert(strstr(case_err.text, "cases/none.json") != NULL);
    mr_case_free(NULL);
}
END_TEST

Suite *suite_case(void)
{
    Suite *suite = suite_create("case");
    TCase *shipped = tcase_create("shipped");
    tcase_set_timeout(shipped, 60); /* sanitizers, a busy machine */
    tcase_add_test(shipped, validate_toy);
    tcase_add_loop_test(shipped, validate_captures, 0, 2);
    tcase_add_test(shipped, validate_glm_flash);
    tcase_add_test(shipped, reject_missing_case);
    suite_add_tcase(suite, shipped);
    TCase *small = tcase_create("small");
    tcase_set_timeout(small, 60);
    tcase_add_checked_fixture(small, folder_start, folder_stop);
    tcase_add_test(small, validate_small_case);
    tcase_add_test(small, validate_overrides);
    tcase_add_test(small, verify_seed);
    tcase_add_test(small, validate_inline);
    suite_add_tcase(suite, small);
    return suite;
}
