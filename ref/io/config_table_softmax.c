/* Rows with softmax, and Llama 4. Every default is one that the class named documents in
 * huggingface/transformers, src/transformers/models/MODEL/configuration_MODEL.py, read at commits
 * 02b8f42 (gpt_oss) and 008e574 (the others); other spellings are its attribute_map. What no key
 * says (score function, normalisation) is in modeling_MODEL.py beside it. */
/* A row names what its class has; the rest is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#include "config_table.h"

#define LAYERS "model.layers.{layer}."

#define NO_GROUPS .n_group = {{NULL}, 1}, .topk_group = {{NULL}, 1}
#define SOFTMAX .score = MR_SCORE_SOFTMAX, .score_value = "softmax", .prefix = LAYERS
#define QWEN3_MOE(e, k, h, n, i) \
    .experts = {{"num_experts", "num_local_experts"}, e}, .top_k = {{"num_experts_per_tok"}, k}, \
    .hidden = {{"hidden_size"}, h}, .layers = {{"num_hidden_layers"}, n}, \
    .moe_intermediate = {{"moe_intermediate_size"}, i}, SOFTMAX, NO_GROUPS, \
    .gate = "mlp.gate.weight"

const struct config_row mr_config_softmax_rows[] = {
    {
        .model_type = "deepseek_v2",
        .class_name = "DeepseekV2Config",
        .experts = {{"n_routed_experts", "num_experts"}, 64},
        .top_k = {{"num_experts_per_tok"}, NO_DEFAULT},
        .hidden = {{"hidden_size"}, 4096},
        .layers = {{"num_hidden_layers"}, 32},
        .moe_intermediate = {{"moe_intermediate_size"}, 1407},
        .shared = {{"n_shared_experts"}, 2},
        .n_group = {{"n_group"}, NO_DEFAULT},
        .topk_group = {{"topk_group"}, NO_DEFAULT},
        .first_dense = {{"first_k_dense_replace"}, 0},
        SOFTMAX,
        .score_note = "DeepseekV2Moe: softmax over all experts",
        .v2_methods = true,
        .group_score = MR_GROUP_MAX,
        .norm = NORM_NEVER,
        .norm_note = "DeepseekV2Moe never normalises (DeepSeek's own code then does not scale)",
        .scaling_key = "routed_scaling_factor",
        .scaling_fallback = 1.0,
        .layer_rule = LAYERS_AFTER_DENSE,
        .gate = "mlp.gate.weight",
    },
    {
        .model_type = "qwen3_moe",
        .class_name = "Qwen3MoeConfig",
        /* transformers 5 writes num_local_experts (attribute_map). */
        QWEN3_MOE(128, 8, 2048, 24, 768),
        .shared = {{NULL}, 0},
        .score_note = "Qwen3MoeTopKRouter: softmax over all experts",
        .norm_key = "norm_topk_prob",
        .norm_fallback = false,
        .layer_rule = LAYERS_SPARSE_STEP,
    },
    {
        .model_type = "qwen3_omni_moe_text",
        .class_name = "Qwen3OmniMoeTextConfig",
        QWEN3_MOE(128, 8, 2048, 28, 768),
        .shared = {{NULL}, 0},
        .score_note = "Qwen3OmniMoeThinkerTextTopKRouter: softmax over all experts",
        .norm_key = "norm_topk_prob",
        .norm_fallback = true,
        .layer_rule = LAYERS_SPARSE_STEP,
    },
    {
        .model_type = "qwen3_next",
        .class_name = "Qwen3NextConfig",
        QWEN3_MOE(512, 10, 2048, 48, 512),
        .shared = {{"shared_expert_intermediate_size"}, 512},
        .shared_width = true,
        .score_note = "Qwen3NextTopKRouter: softmax over all experts",
        .norm_key = "norm_topk_prob",
        .norm_fallback = true,
        .layer_rule = LAYERS_SPARSE_STEP,
    },
    {
        .model_type = "qwen3_vl_moe_text",
        .class_name = "Qwen3VLMoeTextConfig",
        QWEN3_MOE(60, 4, 2048, 24, 1408),
        .shared = {{NULL}, 0},
        .score_note = "Qwen3VLMoeTextTopKRouter: softmax over all experts",
        .norm = NORM_ALWAYS,
        .norm_note = "Qwen3VLMoeTextTopKRouter always normalises",
        .layer_rule = LAYERS_SPARSE_STEP,
    },
    {
        .model_type = "qwen3_5_moe_text",
        .class_name = "Qwen3_5MoeTextConfig",
        QWEN3_MOE(256, 8, 2048, 40, 512),
        .shared = {{"shared_expert_intermediate_size"}, 512},
        .shared_width = true,
        .score_note = "Qwen3_5MoeTopKRouter: softmax over all experts",
        .norm = NORM_ALWAYS,
        .norm_note = "Qwen3_5MoeTopKRouter always normalises",
        .layer_rule = LAYERS_ALL,
    },
    {
        .model_type = "mixtral",
        .class_name = "MixtralConfig",
        .experts = {{"num_local_experts", "num_experts"}, 8},
        .top_k = {{"num_experts_per_tok"}, 2},
        .hidden = {{"hidden_size"}, 4096},
        .layers = {{"num_hidden_layers"}, 32},
        /* The experts are the model's only MLPs: intermediate_size is theirs. */
        .moe_intermediate = {{"intermediate_size"}, 14336},
        .shared = {{NULL}, 0},
        .score_note = "MixtralTopKRouter: softmax over all experts",
        .norm = NORM_ALWAYS,
        .norm_note = "MixtralTopKRouter always normalises",
        .layer_rule = LAYERS_ALL,
        SOFTMAX,
        NO_GROUPS,
        /* Checkpoints hold the first; transformers 5 renames it on load (conversion_mapping.py). */
        .gate = "block_sparse_moe.gate.weight",
        .gate_alias = "model.layers.{layer}.mlp.gate.weight",
    },
    {
        .model_type = "gpt_oss",
        .class_name = "GptOssConfig",
        .experts = {{"num_local_experts", "num_experts"}, 128},
        .top_k = {{"num_experts_per_tok", "experts_per_token"}, 4},
        .hidden = {{"hidden_size"}, 2880},
        .layers = {{"num_hidden_layers"}, 36},
        .moe_intermediate = {{"intermediate_size"}, 2880},
        .shared = {{NULL}, 0},
        .score_note = "GptOssTopKRouter: top k of the logits, then softmax over them",
        .selection = MR_SELECT_LOGIT,
        .gate_bias = true,
        .gate_bias_note = "GptOssTopKRouter: a linear bias",
        .norm = NORM_ALWAYS,
        .norm_note = "GptOssTopKRouter: the softmax over the selected sums to 1",
        .layer_rule = LAYERS_ALL,
        SOFTMAX,
        NO_GROUPS,
        .gate = "mlp.router.weight",
        .gate_bias_name = "mlp.router.bias",
    },
    {
        .model_type = "llama4_text",
        .class_name = "Llama4TextConfig",
        .experts = {{"num_local_experts"}, 16},
        .top_k = {{"num_experts_per_tok"}, 1},
        .hidden = {{"hidden_size"}, 5120},
        .layers = {{"num_hidden_layers"}, 48},
        /* intermediate_size_mlp is that of the dense layers. */
        .moe_intermediate = {{"intermediate_size"}, 8192},
        .shared = {{NULL}, 1},
        .score = MR_SCORE_SIGMOID,
        .score_value = "sigmoid",
        .score_note = "Llama4Router: top k of the logits, then sigmoid; it weighs the input",
        .selection = MR_SELECT_LOGIT,
        NO_GROUPS,
        .norm = NORM_NEVER,
        .norm_note = "Llama4Router never normalises",
        .layer_rule = LAYERS_INTERLEAVED,
        .prefix = LAYERS,
        .gate = "feed_forward.router.weight",
    },
    {
        /* gate.input is what enters router.proj: the norm and router.scale come before it. A dense
         * MLP runs beside the experts, which is no shared expert of a key's. */
        .model_type = "gemma4_text",
        .class_name = "Gemma4TextConfig",
        .experts = {{"num_experts"}, NO_DEFAULT},
        .top_k = {{"top_k_experts"}, NO_DEFAULT},
        .hidden = {{"hidden_size"}, 2304},
        .layers = {{"num_hidden_layers"}, 30},
        .moe_intermediate = {{"moe_intermediate_size", "expert_intermediate_size"}, NO_DEFAULT},
        .shared = {{NULL}, 0},
        .score_note = "Gemma4TextRouter: softmax over all experts",
        .norm = NORM_ALWAYS,
        .norm_note = "Gemma4TextRouter always normalises",
        .moe_switch = "enable_moe_block",
        .expert_scale = "router.per_expert_scale",
        .layer_rule = LAYERS_ALL,
        SOFTMAX,
        NO_GROUPS,
        .gate = "router.proj.weight",
    },
};
const size_t mr_config_softmax_count =
    sizeof mr_config_softmax_rows / sizeof *mr_config_softmax_rows;
