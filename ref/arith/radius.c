/* Intervals from logit to key. Each step takes the interval of what was computed so far and gives
 * that of the next computed value; a rounding to nearest maps ends to ends. */
#include "radius.h"

#include <math.h>

#include "../num/num.h"
#include "cuda.h"
#include "radius_scores.h"
#include "score_error.h"

/* The form that bounds what a score:NAME computes. */
static enum mr_form form_of(mr_score_word word)
{
    if (!word) return MR_FORM_ANY;
    if (word < 0) return MR_FORM_EXPF;
    switch ((enum mr_cuda_id)(word - 1)) {
    case MR_CUDA_SIGMOID:
    case MR_CUDA_SIGMOID_FTZ:
    case MR_CUDA_ROOT_LOG1PF:
    case MR_CUDA_ROOT_TORCH:
    case MR_CUDA_ROOT_FMAXF: return MR_FORM_EXPF;
    case MR_CUDA_SIGMOID_TANHF:
    case MR_CUDA_SIGMOID_TANHF_FTZ: return MR_FORM_TANH;
    case MR_CUDA_SIGMOID_TANHF_FAST: return MR_FORM_TANH_FAST;
    default: return MR_FORM_FAST;
    }
}

struct mr_error_model mr_error_model(const struct mr_arith *declared)
{
    struct mr_error_model m = {.sum = mr_sum_default, .form = MR_FORM_ANY, .guard = 1e-20};
    if (declared) m.arith = *declared;
    m.form = form_of(m.arith.score);
    return m;
}

static const struct mr_format *format_of(enum mr_type type)
{
    return type == MR_TYPE_BF16   ? &mr_format_bf16
           : type == MR_TYPE_FP16 ? &mr_format_fp16
                                  : &mr_format_fp32;
}

double mr_rounded_to(enum mr_type type, double x)
{
    return isfinite(x) ? mr_round_sum(x, 0, format_of(type)) : x;
}

struct mr_interval mr_interval_rounded(enum mr_type type, struct mr_interval x)
{
    return (struct mr_interval){mr_rounded_to(type, x.lo), mr_rounded_to(type, x.hi)};
}

/* The largest rounding error to type of a value of at most |x|: half a unit in the last place. */
double mr_half_ulp(enum mr_type type, double x)
{
    const struct mr_format *f = format_of(type);
    int e;
    if (!(fabs(x) <= f->largest)) return HUGE_VAL;
    frexp(x, &e); /* |x| < 2^e */
    return ldexp(1, (x == 0 || e - 1 < f->emin ? f->emin : e - 1) - f->precision);
}

/* The sum is a binary32 number within its radius, perhaps rounded again; EXACT rounds the exact sum
 * straight to the type. An exact logit that lies on a rounding boundary keeps its one rounding:
 * hence no widening there. */
struct mr_interval mr_logit_interval(const struct mr_error_model *m,
                                     const struct mr_radius_expert *e)
{
    double r = mr_sum_radius(&m->sum, &e->dot, e->logit, e->error) + e->error;
    struct mr_interval x = {e->logit, e->logit};
    if (r > 0) x = (struct mr_interval){mr_below(x.lo - r), mr_above(x.hi + r)};
    if (m->sum.kind != MR_SUM_EXACT && m->arith.logits == MR_TYPE_FP32) return x;
    return mr_interval_rounded(m->arith.logits, x);
}

double mr_logit_radius(const struct mr_error_model *m, const struct mr_radius_expert *e)
{
    double r = mr_sum_radius(&m->sum, &e->dot, e->logit, e->error) + e->error;
    double most = fabs(e->logit) + r;
    if (m->sum.kind == MR_SUM_EXACT || m->arith.logits != MR_TYPE_FP32)
        r += mr_half_ulp(m->arith.logits, mr_above(most));
    return mr_above(r + most * 0x1p-47);
}

/* What a row's computed denominator does to all its scores, as factors of the exact ones. */
struct mr_interval mr_row_factor(const struct mr_error_model *m, const struct mr_router *router,
                                 const struct mr_radius_row *row)
{
    double s = mr_softmax_sum_error(m->form, router->experts) + 0x1p-48, r = row->logit_radius;
    return (struct mr_interval){exp(-r) * (1 - s) / (1 + row->z_error),
                                exp(r) / (1 - s) / (1 - row->z_error)};
}

static bool over_all_experts(const struct mr_router *router)
{
    return router->selection == MR_SELECT_SCORE && router->score == MR_SCORE_SOFTMAX;
}

/* Softmax over all experts: the score before the factor that the row shares, which lies in
 * `factor`. A rounding to a narrow type sees the score with its factor, and errs by at most half a
 * unit of the largest; binary32 has its own rounding among the errors of the form, unless that is
 * ROUNDED. */
struct mr_interval mr_row_score(const struct mr_error_model *m, const struct mr_radius_row *row,
                                struct mr_interval factor, const struct mr_radius_expert *e)
{
    struct mr_interval l = mr_logit_interval(m, e);
    if (!isfinite(l.lo) || !isfinite(l.hi)) return (struct mr_interval){0, HUGE_VAL};
    double below = fmax(row->max - l.lo, 0) + row->logit_radius;
    struct mr_interval s = mr_softmax_computed(m->form, l, row->max, row->z, below, 1 / factor.lo);
    if (m->arith.scores == MR_TYPE_FP32 && m->form != MR_FORM_ROUNDED) return s;
    double h = mr_half_ulp(m->arith.scores, s.hi * factor.hi) / factor.lo;
    return (struct mr_interval){fmax(s.lo - h, 0), s.hi + h};
}

struct mr_interval mr_score_interval(const struct mr_error_model *m, enum mr_score score,
                                     const struct mr_radius_expert *e)
{
    struct mr_interval l = mr_logit_interval(m, e);
    l = score == MR_SCORE_SIGMOID ? mr_sigmoid_computed(m->form, l)
                                  : mr_sqrt_softplus_computed(m->form, l);
    /* ROUNDED rounds the exact score once, to its type; else a binary32 number, whose rounding is
     * among the errors of the form, may be rounded again. */
    if (m->form != MR_FORM_ROUNDED && m->arith.scores == MR_TYPE_FP32) return l;
    return mr_interval_rounded(m->arith.scores, l);
}

static double stored_bias(const struct mr_error_model *m, const struct mr_router *router,
                          const struct mr_radius_expert *e)
{
    return router->bias ? mr_rounded_to(m->arith.bias, e->bias) : 0;
}

/* Score and bias are added in binary32, rounded once. */
static struct mr_interval add_bias(struct mr_interval s, double bias)
{
    struct mr_interval k = {mr_below(s.lo + bias), mr_above(s.hi + bias)};
    /* The exact sum of a point and a bias, both binary32, has one rounding. */
    if (!(s.lo < s.hi)) k = (struct mr_interval){s.lo + bias, s.hi + bias};
    return mr_interval_rounded(MR_TYPE_FP32, k);
}

struct mr_interval mr_key_interval(const struct mr_error_model *m, const struct mr_router *router,
                                   const struct mr_radius_row *row,
                                   const struct mr_radius_expert *e)
{
    if (router->selection == MR_SELECT_LOGIT) return mr_logit_interval(m, e);
    struct mr_interval s;
    if (router->score == MR_SCORE_SOFTMAX) {
        struct mr_interval f = mr_row_factor(m, router, row);
        s = mr_row_score(m, row, f, e);
        s = (struct mr_interval){mr_below(s.lo * f.lo), mr_above(s.hi * f.hi)};
    } else {
        s = mr_score_interval(m, router->score, e);
    }
    return router->bias ? add_bias(s, stored_bias(m, router, e)) : s;
}

double mr_score_value(enum mr_score score, const struct mr_radius_row *row, double logit)
{
    switch (score) {
    case MR_SCORE_SIGMOID: return mr_sigmoid_value(logit);
    case MR_SCORE_SQRT_SOFTPLUS: return sqrt(mr_softplus_value(logit));
    case MR_SCORE_SOFTMAX: break;
    }
    return exp(logit - row->max) / row->z;
}

double mr_key_value(const struct mr_router *router, const struct mr_radius_row *row,
                    const struct mr_radius_expert *e)
{
    if (router->selection == MR_SELECT_LOGIT) return e->logit;
    return mr_score_value(router->score, row, e->logit) + (router->bias ? e->bias : 0);
}

double mr_key_radius(const struct mr_error_model *m, const struct mr_router *router,
                     const struct mr_radius_row *row, const struct mr_radius_expert *e)
{
    struct mr_interval k = mr_key_interval(m, router, row, e);
    double v = mr_key_value(router, row, e);
    return mr_above(fmax(v - k.lo, k.hi - v)) + (fabs(v) + fabs(e->bias)) * 0x1p-48;
}

/* The least that the computed key of a can be above that of b. Over all experts, keys are
 * f s_a + b_a and f s_b + b_b with one f: s_a - s_b is stretched, not shifted, by f's error.
 * Without a bias only its sign counts. */
static double least_difference(const struct mr_error_model *m, const struct mr_router *router,
                               const struct mr_radius_row *row, const struct mr_radius_expert *a,
                               const struct mr_radius_expert *b)
{
    if (!over_all_experts(router))
        return mr_key_interval(m, router, row, a).lo - mr_key_interval(m, router, row, b).hi;
    struct mr_interval f = mr_row_factor(m, router, row);
    struct mr_interval s = mr_row_score(m, row, f, a), t = mr_row_score(m, row, f, b);
    double d = s.lo - t.hi;
    if (!router->bias) return d;
    double x = stored_bias(m, router, a), y = stored_bias(m, router, b);
    double h = mr_half_ulp(MR_TYPE_FP32, fabs(x) + s.hi * f.hi) +
               mr_half_ulp(MR_TYPE_FP32, fabs(y) + t.hi * f.hi);
    double least = fmin(f.lo * d, f.hi * d) + (x - y) - h;
    return least - (fabs(d) + fabs(x) + fabs(y)) * 0x1p-48;
}

struct mr_pair mr_pair_radius(const struct mr_error_model *m, const struct mr_router *router,
                              const struct mr_radius_row *row,
                              const struct mr_radius_expert *omitted,
                              const struct mr_radius_expert *included)
{
    double difference = mr_key_value(router, row, omitted) - mr_key_value(router, row, included);
    double least = least_difference(m, router, row, omitted, included);
    return (struct mr_pair){difference, difference - least, least <= 0};
}

/* Both rules grow with every key; the sum of two binary32 keys is rounded once. */
struct mr_interval mr_group_interval(enum mr_group_score rule, const struct mr_interval *keys,
                                     size_t n)
{
    struct mr_interval first = {-HUGE_VAL, -HUGE_VAL}, second = first;
    for (size_t i = 0; i < n; i++) {
        second.lo = fmax(second.lo, fmin(first.lo, keys[i].lo));
        second.hi = fmax(second.hi, fmin(first.hi, keys[i].hi));
        first.lo = fmax(first.lo, keys[i].lo);
        first.hi = fmax(first.hi, keys[i].hi);
    }
    if (rule == MR_GROUP_MAX) return first;
    struct mr_interval sum = {first.lo + second.lo, first.hi + second.hi};
    if (first.lo < first.hi || second.lo < second.hi)
        sum = (struct mr_interval){mr_below(sum.lo), mr_above(sum.hi)};
    return mr_interval_rounded(MR_TYPE_FP32, sum);
}
