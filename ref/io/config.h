/* config.json -> router. One table row per model_type says which key holds what and what the
 * documented default of its transformers class is; a missing key without such a default is
 * refused, never guessed. */
#ifndef MOEREF_CONFIG_H
#define MOEREF_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "../route/router.h"
#include "../status.h"

#define MR_CONFIG_FIELDS 16
#define MR_MAX_LAYERS 1024

/* Where a figure came from: key is the JSON key ("n_routed_experts"), or "" when no key says it;
 * note then says what does, e.g. "default of Glm4MoeConfig". */
struct mr_config_source {
    const char *field; /* "experts", "top_k", ... the names `router --json` uses */
    char key[64];
    char note[96];
};

struct mr_config {
    char model_type[64];
    struct mr_router router;
    int shared_experts;
    int moe_intermediate; /* width of one routed expert, 0 if the config does not say */
    int layers;           /* num_hidden_layers */
    int moe_layer_count;
    int moe_layers[MR_MAX_LAYERS]; /* ascending */
    size_t source_count;
    struct mr_config_source sources[MR_CONFIG_FIELDS];
};

/* Infinity and NaN as Python's json writes them are read (see json_python.h), but are no figure.
 * Duplicate keys are refused. After a failure *out holds nothing of use. */
enum mr_status mr_config_load(const char *path, struct mr_config *out, struct mr_error *err);
enum mr_status mr_config_parse(const char *text, size_t bytes, const char *path,
                               struct mr_config *out, struct mr_error *err);

/* Tensor names in a checkpoint of that model_type, "{layer}" to be replaced:
 * gate weight, a second name it goes by (NULL if none), correction bias (NULL if the class has
 * none). */
const char *mr_config_gate_name(const struct mr_config *config);
const char *mr_config_gate_alias(const struct mr_config *config);
const char *mr_config_bias_name(const struct mr_config *config);

#endif
