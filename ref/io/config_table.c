#include "config_table.h"

#include <string.h>

#define LAYERS "model.layers.{layer}."

/* transformers' composite classes (huggingface/transformers @008e574, configuration_MODEL.py);
 * Kimi's are remote code, whose text_config is a DeepseekV3Config (K2.5 to K2.7) or a
 * KimiLinearConfig (K3). Prefixes are those of the checkpoints. */
#define LANGUAGE_MODEL "language_model.model.layers.{layer}."
#define MODEL_LANGUAGE "model.language_model.layers.{layer}."
static const struct config_wrapper wrappers[] = {
    {"gemma4", "gemma4_text", MODEL_LANGUAGE},
    {"qwen3_5_moe", "qwen3_5_moe_text", MODEL_LANGUAGE},
    {"qwen3_vl_moe", "qwen3_vl_moe_text", MODEL_LANGUAGE},
    {"qwen3_omni_moe", "qwen3_omni_moe_text", "thinker.model.layers.{layer}."},
    {"llama4", "llama4_text", LANGUAGE_MODEL},
    {"minimax_m3_vl", "minimax_m3_vl_text", LANGUAGE_MODEL},
    {"kimi_k25", NULL, LANGUAGE_MODEL},
    {"kimi_k3", NULL, LANGUAGE_MODEL},
    {"step3p7", "step3p5", LAYERS},
};

const struct config_row *mr_config_row(size_t i)
{
    if (i < mr_config_sigmoid_count) return &mr_config_sigmoid_rows[i];
    i -= mr_config_sigmoid_count;
    return i < mr_config_softmax_count ? &mr_config_softmax_rows[i] : NULL;
}

const struct config_wrapper *mr_config_wrapper(const char *model_type)
{
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (strcmp(wrappers[i].model_type, model_type) == 0) return &wrappers[i];
    return NULL;
}
