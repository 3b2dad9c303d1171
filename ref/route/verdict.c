/* The verdict of one token.
 *
 * Pair test. Let r_e bound |kernel's key of e - exact key of e| (in fact its two sides have
 * bounds of their own). A kernel that ranks right by its own keys chooses j and not i only if
 * its key of j is at least its key of i, so only if key_i - key_j <= r_i + r_j. Hence a right
 * kernel of that arithmetic passes the test for every omitted i and included j, whatever its tie
 * rule: there is no false alarm. And with equal radii r nothing else passes: lower every expert
 * not chosen by r, raise every chosen one; e chosen, f not. If f is certified and e is not, the
 * test says that e is not below f now; if e is certified and f is not, e was not below f before;
 * if both are certified, take any included j: it passed the test against f, and e was not below
 * j before; both not: the same with any omitted i. (Both sets have top_k experts, so there is an
 * included one if there is an omitted one.) Radii of one token differ little; where they do,
 * this is the test of DESIGN section 4, and the judge errs to the mild side. The certified side
 * is not taken on faith either: exact keys come with an error, which is added to the radii, so
 * that a doubt of ours never makes a WRONG. */
#include "verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "verdict_parts.h"

const char *mr_verdict_name(enum mr_verdict v)
{
    static const char *const names[MR_VERDICT_COUNT] = {"malformed", "nonfinite", "wrong",
                                                        "undecided", "rounding",  "tie", "exact"};
    return (unsigned)v < MR_VERDICT_COUNT ? names[v] : "?";
}

const char *mr_cause_name(enum mr_cause c)
{
    static const char *const names[] = {"none",  "count",   "range",  "duplicate", "padding",
                                        "group", "set",     "order",  "pairing",   "weight",
                                        "logit", "input",   "reference", "tie"};
    return (unsigned)c < sizeof names / sizeof *names ? names[c] : "?";
}

const struct mr_judgement mr_judgement_exact = {
    MR_EXACT, MR_EXACT, MR_EXACT, MR_EXACT, MR_EXACT, MR_CAUSE_NONE, -1, -1, -1, -1,
    NAN, NAN, NAN, NAN};

enum mr_status mr_judge_new(const struct mr_router *router, struct mr_judge **out)
{
    size_t n = (size_t)router->experts, k = (size_t)router->top_k;
    struct mr_judge *j = calloc(1, sizeof *j);
    *out = NULL;
    if (!j) return MR_ERR_MEMORY;
    j->router = router;
    j->mark = calloc(n, 1);
    j->ids = malloc(k * sizeof *j->ids);
    j->omitted = malloc(k * sizeof *j->omitted);
    j->included = malloc(k * sizeof *j->included);
    j->slot_of = malloc(k * sizeof *j->slot_of);
    j->used = malloc(k);
    j->a = malloc(n * sizeof *j->a);
    j->b = malloc(k * sizeof *j->b);
    j->group = malloc((size_t)router->n_group * sizeof *j->group);
    j->interval = malloc(n * sizeof *j->interval);
    j->weight = malloc(k * sizeof *j->weight);
    j->experts = malloc(n * sizeof *j->experts);
    if (j->mark && j->ids && j->omitted && j->included && j->slot_of && j->used && j->a && j->b &&
        j->group && j->interval && j->weight && j->experts) {
        *out = j;
        return MR_OK;
    }
    mr_judge_free(j);
    return MR_ERR_MEMORY;
}

void mr_judge_free(struct mr_judge *j)
{
    if (!j) return;
    free(j->mark);
    free(j->ids);
    free(j->omitted);
    free(j->included);
    free(j->slot_of);
    free(j->used);
    free(j->a);
    free(j->b);
    free(j->group);
    free(j->interval);
    free(j->weight);
    free(j->experts);
    free(j);
}

int mr_judge_difference(const struct mr_judge *j, const int **omitted, const int **included)
{
    *omitted = j->omitted;
    *included = j->included;
    return j->differ;
}

enum { CERTIFIED = 1, TIED = 2, SEEN = 4 };

bool mr_judge_chosen(const struct mr_judge *j, int expert)
{
    return j->mark[expert] & SEEN;
}

static void malformed(struct mr_judgement *out, enum mr_cause cause, int slot, int64_t id)
{
    out->verdict = out->set = MR_MALFORMED;
    out->cause = cause;
    out->slot = slot;
    out->id = id;
}

/* Copies the ids, marking them; false if they are no set of top_k experts. */
static bool read_ids(struct mr_judge *j, const struct mr_claim *claim, struct mr_judgement *out)
{
    int k = j->router->top_k;
    if (claim->count != k) {
        malformed(out, MR_CAUSE_COUNT, -1, claim->count);
        return false;
    }
    for (int i = 0; i < k; i++) {
        int64_t id = claim->ids[i];
        if (id < 0 || id >= j->router->experts) {
            malformed(out, MR_CAUSE_RANGE, i, id);
            return false;
        }
        if (j->mark[id] & SEEN) {
            malformed(out, MR_CAUSE_DUPLICATE, i, id);
            return false;
        }
        j->mark[id] |= SEEN;
        j->ids[i] = (int)id;
        j->marked++;
    }
    return true;
}

/* Fills omitted and included; true if the two sets are one choice of a tie or the same. */
static bool compare_sets(struct mr_judge *j, const struct mr_routed *routed)
{
    int k = j->router->top_k, omitted = 0, included = 0;
    bool tied = true;
    for (int i = 0; i < k; i++) j->mark[routed->ids[i]] |= CERTIFIED;
    for (int i = 0; i < routed->tie_count; i++) j->mark[routed->ties[i]] |= TIED;
    for (int i = 0; i < k; i++) {
        int e = routed->ids[i];
        if (!(j->mark[e] & SEEN)) {
            j->omitted[omitted++] = e;
            tied &= (j->mark[e] & TIED) != 0;
        }
        if (!(j->mark[j->ids[i]] & CERTIFIED)) {
            j->included[included++] = j->ids[i];
            tied &= (j->mark[j->ids[i]] & TIED) != 0;
        }
    }
    j->differ = omitted; /* both sets have top_k distinct experts, so included == omitted */
    return tied;
}

static void clear_marks(struct mr_judge *j, const struct mr_routed *routed)
{
    for (int i = 0; i < j->marked; i++) j->mark[j->ids[i]] = 0;
    for (int i = 0; routed->certificate != MR_CERT_NONFINITE && i < j->router->top_k; i++)
        j->mark[routed->ids[i]] = 0;
    for (int i = 0; i < routed->tie_count; i++) j->mark[routed->ties[i]] = 0;
}

static void set_cause(struct mr_judgement *out, enum mr_verdict v, enum mr_cause cause)
{
    out->verdict = v;
    out->cause = cause;
}

/* The finding of a part becomes the token's if it is worse than what is known. */
static void take(struct mr_judgement *out, const struct mr_judgement *part)
{
    if (part->verdict >= out->verdict) return;
    enum mr_verdict set = out->set, order = out->order, pairing = out->pairing,
                    weight = out->weight;
    *out = *part;
    out->set = set;
    out->order = order;
    out->pairing = pairing;
    out->weight = weight;
}

static enum mr_status judge(struct mr_judge *j, const struct mr_routed *routed,
                            const struct mr_claim *claim, const struct mr_judge_source *source,
                            struct mr_judgement *out)
{
    const struct mr_judgement blank = *out;
    struct mr_judgement part = blank;
    enum mr_status status = MR_OK;
    bool same = compare_sets(j, routed);
    if (!same && !source->keys) {
        set_cause(&part, MR_WRONG, MR_CAUSE_SET);
        part.omitted = j->omitted[0];
        part.included = j->included[0];
    } else if (!same) {
        /* Groups that tie leave no mark on experts: mr_judge_groups knows of them. */
        status = j->router->n_group > j->router->topk_group
                     ? mr_judge_groups(j, routed, source, &part)
                     : mr_judge_pairs(j, source, &part);
    } else if (routed->certificate == MR_CERT_TIE) {
        set_cause(&part, MR_TIE, MR_CAUSE_TIE);
    }
    if (routed->certificate == MR_CERT_UNDECIDED && part.verdict > MR_UNDECIDED)
        set_cause(&part, MR_UNDECIDED, MR_CAUSE_REFERENCE);
    out->set = part.verdict;
    take(out, &part);
    if (status) return status;
    if (claim->ordered && source->keys) {
        part = blank;
        status = mr_judge_order(j, routed, source, &part);
        out->order = part.verdict;
        take(out, &part);
        if (status) return status;
    }
    if (!claim->weights) return MR_OK;
    part = blank;
    status = mr_judge_weights(j, claim->weights, j->differ == 0, source, &part);
    if (part.cause == MR_CAUSE_PAIRING) out->pairing = part.verdict;
    else out->weight = part.verdict;
    take(out, &part);
    return status;
}

enum mr_status mr_judge_token(struct mr_judge *j, const struct mr_routed *routed,
                              const struct mr_claim *claim, const struct mr_judge_source *source,
                              struct mr_judgement *out)
{
    enum mr_status status = MR_OK;
    *out = mr_judgement_exact;
    j->differ = j->marked = 0;
    if (read_ids(j, claim, out)) {
        if (routed->certificate == MR_CERT_NONFINITE)
            set_cause(out, out->set = MR_UNDECIDED, MR_CAUSE_INPUT);
        else
            status = judge(j, routed, claim, source, out);
    }
    clear_marks(j, routed);
    return status;
}

/* A difference without a radius is beyond every ratio. */
static double excess(const struct mr_judgement *j)
{
    if (isnan(j->difference)) return 0;
    return j->radius > 0 ? j->difference / j->radius : j->difference > 0 ? HUGE_VAL : 0;
}

int mr_judgement_compare(const struct mr_judgement *a, const struct mr_judgement *b)
{
    if (a->verdict != b->verdict) return a->verdict < b->verdict ? -1 : 1;
    double x = excess(a), y = excess(b);
    return x > y ? -1 : x < y;
}
