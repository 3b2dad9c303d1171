/* What a checkpoint's router means, mathematically (DESIGN section 2): no rounding, no engine. */
#ifndef MOEREF_ROUTER_H
#define MOEREF_ROUTER_H

#include <stdbool.h>

#include "../status.h"

enum mr_score {
    MR_SCORE_SIGMOID,      /* 1 / (1 + exp(-logit)) */
    MR_SCORE_SOFTMAX,      /* exp(logit) / sum of exp(logit): over all experts, or the selected ones */
    MR_SCORE_SQRT_SOFTPLUS /* sqrt(log(1 + exp(logit))) (DeepSeek-V4) */
};
const char *mr_score_name(enum mr_score score); /* "sigmoid", "softmax", "sqrtsoftplus" */

/* What ranks the experts, and so what the softmax runs over. */
enum mr_selection {
    MR_SELECT_SCORE, /* rank by score + bias; a softmax runs over all experts, before the top-k */
    MR_SELECT_LOGIT  /* rank by logit; the score of the selected ones alone, after the top-k: softmax
                        over them (gpt-oss), or sigmoid (Llama 4, top-1) */
};
const char *mr_selection_name(enum mr_selection selection); /* "score", "logit" */

/* How a group of experts is scored when n_group > 1. */
enum mr_group_score {
    MR_GROUP_TOP2_SUM, /* sum of its two largest keys (DeepSeek-V3) */
    MR_GROUP_MAX       /* its largest key (DeepSeek-V2) */
};
const char *mr_group_score_name(enum mr_group_score g); /* "top2_sum", "max" */

/* logit = hidden . gate weight (+ gate bias) -> score -> rank key = score + correction bias -> with
 * groups, the topk_group best groups stay -> the top_k largest keys among them -> weight from the
 * score alone: score / (sum of the selected scores if norm_topk_prob) * routed_scaling_factor. */
struct mr_router {
    int experts, top_k, hidden;
    enum mr_score score;
    enum mr_selection selection;
    bool bias;      /* e_score_correction_bias is added to rank, not to weigh */
    bool gate_bias; /* a linear bias is part of the logit (gpt-oss) */
    int n_group, topk_group; /* 1, 1: no groups */
    enum mr_group_score group_score;
    bool norm_topk_prob;
    double routed_scaling_factor;
    int hash_layers; /* the first so many MoE layers choose experts by token id (tid2eid), and weigh
                        them by score (DeepSeek-V4) */
};

/* MR_ERR_VALUE unless 1 <= top_k <= experts, n_group divides experts, 1 <= topk_group <= n_group,
 * the chosen groups hold at least top_k experts, with MR_GROUP_TOP2_SUM every group of several
 * holds two (DeepSeek-V3, arXiv:2412.19437, and transformers' get_topk_indices), MR_SELECT_LOGIT
 * comes without correction bias and groups, and the scaling factor is finite. hidden may be 0
 * (routing from logits). path is for messages. */
enum mr_status mr_router_check(const struct mr_router *router, const char *path,
                               struct mr_error *err);

#endif
