/* Certification of one token.
 *
 * Let lo_e <= key_e <= hi_e (or the same of logits, where they rank). With L the (top_k+1)-th
 * largest lo, at least top_k+1 keys are >= L, so an expert with hi < L is below the first rejected
 * key, and all that can stand at the cut or above are the candidates {hi >= L}. Their logits are made
 * exact and sorted by certified comparison: the first top_k are the set, the next one is the first
 * rejected. Weights need those logits exactly anyway.
 * The certificate says what was needed to prove the set. If, with L' the top_k-th largest lo, just
 * top_k experts have hi >= L', the filter alone proves it (`bound`). Otherwise every selected expert
 * is compared with the first rejected one, and every rejected candidate with the last selected: all
 * else follows, and the worst level of these comparisons is the certificate. */
#include "certify.h"

#include <stdlib.h>
#include <string.h>

#include "score.h"
#include "weights.h"

const char *mr_certificate_name(enum mr_certificate c)
{
    static const char *const names[MR_CERT_COUNT] = {"bound", "exact",     "mpfr",
                                                     "tie",   "undecided", "nonfinite"};
    return (unsigned)c < MR_CERT_COUNT ? names[c] : "?";
}

enum mr_status mr_certifier_new(int experts, struct mr_certifier *c)
{
    size_t n = (size_t)experts;
    *c = (struct mr_certifier){.experts = experts};
    c->score = malloc(n * sizeof *c->score);
    c->lo = malloc(n * sizeof *c->lo);
    c->hi = malloc(n * sizeof *c->hi);
    c->top = malloc((n + 1) * sizeof *c->top);
    c->keys = malloc(n * sizeof *c->keys);
    c->tied = malloc(n * sizeof *c->tied);
    c->order = malloc(n * sizeof *c->order);
    if (c->score && c->lo && c->hi && c->top && c->keys && c->tied && c->order) return MR_OK;
    mr_certifier_free(c);
    return MR_ERR_MEMORY;
}

void mr_certifier_free(struct mr_certifier *c)
{
    free(c->score);
    free(c->lo);
    free(c->hi);
    free(c->top);
    free(c->keys);
    free(c->tied);
    free(c->order);
    memset(c, 0, sizeof *c);
}

/* top[0..k) = the k largest values, descending. */
static void k_largest(const double *v, int n, int k, double *top)
{
    for (int i = 0; i < k; i++) top[i] = -HUGE_VAL;
    for (int e = 0; e < n; e++) {
        if (!(v[e] > top[k - 1])) continue;
        int i = k - 1;
        for (; i > 0 && top[i - 1] < v[e]; i--) top[i] = top[i - 1];
        top[i] = v[e];
    }
}

static enum mr_status add_candidate(struct mr_certifier *c, const struct mr_token *t, int expert,
                                    int at, struct mr_routed *out)
{
    struct mr_key *k = &c->keys[at];
    k->expert = expert;
    k->bias = t->bias ? t->bias[expert] : 0;
    enum mr_status status = t->exact(t->source.context, expert, &k->logit);
    out->exact_dots++;
    double radius = t->scale * t->norm[expert] + t->offset;
    if (fabs(t->logits[expert] - k->logit.hi) >
        radius * (1 + 0x1p-40) + 0x1p-52 * fabs(k->logit.hi))
        out->filter_wrong = true;
    return status;
}

/* Sorts order[0..count) of keys by certified comparison, equal keys by lowest expert. Keys come in
 * expert order, so equal ones stay put; binary64 keys order all but the closest before any
 * comparison is asked for. */
static enum mr_status sort_keys(struct mr_certifier *c, const struct mr_token *t, int count)
{
    double *rough = c->lo; /* free by now */
    for (int i = 0; i < count; i++) {
        rough[i] = c->keys[i].score.hi + c->keys[i].bias;
        int j = i;
        for (; j > 0 && rough[c->order[j - 1]] < rough[i]; j--) c->order[j] = c->order[j - 1];
        c->order[j] = i;
    }
    for (int i = 1; i < count; i++) {
        int moving = c->order[i], j = i;
        for (; j > 0; j--) {
            struct mr_order o;
            const struct mr_key *a = &c->keys[c->order[j - 1]], *b = &c->keys[moving];
            enum mr_status status =
                mr_compare_keys(t->router->score, a, b, c->common_rel, &t->source, &o);
            if (status) return status;
            if (o.sign > 0 || (o.sign == 0 && a->expert < b->expert)) break;
            c->order[j] = c->order[j - 1];
        }
        c->order[j] = moving;
    }
    return MR_OK;
}

static int by_value(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* All experts equal to the last selected one. */
static enum mr_status list_ties(struct mr_certifier *c, const struct mr_token *t, int count,
                                struct mr_routed *out)
{
    const struct mr_key *last = &c->keys[c->order[t->router->top_k - 1]];
    out->tie_count = out->tie_slots = 0;
    for (int i = 0; i < count; i++) {
        struct mr_order o;
        const struct mr_key *k = &c->keys[c->order[i]];
        enum mr_status status =
            mr_compare_keys(t->router->score, k, last, c->common_rel, &t->source, &o);
        if (status) return status;
        if (o.level != MR_LEVEL_TIE) continue;
        c->tied[out->tie_count++] = k->expert;
        if (i < t->router->top_k) out->tie_slots++;
    }
    qsort(c->tied, (size_t)out->tie_count, sizeof *c->tied, by_value);
    out->ties = c->tied;
    return MR_OK;
}

/* The worst level among the comparisons that prove the set, and the gap. */
static enum mr_status prove(struct mr_certifier *c, const struct mr_token *t, int count,
                            bool bound, struct mr_routed *out)
{
    int k = t->router->top_k;
    const struct mr_key *last = &c->keys[c->order[k - 1]], *next = &c->keys[c->order[k]];
    struct mr_order cut, o;
    enum mr_status status =
        mr_compare_keys(t->router->score, last, next, c->common_rel, &t->source, &cut);
    if (status) return status;
    out->gap = cut.gap;
    out->gap_radius = cut.radius;
    if (bound) {
        out->certificate = MR_CERT_BOUND;
        return MR_OK;
    }
    if (cut.level == MR_LEVEL_TIE) {
        out->certificate = MR_CERT_TIE;
        return list_ties(c, t, count, out);
    }
    enum mr_level worst = cut.level;
    for (int i = 0; i < count && worst < MR_LEVEL_UNDECIDED; i++) {
        if (i == k - 1 || i == k) continue;
        const struct mr_key *other = &c->keys[c->order[i]];
        status = i < k ? mr_compare_keys(t->router->score, other, next, c->common_rel, &t->source, &o)
                       : mr_compare_keys(t->router->score, last, other, c->common_rel, &t->source, &o);
        if (status) return status;
        if (o.level > worst) worst = o.level;
    }
    out->certificate = (enum mr_certificate)worst;
    return MR_OK;
}

static enum mr_status refine_all(struct mr_certifier *c, const struct mr_token *t, int *count,
                                 struct mr_routed *out)
{
    enum mr_status status = MR_OK;
    for (int e = 0; e < c->experts && !status; e++) status = add_candidate(c, t, e, e, out);
    *count = c->experts;
    if (!status) mr_score_ops(t->router->score)->refine(c, t, *count);
    return status;
}

enum mr_status mr_certify(struct mr_certifier *c, const struct mr_token *t, struct mr_routed *out)
{
    const struct mr_router *r = t->router;
    const struct mr_score_ops *ops = mr_score_ops(r->score);
    int k = r->top_k, count = 0, sure = 0;
    bool cut = k < c->experts;
    out->exact_dots = out->tie_count = out->tie_slots = 0;
    out->ties = NULL;
    out->filter_wrong = false;
    ops->filter(c, t);
    k_largest(c->lo, c->experts, cut ? k + 1 : k, c->top);
    double reach = cut ? c->top[k] : -HUGE_VAL, bar = c->top[k - 1];
    bool softmax_sum = r->score == MR_SCORE_SOFTMAX && !r->norm_topk_prob;
    enum mr_status status = MR_OK;
    for (int e = 0; e < c->experts && !status; e++) {
        if (!(c->hi[e] >= reach) && !softmax_sum) continue;
        sure += c->hi[e] >= bar;
        status = add_candidate(c, t, e, count++, out);
    }
    if (status) return status;
    ops->refine(c, t, count);
    status = sort_keys(c, t, count);
    if (status) return status;
    if (cut) {
        status = prove(c, t, count, sure == k, out);
        if (!status && out->gap_radius > 1e-12 && out->gap_radius > 0x1p-52 * out->gap &&
            count < c->experts) {
            /* Softmax, whose denominator is not known well enough: make every logit exact. */
            status = refine_all(c, t, &count, out);
            if (!status) status = sort_keys(c, t, count);
            if (!status) status = prove(c, t, count, sure == k, out);
        }
        if (status) return status;
    } else {
        out->certificate = MR_CERT_BOUND;
        out->gap = HUGE_VAL;
        out->gap_radius = 0;
    }
    for (int i = 0; i < k; i++) out->ids[i] = c->keys[c->order[i]].expert;
    return mr_weights(c, t, out->weights);
}
