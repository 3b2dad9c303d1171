/* The narrow API says what the library says, and the shared library exports it. */
#include <check.h>
#include <dlfcn.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../ref/route/verify.h"
#include "support/api_problem.h"

Suite *suite_api(void);

enum { TOKENS = SMALL_TOKENS, EXPERTS = SMALL_EXPERTS, K = SMALL_K };

struct routing {
    int32_t ids[TOKENS * K];
    double weights[TOKENS * K], gap[TOKENS], radius[TOKENS], group_gap[TOKENS],
        group_radius[TOKENS];
    uint8_t certificate[TOKENS];
    json_t *said;
};

static json_t *parse(char *text)
{
    json_t *said = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    mr_api_text_free(text);
    ck_assert_ptr_nonnull(said);
    return said;
}

static json_int_t figure(const json_t *o, const char *outer, const char *key)
{
    const json_t *value = json_object_get(outer ? json_object_get(o, outer) : o, key);
    ck_assert_msg(json_is_integer(value), "%s %s", outer ? outer : "", key);
    return json_integer_value(value);
}

static void route(struct api_problem *a, const char *options, struct routing *r)
{
    char *text;
    int status = mr_api_route(a->input, options, TOKENS, r->ids, r->weights, r->gap, r->radius,
                              r->group_gap, r->group_radius, r->certificate, &text, a->why,
                              sizeof a->why);
    ck_assert_msg(!status, "%s", a->why);
    ck_assert_str_eq(a->why, "");
    r->said = parse(text);
}

/* Of every kind of router, the bytes that mr_route_layer gives. */
START_TEST(verify_routing)
{
    uint64_t state = 7 + (uint64_t)_i;
    struct problem *p = small_problem(_i, &state);
    struct routing *r = malloc(sizeof *r);
    struct api_problem a;
    struct answers want;
    api_problem_new(p, &a);
    routed(&p->layer, NULL, &want);
    for (int threads = 0; threads < 3; threads++) {
        char options[64];
        snprintf(options, sizeof options, "{\"threads\": %d}", threads);
        route(&a, options, r);
        ck_assert(!memcmp(r->ids, want.ids, sizeof r->ids));
        ck_assert(!memcmp(r->weights, want.weights, sizeof r->weights));
        ck_assert(!memcmp(r->gap, want.gap, sizeof r->gap));
        ck_assert(!memcmp(r->radius, want.radius, sizeof r->radius));
        ck_assert(!memcmp(r->certificate, want.certificate, sizeof r->certificate));
        for (size_t t = 0; t < TOKENS; t++)
            ck_assert(p->router.n_group > 1 ? r->group_gap[t] > 0 : isinf(r->group_gap[t]));
        ck_assert_int_eq(figure(r->said, NULL, "tokens"), TOKENS);
        for (int c = 0; c < MR_CERT_COUNT; c++)
            ck_assert_int_eq(figure(r->said, "certified", mr_api_certificate_name(c)),
                             (json_int_t)want.result.certified[c]);
        json_decref(r->said);
    }
    /* Nothing has to be asked for. */
    ck_assert_int_eq(mr_api_route(a.input, NULL, TOKENS, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                  NULL, NULL, 0), 0);
    answers_free(&want);
    api_problem_free(&a);
    problem_free(p);
    free(r);
}
END_TEST

START_TEST(verify_ties)
{
    struct problem *p = problem_new(MR_SCORE_SIGMOID, EXPERTS, K, 0, TOKENS, MR_BF16, MR_BF16,
                                    false);
    struct routing *r = malloc(sizeof *r);
    struct api_problem a;
    for (size_t t = 0; t < TOKENS; t++) /* experts 2, 5, 11 above, two of 7, 9, 20 at the cut */
        for (int e = 0; e < EXPERTS; e++)
            problem_set(&p->layer.logits, t, (size_t)e,
                        e == 2 || e == 5 || e == 11 ? 3 + e : e == 7 || e == 9 || e == 20 ? 1 : -e);
    api_problem_new(p, &a);
    route(&a, NULL, r);
    const json_t *ties = json_object_get(r->said, "ties");
    ck_assert_uint_eq(json_array_size(ties), TOKENS);
    ck_assert_int_eq(figure(r->said, NULL, "ties_omitted"), 0);
    for (size_t t = 0; t < TOKENS; t++) {
        const json_t *tie = json_array_get(ties, t), *experts = json_object_get(tie, "experts");
        ck_assert_int_eq(figure(tie, NULL, "token"), (json_int_t)t);
        ck_assert_int_eq(figure(tie, NULL, "slots"), 1);
        ck_assert_uint_eq(json_array_size(experts), 3);
        ck_assert_int_eq(json_integer_value(json_array_get(experts, 2)), 20);
        ck_assert_int_eq(r->certificate[t], MR_CERT_TIE);
    }
    json_decref(r->said);
    api_problem_free(&a);
    problem_free(p);
    free(r);
}
END_TEST

/* Of every kind of router: a sound kernel with some faults gets the verdicts, row by row and in
 * total, that mr_verify_layer counts; its logits get theirs beside. */
START_TEST(verify_verdicts)
{
    uint64_t state = 17 + (uint64_t)_i;
    struct problem *p = small_problem(_i, &state);
    struct small_kernel *k = malloc(sizeof *k);
    uint8_t verdict[TOKENS], logit_verdict[TOKENS];
    struct api_problem a;
    char *text;
    small_kernel_run(p, k);
    k->ids[3 * K + 1] = k->ids[3 * K];
    k->ids[4 * K] = EXPERTS;
    k->ids[5 * K] = INT32_MIN;
    k->weights[6 * K + 2] = NAN;
    k->weights[7 * K + 1] *= 1.01f;
    k->logits[8 * EXPERTS + 3] += 1;
    k->logits[9 * EXPERTS + 3] = INFINITY;
    struct mr_error_model model = mr_error_model(NULL);
    struct mr_verify_options options = {.threads = 1, .model = model, .phase = "all"};
    struct mr_verify_tally tally = {0};
    uint64_t gained[EXPERTS] = {0}, lost[EXPERTS] = {0};
    struct mr_verify_result result = {.tally = &tally, .gained = gained, .lost = lost};
    struct mr_findings found;
    ck_assert_int_eq(mr_findings_new(TOKENS, K, &found), MR_OK);
    ck_assert_int_eq(mr_verify_layer(&p->layer, &options, &k->observed, 1, &result, &found, NULL),
                     MR_OK);
    api_problem_new(p, &a);
    api_problem_must(&a, "topk_ids", "I32", k->ids, TOKENS, K);
    api_problem_must(&a, "topk_weights", "F32", k->weights, TOKENS, K);
    api_problem_must(&a, "gate_logits", "F32", k->logits, TOKENS, EXPERTS);
    memset(verdict, 99, sizeof verdict);
    memset(logit_verdict, 99, sizeof logit_verdict);
    int status = mr_api_verify(a.input, "{\"threads\": 2, \"worst\": 1000}", TOKENS, verdict,
                               logit_verdict, &text, a.why, sizeof a.why);
    ck_assert_msg(!status, "%s", a.why);
    json_t *said = parse(text);
    uint64_t counts[MR_VERDICT_COUNT] = {0};
    for (size_t t = 0; t < TOKENS; t++) {
        ck_assert_int_lt(verdict[t], MR_VERDICT_COUNT);
        counts[verdict[t]]++;
        ck_assert_int_eq(logit_verdict[t], t == 8 ? MR_WRONG : t == 9 ? MR_NONFINITE : MR_EXACT);
    }
    ck_assert(!memcmp(counts, tally.verdicts, sizeof counts));
    for (size_t i = 0; i < found.count; i++)
        ck_assert_int_eq(verdict[found.item[i].row], found.item[i].judgement.verdict);
    ck_assert_int_eq(verdict[3], MR_MALFORMED);
    ck_assert_int_eq(verdict[4], MR_MALFORMED);
    ck_assert_int_eq(verdict[5], MR_MALFORMED);
    ck_assert_int_eq(verdict[6], MR_NONFINITE);
    ck_assert_int_eq(verdict[7], MR_WRONG);
    ck_assert_uint_eq(json_array_size(json_object_get(said, "worst")), found.count + 2);
    ck_assert_int_eq(figure(said, "verdicts", "exact"),
                     (json_int_t)(tally.verdicts[MR_EXACT] + TOKENS - 2));
    json_decref(said);
    mr_findings_free(&found);
    api_problem_free(&a);
    problem_free(p);
    free(k);
}
END_TEST

/* Rows of any tokens, 64-bit ids, padding, a promised order. */
START_TEST(verify_options)
{
    uint64_t state = 23;
    struct problem *p = small_problem(0, &state);
    struct small_kernel *k = malloc(sizeof *k);
    enum { ROWS = 2 * TOKENS };
    int64_t *ids = malloc(ROWS * K * sizeof *ids), *token = malloc(ROWS * sizeof *token);
    uint8_t verdict[ROWS];
    struct api_problem a;
    small_kernel_run(p, k);
    for (size_t r = 0; r < ROWS; r++) {
        token[r] = (int64_t)((r * 7) % TOKENS);
        for (size_t s = 0; s < K; s++) /* ascending where r is odd */
            ids[r * K + s] = r >= ROWS - 4 ? -1 : k->ids[(size_t)token[r] * K + s];
        int64_t first = ids[r * K];
        if (r % 2) ids[r * K] = ids[r * K + K - 1], ids[r * K + K - 1] = first;
    }
    ids[(ROWS - 2) * K] = 0;
    api_problem_new(p, &a);
    api_problem_must(&a, "topk_ids", "I64", ids, ROWS, K);
    api_problem_must(&a, "token_index", "I64", token, ROWS, 0);
    char options[96];
    snprintf(options, sizeof options, "{\"non_padded\": %d, \"profile\": null}", ROWS - 4);
    ck_assert_msg(!mr_api_verify(a.input, options, ROWS, verdict, NULL, NULL, a.why, sizeof a.why),
                  "%s", a.why);
    for (size_t r = 0; r < ROWS; r++)
        ck_assert_int_eq(verdict[r], r == ROWS - 2 ? MR_MALFORMED : r >= ROWS - 4 ? MR_API_PADDING
                                                                                  : MR_EXACT);
    snprintf(options, sizeof options, "{\"non_padded\": %d, \"profile\": \"sglang\"}", ROWS - 4);
    ck_assert_msg(!mr_api_verify(a.input, options, ROWS, verdict, NULL, NULL, a.why, sizeof a.why),
                  "%s", a.why);
    size_t ordered = 0;
    for (size_t r = 0; r < ROWS - 4; r++) ordered += verdict[r] == MR_EXACT;
    ck_assert_uint_eq(ordered, ROWS / 2 - 2);
    ck_assert_str_eq(mr_api_verdict_name(MR_API_PADDING), "padding");
    api_problem_free(&a);
    problem_free(p);
    free(ids);
    free(token);
    free(k);
}
END_TEST

struct caller {
    struct api_problem a;
    struct routing *r;
    int status;
};

static void *call(void *argument)
{
    struct caller *c = argument;
    for (int i = 0; i < 4 && !c->status; i++)
        c->status = mr_api_route(c->a.input, "{\"threads\": 2}", TOKENS, c->r->ids, c->r->weights,
                                 c->r->gap, c->r->radius, NULL, NULL, NULL, NULL, NULL, 0);
    return NULL;
}

/* Several callers at once get what one gets alone. */
START_TEST(verify_callers)
{
    enum { CALLERS = 4 };
    uint64_t state = 29;
    struct problem *p = small_problem(4, &state);
    struct caller c[CALLERS];
    pthread_t thread[CALLERS];
    struct answers want;
    routed(&p->layer, NULL, &want);
    for (int i = 0; i < CALLERS; i++) {
        api_problem_new(p, &c[i].a);
        c[i].r = malloc(sizeof *c[i].r);
        c[i].status = 0;
        ck_assert_int_eq(pthread_create(&thread[i], NULL, call, &c[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(thread[i], NULL);
        ck_assert_int_eq(c[i].status, 0);
        ck_assert(!memcmp(c[i].r->ids, want.ids, sizeof c[i].r->ids));
        ck_assert(!memcmp(c[i].r->weights, want.weights, sizeof c[i].r->weights));
        ck_assert(!memcmp(c[i].r->gap, want.gap, sizeof c[i].r->gap));
        api_problem_free(&c[i].a);
        free(c[i].r);
    }
    answers_free(&want);
    problem_free(p);
}
END_TEST

/* A router's text makes the same router; a config is read as the library reads it, and keys stand
 * over it. */
START_TEST(verify_router_text)
{
    struct mr_api_router *r, *again;
    char why[API_WHY];
    int status = mr_api_router_new("data/captures/glm4moe-tiny/config.json", "{\"top_k\": 6}", &r,
                                   why, sizeof why);
    ck_assert_msg(!status, "%s", why);
    char *text = mr_api_router_text(r);
    ck_assert_int_eq(mr_api_router_new(NULL, text, &again, why, sizeof why), 0);
    char *second = mr_api_router_text(again);
    ck_assert_str_eq(text, second);
    mr_api_text_free(second);
    json_t *said = parse(text);
    ck_assert_int_eq(figure(said, NULL, "experts"), 128);
    ck_assert_int_eq(figure(said, NULL, "top_k"), 6);
    ck_assert_int_eq(figure(said, NULL, "hidden"), 512);
    ck_assert_str_eq(json_string_value(json_object_get(said, "score")), "sigmoid");
    json_decref(said);
    mr_api_router_free(r);
    mr_api_router_free(again);
    /* Of any width: its text says no "hidden", which would have to be at least 1. */
    ck_assert_int_eq(mr_api_router_new(NULL, "{\"experts\": 4, \"top_k\": 1, \"score\": \"softmax\","
                                       "\"bias\": false, \"n_group\": 1, \"topk_group\": 1,"
                                       "\"norm_topk_prob\": true, \"routed_scaling_factor\": 1}",
                                       &r, why, sizeof why), 0);
    text = mr_api_router_text(r);
    status = mr_api_router_new(NULL, text, &again, why, sizeof why);
    ck_assert_msg(!status, "%s: %s", text, why);
    mr_api_text_free(text);
    mr_api_router_free(r);
    mr_api_router_free(again);
}
END_TEST

/* build/libmoeref.so beside build/tests/run exports every name of ref/moeref.map, and no other of
 * ours. */
START_TEST(validate_exports)
{
    char path[4096], word[128];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    ck_assert_int_gt(n, 0);
    path[n] = '\0';
    ck_assert_int_gt(n, (ssize_t)strlen("tests/run"));
    strcpy(path + n - strlen("tests/run"), "libmoeref.so");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(library, "%s", dlerror());
    FILE *map = fopen("ref/moeref.map", "r");
    ck_assert_ptr_nonnull(map);
    int names = 0;
    while (fscanf(map, "%127s", word) == 1) {
        if (strncmp(word, "mr_", 3)) continue;
        word[strcspn(word, ";")] = '\0';
        ck_assert_msg(dlsym(library, word), "%s: not exported", word);
        names++;
    }
    fclose(map);
    ck_assert_int_gt(names, 100);
    static const char *const inside[] = {"mr_gate_prepare", "mr_filter_block", "mr_api_layer",
                                         "mr_api_end", "mr_sigmoid_mpfr", "mr_observed_check"};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        ck_assert_msg(!dlsym(library, inside[i]), "%s: exported", inside[i]);
    int (*version)(void);
    *(void **)&version = dlsym(library, "mr_api_version");
    ck_assert_int_eq(version(), MR_API_VERSION);
    dlclose(library);
}
END_TEST

Suite *suite_api(void)
{
    Suite *s = suite_create("api");
    TCase *t = tcase_create("api");
    tcase_add_loop_test(t, verify_routing, 0, small_kinds);
    tcase_add_test(t, verify_ties);
    tcase_add_loop_test(t, verify_verdicts, 0, small_kinds);
    tcase_add_test(t, verify_options);
    tcase_add_test(t, verify_callers);
    tcase_add_test(t, verify_router_text);
    tcase_add_test(t, validate_exports);
    suite_add_tcase(s, t);
    return s;
}
