#include "radius_cases.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

uint64_t case_state = 11;

int case_rounds(int few)
{
    return getenv("MOEREF_LONG") ? 40 * few : few;
}

double case_between(double a, double b)
{
    return a + (b - a) * kernel_uniform(&case_state);
}

int case_push(void)
{
    return (int)(kernel_random(&case_state) % 3) - 1;
}

struct mr_arith case_line(int i)
{
    return (struct mr_arith){.logits = (enum mr_type)(i % 3), .bias = (enum mr_type)(i / 3 % 2),
                             .scores = (enum mr_type)(i / 6 % 2),
                             .weights = (enum mr_type)(i / 12 % 3)};
}

float case_logit(void)
{
    static const double scale[] = {0.01, 1, 6, 20, 60};
    return (float)(case_between(-1, 1) * scale[kernel_random(&case_state) % 5]);
}

struct mr_radius_expert case_expert(float logit, double bias, double width)
{
    struct mr_radius_expert e = {.logit = logit, .bias = bias};
    e.dot = (struct mr_dot){.terms = 4096, .magnitude = width * (fabs(logit) + 1), .exact = true};
    return e;
}

float case_computed(const struct mr_error_model *m, const struct mr_radius_expert *e, int push)
{
    double r = mr_sum_radius(&m->sum, &e->dot, e->logit, 0);
    double x = e->logit + r * (push ? push : case_between(-1, 1));
    float f = (float)x;
    /* Not beyond the radius. */
    if (fabs(f - e->logit) > r) f = nextafterf(f, (float)e->logit);
    if (fabs(f - e->logit) > r) f = (float)e->logit;
    return kernel_narrow(m->arith.logits, f);
}

const enum mr_form case_form[KERNEL_SCORE_COUNT] = {MR_FORM_EXPF, MR_FORM_FAST, MR_FORM_TANH,
                                                    MR_FORM_FAST, MR_FORM_EXPF, MR_FORM_EXPF,
                                                    MR_FORM_EXPF};
const enum mr_sum_kind case_sums[4] = {MR_SUM_EXACT, MR_SUM_UNDECLARED, MR_SUM_FP32, MR_SUM_TENSOR};

void case_token(struct token *t, const struct mr_error_model *m, double spread, bool bias)
{
    for (int i = 0; i < CASE_EXPERTS; i++) {
        float l = (float)(case_between(-1, 1) * spread);
        t->e[i] = case_expert(l, bias ? (float)case_between(-0.1, 0.1) : 0, 8);
        t->logit[i] = l;
    }
    case_row(t, m);
}

void case_row(struct token *t, const struct mr_error_model *m)
{
    double most = 0;
    t->row = (struct mr_radius_row){.max = -HUGE_VAL, .z_error = 1e-14};
    for (int i = 0; i < CASE_EXPERTS; i++) {
        t->row.max = fmax(t->row.max, t->logit[i]);
        most = fmax(most, fabs(t->logit[i]));
    }
    for (int i = 0; i < CASE_EXPERTS; i++) t->row.z += exp(t->logit[i] - t->row.max);
    struct mr_radius_expert worst = case_expert((float)most, 0, 8);
    t->row.logit_radius = mr_logit_radius(m, &worst);
}

void case_inside(struct mr_interval k, double got, const char *what, double logit, double bias)
{
    ck_assert_msg(k.lo <= got && got <= k.hi,
                  "%s: logit %a, bias %a: %.17g is not in [%.17g, %.17g]", what, logit, bias, got,
                  k.lo, k.hi);
}
