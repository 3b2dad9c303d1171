/* Weights of the selected experts, as intervals.
 *
 * Renormalised: w_i = s_i / (sum of s + guard) * factor. s_i/(s_i + rest) grows with s_i and falls
 * with every other score, so its ends are at ends: a_i / (a_i + sum of b_j) and b_i / (b_i + sum of
 * a_j), over j != i, for s in [a, b]. A factor common to all scores (the softmax denominator)
 * cancels. The k scores are added in any order: (k - 1) u. Then, in whatever order the engine has
 * them (scale first, quotient first, 1/sum and a product): the guard's addition u, a quotient, one
 * product u, and the factor rounded to binary32 u, one more to spare. The guard 1e-20 only lowers a
 * weight; "sum > 0 ? sum : 1" gives 0 where the exact sum may be tiny, which a = 0 allows.
 * (s + bias) - bias in place of s, as vLLM's classic sqrt-softplus kernel has it, is not covered:
 * it is a fault. */
#include <math.h>

#include "radius_scores.h"
#include "score_error.h"

#define U 0x1p-24

static bool usable(const struct mr_interval *s, int k)
{
    for (int i = 0; i < k; i++)
        if (!isfinite(s[i].lo) || !isfinite(s[i].hi)) return false;
    return true;
}

/* In place: score intervals to weights that sum to one. */
static void normalise(const struct mr_error_model *m, double guard, struct mr_interval *s, int k)
{
    double low = 0, high = 0, eta = (k + 3) * U * (1 + 0x1p-10) + mr_quotient_error(m->form);
    for (int i = 0; i < k; i++) {
        low += s[i].lo;
        high += s[i].hi;
    }
    /* The sums, and what is left of them without one term, are within k 2^-52 of the largest. */
    double fuzz = (k + 4) * 0x1p-52;
    for (int i = 0; i < k; i++) {
        double others_low = fmax(low - s[i].lo - low * fuzz, 0);
        double others_high = high - s[i].hi + high * fuzz;
        double a = s[i].lo, b = s[i].hi;
        s[i].lo = a > 0 ? a / (a + others_high + guard) * (1 - eta) : 0;
        s[i].hi = b > 0 ? b / (b + others_low) * (1 + eta) : 0;
    }
}

/* If all scores underflow, their ratios are those of exp(logit), or of its root (sqrt-softplus):
 * what that leaves out is below e^-700, relatively. */
static void exact_weights(const struct mr_router *router, const struct mr_radius_row *row,
                          const struct mr_radius_expert *e, bool normalised, int k,
                          struct mr_weight *out)
{
    double sum = 0, most = -HUGE_VAL;
    for (int i = 0; i < k; i++) {
        out[i].exact = mr_score_value(router->score, row, e[i].logit);
        most = fmax(most, e[i].logit);
        sum += out[i].exact;
    }
    if (normalised && !(sum > 0x1p-1000)) {
        double power = router->score == MR_SCORE_SQRT_SOFTPLUS ? 0.5 : 1;
        sum = 0;
        for (int i = 0; i < k; i++) sum += out[i].exact = exp(power * (e[i].logit - most));
    }
    for (int i = 0; i < k; i++)
        out[i].exact =
            (normalised ? out[i].exact / sum : out[i].exact) * router->routed_scaling_factor;
}

/* Softmax over the selected alone is softmax over a row of them, with no type between it and the
 * normalisation; its scores are rounded to their type after it. */
static void after_topk(const struct mr_error_model *m, const struct mr_radius_row *row,
                       const struct mr_radius_expert *e, int k, struct mr_interval *s)
{
    double stretch = exp(row->logit_radius) * (1 + 0x1p-10);
    for (int i = 0; i < k; i++) {
        struct mr_interval l = mr_logit_interval(m, &e[i]);
        double below = fmax(row->max - l.lo, 0) + row->logit_radius;
        s[i] = isfinite(l.lo) && isfinite(l.hi)
                   ? mr_softmax_computed(m->form, l, row->max, 1, below, stretch)
                   : (struct mr_interval){0, HUGE_VAL};
    }
}

static struct mr_radius_row row_of(const struct mr_error_model *m, const struct mr_radius_expert *e,
                                   int k)
{
    struct mr_radius_row row = {.max = -HUGE_VAL, .z = 1};
    for (int i = 0; i < k; i++) {
        row.max = fmax(row.max, e[i].logit);
        row.logit_radius = fmax(row.logit_radius, mr_logit_radius(m, &e[i]));
    }
    return row;
}

/* A result below 2^-126 may be flushed. */
static struct mr_interval scaled(struct mr_interval s, double factor, bool rounds)
{
    double more = rounds ? 2 * U * (1 + 0x1p-10) : 0; /* factor to binary32, product */
    double a = mr_below(s.lo * (1 - more)) * factor, b = mr_above(s.hi * (1 + more)) * factor;
    if (fabs(a) < 0x1p-125) a = 0;
    return factor < 0 ? (struct mr_interval){b, a} : (struct mr_interval){a, b};
}

enum mr_status mr_weight_radius(const struct mr_error_model *m, const struct mr_router *router,
                                const struct mr_radius_row *row,
                                const struct mr_radius_expert *selected, int k,
                                struct mr_weight *out, struct mr_error *err)
{
    struct mr_interval s[MR_RADIUS_MOST];
    if (k < 0 || k > MR_RADIUS_MOST)
        return mr_fail(err, MR_ERR_UNSUPPORTED,
                       "weight radius: at most %d selected experts, "
                       "found %d",
                       MR_RADIUS_MOST, k);
    bool softmax = router->score == MR_SCORE_SOFTMAX;
    bool after = softmax && router->selection == MR_SELECT_LOGIT;
    bool normalised = router->norm_topk_prob || after;
    struct mr_radius_row own;
    double guard = after ? 0 : m->guard;
    if (after) {
        own = row_of(m, selected, k);
        row = &own;
        after_topk(m, row, selected, k, s);
    } else if (softmax) {
        struct mr_interval f = mr_row_factor(m, router, row);
        guard /= f.lo; /* scores lack that factor */
        for (int i = 0; i < k; i++) {
            s[i] = mr_row_score(m, row, f, &selected[i]);
            if (!normalised)
                s[i] = (struct mr_interval){mr_below(s[i].lo * f.lo), mr_above(s[i].hi * f.hi)};
        }
    } else {
        for (int i = 0; i < k; i++) s[i] = mr_score_interval(m, router->score, &selected[i]);
    }
    exact_weights(router, row, selected, normalised, k, out);
    bool good = usable(s, k);
    if (good && normalised) normalise(m, guard, s, k);
    for (int i = 0; i < k; i++) {
        if (after && good && m->arith.scores != MR_TYPE_FP32)
            s[i] = mr_interval_rounded(m->arith.scores, s[i]);
        struct mr_interval w = scaled(s[i], router->routed_scaling_factor,
                                      (!normalised || after) && router->routed_scaling_factor != 1);
        if (m->arith.weights != MR_TYPE_FP32) w = mr_interval_rounded(m->arith.weights, w);
        out[i].computed = good ? w : (struct mr_interval){-HUGE_VAL, HUGE_VAL};
    }
    return MR_OK;
}
