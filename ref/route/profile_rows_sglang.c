/* Rows of SGLang 0.5.23, and of sgl_kernel 0.4.4, which it replaces. By default routed_scaling_factor
 * is not in the top-k: the model multiplies the output (apply_routed_scaling_factor_on_output puts it
 * in, and so it was recorded). select_experts calls the Triton router for all of them; before it, for
 * groups, it casts logits to fp32. The first row of a kind is the kernel that a profile stands for,
 * others are found by name. */
#include "profile_rows.h"

#define JIT "SGLang python/sglang/kernels/jit/csrc/moe/moe_fused_gate.cuh @25b379e"
#define GROUPS "SGLang python/sglang/jit_kernel/csrc/moe/moe_fused_gate.cuh @0470ac6"
#define SOFTMAX "SGLang kernels/jit/csrc/moe/moe_topk_softmax.cuh @v0.5.23"
#define SIGMOID "SGLang kernels/jit/csrc/moe/moe_topk_sigmoid.cuh @v0.5.23"
#define KIMI "SGLang kernels/jit/csrc/lora/trtllm_lora_temp/kimi_k2_moe_fused_gate.cuh @v0.5.23"
#define TRITON "SGLang kernels/ops/moe/moe_fused_gate.py @v0.5.23, _router_triton_kernel"
#define MUSE "SGLang kernels/jit/csrc/muse_spark/routing.cuh @v0.5.23; muse_spark_routing.py"
#define INKLING "SGLang kernels/ops/moe/sigmoid_gate_topk_renorm.py @v0.5.23"
#define GEMMA "SGLang kernels/ops/moe/gemma4_routing.py @v0.5.23"
#define TOPK "SGLang srt/layers/moe/topk.py @v0.5.23"
#define OLD MR_UNVERIFIED "moe_fused_gate.cuh is not in 0.5.23, which was recorded"
#define BLOCKS MR_UNVERIFIED "recorded without groups alone, and there the order of the compiled " \
               "sum of exps was not found"
#define COMPILED "torch.compile (Inductor) @torch 2.11, on an H200: found from recordings, not read"
#define AOT "sgl_kernel 0.4.4 (PyPI), compiled: found from recordings, not read; of the forms that " \
            "give these bits, -use_fast_math's @v0.4.4"
#define TYPES "fp32, bf16 and fp16"
#define RAN(types, tokens) MR_H200 "SGLang 0.5.23, " types " logits, " tokens MR_ALL_BITS
#define ALL(tokens) RAN(TYPES, tokens)
#define AOT_RAN(types, tokens) MR_H200 "sgl_kernel 0.4.4, " types " logits, " tokens MR_ALL_BITS
#define CELL(c, v, s) [MR_CELL_##c] = {v, s}
#define OUTSIDE CELL(SCALING, MR_SCALING_OUTSIDE, TOPK)
#define FASTMATH CELL(DIVISION, MR_DIVISION_APPROX, 0) /* --use_fast_math */
#define FULL CELL(DIVISION, MR_DIVISION_FULL, 0)       /* Triton */

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

/* The kernel's 256 and 384 experts. */
static bool kimi(const struct mr_router *r)
{
    return (r->experts == 256 || r->experts == 384) && r->top_k <= 8;
}

static bool divided(const struct mr_router *r)
{
    return r->norm_topk_prob;
}

#define JIT_ROW(kind, form) \
    {"sglang-jit", kind, "moe_fused_gate", JIT, "bias, E <= 512, k <= 16", jit, OLD, \
     {CELL(SCORE, form, 0), CELL(TIE, MR_TIE_ROWS_512, 0), CELL(NAN, MR_NAN_NEVER, 0), \
      CELL(SUM, MR_SUM_BUTTERFLY, 0), CELL(GUARD, MR_GUARD_POSITIVE, 0), OUTSIDE, \
      CELL(SHARED, MR_SHARED_SUM_RSF, 0)}}
#define SOFTMAX_ROW(kind, checked) \
    {"sglang", kind, "topkGating", SOFTMAX, NULL, NULL, checked, \
     {CELL(SCORE, MR_FORM_SOFTMAX_MULTIPLY_FAST, 0), CELL(TIE, MR_TIE_POW2_LOWEST, 0), \
      CELL(NAN, MR_NAN_STUCK, 0), CELL(SCALING, MR_SCALING_OUTSIDE_RECIP, TOPK), FASTMATH}}
#define TRITON_ROW(kind, rank, form, group, mask, checked) \
    {"sglang-triton", kind, "router_triton", TRITON, NULL, NULL, checked, \
     {CELL(SCORE, form, 0), CELL(RANK, rank, 0), CELL(GROUP, group, 0), CELL(MASK, mask, 0), \
      CELL(NAN, MR_NAN_LOW_ONCE, 0), CELL(SUM, MR_SUM_VECTORS, LAYOUT), \
      CELL(GUARD, MR_GUARD_POSITIVE, 0), OUTSIDE, FULL, CELL(SHARED, MR_SHARED_EACH_RECIP, 0)}}
/* How Triton spreads the slots over threads was found from recordings: a warp keeps the layout in
 * which it loads 16 bytes of logits. */
#define LAYOUT "Triton @3.6, on an H200: found from recordings, not read"
#define TORCH_ROW(kind, name, group, mask, checked) \
    {"sglang", kind, name, TOPK, NULL, NULL, checked, \
     {CELL(SCORE, MR_FORM_SIGMOID_TRITON, COMPILED), CELL(GROUP, group, 0), CELL(MASK, mask, 0), \
      CELL(TIE, MR_TIE_UNDEFINED, 0), CELL(NAN, MR_NAN_TORCH, 0), \
      CELL(SUM, MR_SUM_BUTTERFLY, COMPILED), CELL(GUARD, MR_GUARD_EPS_FP32, 0), OUTSIDE, \
      CELL(DIVISION, MR_DIVISION_FULL, COMPILED), CELL(ORDER, MR_ORDER_NONE, 0)}}

static const struct mr_profile_row rows[] = {
    JIT_ROW(MR_KIND_SIGMOID, MR_FORM_SIGMOID_EXP),
    JIT_ROW(MR_KIND_SQRT_SOFTPLUS, MR_FORM_SOFTPLUS_LOG1P),
    /* Without renormalisation it does not scale either. */
    {"sglang", MR_KIND_SIGMOID, "topk_sigmoid", SIGMOID, NULL, NULL, ALL("3 x 1024"),
     {CELL(SCORE, MR_FORM_SIGMOID_FASTMATH, 0), CELL(NAN, MR_NAN_STUCK, 0),
      CELL(GUARD, MR_GUARD_EPS_FP32, 0), CELL(SCALING, MR_SCALING_OUTSIDE_FIRST, TOPK)}},
    {"sglang", MR_KIND_SIGMOID, "topk_sigmoid 0.4", AOT, NULL, NULL, AOT_RAN(TYPES, "3 x 1024"),
     {CELL(SCORE, MR_FORM_SIGMOID_FASTMATH, 0), CELL(NAN, MR_NAN_STUCK, 0),
      CELL(WEIGHT, MR_WEIGHT_KEY_MINUS_BIAS, 0),
      CELL(SUM, MR_SUM_UNKNOWN, AOT ": with biases near 12 all orders give the same sum"),
      CELL(SCALING, MR_SCALING_OUTSIDE_RECIP, TOPK), FASTMATH}},
    {"sglang", MR_KIND_SIGMOID, "kimi_k2 gate", KIMI, "E = 256 or 384, k <= 8; on request", kimi,
     NULL,
     {CELL(SCORE, MR_FORM_SIGMOID_EXP, 0), CELL(TIE, MR_TIE_ROWS_512, 0),
      CELL(NAN, MR_NAN_STUCK, 0), CELL(GUARD, MR_GUARD_POSITIVE, 0),
      CELL(SCALING, MR_SCALING_OUTSIDE_FACTOR, TOPK)}},
    TORCH_ROW(MR_KIND_SIGMOID, "biased_topk_impl", MR_PGROUP_NONE, MR_MASK_NONE,
              RAN("fp32", "1024")),
    {"sglang", MR_KIND_SIGMOID_GROUPS, "moe_fused_gate", GROUPS,
     "bias, g = 2^n <= 32, E/g <= 32", fused_groups, AOT_RAN("fp32", "512"),
     {CELL(SCORE, MR_FORM_SIGMOID_FASTMATH, AOT), CELL(SCORE_TYPE, MR_PROFILE_AS_LOGITS, 0),
      CELL(BIAS, MR_PROFILE_AS_LOGITS, 0), CELL(GROUP, MR_PGROUP_TOP2, 0),
      CELL(MASK, MR_MASK_NEVER, 0), CELL(NAN, MR_NAN_STUCK, 0), OUTSIDE,
      CELL(DIVISION, MR_DIVISION_APPROX, AOT), CELL(SHARED, MR_SHARED_SUM_RSF, 0)}},
    TORCH_ROW(MR_KIND_SIGMOID_GROUPS, "biased_grouped", MR_PGROUP_TOP2, MR_MASK_NEG_INF,
              RAN("fp32", "512")),
    SOFTMAX_ROW(MR_KIND_SOFTMAX, NULL),
    SOFTMAX_ROW(MR_KIND_SOFTMAX_RENORM, ALL("3 x 2048") "; sgl_kernel 0.4.4 as well"),
    {"sglang", MR_KIND_SOFTMAX_RENORM, "torch_raw_logits",
     TOPK ", fused_topk_softmax_torch_raw_logits", NULL, NULL, RAN("fp32 and bf16", "2 x 2048"),
     {CELL(RANK, MR_RANK_LOGIT, 0), CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, 0),
      CELL(TIE, MR_TIE_UNDEFINED, 0), CELL(NAN, MR_NAN_TORCH, 0),
      CELL(SUM, MR_SUM_BUTTERFLY, 0), OUTSIDE, CELL(ORDER, MR_ORDER_NONE, 0)}},
    {"sglang", MR_KIND_SOFTMAX_GROUPS, "grouped_topk_gpu", TOPK, NULL, NULL, BLOCKS,
     {CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, 0), CELL(GROUP, MR_PGROUP_MAX, 0),
      CELL(MASK, MR_MASK_ZERO, 0), CELL(TIE, MR_TIE_UNDEFINED, 0), CELL(NAN, MR_NAN_TORCH, 0),
      CELL(SUM, MR_SUM_UNKNOWN, 0), CELL(GUARD, MR_GUARD_EPS_FP32, 0), OUTSIDE,
      CELL(ORDER, MR_ORDER_NONE, 0)}},
    {"sglang", MR_KIND_TOPK_SOFTMAX, "torch_raw_logits",
     TOPK ", fused_topk_softmax_torch_raw_logits", NULL, NULL, NULL,
     {CELL(RANK, MR_RANK_LOGIT, 0), CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, 0),
      CELL(TIE, MR_TIE_UNDEFINED, 0), CELL(NAN, MR_NAN_TORCH, 0),
      CELL(SUM, MR_SUM_BUTTERFLY, 0), OUTSIDE, CELL(ORDER, MR_ORDER_NONE, 0)}},
    TRITON_ROW(MR_KIND_SIGMOID, MR_RANK_KEY, MR_FORM_SIGMOID_TRITON, MR_PGROUP_NONE, MR_MASK_NONE,
               ALL("3 x 1024")),
    {"sglang-triton", MR_KIND_SIGMOID, "muse_spark", MUSE, "renormalised", divided,
     RAN("fp32", "1024"),
     {CELL(SCORE, MR_FORM_SIGMOID_TRITON, 0), CELL(NAN, MR_NAN_STUCK, 0),
      CELL(SCALING, MR_SCALING_FIRST, 0), FULL}},
    {"sglang-triton", MR_KIND_SIGMOID, "sigmoid_gate", INKLING, "renormalised", divided,
     RAN("fp32", "1024"),
     {CELL(SCORE, MR_FORM_SIGMOID_TRITON, 0), CELL(NAN, MR_NAN_BITS, 0),
      CELL(SUM, MR_SUM_BUTTERFLY, LAYOUT), FULL}},
    TRITON_ROW(MR_KIND_SIGMOID_GROUPS, MR_RANK_KEY, MR_FORM_SIGMOID_TRITON, MR_PGROUP_TOP1_BELOW,
               MR_MASK_NEG_INF, ALL("3 x 512")),
    TRITON_ROW(MR_KIND_SOFTMAX, MR_RANK_LOGIT_ALL, MR_FORM_SOFTMAX_TRITON, MR_PGROUP_NONE,
               MR_MASK_NONE, NULL),
    TRITON_ROW(MR_KIND_SOFTMAX_RENORM, MR_RANK_LOGIT_ALL, MR_FORM_SOFTMAX_TRITON, MR_PGROUP_NONE,
               MR_MASK_NONE, ALL("3 x 2048")),
    {"sglang-triton", MR_KIND_SOFTMAX_RENORM, "muse_spark", MUSE, NULL, NULL, RAN("fp32", "2048"),
     {CELL(SCORE, MR_FORM_SOFTMAX_TRITON, 0), CELL(NAN, MR_NAN_STUCK, 0),
      CELL(SCALING, MR_SCALING_FIRST, 0), FULL}},
    {"sglang-triton", MR_KIND_SOFTMAX_RENORM, "gemma4_routing", GEMMA, NULL, NULL, ALL("3 x 2048"),
     {CELL(RANK, MR_RANK_LOGIT, 0), CELL(SCORE, MR_FORM_SOFTMAX_TRITON, 0),
      CELL(NAN, MR_NAN_BITS, 0), CELL(SUM, MR_SUM_FOURS, LAYOUT), FULL}},
    TRITON_ROW(MR_KIND_SQRT_SOFTPLUS, MR_RANK_KEY, MR_FORM_SOFTPLUS_ABS, MR_PGROUP_NONE,
               MR_MASK_NONE, NULL),
};

const struct mr_profile_rows mr_sglang_rows = {rows, sizeof rows / sizeof *rows};
