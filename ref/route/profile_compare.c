#include "profile_compare.h"

#include <math.h>
#include <string.h>

enum { MOST_SLOTS = 256 }; /* no kernel of the table serves more than 32 */

const char *mr_why_name(int why)
{
    if (why == MR_WHY_FP32) return "fp32 rounding";
    if (why == MR_WHY_SEVERAL) return "several";
    return why >= 0 && why < MR_CELL_COUNT ? mr_cell_name((enum mr_cell)why) : "";
}

static struct mr_profile_row plain_row(const struct mr_profile_row *like,
                                       const struct mr_router *router)
{
    struct mr_profile_row row = *like;
    memset(row.cell, 0, sizeof row.cell);
    row.cell[MR_CELL_SCORE].value = router->score == MR_SCORE_SIGMOID   ? MR_FORM_SIGMOID_EXP
                                    : router->score == MR_SCORE_SOFTMAX ? MR_FORM_SOFTMAX_DIVIDE
                                                                        : MR_FORM_SOFTPLUS_STABLE;
    if (router->selection == MR_SELECT_LOGIT) row.cell[MR_CELL_RANK].value = MR_RANK_LOGIT;
    row.cell[MR_CELL_GROUP].value =
        router->group_score == MR_GROUP_MAX ? MR_PGROUP_MAX : MR_PGROUP_TOP2;
    row.cell[MR_CELL_MASK].value = MR_MASK_NEVER;
    row.cell[MR_CELL_NAN].value = MR_NAN_TORCH; /* whose chosen experts are out for good */
    return row;
}

static bool has(const int32_t *ids, int k, int32_t id)
{
    for (int i = 0; i < k; i++)
        if (ids[i] == id) return true;
    return false;
}

bool mr_same_ids(const int32_t *a, const int32_t *b, int k)
{
    for (int i = 0; i < k; i++)
        if (!has(b, k, a[i]) || !has(a, k, b[i])) return false;
    return true;
}

/* Every expert exchanged for one that ties with it. Without the groups' ties: those change more. */
static bool tied_set(const int32_t *ids, const struct mr_routed *c, int k)
{
    if (c->certificate != MR_CERT_TIE) return false;
    for (int i = 0; i < k; i++) {
        bool ours = has(c->ids, k, ids[i]), theirs = has(ids, k, c->ids[i]);
        bool our_tie = false, their_tie = false;
        for (int t = 0; t < c->tie_count; t++) {
            our_tie |= c->ties[t] == ids[i];
            their_tie |= c->ties[t] == c->ids[i];
        }
        if ((!ours && !our_tie) || (!theirs && !their_tie)) return false;
    }
    return true;
}

struct trial {
    const struct mr_router *router;
    const struct mr_profile_batch *batch;
    bool hashed;
    const float *logits, *bias;
    struct mr_profile_scratch *s;
    const struct mr_routed *certified;
};

static void run(const struct trial *t, const struct mr_profile_row *row, int32_t *ids,
                float *weights, struct mr_profile_note *note)
{
    struct mr_profile_note own = {0};
    if (!t->hashed) {
        mr_profile_emulate(row, t->router, t->batch, t->logits, t->bias, t->s, ids, weights, note);
        return;
    }
    mr_profile_weigh(row, t->router, t->batch, t->logits, t->bias, t->s, ids, weights);
    for (int i = 0; i < t->router->top_k; i++) own.nonfinite |= !isfinite(weights[i]);
    *note = own;
}

/* Which cell alone turns the profile's set into the plain row's. */
static int set_reason(const struct trial *t, const struct mr_profile_row *row, const int32_t *ids)
{
    struct mr_profile_row plain = plain_row(row, t->router), changed;
    int32_t want[MOST_SLOTS], got[MOST_SLOTS];
    float weights[MOST_SLOTS];
    struct mr_profile_note note;
    int k = t->router->top_k;
    run(t, &plain, want, weights, &note);
    if (mr_same_ids(ids, want, k)) return MR_WHY_FP32;
    for (int c = 0; c < MR_CELL_COUNT; c++) {
        if (row->cell[c].value == plain.cell[c].value) continue;
        changed = *row;
        changed.cell[c].value = plain.cell[c].value;
        run(t, &changed, got, weights, &note);
        if (mr_same_ids(got, want, k)) return c;
    }
    return MR_WHY_SEVERAL;
}

/* Largest relative difference from the certified weights of the same experts; Inf for one that is
 * not finite. */
static double weight_error(const struct trial *t, const struct mr_profile_row *row,
                           const int32_t *ids, const float *weights)
{
    const struct mr_routed *c = t->certified;
    double factor = mr_profile_scales(row) ? 1 : t->router->routed_scaling_factor, worst = 0;
    for (int i = 0; i < t->router->top_k; i++) {
        int at = 0;
        while (at < t->router->top_k - 1 && c->ids[at] != ids[i]) at++;
        double error = fabs(weights[i] * factor - c->weights[at]);
        if (!isfinite(error)) return INFINITY;
        if (error > 0) error /= fmax(fabs(c->weights[at]), 0x1p-1022);
        if (error > worst) worst = error;
    }
    return worst;
}

/* Which cell alone explains the weights; else the one that explains most of a difference `was`, if
 * that is more than half. */
static int weight_reason(const struct trial *t, const struct mr_profile_row *row,
                         const int32_t *ids, double was)
{
    /* Of several that would do, the one that an engineer would call the fault. */
    static const enum mr_cell order[] = {MR_CELL_OUTPUT, MR_CELL_WEIGHT, MR_CELL_SCORE,
                                         MR_CELL_SCORE_TYPE, MR_CELL_GUARD, MR_CELL_SCALING,
                                         MR_CELL_DIVISION, MR_CELL_SUM, MR_CELL_RANK, MR_CELL_NAN};
    struct mr_profile_row plain = plain_row(row, t->router), changed;
    float weights[MOST_SLOTS];
    double best = was / 2;
    int reason = MR_WHY_NONE;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        enum mr_cell c = order[i];
        if (row->cell[c].value == plain.cell[c].value) continue;
        changed = *row;
        changed.cell[c].value = plain.cell[c].value;
        mr_profile_weigh(&changed, t->router, t->batch, t->logits, t->bias, t->s, ids, weights);
        double error = weight_error(t, &changed, ids, weights);
        if (error <= MR_WEIGHT_PART) return c;
        if (error < best) {
            best = error;
            reason = c;
        }
    }
    if (reason != MR_WHY_NONE) return reason;
    mr_profile_weigh(&plain, t->router, t->batch, t->logits, t->bias, t->s, ids, weights);
    return weight_error(t, &plain, ids, weights) <= MR_WEIGHT_PART ? MR_WHY_SEVERAL : MR_WHY_FP32;
}

void mr_profile_compare(const struct mr_profile_row *row, const struct mr_router *router,
                        const struct mr_profile_batch *batch, bool hashed, const float *logits,
                        const float *bias, const struct mr_routed *certified,
                        struct mr_profile_scratch *s, int32_t *ids, float *weights,
                        struct mr_profile_part *out)
{
    const struct trial t = {router, batch, hashed, logits, bias, s, certified};
    int k = router->top_k;
    *out = (struct mr_profile_part){.set = MR_PART_UNKNOWN, .why = MR_WHY_NONE,
                                    .weight_error = -1, .weight_why = MR_WHY_NONE};
    run(&t, row, ids, weights, &out->note);
    if (certified->certificate == MR_CERT_NONFINITE ||
        certified->certificate == MR_CERT_UNDECIDED || k > MOST_SLOTS)
        return;
    out->set = mr_same_ids(ids, certified->ids, k)   ? MR_PART_SAME
               : tied_set(ids, certified, k) ? MR_PART_TIE
                                             : MR_PART_OTHER;
    if (out->set != MR_PART_SAME) {
        out->why = set_reason(&t, row, ids);
        /* A tie of groups makes sets that are not pairwise ties of experts. */
        if (certified->certificate == MR_CERT_TIE && certified->group_tie_count > 0 &&
            out->why == MR_CELL_TIE)
            out->set = MR_PART_TIE;
        return;
    }
    out->weight_error = weight_error(&t, row, ids, weights);
    if (out->weight_error > MR_WEIGHT_PART)
        out->weight_why = weight_reason(&t, row, ids, out->weight_error);
}
