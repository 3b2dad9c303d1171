/* Certification of one token.
 *
 * Let lo_e <= key_e <= hi_e (or the same of logits, where they rank). With L the (top_k+1)-th
 * largest lo, at least top_k+1 keys are >= L, so an expert with hi < L is below the first rejected
 * key, and all that can stand at the cut or above are the candidates {hi >= L}. Their logits are
 * made exact and sorted by certified comparison: the first top_k are the set, the next one is the
 * first rejected. Weights need those logits exactly anyway.
 * The certificate says what was needed to prove the set. If, with L' the top_k-th largest lo, just
 * top_k experts have hi >= L', the filter alone proves it (`bound`). Otherwise every selected
 * expert is compared with the first rejected one, and every rejected candidate with the last
 * selected: all else follows, and the worst level of these comparisons is the certificate.
 * With groups all this happens inside those that stay (groups.c), and the worse of both levels
 * counts. Excluded experts have intervals at -Inf; they are among the keys only where a softmax
 * denominator wants every logit, and then stand behind all others, unranked. */
#include "certify.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "groups.h"
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
    c->groups = mr_groups_new(experts);
    if (c->score && c->lo && c->hi && c->top && c->keys && c->tied && c->order && c->groups)
        return MR_OK;
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
    mr_groups_free(c->groups);
    memset(c, 0, sizeof *c);
}

enum mr_status mr_certify_keys(struct mr_certifier *c, const struct mr_token *t, int count,
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
    if (!status) status = mr_router_ops(t->router)->refine(c, t, count);
    return status;
}

static enum mr_status compare(const struct mr_certifier *c, const struct mr_token *t,
                              const struct mr_key *a, const struct mr_key *b, struct mr_order *out)
{
    if (t->router->selection == MR_SELECT_LOGIT) return mr_compare_logits(a, b, &t->source, out);
    return mr_compare_keys(t->router->score, a, b, c->common_rel, &t->source, out);
}

/* Puts keys[0..count) into order: first *ranked of them by certified comparison, equal keys by
 * lowest expert, then those of excluded groups. Keys come in expert order, so equal ones stay put;
 * binary64 keys order all but the closest before any comparison is asked for. */
static enum mr_status sort_keys(struct mr_certifier *c, const struct mr_token *t, int count,
                                const uint8_t *stays, int *ranked)
{
    double *rough = c->lo; /* free by now */
    int per_group = c->experts / t->router->n_group, out = count;
    bool by_logit = t->router->selection == MR_SELECT_LOGIT;
    *ranked = 0;
    for (int i = 0; i < count; i++) {
        const struct mr_key *k = &c->keys[i];
        if (stays && !stays[k->expert / per_group]) continue;
        rough[i] = by_logit ? k->logit.hi : k->score.hi + k->bias;
        int j = (*ranked)++;
        for (; j > 0 && rough[c->order[j - 1]] < rough[i]; j--) c->order[j] = c->order[j - 1];
        c->order[j] = i;
    }
    for (int i = 0; i < count && stays; i++)
        if (!stays[c->keys[i].expert / per_group]) c->order[--out] = i;
    for (int i = 1; i < *ranked; i++) {
        int moving = c->order[i], j = i;
        for (; j > 0; j--) {
            struct mr_order o;
            const struct mr_key *a = &c->keys[c->order[j - 1]], *b = &c->keys[moving];
            enum mr_status status = compare(c, t, a, b, &o);
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
        enum mr_status status = compare(c, t, k, last, &o);
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
    enum mr_status status = compare(c, t, last, next, &cut);
    if (status) return status;
    out->rejected = next->expert;
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
        status = i < k ? compare(c, t, other, next, &o) : compare(c, t, last, other, &o);
        if (status) return status;
        if (o.level > worst) worst = o.level;
    }
    out->certificate = (enum mr_certificate)worst;
    return MR_OK;
}

/* Nothing is known of a gap: its radius is infinite or NaN when nothing is known of softmax's
 * denominator. */
static bool vague(double gap, double radius)
{
    return !(radius <= 1e-12) && !(radius <= 0x1p-52 * gap);
}

/* Ranks inside the groups that stay, all if stays is NULL. */
static enum mr_status rank(struct mr_certifier *c, const struct mr_token *t, const uint8_t *stays,
                           struct mr_routed *out)
{
    const struct mr_router *r = t->router;
    int k = r->top_k, count = 0, ranked = 0, sure = 0, per_group = c->experts / r->n_group;
    bool cut = k < (stays ? r->topk_group * per_group : c->experts);
    mr_router_ops(r)->filter(c, t);
    for (int e = 0; e < c->experts && stays; e++)
        if (!stays[e / per_group]) c->lo[e] = c->hi[e] = -HUGE_VAL;
    MR_ISA_PICK(mr_k_largest)(c->lo, c->experts, cut ? k + 1 : k, c->top);
    double reach = cut ? c->top[k] : stays ? -DBL_MAX : -HUGE_VAL;
    /* An un-normalised softmax weight needs all of the denominator. */
    if (mr_needs_every_logit(r)) reach = -HUGE_VAL;
    count = MR_ISA_PICK(mr_at_least)(c->hi, c->experts, reach, c->order);
    for (int i = 0; i < count; i++) sure += c->hi[c->order[i]] >= c->top[k - 1];
    enum mr_status status = mr_certify_keys(c, t, count, out);
    if (!status) status = sort_keys(c, t, count, stays, &ranked);
    if (status) return status;
    if (cut) {
        status = prove(c, t, ranked, sure == k, out);
        if (!status && vague(out->gap, out->gap_radius) && count < c->experts) {
            /* Softmax, whose denominator is not known well enough: make every logit exact. */
            count = MR_ISA_PICK(mr_at_least)(c->hi, c->experts, -HUGE_VAL, c->order);
            status = mr_certify_keys(c, t, count, out);
            if (!status) status = sort_keys(c, t, count, stays, &ranked);
            if (!status) status = prove(c, t, ranked, sure == k, out);
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

/* Experts chosen elsewhere: nothing is compared, their weights need their exact logits. */
static enum mr_status weigh_given(struct mr_certifier *c, const struct mr_token *t,
                                  struct mr_routed *out)
{
    mr_router_ops(t->router)->filter(c, t);
    for (int i = 0; i < t->router->top_k; i++) c->order[i] = out->ids[i] = t->given[i];
    enum mr_status status = mr_certify_keys(c, t, t->router->top_k, out);
    if (status) return status;
    for (int i = 0; i < t->router->top_k; i++) c->order[i] = i;
    return mr_weights(c, t, out->weights);
}

static void begin(const struct mr_certifier *c, struct mr_routed *out)
{
    out->exact_dots = out->tie_count = out->tie_slots = 0;
    out->group_tie_count = out->group_tie_slots = 0;
    out->ties = c->tied;
    out->group_ties = NULL;
    out->stays = NULL;
    out->filter_wrong = false;
    out->rejected = -1;
    out->certificate = MR_CERT_BOUND;
    out->gap = out->group_gap = HUGE_VAL;
    out->gap_radius = out->group_gap_radius = 0;
}

void mr_routed_nonfinite(const struct mr_router *r, struct mr_routed *out)
{
    *out = (struct mr_routed){.ids = out->ids, .weights = out->weights, .rejected = -1};
    for (int i = 0; i < r->top_k; i++) {
        out->ids[i] = -1;
        out->weights[i] = NAN;
    }
    out->gap = out->gap_radius = out->group_gap = out->group_gap_radius = NAN;
    out->certificate = MR_CERT_NONFINITE;
}

enum mr_status mr_certify_in(struct mr_certifier *c, const struct mr_token *t, const uint8_t *stays,
                             struct mr_routed *out)
{
    begin(c, out);
    return rank(c, t, stays, out);
}

enum mr_status mr_certify(struct mr_certifier *c, const struct mr_token *t, struct mr_routed *out)
{
    begin(c, out);
    if (t->given) return weigh_given(c, t, out);
    if (!mr_groups_compete(t->router)) return rank(c, t, NULL, out);
    enum mr_certificate groups;
    enum mr_status status = mr_choose_groups(c, t, out, &groups);
    if (!status && vague(out->group_gap, out->group_gap_radius))
        status = mr_choose_groups_exactly(c, t, out, &groups);
    if (!status) status = rank(c, t, out->stays, out);
    if (!status && groups > out->certificate) out->certificate = groups;
    return status;
}
