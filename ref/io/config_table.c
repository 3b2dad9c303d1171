/* Every default is one that the class named documents in huggingface/transformers,
 * src/transformers/models/MODEL_TYPE/configuration_MODEL_TYPE.py, read at commits c7ec229
 * (glm4_moe), 001f85b (deepseek_v3) and 008e574 (the others); other spellings are its
 * attribute_map. What no key says (score function, bias, Mixtral's normalisation) is in
 * modeling_MODEL_TYPE.py. */
#include "config_table.h"

/* DeepseekV3TopkRouter, which the GLM classes inherit: sigmoid of fp32 logits, then
 * + e_score_correction_bias to choose; the weights come from the sigmoid alone. */
#define DEEPSEEK_ROUTER \
    .score = MR_SCORE_SIGMOID, .scoring_func = "sigmoid", .topk_method = "noaux_tc", .bias = true, \
    .norm_key = "norm_topk_prob", .norm_fallback = true, .scaling_key = "routed_scaling_factor", \
    .layer_rule = LAYERS_AFTER_DENSE, .gate_name = "model.layers.{layer}.mlp.gate.weight", \
    .bias_name = "model.layers.{layer}.mlp.gate.e_score_correction_bias"

const struct config_row mr_config_rows[] = {
    {
        .model_type = "glm4_moe",
        .class_name = "Glm4MoeConfig",
        .experts = {{"n_routed_experts", "num_local_experts"}, 128},
        .top_k = {{"num_experts_per_tok"}, 8},
        .hidden = {{"hidden_size"}, 4096},
        .layers = {{"num_hidden_layers"}, 46},
        .moe_intermediate = {{"moe_intermediate_size"}, 1408},
        .shared = {{"n_shared_experts"}, 1},
        .n_group = {{"n_group"}, 1},
        .topk_group = {{"topk_group"}, 1},
        .first_dense = {{"first_k_dense_replace"}, 1},
        .scaling_fallback = 1.0,
        .score_note = "Glm4MoeTopkRouter: sigmoid",
        DEEPSEEK_ROUTER,
    },
    {
        .model_type = "glm_moe_dsa",
        .class_name = "GlmMoeDsaConfig",
        /* __post_init__ takes a key num_experts for n_routed_experts. */
        .experts = {{"n_routed_experts", "num_experts", "num_local_experts"}, 256},
        .top_k = {{"num_experts_per_tok"}, 8},
        .hidden = {{"hidden_size"}, 6144},
        .layers = {{"num_hidden_layers"}, 78},
        .moe_intermediate = {{"moe_intermediate_size"}, 2048},
        .shared = {{"n_shared_experts"}, 1},
        .n_group = {{"n_group"}, 1},
        .topk_group = {{"topk_group"}, 1},
        .first_dense = {{"first_k_dense_replace"}, 3},
        .scaling_fallback = 2.5,
        .score_note = "GlmMoeDsaTopkRouter: sigmoid",
        DEEPSEEK_ROUTER,
    },
    {
        .model_type = "deepseek_v3",
        .class_name = "DeepseekV3Config",
        .experts = {{"n_routed_experts", "num_local_experts"}, 256},
        .top_k = {{"num_experts_per_tok"}, 8},
        .hidden = {{"hidden_size"}, 7168},
        .layers = {{"num_hidden_layers"}, 61},
        .moe_intermediate = {{"moe_intermediate_size"}, 2048},
        .shared = {{"n_shared_experts"}, 1},
        .n_group = {{"n_group"}, 8},
        .topk_group = {{"topk_group"}, 4},
        .first_dense = {{"first_k_dense_replace"}, 3},
        .scaling_fallback = 2.5,
        .score_note = "DeepseekV3TopkRouter: sigmoid",
        DEEPSEEK_ROUTER,
    },
    {
        .model_type = "qwen3_moe",
        .class_name = "Qwen3MoeConfig",
        /* transformers 5 writes num_local_experts (attribute_map). */
        .experts = {{"num_experts", "num_local_experts"}, 128},
        .top_k = {{"num_experts_per_tok"}, 8},
        .hidden = {{"hidden_size"}, 2048},
        .layers = {{"num_hidden_layers"}, 24},
        .moe_intermediate = {{"moe_intermediate_size"}, 768},
        .shared = {{NULL}, 0},
        .n_group = {{NULL}, 1},
        .topk_group = {{NULL}, 1},
        .score = MR_SCORE_SOFTMAX,
        .scoring_func = "softmax",
        .topk_method = "greedy",
        .score_note = "Qwen3MoeTopKRouter: softmax over all experts",
        .norm_key = "norm_topk_prob",
        .norm_fallback = false,
        .layer_rule = LAYERS_SPARSE_STEP,
        .gate_name = "model.layers.{layer}.mlp.gate.weight",
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
        .n_group = {{NULL}, 1},
        .topk_group = {{NULL}, 1},
        .score = MR_SCORE_SOFTMAX,
        .scoring_func = "softmax",
        .topk_method = "greedy",
        .score_note = "MixtralTopKRouter: softmax over all experts",
        .layer_rule = LAYERS_ALL,
        /* Checkpoints hold the first; transformers 5 renames it on load (conversion_mapping.py). */
        .gate_name = "model.layers.{layer}.block_sparse_moe.gate.weight",
        .gate_alias = "model.layers.{layer}.mlp.gate.weight",
    },
};
const size_t mr_config_row_count = sizeof mr_config_rows / sizeof *mr_config_rows;
