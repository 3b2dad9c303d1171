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

#include "keys_simd.h"
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

/* Makes keys[0..count) of the experts listed in c->order, their logits exact, and looks whether the
 * filter kept its word. */
static enum mr_status make_exact(struct mr_certifier *c, const struct mr_token *t, int count,
                                 struct mr_routed *out)
{
    for (int i = 0; i < count; i++) {
        c->keys[i].expert = c->order[i];
        c->keys[i].bias = t->bias ? t->bias[c->order[i]] : 0;
    }
    enum mr_status status = t->exact(t->source.context, c->keys, count);
    out->exact_dots += count;
    for (int i = 0; i < count && !status; i++) {
        const struct mr_key *k = &c->keys[i];
        double radius = t->scale * t->norm[k->expert] + t->offset;
        if (fabs(t->logits[k->expert] - k->logit.hi) >
            radius * (1 + 0x1p-40) + 0x1p-52 * fabs(k->logit.hi))
            out->filter_wrong = true;
    }
    if (!status) status = mr_score_ops(t->router->score)->refine(c, t, count);
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

enum mr_status mr_certify(struct mr_certifier *c, const struct mr_token *t, struct mr_routed *out)
{
    const struct mr_router *r = t->router;
    int k = r->top_k, count = 0, sure = 0;
    bool cut = k < c->experts;
    out->exact_dots = out->tie_count = out->tie_slots = 0;
    out->ties = NULL;
    out->filter_wrong = false;
    mr_score_ops(r->score)->filter(c, t);
    MR_ISA_PICK(mr_k_largest)(c->lo, c->experts, cut ? k + 1 : k, c->top);
    double reach = cut ? c->top[k] : -HUGE_VAL;
    /* An un-normalised softmax weight needs all of the denominator. */
    if (r->score == MR_SCORE_SOFTMAX && !r->norm_topk_prob) reach = -HUGE_VAL;
    count = MR_ISA_PICK(mr_at_least)(c->hi, c->experts, reach, c->order);
    for (int i = 0; i < count; i++) sure += c->hi[c->order[i]] >= c->top[k - 1];
    enum mr_status status = make_exact(c, t, count, out);
    if (!status) status = sort_keys(c, t, count);
    if (status) return status;
    if (cut) {
        status = prove(c, t, count, sure == k, out);
        /* The radius is infinite or NaN when nothing is known of softmax's denominator. */
        if (!status && !(out->gap_radius <= 1e-12) && !(out->gap_radius <= 0x1p-52 * out->gap) &&
            count < c->experts) {
            /* Softmax, whose denominator is not known well enough: make every logit exact. */
            count = MR_ISA_PICK(mr_at_least)(c->hi, c->experts, -HUGE_VAL, c->order);
            status = make_exact(c, t, count, out);
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
