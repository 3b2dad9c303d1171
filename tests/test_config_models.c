/* Every file of data/configs: the figures of those that are understood, and why the others are
 * refused. The figures were read off the files with a text editor, layer counts counted by hand. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/config.h"

Suite *suite_config_models(void);

struct figures {
    const char *file; /* OWNER--MODEL, or the path of a capture's config.json */
    int experts, top_k, hidden;
    const char *score, *selection;
    bool bias, gate_bias;
    int n_group, topk_group;
    const char *group_score; /* NULL: selects without groups */
    bool norm;
    double scaling;
    int shared, intermediate, layers, first, last, moe_layers, hash_layers;
};

/* score, what ranks, correction bias, gate bias; n_group, topk_group, group score */
#define NOAUX "sigmoid", "score", true, false
#define SOFTMAX "softmax", "score", false, false
#define NO_GROUPS 1, 1, NULL
#define ONE_GROUP 1, 1, "top2_sum"
/* Models of several files. */
#define DEEPSEEK_V3 \
    256, 8, 7168, NOAUX, 8, 4, "top2_sum", true, 2.5, 1, 2048, 61, 3, 60, 58, 0
#define V4 "sqrtsoftplus", "score", true, false, NO_GROUPS
#define V4_FLASH 256, 6, 4096, V4, true, 1.5, 1, 2048, 43, 0, 42, 43, 3
#define V4_PRO 384, 6, 7168, V4, true, 2.5, 1, 3072, 61, 0, 60, 61, 3
#define GLM_5 256, 8, 6144, NOAUX, ONE_GROUP, true, 2.5, 1, 2048, 78, 3, 77, 75, 0
#define KIMI_K2 384, 8, 7168, NOAUX, ONE_GROUP, true, 2.827, 1, 2048, 61, 1, 60, 60, 0
#define M2 256, 8, 3072, NOAUX, NO_GROUPS, true, 1.0, 0, 1536, 62, 0, 61, 62, 0
#define M3 128, 4, 6144, NOAUX, NO_GROUPS, true, 2.0, 1, 3072, 60, 3, 59, 57, 0
#define QWEN3_235B 128, 8, 4096, SOFTMAX, NO_GROUPS, true, 1.0, 0, 1536, 94, 0, 93, 94, 0
#define QWEN3_30B 128, 8, 2048, SOFTMAX, NO_GROUPS, true, 1.0, 0, 768, 48, 0, 47, 48, 0
#define QWEN35_122B 256, 8, 3072, SOFTMAX, NO_GROUPS, true, 1.0, 1, 1024, 48, 0, 47, 48, 0
#define QWEN35_35B 256, 8, 2048, SOFTMAX, NO_GROUPS, true, 1.0, 1, 512, 40, 0, 39, 40, 0
#define QWEN35_397B 512, 10, 4096, SOFTMAX, NO_GROUPS, true, 1.0, 1, 1024, 60, 0, 59, 60, 0
#define GEMMA_26B 128, 8, 2816, SOFTMAX, NO_GROUPS, true, 1.0, 0, 704, 30, 0, 29, 30, 0
#define NEMOTRON_30B 128, 6, 2688, NOAUX, ONE_GROUP, true, 2.5, 1, 1856, 52, 1, 51, 23, 0
#define NEMOTRON_120B 512, 22, 4096, NOAUX, ONE_GROUP, true, 5.0, 1, 2688, 88, 1, 87, 40, 0
#define NEMOTRON_550B 512, 22, 8192, NOAUX, ONE_GROUP, true, 5.0, 1, 5120, 108, 1, 107, 48, 0
#define STEP_37 288, 8, 4096, NOAUX, NO_GROUPS, true, 3.0, 1, 1280, 45, 3, 44, 42, 0
#define LLAMA4 5120, "sigmoid", "logit", false, false, NO_GROUPS, false, 1.0, 1, 8192, 48
#define GPT_OSS 4, 2880, "softmax", "logit", false, true, NO_GROUPS, true, 1.0, 0, 2880

static const struct figures understood[] = {
    {"MiniMaxAI--MiniMax-M2.5", M2},
    {"MiniMaxAI--MiniMax-M2.7", M2},
    {"MiniMaxAI--MiniMax-M3", M3},
    {"Qwen--Qwen3-235B-A22B", QWEN3_235B},
    {"Qwen--Qwen3-235B-A22B-FP8", QWEN3_235B},
    {"Qwen--Qwen3-30B-A3B", QWEN3_30B},
    {"Qwen--Qwen3-30B-A3B-FP8", QWEN3_30B},
    {"Qwen--Qwen3-Coder-480B-A35B-Instruct",
     160, 8, 6144, SOFTMAX, NO_GROUPS, true, 1.0, 0, 2560, 62, 0, 61, 62, 0},
    {"Qwen--Qwen3-VL-235B-A22B-Instruct", QWEN3_235B},
    {"Qwen--Qwen3-VL-30B-A3B-Instruct", QWEN3_30B},
    {"Qwen--Qwen3.5-122B-A10B", QWEN35_122B},
    {"Qwen--Qwen3.5-35B-A3B", QWEN35_35B},
    {"Qwen--Qwen3.5-397B-A17B", QWEN35_397B},
    {"XiaomiMiMo--MiMo-V2-Flash",
     256, 8, 4096, NOAUX, ONE_GROUP, true, 1.0, 0, 2048, 48, 1, 47, 47, 0},
    {"deepseek-ai--DeepSeek-R1", DEEPSEEK_V3},
    {"deepseek-ai--DeepSeek-V3", DEEPSEEK_V3},
    {"deepseek-ai--DeepSeek-V3.2", DEEPSEEK_V3},
    {"deepseek-ai--DeepSeek-V4-Flash", V4_FLASH},
    {"deepseek-ai--DeepSeek-V4-Pro", V4_PRO},
    {"google--gemma-4-26B-A4B", GEMMA_26B},
    {"meta-llama--Llama-4-Maverick-17B-128E-Instruct", 128, 1, LLAMA4, 1, 47, 24, 0},
    {"meta-llama--Llama-4-Scout-17B-16E-Instruct", 16, 1, LLAMA4, 0, 47, 48, 0},
    {"mistralai--Mixtral-8x22B-v0.1",
     8, 2, 6144, SOFTMAX, NO_GROUPS, true, 1.0, 0, 16384, 56, 0, 55, 56, 0},
    {"mistralai--Mixtral-8x7B-v0.1",
     8, 2, 4096, SOFTMAX, NO_GROUPS, true, 1.0, 0, 14336, 32, 0, 31, 32, 0},
    {"moonshotai--Kimi-K2-Instruct", KIMI_K2},
    {"moonshotai--Kimi-K2.5", KIMI_K2},
    {"moonshotai--Kimi-K3",
     896, 16, 7168, NOAUX, ONE_GROUP, true, 1.0, 2, 3072, 93, 1, 92, 92, 0},
    {"nvidia--DeepSeek-V3.1-NVFP4", DEEPSEEK_V3},
    {"nvidia--DeepSeek-V3.2-NVFP4", DEEPSEEK_V3},
    {"nvidia--DeepSeek-V4-Flash-NVFP4", V4_FLASH},
    {"nvidia--DeepSeek-V4-Pro-NVFP4", V4_PRO},
    {"nvidia--GLM-5-NVFP4", GLM_5},
    {"nvidia--GLM-5.1-NVFP4", GLM_5},
    {"nvidia--GLM-5.2-NVFP4", GLM_5},
    {"nvidia--Gemma-4-26B-A4B-NVFP4", GEMMA_26B},
    {"nvidia--Kimi-K2.5-NVFP4", KIMI_K2},
    {"nvidia--Kimi-K2.6-NVFP4", KIMI_K2},
    {"nvidia--Kimi-K2.7-Code-NVFP4", KIMI_K2},
    {"nvidia--MiniMax-M2.5-NVFP4", M2},
    {"nvidia--MiniMax-M2.7-NVFP4", M2},
    {"nvidia--MiniMax-M3-NVFP4", M3},
    {"nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", NEMOTRON_30B},
    {"nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", NEMOTRON_30B},
    {"nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8", NEMOTRON_120B},
    {"nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", NEMOTRON_120B},
    {"nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", NEMOTRON_550B},
    {"nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8", NEMOTRON_550B},
    {"nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", NEMOTRON_550B},
    {"nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4", NEMOTRON_30B},
    {"nvidia--Qwen3-235B-A22B-NVFP4", QWEN3_235B},
    {"nvidia--Qwen3.5-122B-A10B-NVFP4", QWEN35_122B},
    {"nvidia--Qwen3.5-397B-A17B-NVFP4", QWEN35_397B},
    {"nvidia--Qwen3.6-35B-A3B-NVFP4", QWEN35_35B},
    {"openai--gpt-oss-120b", 128, GPT_OSS, 36, 0, 35, 36, 0},
    {"openai--gpt-oss-20b", 32, GPT_OSS, 24, 0, 23, 24, 0},
    {"stepfun-ai--Step-3.7-Flash", STEP_37},
    {"stepfun-ai--Step-3.7-Flash-FP8", STEP_37},
    {"zai-org--GLM-5", GLM_5},
    {"zai-org--GLM-5-FP8", GLM_5},
    {"zai-org--GLM-5.1", GLM_5},
    {"zai-org--GLM-5.1-FP8", GLM_5},
    {"zai-org--GLM-5.2", GLM_5},
    {"zai-org--GLM-5.2-FP8", GLM_5},
    {"data/captures/glm4moe-tiny/config.json",
     128, 8, 512, NOAUX, ONE_GROUP, true, 2.5, 1, 128, 8, 1, 7, 7, 0},
    {"data/captures/qwen3moe-tiny/config.json",
     128, 8, 512, SOFTMAX, NO_GROUPS, true, 1.0, 0, 128, 8, 0, 7, 8, 0},
};

static const struct refused {
    const char *file;
    enum mr_status status;
    const char *word;
} refused[] = {
#define QUANT(model) \
    {"nvidia--" model "-NVFP4_hf_quant", MR_ERR_UNSUPPORTED, "not a model config"}
    QUANT("DeepSeek-V3.1"),
    QUANT("DeepSeek-V3.2"),
    QUANT("DeepSeek-V4-Flash"),
    QUANT("DeepSeek-V4-Pro"),
    QUANT("GLM-5"),
    QUANT("GLM-5.1"),
    QUANT("GLM-5.2"),
    QUANT("Gemma-4-26B-A4B"),
    QUANT("Gemma-4-31B-IT"),
    QUANT("Kimi-K2.6"),
    QUANT("Kimi-K2.7-Code"),
    QUANT("MiniMax-M2.5"),
    QUANT("MiniMax-M2.7"),
    QUANT("MiniMax-M3"),
    QUANT("NVIDIA-Nemotron-3-Nano-30B-A3B"),
    QUANT("NVIDIA-Nemotron-3-Super-120B-A12B"),
    QUANT("NVIDIA-Nemotron-3-Ultra-550B-A55B"),
    QUANT("NVIDIA-Nemotron-3.5-Lightning-30B-A3B"),
    QUANT("Qwen3-235B-A22B"),
    QUANT("Qwen3.5-122B-A10B"),
    QUANT("Qwen3.5-397B-A17B"),
    QUANT("Qwen3.6-35B-A3B"),
    {"nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8_hf_quant", MR_ERR_UNSUPPORTED,
     "not a model config"},
    {"nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8_hf_quant", MR_ERR_UNSUPPORTED,
     "not a model config"},
    {"nvidia--Gemma-4-31B-IT-NVFP4", MR_ERR_UNSUPPORTED,
     "the model is dense: \"text_config.enable_moe_block\" is false"},
    /* Neither file holds norm_topk_prob or a scaling factor; V4-Flash's and V4-Pro's differ. */
    {"sgl-project--DeepSeek-V4-Flash-FP8", MR_ERR_MISSING, "\"routed_scaling_factor\" is missing"},
    {"sgl-project--DeepSeek-V4-Pro-FP8", MR_ERR_MISSING, "\"routed_scaling_factor\" is missing"},
};

static struct mr_config config;
static struct mr_error err;

/* MOEREF_CONFIGS: a folder with uncut files of the same names (data/MANIFEST). */
static enum mr_status load(const char *file)
{
    const char *folder = getenv("MOEREF_CONFIGS");
    char path[512];
    if (strchr(file, '/')) snprintf(path, sizeof path, "%s", file);
    else snprintf(path, sizeof path, "%s/%s_config.json", folder ? folder : "data/configs", file);
    err.text[0] = '\0';
    return mr_config_load(path, &config, &err);
}

START_TEST(validate_published_configs)
{
    const struct figures *f = &understood[_i];
    ck_assert_msg(load(f->file) == MR_OK, "%s", err.text);
    const struct mr_router *r = &config.router;
    ck_assert_int_eq(r->experts, f->experts);
    ck_assert_int_eq(r->top_k, f->top_k);
    ck_assert_int_eq(r->hidden, f->hidden);
    ck_assert_str_eq(mr_score_name(r->score), f->score);
    ck_assert_str_eq(mr_selection_name(r->selection), f->selection);
    ck_assert_int_eq(r->bias, f->bias);
    ck_assert_int_eq(r->gate_bias, f->gate_bias);
    ck_assert_int_eq(r->n_group, f->n_group);
    ck_assert_int_eq(r->topk_group, f->topk_group);
    ck_assert_int_eq(config.has_groups, f->group_score != NULL);
    if (f->group_score) ck_assert_str_eq(mr_group_score_name(r->group_score), f->group_score);
    ck_assert_int_eq(r->norm_topk_prob, f->norm);
    ck_assert_double_eq(r->routed_scaling_factor, f->scaling);
    ck_assert_int_eq(r->hash_layers, f->hash_layers);
    ck_assert_int_eq(config.shared_experts, f->shared);
    ck_assert_int_eq(config.moe_intermediate, f->intermediate);
    ck_assert_int_eq(config.layers, f->layers);
    ck_assert_int_eq(config.moe_layer_count, f->moe_layers);
    ck_assert_int_eq(config.moe_layers[0], f->first);
    ck_assert_int_eq(config.moe_layers[config.moe_layer_count - 1], f->last);
    for (int i = 1; i < config.moe_layer_count; i++)
        ck_assert_int_gt(config.moe_layers[i], config.moe_layers[i - 1]);
    ck_assert_int_eq(config.expert_scale, strstr(f->file, "emma-4-26B") != NULL);
    ck_assert_uint_eq(config.source_count, config.expert_scale ? 18 : 17);
    ck_assert_uint_le(config.source_count, MR_CONFIG_FIELDS);
    for (size_t i = 0; i < config.source_count; i++)
        ck_assert(*config.sources[i].key || *config.sources[i].note);
    ck_assert_ptr_nonnull(strstr(mr_config_gate_name(&config), "{layer}"));
    ck_assert_int_eq(mr_config_bias_name(&config) != NULL, f->bias);
    ck_assert_int_eq(mr_config_gate_bias_name(&config) != NULL, f->gate_bias);
    ck_assert_int_eq(mr_config_hash_name(&config) != NULL, f->hash_layers > 0);
}
END_TEST

START_TEST(reject_published_configs)
{
    const struct refused *f = &refused[_i];
    ck_assert_int_eq(load(f->file), f->status);
    ck_assert_msg(strstr(err.text, f->word) != NULL, "no '%s' in: %s", f->word, err.text);
    ck_assert_ptr_null(strchr(err.text, '\n'));
}
END_TEST

/* Layers that are not a run: Llama-4-Maverick has every second, Nemotron's Nano those of its
 * pattern MEMEM*EMEMEM*... */
START_TEST(validate_scattered_layers)
{
    static const int nano[] = {1, 3, 6, 8, 10, 13, 15, 17, 20};
    ck_assert_int_eq(load("meta-llama--Llama-4-Maverick-17B-128E-Instruct"), MR_OK);
    for (int i = 0; i < 24; i++) ck_assert_int_eq(config.moe_layers[i], 2 * i + 1);
    ck_assert_int_eq(load("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"), MR_OK);
    for (int i = 0; i < 9; i++) ck_assert_int_eq(config.moe_layers[i], nano[i]);
    ck_assert_int_eq(load("nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"), MR_OK);
    for (int i = 0; i < 9; i++) ck_assert_int_eq(config.moe_layers[i], nano[i]);
}
END_TEST

Suite *suite_config_models(void)
{
    Suite *suite = suite_create("config_models");
    TCase *tc = tcase_create("config_models");
    tcase_add_loop_test(tc, validate_published_configs, 0, sizeof understood / sizeof *understood);
    tcase_add_loop_test(tc, reject_published_configs, 0, sizeof refused / sizeof *refused);
    tcase_add_test(tc, validate_scattered_layers);
    suite_add_tcase(suite, tc);
    return suite;
}
