"""Small MoE models of transformers with random weights, whose routing is not degenerate."""
import importlib

import torch

COMMON = dict(vocab_size=256, hidden_size=96, num_hidden_layers=3, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=512, pad_token_id=None,
              bos_token_id=None, eos_token_id=None)
V3 = dict(n_routed_experts=32, num_experts_per_tok=4, moe_intermediate_size=16, intermediate_size=64,
          first_k_dense_replace=1, n_shared_experts=1, norm_topk_prob=True)
MLA = dict(q_lora_rank=32, kv_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16,
           num_key_value_heads=4)
QWEN = dict(num_experts=24, num_experts_per_tok=4, moe_intermediate_size=16, intermediate_size=64)
LINEAR = dict(linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=16,
              linear_value_head_dim=16, shared_expert_intermediate_size=16, head_dim=24)

# package under transformers.models: (class, configuration class, what differs)
MODELS = {
    "glm4_moe": ("Glm4MoeForCausalLM", "Glm4MoeConfig",
                 dict(V3, n_group=1, topk_group=1, routed_scaling_factor=2.5, head_dim=24)),
    "deepseek_v3": ("DeepseekV3ForCausalLM", "DeepseekV3Config",
                    dict(V3, **MLA, n_group=4, topk_group=2, routed_scaling_factor=2.5)),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig",
                  dict(QWEN, norm_topk_prob=True, head_dim=24)),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig",
                dict(num_local_experts=16, num_experts_per_tok=2, intermediate_size=32)),
    "gpt_oss": ("GptOssForCausalLM", "GptOssConfig",
                dict(num_local_experts=32, num_experts_per_tok=4, intermediate_size=32, head_dim=24)),
    "qwen2_moe": ("Qwen2MoeForCausalLM", "Qwen2MoeConfig",
                  dict(QWEN, norm_topk_prob=False, shared_expert_intermediate_size=16)),
    "olmoe": ("OlmoeForCausalLM", "OlmoeConfig",
              dict(num_experts=16, num_experts_per_tok=4, intermediate_size=32)),
    "dots1": ("Dots1ForCausalLM", "Dots1Config",
              dict(V3, n_group=1, topk_group=1, routed_scaling_factor=1.5, head_dim=24)),
    "ernie4_5_moe": ("Ernie4_5_MoeForCausalLM", "Ernie4_5_MoeConfig",
                     dict(moe_num_experts=16, moe_k=3, moe_intermediate_size=16,
                          intermediate_size=64, moe_layer_start_index=1)),
    "minimax_m2": ("MiniMaxM2ForCausalLM", "MiniMaxM2Config",
                   dict(num_local_experts=16, num_experts_per_tok=4, intermediate_size=16,
                        head_dim=24)),
    "llama4": ("Llama4ForCausalLM", "Llama4TextConfig",
               dict(num_local_experts=16, num_experts_per_tok=1, intermediate_size=16,
                    intermediate_size_mlp=64, interleave_moe_layer_step=1, head_dim=24)),
    "deepseek_v2": ("DeepseekV2ForCausalLM", "DeepseekV2Config",
                    dict(dict(V3, norm_topk_prob=False), **MLA, n_group=4, topk_group=2,
                         routed_scaling_factor=1.5, topk_method="group_limited_greedy")),
    "qwen3_next": ("Qwen3NextForCausalLM", "Qwen3NextConfig",
                   dict(QWEN, **LINEAR, norm_topk_prob=True,
                        layer_types=["linear_attention", "full_attention", "linear_attention"])),
    "qwen3_5_moe": ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextConfig",
                    dict(QWEN, **LINEAR,
                         layer_types=["linear_attention", "full_attention", "linear_attention"])),
    "granitemoe": ("GraniteMoeForCausalLM", "GraniteMoeConfig",
                   dict(num_local_experts=16, num_experts_per_tok=4, intermediate_size=16)),
    "glm_moe_dsa": ("GlmMoeDsaForCausalLM", "GlmMoeDsaConfig",
                    dict(V3, **MLA, n_group=1, topk_group=1, routed_scaling_factor=2.5,
                         index_n_heads=2, index_head_dim=32, index_topk=64)),
    "hunyuan_v1_moe": ("HunYuanMoEV1ForCausalLM", "HunYuanMoEV1Config",
                       dict(num_experts=16, moe_topk=4, intermediate_size=16, head_dim=24)),
    "afmoe": ("AfmoeForCausalLM", "AfmoeConfig",
              dict(QWEN, num_shared_experts=1, num_dense_layers=1, route_scale=2.0, head_dim=24)),
    "hy_v3": ("HYV3ForCausalLM", "HYV3Config",
              dict(num_experts=16, num_experts_per_tok=4, moe_intermediate_size=16,
                   intermediate_size=64, num_shared_experts=1, router_scaling_factor=2.5,
                   head_dim=24)),
    "minimax": ("MiniMaxForCausalLM", "MiniMaxConfig",
                dict(num_local_experts=16, num_experts_per_tok=2, intermediate_size=32,
                     head_dim=24, layer_types=["full_attention"] * 3)),
    "minimax_m3_vl": ("MiniMaxM3VLForCausalLM", "MiniMaxM3VLTextConfig",
                      dict(num_local_experts=16, num_experts_per_tok=4, intermediate_size=16,
                           dense_intermediate_size=32, shared_intermediate_size=16, head_dim=24,
                           routed_scaling_factor=2.0)),
    "granitemoe_swa": ("GraniteMoeSWAForCausalLM", "GraniteMoeSWAConfig",
                       dict(num_local_experts=16, num_experts_per_tok=4, intermediate_size=16)),
    # Routes in its block, around a plain linear layer: must be refused.
    "jamba": ("JambaForCausalLM", "JambaConfig",
              dict(num_experts=8, num_experts_per_tok=2, intermediate_size=32, mamba_d_state=4,
                   mamba_dt_rank=4, use_mamba_kernels=False, expert_layer_period=1,
                   expert_layer_offset=0)),
}


def build(name, dtype=torch.bfloat16, seed=1):
    """Gate weights of spread: logits have a standard deviation of about 2; biases of about 0.05 move
    sigmoid scores that lie close, without deciding alone. Biases stay fp32, as from_pretrained keeps
    them."""
    model_class, config_class, more = MODELS[name]
    package = importlib.import_module(f"transformers.models.{name}")
    config = getattr(package, config_class)(**{**COMMON, **more})
    torch.manual_seed(seed)
    model = getattr(package, model_class)(config).eval()
    with torch.no_grad():
        for key, t in [*model.named_parameters(), *model.named_buffers()]:
            last = key.rpartition(".")[2]
            around = key.split(".")[-2] if "." in key else ""
            if last in ("e_score_correction_bias", "expert_bias"):
                t.normal_(0, 0.05)
            elif key.endswith((".gate.weight", ".router.weight", ".gate.wg.weight")):
                t.normal_(0, 2 / config.hidden_size ** 0.5)
            elif around == "router" and last == "bias":
                t.normal_(0, 0.5)
    keep = {key: t.clone() for key, t in [*model.named_parameters(), *model.named_buffers()]
            if key.endswith(("e_score_correction_bias", "expert_bias"))}
    model = model.to(dtype)
    for key, t in keep.items():
        at, _, last = key.rpartition(".")
        holder = model.get_submodule(at)
        getattr(holder, last).data = t
    return model
