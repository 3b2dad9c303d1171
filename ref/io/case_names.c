/* From tensor names with {phase} and {layer} to tensors, and to the layers that are there. */
#include "case_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_value.h"

const char *const mr_case_tensor_keys[TENSOR_COUNT + 1] = {
    [TENSOR_HIDDEN] = "hidden", [TENSOR_GATE] = "gate", [TENSOR_BIAS] = "bias",
    [TENSOR_LOGITS] = "logits", [TENSOR_IDS] = "topk_ids", [TENSOR_WEIGHTS] = "topk_weights",
    [TENSOR_GATE_BIAS] = "gate_bias", [TENSOR_HASH] = "hash", [TENSOR_TOKEN_IDS] = "token_ids",
};

bool mr_case_in_checkpoint(enum case_tensor which)
{
    return which == TENSOR_GATE || which == TENSOR_BIAS || which == TENSOR_GATE_BIAS ||
           which == TENSOR_HASH;
}

void mr_case_default_names(struct mr_case *c)
{
    c->names[TENSOR_HIDDEN] = "{phase}.model.layers.{layer}.mlp.gate.input";
    c->names[TENSOR_LOGITS] = "{phase}.model.layers.{layer}.mlp.gate.logits";
    c->names[TENSOR_IDS] = "{phase}.model.layers.{layer}.mlp.topk_ids";
    c->names[TENSOR_WEIGHTS] = "{phase}.model.layers.{layer}.mlp.topk_weights";
    c->names[TENSOR_TOKEN_IDS] = "{phase}.input_ids";
    c->names[TENSOR_GATE] = "model.layers.{layer}.mlp.gate.weight";
    c->names[TENSOR_BIAS] = "model.layers.{layer}.mlp.gate.e_score_correction_bias";
    c->names[TENSOR_GATE_BIAS] = "model.layers.{layer}.mlp.gate.bias";
    if (!c->has_config) return;
    c->names[TENSOR_GATE] = mr_config_gate_name(&c->config);
    c->names[TENSOR_BIAS] = mr_config_bias_name(&c->config);
    c->names[TENSOR_GATE_BIAS] = mr_config_gate_bias_name(&c->config);
    c->names[TENSOR_HASH] = mr_config_hash_name(&c->config);
    c->gate_alias = mr_config_gate_alias(&c->config);
}

enum mr_status mr_case_expand(const struct mr_case *c, const char *pattern, int layer,
                              const char *phase, char name[512], struct mr_error *err)
{
    char number[16];
    snprintf(number, sizeof number, "%d", layer);
    size_t used = 0;
    for (const char *p = pattern; *p;) {
        const char *piece = p;
        size_t n = 1, skip = 1;
        if (strncmp(p, "{layer}", 7) == 0) piece = number, n = strlen(number), skip = 7;
        else if (strncmp(p, "{phase}", 7) == 0) piece = phase, n = strlen(phase), skip = 7;
        if (n > 511 - used)
            return mr_fail(err, MR_ERR_VALUE, "%s: a tensor name from \"%.64s...\" has more than "
                           "511 bytes", c->path, pattern);
        memcpy(name + used, piece, n);
        used += n;
        p += skip;
    }
    name[used] = '\0';
    return MR_OK;
}

enum mr_status mr_case_find(struct mr_case *c, enum case_tensor which, int layer, const char *phase,
                            bool required, struct case_found *found, struct mr_error *err)
{
    if (c->plain) {
        *found = c->plain_tensors[which];
        if (required && !found->tensor.data)
            return mr_fail(err, MR_ERR_MISSING, "%s: no %s given", c->path,
                           mr_case_tensor_keys[which]);
        return MR_OK;
    }
    bool weight = mr_case_in_checkpoint(which);
    struct mr_checkpoint *set = weight ? c->weights : c->captures;
    if (!required && (!c->names[which] || !set)) return MR_OK;
    if (!c->names[which])
        return mr_fail(err, MR_ERR_MISSING, "%s: %s is needed, and %s has no name for it: "
                       "\"names\" must give one", c->path, mr_case_tensor_keys[which],
                       c->has_config ? c->config.model_type : "a case without config");
    TRY(mr_case_expand(c, c->names[which], layer, phase, found->name, err));
    if (!set)
        return mr_fail(err, MR_ERR_MISSING, "%s: tensor %s is needed, and the case has no \"%s\"",
                       c->path, found->name, weight ? "checkpoint" : "capture");
    if (!mr_checkpoint_has(set, found->name)) {
        if (!required) return MR_OK;
        if (which == TENSOR_GATE && c->gate_alias) {
            char alias[512];
            TRY(mr_case_expand(c, c->gate_alias, layer, phase, alias, err));
            if (mr_checkpoint_has(set, alias)) memcpy(found->name, alias, sizeof alias);
        }
    }
    return mr_checkpoint_find(set, found->name, &found->tensor, &found->file, err);
}

bool mr_case_has_input(const struct mr_case *c, int layer, const char *phase)
{
    char name[512];
    const char *pattern = c->names[c->from_logits ? TENSOR_LOGITS : TENSOR_HIDDEN];
    return c->captures && mr_case_expand(c, pattern, layer, phase, name, NULL) == MR_OK &&
           mr_checkpoint_has(c->captures, name);
}

static int ascending(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static enum mr_status add_layer(struct mr_case *c, int layer, struct mr_error *err)
{
    /* Doubling at powers of two: the count is small, its room needs no field. */
    if ((c->layer_count & (c->layer_count - 1)) == 0) {
        size_t room = c->layer_count ? c->layer_count * 2 : 1;
        int *larger = realloc(c->layers, room * sizeof *larger);
        if (!larger) return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", c->path);
        c->layers = larger;
    }
    c->layers[c->layer_count++] = layer;
    return MR_OK;
}

static enum mr_status list_layers(struct mr_case *c, const json_t *list, const char *key,
                                  struct mr_error *err)
{
    if (!json_is_array(list) || json_array_size(list) == 0) {
        char shown[MR_JSON_SHOWN];
        return mr_fail(err, MR_ERR_FORMAT, "%s: \"%s\": expected an array of layer numbers, found "
                       "%s", c->path, key,
                       json_is_array(list) ? "an empty one" : mr_json_show(list, shown));
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        int layer;
        TRY(mr_json_int(json_array_get(list, i), c->path, key, 0, &layer, err));
        TRY(add_layer(c, layer, err));
    }
    qsort(c->layers, c->layer_count, sizeof *c->layers, ascending);
    for (size_t i = 1; i < c->layer_count; i++)
        if (c->layers[i] == c->layers[i - 1])
            return mr_fail(err, MR_ERR_VALUE, "%s: \"%s\" lists layer %d twice", c->path, key,
                           c->layers[i]);
    return MR_OK;
}

static bool in_any_phase(const struct mr_case *c, int layer)
{
    for (size_t p = 0; p < c->phase_count; p++) {
        if (c->inlined ? mr_case_find_made(c, layer, p) != NULL
                       : mr_case_has_input(c, layer, c->phases[p]))
            return true;
    }
    return false;
}

enum mr_status mr_case_read_layers(struct mr_case *c, struct mr_error *err)
{
    const json_t *list = json_object_get(c->json, "layers");
    if (c->generate) {
        if (list)
            return mr_fail(err, MR_ERR_FORMAT, "%s: \"layers\" belongs inside \"generate\"",
                           c->path);
        list = json_object_get(c->generate, "layers");
        return list ? list_layers(c, list, "generate.layers", err) : add_layer(c, 0, err);
    }
    const char *pattern = c->names[c->from_logits ? TENSOR_LOGITS : TENSOR_HIDDEN];
    char name[512];
    if (list) {
        TRY(list_layers(c, list, "layers", err));
        for (size_t i = 0; i < c->layer_count; i++) {
            if (in_any_phase(c, c->layers[i])) continue;
            TRY(mr_case_expand(c, pattern, c->layers[i], c->phases[0], name, err));
            return mr_fail(err, MR_ERR_MISSING, "%s: layer %d is asked for, but %s is in no %s",
                           c->path, c->layers[i], c->inlined ? "it" : name,
                           c->inlined ? "\"inline\"" : "capture");
        }
        return MR_OK;
    }
    if (c->inlined) {
        for (const struct case_made *made = c->made; made; made = made->next)
            TRY(add_layer(c, made->layer, err));
        qsort(c->layers, c->layer_count, sizeof *c->layers, ascending);
        return MR_OK;
    }
    int count = c->has_config ? c->config.moe_layer_count : MR_MAX_LAYERS;
    if (!strstr(pattern, "{layer}")) count = 1; /* one tensor is one layer */
    for (int i = 0; i < count; i++) {
        int layer = c->has_config ? c->config.moe_layers[i] : i;
        if (in_any_phase(c, layer)) TRY(add_layer(c, layer, err));
    }
    if (c->layer_count) return MR_OK;
    TRY(mr_case_expand(c, pattern, c->has_config ? c->config.moe_layers[0] : 0, c->phases[0], name,
                       err));
    return mr_fail(err, MR_ERR_MISSING, "%s: no capture has the input of any layer: looked for %s "
                   "and its like", c->path, name);
}
