#include "score.h"

const struct mr_score_ops *mr_score_ops(enum mr_score score)
{
    switch (score) {
    case MR_SCORE_SIGMOID: return &mr_sigmoid_ops;
    case MR_SCORE_SOFTMAX: return &mr_softmax_ops;
    case MR_SCORE_SQRT_SOFTPLUS: return &mr_sqrt_softplus_ops;
    }
    return &mr_sigmoid_ops;
}

const struct mr_score_ops *mr_router_ops(const struct mr_router *r)
{
    return r->selection == MR_SELECT_LOGIT ? &mr_after_topk_ops : mr_score_ops(r->score);
}
