/* "router" and "inline": what a case says in its own text. */
#include "case_private.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_value.h"

static enum mr_status read_score(const struct mr_case *c, const json_t *value,
                                 enum mr_score *out, struct mr_error *err)
{
    const char *name;
    TRY(mr_json_string(value, c->path, "router.score", &name, err));
    for (int s = MR_SCORE_SIGMOID; s <= MR_SCORE_SQRT_SOFTPLUS; s++) {
        if (strcmp(name, mr_score_name((enum mr_score)s)) != 0) continue;
        *out = (enum mr_score)s;
        return MR_OK;
    }
    return mr_fail(err, MR_ERR_UNSUPPORTED, "%s: \"router.score\": expected \"sigmoid\", "
                   "\"softmax\" or \"sqrtsoftplus\", found \"%s\"", c->path, name);
}

/* One of two words; absent leaves *second as it is. */
static enum mr_status read_choice(const struct mr_case *c, const json_t *o, const char *key,
                                  const char *const words[2], bool *second, struct mr_error *err)
{
    char label[64];
    const char *name;
    const json_t *value = json_object_get(o, key);
    if (!value) return MR_OK;
    snprintf(label, sizeof label, "router.%s", key);
    TRY(mr_json_string(value, c->path, label, &name, err));
    *second = !strcmp(name, words[1]);
    if (*second || !strcmp(name, words[0])) return MR_OK;
    return mr_fail(err, MR_ERR_UNSUPPORTED, "%s: \"%s\": expected \"%s\" or \"%s\", found \"%s\"",
                   c->path, label, words[0], words[1], name);
}

/* "selection" is by score unless said otherwise; how groups are scored must be said. */
static enum mr_status read_choices(struct mr_case *c, const json_t *o, struct mr_error *err)
{
    static const char *const selections[2] = {"score", "logit"}, *const groups[2] = {"top2_sum",
                                                                                     "max"};
    struct mr_router *r = &c->router;
    bool by_logit = r->selection == MR_SELECT_LOGIT, by_max = r->group_score == MR_GROUP_MAX;
    TRY(read_choice(c, o, "selection", selections, &by_logit, err));
    TRY(read_choice(c, o, "group_score", groups, &by_max, err));
    if (r->n_group > 1 && !c->has_config && !json_object_get(o, "group_score"))
        return mr_fail(err, MR_ERR_MISSING, "%s: key \"router.group_score\" is missing: n_group = "
                       "%d", c->path, r->n_group);
    r->selection = by_logit ? MR_SELECT_LOGIT : MR_SELECT_SCORE;
    r->group_score = by_max ? MR_GROUP_MAX : MR_GROUP_TOP2_SUM;
    return MR_OK;
}

/* What few classes have: absent is none, or what config says. */
static enum mr_status read_extras(struct mr_case *c, const json_t *o, struct mr_error *err)
{
    struct mr_router *r = &c->router;
    const json_t *gate_bias = json_object_get(o, "gate_bias"),
                 *hash = json_object_get(o, "hash_layers");
    if (gate_bias)
        TRY(mr_json_bool(gate_bias, c->path, "router.gate_bias", &r->gate_bias, err));
    if (hash) TRY(mr_json_int(hash, c->path, "router.hash_layers", 0, &r->hash_layers, err));
    if (c->has_config && r->hash_layers > c->config.moe_layer_count)
        return mr_fail(err, MR_ERR_VALUE, "%s: \"router.hash_layers\": expected at most %d, the "
                       "MoE layers of the config, found %d", c->path, c->config.moe_layer_count,
                       r->hash_layers);
    return MR_OK;
}

/* Without a config every figure must be here: there is no class to document a default. */
enum mr_status mr_case_read_router(struct mr_case *c, const json_t *o, struct mr_error *err)
{
    static const char *const known[] = {"experts", "top_k", "hidden", "score", "bias", "n_group",
                                        "topk_group", "norm_topk_prob", "routed_scaling_factor",
                                        "selection", "group_score", "gate_bias", "hash_layers",
                                        NULL};
    struct mr_router *r = &c->router;
    if (!o && !c->has_config)
        return mr_fail(err, MR_ERR_MISSING, "%s: neither \"config\" nor \"router\" is there",
                       c->path);
    if (o) TRY(mr_json_keys(o, c->path, "router.", known, err));
    const struct {
        const char *key, *label;
        int least, *out;
    } ints[] = {{"experts", "router.experts", 1, &r->experts},
                {"top_k", "router.top_k", 1, &r->top_k},
                {"hidden", "router.hidden", 1, &r->hidden},
                {"n_group", "router.n_group", 1, &r->n_group},
                {"topk_group", "router.topk_group", 1, &r->topk_group}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        const json_t *value = json_object_get(o, ints[i].key);
        if (!value && (c->has_config || (c->from_logits && ints[i].out == &r->hidden))) continue;
        TRY(mr_json_int(value, c->path, ints[i].label, ints[i].least, ints[i].out, err));
    }
    const json_t *value = json_object_get(o, "score");
    if (value || !c->has_config) TRY(read_score(c, value, &r->score, err));
    value = json_object_get(o, "bias");
    if (value || !c->has_config) TRY(mr_json_bool(value, c->path, "router.bias", &r->bias, err));
    value = json_object_get(o, "norm_topk_prob");
    if (value || !c->has_config)
        TRY(mr_json_bool(value, c->path, "router.norm_topk_prob", &r->norm_topk_prob, err));
    value = json_object_get(o, "routed_scaling_factor");
    if (value || !c->has_config)
        TRY(mr_json_double(value, c->path, "router.routed_scaling_factor",
                           &r->routed_scaling_factor, err));
    TRY(read_choices(c, o, err));
    TRY(read_extras(c, o, err));
    return mr_router_check(r, c->path, err);
}

static enum mr_status check_length(const struct mr_case *c, const json_t *row, const char *layer,
                                   const char *what, struct mr_error *err)
{
    char shown[MR_JSON_SHOWN];
    size_t n = (size_t)c->router.experts;
    if (json_is_array(row) && json_array_size(row) == n) return MR_OK;
    return mr_fail(err, MR_ERR_SHAPE, "%s: \"inline\": layer %s: %s: expected an array of %zu "
                   "numbers, found %s of %zu", c->path, layer, what, n, mr_json_show(row, shown),
                   json_array_size(row));
}

/* A decimal is read as binary64 (jansson, strtod) and that is rounded to fp32; the fp32 value is
 * the case's number, exact by definition. */
static enum mr_status read_row(const struct mr_case *c, const json_t *row, const char *layer,
                               const char *what, float *out, struct mr_error *err)
{
    char shown[MR_JSON_SHOWN];
    for (size_t i = 0; i < json_array_size(row); i++) {
        const json_t *value = json_array_get(row, i);
        double x = json_number_value(value);
        if (!json_is_number(value))
            return mr_fail(err, MR_ERR_FORMAT, "%s: \"inline\": layer %s: %s: expected a number at "
                           "%zu, found %s", c->path, layer, what, i, mr_json_show(value, shown));
        if (fabs(x) > FLT_MAX)
            return mr_fail(err, MR_ERR_VALUE, "%s: \"inline\": layer %s: %s: %g at %zu is no fp32 "
                           "number", c->path, layer, what, x, i);
        out[i] = (float)x;
    }
    return MR_OK;
}

static enum mr_status read_numbers(struct mr_case *c, const char *layer, const json_t *object,
                                   struct case_made *made, struct mr_error *err)
{
    const json_t *logits = json_object_get(object, "logits");
    const json_t *bias = json_object_get(object, "bias");
    char shown[MR_JSON_SHOWN];
    size_t experts = (size_t)c->router.experts;
    if (!json_is_array(logits))
        return mr_fail(err, logits ? MR_ERR_FORMAT : MR_ERR_MISSING, "%s: \"inline\": layer %s: "
                       "\"logits\": expected an array of rows, found %s", c->path, layer,
                       mr_json_show(logits, shown));
    if (bias && !c->router.bias)
        return mr_fail(err, MR_ERR_VALUE, "%s: \"inline\": layer %s: \"bias\": the router has none",
                       c->path, layer);
    made->tokens = json_array_size(logits);
    /* All lengths first: then the text has as many numbers as memory is asked for. */
    for (size_t i = 0; i < made->tokens; i++)
        TRY(check_length(c, json_array_get(logits, i), layer, "logits", err));
    if (bias) TRY(check_length(c, bias, layer, "bias", err));
    made->logits = calloc(made->tokens ? made->tokens : 1, experts * sizeof *made->logits);
    made->bias = bias ? calloc(experts, sizeof *made->bias) : NULL;
    if (!made->logits || (bias && !made->bias))
        return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", c->path);
    for (size_t i = 0; i < made->tokens; i++)
        TRY(read_row(c, json_array_get(logits, i), layer, "logits", made->logits + i * experts,
                     err));
    return bias ? read_row(c, bias, layer, "bias", made->bias, err) : MR_OK;
}

enum mr_status mr_case_read_inline(struct mr_case *c, const json_t *inlined, struct mr_error *err)
{
    static const char *const known[] = {"logits", "bias", NULL};
    const char *key;
    json_t *value;
    if (c->phase_count != 1)
        return mr_fail(err, MR_ERR_VALUE, "%s: \"inline\" has one phase, \"phases\" lists %zu",
                       c->path, c->phase_count);
    if (json_object_size(inlined) == 0)
        return mr_fail(err, MR_ERR_MISSING, "%s: \"inline\" is empty", c->path);
    json_object_foreach((json_t *)inlined, key, value) {
        size_t n = strlen(key);
        /* Canonical decimals, so that two keys are never one layer. */
        if (n == 0 || n > 9 || strspn(key, "0123456789") != n || (n > 1 && *key == '0'))
            return mr_fail(err, MR_ERR_FORMAT, "%s: \"inline\": expected a layer number as key, "
                           "found \"%s\"", c->path, key);
        char shown[MR_JSON_SHOWN];
        if (!json_is_object(value))
            return mr_fail(err, MR_ERR_FORMAT, "%s: \"inline\": layer %s: expected an object, "
                           "found %s", c->path, key, mr_json_show(value, shown));
        TRY(mr_json_keys(value, c->path, "inline.", known, err));
        struct case_made *made = calloc(1, sizeof *made);
        if (!made) return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", c->path);
        made->layer = (int)strtol(key, NULL, 10);
        made->keep = true;
        made->next = c->made;
        c->made = made; /* freed with the case, whatever follows */
        TRY(read_numbers(c, key, value, made, err));
    }
    return MR_OK;
}
