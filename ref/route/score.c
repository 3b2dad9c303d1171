#include "score.h"

const struct mr_score_ops *mr_score_ops(enum mr_score score)
{
    return score == MR_SCORE_SIGMOID ? &mr_sigmoid_ops : &mr_softmax_ops;
}
