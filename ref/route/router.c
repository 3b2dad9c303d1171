#include "router.h"

#include <math.h>

const char *mr_score_name(enum mr_score score)
{
    switch (score) {
    case MR_SCORE_SIGMOID: return "sigmoid";
    case MR_SCORE_SOFTMAX: return "softmax";
    }
    return "?";
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
    if (r->score != MR_SCORE_SIGMOID && r->score != MR_SCORE_SOFTMAX)
        return mr_fail(err, MR_ERR_VALUE, "%s: router: unknown score %d", path, (int)r->score);
    if (r->n_group < 1 || r->experts % r->n_group != 0)
        return mr_fail(err, MR_ERR_VALUE, "%s: router: expected n_group that divides experts = %d, "
                       "found %d", path, r->experts, r->n_group);
    if (r->topk_group < 1 || r->topk_group > r->n_group)
        return mr_fail(err, MR_ERR_VALUE, "%s: router: expected topk_group from 1 to n_group = %d, "
                       "found %d", path, r->n_group, r->topk_group);
    int per_group = r->experts / r->n_group;
    if (r->n_group > 1 && r->bias && per_group < 2)
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
