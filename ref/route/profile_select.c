/* Selection under a profile: keys, groups, tie rules, and what a NaN does. s->score holds the
 * scores (or the logits, where these rank). */
#include <float.h>
#include <math.h>
#include <string.h>

#include "profile_private.h"

/* An order-preserving integer of a float's bits, as radix sorts use it. */
static uint32_t twiddled(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static bool above(float a, float b, enum mr_nan_rule rule)
{
    if (rule == MR_NAN_BITS) return twiddled(a) > twiddled(b);
    if (rule == MR_NAN_TORCH && isnan(b)) return false;
    if (rule == MR_NAN_TORCH && isnan(a)) return true;
    return a > b;
}

static bool equal(float a, float b, enum mr_nan_rule rule)
{
    if (rule == MR_NAN_BITS) return twiddled(a) == twiddled(b);
    return a == b || (rule == MR_NAN_TORCH && isnan(a) && isnan(b));
}

/* The largest that is not out, lowest index first; -1 if there is none. Under MR_NAN_NEVER the
 * search begins at -FLT_MAX, so that nothing below it, and no NaN, is found. */
static int largest(const float *key, const bool *out, int count, enum mr_nan_rule rule)
{
    int best = -1;
    for (int i = 0; i < count; i++) {
        if (out[i] || (rule == MR_NAN_NEVER && !(key[i] > -FLT_MAX))) continue;
        if (best < 0 || above(key[i], key[best], rule)) best = i;
    }
    return best;
}

/* One warp's shuffle-down: at each step lane l takes lane l + offset's pair if that is strictly
 * larger; a lane that would read past the warp reads itself. All lanes step at once, so lane l's
 * partner is read before it changes: going upwards in place is the same. */
static void warp_down(float value[32], int id[32])
{
    for (int offset = 16; offset > 0; offset /= 2)
        for (int l = 0; l + offset < 32; l++)
            if (value[l + offset] > value[l]) {
                value[l] = value[l + offset];
                id[l] = id[l + offset];
            }
}

/* SGLang python/sglang/kernels/jit/csrc/moe/moe_fused_gate.cuh @25b379e, small-token kernel: one
 * thread for each expert (up to 512), a shuffle-down in each warp, another over the warps' results.
 * At equal keys the lower lane keeps its own only when it is compared directly; a pair that meets a
 * step later from another lane may lose to a higher id. */
int mr_shuffle_tree(const float *key, int experts)
{
    float value[32], warp_value[32];
    int id[32], warp_id[32];
    for (int w = 0; w < 32; w++) {
        for (int l = 0; l < 32; l++) {
            int e = 32 * w + l;
            bool there = e < experts && key[e] > -FLT_MAX;
            value[l] = there ? key[e] : -FLT_MAX;
            id[l] = there ? e : -1;
        }
        warp_down(value, id);
        warp_value[w] = value[0];
        warp_id[w] = id[0];
    }
    warp_down(warp_value, warp_id);
    return warp_id[0];
}

static float rounded(float v, const struct mr_profile_row *row, enum mr_type logits)
{
    return row->cell[MR_CELL_BIAS].value == MR_PROFILE_AS_LOGITS ? mr_round_type(v, logits) : v;
}

static void make_keys(const struct mr_profile_row *row, const struct mr_router *router,
                      enum mr_type logits, const float *x, const float *bias,
                      struct mr_profile_scratch *s)
{
    enum mr_nan_rule nan = row->cell[MR_CELL_NAN].value;
    unsigned type = row->cell[MR_CELL_BIAS].value;
    bool plain = !bias || row->cell[MR_CELL_RANK].value == MR_RANK_LOGIT;
    for (int e = 0; e < router->experts; e++) {
        float b = bias ? bias[e] : 0;
        if (type == MR_PROFILE_BF16) b = mr_round_type(b, MR_TYPE_BF16);
        s->key[e] = plain ? s->score[e]
                          : rounded(s->score[e] + rounded(b, row, logits), row, logits);
        if (row->cell[MR_CELL_RANK].value == MR_RANK_LOGIT_ALL) s->key[e] = x[e];
        if ((nan == MR_NAN_LOW || nan == MR_NAN_LOW_ONCE) && isnan(s->key[e])) s->key[e] = -1e30f;
        if (nan == MR_NAN_INVALID && s->key[e] == 0) s->key[e] = 0;
    }
}

static float group_score(const float *key, int count, enum mr_profile_group how,
                         enum mr_nan_rule rule)
{
    float first = -INFINITY, second = -INFINITY;
    for (int i = 0; i < count; i++) {
        if (above(key[i], first, rule)) {
            second = first;
            first = key[i];
        } else if (above(key[i], second, rule)) {
            second = key[i];
        }
    }
    if (how == MR_PGROUP_MAX) return first;
    if (how == MR_PGROUP_TOP1_BELOW) {
        second = -INFINITY;
        for (int i = 0; i < count; i++)
            if (key[i] < first && key[i] > second) second = key[i];
    }
    return first + second;
}

/* Marks or masks the experts of the groups that are not chosen. False if the kernel gives up:
 * MR_NAN_EXCLUDE with a chosen group of score -Inf. */
static bool limit_groups(const struct mr_profile_row *row, const struct mr_router *router,
                         enum mr_type logits, bool biased, struct mr_profile_scratch *s,
                         struct mr_profile_note *note)
{
    enum mr_nan_rule nan = row->cell[MR_CELL_NAN].value;
    enum mr_profile_group how = row->cell[MR_CELL_GROUP].value;
    if (how == MR_PGROUP_BY_BIAS) how = biased ? MR_PGROUP_TOP2 : MR_PGROUP_MAX;
    int groups = router->n_group, size = router->experts / groups, last = -1;
    for (int g = 0; g < groups; g++) {
        s->group[g] = rounded(group_score(s->key + g * size, size, how, nan), row, logits);
        s->out[g] = false;
    }
    enum mr_nan_rule rule = nan == MR_NAN_NEVER ? MR_NAN_STUCK : nan;
    for (int i = 0; i < router->topk_group; i++) {
        last = largest(s->group, s->out, groups, rule);
        s->out[last] = true;
    }
    if (nan == MR_NAN_EXCLUDE && s->group[last] == -INFINITY) return false;
    for (int g = 0; g < groups; g++)
        if (!s->out[g] && equal(s->group[g], s->group[last], rule)) note->tie = true;
    /* s->out serves experts from here on, so the choice moves to s->group. */
    for (int g = 0; g < groups; g++) s->group[g] = s->out[g];
    for (int e = 0; e < router->experts; e++) {
        s->out[e] = false;
        if (s->group[e / size] != 0) continue;
        switch (row->cell[MR_CELL_MASK].value) {
        case MR_MASK_ZERO: s->key[e] = 0.0f; break;
        case MR_MASK_NEVER: s->out[e] = true; break;
        default: s->key[e] = -INFINITY;
        }
    }
    return true;
}

static void take_out(struct mr_profile_scratch *s, int e, enum mr_nan_rule rule)
{
    switch (rule) {
    case MR_NAN_ZERO:
    case MR_NAN_STUCK: s->key[e] = -10000.0f; break;
    case MR_NAN_BITS:
    case MR_NAN_LOW: s->key[e] = -INFINITY; break;
    case MR_NAN_NEVER: s->key[e] = -FLT_MAX; break;
    case MR_NAN_LOW_ONCE:
    case MR_NAN_TORCH:
    case MR_NAN_INVALID:
    case MR_NAN_EXCLUDE: s->out[e] = true; break;
    }
}

static bool among(const int32_t *ids, int count, int e)
{
    for (int i = 0; i < count; i++)
        if (ids[i] == e) return true;
    return false;
}

static bool tie_defined(const struct mr_profile_row *row, int experts)
{
    unsigned rule = row->cell[MR_CELL_TIE].value;
    if (rule == MR_TIE_POW2_LOWEST) return experts <= 256 && (experts & (experts - 1)) == 0;
    return rule != MR_TIE_UNDEFINED;
}

/* ids: -1 where MR_NAN_NEVER finds none. *uniform: ids 0, 1, ... with equal weights instead. */
void mr_profile_select(const struct mr_profile_row *row, const struct mr_router *router,
                       const struct mr_profile_batch *batch, const float *logits,
                       const float *bias, struct mr_profile_scratch *s, int32_t *ids,
                       bool *uniform, struct mr_profile_note *note)
{
    enum mr_nan_rule nan = row->cell[MR_CELL_NAN].value;
    int experts = router->experts, k = router->top_k;
    make_keys(row, router, batch->logits, logits, bias, s);
    for (int e = 0; e < experts; e++) s->out[e] = false;
    *uniform = router->n_group > 1 && row->cell[MR_CELL_GROUP].value != MR_PGROUP_NONE &&
               !limit_groups(row, router, batch->logits, bias != NULL, s, note);
    for (int e = 0; e < experts; e++) {
        if (!isfinite(logits[e])) note->nonfinite = true;
        bool barred = nan == MR_NAN_EXCLUDE || nan == MR_NAN_INVALID;
        bool odd = !isfinite(logits[e]) || (nan == MR_NAN_INVALID && bias && !isfinite(bias[e]));
        if (barred && odd) s->key[e] = -INFINITY;
    }
    bool tree = row->cell[MR_CELL_TIE].value == MR_TIE_ROWS_512 && batch->rows <= 512;
    float last = -INFINITY;
    for (int i = 0; i < k; i++) {
        int e = *uniform ? i
                : tree   ? mr_shuffle_tree(s->key, experts)
                         : largest(s->key, s->out, experts, nan);
        if (e < 0 && nan == MR_NAN_EXCLUDE) e = 0; /* a padded lane offers (-Inf, 0) */
        if (e >= 0 && among(ids, i, e)) note->repeated = true;
        ids[i] = e;
        if (e < 0 || *uniform) continue;
        last = s->key[e];
        take_out(s, e, nan);
    }
    for (int e = 0; e < experts && !*uniform && last > -FLT_MAX; e++)
        if (!s->out[e] && equal(s->key[e], last, nan) && !among(ids, k, e)) note->tie = true;
    if (note->tie && !tie_defined(row, experts)) note->undefined = true;
    if (note->nonfinite && nan == MR_NAN_STUCK) note->undefined = true;
}
