#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_table.h"
#include "json_python.h"
#include "json_value.h"

/* What every step of reading one file shares. */
struct reading {
    const json_t *json;
    const char *path;
    const struct config_row *row;
    struct mr_config *out;
    struct mr_error *err;
};

#define TRY(call)                                \
    do {                                         \
        enum mr_status try_status_ = (call);     \
        if (try_status_ != MR_OK) return try_status_; \
    } while (0)

/* key NULL: no key says it. */
static void source(struct reading *r, const char *field, const char *key, const char *format,
                   const char *text)
{
    struct mr_config_source *s = &r->out->sources[r->out->source_count++];
    s->field = field;
    snprintf(s->key, sizeof s->key, "%s", key ? key : "");
    snprintf(s->note, sizeof s->note, format, text);
}

#define FROM_KEY "%s", ""
#define FROM_DEFAULT(r) "default of %s", (r)->row->class_name
#define FROM_CLASS(r) "%s has no key for it", (r)->row->class_name

static enum mr_status read_int(struct reading *r, const char *field,
                               const struct config_int *from, int least, int *out)
{
    const char *key = NULL;
    for (int i = 0; i < 4 && from->keys[i]; i++) {
        const json_t *value = json_object_get(r->json, from->keys[i]);
        if (!value) continue;
        int n;
        TRY(mr_json_int(value, r->path, from->keys[i], least, &n, r->err));
        if (key && n != *out)
            return mr_fail(r->err, MR_ERR_VALUE, "%s: \"%s\" is %d but \"%s\" is %d", r->path, key,
                           *out, from->keys[i], n);
        if (!key) key = from->keys[i];
        *out = n;
    }
    if (key) {
        source(r, field, key, FROM_KEY);
    } else if (from->fallback == NO_DEFAULT) {
        return mr_fail(r->err, MR_ERR_MISSING, "%s: key \"%s\" is missing, and %s documents no "
                       "default", r->path, from->keys[0], r->row->class_name);
    } else {
        *out = from->fallback;
        if (from->keys[0]) source(r, field, NULL, FROM_DEFAULT(r));
        else source(r, field, NULL, FROM_CLASS(r));
    }
    return MR_OK;
}

/* A key that some configs carry and that has one meaning here. */
static enum mr_status read_only_value(struct reading *r, const char *key, const char *only)
{
    const json_t *value = json_object_get(r->json, key);
    if (!value) return MR_OK;
    const char *text;
    TRY(mr_json_string(value, r->path, key, &text, r->err));
    if (strcmp(text, only) != 0)
        return mr_fail(r->err, MR_ERR_UNSUPPORTED, "%s: \"%s\": expected \"%s\" for model_type "
                       "\"%s\", found \"%s\"", r->path, key, only, r->row->model_type, text);
    return MR_OK;
}

static enum mr_status read_router(struct reading *r)
{
    const struct config_row *row = r->row;
    struct mr_router *router = &r->out->router;
    TRY(read_int(r, "experts", &row->experts, 1, &router->experts));
    TRY(read_int(r, "top_k", &row->top_k, 1, &router->top_k));
    if (router->top_k > router->experts)
        return mr_fail(r->err, MR_ERR_VALUE, "%s: \"%s\" is %d, more than the %d experts", r->path,
                       row->top_k.keys[0], router->top_k, router->experts);
    TRY(read_int(r, "hidden", &row->hidden, 1, &router->hidden));

    TRY(read_only_value(r, "scoring_func", row->scoring_func));
    TRY(read_only_value(r, "topk_method", row->topk_method));
    router->score = row->score;
    if (json_object_get(r->json, "scoring_func")) source(r, "score", "scoring_func", FROM_KEY);
    else source(r, "score", NULL, "%s", row->score_note);
    router->bias = row->bias;
    if (json_object_get(r->json, "topk_method")) source(r, "bias", "topk_method", FROM_KEY);
    else source(r, "bias", NULL, row->bias ? "%s: e_score_correction_bias" : "%s: none",
                row->class_name);

    TRY(read_int(r, "n_group", &row->n_group, 1, &router->n_group));
    TRY(read_int(r, "topk_group", &row->topk_group, 1, &router->topk_group));
    if (router->experts % router->n_group != 0)
        return mr_fail(r->err, MR_ERR_VALUE, "%s: \"n_group\" is %d and does not divide the %d "
                       "experts", r->path, router->n_group, router->experts);
    if (router->topk_group > router->n_group)
        return mr_fail(r->err, MR_ERR_VALUE, "%s: \"topk_group\" is %d, more than \"n_group\" = %d",
                       r->path, router->topk_group, router->n_group);

    const json_t *norm = row->norm_key ? json_object_get(r->json, row->norm_key) : NULL;
    router->norm_topk_prob = row->norm_key ? row->norm_fallback : true;
    if (norm) {
        TRY(mr_json_bool(norm, r->path, row->norm_key, &router->norm_topk_prob, r->err));
        source(r, "norm_topk_prob", row->norm_key, FROM_KEY);
    } else if (row->norm_key) {
        source(r, "norm_topk_prob", NULL, FROM_DEFAULT(r));
    } else {
        source(r, "norm_topk_prob", NULL, "%s always normalises", row->model_type);
    }
    const json_t *scaling = row->scaling_key ? json_object_get(r->json, row->scaling_key) : NULL;
    router->routed_scaling_factor = row->scaling_key ? row->scaling_fallback : 1.0;
    if (scaling) {
        TRY(mr_json_double(scaling, r->path, row->scaling_key, &router->routed_scaling_factor,
                           r->err));
        source(r, "routed_scaling_factor", row->scaling_key, FROM_KEY);
    } else if (row->scaling_key) {
        source(r, "routed_scaling_factor", NULL, FROM_DEFAULT(r));
    } else {
        source(r, "routed_scaling_factor", NULL, FROM_CLASS(r));
    }
    return mr_router_check(router, r->path, r->err);
}

/* mlp_layer_types (GlmMoeDsaConfig): "dense" or "sparse" for every layer. Where it contradicts
 * first_k_dense_replace transformers follows the list and other engines the number: refused. */
static enum mr_status layers_by_type(struct reading *r, const json_t *types, int first_dense,
                                     bool *is_moe)
{
    const char *key = "mlp_layer_types";
    char shown[MR_JSON_SHOWN];
    if (!json_is_array(types) || json_array_size(types) != (size_t)r->out->layers)
        return mr_fail(r->err, MR_ERR_FORMAT, "%s: \"%s\": expected an array of %d strings, found "
                       "%s of %zu", r->path, key, r->out->layers, mr_json_show(types, shown),
                       json_array_size(types));
    bool by_number = json_object_get(r->json, "first_k_dense_replace") != NULL;
    for (int i = 0; i < r->out->layers; i++) {
        const json_t *value = json_array_get(types, (size_t)i);
        const char *type = json_string_value(value);
        if (!type || (strcmp(type, "dense") != 0 && strcmp(type, "sparse") != 0))
            return mr_fail(r->err, MR_ERR_FORMAT, "%s: \"%s\"[%d]: expected \"dense\" or "
                           "\"sparse\", found %s", r->path, key, i, mr_json_show(value, shown));
        is_moe[i] = *type == 's';
        if (by_number && is_moe[i] != (i >= first_dense))
            return mr_fail(r->err, MR_ERR_VALUE, "%s: \"%s\"[%d] is \"%s\" but "
                           "\"first_k_dense_replace\" is %d", r->path, key, i, type, first_dense);
    }
    return MR_OK;
}

static enum mr_status layers_after_dense(struct reading *r, bool *is_moe)
{
    int first, frequency = 1;
    const json_t *value = json_object_get(r->json, "first_k_dense_replace");
    first = r->row->first_dense.fallback;
    if (value) TRY(mr_json_int(value, r->path, "first_k_dense_replace", 0, &first, r->err));
    /* DeepSeek's own code places MoE layers at multiples of it, transformers' classes ignore it:
     * they agree on 1, which all published checkpoints hold. */
    value = json_object_get(r->json, "moe_layer_freq");
    if (value) TRY(mr_json_int(value, r->path, "moe_layer_freq", 1, &frequency, r->err));
    if (frequency != 1)
        return mr_fail(r->err, MR_ERR_UNSUPPORTED, "%s: \"moe_layer_freq\": expected 1, found %d",
                       r->path, frequency);
    for (int i = 0; i < r->out->layers; i++) is_moe[i] = i >= first;
    const json_t *types = json_object_get(r->json, "mlp_layer_types");
    if (types && !json_is_null(types)) {
        TRY(layers_by_type(r, types, first, is_moe));
        source(r, "moe_layers", "mlp_layer_types", FROM_KEY);
    } else if (json_object_get(r->json, "first_k_dense_replace")) {
        source(r, "moe_layers", "first_k_dense_replace", FROM_KEY);
    } else {
        source(r, "moe_layers", NULL, "default first_k_dense_replace of %s", r->row->class_name);
    }
    return MR_OK;
}

/* Qwen3MoeDecoderLayer: sparse if the layer is not in mlp_only_layers and
 * (layer + 1) % decoder_sparse_step == 0. */
static enum mr_status layers_by_step(struct reading *r, bool *is_moe)
{
    int step = 1;
    const json_t *value = json_object_get(r->json, "decoder_sparse_step");
    if (value) {
        TRY(mr_json_int(value, r->path, "decoder_sparse_step", 1, &step, r->err));
        source(r, "moe_layers", "decoder_sparse_step", FROM_KEY);
    } else {
        source(r, "moe_layers", NULL, "default decoder_sparse_step of %s", r->row->class_name);
    }
    for (int i = 0; i < r->out->layers; i++) is_moe[i] = (i + 1) % step == 0;
    value = json_object_get(r->json, "mlp_only_layers");
    if (!value || json_is_null(value)) return MR_OK; /* null is the class's default for [] */
    char shown[MR_JSON_SHOWN];
    if (!json_is_array(value))
        return mr_fail(r->err, MR_ERR_FORMAT, "%s: \"mlp_only_layers\": expected an array of "
                       "integers, found %s", r->path, mr_json_show(value, shown));
    for (size_t i = 0; i < json_array_size(value); i++) {
        int layer;
        TRY(mr_json_int(json_array_get(value, i), r->path, "mlp_only_layers", 0, &layer, r->err));
        if (layer < r->out->layers) is_moe[layer] = false;
    }
    return MR_OK;
}

static enum mr_status read_layers(struct reading *r)
{
    struct mr_config *out = r->out;
    bool is_moe[MR_MAX_LAYERS];
    TRY(read_int(r, "layers", &r->row->layers, 1, &out->layers));
    if (out->layers > MR_MAX_LAYERS)
        return mr_fail(r->err, MR_ERR_UNSUPPORTED, "%s: \"%s\": expected at most %d, found %d",
                       r->path, r->row->layers.keys[0], MR_MAX_LAYERS, out->layers);
    switch (r->row->layer_rule) {
    case LAYERS_AFTER_DENSE: TRY(layers_after_dense(r, is_moe)); break;
    case LAYERS_SPARSE_STEP: TRY(layers_by_step(r, is_moe)); break;
    case LAYERS_ALL:
        for (int i = 0; i < out->layers; i++) is_moe[i] = true;
        source(r, "moe_layers", NULL, "%s: every layer", r->row->class_name);
        break;
    }
    for (int i = 0; i < out->layers; i++)
        if (is_moe[i]) out->moe_layers[out->moe_layer_count++] = i;
    if (out->moe_layer_count == 0)
        return mr_fail(r->err, MR_ERR_VALUE, "%s: none of the %d layers is a MoE layer (%s)",
                       r->path, out->layers, out->sources[out->source_count - 1].key);
    return MR_OK;
}

static const struct config_row *find_row(const char *model_type)
{
    for (size_t i = 0; i < mr_config_row_count; i++)
        if (strcmp(mr_config_rows[i].model_type, model_type) == 0) return &mr_config_rows[i];
    return NULL;
}

static enum mr_status read_config(struct reading *r)
{
    struct mr_config *out = r->out;
    const char *model_type;
    memset(out, 0, sizeof *out);
    TRY(mr_json_string(json_object_get(r->json, "model_type"), r->path, "model_type", &model_type,
                       r->err));
    r->row = find_row(model_type);
    if (!r->row) {
        char known[256] = "";
        for (size_t i = 0; i < mr_config_row_count; i++) {
            size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                     mr_config_rows[i].model_type);
        }
        return mr_fail(r->err, MR_ERR_UNSUPPORTED, "%s: \"model_type\": \"%.63s\" is not among "
                       "those known: %s", r->path, model_type, known);
    }
    snprintf(out->model_type, sizeof out->model_type, "%s", model_type);
    TRY(read_router(r));
    TRY(read_int(r, "shared_experts", &r->row->shared, 0, &out->shared_experts));
    TRY(read_int(r, "moe_intermediate", &r->row->moe_intermediate, 1, &out->moe_intermediate));
    return read_layers(r);
}

enum mr_status mr_config_parse(const char *text, size_t bytes, const char *path,
                               struct mr_config *out, struct mr_error *err)
{
    json_t *json;
    TRY(mr_json_document(text, bytes, path, MR_JSON_PYTHON, &json, err));
    struct reading r = {.json = json, .path = path, .out = out, .err = err};
    enum mr_status status = read_config(&r);
    json_decref(json);
    return status;
}

enum mr_status mr_config_load(const char *path, struct mr_config *out, struct mr_error *err)
{
    char *text;
    size_t bytes;
    TRY(mr_json_read(path, &text, &bytes, err));
    enum mr_status status = mr_config_parse(text, bytes, path, out, err);
    free(text);
    return status;
}

const char *mr_config_gate_name(const struct mr_config *config)
{
    const struct config_row *row = find_row(config->model_type);
    return row ? row->gate_name : NULL;
}

const char *mr_config_gate_alias(const struct mr_config *config)
{
    const struct config_row *row = find_row(config->model_type);
    return row ? row->gate_alias : NULL;
}

const char *mr_config_bias_name(const struct mr_config *config)
{
    const struct config_row *row = find_row(config->model_type);
    return row ? row->bias_name : NULL;
}
