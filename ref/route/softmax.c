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
 * With one, and for group scores that are sums of keys, of score + bias: e_i = exp(l_i - m) is off by at most f_i relatively (term_error), the
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
    if (!t->bias && !mr_keys_are_summed(t->router)) {
        MR_ISA_PICK(mr_value_intervals)(t->logits, t->norm, n, t->scale, t->offset, c->lo, c->hi);
        return;
    }
    double all = error / sum * (1 + 0x1p-40) + ((double)n + 2) * u;
    for (size_t e = 0; e < n; e++) {
        double r = t->scale * t->norm[e] + t->offset, key = c->score[e] + (t->bias ? t->bias[e] : 0);
        double rel = term_error(r, (MR_EXP_ULPS + 2 + m - t->logits[e]) * u) + all;
        double w = all < 0.5 ? c->score[e] * rel / (1 - all) * (1 + 0x1p-40) + MR_TINY : 1;
        w = (w < 1 ? w : 1) + 4 * u * fabs(key);
        c->lo[e] = key - w;
        c->hi[e] = key + w;
    }
}

static struct mr_dd term(struct mr_dd x)
{
    return x.hi > -700 ? mr_unscale(mr_exp_dd(x)) : (struct mr_dd){0, 0};
}

struct mr_dd mr_softmax_term(const struct mr_exact *logit, const struct mr_exact *m)
{
    return term(mr_dd_add((struct mr_dd){logit->hi, logit->lo}, (struct mr_dd){-m->hi, -m->lo}));
}

/* The same for logits so large that what hi and lo leave out matters. */
static enum mr_status term_by_mpfr(const struct mr_logit_source *source, int expert, int top,
                                   struct mr_dd *out)
{
    mpfr_t a, b, d;
    mpfr_inits2(64, a, b, (mpfr_ptr)0);
    mpfr_init2(d, 2300); /* the difference, exact */
    enum mr_status status = source->value(source->context, expert, a);
    if (!status) status = source->value(source->context, top, b);
    if (!status) {
        mpfr_sub(d, a, b, MPFR_RNDN);
        struct mr_exact x = mr_exact_from_mpfr(d);
        *out = term((struct mr_dd){x.hi, x.lo});
    }
    mpfr_clears(a, b, d, (mpfr_ptr)0);
    return status;
}

/* p_i = exp(l_i - m) / Z with exact l_i. Z takes the exact terms of the refined experts and the
 * filtered ones of the others; their errors make common_rel. m is the largest of all these logits,
 * so that no term is above 1 however far from the truth the filter is; if that one is exact, its lo
 * counts, which is no small number beyond 2^53. */
static enum mr_status refine(struct mr_certifier *c, const struct mr_token *t, int count)
{
    const double u = 0x1p-53;
    size_t n = (size_t)c->experts;
    double *e_l = c->hi; /* free by now: e^(l - m) of the filtered logits */
    memcpy(e_l, t->logits, n * sizeof *e_l);
    for (int i = 0; i < count; i++) e_l[c->keys[i].expert] = c->keys[i].logit.hi;
    struct mr_exact m = {largest(e_l, n), 0, true};
    int top = -1;
    for (int i = 0; i < count; i++) {
        const struct mr_exact *l = &c->keys[i].logit;
        if (l->hi < m.hi || (top >= 0 && l->lo <= m.lo)) continue;
        m = *l;
        top = c->keys[i].expert;
    }
    mr_vec_exp_below(e_l, m.hi, n, e_l);
    struct mr_dd z = {0, 0};
    double rest = 0, error = 0;
    for (int i = 0; i < count; i++) {
        struct mr_key *k = &c->keys[i];
        k->score = mr_softmax_term(&k->logit, &m);
        k->rel = MR_SOFTMAX_TERM_REL;
        if (fabs(m.hi) > 0x1p40 && !(k->logit.complete && m.complete)) {
            if (top < 0) { /* the filter is far off anyway: make all logits exact */
                error = HUGE_VAL;
            } else {
                enum mr_status status = term_by_mpfr(&t->source, k->expert, top, &k->score);
                if (status) return status;
            }
        }
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
    return MR_OK;
}

const struct mr_score_ops mr_softmax_ops = {filter, refine};
