/* Rows of what runs as PyTorch operations: transformers, DeepSeek's inference code. torch's softmax
 * divides, its sigmoid is 1 / (1 + exp(-x)), its topk promises nothing about equal keys. */
#include "profile_rows.h"

#define TOPK "torch.topk: the order of equal elements is not promised (PyTorch documentation); " \
             "NaN above Inf: aten/src/ATen/native/cuda/SortingRadixSelect.cuh @8845674"
#define V3 "transformers models/deepseek_v3/modular_deepseek_v3.py @000c33f"
#define V2 "transformers models/deepseek_v2/modular_deepseek_v2.py @000c33f"
#define V4 "transformers models/deepseek_v4/modeling_deepseek_v4.py @0197608"
#define QWEN "transformers models/qwen2_moe/modular_qwen2_moe.py @001f85b"
#define OSS "transformers models/gpt_oss/modular_gpt_oss.py @0261a46"
#define LLAMA4 "transformers models/llama4/modeling_llama4.py @000c33f"
#define DEEPSEEK "deepseek-ai/DeepSeek-V3 inference/model.py @b15f0db"
#define MASK "transformers #45440 (2026-04), which put -inf in place of 0.0"
#define SOFTPLUS "F.softplus, threshold 20 (PyTorch documentation), sqrt: transformers ACT2FN"
#define SUM "data/captures/glm4moe-tiny (torch on an H200, top_k 8; other top_k not seen)"
#define CAST "weights cast to the hidden type: data/captures/qwen3moe-tiny (transformers 5.17)"

/* torch.topk selects. The order of torch.sum over the selected was found, not read: with CUDA's expf
 * this one makes all 14336 weights of the capture bit for bit, and no other tried does. */
#define TORCH [MR_CELL_TIE] = {MR_TIE_UNDEFINED, TOPK}, [MR_CELL_NAN] = {MR_NAN_TORCH, TOPK}, \
              [MR_CELL_SUM] = {MR_SUM_BUTTERFLY, SUM}
#define CELL(c, v, s) [MR_CELL_##c] = {v, s}

static const struct mr_profile_row rows[] = {
    {"hf", MR_KIND_SIGMOID, "DeepseekV3MoE", V3, NULL, NULL,
     "transformers 5.17 on an H200, data/captures/glm4moe-tiny: 1792 of 1792 sets, all weights "
     "bit for bit",
     {TORCH, CELL(SCORE, MR_FORM_SIGMOID_EXP, 0), CELL(GROUP, MR_PGROUP_NONE, 0),
      CELL(GUARD, MR_GUARD_EPS_FP32, 0), CELL(ORDER, MR_ORDER_NONE, 0)}},
    {"hf", MR_KIND_SIGMOID_GROUPS, "DeepseekV3MoE", V3, NULL, NULL, NULL,
     {TORCH, CELL(SCORE, MR_FORM_SIGMOID_EXP, 0), CELL(GROUP, MR_PGROUP_TOP2, 0),
      CELL(MASK, MR_MASK_NEG_INF, MASK), CELL(GUARD, MR_GUARD_EPS_FP32, 0),
      CELL(ORDER, MR_ORDER_NONE, 0)}},
    {"hf-mask0", MR_KIND_SIGMOID_GROUPS, "DeepseekV3MoE", V3, NULL, NULL, NULL,
     {TORCH, CELL(SCORE, MR_FORM_SIGMOID_EXP, 0), CELL(GROUP, MR_PGROUP_TOP2, 0),
      CELL(MASK, MR_MASK_ZERO, 0), CELL(GUARD, MR_GUARD_EPS_FP32, 0),
      CELL(ORDER, MR_ORDER_NONE, 0)}},
    {"hf", MR_KIND_SOFTMAX, "Qwen2MoeTopK", QWEN, NULL, NULL, NULL,
     {TORCH, CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, 0), CELL(OUTPUT, MR_PROFILE_AS_LOGITS, CAST)}},
    {"hf", MR_KIND_SOFTMAX_RENORM, "Qwen2MoeTopK", QWEN, NULL, NULL,
     "transformers 5.17 on an H200, data/captures/qwen3moe-tiny: 2048 of 2048 sets, all weights "
     "bit for bit",
     {TORCH, CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, 0), CELL(OUTPUT, MR_PROFILE_AS_LOGITS, CAST)}},
    {"hf", MR_KIND_SOFTMAX_GROUPS, "DeepseekV2Moe", V2, NULL, NULL, NULL,
     {TORCH, CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, 0), CELL(GROUP, MR_PGROUP_MAX, 0),
      CELL(MASK, MR_MASK_ZERO, 0), CELL(GUARD, MR_GUARD_NEVER, 0),
      CELL(ORDER, MR_ORDER_NONE, 0)}},
    {"hf", MR_KIND_TOPK_SOFTMAX, "GptOssTopKRouter", OSS, NULL, NULL, NULL,
     {TORCH, CELL(RANK, MR_RANK_LOGIT, 0), CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, 0),
      CELL(OUTPUT, MR_PROFILE_AS_LOGITS, 0)}},
    {"hf", MR_KIND_TOPK_SIGMOID, "Llama4Router", LLAMA4, NULL, NULL, NULL,
     {TORCH, CELL(RANK, MR_RANK_LOGIT, 0), CELL(SCORE, MR_FORM_SIGMOID_EXP, 0),
      CELL(OUTPUT, MR_PROFILE_AS_LOGITS, 0)}},
    {"hf", MR_KIND_SQRT_SOFTPLUS, "V4TopKRouter", V4, NULL, NULL, NULL,
     {TORCH, CELL(SCORE, MR_FORM_SOFTPLUS_TORCH, SOFTPLUS), CELL(GUARD, MR_GUARD_EPS_FP32, 0),
      CELL(SCORE_TYPE, MR_PROFILE_AS_LOGITS, 0), CELL(OUTPUT, MR_PROFILE_AS_LOGITS, 0),
      CELL(ORDER, MR_ORDER_NONE, 0)}},
    {"hf", MR_KIND_HASH, "V4HashRouter", V4, NULL, NULL, NULL,
     {TORCH, CELL(SCORE, MR_FORM_SOFTPLUS_TORCH, SOFTPLUS), CELL(GUARD, MR_GUARD_EPS_FP32, 0),
      CELL(SCORE_TYPE, MR_PROFILE_AS_LOGITS, 0), CELL(OUTPUT, MR_PROFILE_AS_LOGITS, 0),
      CELL(ORDER, MR_ORDER_NONE, 0)}},

    /* Scores in the type of the logits, a bias in fp32; sigmoid weights are always renormalised,
     * softmax weights never. */
    {"deepseek", MR_KIND_SIGMOID, "Gate", DEEPSEEK, NULL, NULL, NULL,
     {TORCH, CELL(SCORE, MR_FORM_SIGMOID_EXP, 0), CELL(SCORE_TYPE, MR_PROFILE_AS_LOGITS, 0),
      CELL(OUTPUT, MR_PROFILE_AS_LOGITS, 0)}},
    {"deepseek", MR_KIND_SIGMOID_GROUPS, "Gate", DEEPSEEK, NULL, NULL, NULL,
     {TORCH, CELL(SCORE, MR_FORM_SIGMOID_EXP, 0), CELL(SCORE_TYPE, MR_PROFILE_AS_LOGITS, 0),
      CELL(GROUP, MR_PGROUP_BY_BIAS, 0), CELL(MASK, MR_MASK_NEG_INF, 0),
      CELL(OUTPUT, MR_PROFILE_AS_LOGITS, 0)}},
    {"deepseek", MR_KIND_SOFTMAX, "Gate", DEEPSEEK, NULL, NULL, NULL,
     {TORCH, CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, 0), CELL(GUARD, MR_GUARD_NEVER, 0),
      CELL(OUTPUT, MR_PROFILE_AS_LOGITS, 0)}},
    {"deepseek", MR_KIND_SOFTMAX_RENORM, "Gate", DEEPSEEK, NULL, NULL, NULL,
     {TORCH, CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, 0), CELL(GUARD, MR_GUARD_NEVER, 0),
      CELL(OUTPUT, MR_PROFILE_AS_LOGITS, 0)}},
    {"deepseek", MR_KIND_SOFTMAX_GROUPS, "Gate", DEEPSEEK, NULL, NULL, NULL,
     {TORCH, CELL(SCORE, MR_FORM_SOFTMAX_DIVIDE, 0), CELL(GROUP, MR_PGROUP_BY_BIAS, 0),
      CELL(MASK, MR_MASK_NEG_INF, 0), CELL(GUARD, MR_GUARD_NEVER, 0),
      CELL(OUTPUT, MR_PROFILE_AS_LOGITS, 0)}},
};

const struct mr_profile_rows mr_torch_rows = {rows, sizeof rows / sizeof *rows};
