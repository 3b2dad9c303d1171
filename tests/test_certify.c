/* Certified routing against brute force in MPFR, by named classes of adversarial input. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "support/routed.h"

static const enum mr_score scores[] = {MR_SCORE_SIGMOID, MR_SCORE_SOFTMAX};
static const enum mr_dtype types[] = {MR_BF16, MR_F16, MR_F32};

/* A problem from logits, for one score; tests set the elements. */
static struct problem *given(enum mr_score score, int experts, int top_k, size_t tokens, bool bias,
                             const char *name)
{
    struct problem *p = problem_new(score, experts, top_k, 0, tokens, MR_F32, MR_F32, bias);
    p->name = name;
    return p;
}

static void logit(struct problem *p, size_t token, int expert, double value)
{
    problem_set(&p->layer.logits, token, (size_t)expert, value);
}

static void done(struct problem *p)
{
    expect_all(p);
    problem_free(p);
}

START_TEST(corroborate_random_mixes)
{
    uint64_t state = 1;
    for (int x = 0; x < 3; x++)
        for (int w = 0; w < 3; w++)
            for (int c = 0; c < 4; c++) {
                struct problem *p = problem_normal(scores[c % 2], 24, 5, 70, 3, types[x], types[w],
                                                   c / 2, &state, "random mix");
                p->router.norm_topk_prob = (x + w + c) % 2;
                p->router.routed_scaling_factor = 2.827;
                done(p);
            }
}
END_TEST

/* Two, three or many experts with one gate row, and equal biases, across the cut. */
START_TEST(corroborate_ties_at_the_cut)
{
    uint64_t state = 2;
    static const int many[] = {2, 3, 17};
    for (int i = 0; i < 3; i++)
        for (int c = 0; c < 4; c++) {
            struct problem *p = problem_normal(scores[c % 2], 32, 6, 65, 8, types[i],
                                               types[(i + c) % 3], c / 2, &state, "tie at the cut");
            struct mr_matrix *g = &p->layer.gate;
            for (int e = 0; e < many[i]; e++) {
                int copy = 31 - e * 31 / many[i];
                for (size_t j = 0; j < g->cols; j++)
                    problem_set(g, (size_t)copy, j, brute_element(g, 3, j));
                if (p->bias) p->bias[copy] = p->bias[3];
            }
            /* Row 3 is put where it ties at the cut for token t: its cut is wherever it ranks. */
            for (int k = 1; k < 32; k += 3) {
                p->router.top_k = k;
                expect_all(p);
            }
            problem_free(p);
        }
}
END_TEST

START_TEST(corroborate_all_equal)
{
    static const double values[] = {0, -0.0, 1.5, -800, 800, 1e30, -1e30, 0x1p-149};
    for (int s = 0; s < 2; s++)
        for (int bias = 0; bias < 2; bias++) {
            struct problem *p = given(scores[s], 12, 5, 8, bias, "all equal");
            for (int e = 0; e < 12; e++) {
                for (size_t t = 0; t < 8; t++) logit(p, t, e, values[t]);
                if (bias) p->bias[e] = 0.25;
            }
            done(p);
        }
}
END_TEST

START_TEST(corroborate_all_equal_but_the_bias)
{
    static const double values[] = {0, -0.0, 1.5, -800, 800, 1e30, -1e30, 3e38};
    for (int s = 0; s < 2; s++) {
        struct problem *p = given(scores[s], 12, 5, 8, true, "equal logits, different biases");
        for (int e = 0; e < 12; e++) {
            for (size_t t = 0; t < 8; t++) logit(p, t, e, values[t]);
            p->bias[e] = ldexp(e * 7 % 12 / 2, -140); /* pairs are equal: a tie at the cut */
        }
        done(p);
    }
}
END_TEST

START_TEST(corroborate_logits_one_ulp_apart)
{
    for (int s = 0; s < 2; s++)
        for (int bias = 0; bias < 2; bias++) {
            struct problem *p = given(scores[s], 16, 4, 6, bias, "one ulp apart");
            for (size_t t = 0; t < 6; t++) {
                float v = (float[]){1, -3.7f, 0.0f, 17, -40, 90}[t];
                for (int e = 0; e < 16; e++) {
                    logit(p, t, e * 5 % 16, v);
                    v = nextafterf(v, HUGE_VALF);
                }
            }
            done(p);
        }
}
END_TEST

/* Keys that cross: a larger logit against a bias that makes up for it to within rounding. */
START_TEST(corroborate_bias_makes_up_for_the_logit)
{
    uint64_t state = 3;
    for (int s = 0; s < 2; s++) {
        struct problem *p = given(scores[s], 8, 3, 20, true, "bias makes up for the logit");
        for (size_t t = 0; t < 20; t++)
            for (int e = 0; e < 8; e++) logit(p, t, e, 3 * routed_normal(&state));
        struct brute b;
        brute_route(&p->layer, 0, &b);
        for (int e = 0; e < 8; e++) /* binary64 biases: all keys of token 0 near 0.75 */
            p->bias[e] = 0.75 - mpfr_get_d(b.score[e], MPFR_RNDN);
        brute_free(&b);
        done(p);
    }
}
END_TEST

/* Logits that differ by 2^-48 of their size: equal in fp32. */
START_TEST(corroborate_ties_in_fp32_only)
{
    for (int s = 0; s < 2; s++)
        for (int bias = 0; bias < 2; bias++) {
            struct problem *p = problem_new(scores[s], 8, 3, 3, 2, MR_F32, MR_F32, bias);
            p->name = "tie in fp32 only";
            for (size_t t = 0; t < 2; t++) {
                problem_set(&p->layer.hidden, t, 0, 1);
                problem_set(&p->layer.hidden, t, 1, t ? -0x1p-48 : 0x1p-48);
            }
            for (size_t e = 0; e < 8; e++) {
                problem_set(&p->layer.gate, e, 0, 1.25);
                problem_set(&p->layer.gate, e, 1, (double)(e * 3 % 8));
                if (bias) p->bias[e] = 0.5;
            }
            done(p);
        }
}
END_TEST

START_TEST(corroborate_saturated)
{
    static const double base[] = {40, 700, 1000, 1e30, -1000, -1e30, -50, 3e38};
    for (int s = 0; s < 2; s++)
        for (int bias = 0; bias < 3; bias++) { /* none, equal, different */
            struct problem *p = given(scores[s], 20, 6, 8, bias, "saturated");
            for (int e = 0; e < 20; e++) {
                for (size_t t = 0; t < 8; t++)
                    logit(p, t, e,
                          base[t] * (1 + e * 7 % 20 * (fabs(base[t]) > 1e38 ? 0.005 : 0.07)));
                if (bias) p->bias[e] = bias == 1 ? 0.125 : ldexp(e * 3 % 20, -60);
            }
            done(p);
        }
}
END_TEST

/* Both ends at once, where the biases undo a whole score. */
START_TEST(corroborate_saturated_both_ways)
{
    static const double size[] = {45, 1000};
    for (int s = 0; s < 2; s++) {
        struct problem *p = given(scores[s], 10, 4, 2, true, "saturated both ways");
        for (int e = 0; e < 10; e++) {
            for (size_t t = 0; t < 2; t++)
                logit(p, t, e, (e % 2 ? -1 : 1) * size[t] * (1 + e / 64.0));
            p->bias[e] = e % 2 ? 1 : 0;
        }
        for (p->router.top_k = 1; p->router.top_k < 10; p->router.top_k++) expect_all(p);
        problem_free(p);
    }
}
END_TEST

/* The same at sizes whose exponentials MPFR cannot hold. sigma(l) + 0 < 1 < sigma(-l) + 1. */
START_TEST(corroborate_saturated_beyond_mpfr)
{
    static const int order[] = {1, 3, 5, 7, 8, 6, 4, 2, 0};
    struct problem *p = given(MR_SCORE_SIGMOID, 9, 4, 1, true, "saturated beyond MPFR");
    for (int e = 0; e < 9; e++) {
        logit(p, 0, e, (e % 2 ? -1 : 1) * 1e30 * (1 + e / 64.0));
        p->bias[e] = e % 2;
    }
    for (p->router.top_k = 1; p->router.top_k < 9; p->router.top_k++) {
        struct answers a;
        routed(&p->layer, NULL, &a);
        for (int i = 0; i < p->router.top_k; i++) ck_assert_int_eq(a.ids[i], order[i]);
        ck_assert_int_ne(a.certificate[0], MR_CERT_UNDECIDED);
        ck_assert_int_ne(a.certificate[0], MR_CERT_TIE);
        answers_free(&a);
    }
    problem_free(p);
}
END_TEST

START_TEST(corroborate_zero_and_negative_zero)
{
    for (int s = 0; s < 2; s++)
        for (int bias = 0; bias < 2; bias++) {
            struct problem *p = problem_new(scores[s], 9, 4, 33, 3, MR_BF16, MR_BF16, bias);
            p->name = "zeros";
            uint64_t state = 4;
            problem_fill(&p->layer.gate, 1, &state);
            for (size_t j = 0; j < 33; j++) {
                problem_set(&p->layer.hidden, 1, j, -0.0);
                problem_set(&p->layer.hidden, 2, j, j ? 0 : 1);
                problem_set(&p->layer.gate, 5, j, -0.0);
            }
            problem_set(&p->layer.gate, 6, 0, -0.0);
            problem_set(&p->layer.gate, 7, 0, 0.0);
            if (bias) p->bias[2] = -0.0;
            done(p);
        }
}
END_TEST

START_TEST(corroborate_subnormal_inputs)
{
    uint64_t state = 5;
    for (int x = 0; x < 3; x++)
        for (int c = 0; c < 4; c++) {
            double least = types[x] == MR_F16 ? 0x1p-24 : types[x] == MR_BF16 ? 0x1p-133 : 0x1p-149;
            struct problem *p = problem_normal(scores[c % 2], 12, 4, 64, 3, types[x], types[x],
                                               c / 2, &state, "subnormal");
            for (size_t t = 0; t < 2; t++)
                for (size_t j = 0; j < 64; j++)
                    problem_set(&p->layer.hidden, t, j,
                                least * (double)(routed_random(&state) % 9));
            for (size_t j = 0; j < 64; j++) /* small against small: products of 2^-298 */
                problem_set(&p->layer.gate, 3, j, least * (double)(j % 5));
            if (p->bias) memset(p->bias, 0, 12 * sizeof *p->bias);
            done(p);
        }
}
END_TEST

START_TEST(corroborate_k_of_every_size)
{
    uint64_t state = 6;
    for (int s = 0; s < 2; s++)
        for (int k = 1; k <= 9; k += 4)
            done(problem_normal(scores[s], 9, k, 20, 4, MR_BF16, MR_F32, k > 4, &state, "k"));
    for (int s = 0; s < 2; s++)
        done(problem_normal(scores[s], 1, 1, 20, 4, MR_BF16, MR_BF16, s, &state, "one expert"));
}
END_TEST

START_TEST(corroborate_experts_of_no_vector_width)
{
    uint64_t state = 7;
    for (int e = 1; e <= 40; e++)
        done(problem_normal(scores[e % 2], e, (e + 2) / 3, 17, 2, MR_F16, MR_BF16, e % 3 == 0,
                            &state, "experts 1..40"));
}
END_TEST

START_TEST(corroborate_1024_experts)
{
    uint64_t state = 8;
    for (int s = 0; s < 2; s++)
        done(problem_normal(scores[s], 1024, 32, 64, 1, MR_BF16, MR_BF16, s, &state,
                            "1024 experts"));
}
END_TEST

START_TEST(corroborate_hidden_sizes)
{
    uint64_t state = 9;
    static const int sizes[] = {1, 2, 255, 256, 257, 511, 513, 7168};
    for (int i = 0; i < 8; i++)
        for (int s = 0; s < 2; s++)
            done(problem_normal(scores[s], 10, 3, sizes[i], 2, types[i % 3], types[(i + s) % 3], s,
                                &state, "hidden size"));
}
END_TEST

START_TEST(corroborate_cancelling_bias)
{
    static const double size[] = {1e6, 3e15, 3e38};
    uint64_t state = 10;
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < 3; i++)
            for (int mixed = 0; mixed < 2; mixed++) {
                struct problem *p = problem_normal(scores[s], 16, 5, 40, 4, MR_BF16, MR_F32, true,
                                                   &state, "large bias");
                for (int e = 0; e < 16; e++)
                    p->bias[e] = (float)((mixed && e % 2 ? -1 : 1) * size[i]);
                done(p);
            }
}
END_TEST

/* Sums whose terms are far larger than the result: the filter knows nothing. */
START_TEST(corroborate_cancelling_logits)
{
    static const double size[] = {1e3, 1e7, 1e12, 1e18};
    uint64_t state = 12;
    for (int c = 0; c < 32; c++) {
        struct problem *p = problem_normal(scores[c % 2], 12, 4, 10, 2, MR_F32, MR_F32, c & 2,
                                           &state, "cancelling logits");
        p->router.norm_topk_prob = c & 4;
        struct mr_matrix *x = &p->layer.hidden, *g = &p->layer.gate;
        for (size_t t = 0; t < 2; t++)
            for (size_t j = 0; j < 4; j += 2) { /* pairs that cancel: x_1 = -x_0, w_1 = w_0 */
                double big = size[c / 8] * (t ? 1 : 1 + routed_uniform(&state));
                problem_set(x, t, j, big);
                problem_set(x, t, j + 1, -brute_element(x, t, j));
            }
        for (size_t e = 0; e < 12; e++)
            for (size_t j = 0; j < 4; j += 2) {
                problem_set(g, e, j, size[c / 8] * routed_normal(&state));
                problem_set(g, e, j + 1, brute_element(g, e, j));
            }
        done(p);
    }
}
END_TEST

/* Logits near 2^100 that differ in their lowest bits, which hi + lo does not hold. */
START_TEST(corroborate_logits_beyond_two_doubles)
{
    static const float frac[] = {0, 0.125f, 0.1250001f, 3, 0.1249999f, 2.5f, -1, 0.12500001f};
    for (int c = 0; c < 8; c++) {
        struct problem *p = problem_new(scores[c % 2], 8, 3, 3, 1, MR_F32, MR_F32, c & 2);
        p->name = "logits beyond two doubles";
        for (size_t j = 0; j < 3; j++)
            problem_set(&p->layer.hidden, 0, j, (double[]){0x1p50, 0x1p23, 1}[j]);
        for (size_t e = 0; e < 8; e++) {
            problem_set(&p->layer.gate, e, 0, c & 4 ? -0x1p50 : 0x1p50);
            problem_set(&p->layer.gate, e, 1, 0x1.8p23);
            problem_set(&p->layer.gate, e, 2, frac[e]);
            if (p->bias) p->bias[e] = 0x1p-20 * (double)(7 * e % 8);
        }
        done(p);
    }
}
END_TEST

START_TEST(corroborate_forms_of_the_weight)
{
    uint64_t state = 11;
    for (int c = 0; c < 8; c++) {
        struct problem *p = problem_normal(scores[c % 2], 20, 4, 48, 4, MR_F32, MR_F32, c & 2,
                                           &state, "form of the weight");
        p->router.norm_topk_prob = c & 4;
        p->router.routed_scaling_factor = c < 4 ? 2.827 : -0.1;
        done(p);
    }
}
END_TEST

Suite *suite_certify(void);
Suite *suite_certify(void)
{
    Suite *s = suite_create("certify");
    TCase *c = tcase_create("against brute force");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, corroborate_random_mixes);
    tcase_add_test(c, corroborate_ties_at_the_cut);
    tcase_add_test(c, corroborate_all_equal);
    tcase_add_test(c, corroborate_all_equal_but_the_bias);
    tcase_add_test(c, corroborate_logits_one_ulp_apart);
    tcase_add_test(c, corroborate_bias_makes_up_for_the_logit);
    tcase_add_test(c, corroborate_ties_in_fp32_only);
    tcase_add_test(c, corroborate_saturated);
    tcase_add_test(c, corroborate_saturated_both_ways);
    tcase_add_test(c, corroborate_saturated_beyond_mpfr);
    tcase_add_test(c, corroborate_zero_and_negative_zero);
    tcase_add_test(c, corroborate_subnormal_inputs);
    tcase_add_test(c, corroborate_k_of_every_size);
    tcase_add_test(c, corroborate_experts_of_no_vector_width);
    tcase_add_test(c, corroborate_1024_experts);
    tcase_add_test(c, corroborate_hidden_sizes);
    tcase_add_test(c, corroborate_cancelling_bias);
    tcase_add_test(c, corroborate_cancelling_logits);
    tcase_add_test(c, corroborate_logits_beyond_two_doubles);
    tcase_add_test(c, corroborate_forms_of_the_weight);
    suite_add_tcase(s, c);
    return s;
}
