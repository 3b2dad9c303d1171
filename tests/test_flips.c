/* Emulated arithmetics against the same steps in MPFR. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/case.h"
#include "../ref/num/num.h"
#include "../ref/route/emulate.h"
#include "support/routed.h"

enum { ALL = 24 };

static void all_arithmetics(struct mr_arith *a)
{
    for (int i = 0; i < ALL; i++)
        a[i] = (struct mr_arith){.logits = (enum mr_type)(i % 3), .bias = i / 3 % 2,
                                 .scores = i / 6 % 2, .weights = i / 12};
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nearest rank (NaN counts as infinite), within a bin of the histogram and what the filter leaves
 * of the certified key. */
static void expect_quantiles(const struct mr_histogram *h, double *errors, size_t n,
                             const char *name)
{
    static const double shares[] = {0.01, 0.25, 0.5, 0.9, 0.99, 1};
    for (size_t i = 0; i < n; i++)
        if (isnan(errors[i])) errors[i] = HUGE_VAL;
    qsort(errors, n, sizeof *errors, by_size);
    ck_assert_uint_eq(h->total, n);
    for (int i = 0; i < 6; i++) {
        double want = errors[(size_t)ceil(shares[i] * (double)n) - 1];
        double got = mr_histogram_quantile(h, shares[i]);
        if (want >= 0x1p8) want = HUGE_VAL;
        bool same = isinf(want) ? isinf(got) : fabs(got - want) <= want * 0x1p-9 + 2e-10;
        ck_assert_msg(same, "%s: key error at %g is %g, expected %g", name, shares[i], got, want);
    }
}

/* All arithmetics on all tokens of a layer: choices, flips, weight moved and key errors. */
static void expect_emulated(const struct mr_layer *l, const char *name)
{
    struct mr_arith arith[ALL];
    struct answers a;
    all_arithmetics(arith);
    routed(l, &(struct mr_route_options){.threads = 1, .arith = arith, .arith_count = ALL}, &a);
    size_t n = (size_t)l->router->experts, k = (size_t)a.top_k;
    double *errors = malloc((ALL * a.rows * n + 1) * sizeof *errors), moved[ALL] = {0};
    ck_assert_ptr_nonnull(errors);
    uint64_t flips[ALL] = {0}, tokens = 0;
    for (size_t t = 0; t < a.rows; t++) {
        struct brute b;
        brute_route(l, t, &b);
        for (int i = 0; i < ALL && !b.nonfinite; i++) {
            struct brute_emulated e;
            brute_emulate(l, &b, &arith[i], &e);
            const int *chosen = a.chosen + (t * ALL + (size_t)i) * k;
            char line[MR_ARITH_TEXT];
            mr_arith_print(&arith[i], line, sizeof line);
            for (size_t j = 0; j < k; j++)
                ck_assert_msg(chosen[j] == e.chosen[j],
                              "%s, token %zu, %s: choice %zu is %d, expected %d", name, t, line, j,
                              chosen[j], e.chosen[j]);
            memcpy(errors + ((size_t)i * a.rows + tokens) * n, e.key_error, n * sizeof *errors);
            flips[i] += e.flip;
            moved[i] += e.moved;
            brute_emulated_free(&e);
        }
        tokens += !b.nonfinite;
        brute_free(&b);
    }
    for (int i = 0; i < ALL; i++) {
        ck_assert_uint_eq(a.flips[i].tokens, tokens);
        ck_assert_msg(a.flips[i].flips == flips[i], "%s: %d flips, expected %d", name,
                      (int)a.flips[i].flips, (int)flips[i]);
        ck_assert_msg(fabs(a.flips[i].weight_moved - moved[i]) <= 1e-6 * (moved[i] + 1e-9),
                      "%s: weight moved %.12g, expected %.12g", name, a.flips[i].weight_moved,
                      moved[i]);
        if (tokens)
            expect_quantiles(&a.flips[i].key_error, errors + (size_t)i * a.rows * n, tokens * n,
                             name);
    }
    free(errors);
    answers_free(&a);
}

static void expect_case(const char *path)
{
    struct mr_error err = {{0}};
    struct mr_case *c;
    ck_assert_msg(!mr_case_load(path, NULL, &c, &err), "%s", err.text);
    for (size_t i = 0; i < mr_case_layer_count(c); i++) {
        struct mr_case_layer l;
        double bias[1024];
        ck_assert(!mr_case_get(c, mr_case_layer_number(c, i), mr_case_phase(c, 0), &l, &err));
        if (l.bias.data) mr_widen_f64(l.bias.data, l.bias.dtype, l.bias.shape[0], bias);
        size_t rows = (size_t)l.hidden.shape[0], n = (size_t)l.hidden.shape[1];
        struct mr_layer layer = {.router = mr_case_router(c),
                                 .hidden = {l.hidden.data, l.hidden.dtype, rows, n},
                                 .gate = {l.gate.data, l.gate.dtype, (size_t)l.gate.shape[0], n},
                                 .bias = l.bias.data ? bias : NULL};
        struct mr_layer few = problem_slice(&layer, i * 5 % rows, getenv("MOEREF_LONG") ? 40 : 2);
        expect_emulated(&few, path);
    }
    mr_case_free(c);
}

START_TEST(corroborate_captures)
{
    expect_case("cases/glm4moe-tiny.json");
    expect_case("cases/qwen3moe-tiny.json");
}
END_TEST

static const enum mr_score scores[] = {MR_SCORE_SIGMOID, MR_SCORE_SOFTMAX};

START_TEST(corroborate_random_layers)
{
    uint64_t state = 61;
    static const enum mr_dtype types[] = {MR_BF16, MR_F16, MR_F32};
    for (int c = 0; c < 8; c++) {
        struct problem *p =
            problem_new(scores[c % 2], 37, 5, 90, 12, types[c % 3], types[c % 2], c & 2);
        problem_fill(&p->layer.hidden, 1, &state);
        problem_fill(&p->layer.gate, 0.2, &state);
        if (p->bias) problem_fill_bias(p, 0.02, &state);
        p->router.norm_topk_prob = c & 4;
        p->router.routed_scaling_factor = 2.827;
        expect_emulated(&p->layer, "random");
        problem_free(p);
    }
}
END_TEST

/* From given logits: one token for each list. */
static void expect_logits(const double *list, size_t tokens, int experts, double bias,
                          const char *name)
{
    for (int s = 0; s < 2; s++)
        for (int biased = 0; biased < 2; biased++) {
            struct problem *p =
                problem_new(scores[s], experts, 3, 0, tokens, MR_F32, MR_F32, biased);
            for (size_t t = 0; t < tokens; t++)
                for (int e = 0; e < experts; e++)
                    problem_set(&p->layer.logits, t, (size_t)e,
                                list[t * (size_t)experts + (size_t)e]);
            for (int e = 0; e < experts && biased; e++) p->bias[e] = bias * (e % 3 - 1);
            expect_emulated(&p->layer, name);
            problem_free(p);
        }
}

/* Scores that round to one bf16 number, and exact ties. */
START_TEST(corroborate_scores_that_round_to_ties)
{
    const double list[] = {0, 1e-3, 2e-3, -1e-3, 3e-3, 1e-3, 0, 1e-3, 9, 9.1, 9.2, 9.3, 8.9, 9.05,
                           9, 8.8, 20, 21, 22, 20, 21, 22, 19, 30, -3, -3, -3, -3, -3, -3, -3, -3,
                           /* an outsider takes the place of two that tie exactly */
                           1, 1 + 0x1p-12, 1 + 0x1p-12, 5, 6, -1, -1, -1};
    expect_logits(list, 5, 8, 0x1p-9, "scores round to ties");
}
END_TEST

/* Logits beyond fp16 and beyond bf16, both signs. */
START_TEST(corroborate_overflow)
{
    const double list[] = {65504,  65519.99, 65520, 65536, 1,       2,         -65520, -1e5,
                           -1e5,   -7e4,     -1e6,  -1,    -2,      -3,        -4,     -5,
                           3.4e38, 3.395e38, 1e38,  0,     -3.4e38, -3.395e38, 5,      6};
    expect_logits(list, 3, 8, 0.01, "overflow");
}
END_TEST

/* sigmoid(-87.4) is below the normal range of fp32 and bf16, sigmoid(-104) below the subnormal one.
 */
START_TEST(corroborate_subnormal_scores)
{
    const double list[] = {-87,    -87.5,    -90,     -92,  -95,  -100,   -103,   -103.2,
                           -103.9, -103.972, -103.98, -104, -110, -200,   -708,   -709,
                           -699.9, -700,     -700.1,  -745, -750, -1000,  -1e30,  -1e4,
                           0,      -87.5,    -95,     -103, -104, -699.9, -700.1, -1e30};
    expect_logits(list, 4, 8, 0x1p-130, "subnormal scores");
}
END_TEST

START_TEST(corroborate_large_bias)
{
    const double list[] = {1, 2, 3, 4, -1, -2, -3, 0, 0.5, 0.25, 1e-3, -1e-3, 7, 8, -9, 10};
    expect_logits(list, 2, 8, 1e6, "bias of a million");
    expect_logits(list, 2, 8, 3e38, "bias of 3e38");
}
END_TEST

/* Dots halfway between two numbers of fp32, bf16 and fp16, but for 2^-60 or nothing. */
START_TEST(corroborate_logits_that_round_by_exactness)
{
    static const double half[] = {0x1p-24, 0x1p-8, 0x1p-11};
    for (int s = 0; s < 2; s++)
        for (int h = 0; h < 3; h++) {
            struct problem *p = problem_new(scores[s], 12, 4, 4, 2, MR_F32, MR_F32, false);
            for (size_t t = 0; t < 2; t++)
                for (size_t j = 0; j < 4; j++)
                    problem_set(&p->layer.hidden, t, j, j == 2 ? 0x1p-60 : t && !j ? -1 : 1);
            for (size_t e = 0; e < 12; e++) {
                problem_set(&p->layer.gate, e, 0, e < 6 ? 1 : 1 + 2 * half[h]); /* even and odd */
                problem_set(&p->layer.gate, e, 1, half[h]);
                problem_set(&p->layer.gate, e, 2, (double)(e % 3) - 1);
            }
            expect_emulated(&p->layer, "halfway");
            problem_free(p);
        }
}
END_TEST

START_TEST(corroborate_ties_and_nonfinite_rows)
{
    uint64_t state = 62;
    for (int s = 0; s < 2; s++) {
        struct problem *p = problem_new(scores[s], 10, 4, 40, 12, MR_BF16, MR_BF16, true);
        problem_fill(&p->layer.hidden, 1, &state);
        problem_fill(&p->layer.gate, 0.2, &state);
        for (size_t e = 1; e < 10; e += 2) /* pairs */
            for (size_t j = 0; j < 40; j++)
                problem_set(&p->layer.gate, e, j, brute_element(&p->layer.gate, e - 1, j));
        problem_set(&p->layer.hidden, 5, 9, NAN);
        for (p->router.top_k = 1; p->router.top_k <= 10; p->router.top_k += 3)
            expect_emulated(&p->layer, "ties");
        problem_free(p);
    }
}
END_TEST

/* Stages alone: every logit and score bit for bit. */
START_TEST(corroborate_scores_bit_for_bit)
{
    uint64_t state = 63;
    enum { N = 64, ROUNDS = 30 };
    double a[N], b[N], c[N];
    uint8_t undecided[N];
    struct mr_stage_scratch scratch = {.a = a, .b = b, .c = c, .undecided = undecided};
    for (int round = 0; round < ROUNDS; round++)
        for (int s = 0; s < 2; s++)
            for (int type = 0; type < MR_TYPE_COUNT; type++) {
                float logit[N], out[N];
                for (int e = 0; e < N; e++)
                    logit[e] = (float)(routed_uniform(&state) * ldexp(1, round % 12 - 2));
                ck_assert(!mr_stage_scores(scores[s], logit, N, (enum mr_type)type, &scratch, out));
                mpfr_t x, top, sum, score;
                mpfr_inits2(600, x, top, sum, score, (mpfr_ptr)0);
                mpfr_set_zero(sum, 1);
                for (int e = 0; e < N; e++) {
                    mpfr_set_flt(x, logit[e], MPFR_RNDN);
                    mpfr_exp(x, x, MPFR_RNDN);
                    mpfr_add(sum, sum, x, MPFR_RNDN);
                }
                for (int e = 0; e < N; e++) {
                    mpfr_set_flt(x, logit[e], MPFR_RNDN);
                    mpfr_exp(top, x, MPFR_RNDN);
                    mpfr_add_ui(x, top, 1, MPFR_RNDN);
                    mpfr_div(score, top, s ? sum : x, MPFR_RNDN);
                    float want = (float)brute_round(score, (enum mr_type)type);
                    ck_assert_msg(!memcmp(&want, &out[e], sizeof want),
                                  "%s of %a to type %d: %a, expected %a", mr_score_name(scores[s]),
                                  (double)logit[e], type, (double)out[e], (double)want);
                }
                mpfr_clears(x, top, sum, score, (mpfr_ptr)0);
            }
}
END_TEST

Suite *suite_flips(void);
Suite *suite_flips(void)
{
    Suite *s = suite_create("flips");
    TCase *c = tcase_create("against brute force");
    tcase_set_timeout(c, getenv("MOEREF_LONG") ? 1800 : 120);
    tcase_add_test(c, corroborate_captures);
    tcase_add_test(c, corroborate_random_layers);
    tcase_add_test(c, corroborate_scores_that_round_to_ties);
    tcase_add_test(c, corroborate_overflow);
    tcase_add_test(c, corroborate_subnormal_scores);
    tcase_add_test(c, corroborate_large_bias);
    tcase_add_test(c, corroborate_logits_that_round_by_exactness);
    tcase_add_test(c, corroborate_ties_and_nonfinite_rows);
    tcase_add_test(c, corroborate_scores_bit_for_bit);
    suite_add_tcase(s, c);
    return s;
}
