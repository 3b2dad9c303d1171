/* Hash layers: experts by token id, weights by score; tables that must be refused. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "../ref/route/hash.h"
#include "support/routed.h"

/* Hash layers: the table's experts in the table's order, weighed as the router says. */
START_TEST(corroborate_hash_layer)
{
    enum { E = 16, K = 3, TOKENS = 20, VOCABULARY = 7 };
    uint64_t state = 5;
    int64_t wide[VOCABULARY][K], tokens[TOKENS];
    int32_t narrow[VOCABULARY][K];
    for (int v = 0; v < VOCABULARY; v++)
        for (int j = 0; j < K; j++) narrow[v][j] = (int32_t)(wide[v][j] = (v * 5 + j * 7) % E);
    for (int t = 0; t < TOKENS; t++) tokens[t] = (t * 3) % VOCABULARY;
    struct problem *p =
        problem_new(MR_SCORE_SQRT_SOFTPLUS, E, K, 64, TOKENS, MR_BF16, MR_BF16, false);
    problem_fill(&p->layer.hidden, 1, &state);
    problem_fill(&p->layer.gate, 0.2, &state);
    p->router.routed_scaling_factor = 1.5;
    for (int type = 0; type < 2; type++) {
        struct mr_hash hash = {type ? (void *)wide : (void *)narrow, type ? MR_I64 : MR_I32,
                               VOCABULARY, K, tokens};
        int32_t ids[TOKENS * K];
        struct mr_error err = {{0}};
        ck_assert(!mr_hash_ids(&hash, &p->router, TOKENS, ids, &err));
        struct mr_layer given = p->layer;
        given.given = ids;
        struct answers a;
        routed(&given, NULL, &a);
        for (size_t t = 0; t < TOKENS; t++) {
            double score[K], sum = 0;
            ck_assert_int_eq(a.certificate[t], MR_CERT_BOUND);
            ck_assert(isinf(a.gap[t]));
            for (int j = 0; j < K; j++) {
                int e = (int)wide[tokens[t]][j];
                double x = 0;
                ck_assert_int_eq(a.ids[t * K + (size_t)j], e);
                for (size_t i = 0; i < 64; i++)
                    x += brute_element(&p->layer.hidden, t, i) *
                         brute_element(&p->layer.gate, (size_t)e, i);
                sum += score[j] = sqrt(log1p(exp(x)));
            }
            for (int j = 0; j < K; j++)
                ck_assert_msg(fabs(a.weights[t * K + (size_t)j] - 1.5 * score[j] / sum) < 1e-12,
                              "token %zu", t);
        }
        answers_free(&a);
    }
    problem_free(p);
}
END_TEST

START_TEST(reject_hash_tables)
{
    int32_t table[2][2] = {{0, 1}, {2, 3}};
    int64_t tokens[1] = {1};
    struct problem *p = problem_new(MR_SCORE_SQRT_SOFTPLUS, 4, 2, 0, 1, MR_F32, MR_F32, false);
    struct mr_hash hash = {table, MR_I32, 2, 2, tokens};
    struct mr_route_options o = {.threads = 1};
    struct mr_route_result result;
    struct mr_error err = {{0}};
    ck_assert(!mr_route_hash(&p->layer, &hash, &o, &result, NULL, &err));
    static const struct {
        int64_t token;
        int32_t entry;
        int columns;
        enum mr_dtype dtype;
        enum mr_status status;
        const char *says;
    } bad[] = {
        {2, 0, 2, MR_I32, MR_ERR_VALUE, "token id [0] is 2"},
        {-1, 0, 2, MR_I32, MR_ERR_VALUE, "token id [0] is -1"},
        {0, 4, 2, MR_I32, MR_ERR_VALUE, "tid2eid [0, 1] is 4"},
        {0, -1, 2, MR_I32, MR_ERR_VALUE, "tid2eid [0, 1] is -1"},
        {0, 0, 3, MR_I32, MR_ERR_SHAPE, "3 columns"},
        {0, 0, 0, MR_I32, MR_ERR_SHAPE, "no columns"},
        {0, 0, 2, MR_F32, MR_ERR_DTYPE, "I32 or I64"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tokens[0] = bad[i].token;
        table[0][1] = bad[i].entry;
        hash.columns = bad[i].columns;
        hash.dtype = bad[i].dtype;
        ck_assert_int_eq(mr_route_hash(&p->layer, &hash, &o, &result, NULL, &err), bad[i].status);
        ck_assert_msg(strstr(err.text, bad[i].says) != NULL, "%s: expected %s", err.text,
                      bad[i].says);
    }
    problem_free(p);
}
END_TEST

Suite *suite_hash(void);
Suite *suite_hash(void)
{
    Suite *s = suite_create("hash");
    TCase *c = tcase_create("experts by token id");
    tcase_add_test(c, corroborate_hash_layer);
    tcase_add_test(c, reject_hash_tables);
    suite_add_tcase(s, c);
    return s;
}
