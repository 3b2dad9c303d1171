#include "token_source.h"

#include "../num/num.h"

static const void *gate_row(const struct mr_gate *g, int expert)
{
    size_t row = g->stored.cols * (mr_dtype_bits(g->stored.dtype) / 8);
    return (const char *)g->stored.data + (size_t)expert * row;
}

static enum mr_status by_bins(const struct mr_token_source *s, int expert, mpfr_t out)
{
    return mr_bins_dot(s->hidden, s->dtype, gate_row(s->gate, expert), s->gate->stored.dtype,
                       s->gate->stored.cols, out);
}

/* The dot product and the bias, if there is one: 2200 bits hold sums of products of binary32
 * numbers and a binary32 number. */
static enum mr_status whole_logit(const struct mr_token_source *s, int expert, mpfr_t out)
{
    enum mr_status status = by_bins(s, expert, out);
    if (status || !s->gate_bias) return status;
    mpfr_prec_round(out, 2200, MPFR_RNDN);
    mpfr_add_d(out, out, s->gate_bias[expert], MPFR_RNDN);
    return MR_OK;
}

static enum mr_status exact_by_bins(const struct mr_token_source *s, bool whole, struct mr_key *key)
{
    mpfr_t value;
    mpfr_init2(value, 64);
    enum mr_status status = (whole ? whole_logit : by_bins)(s, key->expert, value);
    if (!status) key->logit = mr_exact_from_mpfr(value);
    mpfr_clear(value);
    return status;
}

/* Four keys whose dots are plain sums. */
static void plain_dots(const struct mr_token_source *s, struct mr_key **key)
{
    const struct mr_gate *g = s->gate;
    size_t n = g->stored.cols;
    double out[4];
    const float *narrow[4];
    const double *wide[4];
    for (int i = 0; i < 4; i++) {
        if (g->narrow) narrow[i] = g->f32 + (size_t)key[i]->expert * n;
        else wide[i] = g->f64 + (size_t)key[i]->expert * n;
    }
    if (g->narrow) mr_dots_f32(s->wide, narrow, n, out);
    else mr_dots_f64(s->wide, wide, n, out);
    for (int i = 0; i < 4; i++) key[i]->logit = (struct mr_exact){out[i], 0, true};
}

static void one_dot(const struct mr_token_source *s, struct mr_dot_plan plan, struct mr_key *key)
{
    const struct mr_gate *g = s->gate;
    size_t n = g->stored.cols, at = (size_t)key->expert * n;
    key->logit = g->narrow ? mr_dot_f32(plan, s->wide, g->f32 + at, n)
                           : mr_dot_f64(plan, s->wide, g->f64 + at, n);
}

static enum mr_status dots(struct mr_token_source *s, struct mr_key *keys, int count)
{
    const struct mr_gate *g = s->gate;
    if (!s->widened) mr_widen_f64(s->hidden, s->dtype, g->stored.cols, s->wide);
    s->widened = true;
    const struct mr_dot_plan plain = {MR_DOT_PLAIN, 0};
    struct mr_key *waiting[4];
    int waits = 0;
    for (int i = 0; i < count; i++) {
        struct mr_dot_plan plan = mr_dot_choose(&s->stats, &g->stats[keys[i].expert],
                                                g->stored.cols);
        if (plan.way == MR_DOT_BINS) {
            enum mr_status status = exact_by_bins(s, false, &keys[i]);
            if (status) return status;
        } else if (plan.way == MR_DOT_SPLIT) {
            one_dot(s, plan, &keys[i]);
        } else {
            waiting[waits++] = &keys[i];
            if (waits == 4) plain_dots(s, waiting);
            waits %= 4;
        }
    }
    for (int i = 0; i < waits; i++) one_dot(s, plain, waiting[i]);
    return MR_OK;
}

/* Adds the bias to a dot product. If that is exactly hi + lo: with (s, e) = hi + bias and (t, f) =
 * e + lo, both exact, hi + lo + bias = s + t + f; if f = 0, s + t makes the answer in one
 * two_sum. */
static enum mr_status add_bias(const struct mr_token_source *src, struct mr_key *key)
{
    struct mr_dd s = mr_two_sum(key->logit.hi, src->gate_bias[key->expert]);
    struct mr_dd t = mr_two_sum(s.lo, key->logit.lo);
    if (!key->logit.complete || t.lo < 0 || t.lo > 0) return exact_by_bins(src, true, key);
    s = mr_two_sum(s.hi, t.hi);
    key->logit = (struct mr_exact){s.hi, s.lo, true};
    return MR_OK;
}

enum mr_status mr_token_exact(void *context, struct mr_key *keys, int count)
{
    struct mr_token_source *s = context;
    const struct mr_gate *g = s->gate;
    if (!g) {
        for (int i = 0; i < count; i++)
            keys[i].logit = (struct mr_exact){s->given[keys[i].expert], 0, true};
        return MR_OK;
    }
    enum mr_status status = dots(s, keys, count);
    for (int i = 0; i < count && s->gate_bias && !status; i++) status = add_bias(s, &keys[i]);
    return status;
}

enum mr_status mr_token_value(void *context, int expert, mpfr_t out)
{
    struct mr_token_source *s = context;
    if (s->gate) return whole_logit(s, expert, out);
    mpfr_set_prec(out, 64);
    mpfr_set_d(out, s->given[expert], MPFR_RNDN);
    return MR_OK;
}
