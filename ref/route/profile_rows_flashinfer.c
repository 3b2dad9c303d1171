/* Rows of FlashInfer: at fb28d72 (August 2026) the routing kernels in front of its fused MoE runners;
 * of release 0.7.4 NoAuxTc and hash_topk, both compiled with -use_fast_math. Selection is reduceTopK:
 * lowest id, by the bits of the key. There is no sqrt-softplus among its RoutingMethodTypes. */
#include "profile_rows.h"

#define KERNEL "FlashInfer RoutingKernel.cuh @fb28d72"
#define CUSTOM "FlashInfer routingCustom, SigmoidBias @fb28d72"
#define GROUPED "FlashInfer routingMainKernel (DeepSeekV3) @fb28d72"
#define LLAMA4 "FlashInfer routing_llama4.cu @fb28d72"
#define AUX "FlashInfer csrc/fused_moe/noAuxTcKernels.cu @v0.7.4"
#define HASH "FlashInfer include/flashinfer/fused_moe/hash_topk.cuh @v0.7.4"
#define RUNNER "FlashInfer runner.cu @fb28d72: RenormalizeNaive is served by Renormalize"
#define CELL(c, v, s) [MR_CELL_##c] = {v, s}
#define BITS CELL(NAN, MR_NAN_BITS, KERNEL), CELL(SUM, MR_SUM_BUTTERFLY, 0)
#define BF16 CELL(OUTPUT, MR_PROFILE_BF16, 0)

/* RoutingKernelCustomPolicy's largest tier. */
static bool custom(const struct mr_router *r)
{
    return r->bias && r->experts <= 1024 && r->top_k <= 32;
}

static bool default_tier(const struct mr_router *r)
{
    return r->experts <= 256 && r->top_k <= 8;
}

static bool groups(const struct mr_router *r)
{
    return r->bias && r->topk_group <= 4 && r->n_group <= 8 && r->experts / r->n_group <= 32;
}

static bool biased(const struct mr_router *r)
{
    return r->bias;
}

static bool one(const struct mr_router *r)
{
    return r->top_k == 1;
}

static const struct mr_profile_row rows[] = {
    {"flashinfer", MR_KIND_SIGMOID, "routingCustom", CUSTOM, "bias, E <= 1024, k <= 32", custom,
     NULL,
     {BITS, BF16, CELL(SCORE, MR_FORM_SIGMOID_TANH, 0), CELL(GUARD, MR_GUARD_EPS_FP32, 0),
      CELL(SCALING, MR_SCALING_MUL_DIV, 0)}},
    {"flashinfer", MR_KIND_SIGMOID_GROUPS, "routingMain", GROUPED,
     "bias, g <= 8, topk_group <= 4, E/g <= 32", groups, NULL,
     {BITS, BF16, CELL(SCORE, MR_FORM_SIGMOID_TANH, 0), CELL(BIAS, MR_PROFILE_BF16, 0),
      CELL(GROUP, MR_PGROUP_TOP2, 0), CELL(MASK, MR_MASK_NEG_INF, 0),
      CELL(GUARD, MR_GUARD_EPS_FP32, 0), CELL(SCALING, MR_SCALING_MUL_DIV, 0),
      CELL(SHARED, MR_SHARED_ONE, 0)}},
    {"flashinfer", MR_KIND_SOFTMAX, "Default", KERNEL, "E <= 256, k <= 8", default_tier, NULL,
     {BITS, BF16, CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, KERNEL " (calcSoftmax); the block-per-token "
                                                      "kernel multiplies by 1 / sum instead")}},
    /* Ranks the logits, softmax over the selected: the same numbers but for rounding. */
    {"flashinfer", MR_KIND_SOFTMAX_RENORM, "Renormalize", RUNNER, NULL, NULL, NULL,
     {BITS, BF16, CELL(RANK, MR_RANK_LOGIT, 0), CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, 0)}},
    {"flashinfer", MR_KIND_TOPK_SOFTMAX, "Renormalize", RUNNER, NULL, NULL, NULL,
     {BITS, BF16, CELL(RANK, MR_RANK_LOGIT, 0), CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, 0)}},
    {"flashinfer", MR_KIND_TOPK_SIGMOID, "routing_llama4", LLAMA4, "k = 1", one, NULL,
     {BITS, BF16, CELL(RANK, MR_RANK_LOGIT, 0), CELL(SCORE, MR_FORM_SIGMOID_TANH, 0)}},
    {"flashinfer", MR_KIND_HASH, "hash_topk", HASH, NULL, NULL, NULL,
     {BITS, CELL(SCORE, MR_FORM_SOFTPLUS_STABLE_FAST, 0), CELL(SCALING, MR_SCALING_OUTSIDE, 0),
      CELL(DIVISION, MR_DIVISION_APPROX, 0), CELL(SHARED, MR_SHARED_RECIP_RSF, 0)}},

    {"flashinfer-tc", MR_KIND_SIGMOID, "NoAuxTc", AUX, "bias", biased, NULL,
     {BITS, CELL(SCORE, MR_FORM_SIGMOID_TANH_FAST, 0), CELL(GUARD, MR_GUARD_EPS_FP64, 0),
      CELL(SCALING, MR_SCALING_FP64, 0), CELL(OUTPUT, MR_PROFILE_AS_LOGITS, 0)}},
    {"flashinfer-tc", MR_KIND_SIGMOID_GROUPS, "NoAuxTc", AUX,
     "bias, g <= 8, topk_group <= 4, E/g <= 32", groups,
     MR_H200 "FlashInfer 0.7.4, fp32, bf16 and fp16 logits, 3 x 512" MR_ALL_BITS,
     {BITS, CELL(SCORE, MR_FORM_SIGMOID_TANH_FAST, 0), CELL(GROUP, MR_PGROUP_TOP2, 0),
      CELL(MASK, MR_MASK_NEG_INF, 0), CELL(GUARD, MR_GUARD_EPS_FP64, 0),
      CELL(SCALING, MR_SCALING_FP64, 0), CELL(OUTPUT, MR_PROFILE_AS_LOGITS, 0)}},
};

const struct mr_profile_rows mr_flashinfer_rows = {rows, sizeof rows / sizeof *rows};
