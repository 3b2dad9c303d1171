/* What a checkpoint's router means, mathematically (DESIGN section 2): no rounding, no engine. */
#ifndef MOEREF_ROUTER_H
#define MOEREF_ROUTER_H

#include <stdbool.h>

#include "../status.h"

enum mr_score {
    MR_SCORE_SIGMOID, /* 1 / (1 + exp(-logit)) */
    MR_SCORE_SOFTMAX  /* exp(logit) / sum over all experts of exp(logit) */
};
const char *mr_score_name(enum mr_score score); /* "sigmoid", "softmax" */

/* score -> rank key = score + bias -> the top_k largest keys -> weight from the score alone:
 * score / (sum of the selected scores if norm_topk_prob) * routed_scaling_factor. */
struct mr_router {
    int experts, top_k, hidden;
    enum mr_score score;
    bool bias; /* e_score_correction_bias is added to rank, not to weigh */
    int n_group, topk_group; /* 1, 1: no groups */
    bool norm_topk_prob;
    double routed_scaling_factor;
};

/* MR_ERR_VALUE unless 1 <= top_k <= experts, n_group divides experts, 1 <= topk_group <= n_group,
 * the chosen groups hold at least top_k experts, with a bias every group of several holds two (its
 * score is a sum of two keys: DeepSeek-V3, arXiv:2412.19437, and transformers' get_topk_indices),
 * and the scaling factor is finite. hidden may be 0 (routing from logits). path is for messages. */
enum mr_status mr_router_check(const struct mr_router *router, const char *path,
                               struct mr_error *err);

#endif
