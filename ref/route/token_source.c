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

enum mr_status mr_token_exact(void *context, int expert, struct mr_exact *out)
{
    struct mr_token_source *s = context;
    const struct mr_gate *g = s->gate;
    if (!g) {
        *out = (struct mr_exact){s->given[expert], 0, true};
        return MR_OK;
    }
    size_t n = g->stored.cols;
    struct mr_dot_plan plan = mr_dot_choose(&s->stats, &g->stats[expert], n);
    if (plan.way == MR_DOT_BINS) {
        mpfr_t value;
        mpfr_init2(value, 64);
        enum mr_status status = by_bins(s, expert, value);
        if (!status) *out = mr_exact_from_mpfr(value);
        mpfr_clear(value);
        return status;
    }
    if (!s->widened) mr_widen_f64(s->hidden, s->dtype, n, s->wide);
    s->widened = true;
    *out = g->narrow ? mr_dot_f32(plan, s->wide, g->f32 + (size_t)expert * n, n)
                     : mr_dot_f64(plan, s->wide, g->f64 + (size_t)expert * n, n);
    return MR_OK;
}

enum mr_status mr_token_value(void *context, int expert, mpfr_t out)
{
    struct mr_token_source *s = context;
    if (s->gate) return by_bins(s, expert, out);
    mpfr_set_prec(out, 64);
    mpfr_set_d(out, s->given[expert], MPFR_RNDN);
    return MR_OK;
}
