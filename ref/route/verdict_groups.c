/* The set of one token's claim under group-limited selection.
 *
 * Which groups a kernel kept is not observed, only which groups its experts lie in: G. A right
 * kernel kept topk_group groups S that contain G, such that by its own scores (a) no group
 * outside S beats one of S, and (b) no expert of S that it left out beats one that it chose. Its
 * group scores lie in [L, U], made of the key intervals of the group's experts. So the claim is
 * explained by rounding only if there is such an S with L_f <= U_g for all f outside, g inside,
 * and (b) by the key intervals. (b) says of each group for itself whether it may be in S; (a)
 * says that some t lies at or above every L outside and at or below every U inside, and only the
 * L and U themselves need be tried as t. */
#include <math.h>

#include "verdict_parts.h"

struct work {
    struct mr_judge *j;
    const struct mr_judge_source *source;
    struct mr_judge_group *group;
    struct mr_interval *keys; /* [experts] */
    int n, size, chosen_least; /* the chosen expert of the smallest upper end */
    int observed;
};

static double slack(const struct mr_judge_key *k)
{
    return k->error + 0x1p-50 * fabs(k->key.hi);
}

static void make_intervals(struct work *w, bool radii)
{
    for (int e = 0; e < w->j->router->experts; e++) {
        const struct mr_judge_key *k = &w->j->a[e];
        w->keys[e].lo = k->key.hi - (radii ? k->down : 0) - slack(k);
        w->keys[e].hi = k->key.hi + (radii ? k->up : 0) + slack(k);
    }
}

/* Exact group scores (of keys in binary64) and the best of them, the lowest group among equals. */
static void score_exactly(struct work *w)
{
    for (int g = 0; g < w->n; g++) {
        double first = -HUGE_VAL, second = -HUGE_VAL;
        for (int e = g * w->size; e < (g + 1) * w->size; e++) {
            double key = w->j->a[e].key.hi;
            if (key > first) {
                second = first;
                first = key;
            } else if (key > second) {
                second = key;
            }
        }
        w->group[g].exact =
            w->j->router->group_score == MR_GROUP_MAX || w->size < 2 ? first : first + second;
        w->group[g].certified = false;
    }
    for (int n = 0; n < w->j->router->topk_group; n++) {
        int best = -1;
        for (int g = 0; g < w->n; g++)
            if (!w->group[g].certified && (best < 0 || w->group[g].exact > w->group[best].exact))
                best = g;
        w->group[best].certified = true;
    }
}

/* Without radii: what the exact keys allow, up to our own error. */
static void make_groups(struct work *w, bool radii)
{
    struct mr_judge *j = w->j;
    const struct mr_router *r = j->router;
    w->chosen_least = j->ids[0];
    for (int i = 1; i < r->top_k; i++)
        if (w->keys[j->ids[i]].hi < w->keys[w->chosen_least].hi) w->chosen_least = j->ids[i];
    double least = w->keys[w->chosen_least].hi;
    w->observed = 0;
    for (int g = 0; g < w->n; g++) {
        struct mr_judge_group *p = &w->group[g];
        double error = 0x1p-48 * (fabs(p->exact) + fabs(w->keys[g * w->size].hi));
        if (radii)
            p->score = mr_group_interval(r->group_score, w->keys + g * w->size, (size_t)w->size);
        else
            p->score = (struct mr_interval){p->exact - error, p->exact + error};
        p->observed = false;
        p->rest = -1;
        for (int e = g * w->size; e < (g + 1) * w->size; e++) {
            if (mr_judge_chosen(j, e)) p->observed = true;
            else if (p->rest < 0 || w->keys[e].lo > w->keys[p->rest].lo) p->rest = e;
        }
        p->admissible = p->rest < 0 || w->keys[p->rest].lo <= least;
        w->observed += p->observed;
    }
}

/* Whether some S is cut off at t. */
static bool cut_at(const struct work *w, double t)
{
    int need = w->j->router->topk_group - w->observed, forced = 0, free = 0;
    for (int g = 0; g < w->n; g++) {
        const struct mr_judge_group *p = &w->group[g];
        if (p->observed) {
            if (p->score.hi < t || !p->admissible) return false;
        } else if (p->score.lo > t) { /* must be inside */
            if (!p->admissible) return false;
            forced++;
        } else {
            free += p->admissible && p->score.hi >= t;
        }
    }
    return forced <= need && need <= forced + free;
}

static bool explained(const struct work *w)
{
    if (w->observed > w->j->router->topk_group) return false;
    for (int g = 0; g < w->n; g++)
        if (cut_at(w, w->group[g].score.lo) || cut_at(w, w->group[g].score.hi)) return true;
    return false;
}

/* The certified group left out and the observed one taken in that are furthest apart. */
static double worst_groups(const struct work *w, struct mr_judgement *part)
{
    double most = -HUGE_VAL;
    for (int f = 0; f < w->n; f++) {
        const struct mr_judge_group *a = &w->group[f];
        if (!a->certified || a->observed) continue;
        for (int g = 0; g < w->n; g++) {
            const struct mr_judge_group *b = &w->group[g];
            if (!b->observed || b->certified) continue;
            double excess = a->score.lo - b->score.hi;
            if (!(excess > most)) continue;
            most = excess;
            part->cause = MR_CAUSE_GROUP;
            part->omitted = f;
            part->included = g;
            part->omitted_key = a->exact;
            part->included_key = b->exact;
            part->difference = a->exact - b->exact;
            part->radius = part->difference - excess;
        }
    }
    return most;
}

/* The left-out expert, of a group that is or should be kept, and the chosen one furthest apart. */
static double worst_experts(const struct work *w, struct mr_judgement *part)
{
    const struct mr_judge *j = w->j;
    double most = -HUGE_VAL;
    for (int g = 0; g < w->n; g++) {
        int o = w->group[g].rest;
        if (o < 0 || !(w->group[g].observed || w->group[g].certified)) continue;
        for (int i = 0; i < j->router->top_k; i++) {
            double difference, radius;
            double excess = mr_judge_excess(w->source, &j->a[o], &j->a[j->ids[i]], &difference,
                                            &radius);
            if (!(excess > most)) continue;
            most = excess;
            part->cause = MR_CAUSE_SET;
            part->omitted = o;
            part->included = j->ids[i];
            part->omitted_key = j->a[o].key.hi;
            part->included_key = j->a[j->ids[i]].key.hi;
            part->difference = difference;
            part->radius = radius;
        }
    }
    return most;
}

static void describe(struct work *w, struct mr_judgement *part)
{
    struct mr_judgement groups = *part, experts = *part;
    double by_group = worst_groups(w, &groups), by_expert = worst_experts(w, &experts);
    if (part->verdict == MR_WRONG ? by_group > 0 : by_group > -HUGE_VAL) *part = groups;
    else if (part->verdict == MR_ROUNDING || by_expert > 0) *part = experts;
    else part->cause = MR_CAUSE_GROUP; /* too many groups, or no topk_group of them fit together */
}

enum mr_status mr_judge_groups(struct mr_judge *j, const struct mr_routed *routed,
                               const struct mr_judge_source *source, struct mr_judgement *part)
{
    const struct mr_router *r = j->router;
    struct work w = {j, source, j->group, j->interval, r->n_group, r->experts / r->n_group, 0, 0};
    enum mr_status status = MR_OK;
    for (int e = 0; e < r->experts; e++) j->experts[e] = e;
    for (enum mr_effort effort = MR_EFFORT_NORM; !status && effort <= MR_EFFORT_SUM; effort++) {
        status = source->keys(source->context, j->experts, r->experts, effort, j->a);
        if (status) break;
        score_exactly(&w);
        make_intervals(&w, false);
        make_groups(&w, false);
        if (routed->certificate == MR_CERT_TIE && explained(&w)) {
            part->verdict = MR_TIE;
            part->cause = MR_CAUSE_TIE;
            break;
        }
        make_intervals(&w, true);
        make_groups(&w, true);
        part->verdict = explained(&w) ? MR_ROUNDING : MR_WRONG;
        if (part->verdict == MR_WRONG || effort == MR_EFFORT_SUM) {
            describe(&w, part);
            break;
        }
    }
    return status;
}
