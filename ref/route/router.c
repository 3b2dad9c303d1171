#include "router.h"

#include <math.h>

const char *mr_score_name(enum mr_score score)
{
    switch (score) {
    case MR_SCORE_SIGMOID: return "sigmoid";
    case MR_SCORE_SOFTMAX: return "softmax";
    case MR_SCORE_SQRT_SOFTPLUS: return "sqrtsoftplus";
    }
    return "?";
}

const char *mr_selection_name(enum mr_selection selection)
{
    switch (selection) {
    case MR_SELECT_SCORE: return "score";
    case MR_SELECT_LOGIT: return "logit";
    }
    return "?";
}

const char *mr_group_score_name(enum mr_group_score g)
{
    switch (g) {
    case MR_GROUP_TOP2_SUM: return "top2_sum";
    case MR_GROUP_MAX: return "max";
    }
    return "?";
}

static enum mr_status check_kinds(const struct mr_router *r, const char *path, struct mr_error *err)
{
    if (*mr_score_name(r->score) == '?')
        return mr_fail(err, MR_ERR_VALUE, "%s: router: unknown score %d", path, (int)r->score);
    if (*mr_selection_name(r->selection) == '?')
        return mr_fail(err, MR_ERR_VALUE, "%s: router: unknown selection %d", path,
                       (int)r->selection);
    if (*mr_group_score_name(r->group_score) == '?')
        return mr_fail(err, MR_ERR_VALUE, "%s: router: unknown group score %d", path,
                       (int)r->group_score);
    /* No known model has these, and nothing says what they would mean. */
    if (r->selection == MR_SELECT_LOGIT && (r->bias || r->n_group > 1))
        return mr_fail(err, MR_ERR_VALUE,
                       "%s: router: selection by logit serves neither a correction "
                       "bias nor groups, found %s",
                       path, r->bias ? "a bias" : "n_group > 1");
    return MR_OK;
}

enum mr_status mr_router_check(const struct mr_router *r, const char *path, struct mr_error *err)
{
    if (r->experts < 1)
        return mr_fail(err, MR_ERR_VALUE, "%s: router: expected experts >= 1, found %d", path,
                       r->experts);
    if (r->top_k < 1 || r->top_k > r->experts)
        return mr_fail(err, MR_ERR_VALUE, "%s: router: expected top_k from 1 to experts = %d, "
                       "found %d", path, r->experts, r->top_k);
    if (r->hidden < 0)
        return mr_fail(err, MR_ERR_VALUE, "%s: router: expected hidden >= 0, found %d", path,
                       r->hidden);
    if (r->hash_layers < 0)
        return mr_fail(err, MR_ERR_VALUE, "%s: router: expected hash_layers >= 0, found %d", path,
                       r->hash_layers);
    enum mr_status status = check_kinds(r, path, err);
    if (status) return status;
    if (r->n_group < 1 || r->experts % r->n_group != 0)
        return mr_fail(err, MR_ERR_VALUE, "%s: router: expected n_group that divides experts = %d, "
                       "found %d", path, r->experts, r->n_group);
    if (r->topk_group < 1 || r->topk_group > r->n_group)
        return mr_fail(err, MR_ERR_VALUE, "%s: router: expected topk_group from 1 to n_group = %d, "
                       "found %d", path, r->n_group, r->topk_group);
    int per_group = r->experts / r->n_group;
    if (r->n_group > 1 && r->group_score == MR_GROUP_TOP2_SUM && per_group < 2)
        return mr_fail(err, MR_ERR_VALUE, "%s: router: n_group = %d leaves one expert a group, but "
                       "a group's score is the sum of its two largest keys", path, r->n_group);
    /* No overflow: topk_group * per_group <= experts. */
    if (r->top_k > r->topk_group * per_group)
        return mr_fail(err, MR_ERR_VALUE, "%s: router: top_k = %d, but topk_group = %d groups hold "
                       "only %d experts", path, r->top_k, r->topk_group,
                       r->topk_group * per_group);
    if (!isfinite(r->routed_scaling_factor))
        return mr_fail(err, MR_ERR_VALUE, "%s: router: expected a finite routed_scaling_factor, "
                       "found %g", path, r->routed_scaling_factor);
    return MR_OK;
}
