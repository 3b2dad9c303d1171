/* Which layers are MoE layers, and which of them route by token id. Every key that says so is read,
 * and all must agree: where they do not, engines that read different keys build different models.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_read.h"

struct layers {
    const char *key; /* the first key that said it, NULL: none yet */
    bool moe[MR_MAX_LAYERS];
};

static enum mr_status agree(struct config_reading *r, struct layers *l, const char *key,
                            const bool *moe)
{
    int n = r->out->layers;
    if (!l->key) {
        memcpy(l->moe, moe, (size_t)n * sizeof *moe);
        l->key = key;
        return MR_OK;
    }
    for (int i = 0; i < n; i++)
        if (moe[i] != l->moe[i])
            return mr_fail(r->err, MR_ERR_VALUE, "%s: layer %d is %s by \"%s\" but %s by \"%s\"",
                           r->path, i, l->moe[i] ? "MoE" : "dense", mr_config_named(r, l->key),
                           moe[i] ? "MoE" : "dense", mr_config_named(r, key));
    return MR_OK;
}

/* An array with one entry a layer; NULL where it is absent or null. */
static enum mr_status list_of(struct config_reading *r, const char *key, const json_t **out)
{
    char shown[MR_JSON_SHOWN];
    const json_t *value = mr_config_get(r, key);
    *out = NULL;
    if (!value || json_is_null(value)) return MR_OK;
    if (!json_is_array(value) || json_array_size(value) != (size_t)r->out->layers)
        return mr_fail(r->err, MR_ERR_FORMAT, "%s: \"%s\": expected an array of %d, found %s of "
                       "%zu", r->path, mr_config_named(r, key), r->out->layers,
                       mr_json_show(value, shown), json_array_size(value));
    *out = value;
    return MR_OK;
}

/* mlp_layer_types: names[0] is what makes MoE[i] false, the others make it true. *second counts the
 * entries names[1], which must all come first. */
static enum mr_status by_type(struct config_reading *r, struct layers *l,
                              const char *const names[3], int *second)
{
    static const char key[] = "mlp_layer_types";
    const json_t *types;
    bool moe[MR_MAX_LAYERS];
    char shown[MR_JSON_SHOWN];
    TRY(list_of(r, key, &types));
    if (!types) return MR_OK;
    *second = 0;
    for (int i = 0; i < r->out->layers; i++) {
        const json_t *value = json_array_get(types, (size_t)i);
        const char *type = json_string_value(value);
        int which = 0;
        while (which < 3 && !(type && names[which] && strcmp(type, names[which]) == 0)) which++;
        if (which == 3)
            return mr_fail(r->err, MR_ERR_FORMAT, "%s: \"%s\"[%d]: expected \"%s\" or \"%s\", "
                           "found %s", r->path, mr_config_named(r, key), i,
                           names[0] ? names[0] : names[2], names[1], mr_json_show(value, shown));
        moe[i] = which != 0;
        if (which != 1) continue;
        if (names[2] && *second != i)
            return mr_fail(r->err, MR_ERR_UNSUPPORTED, "%s: \"%s\"[%d] is \"%s\" behind \"%s\": "
                           "only the first layers are understood to route by token id", r->path,
                           mr_config_named(r, key), i, names[1], names[2]);
        ++*second;
    }
    return agree(r, l, key, moe);
}

/* moe_layer_freq: 0 or 1 for every layer (MiMo, MiniMax-M3), or a number. DeepSeek's own code
 * places MoE layers at multiples of that number, transformers' classes ignore it: they agree on 1,
 * which all published checkpoints hold. */
static enum mr_status by_frequency(struct config_reading *r, struct layers *l)
{
    static const char key[] = "moe_layer_freq";
    const json_t *value = mr_config_get(r, key);
    bool moe[MR_MAX_LAYERS];
    if (value && !json_is_array(value) && !json_is_null(value)) {
        int frequency;
        const char *name = mr_config_named(r, key);
        TRY(mr_json_int(value, r->path, name, 1, &frequency, r->err));
        if (frequency != 1)
            return mr_fail(r->err, MR_ERR_UNSUPPORTED, "%s: \"%s\": expected 1, found %d", r->path,
                           name, frequency);
        return MR_OK;
    }
    TRY(list_of(r, key, &value));
    if (!value) return MR_OK;
    for (int i = 0; i < r->out->layers; i++) {
        int flag;
        const char *name = mr_config_named(r, key);
        TRY(mr_json_int(json_array_get(value, (size_t)i), r->path, name, 0, &flag, r->err));
        if (flag > 1)
            return mr_fail(r->err, MR_ERR_VALUE, "%s: \"%s\"[%d]: expected 0 or 1, found %d",
                           r->path, name, i, flag);
        moe[i] = flag;
    }
    return agree(r, l, key, moe);
}

/* Beyond the last layer lie those of multi-token prediction. */
static void mark(const struct config_reading *r, bool *moe, long layer)
{
    if (layer >= 0 && layer < r->out->layers) moe[layer] = true;
}

/* A list of the MoE layers: an array, or "3,4,5" (Step's moe_layers_enum). */
static enum mr_status by_list(struct config_reading *r, struct layers *l, const char *key)
{
    const json_t *value = mr_config_get(r, key);
    const char *name = mr_config_named(r, key);
    bool moe[MR_MAX_LAYERS] = {false};
    char shown[MR_JSON_SHOWN];
    if (!value || json_is_null(value)) return MR_OK;
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            int layer;
            TRY(mr_json_int(json_array_get(value, i), r->path, name, 0, &layer, r->err));
            mark(r, moe, layer);
        }
        return agree(r, l, key, moe);
    }
    const char *text = json_string_value(value);
    for (bool more = text != NULL; more;) {
        char *end;
        long layer = strtol(text, &end, 10);
        if (end == text || layer < 0 || (*end && *end != ',')) {
            text = NULL;
            break;
        }
        mark(r, moe, layer);
        more = *end == ',';
        text = end + 1;
    }
    if (!text)
        return mr_fail(r->err, MR_ERR_FORMAT, "%s: \"%s\": expected layers as an array or as "
                       "\"3,4,5\", found %s", r->path, name, mr_json_show(value, shown));
    return agree(r, l, key, moe);
}

static enum mr_status by_first(struct config_reading *r, struct layers *l, int first,
                               const char *key)
{
    bool moe[MR_MAX_LAYERS];
    for (int i = 0; i < r->out->layers; i++) moe[i] = i >= first;
    return agree(r, l, key, moe);
}

static enum mr_status after_dense(struct config_reading *r, struct layers *l)
{
    static const char key[] = "first_k_dense_replace";
    static const char *const types[3] = {"dense", "sparse", NULL};
    int unused, first = r->row->first_dense.fallback;
    TRY(by_type(r, l, types, &unused));
    TRY(by_frequency(r, l));
    TRY(by_list(r, l, "moe_layers_enum"));
    const json_t *value = mr_config_get(r, key);
    if (value) {
        TRY(mr_json_int(value, r->path, mr_config_named(r, key), 0, &first, r->err));
        TRY(by_first(r, l, first, key));
    }
    if (l->key) {
        mr_config_from(r, "moe_layers", l->key, FROM_KEY);
        return MR_OK;
    }
    if (first == NO_DEFAULT)
        return mr_fail(r->err, MR_ERR_MISSING, "%s: key \"%s\" is missing, and no default of %s "
                       "is known", r->path, mr_config_named(r, r->row->first_dense.keys[0]),
                       r->row->class_name);
    mr_config_from(r, "moe_layers", NULL, "default first_k_dense_replace of %s",
                   r->row->class_name);
    TRY(by_first(r, l, first, key));
    return MR_OK;
}

/* (layer + 1) % the key's value == 0; 1 is the default of every class that has it. */
static enum mr_status by_step(struct config_reading *r, bool *moe, const char *key)
{
    int step = 1;
    const json_t *value = mr_config_get(r, key);
    if (value) {
        TRY(mr_json_int(value, r->path, mr_config_named(r, key), 1, &step, r->err));
        mr_config_from(r, "moe_layers", key, FROM_KEY);
    } else {
        char note[64];
        snprintf(note, sizeof note, "default %s of %s", key, r->row->class_name);
        mr_config_from(r, "moe_layers", NULL, "%s", note);
    }
    for (int i = 0; i < r->out->layers; i++) moe[i] = (i + 1) % step == 0;
    return MR_OK;
}

/* Qwen3MoeDecoderLayer: sparse if the layer is not in mlp_only_layers and
 * (layer + 1) % decoder_sparse_step == 0. */
static enum mr_status sparse_step(struct config_reading *r, bool *moe)
{
    static const char key[] = "mlp_only_layers";
    TRY(by_step(r, moe, "decoder_sparse_step"));
    const json_t *value = mr_config_get(r, key);
    if (!value || json_is_null(value)) return MR_OK; /* null is the class's default for [] */
    char shown[MR_JSON_SHOWN];
    const char *name = mr_config_named(r, key);
    if (!json_is_array(value))
        return mr_fail(r->err, MR_ERR_FORMAT, "%s: \"%s\": expected an array of integers, found %s",
                       r->path, name, mr_json_show(value, shown));
    for (size_t i = 0; i < json_array_size(value); i++) {
        int layer;
        TRY(mr_json_int(json_array_get(value, i), r->path, name, 0, &layer, r->err));
        if (layer < r->out->layers) moe[layer] = false;
    }
    return MR_OK;
}

/* Llama4TextConfig: moe_layers, or every interleave_moe_layer_step-th layer. A list overrides a
 * step that contradicts it: so the class documents it. */
static enum mr_status interleaved(struct config_reading *r, struct layers *l)
{
    TRY(by_list(r, l, "moe_layers"));
    if (!l->key) return by_step(r, l->moe, "interleave_moe_layer_step");
    mr_config_from(r, "moe_layers", l->key, FROM_KEY);
    return MR_OK;
}

/* NemotronHConfig counts every mixer, attention, MLP and MoE block as a layer. */
static enum mr_status hybrid(struct config_reading *r, struct layers *l)
{
    static const char listed[] = "layers_block_type", pattern[] = "hybrid_override_pattern";
    static const struct {
        char letter;
        const char *names[3];
    } blocks[] = {{'M', {"mamba", "linear_attention"}}, {'*', {"attention", "full_attention"}},
                  {'-', {"mlp"}}, {'E', {"moe"}}};
    const size_t kinds = sizeof blocks / sizeof *blocks;
    const json_t *list = mr_config_get(r, listed);
    const char *text = NULL;
    bool moe[MR_MAX_LAYERS] = {false};
    char shown[MR_JSON_SHOWN];
    if (json_is_null(list)) list = NULL;
    if (list) {
        for (int i = 0; i < r->out->layers; i++) {
            const json_t *value = json_array_get(list, (size_t)i);
            const char *type = json_string_value(value);
            size_t k = 0;
            while (k < kinds && !(type && (strcmp(type, blocks[k].names[0]) == 0 ||
                                           (blocks[k].names[1] &&
                                            strcmp(type, blocks[k].names[1]) == 0))))
                k++;
            if (k == kinds)
                return mr_fail(r->err, MR_ERR_FORMAT, "%s: \"%s\"[%d]: expected mamba, attention, "
                               "mlp or moe, found %s", r->path, mr_config_named(r, listed), i,
                               mr_json_show(value, shown));
            moe[i] = blocks[k].letter == 'E';
        }
        TRY(agree(r, l, listed, moe));
    }
    const json_t *value = mr_config_get(r, pattern);
    if (value) TRY(mr_json_string(value, r->path, mr_config_named(r, pattern), &text, r->err));
    if (text) {
        if (strlen(text) != (size_t)r->out->layers)
            return mr_fail(r->err, MR_ERR_VALUE, "%s: \"%s\" has %zu letters, expected %d layers",
                           r->path, mr_config_named(r, pattern), strlen(text), r->out->layers);
        for (int i = 0; text[i]; i++) {
            size_t k = 0;
            while (k < kinds && blocks[k].letter != text[i]) k++;
            if (k == kinds)
                return mr_fail(r->err, MR_ERR_FORMAT, "%s: \"%s\"[%d]: expected M, *, - or E, "
                               "found '%c'", r->path, mr_config_named(r, pattern), i, text[i]);
            moe[i] = text[i] == 'E';
        }
        TRY(agree(r, l, pattern, moe));
    }
    mr_config_from(r, "moe_layers", l->key, FROM_KEY);
    return MR_OK;
}

/* The number of blocks is the length of their list; num_hidden_layers, where it stays, must say the
 * same (NemotronHConfig only warns, other engines believe it). */
static enum mr_status count_hybrid(struct config_reading *r)
{
    const char *key = "layers_block_type";
    const json_t *value = mr_config_get(r, key);
    char shown[MR_JSON_SHOWN];
    size_t n = json_array_size(value);
    if (!value || json_is_null(value)) {
        key = "hybrid_override_pattern";
        value = mr_config_get(r, key);
        if (!value)
            return mr_fail(r->err, MR_ERR_MISSING, "%s: key \"%s\" is missing, and so is \"%s\": "
                           "the default of %s is that of no model", r->path,
                           mr_config_named(r, "layers_block_type"), mr_config_named(r, key),
                           r->row->class_name);
        n = json_is_string(value) ? strlen(json_string_value(value)) : 0;
    }
    if (n == 0)
        return mr_fail(r->err, MR_ERR_FORMAT, "%s: \"%s\": expected the blocks of the model, found "
                       "%s", r->path, mr_config_named(r, key), mr_json_show(value, shown));
    r->out->layers = n > MR_MAX_LAYERS ? MR_MAX_LAYERS + 1 : (int)n;
    const json_t *count = mr_config_get(r, "num_hidden_layers");
    if (count) {
        int said;
        const char *name = mr_config_named(r, "num_hidden_layers");
        TRY(mr_json_int(count, r->path, name, 1, &said, r->err));
        if ((size_t)said != n)
            return mr_fail(r->err, MR_ERR_VALUE, "%s: \"%s\" is %d but \"%s\" has %zu blocks",
                           r->path, name, said, mr_config_named(r, key), n);
    }
    mr_config_from(r, "layers", key, FROM_KEY);
    return MR_OK;
}

/* DeepseekV4Config (015c078): the first num_hash_layers blocks are "hash_moe", the others "moe";
 * mlp_layer_types lists them instead. */
static enum mr_status read_hash(struct config_reading *r, struct layers *l)
{
    static const char field[] = "hash_layers", key[] = "num_hash_layers";
    static const char *const types[3] = {NULL, "hash_moe", "moe"};
    int *hash = &r->out->router.hash_layers, listed = -1;
    if (!r->row->hashes) {
        mr_config_from(r, field, NULL, "%s: none", r->row->class_name);
        return MR_OK;
    }
    l->key = NULL;
    TRY(by_type(r, l, types, &listed));
    const json_t *value = mr_config_get(r, key);
    *hash = listed >= 0 ? listed : r->row->hash_fallback;
    if (value) TRY(mr_json_int(value, r->path, mr_config_named(r, key), 0, hash, r->err));
    if (listed >= 0 && *hash != listed)
        return mr_fail(r->err, MR_ERR_VALUE, "%s: \"%s\" is %d but \"mlp_layer_types\" holds %d "
                       "\"hash_moe\"", r->path, mr_config_named(r, key), *hash, listed);
    if (*hash > r->out->moe_layer_count)
        return mr_fail(r->err, MR_ERR_VALUE, "%s: \"%s\" is %d, more than the %d MoE layers",
                       r->path, mr_config_named(r, key), *hash, r->out->moe_layer_count);
    if (value) mr_config_from(r, field, key, FROM_KEY);
    else if (listed >= 0) mr_config_from(r, field, "mlp_layer_types", FROM_KEY);
    else mr_config_from(r, field, NULL, FROM_DEFAULT(r));
    return MR_OK;
}

/* Every layer, unless a key that the class does not have says otherwise. */
static enum mr_status all_layers(struct config_reading *r, struct layers *l)
{
    if (json_array_size(mr_config_get(r, "mlp_only_layers")) > 0)
        return mr_fail(r->err, MR_ERR_UNSUPPORTED, "%s: \"%s\": %s has MoE in every layer, "
                       "expected no dense ones", r->path, mr_config_named(r, "mlp_only_layers"),
                       r->row->class_name);
    for (int i = 0; i < r->out->layers; i++) l->moe[i] = true;
    mr_config_from(r, "moe_layers", NULL, "%s: every layer", r->row->class_name);
    return MR_OK;
}

enum mr_status mr_config_read_layers(struct config_reading *r)
{
    struct mr_config *out = r->out;
    struct layers l = {0};
    if (r->row->layer_rule == LAYERS_HYBRID) TRY(count_hybrid(r));
    else TRY(mr_config_int(r, "layers", &r->row->layers, 1, &out->layers));
    if (out->layers > MR_MAX_LAYERS)
        return mr_fail(r->err, MR_ERR_UNSUPPORTED, "%s: \"%s\": expected at most %d layers, found "
                       "%d", r->path, out->sources[out->source_count - 1].key, MR_MAX_LAYERS,
                       out->layers);
    switch (r->row->layer_rule) {
    case LAYERS_AFTER_DENSE: TRY(after_dense(r, &l)); break;
    case LAYERS_SPARSE_STEP: TRY(sparse_step(r, l.moe)); break;
    case LAYERS_INTERLEAVED: TRY(interleaved(r, &l)); break;
    case LAYERS_HYBRID: TRY(hybrid(r, &l)); break;
    case LAYERS_ALL: TRY(all_layers(r, &l)); break;
    }
    for (int i = 0; i < out->layers; i++)
        if (l.moe[i]) out->moe_layers[out->moe_layer_count++] = i;
    if (out->moe_layer_count == 0)
        return mr_fail(r->err, MR_ERR_VALUE, "%s: none of the %d layers is a MoE layer (%s)",
                       r->path, out->layers, out->sources[out->source_count - 1].key);
    return read_hash(r, &l);
}
