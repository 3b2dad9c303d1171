/* Weights of kernels lie within their intervals; as test_radius_keys.c. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/radius_cases.h"
#include "support/radius_truth.h"

static float weigh(int rule, float s, float sum, float factor)
{
    switch (rule) {
    case 0: return s * (factor / sum);
    case 1: return s * factor / (sum + 1e-20f);
    case 2: return s / (sum + 1e-20f) * factor;
    case 3: return (float)((double)s * factor / ((double)sum + 1e-20));
    default: return s * (1.0f / fmaxf(sum, 1e-20f)) * factor;
    }
}

START_TEST(verify_weights)
{
    static const double factors[] = {1, 2.5, 2.827, 0.3};
    double best[3][2] = {{0}}, given[3][2] = {{0}};
    for (int trial = 0; trial < case_rounds(3000); trial++) {
        struct mr_arith a = case_line(trial % CASE_LINES);
        struct mr_error_model m = mr_error_model(&a);
        m.sum.kind = case_sums[kernel_random(&case_state) % 4];
        struct mr_router r = {.experts = CASE_EXPERTS,
                              .score = (enum mr_score)(trial / CASE_LINES % 3),
                              .selection = (enum mr_selection)(trial / CASE_LINES / 3 % 2),
                              .norm_topk_prob = trial / CASE_LINES / 6 % 2,
                              .routed_scaling_factor = factors[kernel_random(&case_state) % 4]};
        bool softmax = r.score == MR_SCORE_SOFTMAX,
             after = softmax && r.selection == MR_SELECT_LOGIT;
        struct token t;
        double spread[] = {3, 3, 12, 40};
        case_token(&t, &m, spread[kernel_random(&case_state) % 4], false);
        int k = 1 + (int)(kernel_random(&case_state) % 12), push = case_push();
        bool fast = kernel_random(&case_state) & 1;
        enum kernel_score which = r.score == MR_SCORE_SIGMOID
                                      ? kernel_random(&case_state) % 3
                                      : KERNEL_SOFTPLUS_CLASSIC + kernel_random(&case_state) % 4;
        if (kernel_random(&case_state) & 1)
            m.form = !softmax ? case_form[which] : fast ? MR_FORM_FAST : MR_FORM_EXPF;
        float l[CASE_EXPERTS], s[CASE_EXPERTS], sum = 0;
        for (int e = 0; e < CASE_EXPERTS; e++) l[e] = case_computed(&m, &t.e[e], e ? -push : push);
        if (softmax) {
            kernel_softmax(l, after ? (size_t)k : CASE_EXPERTS, fast,
                           kernel_random(&case_state) & 1, 0, push, s, &case_state);
        } else {
            for (int e = 0; e < k; e++)
                s[e] = kernel_score(which, l[e], e ? -push : push, &case_state);
        }
        for (int e = 0; e < k; e++) {
            s[e] = kernel_narrow(a.scores, s[e]);
            sum += s[e];
        }
        bool divide = r.norm_topk_prob && !after;
        if (divide && !(sum > 0x1p-126f)) continue; /* 0/0 and flushes: not numbers to judge */
        struct mr_weight w[CASE_EXPERTS];
        ck_assert(!mr_weight_radius(&m, &r, &t.row, t.e, k, w, NULL));
        int rule = (int)(kernel_random(&case_state) % 5);
        for (int e = 0; e < k; e++) {
            float factor = (float)r.routed_scaling_factor;
            float got =
                kernel_narrow(a.weights, divide ? weigh(rule, s[e], sum, factor) : s[e] * factor);
            case_inside(w[e].computed, got, "weight", t.logit[e], 0);
            double exact = truth_weight(&r, t.logit, CASE_EXPERTS, e, k);
            ck_assert_double_eq_tol(w[e].exact, exact, 1e-13 * exact + 1e-300);
            double radius = fmax(exact - w[e].computed.lo, w[e].computed.hi - exact);
            bool plain = m.sum.kind == MR_SUM_EXACT && a.logits == MR_TYPE_FP32 &&
                         a.scores == MR_TYPE_FP32 && a.weights == MR_TYPE_FP32;
            double *b = &(plain ? given : best)[r.score][r.norm_topk_prob || after];
            if (radius > 0) *b = fmax(*b, fabs(got - exact) / radius);
        }
    }
    for (int s = 0; s < 3; s++)
        for (int n = 0; n < 2; n++) {
            fprintf(stderr, "%s%.2f (%.2f)%s",
                    s + n ? " " : "radius: weights by score, plain and normalised (given logits): ",
                    best[s][n], given[s][n], s + n == 3 ? "\n" : "");
            ck_assert_double_gt(best[s][n], 0.8);
            ck_assert_double_gt(given[s][n], 0.1);
        }
}
END_TEST

/* Logits so low that every binary64 score underflows, and one that is not. */
START_TEST(verify_tails_of_exact_weights)
{
    struct mr_error_model m = mr_error_model(NULL);
    m.sum.kind = MR_SUM_EXACT;
    struct mr_radius_row row = {.max = 10, .z = 1, .logit_radius = 1e-6};
    for (int s = 0; s < 3; s++)
        for (int shift = 0; shift <= 2000; shift += 250) {
            struct mr_router r = {.experts = CASE_EXPERTS,
                                  .score = (enum mr_score)s,
                                  .norm_topk_prob = true,
                                  .routed_scaling_factor = 2};
            struct mr_radius_expert e[2] = {case_expert(-(float)shift, 0, 1),
                                            case_expert(-(float)shift - 1, 0, 1)};
            double logits[] = {e[0].logit, e[1].logit};
            struct mr_weight w[2];
            ck_assert(!mr_weight_radius(&m, &r, &row, e, 2, w, NULL));
            for (int i = 0; i < 2; i++) {
                double exact = truth_weight(&r, logits, 2, i, 2);
                ck_assert_double_eq_tol(w[i].exact, exact, 1e-13);
                case_inside(w[i].computed, exact, "tail", logits[i], 0);
            }
        }
}
END_TEST

/* Fp16 overflow, Inf in, too many: no crash, nothing promised. */
START_TEST(reject_overflow)
{
    struct mr_arith a = {.logits = MR_TYPE_FP16};
    struct mr_error_model m = mr_error_model(&a);
    struct mr_radius_expert e[2] = {case_expert(70000, 0, 1), case_expert(1, 0, 1)};
    struct mr_radius_row row = {.max = 70000, .z = 1, .logit_radius = mr_logit_radius(&m, e)};
    struct mr_router r = {.experts = 2,
                          .score = MR_SCORE_SOFTMAX,
                          .norm_topk_prob = true,
                          .routed_scaling_factor = 1};
    struct mr_weight w[2];
    ck_assert(isinf(row.logit_radius));
    for (int after = 0; after < 2; after++) {
        r.selection = after ? MR_SELECT_LOGIT : MR_SELECT_SCORE;
        ck_assert(!mr_weight_radius(&m, &r, &row, e, 2, w, NULL));
        ck_assert(isinf(w[0].computed.hi) && isinf(w[0].computed.lo));
        struct mr_pair p = mr_pair_radius(&m, &r, &row, &e[1], &e[0]);
        ck_assert(p.excused);
    }
    r.score = MR_SCORE_SIGMOID;
    ck_assert(!mr_weight_radius(&m, &r, NULL, e, 2, w, NULL));
    struct mr_error err;
    ck_assert_int_eq(mr_weight_radius(&m, &r, NULL, e, MR_RADIUS_MOST + 1, w, &err),
                     MR_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "1025"));
}
END_TEST

Suite *suite_radius_weights(void);
Suite *suite_radius_weights(void)
{
    Suite *s = suite_create("radius_weights");
    TCase *c = tcase_create("weights");
    tcase_set_timeout(c, 600);
    tcase_add_test(c, verify_weights);
    tcase_add_test(c, verify_tails_of_exact_weights);
    tcase_add_test(c, reject_overflow);
    suite_add_tcase(s, c);
    return s;
}
