#include "layer_check.h"

#include <math.h>

#include "score.h"

static enum mr_status check_router(const struct mr_router *r, struct mr_error *err)
{
    if (r->top_k < 1 || r->top_k > r->experts)
        return mr_fail(err, MR_ERR_VALUE, "top_k is %d: expected 1 to %d (the number of experts)",
                       r->top_k, r->experts);
    if (!isfinite(r->routed_scaling_factor))
        return mr_fail(err, MR_ERR_VALUE, "routed_scaling_factor is not finite");
    return mr_router_check(r, "layer", err);
}

static enum mr_status check_dtype(const char *what, const struct mr_matrix *m,
                                  struct mr_error *err)
{
    if (!m->data || m->dtype == MR_BF16 || m->dtype == MR_F16 || m->dtype == MR_F32) return MR_OK;
    return mr_fail(err, MR_ERR_DTYPE, "%s is %s: expected BF16, F16 or F32", what,
                   mr_dtype_name(m->dtype));
}

static enum mr_status check_shapes(const struct mr_layer *l, struct mr_error *err)
{
    const struct mr_router *r = l->router;
    enum mr_status status = check_dtype("hidden", &l->hidden, err);
    if (!status) status = check_dtype("gate weight", &l->gate, err);
    if (!status) status = check_dtype("logits", &l->logits, err);
    if (status) return status;
    if (l->logits.data || !l->hidden.data) {
        if (l->logits.cols != (size_t)r->experts)
            return mr_fail(err, MR_ERR_SHAPE, "logits have %zu columns: expected %d experts",
                           l->logits.cols, r->experts);
    } else if (l->gate.rows != (size_t)r->experts || l->gate.cols != l->hidden.cols) {
        return mr_fail(err, MR_ERR_SHAPE,
                       "gate weight is [%zu, %zu]: expected [%d experts, %zu columns of the hidden "
                       "states]",
                       l->gate.rows, l->gate.cols, r->experts, l->hidden.cols);
    }
    return MR_OK;
}

static enum mr_status check_biases(const struct mr_layer *l, struct mr_error *err)
{
    for (int e = 0; l->bias && e < l->router->experts; e++)
        if (!isfinite(l->bias[e]))
            return mr_fail(err, MR_ERR_VALUE,
                           "correction bias [%d] is %s: expected a finite number", e,
                           isnan(l->bias[e]) ? "NaN" : "Inf");
    if (l->bias && l->router->selection == MR_SELECT_LOGIT)
        return mr_fail(err, MR_ERR_VALUE, "a correction bias, but logits rank: expected none");
    for (int e = 0; l->gate_bias && e < l->router->experts; e++) {
        double b = l->gate_bias[e];
        if (!isfinite(b) || (double)(float)b < b || (double)(float)b > b)
            return mr_fail(err, MR_ERR_VALUE,
                           "gate bias [%d] is %g: expected a finite binary32 number", e, b);
    }
    return MR_OK;
}

static enum mr_status check_given(const struct mr_layer *l, struct mr_error *err)
{
    const struct mr_router *r = l->router;
    size_t k = (size_t)r->top_k, tokens = l->logits.data ? l->logits.rows : l->hidden.rows;
    if (!l->given) return MR_OK;
    if (mr_needs_every_logit(r))
        return mr_fail(err, MR_ERR_UNSUPPORTED, "experts given by token id, and softmax over all "
                       "experts without norm_topk_prob: not served");
    for (size_t i = 0; i < tokens * k; i++)
        if (l->given[i] < 0 || l->given[i] >= r->experts)
            return mr_fail(err, MR_ERR_VALUE, "given expert [%zu, %zu] is %d: expected 0 to %d",
                           i / k, i % k, (int)l->given[i], r->experts - 1);
    return MR_OK;
}

enum mr_status mr_layer_check(const struct mr_layer *l, struct mr_error *err)
{
    enum mr_status status = check_router(l->router, err);
    if (!status) status = check_shapes(l, err);
    if (!status) status = check_biases(l, err);
    return status ? status : check_given(l, err);
}
