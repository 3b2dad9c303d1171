/* Classes beyond those of test_config.c: nested text models, score functions after the top-k, hash
 * layers, layers by list and pattern, and keys that contradict what a class fixes. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "../ref/io/config.h"

Suite *suite_config_classes(void);

static struct mr_config config;
static struct mr_error err;

static enum mr_status parse(const char *text)
{
    err.text[0] = '\0';
    return mr_config_parse(text, strlen(text), "mem/config.json", &config, &err);
}

static void understood(const char *text)
{
    enum mr_status status = parse(text);
    ck_assert_msg(status == MR_OK, "%s: %s", text, err.text);
}

static const struct mr_config_source *source_of(const char *field)
{
    for (size_t i = 0; i < config.source_count; i++)
        if (strcmp(config.sources[i].field, field) == 0) return &config.sources[i];
    ck_abort_msg("no source of %s", field);
    return NULL;
}

/* Each default, from the class's configuration_*.py. */
static const struct {
    const char *model_type;
    int experts, top_k, hidden, intermediate, layers, moe_layers, shared;
    double scaling;
    bool norm;
} defaults[] = {
    {"deepseek_v32", 256, 8, 7168, 2048, 61, 58, 1, 2.5, true},
    {"kimi_k2", 256, 8, 7168, 2048, 61, 58, 1, 2.5, true},
    {"deepseek_v4", 256, 6, 4096, 2048, 43, 43, 1, 1.5, true},
    {"minimax_m2", 256, 8, 3072, 1536, 62, 62, 0, 1.0, true},
    {"minimax_m3_vl_text", 128, 4, 6144, 3072, 60, 60, 1, 2.0, true},
    {"step3p7", 288, 8, 4096, 1280, 45, 42, 1, 1.0, true},
    {"qwen3_next", 512, 10, 2048, 512, 48, 48, 1, 1.0, true},
    {"qwen3_omni_moe_text", 128, 8, 2048, 768, 28, 28, 0, 1.0, true},
    {"qwen3_vl_moe_text", 60, 4, 2048, 1408, 24, 24, 0, 1.0, true},
    {"qwen3_5_moe_text", 256, 8, 2048, 512, 40, 40, 1, 1.0, true},
    {"gpt_oss", 128, 4, 2880, 2880, 36, 36, 0, 1.0, true},
    {"llama4_text", 16, 1, 5120, 8192, 48, 48, 1, 1.0, false},
};

START_TEST(validate_class_defaults)
{
    char text[64];
    snprintf(text, sizeof text, "{\"model_type\":\"%s\"}", defaults[_i].model_type);
    understood(text);
    ck_assert_int_eq(config.router.experts, defaults[_i].experts);
    ck_assert_int_eq(config.router.top_k, defaults[_i].top_k);
    ck_assert_int_eq(config.router.hidden, defaults[_i].hidden);
    ck_assert_int_eq(config.moe_intermediate, defaults[_i].intermediate);
    ck_assert_int_eq(config.layers, defaults[_i].layers);
    ck_assert_int_eq(config.moe_layer_count, defaults[_i].moe_layers);
    ck_assert_int_eq(config.shared_experts, defaults[_i].shared);
    ck_assert_double_eq(config.router.routed_scaling_factor, defaults[_i].scaling);
    ck_assert_int_eq(config.router.norm_topk_prob, defaults[_i].norm);
    ck_assert_str_eq(source_of("experts")->key, "");
}
END_TEST

#define V2 "{\"model_type\":\"deepseek_v2\",\"num_experts_per_tok\":6,\"n_routed_experts\":160,"
START_TEST(validate_deepseek_v2)
{
    understood(V2 "\"n_group\":8,\"topk_group\":3,\"topk_method\":\"group_limited_greedy\","
                  "\"scoring_func\":\"softmax\",\"routed_scaling_factor\":16.0,"
                  "\"first_k_dense_replace\":1,\"norm_topk_prob\":false}");
    ck_assert_int_eq(config.router.n_group, 8);
    ck_assert_int_eq(config.router.topk_group, 3);
    ck_assert_int_eq(config.router.group_score, MR_GROUP_MAX);
    ck_assert_int_eq(config.router.score, MR_SCORE_SOFTMAX);
    ck_assert(!config.router.bias && !config.router.norm_topk_prob && config.has_groups);
    ck_assert_str_eq(source_of("group_score")->key, "topk_method");
    /* V2-Lite: greedy, whatever n_group says */
    understood(V2 "\"n_group\":1,\"topk_group\":1,\"topk_method\":\"greedy\"}");
    ck_assert_int_eq(config.router.n_group, 1);
    ck_assert(!config.has_groups);
    understood(V2 "\"n_group\":null,\"topk_group\":null}");
    ck_assert(!config.has_groups);
}
END_TEST

START_TEST(validate_hash_layers)
{
    understood("{\"model_type\":\"deepseek_v4\",\"num_hash_layers\":0}");
    ck_assert_int_eq(config.router.hash_layers, 0);
    understood("{\"model_type\":\"deepseek_v4\"}");
    ck_assert_int_eq(config.router.hash_layers, 3);
    understood("{\"model_type\":\"deepseek_v4\",\"num_hidden_layers\":3,"
               "\"mlp_layer_types\":[\"hash_moe\",\"moe\",\"moe\"]}");
    ck_assert_int_eq(config.router.hash_layers, 1);
    ck_assert_str_eq(source_of("hash_layers")->key, "mlp_layer_types");
    ck_assert_str_eq(mr_config_hash_name(&config), "layers.{layer}.ffn.gate.tid2eid");
    ck_assert_str_eq(mr_config_bias_name(&config), "layers.{layer}.ffn.gate.bias");
}
END_TEST

START_TEST(validate_nesting)
{
    understood("{\"model_type\":\"kimi_k25\",\"text_config\":{\"model_type\":\"deepseek_v3\","
               "\"n_group\":1,\"topk_group\":1}}");
    ck_assert_str_eq(config.model_type, "kimi_k25");
    ck_assert_str_eq(config.text_type, "deepseek_v3");
    ck_assert_str_eq(source_of("n_group")->key, "text_config.n_group");
    ck_assert_str_eq(mr_config_gate_name(&config),
                     "language_model.model.layers.{layer}.mlp.gate.weight");
    /* the composite class fixes the class of its text model */
    understood("{\"model_type\":\"minimax_m3_vl\","
               "\"text_config\":{\"model_type\":\"minimax_m2\"}}");
    ck_assert_int_eq(config.router.experts, 128);
    understood("{\"model_type\":\"step3p7\",\"text_config\":{\"moe_top_k\":4,"
               "\"moe_layers_enum\":\"3,5,44,46\"}}");
    ck_assert_int_eq(config.router.top_k, 4);
    ck_assert_int_eq(config.moe_layer_count, 3);
    ck_assert_str_eq(source_of("moe_layers")->key, "text_config.moe_layers_enum");
    /* unknown around known: the nested model_type decides */
    understood("{\"model_type\":\"internvl_chat\",\"llm_config\":{\"model_type\":\"qwen3_moe\"}}");
    ck_assert_str_eq(config.text_type, "qwen3_moe");
    understood("{\"model_type\":\"x\",\"language_config\":{\"model_type\":\"mixtral\"}}");
    understood("{\"model_type\":\"qwen3_omni_moe\",\"thinker_config\":{\"model_type\":"
               "\"qwen3_omni_moe_thinker\",\"text_config\":{\"num_experts\":64}}}");
    ck_assert_int_eq(config.router.experts, 64);
    ck_assert_str_eq(source_of("experts")->key, "thinker_config.text_config.num_experts");
    ck_assert_str_eq(mr_config_gate_name(&config), "thinker.model.layers.{layer}.mlp.gate.weight");
}
END_TEST

START_TEST(validate_switches_and_lists)
{
    understood("{\"model_type\":\"minimax_m2\",\"use_routing_bias\":false}");
    ck_assert(!config.router.bias);
    ck_assert_ptr_null(mr_config_bias_name(&config));
    understood("{\"model_type\":\"minimax_m3\",\"num_hidden_layers\":3,"
               "\"first_k_dense_replace\":1,\"moe_layer_freq\":[0,1,1]}");
    ck_assert_int_eq(config.moe_layer_count, 2);
    understood("{\"model_type\":\"minimax_m3\",\"moe_layer_freq\":null}");
    ck_assert_int_eq(config.moe_layer_count, 60);
    understood("{\"model_type\":\"llama4_text\",\"moe_layers\":[3,7]}");
    ck_assert_int_eq(config.moe_layers[1], 7);
    understood("{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"ME*-E\"}");
    ck_assert_int_eq(config.layers, 5);
    ck_assert_int_eq(config.moe_layers[1], 4);
    understood("{\"model_type\":\"nemotron_h\",\"layers_block_type\":[\"linear_attention\","
               "\"moe\",\"full_attention\",\"mlp\"],\"hybrid_override_pattern\":\"ME*-\"}");
    ck_assert_int_eq(config.moe_layer_count, 1);
    ck_assert_str_eq(mr_config_gate_name(&config), "backbone.layers.{layer}.mixer.gate.weight");
    understood("{\"model_type\":\"gpt_oss\",\"experts_per_token\":2}");
    ck_assert_int_eq(config.router.top_k, 2);
    ck_assert_str_eq(mr_config_gate_bias_name(&config), "model.layers.{layer}.mlp.router.bias");
    understood("{\"model_type\":\"gpt_oss\",\"n_group\":null,\"routed_scaling_factor\":1}");
}
END_TEST

#define KIMI "{\"model_type\":\"kimi_linear\",\"num_experts\":8,\"moe_intermediate_size\":4,"
#define MIMO "{\"model_type\":\"mimo_v2_flash\",\"n_routed_experts\":8,\"num_experts_per_tok\":2," \
             "\"hidden_size\":4,\"num_hidden_layers\":2,\"moe_intermediate_size\":4,"
#define GEMMA "{\"model_type\":\"gemma4\",\"text_config\":{\"num_experts\":8,"
static const struct {
    const char *text;
    enum mr_status status;
    const char *words[3];
} refusals[] = {
    /* not a model, dense, or another one */
    {"{\"quantization\":{\"quant_algo\":\"FP8\"}}", MR_ERR_UNSUPPORTED, {"not a model config"}},
    {"{\"quantization\":\"fp8\"}", MR_ERR_MISSING, {"model_type"}},
    {GEMMA "\"top_k_experts\":2}}", MR_ERR_UNSUPPORTED,
     {"dense", "text_config.enable_moe_block", "false by default"}},
    {GEMMA "\"enable_moe_block\":1}}", MR_ERR_FORMAT, {"text_config.enable_moe_block"}},
    {GEMMA "\"enable_moe_block\":true}}", MR_ERR_MISSING,
     {"text_config.top_k_experts", "no default of Gemma4TextConfig is known"}},
    {"{\"model_type\":\"gemma4\",\"text_config\":[]}", MR_ERR_FORMAT, {"text_config", "object"}},
    {"{\"model_type\":\"kimi_k25\",\"text_config\":{\"model_type\":\"llama\"}}", MR_ERR_UNSUPPORTED,
     {"text_config.model_type", "\"llama\"", "dense"}},
    /* an unknown score function or method */
    {"{\"model_type\":\"deepseek_v4\",\"scoring_func\":\"softmax\"}", MR_ERR_UNSUPPORTED,
     {"scoring_func", "\"softmax\"", "\"sqrtsoftplus\""}},
    {"{\"model_type\":\"minimax_m2\",\"scoring_func\":\"softmax\"}", MR_ERR_UNSUPPORTED,
     {"scoring_func", "\"softmax\""}},
    {KIMI "\"num_experts_per_token\":2,\"moe_router_activation_func\":\"softmax\"}",
     MR_ERR_UNSUPPORTED, {"moe_router_activation_func", "\"softmax\""}},
    {V2 "\"topk_method\":\"noaux_tc\"}", MR_ERR_UNSUPPORTED,
     {"topk_method", "noaux_tc", "group_limited_greedy"}},
    {V2 "\"topk_method\":\"gready\"}", MR_ERR_UNSUPPORTED, {"topk_method", "gready"}},
    {"{\"model_type\":\"gpt_oss\",\"topk_method\":\"noaux_tc\"}", MR_ERR_UNSUPPORTED,
     {"topk_method", "noaux_tc"}},
    /* no documented default */
    {V2 "\"topk_method\":\"group_limited_greedy\"}", MR_ERR_MISSING, {"n_group"}},
    {"{\"model_type\":\"deepseek_v2\"}", MR_ERR_MISSING, {"num_experts_per_tok"}},
    {KIMI "\"topk_group\":1}", MR_ERR_MISSING, {"num_experts_per_token"}},
    {MIMO "\"n_group\":1,\"topk_group\":1}", MR_ERR_MISSING, {"norm_topk_prob"}},
    {MIMO "\"n_group\":1,\"topk_group\":1,\"norm_topk_prob\":true}", MR_ERR_MISSING,
     {"routed_scaling_factor"}},
    {MIMO "\"n_group\":1,\"topk_group\":1,\"norm_topk_prob\":true,\"routed_scaling_factor\":null,"
     "\"n_shared_experts\":null}", MR_ERR_MISSING, {"moe_layer_freq"}},
    {"{\"model_type\":\"nemotron_h\"}", MR_ERR_MISSING,
     {"layers_block_type", "hybrid_override_pattern"}},
    /* null only where the class gives it a meaning */
    {"{\"model_type\":\"deepseek_v3\",\"routed_scaling_factor\":null}", MR_ERR_FORMAT,
     {"routed_scaling_factor", "null"}},
    {"{\"model_type\":\"deepseek_v3\",\"n_shared_experts\":null}", MR_ERR_FORMAT, {"null"}},
    /* what the class fixes */
    {"{\"model_type\":\"qwen3_vl_moe_text\",\"norm_topk_prob\":false}", MR_ERR_UNSUPPORTED,
     {"norm_topk_prob", "false", "always normalises"}},
    {"{\"model_type\":\"llama4_text\",\"norm_topk_prob\":true}", MR_ERR_UNSUPPORTED,
     {"norm_topk_prob", "never normalises"}},
    {V2 "\"norm_topk_prob\":true}", MR_ERR_UNSUPPORTED, {"norm_topk_prob"}},
    {"{\"model_type\":\"step3p7\",\"norm_expert_weight\":false}", MR_ERR_UNSUPPORTED,
     {"norm_expert_weight"}},
    {"{\"model_type\":\"qwen3_moe\",\"routed_scaling_factor\":2.0}", MR_ERR_UNSUPPORTED,
     {"routed_scaling_factor", "2.0"}},
    {"{\"model_type\":\"deepseek_v4\",\"n_group\":8}", MR_ERR_UNSUPPORTED, {"n_group", "8"}},
    {"{\"model_type\":\"mixtral\",\"topk_group\":\"1\"}", MR_ERR_UNSUPPORTED, {"topk_group"}},
    {"{\"model_type\":\"qwen3_5_moe_text\",\"mlp_only_layers\":[0]}", MR_ERR_UNSUPPORTED,
     {"mlp_only_layers"}},
    {"{\"model_type\":\"gpt_oss\",\"num_experts_per_tok\":4,\"experts_per_token\":8}", MR_ERR_VALUE,
     {"num_experts_per_tok", "experts_per_token"}},
    {"{\"model_type\":\"kimi_k25\",\"text_config\":{\"model_type\":\"kimi_k2\",\"n_group\":7}}",
     MR_ERR_VALUE, {"text_config.n_group", "256"}},
    /* layers */
    {"{\"model_type\":\"minimax_m3\",\"num_hidden_layers\":3,\"first_k_dense_replace\":2,"
     "\"moe_layer_freq\":[0,1,1]}", MR_ERR_VALUE,
     {"layer 1 is MoE by \"moe_layer_freq\"", "dense by \"first_k_dense_replace\""}},
    {"{\"model_type\":\"minimax_m3\",\"moe_layer_freq\":[0,1,1]}", MR_ERR_FORMAT,
     {"moe_layer_freq", "60"}},
    {"{\"model_type\":\"minimax_m3\",\"num_hidden_layers\":1,\"moe_layer_freq\":[2]}", MR_ERR_VALUE,
     {"moe_layer_freq", "2"}},
    {"{\"model_type\":\"step3p7\",\"moe_layers_enum\":\"3,x\"}", MR_ERR_FORMAT,
     {"moe_layers_enum", "3,x"}},
    {"{\"model_type\":\"step3p7\",\"moe_layers_enum\":\"\"}", MR_ERR_FORMAT, {"moe_layers_enum"}},
    {"{\"model_type\":\"step3p7\",\"moe_layers_enum\":\"3,\"}", MR_ERR_FORMAT, {"moe_layers_enum"}},
    {"{\"model_type\":\"llama4_text\",\"moe_layers\":[]}", MR_ERR_VALUE, {"none of the 48"}},
    {"{\"model_type\":\"llama4_text\",\"interleave_moe_layer_step\":0}", MR_ERR_VALUE,
     {"interleave_moe_layer_step"}},
    {"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"MEX\"}", MR_ERR_FORMAT,
     {"hybrid_override_pattern", "'X'"}},
    {"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"M*\"}", MR_ERR_VALUE,
     {"none of the 2", "hybrid_override_pattern"}},
    {"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"ME\",\"num_hidden_layers\":3}",
     MR_ERR_VALUE, {"num_hidden_layers", "2 blocks"}},
    {"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"EM\","
     "\"layers_block_type\":[\"mamba\",\"moe\"]}", MR_ERR_VALUE,
     {"layers_block_type", "hybrid_override_pattern"}},
    {"{\"model_type\":\"nemotron_h\",\"layers_block_type\":[\"moe\",7]}", MR_ERR_FORMAT,
     {"layers_block_type", "7"}},
    {"{\"model_type\":\"nemotron_h\",\"layers_block_type\":\"moe\"}", MR_ERR_FORMAT,
     {"layers_block_type"}},
    {"{\"model_type\":\"deepseek_v4\",\"num_hash_layers\":44}", MR_ERR_VALUE,
     {"num_hash_layers", "43"}},
    {"{\"model_type\":\"deepseek_v4\",\"num_hidden_layers\":2,"
     "\"mlp_layer_types\":[\"moe\",\"hash_moe\"]}", MR_ERR_UNSUPPORTED,
     {"mlp_layer_types", "hash_moe"}},
    {"{\"model_type\":\"deepseek_v4\",\"num_hidden_layers\":2,\"num_hash_layers\":2,"
     "\"mlp_layer_types\":[\"hash_moe\",\"moe\"]}", MR_ERR_VALUE, {"num_hash_layers"}},
    {"{\"model_type\":\"deepseek_v4\",\"num_hidden_layers\":1,\"mlp_layer_types\":[\"dense\"]}",
     MR_ERR_FORMAT, {"mlp_layer_types", "\"dense\""}},
};

START_TEST(reject_configs)
{
    enum mr_status status = parse(refusals[_i].text);
    ck_assert_msg(status == refusals[_i].status, "%s: %s: %s", refusals[_i].text,
                  mr_status_name(status), err.text);
    for (int i = 0; i < 3 && refusals[_i].words[i]; i++)
        ck_assert_msg(strstr(err.text, refusals[_i].words[i]), "no '%s' in: %s",
                      refusals[_i].words[i], err.text);
}
END_TEST

/* Lists as long as the most layers that are read, and one longer. */
START_TEST(reject_long_patterns)
{
    static char text[MR_MAX_LAYERS + 128];
    for (int more = 0; more < 2; more++) {
        int n = snprintf(text, sizeof text,
                         "{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"");
        memset(text + n, 'E', MR_MAX_LAYERS + (size_t)more);
        strcpy(text + n + MR_MAX_LAYERS + more, "\"}");
        ck_assert_int_eq(parse(text), more ? MR_ERR_UNSUPPORTED : MR_OK);
        if (!more) ck_assert_int_eq(config.moe_layer_count, MR_MAX_LAYERS);
    }
}
END_TEST

Suite *suite_config_classes(void)
{
    Suite *suite = suite_create("config_classes");
    TCase *tc = tcase_create("config_classes");
    tcase_add_loop_test(tc, validate_class_defaults, 0, sizeof defaults / sizeof *defaults);
    tcase_add_test(tc, validate_deepseek_v2);
    tcase_add_test(tc, validate_hash_layers);
    tcase_add_test(tc, validate_nesting);
    tcase_add_test(tc, validate_switches_and_lists);
    tcase_add_loop_test(tc, reject_configs, 0, sizeof refusals / sizeof *refusals);
    tcase_add_test(tc, reject_long_patterns);
    suite_add_tcase(suite, tc);
    return suite;
}
