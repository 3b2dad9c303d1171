/* Rows with sigmoid and sqrt-softplus. Every default is one that the class named documents in
 * huggingface/transformers, src/transformers/models/MODEL/configuration_MODEL.py, read at commits
 * c7ec229 (glm4_moe), 001f85b (deepseek_v3), 015c078 (deepseek_v4), 13923c6 (nemotron_h), 09c24c1
 * (step3p7), 0117d5f (minimax_m3_vl, modular) and 008e574 (the others); other spellings are its
 * attribute_map. What no key says (score function, bias, normalisation) is in modeling_MODEL.py
 * beside it. Classes that live elsewhere name their source at the row. */
/* A row names what its class has; the rest is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#include "config_table.h"

#define LAYERS "model.layers.{layer}."

/* DeepseekV3TopkRouter, which the routers of GLM, Nemotron and others inherit: sigmoid of fp32
 * logits, then + e_score_correction_bias to choose, groups by the sum of their two largest; the
 * weights come from the sigmoid alone. */
#define NOAUX_TC \
    .score = MR_SCORE_SIGMOID, .score_value = "sigmoid", .topk_method = "noaux_tc", .bias = true, \
    .group_score = MR_GROUP_TOP2_SUM
#define NORM_KEY(key) .norm_key = key, .norm_fallback = true
#define SCALED(factor) .scaling_key = "routed_scaling_factor", .scaling_fallback = factor
#define GROUPS(n, k) .n_group = {{"n_group"}, n}, .topk_group = {{"topk_group"}, k}
#define NO_GROUPS .n_group = {{NULL}, 1}, .topk_group = {{NULL}, 1}
#define AFTER_DENSE(key, n) .first_dense = {{key}, n}, .layer_rule = LAYERS_AFTER_DENSE
#define MLP_GATE \
    .prefix = LAYERS, .gate = "mlp.gate.weight", .bias_name = "mlp.gate.e_score_correction_bias"
#define FIGURES(k, h, n, i) \
    .top_k = {{"num_experts_per_tok"}, k}, .hidden = {{"hidden_size"}, h}, \
    .layers = {{"num_hidden_layers"}, n}, .moe_intermediate = {{"moe_intermediate_size"}, i}

#define DEEPSEEK_V3 \
    FIGURES(8, 7168, 61, 2048), .shared = {{"n_shared_experts"}, 1}, \
    AFTER_DENSE("first_k_dense_replace", 3), .score_note = "DeepseekV3TopkRouter: sigmoid", \
    NOAUX_TC, GROUPS(8, 4), NORM_KEY("norm_topk_prob"), SCALED(2.5), MLP_GATE

/* MiniMaxM2TopKRouter: as DeepSeek's without groups, and always w / sum. */
#define MINIMAX_ROUTER \
    NOAUX_TC, .score_note = "MiniMaxM2TopKRouter: sigmoid", NO_GROUPS, .norm = NORM_ALWAYS, \
    .norm_note = "MiniMaxM2TopKRouter always normalises", .bias_key = "use_routing_bias", \
    .prefix = LAYERS, .gate = "block_sparse_moe.gate.weight", \
    .bias_name = "block_sparse_moe.e_score_correction_bias"
#define MINIMAX_M3 \
    .class_name = "MiniMaxM3VLTextConfig", .experts = {{"num_local_experts", "num_experts"}, 128}, \
    .top_k = {{"num_experts_per_tok"}, 4}, .hidden = {{"hidden_size"}, 6144}, \
    .layers = {{"num_hidden_layers"}, 60}, \
    .moe_intermediate = {{"intermediate_size", "moe_intermediate_size"}, 3072}, \
    .shared = {{"n_shared_experts"}, 1}, AFTER_DENSE("moe_layer_freq", 0), SCALED(2.0), \
    MINIMAX_ROUTER

/* DeepseekV4TopKRouter, DeepseekV4HashRouter. These names are the checkpoints'. */
#define DEEPSEEK_V4(or_default) \
    .experts = {{"n_routed_experts", "num_local_experts"}, or_default(256)}, \
    FIGURES(or_default(6), or_default(4096), or_default(43), or_default(2048)), \
    .shared = {{"n_shared_experts"}, or_default(1)}, NO_GROUPS, .score = MR_SCORE_SQRT_SOFTPLUS, \
    .score_key = "scoring_func", .score_value = "sqrtsoftplus", \
    .score_note = "DeepseekV4TopKRouter: sqrt-softplus, + bias", .topk_method = "noaux_tc", \
    .bias = true, .norm = NORM_ALWAYS, .norm_note = "DeepseekV4TopKRouter always normalises", \
    SCALED(1.5), .hashes = true, .hash_fallback = 3, .layer_rule = LAYERS_ALL, \
    .prefix = "layers.{layer}.ffn.", .gate = "gate.weight", \
    .gate_alias = "model.layers.{layer}.mlp.gate.weight", .bias_name = "gate.bias", \
    .hash_name = "gate.tid2eid"
#define AS_IS(n) n
#define NONE(n) NO_DEFAULT

/* Step3p7TopKRouter inherits MiniMax-M3's; vLLM's step3p5.py (01b50b9) has norm_expert_weight and
 * these names of tensors. */
#define STEP3 \
    .class_name = "Step3p7TextConfig", \
    .experts = {{"n_routed_experts", "moe_num_experts", "num_experts", "num_local_experts"}, 288}, \
    .top_k = {{"num_experts_per_tok", "moe_top_k"}, 8}, .hidden = {{"hidden_size"}, 4096}, \
    .layers = {{"num_hidden_layers"}, 45}, .moe_intermediate = {{"moe_intermediate_size"}, 1280}, \
    .shared = {{"n_shared_experts"}, 1}, NO_GROUPS, AFTER_DENSE("first_k_dense_replace", 3), \
    NOAUX_TC, .score_note = "Step3p7TopKRouter: sigmoid", .bias_key = "use_moe_router_bias", \
    .norm = NORM_ALWAYS, .norm_key = "norm_expert_weight", \
    .norm_note = "Step3p7TopKRouter always normalises", \
    .scaling_key = "moe_router_scaling_factor", .scaling_fallback = 1.0, .prefix = LAYERS, \
    .gate = "moe.gate.weight", .bias_name = "moe.router_bias"

const struct config_row mr_config_sigmoid_rows[] = {
    {
        .model_type = "glm4_moe",
        .class_name = "Glm4MoeConfig",
        .experts = {{"n_routed_experts", "num_local_experts"}, 128},
        FIGURES(8, 4096, 46, 1408),
        .shared = {{"n_shared_experts"}, 1},
        AFTER_DENSE("first_k_dense_replace", 1),
        NOAUX_TC,
        .score_note = "Glm4MoeTopkRouter: sigmoid",
        GROUPS(1, 1),
        NORM_KEY("norm_topk_prob"),
        SCALED(1.0),
        MLP_GATE,
    },
    {
        .model_type = "glm_moe_dsa",
        .class_name = "GlmMoeDsaConfig",
        /* __post_init__ takes a key num_experts for n_routed_experts. */
        .experts = {{"n_routed_experts", "num_experts", "num_local_experts"}, 256},
        FIGURES(8, 6144, 78, 2048),
        .shared = {{"n_shared_experts"}, 1},
        AFTER_DENSE("first_k_dense_replace", 3),
        NOAUX_TC,
        .score_note = "GlmMoeDsaTopkRouter: sigmoid",
        GROUPS(1, 1),
        NORM_KEY("norm_topk_prob"),
        SCALED(2.5),
        MLP_GATE,
    },
    {
        .model_type = "deepseek_v3",
        .class_name = "DeepseekV3Config",
        .experts = {{"n_routed_experts", "num_local_experts"}, 256},
        DEEPSEEK_V3,
    },
    {
        .model_type = "deepseek_v32",
        .class_name = "DeepseekV32Config",
        .experts = {{"n_routed_experts", "num_experts", "num_local_experts"}, 256},
        DEEPSEEK_V3,
    },
    {
        /* Its auto_map names DeepSeek's own DeepseekV3Config, with the same defaults. */
        .model_type = "kimi_k2",
        .class_name = "DeepseekV3Config",
        .experts = {{"n_routed_experts", "num_local_experts"}, 256},
        DEEPSEEK_V3,
    },
    {
        .model_type = "deepseek_v4",
        .class_name = "DeepseekV4Config",
        DEEPSEEK_V4(AS_IS),
    },
    {
        /* SGLang's name for both sizes of DeepSeek-V4; its class has 1.5 where V4-Pro holds 2.5, so
         * a default would be a guess. */
        .model_type = "deepseek_ref",
        .class_name = "deepseek_ref (DeepSeek-V4 of either size)",
        DEEPSEEK_V4(NONE),
        .scaling_missing = "deepseek_ref is DeepSeek-V4 of either size: V4-Flash holds 1.5 and "
                           "V4-Pro 2.5, so no default is right",
    },
    {
        /* Remote code of moonshotai/Kimi-Linear-48B-A3B, read in public copies: KimiLinearConfig in
         * configuration_kimi.py, KimiMoEGate in modeling_kimi.py. */
        .model_type = "kimi_linear",
        .class_name = "KimiLinearConfig",
        .experts = {{"num_experts"}, NO_DEFAULT},
        .top_k = {{"num_experts_per_token"}, NO_DEFAULT},
        .hidden = {{"hidden_size"}, 4096},
        .layers = {{"num_hidden_layers"}, 32},
        .moe_intermediate = {{"moe_intermediate_size"}, NO_DEFAULT},
        .shared = {{"num_shared_experts"}, 0},
        AFTER_DENSE("first_k_dense_replace", 0),
        NOAUX_TC,
        .score_key = "moe_router_activation_func",
        .score_note = "KimiMoEGate: sigmoid",
        .n_group = {{"num_expert_group"}, 1},
        .topk_group = {{"topk_group"}, 1},
        NORM_KEY("moe_renormalize"),
        SCALED(1.0),
        .prefix = LAYERS,
        .gate = "block_sparse_moe.gate.weight",
        .bias_name = "block_sparse_moe.gate.e_score_correction_bias",
    },
    {
        /* Remote code of XiaomiMiMo/MiMo-V2-Flash: copies of MiMoV2MoEGate were read (a scaling of
         * null is 1), its configuration class was not; vLLM's mimo_v2_flash.py @01ed47b. */
        .model_type = "mimo_v2_flash",
        .class_name = "MiMoV2FlashConfig",
        .experts = {{"n_routed_experts"}, NO_DEFAULT},
        FIGURES(NO_DEFAULT, NO_DEFAULT, NO_DEFAULT, NO_DEFAULT),
        .shared = {{"n_shared_experts"}, NO_DEFAULT, true, 0},
        AFTER_DENSE("moe_layer_freq", NO_DEFAULT),
        NOAUX_TC,
        .score_note = "MiMoV2MoEGate: sigmoid",
        GROUPS(NO_DEFAULT, NO_DEFAULT),
        .norm_key = "norm_topk_prob",
        .norm_missing = "no default of MiMoV2FlashConfig is known",
        .scaling_key = "routed_scaling_factor",
        .scaling_null_is_1 = true,
        .scaling_missing = "no default of MiMoV2FlashConfig is known",
        MLP_GATE,
    },
    {
        .model_type = "nemotron_h",
        .class_name = "NemotronHConfig",
        .experts = {{"n_routed_experts", "num_local_experts"}, 8},
        .top_k = {{"num_experts_per_tok"}, 2},
        .hidden = {{"hidden_size"}, 4096},
        .moe_intermediate = {{"moe_intermediate_size"}, 7688},
        .shared = {{"n_shared_experts"}, 1},
        NOAUX_TC,
        .score_note = "NemotronHTopkRouter (DeepseekV3TopkRouter): sigmoid",
        GROUPS(1, 1),
        NORM_KEY("norm_topk_prob"),
        SCALED(1.0),
        .layer_rule = LAYERS_HYBRID,
        .prefix = "backbone.layers.{layer}.mixer.",
        .gate = "gate.weight",
        .bias_name = "gate.e_score_correction_bias",
    },
    {
        .model_type = "minimax_m2",
        .class_name = "MiniMaxM2Config",
        .experts = {{"num_local_experts", "num_experts"}, 256},
        .top_k = {{"num_experts_per_tok"}, 8},
        .hidden = {{"hidden_size"}, 3072},
        .layers = {{"num_hidden_layers"}, 62},
        .moe_intermediate = {{"intermediate_size"}, 1536},
        .shared = {{"shared_intermediate_size"}, 0},
        .shared_width = true,
        .layer_rule = LAYERS_ALL,
        MINIMAX_ROUTER,
    },
    {.model_type = "minimax_m3", MINIMAX_M3},
    {.model_type = "minimax_m3_vl_text", MINIMAX_M3},
    {.model_type = "step3p5", STEP3},
    {.model_type = "step3p7", STEP3},
};
const size_t mr_config_sigmoid_count =
    sizeof mr_config_sigmoid_rows / sizeof *mr_config_sigmoid_rows;
