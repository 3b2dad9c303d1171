/* config.json -> router. One table row per model_type says which key holds what and what the
 * documented default of its configuration class is; a missing key without such a default is
 * refused, never guessed. The text model may be nested (text_config, llm_config, language_config,
 * thinker_config.text_config): sources and messages then name the key with its path. A dense model
 * and a hf_quant_config.json are refused with a sentence that says so. */
#ifndef MOEREF_CONFIG_H
#define MOEREF_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "../route/router.h"
#include "../status.h"

#define MR_CONFIG_FIELDS 24
#define MR_MAX_LAYERS 1024

/* Where a figure came from: key is the JSON key ("n_routed_experts"), or "" when no key says it;
 * note then says what does, e.g. "default of Glm4MoeConfig". */
struct mr_config_source {
    const char *field; /* "experts", "top_k", ... the names `router --json` uses */
    char key[96];
    char note[128];
};

struct mr_config {
    char model_type[64]; /* of the file; text_type is that of the nested text model, or the same */
    char text_type[64];
    struct mr_router router;
    bool has_groups;     /* the class selects within groups, even if n_group is 1 here */
    bool expert_scale;   /* each weight is then multiplied by an entry of a tensor of the checkpoint
                            (Gemma 4, router.per_expert_scale), which struct mr_router lacks */
    int shared_experts;
    int moe_intermediate; /* width of one routed expert, 0 if the config does not say */
    int layers;           /* num_hidden_layers, or the length of the list of blocks */
    int moe_layer_count;
    int moe_layers[MR_MAX_LAYERS]; /* ascending */
    size_t source_count;
    struct mr_config_source sources[MR_CONFIG_FIELDS];
    char gate_name[96], gate_alias[96], bias_name[96], gate_bias_name[96], hash_name[96];
};

/* Infinity and NaN as Python's json writes them are read (see json_python.h), but are no figure.
 * Duplicate keys are refused. After a failure *out holds nothing of use. */
enum mr_status mr_config_load(const char *path, struct mr_config *out, struct mr_error *err);
enum mr_status mr_config_parse(const char *text, size_t bytes, const char *path,
                               struct mr_config *out, struct mr_error *err);

/* Tensor names in a checkpoint of that model_type, "{layer}" to be replaced; they live as long as
 * *config. Gate weight; a second name it goes by; correction bias; linear bias of the gate
 * (gpt-oss); table from token id to experts (DeepSeek-V4). NULL: the class has none. */
const char *mr_config_gate_name(const struct mr_config *config);
const char *mr_config_gate_alias(const struct mr_config *config);
const char *mr_config_bias_name(const struct mr_config *config);
const char *mr_config_gate_bias_name(const struct mr_config *config);
const char *mr_config_hash_name(const struct mr_config *config);

#endif
