/* Rows of vLLM 0.33.0, CUDA paths (not ROCm, XPU). */
#include "profile_rows.h"

#define GROUPED "vLLM csrc/moe/grouped_topk_kernels.cu @v0.33.0"
#define PYTHON "vLLM model_executor/layers/fused_moe/router/grouped_topk_router.py @v0.33.0"
#define GATING "vLLM csrc/moe/topk_softmax_kernels.cu @v0.33.0"
#define BIASED "vLLM model_executor/layers/fused_moe/router/fused_topk_bias_router.py @0263839"
#define CLASSIC "vLLM csrc/moe/topk_softplus_sqrt_kernels.cu @v0.33.0"
#define DSV4 "vLLM model_executor/layers/fused_moe/router/dsv4_topk.py @v0.33.0"
#define LLAMA4 "vLLM tests/kernels/moe/test_routing.py @0103394, which repeats Llama4MoE"
#define TOPK "torch.topk, sorted only with VLLM_BATCH_INVARIANT; equal keys: not promised"
#define ON MR_H200 "vLLM 0.33.0"
#define RAN(tokens) ON ", fp32 and bf16 logits, " tokens MR_ALL_BITS
#define RAN32(tokens) ON ", fp32 logits, " tokens MR_ALL_BITS
/* torch.compile turns the Python lines into Triton, where bf16 logits get fp32 scores; eager is as
 * torch has it. The order of the sum was found, not read. */
#define INDUCTOR "torch.compile (Inductor) @torch 2.11, on an H200: found from recordings, not read"
#define CELL(c, v, s) [MR_CELL_##c] = {v, s}

/* reduceTopK: a 64-bit key of the float's ordered bits above 65535 - id. */
#define BITS CELL(TIE, MR_TIE_LOWEST, 0), CELL(NAN, MR_NAN_BITS, 0), \
             CELL(SUM, MR_SUM_BUTTERFLY, 0)
#define SHARED CELL(SHARED, MR_SHARED_CONSTANT, BIASED)

/* SigmoidBiasTiers in GROUPED. */
static bool one_group(const struct mr_router *r)
{
    return r->bias && ((r->experts <= 512 && r->top_k <= 22) ||
                       (r->experts <= 1024 && r->top_k <= 16));
}

static bool small_groups(const struct mr_router *r)
{
    int size = r->experts / r->n_group;
    return r->bias && r->experts <= 256 && size <= 32 && size * r->topk_group <= 128 &&
           r->top_k <= 8 && r->topk_group <= 4;
}

static bool generic(const struct mr_router *r)
{
    return r->bias && r->n_group <= 32 && r->top_k <= 32;
}

static bool unbiased(const struct mr_router *r)
{
    return !r->bias;
}

static bool dsv4(const struct mr_router *r)
{
    return r->bias && r->norm_topk_prob && r->top_k == 6 && (r->experts == 256 || r->experts == 384);
}

static const struct mr_profile_row rows[] = {
    /* With use_grouped_topk, whatever the number of groups. */
    {"vllm", MR_KIND_SIGMOID, "one group", GROUPED,
     "bias, E <= 512 and k <= 22, or E <= 1024 and k <= 16", one_group,
     RAN("2 x 1024") "; in a block: the warp was not recorded",
     {CELL(SCORE, MR_FORM_SIGMOID_TANH, 0), CELL(TIE, MR_TIE_LOWEST, 0),
      CELL(NAN, MR_NAN_INVALID, 0), CELL(WEIGHT, MR_WEIGHT_BY_ROWS, 0),
      CELL(SUM, MR_SUM_BUTTERFLY, 0), CELL(GUARD, MR_GUARD_EPS_FP32, 0),
      CELL(SCALING, MR_SCALING_FIRST, 0)}},
    {"vllm", MR_KIND_SIGMOID, "grouped, general", GROUPED, "bias, k <= 32", generic, NULL,
     {CELL(SCORE, MR_FORM_SIGMOID_TANH, 0), CELL(BIAS, MR_PROFILE_AS_LOGITS, 0),
      CELL(TIE, MR_TIE_LOWEST, 0), CELL(NAN, MR_NAN_EXCLUDE, 0), CELL(SUM, MR_SUM_BUTTERFLY, 0),
      CELL(SCORE_TYPE, MR_PROFILE_AS_LOGITS, 0), CELL(GUARD, MR_GUARD_EPS_FP32, 0),
      CELL(SCALING, MR_SCALING_FIRST, 0)}},
    /* Without use_grouped_topk, with a bias as well. */
    {"vllm", MR_KIND_SIGMOID, "topk_sigmoid", GATING, NULL, NULL, RAN("2 x 1024"),
     {CELL(SCORE, MR_FORM_SIGMOID_FAST, 0), CELL(NAN, MR_NAN_ZERO, 0),
      CELL(GUARD, MR_GUARD_POSITIVE, 0), CELL(SCALING, MR_SCALING_FIRST, 0), SHARED}},
    {"vllm", MR_KIND_SIGMOID_GROUPS, "grouped, small", GROUPED,
     "bias, E <= 256, E/g <= 32, E/g*topk_group <= 128, topk_group <= 4, k <= 8", small_groups,
     RAN("2 x 512"),
     {BITS, CELL(SCORE, MR_FORM_SIGMOID_TANH, 0), CELL(GROUP, MR_PGROUP_TOP2, 0),
      CELL(MASK, MR_MASK_NEG_INF, 0), CELL(GUARD, MR_GUARD_EPS_FP64, 0),
      CELL(SCALING, MR_SCALING_MUL_DIV64, 0)}},
    {"vllm", MR_KIND_SIGMOID_GROUPS, "grouped, general", GROUPED, "bias, g <= 32, k <= 32", generic,
     NULL,
     {CELL(SCORE, MR_FORM_SIGMOID_TANH, 0), CELL(BIAS, MR_PROFILE_AS_LOGITS, 0),
      CELL(GROUP, MR_PGROUP_TOP2, 0), CELL(MASK, MR_MASK_NEVER, 0), CELL(NAN, MR_NAN_EXCLUDE, 0),
      CELL(SUM, MR_SUM_BUTTERFLY, 0), CELL(SCORE_TYPE, MR_PROFILE_AS_LOGITS, 0),
      CELL(GUARD, MR_GUARD_EPS_FP32, 0), CELL(SCALING, MR_SCALING_FIRST, 0)}},
    {"vllm", MR_KIND_SIGMOID_GROUPS, "grouped, Python", PYTHON, NULL, NULL, RAN32("512"),
     {CELL(SCORE, MR_FORM_SIGMOID_TRITON, INDUCTOR), CELL(GROUP, MR_PGROUP_BY_BIAS, 0),
      CELL(MASK, MR_MASK_NEG_INF, 0), CELL(TIE, MR_TIE_UNDEFINED, TOPK),
      CELL(NAN, MR_NAN_TORCH, TOPK), CELL(SUM, MR_SUM_BUTTERFLY, INDUCTOR),
      CELL(DIVISION, MR_DIVISION_FULL, INDUCTOR), CELL(ORDER, MR_ORDER_NONE, TOPK)}},
    {"vllm", MR_KIND_SOFTMAX, "topkGating", GATING, NULL, NULL, NULL,
     {CELL(SCORE, MR_FORM_SOFTMAX_MULTIPLY, 0), CELL(NAN, MR_NAN_ZERO, 0),
      CELL(GUARD, MR_GUARD_POSITIVE, 0), CELL(SCALING, MR_SCALING_RECIP, BIASED), SHARED}},
    {"vllm", MR_KIND_SOFTMAX_RENORM, "topkGating", GATING, NULL, NULL, RAN("2 x 2048"),
     {CELL(SCORE, MR_FORM_SOFTMAX_MULTIPLY, 0), CELL(NAN, MR_NAN_ZERO, 0),
      CELL(GUARD, MR_GUARD_POSITIVE, 0), CELL(SCALING, MR_SCALING_RECIP, BIASED), SHARED}},
    {"vllm", MR_KIND_SOFTMAX_GROUPS, "grouped, Python", PYTHON, "no bias", unbiased, NULL,
     {CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, 0), CELL(SCORE_TYPE, MR_PROFILE_AS_LOGITS, 0),
      CELL(GROUP, MR_PGROUP_BY_BIAS, 0), CELL(MASK, MR_MASK_NEG_INF, 0),
      CELL(TIE, MR_TIE_UNDEFINED, TOPK), CELL(NAN, MR_NAN_TORCH, TOPK),
      CELL(SUM, MR_SUM_UNKNOWN, 0), CELL(ORDER, MR_ORDER_NONE, TOPK)}},
    {"vllm", MR_KIND_TOPK_SIGMOID, "Llama4MoE", LLAMA4, NULL, NULL, NULL,
     {CELL(RANK, MR_RANK_LOGIT, 0), CELL(SCORE, MR_FORM_SIGMOID_EXP, 0),
      CELL(TIE, MR_TIE_UNDEFINED, TOPK), CELL(NAN, MR_NAN_TORCH, TOPK),
      CELL(SUM, MR_SUM_UNKNOWN, 0)}},
    {"vllm", MR_KIND_SQRT_SOFTPLUS, "softplus, Triton", DSV4,
     "bias, renormalised, k = 6, E = 256 or 384, fp32 logits", dsv4, NULL,
     {CELL(SCORE, MR_FORM_SOFTPLUS_TRITON, 0), CELL(TIE, MR_TIE_LOWEST, 0),
      CELL(NAN, MR_NAN_LOW, 0), CELL(DIVISION, MR_DIVISION_FULL, 0),
      CELL(SUM, MR_SUM_UNKNOWN, 0), CELL(GUARD, MR_GUARD_POSITIVE, 0),
      CELL(SCALING, MR_SCALING_FIRST, 0), SHARED}},
    {"vllm", MR_KIND_SQRT_SOFTPLUS, "softplus classic", CLASSIC, NULL, NULL, NULL,
     {CELL(SCORE, MR_FORM_SOFTPLUS_LOG_FAST, 0), CELL(NAN, MR_NAN_STUCK, 0),
      CELL(WEIGHT, MR_WEIGHT_KEY_MINUS_BIAS, 0), CELL(GUARD, MR_GUARD_POSITIVE, 0),
      CELL(SCALING, MR_SCALING_FIRST, 0), SHARED}},
    {"vllm", MR_KIND_HASH, "softplus classic", CLASSIC, NULL, NULL, NULL,
     {CELL(SCORE, MR_FORM_SOFTPLUS_LOG_FAST, 0), CELL(NAN, MR_NAN_STUCK, 0),
      CELL(GUARD, MR_GUARD_POSITIVE, 0), CELL(SCALING, MR_SCALING_FIRST, 0), SHARED}},
};

const struct mr_profile_rows mr_vllm_rows = {rows, sizeof rows / sizeof *rows};
