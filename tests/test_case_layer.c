/* What a case brings beside gate and bias: linear gate bias (gpt-oss), experts by token id
 * (DeepSeek-V4); and what no case can bring. Through the program, against numbers by hand. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/cli.h"

Suite *suite_case_layer(void);

enum { TOKENS = 2, TOP_K = 2, EXPERTS = 4, HIDDEN = 2 };

/* Dots of the two tokens: 1, 0.5, 1.5, 0 and 0, 3, 3, 0. */
static const float gate[EXPERTS][HIDDEN] = {{1, 0}, {0, 1}, {1, 1}, {0, 0}};
static const float hidden[TOKENS][HIDDEN] = {{1, 0.5f}, {0, 3}};

/* 0, 0, -2, 1.5: the logits are 1, 0.5, -0.5, 1.5 and 0, 3, 1, 1.5. */
static const uint16_t bias_bf16[EXPERTS] = {0, 0, 0xc000, 0x3fc0},
                      bias_f16[EXPERTS] = {0, 0, 0xc000, 0x3e00};
static const float bias_f32[EXPERTS] = {0, 0, -2, 1.5f};
static const int32_t oss_ids[TOKENS][TOP_K] = {{3, 0}, {1, 3}};

#define ROUTER "model.layers.0.mlp.router."
#define MLP0 "p.model.layers.0.mlp."
#define MLP1 "p.model.layers.1.mlp."
#define OSS "'moeref_case':1,'name':'oss','input':'hidden','phases':['p'],'config':'oss.json'," \
            "'checkpoint':['oss.st']"
#define OSS_CASE "{" OSS ",'capture':['input.st']}"

static void put_oss(const char *bias_name, enum mr_dtype dtype, const void *bias, uint64_t experts)
{
    const struct cli_tensor weights[] = {{ROUTER "weight", MR_F32, EXPERTS, HIDDEN, gate},
                                         {bias_name, dtype, experts, 0, bias}};
    const struct cli_tensor input[] = {{MLP0 "gate.input", MR_F32, TOKENS, HIDDEN, hidden},
                                       {MLP0 "topk_ids", MR_I32, TOKENS, TOP_K, oss_ids}};
    cli_put_json("oss.json", "{'model_type':'gpt_oss','num_local_experts':4,'hidden_size':2,"
                 "'num_experts_per_tok':2,'num_hidden_layers':1}");
    cli_put_json("oss-case.json", OSS_CASE);
    cli_put_tensors("oss.st", weights, bias_name ? 2 : 1);
    cli_put_tensors("input.st", input, 2);
}

/* A path that stays, where cli_at's is overwritten by the 32nd call after it. */
static const char *kept(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s", cli_at(name));
    return path;
}

/* What route --tokens wrote. */
static void ck_routed(const char *prefix, const int32_t ids[TOKENS][TOP_K],
                      const double weights[TOKENS][TOP_K])
{
    struct mr_safetensors *file;
    struct mr_tensor t;
    char name[96];
    int32_t found_ids[TOKENS][TOP_K];
    double found[TOKENS][TOP_K];
    ck_assert_int_eq(mr_safetensors_open(cli_at("out.st"), &file, NULL), MR_OK);
    snprintf(name, sizeof name, "%stopk_ids", prefix);
    ck_assert(mr_safetensors_find(file, name, &t) && t.bytes == sizeof found_ids);
    memcpy(found_ids, t.data, sizeof found_ids);
    snprintf(name, sizeof name, "%stopk_weights", prefix);
    ck_assert(mr_safetensors_find(file, name, &t) && t.bytes == sizeof found);
    memcpy(found, t.data, sizeof found);
    mr_safetensors_close(file);
    for (int i = 0; i < TOKENS; i++) {
        for (int j = 0; j < TOP_K; j++) {
            ck_assert_msg(found_ids[i][j] == ids[i][j], "%stoken %d, slot %d: expert %d, not %d",
                          prefix, i, j, found_ids[i][j], ids[i][j]);
            ck_assert_msg(fabs(found[i][j] - weights[i][j]) < 1e-14, "%stoken %d, slot %d: %.17g, "
                          "not %.17g", prefix, i, j, found[i][j], weights[i][j]);
        }
    }
}

static void ck_oss(const char *prefix)
{
    double first[TOKENS] = {1 / (1 + exp(-0.5)), 1 / (1 + exp(-1.5))};
    double weights[TOKENS][TOP_K] = {{first[0], 1 - first[0]}, {first[1], 1 - first[1]}};
    cli_fine();
    ck_routed(prefix, oss_ids, weights);
}

static const char *spec(const char *file, const char *tensor)
{
    static char text[4][600];
    static unsigned turn;
    turn++;
    snprintf(text[turn % 4], sizeof text[0], "%s:%s", cli_at(file), tensor);
    return text[turn % 4];
}

START_TEST(validate_gate_bias)
{
    const struct {
        enum mr_dtype dtype;
        const void *bias;
    } kinds[] = {{MR_BF16, bias_bf16}, {MR_F16, bias_f16}, {MR_F32, bias_f32}};
    for (int i = 0; i < 3; i++) {
        put_oss(ROUTER "bias", kinds[i].dtype, kinds[i].bias, EXPERTS);
        cli("route", cli_at("oss-case.json"), "--tokens", cli_at("out.st"), "-q");
        ck_oss(MLP0);
    }
    cli("verify", cli_at("oss-case.json"), "--strict");
    cli_fine();
    cli("route", cli_at("oss-case.json"), "--profiles", "-q");
    cli_fine();
    /* Plain files: beside the gate, or named. */
    cli("route", "--config", cli_at("oss.json"), "--gate", cli_at("oss.st"), "--hidden",
        cli_at("input.st"), "--tokens", cli_at("out.st"), "-q");
    ck_oss("all.model.layers.0.mlp.");
    cli_put_tensors("bias.st", &(struct cli_tensor){"b", MR_F32, EXPERTS, 0, bias_f32}, 1);
    put_oss(NULL, MR_F32, NULL, 0);
    cli("route", "--config", cli_at("oss.json"), "--gate", cli_at("oss.st"), "--gate-bias",
        spec("bias.st", "b"), "--hidden", cli_at("input.st"), "--tokens", cli_at("out.st"), "-q");
    ck_oss("all.model.layers.0.mlp.");
    cli("verify", "--config", cli_at("oss.json"), "--gate", cli_at("oss.st"), "--gate-bias",
        cli_at("bias.st"), "--hidden", cli_at("input.st"), "--ids", cli_at("input.st"), "--strict");
    cli_fine();
}
END_TEST

/* Names and figures of the case instead of a config's; given logits hold the bias already. */
START_TEST(validate_gate_bias_names)
{
    put_oss("mine.0", MR_BF16, bias_bf16, EXPERTS);
    cli_put_json("oss-case.json", "{" OSS ",'capture':['input.st'],'names':{'gate_bias':"
                 "'mine.{layer}'}}");
    cli("route", cli_at("oss-case.json"), "--tokens", cli_at("out.st"), "-q");
    ck_oss(MLP0);
    cli_put_json("oss-case.json", "{'moeref_case':1,'name':'n','input':'hidden','phases':['p'],"
                 "'checkpoint':['oss.st'],'capture':['input.st'],'router':{'experts':4,'top_k':2,"
                 "'hidden':2,'score':'softmax','selection':'logit','bias':false,'gate_bias':true,"
                 "'n_group':1,'topk_group':1,'norm_topk_prob':true,'routed_scaling_factor':1},"
                 "'names':{'gate_bias':'mine.{layer}','gate':'" ROUTER "weight'}}");
    cli("route", cli_at("oss-case.json"), "--tokens", cli_at("out.st"), "-q");
    ck_oss(MLP0);
    static const float logits[TOKENS][EXPERTS] = {{1, 0.5f, -0.5f, 1.5f}, {0, 3, 1, 1.5f}};
    cli_put_tensors("logits.st", &(struct cli_tensor){MLP0 "gate.logits", MR_F32, TOKENS, EXPERTS,
                                                      logits}, 1);
    cli("route", "--config", cli_at("oss.json"), "--logits", cli_at("logits.st"), "--tokens",
        cli_at("out.st"), "-q");
    ck_oss("all.model.layers.0.mlp.");
}
END_TEST

START_TEST(reject_gate_bias)
{
    static const float nan_bias[EXPERTS] = {0, NAN, 0, 0};
    const char *path = kept("oss-case.json");
    put_oss(NULL, MR_F32, NULL, 0);
    cli("route", path);
    cli_refused(3, ROUTER "bias", "oss.st");
    cli("route", "--config", cli_at("oss.json"), "--gate", cli_at("oss.st"), "--hidden",
        cli_at("input.st"));
    cli_refused(3, "--gate-bias", ROUTER "bias");
    put_oss(ROUTER "bias", MR_F32, bias_f32, 3);
    cli("route", path);
    cli_refused(3, ROUTER "bias", "[4], found [3]");
    put_oss(ROUTER "bias", MR_I32, bias_f32, EXPERTS);
    cli("verify", path);
    cli_refused(3, ROUTER "bias", "I32");
    put_oss(ROUTER "bias", MR_F32, nan_bias, EXPERTS);
    cli("route", path);
    cli_refused(3, "gate bias [1]", "nan");
    cli("route", path, "--gate-bias", "x");
    cli_refused(2, "--gate-bias", "plain files");
    cli("verify", path, "--gate-bias", "x");
    cli_refused(2, "--gate-bias", "plain files");
    cli("route", "--config", cli_at("oss.json"), "--logits", cli_at("input.st"), "--gate-bias",
        "x");
    cli_refused(2, "--gate-bias", "hold it already");
    cli("route", "--config", cli_at("config.json"), "--gate", "x", "--hidden", "x", "--gate-bias",
        "x");
    cli_refused(2, "--gate-bias", "glm4_moe router has none");
    cli_put_json("oss-case.json", "{'moeref_case':1,'name':'n','input':'hidden','config':'oss.json'"
                 ",'generate':{'class':'normal','tokens':4}}");
    cli("route", path);
    cli_refused(3, "generate", "no gate bias");
}
END_TEST

/* Layer 0 chooses by token id, layer 1 ranks. */
struct v4 {
    int64_t table[3][TOP_K];
    int32_t tokens[TOKENS], observed[TOKENS][TOP_K];
    size_t token_count;
};
static const struct v4 v4 = {{{0, 1}, {3, 2}, {1, 3}}, {1, 2}, {{3, 2}, {1, 3}}, TOKENS};
static const int32_t v4_ranked[TOKENS][TOP_K] = {{3, 0}, {3, 1}};

#define FFN(n) "layers." n ".ffn.gate."
#define V4 "'moeref_case':1,'name':'v4','input':'hidden','phases':['p'],'config':'v4.json'," \
           "'checkpoint':['v4.st'],'capture':['input.st']"

static void put_v4(const struct v4 *v, enum mr_dtype table, enum mr_dtype tokens)
{
    static const float bias[EXPERTS] = {0, 0, -5, 5};
    int32_t narrow[3][TOP_K];
    int64_t wide[TOKENS];
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < TOP_K; j++) narrow[i][j] = (int32_t)v->table[i][j];
    for (int i = 0; i < TOKENS; i++) wide[i] = v->tokens[i];
    const struct cli_tensor weights[] = {
        {FFN("0") "weight", MR_F32, EXPERTS, HIDDEN, gate},
        {FFN("1") "weight", MR_F32, EXPERTS, HIDDEN, gate},
        {FFN("1") "bias", MR_F32, EXPERTS, 0, bias},
        {FFN("0") "tid2eid", table, 3, TOP_K, table == MR_I64 ? (const void *)v->table : narrow},
    };
    const struct cli_tensor input[] = {
        {MLP0 "gate.input", MR_F32, TOKENS, HIDDEN, hidden},
        {MLP1 "gate.input", MR_F32, TOKENS, HIDDEN, hidden},
        {MLP0 "topk_ids", MR_I32, TOKENS, TOP_K, v->observed},
        {MLP1 "topk_ids", MR_I32, TOKENS, TOP_K, v4_ranked},
        {"p.input_ids", tokens, v->token_count, 0, tokens == MR_I64 ? (const void *)wide
                                                                    : v->tokens},
    };
    cli_put_json("v4.json", "{'model_type':'deepseek_v4','n_routed_experts':4,'hidden_size':2,"
                 "'num_experts_per_tok':2,'num_hidden_layers':2,'num_hash_layers':1}");
    cli_put_json("v4-case.json", "{" V4 "}");
    cli_put_tensors("v4.st", weights, table == MR_DTYPE_COUNT ? 3 : 4);
    cli_put_tensors("input.st", input, v->token_count ? 5 : 4);
}

/* sqrt(softplus), normalised over two, times the class's 1.5. */
static double share(double logit, double other)
{
    double a = sqrt(log1p(exp(logit))), b = sqrt(log1p(exp(other)));
    return 1.5 * a / (a + b);
}

START_TEST(validate_hash_layers)
{
    const double by_id[TOKENS][TOP_K] = {{share(0, 1.5), share(1.5, 0)},
                                         {share(3, 0), share(0, 3)}};
    const double ranked[TOKENS][TOP_K] = {{share(0, 1), share(1, 0)}, {share(0, 3), share(3, 0)}};
    const char *path = kept("v4-case.json");
    for (int i = 0; i < 4; i++) {
        put_v4(&v4, i & 1 ? MR_I32 : MR_I64, i & 2 ? MR_I32 : MR_I64);
        cli("route", path, "--tokens", cli_at("out.st"));
        cli_fine();
        ck_routed(MLP0, v4.observed, by_id);
        ck_routed(MLP1, v4_ranked, ranked);
    }
    cli("verify", path, "--strict", "-v");
    cli_fine();
    cli("route", path, "--json", "-");
    cli_fine();
    json_decref(cli_json());
    cli("route", path, "--profiles");
    cli_refused(3, "layer 0", "token id");
    cli("route", path, "--profiles", "--layers", "1", "-q");
    cli_fine();
    cli("route", "--config", cli_at("v4.json"), "--gate", cli_at("v4.st"), "--layer", "1",
        "--hidden", cli_at("input.st"), "-q");
    cli_fine();
    /* Another set is wrong, however the keys lie: nothing is ranked. */
    struct v4 other = v4;
    other.observed[1][1] = 2;
    put_v4(&other, MR_I64, MR_I64);
    cli("verify", path, "--json", "-");
    ck_assert_int_eq(cli_last.status, 1);
    json_t *doc = cli_json(), *verdicts = json_object_get(doc, "verdicts");
    ck_assert_int_eq(json_integer_value(json_object_get(verdicts, "wrong")), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(verdicts, "exact")), 3);
    json_decref(doc);
}
END_TEST

/* Without a config layers count from 0, and names must say where the table lies. */
START_TEST(validate_hash_names)
{
    const double by_id[TOKENS][TOP_K] = {{share(0, 1.5), share(1.5, 0)},
                                         {share(3, 0), share(0, 3)}};
#define V4_ROUTER \
    "{'moeref_case':1,'name':'n','input':'hidden','phases':['p'],'checkpoint':['v4.st']," \
    "'capture':['input.st'],'router':{'experts':4,'top_k':2,'hidden':2,'score':'sqrtsoftplus'," \
    "'bias':true,'hash_layers':1,'n_group':1,'topk_group':1,'norm_topk_prob':true," \
    "'routed_scaling_factor':1.5},'layers':[0],'names':{'gate':'" FFN("{layer}") "weight'"
    put_v4(&v4, MR_I64, MR_I64);
    cli_put_json("v4-case.json", V4_ROUTER ",'hash':'" FFN("0") "tid2eid','token_ids':"
                 "'{phase}.input_ids'}}");
    cli("route", cli_at("v4-case.json"), "--tokens", cli_at("out.st"), "-q");
    cli_fine();
    ck_routed(MLP0, v4.observed, by_id);
    cli_put_json("v4-case.json", V4_ROUTER "}}");
    cli("route", cli_at("v4-case.json"));
    cli_refused(3, "hash is needed", "\"names\"");
}
END_TEST

START_TEST(reject_hash_layers)
{
    const char *path = kept("v4-case.json");
    struct v4 bad = v4;
    bad.tokens[1] = 3;
    put_v4(&bad, MR_I64, MR_I64);
    cli("verify", path);
    cli_refused(3, "layer 0, phase p: token id [1] is 3", "below 3");
    cli_remember();
    cli("route", path, "--tokens", cli_at("none.st"));
    cli_refused(3, "layer 0, phase p: token id [1] is 3", "below 3"); /* and no half a file */
    bad.tokens[1] = -1;
    put_v4(&bad, MR_I32, MR_I32);
    cli("route", path);
    cli_refused(3, "token id [1] is -1", NULL);
    cli("route", path, "--layers", "1", "-q");
    cli_fine();
    bad = v4;
    bad.table[2][0] = EXPERTS;
    put_v4(&bad, MR_I64, MR_I64);
    cli("route", path);
    cli_refused(3, "tid2eid [2, 0] is 4", "layer 0");
    put_v4(&v4, MR_DTYPE_COUNT, MR_I64);
    cli("route", path);
    cli_refused(3, FFN("0") "tid2eid", "v4.st");
    bad = v4;
    bad.token_count = 0;
    put_v4(&bad, MR_I64, MR_I64);
    cli("route", path);
    cli_refused(3, "p.input_ids", "input.st");
    bad.token_count = 1;
    put_v4(&bad, MR_I64, MR_I64);
    cli("route", path);
    cli_refused(3, "p.input_ids", "[2] by " MLP0 "gate.input, found [1]");
    put_v4(&v4, MR_F32, MR_I64);
    cli("route", path);
    cli_refused(3, "tid2eid: expected one of I32 I64", "F32");
    put_v4(&v4, MR_I64, MR_F32);
    cli("route", path);
    cli_refused(3, "input_ids: expected one of I32 I64", "F32");
    put_v4(&v4, MR_I64, MR_I64);
    cli_put_json("v4-case.json", "{" V4 ",'router':{'hash_layers':3}}");
    cli("route", path);
    cli_refused(3, "router.hash_layers", "at most 2");
    cli_put_json("v4-case.json", "{" V4 ",'router':{'top_k':1}}");
    cli("route", path);
    cli_refused(3, "tid2eid", "[vocabulary, 1], found [3, 2]");
    cli("route", "--config", cli_at("v4.json"), "--gate", cli_at("v4.st"), "--layer", "0",
        "--hidden", cli_at("input.st"));
    cli_refused(3, "layer 0", "case file");
    cli_put_tensors("one.st", &(struct cli_tensor){"x", MR_F32, TOKENS, EXPERTS, gate}, 1);
    cli_remember();
    cli("route", "--config", cli_at("v4.json"), "--logits", cli_at("one.st"));
    cli_refused(3, "token id", "--layer N");
}
END_TEST

START_TEST(reject_expert_scale)
{
    cli_put_json("gemma.json", "{'model_type':'gemma4_text','num_experts':16,'top_k_experts':4,"
                 "'hidden_size':64,'num_hidden_layers':1,'moe_intermediate_size':8,"
                 "'enable_moe_block':true}");
    cli_put_json("gemma-case.json", "{" CLI_HEAD CLI_WEIGHTS "'capture':['hidden.st'],"
                 "'config':'gemma.json'}");
    cli("route", cli_at("gemma-case.json"));
    cli_refused(3, "gemma4_text multiplies each weight", "gemma-case.json");
    cli("verify", cli_at("gemma-case.json"));
    cli_refused(3, "gemma4_text multiplies each weight", NULL);
    cli("route", "--config", cli_at("gemma.json"), "--gate", spec("weights.st", CLI_GATE),
        "--hidden", cli_at("hidden.st"));
    cli_refused(3, "gemma4_text multiplies each weight", NULL);
    cli("router", cli_at("gemma.json"));
    cli_fine();
}
END_TEST

Suite *suite_case_layer(void)
{
    Suite *suite = suite_create("case_layer");
    TCase *tc = tcase_create("case_layer");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, cli_start, cli_stop);
    tcase_add_test(tc, validate_gate_bias);
    tcase_add_test(tc, validate_gate_bias_names);
    tcase_add_test(tc, reject_gate_bias);
    tcase_add_test(tc, validate_hash_layers);
    tcase_add_test(tc, validate_hash_names);
    tcase_add_test(tc, reject_hash_layers);
    tcase_add_test(tc, reject_expert_scale);
    suite_add_tcase(suite, tc);
    return suite;
}
