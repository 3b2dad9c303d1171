/* softmax over all experts: filter and double-double forms; its MPFR twin is softmax_mpfr.c. */
#include "../exact/exp_dd.h"
#include "../exact/vmath.h"
#include "keys_simd.h"
#include "score.h"

static double largest(const double *v, size_t n)
{
    double m = v[0];
    for (size_t i = 1; i < n; i++)
        if (v[i] > m) m = v[i];
    return m;
}

/* Without a bias scores rank as logits do, and the intervals are those of the logits.
 *
 * With one, of score + bias: e_i = exp(l_i - m) from a logit within r_i is off by at most
 * f_i = exp(r_i) - 1 + (MR_EXP_ULPS + |l_i - m|) u relatively, the sum of all by
 * F = sum e_i f_i / sum e_i + n u, and the quotient by f_i + F + u and products of these. exp(r) - 1
 * <= r + r^2 for r <= 1; beyond, lo and hi are the whole of [0, 1]. */
static void filter(struct mr_certifier *c, const struct mr_token *t)
{
    size_t n = (size_t)c->experts;
    const double u = 0x1p-53;
    double m = c->offset = largest(t->logits, n), sum = 0, error = 0;
    mr_vec_exp_below(t->logits, m, n, c->score);
    for (size_t e = 0; e < n; e++) {
        double r = t->scale * t->norm[e] + t->offset;
        sum += c->score[e];
        error += c->score[e] * (r + r * r + (MR_EXP_ULPS + m - t->logits[e]) * u);
    }
    c->common_rel = error / sum * (1 + 0x1p-40) + ((double)n + 2) * u;
    for (size_t e = 0; e < n; e++) c->score[e] /= sum;
    if (!t->bias) {
        MR_ISA_PICK(mr_value_intervals)(t->logits, t->norm, n, t->scale, t->offset, c->lo, c->hi);
        return;
    }
    for (size_t e = 0; e < n; e++) {
        double r = t->scale * t->norm[e] + t->offset, key = c->score[e] + t->bias[e];
        double rel = r + r * r + (MR_EXP_ULPS + 2 + m - t->logits[e]) * u + c->common_rel;
        double w = c->score[e] * rel * (1 + rel) * (1 + 0x1p-40) + MR_TINY + 4 * u * fabs(key);
        if (!(r < 0.25) || !(rel < 0.25)) w = 1;
        c->lo[e] = key - w;
        c->hi[e] = key + w;
    }
}

/* p_i = exp(l_i - m) / Z with exact l_i (two_sum keeps l_i - m). Z takes the exact terms of the
 * refined experts and the filtered ones of the others; their errors make common_rel. */
static void refine(struct mr_certifier *c, const struct mr_token *t, int count)
{
    const double u = 0x1p-53;
    double m = c->offset, rest = 0, error = 0;
    /* c->hi is free by now: e^(l - m) of the filtered logits. */
    mr_vec_exp_below(t->logits, m, (size_t)c->experts, c->hi);
    struct mr_dd z = {0, 0};
    for (int i = 0; i < count; i++) {
        struct mr_key *k = &c->keys[i];
        struct mr_dd x = mr_two_sum(k->logit.hi, -m);
        x = mr_fast_two_sum(x.hi, x.lo + k->logit.lo);
        k->rel = MR_EXP_DD_REL + 0x1p-100;
        k->score = x.hi > -700 ? mr_unscale(mr_exp_dd(x)) : (struct mr_dd){0, 0};
        z = mr_dd_add(z, k->score);
        c->hi[k->expert] = 0;
    }
    for (int e = 0; e < c->experts; e++) {
        double r = t->scale * t->norm[e] + t->offset;
        rest += c->hi[e];
        error += c->hi[e] * (r + r * r + (MR_EXP_ULPS + m - t->logits[e]) * u);
    }
    error += rest * (double)c->experts * u + (double)c->experts * MR_TINY;
    z = mr_dd_add(z, (struct mr_dd){rest, 0});
    c->common_rel = error / z.hi * (1 + 0x1p-40) + MR_EXP_DD_REL + 0x1p-98;
    for (int i = 0; i < count; i++) {
        struct mr_key *k = &c->keys[i];
        k->score = mr_dd_div(k->score, z);
    }
}

const struct mr_score_ops mr_softmax_ops = {filter, refine};
