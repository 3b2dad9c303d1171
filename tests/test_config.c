/* config.json to router: class defaults, rules for layers, and every way in which a config.json can
 * be wrong. Published files: test_config_models.c; newer classes: test_config_classes.c. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/config.h"

Suite *suite_config(void);

static struct mr_config config;
static struct mr_error err;

static const struct mr_config_source *source_of(const char *field)
{
    for (size_t i = 0; i < config.source_count; i++)
        if (strcmp(config.sources[i].field, field) == 0) return &config.sources[i];
    ck_abort_msg("no source of %s", field);
    return NULL;
}

START_TEST(validate_sources)
{
    ck_assert_int_eq(mr_config_load("data/captures/qwen3moe-tiny/config.json", &config, &err),
                     MR_OK);
    ck_assert_str_eq(source_of("experts")->key, "num_local_experts");
    ck_assert_str_eq(source_of("n_group")->key, "");
    ck_assert_int_eq(mr_config_load("data/configs/zai-org--GLM-5.2_config.json", &config, &err),
                     MR_OK);
    ck_assert_str_eq(source_of("moe_layers")->key, "mlp_layer_types");
    ck_assert_str_eq(source_of("score")->key, "scoring_func");
}
END_TEST

static enum mr_status parse(const char *text)
{
    err.text[0] = '\0';
    return mr_config_parse(text, strlen(text), "mem/config.json", &config, &err);
}

/* The defaults of the classes, from transformers' configuration_*.py. */
START_TEST(validate_class_defaults)
{
    ck_assert_int_eq(parse("{\"model_type\":\"glm4_moe\"}"), MR_OK);
    ck_assert_int_eq(config.router.experts, 128);
    ck_assert_double_eq(config.router.routed_scaling_factor, 1.0);
    ck_assert_int_eq(config.moe_layers[0], 1);
    ck_assert_int_eq(config.moe_intermediate, 1408);
    ck_assert_str_eq(source_of("routed_scaling_factor")->key, "");
    ck_assert_str_eq(source_of("routed_scaling_factor")->note, "default of Glm4MoeConfig");
    ck_assert_int_eq(parse("{\"model_type\":\"glm_moe_dsa\"}"), MR_OK);
    ck_assert_int_eq(config.router.hidden, 6144);
    ck_assert_int_eq(config.moe_layer_count, 75);
    ck_assert_int_eq(parse("{\"model_type\":\"deepseek_v3\"}"), MR_OK);
    ck_assert_int_eq(config.router.n_group, 8);
    ck_assert_int_eq(config.router.topk_group, 4);
    ck_assert_double_eq(config.router.routed_scaling_factor, 2.5);
    ck_assert_int_eq(parse("{\"model_type\":\"qwen3_moe\"}"), MR_OK);
    ck_assert(!config.router.norm_topk_prob);
    ck_assert_int_eq(config.moe_layer_count, 24);
    ck_assert_int_eq(parse("{\"model_type\":\"mixtral\"}"), MR_OK);
    ck_assert(config.router.norm_topk_prob);
    ck_assert_int_eq(config.router.top_k, 2);
    ck_assert_str_eq(mr_config_gate_name(&config),
                     "model.layers.{layer}.block_sparse_moe.gate.weight");
    ck_assert_ptr_null(mr_config_bias_name(&config));
}
END_TEST

START_TEST(validate_layer_rules)
{
    ck_assert_int_eq(parse("{\"model_type\":\"qwen3_moe\",\"num_hidden_layers\":9,"
                           "\"decoder_sparse_step\":2,\"mlp_only_layers\":[3,7,40]}"), MR_OK);
    ck_assert_int_eq(config.moe_layer_count, 2); /* 1 3 5 7, less 3 and 7 */
    ck_assert_int_eq(config.moe_layers[0], 1);
    ck_assert_int_eq(config.moe_layers[1], 5);
    ck_assert_int_eq(parse("{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":null}"), MR_OK);
    ck_assert_int_eq(config.moe_layer_count, 24);
    ck_assert_int_eq(parse("{\"model_type\":\"glm_moe_dsa\",\"num_hidden_layers\":4,"
                           "\"mlp_layer_types\":[\"sparse\",\"dense\",\"dense\",\"sparse\"]}"),
                     MR_OK);
    ck_assert_int_eq(config.moe_layer_count, 2);
    ck_assert_int_eq(config.moe_layers[1], 3);
    ck_assert_int_eq(parse("{\"model_type\":\"glm4_moe\",\"num_hidden_layers\":4,"
                           "\"num_nextn_predict_layers\":1,\"first_k_dense_replace\":0}"), MR_OK);
    ck_assert_int_eq(config.moe_layer_count, 4);
}
END_TEST

/* The tokens in values that the reader does not use, inside strings and nested; Python's json
 * writes and reads all of these. */
START_TEST(validate_python_tokens)
{
    ck_assert_msg(parse("{\"model_type\":\"mixtral\",\"a\":NaN,\"b\":[Infinity , -Infinity],"
                        "\"c\":\"NaN \\\" Infinity\",\"time_step_limit\":[0.0,Infinity]}") == MR_OK,
                  "%s", err.text);
    ck_assert_int_eq(config.router.experts, 8);
}
END_TEST

START_TEST(verify_equal_spellings)
{
    ck_assert_int_eq(parse("{\"model_type\":\"qwen3_moe\",\"num_experts\":64,"
                           "\"num_local_experts\":64}"), MR_OK);
    ck_assert_int_eq(config.router.experts, 64);
    ck_assert_str_eq(source_of("experts")->key, "num_experts");
}
END_TEST

struct refusal {
    const char *text;
    enum mr_status status;
    const char *words[3];
};

static const struct refusal refusals[] = {
    {"", MR_ERR_FORMAT, {"mem/config.json"}},
    {"[]", MR_ERR_FORMAT, {"object"}},
    {"{\"model_type\":\"mixtral\"", MR_ERR_FORMAT, {"mem/config.json"}},
    {"{\"model_type\":\"mixtral\"} x", MR_ERR_FORMAT, {"mem/config.json"}},
    {"{\"model_type\":\"mixtral\",\"a\":1,\"a\":1}", MR_ERR_FORMAT, {"twice"}},
    {"{}", MR_ERR_MISSING, {"model_type"}},
    {"{\"model_type\":7}", MR_ERR_FORMAT, {"model_type", "7"}},
    {"{\"model_type\":null}", MR_ERR_FORMAT, {"model_type", "null"}},
    {"{\"model_type\":\"grok\",\"num_experts\":8}", MR_ERR_UNSUPPORTED,
     {"\"grok\" is not among those known:", "glm4_moe", "gemma4_text"}},
    {"{\"model_type\":\"llama\",\"hidden_size\":4096}", MR_ERR_UNSUPPORTED,
     {"\"llama\"", "dense model"}},
    {"{\"model_type\":\"qwen3_moe\",\"num_experts\":64,\"num_local_experts\":128}", MR_ERR_VALUE,
     {"\"num_experts\"", "\"num_local_experts\"", "128"}},
    {"{\"model_type\":\"glm_moe_dsa\",\"n_routed_experts\":64,\"num_experts\":128}", MR_ERR_VALUE,
     {"\"n_routed_experts\"", "\"num_experts\""}},
    {"{\"model_type\":\"deepseek_v3\",\"scoring_func\":\"softmax\"}", MR_ERR_UNSUPPORTED,
     {"scoring_func", "\"softmax\"", "\"sigmoid\""}},
    {"{\"model_type\":\"deepseek_v3\",\"topk_method\":\"group_limited_greedy\"}",
     MR_ERR_UNSUPPORTED, {"topk_method", "group_limited_greedy", "noaux_tc"}},
    {"{\"model_type\":\"deepseek_v3\",\"topk_method\":null}", MR_ERR_FORMAT, {"topk_method"}},
    {"{\"model_type\":\"mixtral\",\"scoring_func\":\"sigmoid\"}", MR_ERR_UNSUPPORTED,
     {"scoring_func", "sigmoid"}},
    {"{\"model_type\":\"mixtral\",\"num_local_experts\":8.0}", MR_ERR_FORMAT,
     {"num_local_experts", "integer", "8.0"}},
    {"{\"model_type\":\"mixtral\",\"num_local_experts\":\"8\"}", MR_ERR_FORMAT,
     {"num_local_experts", "\"8\""}},
    {"{\"model_type\":\"mixtral\",\"num_local_experts\":-8}", MR_ERR_VALUE,
     {"num_local_experts", "-8"}},
    {"{\"model_type\":\"mixtral\",\"num_local_experts\":0}", MR_ERR_VALUE, {"num_local_experts"}},
    {"{\"model_type\":\"mixtral\",\"num_local_experts\":4294967304}", MR_ERR_VALUE,
     {"num_local_experts", "4294967304"}},
    {"{\"model_type\":\"mixtral\",\"num_local_experts\":99999999999999999999}", MR_ERR_FORMAT,
     {"integer"}},
    {"{\"model_type\":\"mixtral\",\"num_local_experts\":null}", MR_ERR_FORMAT, {"null"}},
    {"{\"model_type\":\"mixtral\",\"num_experts_per_tok\":9}", MR_ERR_VALUE,
     {"num_experts_per_tok", "9", "8 experts"}},
    {"{\"model_type\":\"mixtral\",\"hidden_size\":true}", MR_ERR_FORMAT, {"hidden_size", "true"}},
    {"{\"model_type\":\"mixtral\",\"num_hidden_layers\":1025}", MR_ERR_UNSUPPORTED,
     {"num_hidden_layers", "1025"}},
    {"{\"model_type\":\"deepseek_v3\",\"n_group\":7}", MR_ERR_VALUE, {"n_group", "7", "256"}},
    {"{\"model_type\":\"deepseek_v3\",\"n_group\":0}", MR_ERR_VALUE, {"n_group"}},
    {"{\"model_type\":\"deepseek_v3\",\"topk_group\":9}", MR_ERR_VALUE, {"topk_group", "n_group"}},
    {"{\"model_type\":\"deepseek_v3\",\"n_group\":64,\"topk_group\":1}", MR_ERR_VALUE,
     {"topk_group = 1", "only 4 experts"}},
    {"{\"model_type\":\"deepseek_v3\",\"n_group\":256,\"topk_group\":8}", MR_ERR_VALUE,
     {"n_group", "one expert a group"}},
    {"{\"model_type\":\"glm4_moe\",\"norm_topk_prob\":1}", MR_ERR_FORMAT,
     {"norm_topk_prob", "true or false"}},
    {"{\"model_type\":\"glm4_moe\",\"routed_scaling_factor\":Infinity}", MR_ERR_FORMAT,
     {"routed_scaling_factor", "number", "Infinity"}},
    {"{\"model_type\":\"glm4_moe\",\"routed_scaling_factor\":NaN}", MR_ERR_FORMAT, {"NaN"}},
    {"{\"model_type\":\"glm4_moe\",\"routed_scaling_factor\":1e999}", MR_ERR_FORMAT, {"real"}},
    {"{\"model_type\":\"glm4_moe\",\"n_shared_experts\":-1}", MR_ERR_VALUE, {"n_shared_experts"}},
    {"{\"model_type\":\"glm4_moe\",\"first_k_dense_replace\":-1}", MR_ERR_VALUE,
     {"first_k_dense_replace"}},
    {"{\"model_type\":\"glm4_moe\",\"first_k_dense_replace\":46}", MR_ERR_VALUE,
     {"first_k_dense_replace", "none of the 46"}},
    {"{\"model_type\":\"deepseek_v3\",\"moe_layer_freq\":2}", MR_ERR_UNSUPPORTED,
     {"moe_layer_freq", "2"}},
    {"{\"model_type\":\"glm_moe_dsa\",\"num_hidden_layers\":2,\"mlp_layer_types\":[\"sparse\"]}",
     MR_ERR_FORMAT, {"mlp_layer_types", "2"}},
    {"{\"model_type\":\"glm_moe_dsa\",\"num_hidden_layers\":1,\"mlp_layer_types\":[\"moe\"]}",
     MR_ERR_FORMAT, {"mlp_layer_types", "\"moe\""}},
    {"{\"model_type\":\"glm_moe_dsa\",\"num_hidden_layers\":2,\"first_k_dense_replace\":1,"
     "\"mlp_layer_types\":[\"sparse\",\"sparse\"]}", MR_ERR_VALUE,
     {"mlp_layer_types", "first_k_dense_replace"}},
    {"{\"model_type\":\"qwen3_moe\",\"decoder_sparse_step\":0}", MR_ERR_VALUE,
     {"decoder_sparse_step"}},
    {"{\"model_type\":\"qwen3_moe\",\"decoder_sparse_step\":25}", MR_ERR_VALUE,
     {"decoder_sparse_step", "none"}},
    {"{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":3}", MR_ERR_FORMAT,
     {"mlp_only_layers", "array"}},
    {"{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":[-1]}", MR_ERR_VALUE, {"mlp_only_layers"}},
    /* Python refuses these too; a token must not glue itself to its neighbours. */
    {"{\"model_type\":\"mixtral\",NaN:1}", MR_ERR_FORMAT, {"mem/config.json"}},
    {"{\"model_type\":\"mixtral\",\"a\":NaNs}", MR_ERR_FORMAT, {"line 1"}},
    {"{\"model_type\":\"mixtral\",\"a\":--Infinity}", MR_ERR_FORMAT, {"mem/config.json"}},
    {"{\"model_type\":\"mixtral\",\"a\":+Infinity}", MR_ERR_FORMAT, {"mem/config.json"}},
    {"{\"model_type\":\"mixtral\",\"a\":Inf}", MR_ERR_FORMAT, {"mem/config.json"}},
    {"{\"model_type\":\"mixtral\",\n\"a\":NaN,\n\"b\":}", MR_ERR_FORMAT, {"line 3"}},
};

START_TEST(reject_configs)
{
    const struct refusal *r = &refusals[_i];
    enum mr_status status = parse(r->text);
    ck_assert_msg(status == r->status, "%s: %s: %s", r->text, mr_status_name(status), err.text);
    for (int i = 0; i < 3 && r->words[i]; i++)
        ck_assert_msg(strstr(err.text, r->words[i]), "no '%s' in: %s", r->words[i], err.text);
}
END_TEST

START_TEST(reject_files_that_cannot_be_read)
{
    ck_assert_int_eq(mr_config_load("/nonexistent/config.json", &config, &err), MR_ERR_IO);
    ck_assert(strstr(err.text, "No such file") != NULL);
    ck_assert_int_eq(mr_config_load("data", &config, &err), MR_ERR_IO);
    ck_assert(strstr(err.text, "directory") != NULL);
    /* Endless: ends at the largest size that is read. */
    ck_assert_int_eq(mr_config_load("/dev/zero", &config, &err), MR_ERR_FORMAT);
    ck_assert(strstr(err.text, "at most") != NULL);
}
END_TEST

/* Every prefix of a real file, and every byte of it changed: refused or read, never a crash (the
 * sanitizers watch). */
START_TEST(reject_cut_files)
{
    FILE *f = fopen("data/configs/deepseek-ai--DeepSeek-V3_config.json", "rb");
    ck_assert_ptr_nonnull(f);
    char text[4096];
    size_t bytes = fread(text, 1, sizeof text, f);
    fclose(f);
    while (bytes && text[bytes - 1] != '}') bytes--;
    for (size_t n = 0; n < bytes; n++) {
        char *copy = malloc(n ? n : 1);
        memcpy(copy, text, n);
        ck_assert_int_eq(mr_config_parse(copy, n, "cut", &config, &err), MR_ERR_FORMAT);
        free(copy);
    }
    for (size_t n = 0; n < bytes; n++) {
        text[n] ^= 0x55;
        (void)mr_config_parse(text, bytes, "flipped", &config, &err);
        text[n] ^= 0x55;
    }
}
END_TEST

Suite *suite_config(void)
{
    Suite *suite = suite_create("config");
    TCase *tc = tcase_create("config");
    tcase_add_test(tc, validate_sources);
    tcase_add_test(tc, validate_class_defaults);
    tcase_add_test(tc, validate_layer_rules);
    tcase_add_test(tc, validate_python_tokens);
    tcase_add_test(tc, verify_equal_spellings);
    tcase_add_loop_test(tc, reject_configs, 0, sizeof refusals / sizeof *refusals);
    tcase_add_test(tc, reject_files_that_cannot_be_read);
    tcase_add_test(tc, reject_cut_files);
    suite_add_tcase(suite, tc);
    return suite;
}
