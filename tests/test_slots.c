/* Ids and weights after routing: the tables of each engine's rule by hand, maps, padding. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/route/slots.h"

static void same_weights(const double *got, const double *want, int count, const char *what)
{
    for (int i = 0; i < count; i++)
        ck_assert_msg(fabs(got[i] - want[i]) <= 0x1p-52 * fabs(want[i]),
                      "%s: weight %d is %.17g, not %.17g", what, i, got[i], want[i]);
}

/* 8 experts, two tokens of top-2, factor 2.5. */
START_TEST(validate_shared_rules)
{
    static const int32_t ids[] = {3, 5, 0, 7};
    static const double weights[] = {0.75, 0.25, 0.5, 0.5}, raw[] = {0.5, 0.25, 0.25, 0.125};
    static const int offset[] = {1, 0};
    static const struct {
        struct mr_shared shared;
        bool raw;
        int slots;
        int32_t ids[8];
        double weights[8];
    } rows[] = {
        {{MR_SHARED_SGLANG, 8, 1, true, 2.5, false, 0, NULL},
         false,
         1,
         {3, 5, 8, 0, 7, 8},
         {0.75, 0.25, 0.4, 0.5, 0.5, 0.4}},
        {{MR_SHARED_SGLANG, 8, 1, true, 2.5, true, 0, NULL},
         false,
         1,
         {3, 5, 8, 0, 7, 8},
         {1.875, 0.625, 1, 1.25, 1.25, 1}},
        {{MR_SHARED_SGLANG, 8, 2, true, 2.5, false, 0, offset},
         false,
         1,
         {3, 5, 9, 0, 7, 8},
         {0.75, 0.25, 0.4, 0.5, 0.5, 0.4}},
        /* not normalised: on_output does nothing, the sum stays */
        {{MR_SHARED_SGLANG, 8, 1, false, 2.5, true, 0, NULL},
         true,
         1,
         {3, 5, 8, 0, 7, 8},
         {0.5, 0.25, 0.3, 0.25, 0.125, 0.15}},
        {{MR_SHARED_FLASHINFER, 8, 2, true, 2.5, false, 0, NULL},
         false,
         2,
         {3, 5, 8, 9, 0, 7, 8, 9},
         {1.875, 0.625, 1, 1, 1.25, 1.25, 1, 1}},
        {{MR_SHARED_HASH_TOPK, 8, 1, true, 2.5, false, 0, NULL},
         false,
         1,
         {3, 5, 8, 0, 7, 8},
         {0.75, 0.25, 0.4, 0.5, 0.5, 0.4}},
        {{MR_SHARED_VLLM, 8, 2, true, 2.5, false, 0.125, NULL},
         false,
         2,
         {3, 5, 8, 9, 0, 7, 8, 9},
         {1.875, 0.625, 0.125, 0.125, 1.25, 1.25, 0.125, 0.125}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int32_t out[8];
        double w[8];
        const char *name = mr_shared_rule_name(rows[i].shared.rule);
        int slots = mr_shared_slots(&rows[i].shared), n = 2 * (2 + slots);
        ck_assert_int_eq(slots, rows[i].slots);
        ck_assert(!mr_append_shared(&rows[i].shared, 2, 2, ids, rows[i].raw ? raw : weights, out, w,
                                    NULL));
        for (int j = 0; j < n; j++)
            ck_assert_msg(out[j] == rows[i].ids[j], "%s, row %zu: id %d is %d", name, i, j, out[j]);
        same_weights(w, rows[i].weights, n, name);
    }
}
END_TEST

/* However an engine splits the factor, routed : shared is f : 1, where the rule is the model's. */
START_TEST(verify_routed_to_shared)
{
    static const int32_t ids[] = {1, 2, 0};
    static const double weights[] = {0.5, 0.25, 0.25};
    for (int rule = 0; rule < MR_SHARED_RULE_COUNT; rule++)
        for (int on_output = 0; on_output < 2; on_output++) {
            struct mr_shared s = {rule, 4, 1, true, 2.827, on_output, 1, NULL};
            int32_t out[4];
            double w[4];
            ck_assert(!mr_append_shared(&s, 1, 3, ids, weights, out, w, NULL));
            double ratio = (w[0] + w[1] + w[2]) / w[3];
            ck_assert_msg(fabs(ratio - 2.827) < 1e-14, "%s: %.17g",
                          mr_shared_rule_name((enum mr_shared_rule)rule), ratio);
        }
}
END_TEST

START_TEST(verify_padding)
{
    static const int32_t left[] = {4, 1, 2, 3, 5, 6}, cut[] = {4, 1, -1, -1, -1, -1};
    static const double kept[] = {.5, .5, .25, .75, 1, 0}, zero[] = {.5, .5, 0, 0, 0, 0};
    for (int padding = 0; padding < 4; padding++)
        for (size_t real = 0; real < 5; real++) {
            int32_t ids[6];
            double w[6];
            memcpy(ids, left, sizeof ids);
            memcpy(w, kept, sizeof w);
            mr_pad_tokens((enum mr_padding)padding, 3, real, 2, ids, w);
            bool minus = padding == MR_PADDING_IDS || padding == MR_PADDING_BOTH, nil = padding > 1;
            for (size_t i = 0; i < 6; i++) {
                bool pad = i / 2 >= real;
                ck_assert_int_eq(ids[i], pad && minus ? -1 : left[i]);
                ck_assert(w[i] <= (pad && nil ? 0 : kept[i]) && w[i] >= (pad && nil ? 0 : kept[i]));
            }
            if (real != 1) continue;
            ck_assert(!memcmp(ids, minus ? cut : left, sizeof ids));
            ck_assert(!memcmp(w, nil ? zero : kept, sizeof w));
            mr_pad_tokens((enum mr_padding)padding, 3, real, 2, ids, NULL);
        }
}
END_TEST

/* -1 stays, and reads neither the entry before the map nor its last one. */
START_TEST(verify_maps)
{
    int32_t memory[] = {99, 2, 0, 3, 1, 77}, ids[] = {0, -1, 3, 1, 2, -1};
    static const int32_t want[] = {2, -1, 1, 0, 3, -1};
    ck_assert(!mr_map_ids(memory + 1, 4, 4, false, 6, ids, NULL));
    ck_assert(!memcmp(ids, want, sizeof ids));
    /* Expert parallelism: this rank has 2 and 3 of 4. */
    int32_t map[4], global[] = {0, 3, 2, -1, 1}, local[] = {-1, 1, 0, -1, -1};
    ck_assert(!mr_expert_map(4, 2, 2, map, NULL));
    ck_assert(!mr_map_ids(map, 4, 2, true, 5, global, NULL));
    ck_assert(!memcmp(global, local, sizeof global));
    ck_assert(!mr_expert_map(4, 4, 0, map, NULL));
    for (int e = 0; e < 4; e++) ck_assert_int_eq(map[e], -1);
    ck_assert(!mr_map_ids(map, 4, 0, true, 0, NULL, NULL));
}
END_TEST

/* Both orders agree, whatever ids the padding tokens came with. */
START_TEST(verify_order_of_map_and_padding)
{
    static const int32_t map[] = {7, 5, 3, 1};
    static const int32_t want[] = {7, 1, 5, 3, -1, -1, -1, -1},
                         left[] = {7, 1, 5, 3, 99, -5, -1, 1};
    for (int padding = 1; padding < 4; padding++)
        for (int first = 0; first < 2; first++) {
            int32_t ids[] = {0, 3, 1, 2, 99, -5, -1, 3};
            double w[] = {1, 1, 1, 1, 1, 1, 1, 1};
            struct mr_placement p = {map, 4, 8, (enum mr_padding)padding, 2, first};
            ck_assert(!mr_place_tokens(&p, 4, 2, ids, w, NULL));
            ck_assert(!memcmp(ids, padding == MR_PADDING_WEIGHTS ? left : want, sizeof ids));
            for (int i = 0; i < 8; i++)
                ck_assert(w[i] <= (i >= 4 && padding > 1 ? 0 : 1) &&
                          w[i] >= (i >= 4 && padding > 1 ? 0 : 1));
        }
    int32_t ids[] = {0, 3};
    struct mr_placement none = {NULL, 0, 0, MR_PADDING_NONE, 0, false};
    ck_assert(!mr_place_tokens(&none, 1, 2, ids, NULL, NULL));
    ck_assert(ids[0] == 0 && ids[1] == 3);
}
END_TEST

START_TEST(reject_figures_out_of_range)
{
    static const int32_t bad_map[] = {0, 4, 1, 2}, map[] = {0, 1, 2, 3};
    struct mr_error err;
    int32_t ids[] = {1, 4}, before[] = {1, 4};
    ck_assert_int_eq(mr_map_ids(map, 4, 4, false, 2, ids, &err), MR_ERR_VALUE);
    ck_assert_msg(strstr(err.text, "[1] is 4") != NULL, "%s", err.text);
    ck_assert(!memcmp(ids, before, sizeof ids));
    ids[1] = -2;
    ck_assert_int_eq(mr_map_ids(map, 4, 4, false, 2, ids, &err), MR_ERR_VALUE);
    ids[1] = 1;
    ck_assert_int_eq(mr_map_ids(bad_map, 4, 4, false, 2, ids, &err), MR_ERR_VALUE);
    ck_assert_msg(strstr(err.text, "entry [1] is 4") != NULL, "%s", err.text);
    int32_t minus[] = {0, -1};
    ck_assert_int_eq(mr_map_ids(minus, 2, 4, false, 2, ids, &err), MR_ERR_VALUE);
    ck_assert_int_eq(mr_expert_map(4, 3, 2, ids, &err), MR_ERR_VALUE);
    ck_assert_int_eq(mr_expert_map(4, -1, 2, ids, &err), MR_ERR_VALUE);
    ck_assert_int_eq(mr_expert_map(4, 1, INT32_MAX, ids, &err), MR_ERR_VALUE);
    static const int offset[] = {2};
    static const struct mr_shared bad[] = {
        {MR_SHARED_RULE_COUNT, 8, 1, true, 1, false, 0, NULL},
        {MR_SHARED_SGLANG, 1, 1, true, 1, false, 0, NULL},
        {MR_SHARED_SGLANG, 8, 0, true, 1, false, 0, NULL},
        {MR_SHARED_SGLANG, 8, INT32_MAX, true, 1, false, 0, NULL},
        {MR_SHARED_SGLANG, 8, 1, true, 0, false, 0, NULL},
        {MR_SHARED_SGLANG, 8, 1, true, NAN, false, 0, NULL},
        {MR_SHARED_SGLANG, 8, 2, true, 1, false, 0, offset},
        {MR_SHARED_VLLM, 8, 1, true, 1, false, HUGE_VAL, NULL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int32_t in[] = {0, 1}, out[4];
        double w[] = {0.5, 0.5}, out_w[4];
        ck_assert_msg(mr_append_shared(&bad[i], 1, 2, in, w, out, out_w, &err) == MR_ERR_VALUE,
                      "row %zu", i);
    }
}
END_TEST

Suite *suite_slots(void);
Suite *suite_slots(void)
{
    Suite *s = suite_create("slots");
    TCase *c = tcase_create("ids and weights");
    tcase_add_test(c, validate_shared_rules);
    tcase_add_test(c, verify_routed_to_shared);
    tcase_add_test(c, verify_padding);
    tcase_add_test(c, verify_maps);
    tcase_add_test(c, verify_order_of_map_and_padding);
    tcase_add_test(c, reject_figures_out_of_range);
    suite_add_tcase(s, c);
    return s;
}
