/* Pairs, order and weights of one token's claim. */
#include "verdict_parts.h"

#include <math.h>

double mr_judge_excess(const struct mr_judge_source *source, const struct mr_judge_key *a,
                       const struct mr_judge_key *b, double *difference, double *radius)
{
    *difference = (a->key.hi - b->key.hi) + (a->key.lo - b->key.lo);
    *radius = source->pair ? source->pair(source->context, a, b) : a->down + b->up;
    double slack = a->error + b->error + 0x1p-50 * (fabs(a->key.hi) + fabs(b->key.hi));
    return *difference - *radius - slack;
}

static void explain(struct mr_judgement *part, int omitted, int included,
                    const struct mr_judge_key *a, const struct mr_judge_key *b, double difference,
                    double radius)
{
    part->omitted = omitted;
    part->included = included;
    part->omitted_key = a->key.hi;
    part->included_key = b->key.hi;
    part->difference = difference;
    part->radius = radius;
}

/* The pair of most excess, as indices of omitted and included. */
static double worst_pair(const struct mr_judge *j, const struct mr_judge_source *source,
                         struct mr_judgement *part, int at[2])
{
    double most = -HUGE_VAL;
    at[0] = at[1] = 0;
    for (int o = 0; o < j->differ; o++) {
        for (int i = 0; i < j->differ; i++) {
            double difference, radius;
            double excess = mr_judge_excess(source, &j->a[o], &j->b[i], &difference, &radius);
            if (!(excess > most)) continue;
            most = excess;
            at[0] = o;
            at[1] = i;
            explain(part, j->omitted[o], j->included[i], &j->a[o], &j->b[i], difference, radius);
        }
    }
    return most;
}

static enum mr_status pair_keys(struct mr_judge *j, const struct mr_judge_source *source, int o,
                                int i, int count, enum mr_effort effort)
{
    enum mr_status status =
        source->keys(source->context, j->omitted + o, count, effort, j->a + o);
    return status ? status
                  : source->keys(source->context, j->included + i, count, effort, j->b + i);
}

/* Sharp radii for all only where cheap ones excuse everything; else for the pair that is
 * reported. */
enum mr_status mr_judge_pairs(struct mr_judge *j, const struct mr_judge_source *source,
                              struct mr_judgement *part)
{
    int at[2];
    part->cause = MR_CAUSE_SET;
    enum mr_status status = pair_keys(j, source, 0, 0, j->differ, MR_EFFORT_NORM);
    if (status) return status;
    if (worst_pair(j, source, part, at) > 0) {
        part->verdict = MR_WRONG;
        status = pair_keys(j, source, at[0], at[1], 1, MR_EFFORT_SUM);
        if (status) return status;
        const struct mr_judge_key *a = &j->a[at[0]], *b = &j->b[at[1]];
        double difference, radius;
        mr_judge_excess(source, a, b, &difference, &radius);
        explain(part, j->omitted[at[0]], j->included[at[1]], a, b, difference, radius);
        return MR_OK;
    }
    status = pair_keys(j, source, 0, 0, j->differ, MR_EFFORT_SUM);
    if (!status)
        part->verdict = worst_pair(j, source, part, at) > 0 ? MR_WRONG : MR_ROUNDING;
    return status;
}

/* The certified order puts equal keys by lowest id; any order of theirs is descending too, and the
 * pair test below finds a difference of 0. */
enum mr_status mr_judge_order(struct mr_judge *j, const struct mr_routed *routed,
                              const struct mr_judge_source *source, struct mr_judgement *part)
{
    int k = j->router->top_k;
    bool same = true;
    for (int i = 0; i < k; i++) same &= j->ids[i] == routed->ids[i];
    if (same) return MR_OK;
    for (enum mr_effort effort = MR_EFFORT_NORM; effort <= MR_EFFORT_SUM; effort++) {
        enum mr_status status = source->keys(source->context, j->ids, k, effort, j->a);
        if (status) return status;
        double most = -HUGE_VAL, rise = 0;
        for (int late = 1; late < k; late++) {
            for (int early = 0; early < late; early++) {
                double difference, radius;
                double excess = mr_judge_excess(source, &j->a[late], &j->a[early], &difference,
                                                &radius);
                if (difference > rise) rise = difference;
                if (!(excess > most)) continue;
                most = excess;
                explain(part, j->ids[late], j->ids[early], &j->a[late], &j->a[early], difference,
                        radius);
                part->slot = early;
                part->id = j->ids[early];
            }
        }
        if (rise == 0) { /* descending as it is: another choice of a set, or of equal keys */
            part->omitted = part->included = part->slot = -1;
            part->id = -1;
            return MR_OK;
        }
        part->verdict = most > 0 ? MR_MALFORMED : MR_ROUNDING;
        part->cause = MR_CAUSE_ORDER;
        if (most > 0) break;
    }
    return MR_OK;
}

/* The ends may be as far off as the exact weight, about 2^-48. */
static bool fits(double claimed, const struct mr_judge_weight *w)
{
    double slack = 0x1p-46 * fabs(w->exact);
    return claimed >= w->lo - slack && claimed <= w->hi + slack;
}

/* How far rounding lets a weight be off on that side. */
static double reach(double claimed, const struct mr_judge_weight *w)
{
    return claimed >= w->exact ? w->hi - w->exact : w->exact - w->lo;
}

/* Whether the claimed weights are those of the ids in another arrangement. Each claimed weight,
 * in ascending order, takes of the intervals [lo, hi] that hold it and are free the one that
 * ends first: if any arrangement exists, this finds one (points and intervals are matched best
 * by earliest end). slot_of[i] is the slot whose claimed weight slot i's expert has. */
static bool arrange(struct mr_judge *j, const double *claimed)
{
    int k = j->router->top_k;
    uint8_t *taken = j->used;
    int *by_size = j->experts; /* slots by claimed weight */
    for (int i = 0; i < k; i++) {
        int at = i;
        for (; at > 0 && claimed[by_size[at - 1]] > claimed[i]; at--) by_size[at] = by_size[at - 1];
        by_size[at] = i;
    }
    for (int i = 0; i < k; i++) taken[i] = 0;
    for (int n = 0; n < k; n++) {
        int slot = by_size[n], best = -1;
        for (int i = 0; i < k; i++) {
            if (taken[i] || !fits(claimed[slot], &j->weight[i])) continue;
            if (best < 0 || j->weight[i].hi < j->weight[best].hi) best = i;
        }
        if (best < 0) return false;
        taken[best] = 1;
        j->slot_of[best] = slot;
    }
    return true;
}

/* The slot whose weight is off most; -1 if none is off. */
static int worst_weight(const struct mr_judge *j, const double *claimed)
{
    int worst = -1;
    double most = 0;
    for (int i = 0; i < j->router->top_k; i++) {
        const struct mr_judge_weight *w = &j->weight[i];
        if (fits(claimed[i], w)) continue;
        double off = fabs(claimed[i] - w->exact) - reach(claimed[i], w);
        if (worst >= 0 && !(off > most)) continue;
        worst = i;
        most = off;
    }
    return worst;
}

static void explain_weight(const struct mr_judge *j, struct mr_judgement *part, int slot,
                           double claimed)
{
    const struct mr_judge_weight *w = &j->weight[slot];
    part->slot = slot;
    part->id = j->ids[slot];
    part->omitted_key = w->exact;
    part->included_key = claimed;
    part->difference = fabs(claimed - w->exact);
    part->radius = reach(claimed, w);
}

enum mr_status mr_judge_weights(struct mr_judge *j, const double *claimed, bool certified,
                                const struct mr_judge_source *source, struct mr_judgement *part)
{
    static const enum mr_effort order[] = {MR_EFFORT_LEAST, MR_EFFORT_NORM, MR_EFFORT_SUM};
    int k = j->router->top_k, worst = -1, bad = -1;
    for (int i = 0; i < k && bad < 0; i++)
        if (!isfinite(claimed[i])) bad = i;
    for (int n = 0; n < 3; n++) {
        enum mr_status status =
            source->weights(source->context, j->ids, certified, order[n], j->weight);
        if (status) return status;
        worst = worst_weight(j, claimed);
        if (bad >= 0) break;
        if (order[n] == MR_EFFORT_LEAST && worst < 0) return MR_OK;
    }
    if (bad >= 0) {
        explain_weight(j, part, bad, claimed[bad]);
        part->difference = part->radius = NAN;
        part->verdict = MR_NONFINITE;
        part->cause = MR_CAUSE_WEIGHT;
        return MR_OK;
    }
    if (worst < 0) return MR_OK;
    explain_weight(j, part, worst, claimed[worst]);
    part->verdict = MR_WRONG;
    part->cause = MR_CAUSE_WEIGHT;
    if (!arrange(j, claimed)) return MR_OK;
    part->verdict = MR_MALFORMED;
    part->cause = MR_CAUSE_PAIRING;
    for (int i = 0; i < k; i++)
        if (j->slot_of[i] == worst) part->included = j->ids[i];
    return MR_OK;
}
