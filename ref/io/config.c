#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_read.h"
#include "json_python.h"

const char *mr_config_named(struct config_reading *r, const char *key)
{
    char *name = r->named[r->next_named++ % 4];
    snprintf(name, sizeof r->named[0], "%s%s", r->prefix, key);
    return name;
}

const json_t *mr_config_get(const struct config_reading *r, const char *key)
{
    return json_object_get(r->json, key);
}

void mr_config_from(struct config_reading *r, const char *field, const char *key,
                    const char *format, const char *text)
{
    struct mr_config_source *s = &r->out->sources[r->out->source_count++];
    s->field = field;
    snprintf(s->key, sizeof s->key, "%s%s", key ? r->prefix : "", key ? key : "");
    snprintf(s->note, sizeof s->note, format, text);
}

enum mr_status mr_config_int(struct config_reading *r, const char *field,
                             const struct config_int *from, int least, int *out)
{
    const char *key = NULL;
    bool null = false;
    for (int i = 0; i < 5 && from->keys[i]; i++) {
        const json_t *value = mr_config_get(r, from->keys[i]);
        if (!value) continue;
        int n = from->if_null;
        null = json_is_null(value) && from->null_ok;
        if (!null)
            TRY(mr_json_int(value, r->path, mr_config_named(r, from->keys[i]), least, &n, r->err));
        if (key && n != *out)
            return mr_fail(r->err, MR_ERR_VALUE, "%s: \"%s\" is %d but \"%s\" is %d", r->path,
                           mr_config_named(r, key), *out, mr_config_named(r, from->keys[i]), n);
        if (!key) key = from->keys[i];
        *out = n;
    }
    if (key) {
        mr_config_from(r, field, key, "%s", null ? "null" : "");
    } else if (from->fallback == NO_DEFAULT) {
        return mr_fail(r->err, MR_ERR_MISSING, "%s: key \"%s\" is missing, and no default of %s "
                       "is known", r->path, mr_config_named(r, from->keys[0]), r->row->class_name);
    } else {
        *out = from->fallback;
        if (from->keys[0]) mr_config_from(r, field, NULL, FROM_DEFAULT(r));
        else mr_config_from(r, field, NULL, FROM_CLASS(r));
    }
    return MR_OK;
}

static const struct config_row *find_row(const char *model_type)
{
    const struct config_row *row;
    for (size_t i = 0; (row = mr_config_row(i)); i++)
        if (strcmp(row->model_type, model_type) == 0) break;
    return row;
}

/* hf_quant_config.json (NVIDIA ModelOpt) lies beside many a config.json: it has a "quantization"
 * object, and neither model_type nor architectures. */
static enum mr_status not_a_model(struct config_reading *r)
{
    if (json_is_object(mr_config_get(r, "quantization")) && !mr_config_get(r, "architectures"))
        return mr_fail(r->err, MR_ERR_UNSUPPORTED, "%s: not a model config: no \"model_type\", and "
                       "\"quantization\" says how weights are stored (a hf_quant_config.json): "
                       "give the config.json beside it", r->path);
    return mr_fail(r->err, MR_ERR_MISSING, "%s: key \"model_type\" is missing", r->path);
}

/* Descends to the text model of a composite config. *named is the nested model_type, if any. */
static enum mr_status descend(struct config_reading *r, const char **named)
{
    static const struct {
        const char *prefix, *outer, *inner;
    } nests[] = {
        {"text_config.", "text_config", NULL},
        {"llm_config.", "llm_config", NULL},
        {"language_config.", "language_config", NULL},
        {"thinker_config.text_config.", "thinker_config", "text_config"},
    };
    for (size_t i = 0; i < sizeof nests / sizeof *nests; i++) {
        const json_t *nested = mr_config_get(r, nests[i].outer);
        if (nests[i].inner) nested = json_object_get(nested, nests[i].inner);
        if (!nested) continue;
        char shown[MR_JSON_SHOWN];
        if (!json_is_object(nested))
            return mr_fail(r->err, MR_ERR_FORMAT, "%s: \"%.*s\": expected an object, found %s",
                           r->path, (int)strlen(nests[i].prefix) - 1, nests[i].prefix,
                           mr_json_show(nested, shown));
        r->json = nested;
        r->prefix = nests[i].prefix;
        break;
    }
    const json_t *value = mr_config_get(r, "model_type");
    if (value)
        TRY(mr_json_string(value, r->path, mr_config_named(r, "model_type"), named, r->err));
    return MR_OK;
}

static enum mr_status unknown_type(struct config_reading *r, const char *model_type)
{
    static const char *const counts[] = {"num_experts", "n_routed_experts", "num_local_experts",
                                         "moe_num_experts", "num_routed_experts", "moe_layers",
                                         "moe_config", "ffn_config", "enable_moe_block",
                                         "first_k_dense_replace", "num_moe_experts"};
    bool experts = false;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        experts |= mr_config_get(r, counts[i]) && !json_is_null(mr_config_get(r, counts[i]));
    char known[512] = "";
    const struct config_row *row;
    for (size_t i = 0; (row = mr_config_row(i)); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", row->model_type);
    }
    return mr_fail(r->err, MR_ERR_UNSUPPORTED, "%s: \"%s\": \"%.63s\" is not among those known%s: "
                   "%s", r->path, mr_config_named(r, "model_type"), model_type,
                   experts ? "" : " (no key here counts experts: a dense model, or one nested "
                                  "elsewhere)", known);
}

static enum mr_status find_class(struct config_reading *r, const char **layers_prefix)
{
    struct mr_config *out = r->out;
    const char *model_type, *text_type = NULL;
    const json_t *value = mr_config_get(r, "model_type");
    if (!value) return not_a_model(r);
    TRY(mr_json_string(value, r->path, "model_type", &model_type, r->err));
    TRY(descend(r, &text_type));
    const struct config_wrapper *wrapper = *r->prefix ? mr_config_wrapper(model_type) : NULL;
    /* transformers' composite classes make their own text class whatever the nested model_type is
     * (MiniMax M3's checkpoints leave it out). */
    if (wrapper && wrapper->text_type) text_type = wrapper->text_type;
    if (!text_type) text_type = model_type;
    r->row = find_row(text_type);
    if (!r->row) return unknown_type(r, text_type);
    *layers_prefix = wrapper ? wrapper->prefix : r->row->prefix;
    snprintf(out->model_type, sizeof out->model_type, "%s", model_type);
    snprintf(out->text_type, sizeof out->text_type, "%s", text_type);
    return MR_OK;
}

/* The class may have MoE layers or none. */
static enum mr_status check_switch(struct config_reading *r)
{
    const char *key = r->row->moe_switch;
    bool moe = false;
    if (!key) return MR_OK;
    const json_t *value = mr_config_get(r, key);
    if (value) TRY(mr_json_bool(value, r->path, mr_config_named(r, key), &moe, r->err));
    if (!moe)
        return mr_fail(r->err, MR_ERR_UNSUPPORTED, "%s: the model is dense: \"%s\" is %s", r->path,
                       mr_config_named(r, key), value ? "false" : "missing, and false by default");
    return MR_OK;
}

static void name_tensor(char name[96], const char *prefix, const char *rest)
{
    snprintf(name, 96, "%s%s", rest ? prefix : "", rest ? rest : "");
}

static enum mr_status read_config(struct config_reading *r)
{
    struct mr_config *out = r->out;
    const char *prefix = NULL;
    memset(out, 0, sizeof *out);
    TRY(find_class(r, &prefix));
    TRY(check_switch(r));
    TRY(mr_config_read_router(r));
    TRY(mr_config_read_layers(r));
    const struct config_row *row = r->row;
    name_tensor(out->gate_name, prefix, row->gate);
    name_tensor(out->gate_alias, "", row->gate_alias);
    name_tensor(out->bias_name, prefix, out->router.bias ? row->bias_name : NULL);
    name_tensor(out->gate_bias_name, prefix, row->gate_bias_name);
    name_tensor(out->hash_name, prefix, row->hash_name);
    return MR_OK;
}

enum mr_status mr_config_parse(const char *text, size_t bytes, const char *path,
                               struct mr_config *out, struct mr_error *err)
{
    json_t *json;
    TRY(mr_json_document(text, bytes, path, MR_JSON_PYTHON, &json, err));
    struct config_reading r = {.json = json, .path = path, .prefix = "", .out = out, .err = err};
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

static const char *or_null(const char *name)
{
    return *name ? name : NULL;
}

const char *mr_config_gate_name(const struct mr_config *config)
{
    return or_null(config->gate_name);
}

const char *mr_config_gate_alias(const struct mr_config *config)
{
    return or_null(config->gate_alias);
}

const char *mr_config_bias_name(const struct mr_config *config)
{
    return or_null(config->bias_name);
}

const char *mr_config_gate_bias_name(const struct mr_config *config)
{
    return or_null(config->gate_bias_name);
}

const char *mr_config_hash_name(const struct mr_config *config)
{
    return or_null(config->hash_name);
}
