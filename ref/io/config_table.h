/* The table behind config*.c: what each model_type's configuration class documents, and where a
 * multimodal config keeps its text model. Private to io. */
#ifndef MOEREF_CONFIG_TABLE_H
#define MOEREF_CONFIG_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "../route/router.h"

/* A figure with no documented default: a config.json without the key is refused. */
#define NO_DEFAULT (-1)

/* A figure that the class fixes whatever the config says has no key. */
struct config_int {
    const char *keys[5]; /* alternative spellings, NULL after the last */
    int fallback;        /* default of the configuration class, or NO_DEFAULT */
    bool null_ok;        /* null stands for if_null in this class; elsewhere null is an error */
    int if_null;
};

enum config_layers {
    LAYERS_AFTER_DENSE, /* MoE from first_k_dense_replace on, or as one of the lists says */
    LAYERS_SPARSE_STEP, /* MoE where (layer + 1) % decoder_sparse_step == 0, less mlp_only_layers */
    LAYERS_INTERLEAVED, /* MoE where (layer + 1) % interleave_moe_layer_step == 0, or moe_layers */
    LAYERS_HYBRID,      /* a list names every block: mixers, attention, MLPs and MoE alike */
    LAYERS_ALL
};

/* What norm_topk_prob, or the key that stands for it, may do in the class. */
enum config_norm { NORM_BY_KEY, NORM_ALWAYS, NORM_NEVER };

struct config_row {
    const char *model_type, *class_name;
    struct config_int experts, top_k, hidden, layers, moe_intermediate, shared, n_group, topk_group,
        first_dense;
    bool shared_width; /* shared's key is the width of one shared expert, 0: there is none */
    enum mr_score score;
    const char *score_key, *score_value; /* the only value that means this row's router */
    const char *score_note;              /* where the class says so without a key */
    enum mr_selection selection;
    bool gate_bias;
    const char *gate_bias_note;
    const char *topk_method; /* as score_value; NULL: the class has no such key */
    bool v2_methods;         /* topk_method chooses between DeepSeek-V2's two */
    enum mr_group_score group_score;
    bool bias;
    const char *bias_key; /* a switch of the class, on unless the key says no; NULL: none */
    enum config_norm norm;
    const char *norm_key, *norm_note;
    bool norm_fallback;
    const char *norm_missing; /* why there is no default; NULL: there is */
    const char *scaling_key; /* NULL: the class has no such factor, it is 1 */
    double scaling_fallback;
    bool scaling_null_is_1;
    const char *scaling_missing; /* why there is no default; NULL: there is */
    bool hashes;                 /* num_hash_layers, or "hash_moe" in mlp_layer_types */
    int hash_fallback;
    const char *moe_switch; /* a key that makes the model dense unless it is true */
    const char *expert_scale; /* tensor that multiplies the weights of each expert; NULL: none */
    enum config_layers layer_rule;
    /* Tensors, behind the layers' prefix; NULL: the class has none. */
    const char *prefix, *gate, *gate_alias, *bias_name, *gate_bias_name, *hash_name;
};

/* config_table_sigmoid.c (and sqrt-softplus), config_table_softmax.c (and Llama 4) */
extern const struct config_row mr_config_sigmoid_rows[], mr_config_softmax_rows[];
extern const size_t mr_config_sigmoid_count, mr_config_softmax_count;
/* The i-th of all; NULL behind the last. */
const struct config_row *mr_config_row(size_t i);

/* A composite config: its text model's row (NULL: the nested model_type says) and the prefix of its
 * layers in the checkpoint. */
struct config_wrapper {
    const char *model_type, *text_type, *prefix;
};

const struct config_wrapper *mr_config_wrapper(const char *model_type); /* NULL: none */

#endif
