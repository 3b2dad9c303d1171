/* The table behind config.c: what each model_type's transformers class documents. Private to io. */
#ifndef MOEREF_CONFIG_TABLE_H
#define MOEREF_CONFIG_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "../route/router.h"

/* A figure with no documented default: a config.json without the key is refused. */
#define NO_DEFAULT (-1)

/* A figure that the class fixes whatever the config says has no key. */
struct config_int {
    const char *keys[4]; /* alternative spellings, NULL after the last */
    int fallback;        /* default of the configuration class, or NO_DEFAULT */
};

enum config_layers {
    LAYERS_AFTER_DENSE, /* MoE from first_k_dense_replace on; mlp_layer_types lists all */
    LAYERS_SPARSE_STEP, /* MoE where (layer + 1) % decoder_sparse_step == 0, less mlp_only_layers */
    LAYERS_ALL
};

struct config_row {
    const char *model_type, *class_name;
    struct config_int experts, top_k, hidden, layers, moe_intermediate, shared, n_group, topk_group,
        first_dense;
    enum mr_score score;
    const char *scoring_func, *topk_method; /* the only values that mean this row's router */
    const char *score_note; /* where the class says so: there is no key for it */
    bool bias;
    const char *norm_key; /* NULL: the class always normalises */
    bool norm_fallback;
    const char *scaling_key; /* NULL: the class has no such factor, it is 1 */
    double scaling_fallback;
    enum config_layers layer_rule;
    const char *gate_name, *gate_alias, *bias_name;
};

extern const struct config_row mr_config_rows[];
extern const size_t mr_config_row_count;

#endif
