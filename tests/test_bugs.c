/* The bug cases in this process: mutants are what they are said to be, the judge says of each what
 * it must, and never cries wolf over answers that are right. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/generate_edge.h"
#include "bugs/bug_case.h"
#include "bugs/clean_profiles.h"
#include "bugs/judged.h"
#include "mutants/plain.h"

static struct mr_error err;
static char **paths;
static size_t path_count;

static void start(void)
{
    err.text[0] = '\0';
    ck_assert_msg(!bug_list("cases/bugs", &paths, &path_count, &err), "%s", err.text);
}

static void stop(void)
{
    bug_list_free(paths, path_count);
}

static void load(size_t i, struct bug *bug)
{
    ck_assert_msg(!bug_load(paths[i], bug, &err), "%s", err.text);
}

static size_t slots(const struct bug *bug)
{
    return bug->input.tokens * (size_t)bug->input.router->top_k;
}

/* The rows that issue 3 lists, and every mutant, have a case; a case is about one row. */
START_TEST(validate_every_report_has_a_case)
{
    static const char *const rows[] = {"1",  "2",  "3",  "4",  "5",  "6",  "7",  "8",  "9",  "10",
                                       "11", "12", "13", "14", "18", "20", "21", "22", "23", "24",
                                       "25", "26", "28", "8a", "8b", "8c", "8d", "8e", "8f", "8g"};
    size_t rows_count = sizeof rows / sizeof *rows, found = 0;
    bool used[64] = {false};
    ck_assert_uint_eq(path_count, rows_count);
    for (size_t i = 0; i < path_count; i++) {
        struct bug bug;
        load(i, &bug);
        for (size_t r = 0; r < rows_count; r++) found += !strcmp(rows[r], bug.row);
        for (size_t m = 0; mutant_at(m); m++) used[m] |= mutant_at(m) == bug.mutant;
        const char *file = strrchr(bug.path, '/') + 1, *name = mr_case_name(bug.c);
        ck_assert_int_eq(strncmp(file, name, strlen(name)), 0);
        bug_free(&bug);
    }
    ck_assert_uint_eq(found, rows_count);
    for (size_t m = 0; mutant_at(m); m++) ck_assert_msg(used[m], "%s", mutant_at(m)->name);
}
END_TEST

static struct judged judge(const struct bug *bug, const struct bug_answer *a)
{
    const char *line = mr_case_arith(bug->c);
    struct mr_arith arith;
    if (line) ck_assert(!mr_arith_parse(line, &arith, &err));
    bool given = mr_case_from_logits(bug->c);
    struct judged_input in = {.router = bug->input.router, .tokens = bug->input.tokens,
                              .logits = given ? bug->input.logits : NULL,
                              .hidden = bug->input.hidden, .gate = bug->input.gate,
                              .bias = bug->input.bias, .arith = line ? &arith : NULL,
                              .ordered = mr_case_profile(bug->c) != NULL,
                              .ids = a->ids, .weights = a->weights};
    struct judged j;
    ck_assert_msg(!judged(&in, &j, &err), "%s: %s", bug->path, err.text);
    return j;
}

START_TEST(verify_mutants_get_the_verdict_that_is_expected)
{
    for (size_t i = 0; i < path_count; i++) {
        struct bug bug;
        load(i, &bug);
        for (int run = 0; run < bug.mutant->runs; run++) {
            struct bug_answer a;
            ck_assert(!bug_answer(&bug, false, run, &a, &err));
            struct judged j = judge(&bug, &a);
            ck_assert_msg(!strcmp(mr_verdict_name(j.worst), bug.verdict[run]),
                          "%s, run %d: %s (%s), expected %s", bug.path, run,
                          mr_verdict_name(j.worst), mr_cause_name(j.why.cause), bug.verdict[run]);
            bug_answer_free(&a);
        }
        bug_free(&bug);
    }
}
END_TEST

START_TEST(verify_twins_pass)
{
    for (size_t i = 0; i < path_count; i++) {
        struct bug bug;
        load(i, &bug);
        struct bug_answer a[2] = {{0}};
        for (int run = 0; run < bug.mutant->runs; run++) {
            ck_assert(!bug_answer(&bug, true, run, &a[run], &err));
            struct judged j = judge(&bug, &a[run]);
            uint64_t alarms = j.verdicts[MR_MALFORMED] + j.verdicts[MR_NONFINITE] +
                              j.verdicts[MR_WRONG];
            ck_assert_msg(alarms == 0, "%s, run %d: token %zu: %s", bug.path, run, j.token,
                          mr_cause_name(j.why.cause));
            /* What is not finite has no answer; all else is undecided nowhere. */
            ck_assert_uint_eq(j.verdicts[MR_UNDECIDED], j.certified[MR_CERT_NONFINITE]);
        }
        if (a[1].ids) ck_assert_mem_eq(a[0].ids, a[1].ids, slots(&bug) * sizeof *a[0].ids);
        bug_answer_free(&a[0]);
        bug_answer_free(&a[1]);
        bug_free(&bug);
    }
}
END_TEST

/* What reports say of ids and weights, number for number. */
static void expect_answer(const char *row, const int32_t *ids, const double *weights, double within)
{
    for (size_t i = 0; i < path_count; i++) {
        struct bug bug;
        load(i, &bug);
        if (!strcmp(bug.row, row)) {
            struct bug_answer a;
            size_t k = (size_t)bug.input.router->top_k, last = bug.input.tokens - 1;
            ck_assert(!bug_answer(&bug, false, 0, &a, &err));
            for (size_t s = 0; s < k; s++) {
                if (ids) ck_assert_int_eq(a.ids[last * k + s], ids[s]);
                if (weights && isnan(weights[s])) ck_assert(isnan(a.weights[last * k + s]));
                else if (weights)
                    ck_assert_double_eq_tol((double)a.weights[last * k + s], weights[s], within);
            }
            bug_answer_free(&a);
        }
        bug_free(&bug);
    }
}

START_TEST(validate_mutants_by_the_figures_of_reports)
{
    expect_answer("1", (const int32_t[]){0, 0, 0, 0, 0, 0, 0, 0}, NULL, 0);
    expect_answer("4", (const int32_t[]){3, 5}, (const double[]){2.5, 0}, 1e-9);/* 9.5e-7 and 0 */
    expect_answer("5", (const int32_t[]){3, 6}, (const double[]){NAN, NAN}, 0);
    expect_answer("6", (const int32_t[]){3, 6}, (const double[]){NAN, NAN}, 0);
    expect_answer("8d", NULL, (const double[]){NAN, NAN}, 0);
    expect_answer("7", (const int32_t[]){0, 1, 2, 3}, NULL, 0);
    expect_answer("14", (const int32_t[]){0}, (const double[]){0.4}, 1e-7); /* 0.4 times */
    expect_answer("25", (const int32_t[]){2, 0, 0}, NULL, 0);               /* [2, 0, 0] */
    expect_answer("8a", (const int32_t[]){5, 16}, NULL, 0);                 /* 8 and 16: 16 */
    expect_answer("3", (const int32_t[]){0, 1, 2, 3}, NULL, 0); /* lower id, not the higher bias */
}
END_TEST

/* The notes' figures of the tree: of two tied experts in one warp the higher wins in 208 of 496
 * pairs, 1 & 2 give 2, 1 & 4 give 4, 8 & 16 give 16. */
START_TEST(corroborate_tree_with_the_published_figures)
{
    struct mr_router r = {.experts = 32, .top_k = 1, .score = MR_SCORE_SIGMOID, .n_group = 1,
                          .topk_group = 1, .norm_topk_prob = true, .routed_scaling_factor = 1};
    int higher = 0;
    for (int a = 0; a < 32; a++)
        for (int b = a + 1; b < 32; b++) {
            float logits[32], weight;
            int32_t id;
            for (int e = 0; e < 32; e++) logits[e] = e == a || e == b ? 1 : -1;
            struct mutant_input in = {.router = &r, .tokens = 1, .logits = logits};
            mutant_tree_of_small_rows(&in, false, 0, &id, &weight);
            ck_assert(id == a || id == b);
            higher += id == b;
            if ((a == 1 && b == 2) || (a == 1 && b == 4) || (a == 8 && b == 16))
                ck_assert_int_eq(id, b);
            mutant_tree_of_small_rows(&in, false, 1, &id, &weight);
            ck_assert_int_eq(id, a);
        }
    ck_assert_int_eq(higher, 208);
}
END_TEST

#define ROUTER(e, k, s, by, b, g, t, gs, norm, rsf)                                               \
    {.experts = e, .top_k = k, .score = MR_SCORE_##s, .selection = MR_SELECT_##by, .bias = b,     \
     .n_group = g, .topk_group = t, .group_score = MR_GROUP_##gs, .norm_topk_prob = norm,         \
     .routed_scaling_factor = rsf}

/* Every kind of router; the shapes of Qwen3, OLMoE, GLM, Kimi, DeepSeek V2, V3 and V4, gpt-oss,
 * Llama 4. */
static const struct mr_router routers[] = {
    ROUTER(128, 8, SIGMOID, SCORE, true, 1, 1, TOP2_SUM, true, 2.5),
    ROUTER(384, 8, SIGMOID, SCORE, true, 1, 1, TOP2_SUM, true, 2.827),
    ROUTER(60, 4, SIGMOID, SCORE, false, 1, 1, TOP2_SUM, true, 1),
    ROUTER(256, 8, SIGMOID, SCORE, true, 8, 4, TOP2_SUM, true, 2.5),
    ROUTER(128, 8, SOFTMAX, SCORE, false, 1, 1, TOP2_SUM, true, 1),
    ROUTER(64, 8, SOFTMAX, SCORE, false, 1, 1, TOP2_SUM, false, 1),
    ROUTER(160, 6, SOFTMAX, SCORE, false, 8, 3, MAX, false, 16),
    ROUTER(128, 4, SOFTMAX, LOGIT, false, 1, 1, TOP2_SUM, true, 1),
    ROUTER(16, 1, SIGMOID, LOGIT, false, 1, 1, TOP2_SUM, false, 1),
    ROUTER(256, 6, SQRT_SOFTPLUS, SCORE, true, 1, 1, TOP2_SUM, true, 1.5),
};

/* Classes whose figures are finite. tails: engines really fail there, so only the right router
 * answers. */
static const struct {
    const char *class;
    int layers;
    bool tail;
} classes[] = {{"bias-offsets", 5, false},  {"all-negative", 1, false},
               {"near-tie", 2, false},      {"tie-at-cut", 2, false},
               {"minus-zero", 2, false},    {"tie-in-groups", 2, false},
               {"tie-between-groups", 2, false}, {"group-top2-equal", 2, true},
               {"bias-negative", 2, true},  {"all-equal", 2, true},
               {"saturated", 2, true},      {"sigmoid-tail", 2, true},
               {"softplus-tail", 2, true},  {"subnormal", 1, true}};

struct clean {
    size_t tokens;
    float *logits, bias[1024];
    int32_t *ids;
    float *weights;
    uint64_t judged, verdicts[MR_VERDICT_COUNT];
    int served[64]; /* by profile */
};

static void expect_no_alarm(struct clean *c, const struct mr_router *r, const char *class,
                            const char *engine, bool ordered, const struct mr_arith *arith)
{
    struct judged_input in = {.router = r, .tokens = c->tokens, .logits = c->logits,
                              .bias = r->bias ? c->bias : NULL, .arith = arith, .ordered = ordered,
                              .ids = c->ids, .weights = c->weights};
    struct judged j;
    ck_assert_msg(!judged(&in, &j, &err), "%s", err.text);
    ck_assert_msg(j.worst >= MR_UNDECIDED, /* worst first */
                  "%s of %d, %s, %s: token %zu is %s: %s, slot %d, omitted %d, included %d, "
                  "difference %g, radius %g", mr_score_name(r->score), r->experts, class, engine,
                  j.token, mr_verdict_name(j.worst), mr_cause_name(j.why.cause), j.why.slot,
                  j.why.omitted, j.why.included, j.why.difference, j.why.radius);
    c->judged += c->tokens;
    for (int v = 0; v < MR_VERDICT_COUNT; v++) c->verdicts[v] += j.verdicts[v];
}

static void judge_clean(struct clean *c, const struct mr_router *r, const char *class, bool tail)
{
    struct plain p = plain_new(r);
    struct mutant_input in = {.router = r, .tokens = c->tokens, .logits = c->logits,
                              .bias = r->bias ? c->bias : NULL};
    plain_run(&p, &in, c->ids, c->weights);
    expect_no_alarm(c, r, class, "plain", true, NULL);
    for (size_t i = 0; !tail && i < clean_profile_count(); i++) {
        struct clean_profile profile;
        if (!clean_profile(i, r, c->tokens, c->logits, in.bias, c->ids, c->weights, &profile))
            continue;
        expect_no_alarm(c, r, class, profile.name, profile.ordered, &profile.arith);
        c->served[i]++;
    }
}

/* At least 10^6 tokens with MOEREF_LONG. */
START_TEST(verify_no_false_alarms)
{
    bool all = getenv("MOEREF_LONG") != NULL;
    struct clean c = {.tokens = all ? 1152 : 24};
    c.logits = malloc(c.tokens * 1024 * sizeof *c.logits);
    c.ids = malloc(c.tokens * 8 * sizeof *c.ids);
    c.weights = malloc(c.tokens * 8 * sizeof *c.weights);
    ck_assert(c.logits && c.ids && c.weights);
    for (size_t n = 0; n < sizeof routers / sizeof *routers; n++)
        for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
            const struct mr_edge *class = mr_edge_find(classes[i].class);
            const struct mr_router *r = &routers[n];
            if (class->router.n_group > 1 && r->n_group == 1) continue;
            for (int layer = 0; layer < classes[i].layers; layer++) {
                ck_assert_msg(!mr_edge_layer(class, r, n, layer, c.tokens, (size_t)r->experts,
                                             c.logits, r->bias ? c.bias : NULL, &err),
                              "%s", err.text);
                judge_clean(&c, r, class->name, classes[i].tail);
            }
        }
    if (all) ck_assert_uint_ge(c.judged, 1000000);
    ck_assert_uint_gt(c.verdicts[MR_EXACT], c.judged / 4);
    for (size_t i = 0; i < clean_profile_count(); i++) ck_assert_int_gt(c.served[i], 0);
    free(c.logits);
    free(c.ids);
    free(c.weights);
}
END_TEST

/* From hidden states: logits summed in binary32 in two orders, and rounded to bf16 where that is
 * declared. */
START_TEST(verify_no_false_alarms_from_hidden_states)
{
    static const struct mr_router kinds[] = {
        ROUTER(64, 6, SIGMOID, SCORE, false, 1, 1, TOP2_SUM, true, 2.5),
        ROUTER(64, 6, SOFTMAX, SCORE, false, 1, 1, TOP2_SUM, false, 1),
        ROUTER(64, 6, SOFTMAX, LOGIT, false, 1, 1, TOP2_SUM, true, 1),
        ROUTER(64, 6, SQRT_SOFTPLUS, SCORE, false, 1, 1, TOP2_SUM, true, 1.5)};
    const struct mr_arith bf16 = {.logits = MR_TYPE_BF16};
    enum { HIDDEN = 96, MOST = 8192 };
    size_t tokens = getenv("MOEREF_LONG") ? MOST : 64;
    float *hidden = malloc(MOST * HIDDEN * sizeof *hidden), gate[64 * HIDDEN];
    float *logits = malloc(MOST * 64 * sizeof *logits);
    float *weights = malloc(MOST * 6 * sizeof *weights);
    int32_t *ids = malloc(MOST * 6 * sizeof *ids);
    const struct mr_edge *class = mr_edge_find("experts-odd"); /* plain normal numbers */
    struct mr_router rows = {.experts = HIDDEN};
    ck_assert(hidden && logits && weights && ids);
    ck_assert(!mr_edge_layer(class, &rows, 1, 0, tokens, HIDDEN, hidden, NULL, &err));
    ck_assert(!mr_edge_layer(class, &rows, 2, 0, 64, HIDDEN, gate, NULL, &err));
    for (int i = 0; i < 64 * HIDDEN; i++) gate[i] *= 0.125f;
    for (size_t n = 0; n < 4; n++)
        for (int run = 0; run < 4; run++) {
            struct mr_router r = kinds[n];
            r.hidden = HIDDEN;
            struct mutant_input in = {.router = &r, .tokens = tokens, .hidden = hidden,
                                      .gate = gate};
            logits_by_rows(&in, false, run / 2, logits);
            in.logits = logits;
            if (run % 2) logits_in_bf16(&in, false, 0, logits);
            struct plain p = plain_new(&r);
            plain_run(&p, &in, ids, weights);
            struct judged_input claim = {.router = &r, .tokens = tokens, .hidden = hidden,
                                         .gate = gate, .arith = run % 2 ? &bf16 : NULL,
                                         .ordered = true, .ids = ids, .weights = weights};
            struct judged j;
            ck_assert_msg(!judged(&claim, &j, &err), "%s", err.text);
            ck_assert_msg(j.worst >= MR_UNDECIDED, "%zu, %d: token %zu: %s", n, run, j.token,
                          mr_cause_name(j.why.cause));
        }
    free(hidden);
    free(logits);
    free(weights);
    free(ids);
}
END_TEST

Suite *suite_bugs(void);
Suite *suite_bugs(void)
{
    Suite *suite = suite_create("bugs");
    TCase *bugs = tcase_create("bugs");
    tcase_set_timeout(bugs, 1200);
    tcase_add_checked_fixture(bugs, start, stop);
    tcase_add_test(bugs, validate_every_report_has_a_case);
    tcase_add_test(bugs, verify_mutants_get_the_verdict_that_is_expected);
    tcase_add_test(bugs, verify_twins_pass);
    tcase_add_test(bugs, validate_mutants_by_the_figures_of_reports);
    tcase_add_test(bugs, corroborate_tree_with_the_published_figures);
    tcase_add_test(bugs, verify_no_false_alarms);
    tcase_add_test(bugs, verify_no_false_alarms_from_hidden_states);
    suite_add_tcase(suite, bugs);
    return suite;
}
