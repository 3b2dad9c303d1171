/* softmax over all experts: filter and double-double forms; its MPFR twin is softmax_mpfr.c. */
#include <string.h>

#include "../exact/exp_dd.h"
#include "../exact/vmath.h"
#include "keys_simd.h"
#include "score.h"

/* What exp(l - m) may be off by, relatively: l is within r of the filtered logit, and exp and its
 * argument within d (MR_EXP_ULPS and |l - m| times u). exp(r) - 1 <= r + r^2 for r <= 1. */
static double term_error(double r, double d)
{
    double g = r <= 1 ? r + r * r : exp(r) * (1 + 0x1p-40);
    return g + d + g * d;
}

static double largest(const double *v, size_t n)
{
    double m = v[0];
    for (size_t i = 1; i < n; i++)
        if (v[i] > m) m = v[i];
    return m;
}

/* Without a bias scores rank as logits do, and the intervals are those of the logits.
 *
 * With one, of score + bias: e_i = exp(l_i - m) is off by at most f_i relatively (term_error), the
 * sum of all by F = sum e_i f_i / sum e_i + n u, and so the quotient by (f_i + F) / (1 - F) + u. A
 * score lies in [0, 1], whatever its error. */
static void filter(struct mr_certifier *c, const struct mr_token *t)
{
    size_t n = (size_t)c->experts;
    const double u = 0x1p-53;
    double m = largest(t->logits, n), sum = 0, error = 0;
    mr_vec_exp_below(t->logits, m, n, c->score);
    for (size_t e = 0; e < n; e++) {
        double r = t->scale * t->norm[e] + t->offset;
        sum += c->score[e];
        error += c->score[e] * term_error(r, (MR_EXP_ULPS + m - t->logits[e]) * u);
    }
    for (size_t e = 0; e < n; e++) c->score[e] /= sum;
    if (!t->bias) {
        MR_ISA_PICK(mr_value_intervals)(t->logits, t->norm, n, t->scale, t->offset, c->lo, c->hi);
        return;
    }
    double all = error / sum * (1 + 0x1p-40) + ((double)n + 2) * u;
    for (size_t e = 0; e < n; e++) {
        double r = t->scale * t->norm[e] + t->offset, key = c->score[e] + t->bias[e];
        double rel = term_error(r, (MR_EXP_ULPS + 2 + m - t->logits[e]) * u) + all;
        double w = all < 0.5 ? c->score[e] * rel / (1 - all) * (1 + 0x1p-40) + MR_TINY : 1;
        w = (w < 1 ? w : 1) + 4 * u * fabs(key);
        c->lo[e] = key - w;
        c->hi[e] = key + w;
    }
}

struct mr_dd mr_softmax_term(const struct mr_exact *logit, struct mr_dd m)
{
    struct mr_dd x = mr_dd_add((struct mr_dd){logit->hi, logit->lo}, mr_dd_neg(m));
    return x.hi > -700 ? mr_unscale(mr_exp_dd(x)) : (struct mr_dd){0, 0};
}

/* p_i = exp(l_i - m) / Z with exact l_i. Z takes the exact terms of the refined experts and the
 * filtered ones of the others; their errors make common_rel. m is the largest of these logits, so
 * that no term exceeds 1, however far from the truth the filter is: if that logit is exact, its lo
 * counts (beyond 2^53, lo is no small number). */
static void refine(struct mr_certifier *c, const struct mr_token *t, int count)
{
    const double u = 0x1p-53;
    size_t n = (size_t)c->experts;
    double *e_l = c->hi; /* free by now: e^(l - m) of the filtered logits */
    memcpy(e_l, t->logits, n * sizeof *e_l);
    for (int i = 0; i < count; i++) e_l[c->keys[i].expert] = c->keys[i].logit.hi;
    struct mr_dd m = {largest(e_l, n), 0}, z = {0, 0};
    bool exact = false;
    for (int i = 0; i < count; i++) {
        const struct mr_exact *l = &c->keys[i].logit;
        if (l->hi < m.hi || (exact && l->lo <= m.lo)) continue;
        m.lo = l->lo;
        exact = true;
    }
    mr_vec_exp_below(e_l, m.hi, n, e_l);
    double rest = 0, error = 0;
    for (int i = 0; i < count; i++) {
        struct mr_key *k = &c->keys[i];
        /* mr_dd_add, and what hi and lo leave out of the logit and of m. */
        k->rel = MR_EXP_DD_REL + 0x1p-92;
        if (fabs(m.hi) > 0x1p10) k->rel += 0x1p-104 * (fabs(k->logit.hi) + fabs(m.hi));
        k->score = mr_softmax_term(&k->logit, m);
        z = mr_dd_add(z, k->score);
        error += k->score.hi * k->rel;
        e_l[k->expert] = 0;
    }
    for (size_t e = 0; e < n; e++) {
        if (!(e_l[e] > 0)) continue;
        double r = t->scale * t->norm[e] + t->offset;
        rest += e_l[e];
        error += e_l[e] * term_error(r + fabs(m.lo), (MR_EXP_ULPS + fabs(m.hi - t->logits[e])) * u);
    }
    error += rest * (double)n * u + (double)n * MR_TINY;
    z = mr_dd_add(z, (struct mr_dd){rest, 0});
    double f = error / z.hi * (1 + 0x1p-40) + 0x1p-98;
    /* 1 / Z is off by F / (1 - F); infinite if nothing is known of it, which decides nothing. */
    c->common_rel = f < 0.5 ? f / (1 - f) : HUGE_VAL;
    for (int i = 0; i < count; i++) {
        struct mr_key *k = &c->keys[i];
        k->score = mr_dd_div(k->score, z);
    }
}

const struct mr_score_ops mr_softmax_ops = {filter, refine};
