/* Keys and pairs of kernels lie within their intervals. Kernels: support/radius_kernels.c, pushed
 * to the ends of what their sums and functions may do; truth: MPFR at 256 bits. */
#include <check.h>
#include <math.h>
#include <stdio.h>

#include "support/radius_cases.h"
#include "support/radius_truth.h"

START_TEST(verify_keys_without_shared_sums)
{
    static const double offset[] = {0, 0, 2, 8.08, 12, 35, -3};
    double best[4][KERNEL_SCORE_COUNT] = {{0}}, tails = 0;
    for (int trial = 0; trial < case_rounds(15000); trial++) {
        struct mr_arith a = case_line(trial % CASE_LINES);
        struct mr_error_model m = mr_error_model(&a);
        int kind = (int)(kernel_random(&case_state) % 4);
        m.sum.kind = case_sums[kind];
        enum kernel_score which = kernel_random(&case_state) % KERNEL_SCORE_COUNT;
        bool narrow = kernel_random(&case_state) & 1;
        if (narrow) m.form = case_form[which];
        struct mr_router r = {.score = which < KERNEL_SOFTPLUS_CLASSIC ? MR_SCORE_SIGMOID
                                                                       : MR_SCORE_SQRT_SOFTPLUS};
        r.bias = kernel_random(&case_state) % 4 > 0;
        /* One draw a statement: C leaves the order of arguments to the compiler. */
        double bias = 0;
        if (r.bias) {
            bias = offset[kernel_random(&case_state) % 7];
            bias = (float)(bias + case_between(-0.2, 0.2));
        }
        double magnitude = case_between(1, 30), logit = case_logit();
        struct mr_radius_expert e = case_expert(logit, bias, magnitude);
        int push = case_push();
        float l = case_computed(&m, &e, push);
        float s = kernel_narrow(a.scores, kernel_score(which, l, push, &case_state));
        float key = r.bias ? s + kernel_narrow(a.bias, (float)bias) : s;
        struct mr_interval k = mr_key_interval(&m, &r, NULL, &e);
        case_inside(k, key, r.score == MR_SCORE_SIGMOID ? "sigmoid" : "sqrt-softplus", e.logit,
                    bias);
        double radius = mr_key_radius(&m, &r, NULL, &e);
        double ratio = truth_key_error(r.score, e.logit, bias, key) / radius;
        ck_assert_double_le(ratio, 1);
        bool plain = a.logits == MR_TYPE_FP32 && a.scores == MR_TYPE_FP32 && a.bias == MR_TYPE_FP32;
        if (plain && narrow && !r.bias) best[kind][which] = fmax(best[kind][which], ratio);
        if (e.logit < -12) tails = fmax(tails, ratio);
    }
    for (int k = 0; k < 4; k++)
        for (int w = 0; w < KERNEL_SCORE_COUNT; w++)
            if (case_sums[k] != MR_SUM_EXACT) ck_assert_double_gt(best[k][w], 0.9);
    ck_assert_double_gt(tails, 0.5);
}
END_TEST

/* Given logits: the score functions alone, against the bound of their own form and of all forms. */
START_TEST(verify_score_forms)
{
    for (int which = 0; which < KERNEL_SCORE_COUNT; which++) {
        struct mr_error_model m = mr_error_model(NULL);
        struct mr_router r = {.score = which < KERNEL_SOFTPLUS_CLASSIC ? MR_SCORE_SIGMOID
                                                                       : MR_SCORE_SQRT_SOFTPLUS};
        double best[2] = {0};
        m.sum.kind = MR_SUM_EXACT;
        for (int trial = 0; trial < case_rounds(1500); trial++) {
            struct mr_radius_expert e = case_expert(case_logit(), 0, 1);
            float s =
                kernel_score((enum kernel_score)which, (float)e.logit, case_push(), &case_state);
            double error = truth_key_error(r.score, e.logit, 0, s);
            for (int any = 0; any < 2; any++) {
                m.form = any ? MR_FORM_ANY : case_form[which];
                case_inside(mr_key_interval(&m, &r, NULL, &e), s, "score", e.logit, 0);
                best[any] = fmax(best[any], error / mr_key_radius(&m, &r, NULL, &e));
            }
        }
        fprintf(stderr, "%s%.2f|%.2f%s",
                which ? " " : "radius: score forms, own bound|widest: ", best[0], best[1],
                which + 1 == KERNEL_SCORE_COUNT ? "\n" : "");
        ck_assert_double_gt(best[0], 0.25);
        ck_assert_double_gt(best[1], 0.1);
    }
}
END_TEST

/* Given logits, correctly rounded functions: the interval is the emulated key itself. */
START_TEST(corroborate_rounded_form_is_a_point)
{
    int points = 0, all = case_rounds(5000);
    for (int trial = 0; trial < all; trial++) {
        struct mr_arith a = case_line(trial % 12);
        struct mr_error_model m = mr_error_model(&a);
        m.sum.kind = MR_SUM_EXACT;
        m.form = MR_FORM_ROUNDED;
        struct mr_router r = {.score = trial % 2 ? MR_SCORE_SIGMOID : MR_SCORE_SQRT_SOFTPLUS,
                              .bias = true};
        float bias = (float)case_between(-2, 9);
        struct mr_radius_expert e = case_expert(case_logit(), bias, 1);
        float l = kernel_narrow(a.logits, (float)e.logit);
        double score = truth_score(r.score, l);
        float s = a.scores == MR_TYPE_FP32 ? (float)score
                                           : kernel_narrow(a.scores, truth_odd(r.score, l));
        float key = s + kernel_narrow(a.bias, bias);
        struct mr_interval k = mr_key_interval(&m, &r, NULL, &e);
        case_inside(k, key, "rounded", e.logit, bias);
        points += !(k.lo < k.hi);
    }
    ck_assert_int_ge(points, all - all / 1000);
}
END_TEST

/* A pair made close, so that rounding may reverse it: never unexcused; and the widest difference
 * that was reversed comes close to the radius. */
START_TEST(verify_softmax_keys_and_pairs)
{
    double best[2] = {0}, given[2] = {0}, key_best = 0;
    for (int trial = 0; trial < case_rounds(4000); trial++) {
        struct mr_arith a = case_line(trial % 12);
        struct mr_error_model m = mr_error_model(&a);
        m.sum.kind = case_sums[kernel_random(&case_state) % 4];
        bool fast = kernel_random(&case_state) & 1, reciprocal = kernel_random(&case_state) & 1;
        if (kernel_random(&case_state) & 1) m.form = fast ? MR_FORM_FAST : MR_FORM_EXPF;
        struct mr_router r = {.score = MR_SCORE_SOFTMAX,
                              .experts = CASE_EXPERTS,
                              .bias = kernel_random(&case_state) & 1};
        struct token t;
        case_token(&t, &m, trial % 3 ? 3 : 40, r.bias);
        int i = (int)(kernel_random(&case_state) % CASE_EXPERTS), j = (i + 1) % CASE_EXPERTS;
        double shift = kernel_random(&case_state) % 3
                           ? case_between(0, 2.5) * mr_logit_radius(&m, &t.e[i])
                           : case_between(0, 20) * 0x1p-24 * fabs(t.logit[i]);
        float lj = (float)(t.logit[i] - shift);
        /* With a bias: the scores may be far apart, and biases bring the keys together. */
        bool apart = r.bias && trial % 2;
        if (!apart) t.e[j].logit = t.logit[j] = lj;
        case_row(&t, &m);
        if (r.bias) t.e[j].bias = t.e[i].bias;
        if (apart) {
            double by = mr_pair_radius(&m, &r, &t.row, &t.e[i], &t.e[j]).difference;
            double close = mr_key_radius(&m, &r, &t.row, &t.e[i]) * case_between(0, 1.5);
            t.e[j].bias = (float)(t.e[i].bias + by - close);
        }
        float l[CASE_EXPERTS], s[CASE_EXPERTS], key[CASE_EXPERTS];
        int push = case_push();
        for (int e = 0; e < CASE_EXPERTS; e++)
            l[e] = case_computed(&m, &t.e[e], e == i ? -1 : e == j ? 1 : push);
        kernel_softmax(l, CASE_EXPERTS, fast, reciprocal, (size_t)i, -1, s, &case_state);
        for (int e = 0; e < CASE_EXPERTS; e++) {
            s[e] = kernel_narrow(a.scores, s[e]);
            key[e] = r.bias ? s[e] + kernel_narrow(a.bias, (float)t.e[e].bias) : s[e];
            case_inside(mr_key_interval(&m, &r, &t.row, &t.e[e]), key[e], "softmax", t.logit[e],
                        t.e[e].bias);
        }
        double error = truth_softmax_error(t.logit, CASE_EXPERTS, i, t.e[i].bias, key[i]);
        double radius = mr_key_radius(&m, &r, &t.row, &t.e[i]);
        ck_assert_double_le(error, radius);
        key_best = fmax(key_best, error / radius);
        struct mr_pair pair = mr_pair_radius(&m, &r, &t.row, &t.e[i], &t.e[j]);
        ck_assert_msg(pair.excused || key[i] > key[j], "softmax pair: difference %g, radius %g",
                      pair.difference, pair.radius);
        ck_assert_int_eq(pair.excused, pair.difference <= pair.radius);
        if (!(key[i] < key[j])) continue;
        double ratio = pair.difference / pair.radius;
        best[r.bias] = fmax(best[r.bias], ratio);
        if (m.sum.kind == MR_SUM_EXACT && a.logits == MR_TYPE_FP32 && a.scores == MR_TYPE_FP32)
            given[r.bias] = fmax(given[r.bias], ratio);
    }
    fprintf(stderr,
            "radius: softmax keys %.2f, reversed pairs %.2f, with a bias %.2f; given logits "
            "%.2f, %.2f\n",
            key_best, best[0], best[1], given[0], given[1]);
    ck_assert_double_gt(key_best, 1 / 2.);
    ck_assert_double_gt(fmin(best[0], best[1]), 1 / 2.);
}
END_TEST

/* The bound for all experts of a row. */
START_TEST(verify_logit_radius)
{
    for (int trial = 0; trial < case_rounds(4000); trial++) {
        struct mr_arith a = case_line(trial % 3);
        struct mr_error_model m = mr_error_model(&a);
        m.sum.kind = case_sums[kernel_random(&case_state) % 4];
        double magnitude = case_between(1, 30), logit = case_logit();
        struct mr_radius_expert e = case_expert(logit, 0, magnitude), larger = e;
        struct mr_interval l = mr_logit_interval(&m, &e);
        double r = mr_logit_radius(&m, &e);
        ck_assert_double_le(fmax(e.logit - l.lo, l.hi - e.logit), r);
        larger.logit *= -case_between(1, 2);
        larger.dot.magnitude *= case_between(1, 2);
        ck_assert_double_le(r, mr_logit_radius(&m, &larger));
        struct mr_router by_logit = {.score = MR_SCORE_SOFTMAX, .selection = MR_SELECT_LOGIT};
        case_inside(mr_key_interval(&m, &by_logit, NULL, &e), case_computed(&m, &e, case_push()),
                    "logit", e.logit, 0);
    }
}
END_TEST

/* Group scores of computed keys at the ends of their intervals and between. */
START_TEST(verify_groups)
{
    for (int trial = 0; trial < case_rounds(2000); trial++) {
        size_t n = 2 + kernel_random(&case_state) % 31;
        struct mr_interval k[33];
        float got[33], first = -HUGE_VALF, second = -HUGE_VALF;
        for (size_t i = 0; i < n; i++) {
            k[i].lo = (float)case_between(-1, 1);
            k[i].hi = (float)(k[i].lo + case_between(0, 0.3));
            double at[] = {k[i].lo, k[i].hi, case_between(k[i].lo, k[i].hi)};
            got[i] = (float)at[kernel_random(&case_state) % 3];
            if (got[i] > first)
                second = first, first = got[i];
            else if (got[i] > second)
                second = got[i];
        }
        case_inside(mr_group_interval(MR_GROUP_TOP2_SUM, k, n), first + second, "top-2 sum", 0, 0);
        case_inside(mr_group_interval(MR_GROUP_MAX, k, n), first, "max", 0, 0);
        for (size_t i = 0; i < n; i++) k[i].lo = k[i].hi = got[i];
        struct mr_interval sum = mr_group_interval(MR_GROUP_TOP2_SUM, k, n);
        ck_assert_float_eq((float)sum.lo, first + second);
        ck_assert_float_eq((float)sum.hi, first + second);
    }
}
END_TEST

Suite *suite_radius_keys(void);
Suite *suite_radius_keys(void)
{
    Suite *s = suite_create("radius_keys");
    TCase *c = tcase_create("keys");
    tcase_set_timeout(c, 600);
    tcase_add_test(c, verify_keys_without_shared_sums);
    tcase_add_test(c, verify_score_forms);
    tcase_add_test(c, corroborate_rounded_form_is_a_point);
    tcase_add_test(c, verify_softmax_keys_and_pairs);
    tcase_add_test(c, verify_logit_radius);
    tcase_add_test(c, verify_groups);
    suite_add_tcase(s, c);
    return s;
}
