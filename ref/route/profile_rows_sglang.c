/* Rows of SGLang. By default routed_scaling_factor is not in the top-k: the model multiplies the
 * output (apply_routed_scaling_factor_on_output puts it in). */
#include "profile_rows.h"

#define JIT "SGLang python/sglang/kernels/jit/csrc/moe/moe_fused_gate.cuh @25b379e"
#define GROUPS "SGLang python/sglang/jit_kernel/csrc/moe/moe_fused_gate.cuh @0470ac6"
#define SOFTMAX "SGLang python/sglang/kernels/jit/csrc/moe/moe_topk_softmax.cuh @ed9569a"
#define TRITON "SGLang python/sglang/kernels/ops/moe/moe_fused_gate.py @050ac95, " \
               "_router_triton_kernel"
#define TOPK "SGLang python/sglang/srt/layers/moe/topk.py @000328a (an old version)"
#define CELL(c, v, s) [MR_CELL_##c] = {v, s}
#define OUTSIDE CELL(SCALING, MR_SCALING_OUTSIDE, TOPK)

/* kMaxExperts, kMaxTopK of JIT. */
static bool jit(const struct mr_router *r)
{
    return r->bias && r->experts <= 512 && r->top_k <= 16;
}

/* One lane a group, VPT <= 32 experts each; the butterfly needs a power of two. */
static bool fused_groups(const struct mr_router *r)
{
    return r->bias && r->n_group <= 32 && (r->n_group & (r->n_group - 1)) == 0 &&
           r->experts / r->n_group <= 32;
}

#define JIT_ROW(kind, form) \
    {"sglang", kind, "moe_fused_gate", JIT, "bias, E <= 512, k <= 16", jit, NULL, \
     {CELL(SCORE, form, 0), CELL(TIE, MR_TIE_ROWS_512, 0), CELL(NAN, MR_NAN_NEVER, 0), \
      CELL(SUM, MR_SUM_BUTTERFLY, 0), CELL(GUARD, MR_GUARD_POSITIVE, 0), OUTSIDE, \
      CELL(SHARED, MR_SHARED_SUM_RSF, 0)}}
#define SOFTMAX_ROW(kind) \
    {"sglang", kind, "topkGating", SOFTMAX, NULL, NULL, NULL, \
     {CELL(SCORE, MR_FORM_SOFTMAX_MULTIPLY, 0), CELL(TIE, MR_TIE_POW2_LOWEST, 0), \
      CELL(NAN, MR_NAN_STUCK, 0), OUTSIDE}}
#define TRITON_ROW(kind, form, group, mask) \
    {"sglang-triton", kind, "router_triton", TRITON, NULL, NULL, NULL, \
     {CELL(SCORE, form, 0), CELL(GROUP, group, 0), CELL(MASK, mask, 0), \
      CELL(NAN, MR_NAN_LOW, 0), CELL(SUM, MR_SUM_UNKNOWN, 0), CELL(GUARD, MR_GUARD_POSITIVE, 0), \
      OUTSIDE, CELL(SHARED, MR_SHARED_SUM_RSF, 0)}}

static const struct mr_profile_row rows[] = {
    JIT_ROW(MR_KIND_SIGMOID, MR_FORM_SIGMOID_EXP),
    JIT_ROW(MR_KIND_SQRT_SOFTPLUS, MR_FORM_SOFTPLUS_LOG1P),
    {"sglang", MR_KIND_SIGMOID_GROUPS, "moe_fused_gate", GROUPS,
     "bias, g = 2^n <= 32, E/g <= 32", fused_groups, NULL,
     {CELL(SCORE, MR_FORM_SIGMOID_EXP, 0), CELL(SCORE_TYPE, MR_PROFILE_AS_LOGITS, 0),
      CELL(BIAS, MR_PROFILE_AS_LOGITS, 0), CELL(GROUP, MR_PGROUP_TOP2, 0),
      CELL(MASK, MR_MASK_NEVER, 0), CELL(NAN, MR_NAN_STUCK, 0), OUTSIDE,
      CELL(SHARED, MR_SHARED_SUM_RSF, 0)}},
    SOFTMAX_ROW(MR_KIND_SOFTMAX),
    SOFTMAX_ROW(MR_KIND_SOFTMAX_RENORM),
    {"sglang", MR_KIND_SOFTMAX_GROUPS, "grouped_topk_gpu", TOPK, NULL, NULL, NULL,
     {CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, 0), CELL(GROUP, MR_PGROUP_MAX, 0),
      CELL(MASK, MR_MASK_ZERO, 0), CELL(TIE, MR_TIE_UNDEFINED, 0), CELL(NAN, MR_NAN_TORCH, 0),
      CELL(SUM, MR_SUM_UNKNOWN, 0), OUTSIDE, CELL(ORDER, MR_ORDER_NONE, 0),
      CELL(SHARED, MR_SHARED_SUM_RSF, 0)}},
    {"sglang", MR_KIND_TOPK_SOFTMAX, "torch_raw_logits",
     TOPK ", fused_topk_softmax_torch_raw_logits", NULL, NULL, NULL,
     {CELL(RANK, MR_RANK_LOGIT, 0), CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, 0),
      CELL(TIE, MR_TIE_UNDEFINED, 0), CELL(NAN, MR_NAN_TORCH, 0),
      CELL(SUM, MR_SUM_UNKNOWN, 0), OUTSIDE}},
    TRITON_ROW(MR_KIND_SIGMOID, MR_FORM_SIGMOID_EXP, MR_PGROUP_NONE, MR_MASK_NONE),
    TRITON_ROW(MR_KIND_SIGMOID_GROUPS, MR_FORM_SIGMOID_EXP, MR_PGROUP_TOP1_BELOW,
               MR_MASK_NEG_INF),
    TRITON_ROW(MR_KIND_SOFTMAX, MR_FORM_SOFTMAX_DIVIDE, MR_PGROUP_NONE, MR_MASK_NONE),
    TRITON_ROW(MR_KIND_SOFTMAX_RENORM, MR_FORM_SOFTMAX_DIVIDE, MR_PGROUP_NONE, MR_MASK_NONE),
    TRITON_ROW(MR_KIND_SQRT_SOFTPLUS, MR_FORM_SOFTPLUS_LOG, MR_PGROUP_NONE, MR_MASK_NONE),
};

const struct mr_profile_rows mr_sglang_rows = {rows, sizeof rows / sizeof *rows};
