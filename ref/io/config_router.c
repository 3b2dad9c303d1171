/* The router's own figures. What the class fixes is checked against keys that say otherwise: two
 * engines would then read the file differently, and which one is meant is not ours to guess. */
#include <string.h>

#include "config_read.h"

/* The key's value is the only one that means this row's router. */
static enum mr_status only_value(struct config_reading *r, const char *key, const char *only)
{
    const json_t *value = key ? mr_config_get(r, key) : NULL;
    const char *text, *name;
    if (!value) return MR_OK;
    name = mr_config_named(r, key);
    TRY(mr_json_string(value, r->path, name, &text, r->err));
    if (strcmp(text, only) != 0)
        return mr_fail(r->err, MR_ERR_UNSUPPORTED, "%s: \"%s\": expected \"%s\" for model_type "
                       "\"%s\", found \"%.63s\"", r->path, name, only, r->out->text_type, text);
    return MR_OK;
}

/* A key that the class does not have: absent, null or 1, which every engine reads alike. */
static enum mr_status only_one(struct config_reading *r, const char *key)
{
    const json_t *value = mr_config_get(r, key);
    char shown[MR_JSON_SHOWN];
    if (!value || json_is_null(value)) return MR_OK;
    if (!json_is_number(value) || json_number_value(value) != 1.0)
        return mr_fail(r->err, MR_ERR_UNSUPPORTED, "%s: \"%s\": %s has no such key, so only 1 or "
                       "null is understood; found %s", r->path, mr_config_named(r, key),
                       r->row->class_name, mr_json_show(value, shown));
    return MR_OK;
}

static enum mr_status read_score(struct config_reading *r)
{
    const struct config_row *row = r->row;
    struct mr_router *router = &r->out->router;
    static const char *const keys[] = {"scoring_func", "moe_router_activation_func",
                                       "moe_router_activation", NULL};
    const char *key = NULL;
    for (int i = 0; keys[i]; i++) {
        TRY(only_value(r, keys[i], row->score_value));
        if (!key && mr_config_get(r, keys[i])) key = keys[i];
    }
    router->score = row->score;
    if (key) mr_config_from(r, "score", key, FROM_KEY);
    else if (row->score_key) mr_config_from(r, "score", NULL, FROM_DEFAULT(r));
    else mr_config_from(r, "score", NULL, "%s", row->score_note);
    router->selection = row->selection;
    mr_config_from(r, "selection", NULL, "%s", row->score_note);
    return MR_OK;
}

/* DeepSeek-V2's topk_method: "greedy" takes the top k of all experts, "group_limited_greedy" those
 * of the groups with the largest maxima (DeepseekV2Moe.route_tokens_to_experts, 008e574). */
static enum mr_status read_v2_method(struct config_reading *r, bool *groups)
{
    const char *method = "greedy", *name = mr_config_named(r, "topk_method");
    const json_t *value = mr_config_get(r, "topk_method");
    if (value) TRY(mr_json_string(value, r->path, name, &method, r->err));
    *groups = strcmp(method, "group_limited_greedy") == 0;
    if (!*groups && strcmp(method, "greedy") != 0)
        return mr_fail(r->err, MR_ERR_UNSUPPORTED, "%s: \"%s\": expected \"greedy\" or "
                       "\"group_limited_greedy\" for model_type \"%s\", found \"%.63s\"", r->path,
                       name, r->out->text_type, method);
    return MR_OK;
}

static enum mr_status read_bias(struct config_reading *r)
{
    const struct config_row *row = r->row;
    struct mr_router *router = &r->out->router;
    router->bias = row->bias;
    const json_t *value = row->bias_key ? mr_config_get(r, row->bias_key) : NULL;
    if (!row->v2_methods) {
        const char *method = row->topk_method ? row->topk_method : "greedy";
        TRY(only_value(r, "topk_method", method));
    }
    if (value) {
        TRY(mr_json_bool(value, r->path, mr_config_named(r, row->bias_key), &router->bias, r->err));
        mr_config_from(r, "bias", row->bias_key, FROM_KEY);
    } else if (mr_config_get(r, "topk_method")) {
        mr_config_from(r, "bias", "topk_method", FROM_KEY);
    } else {
        mr_config_from(r, "bias", NULL, row->bias ? "%s: e_score_correction_bias" : "%s: none",
                       row->class_name);
    }
    router->gate_bias = row->gate_bias;
    mr_config_from(r, "gate_bias", NULL, row->gate_bias ? "%s" : "%s: none",
                   row->gate_bias ? row->gate_bias_note : row->class_name);
    return MR_OK;
}

static enum mr_status read_groups(struct config_reading *r)
{
    static const char *const others[] = {"n_group", "topk_group", "num_expert_group"};
    const struct config_row *row = r->row;
    struct mr_router *router = &r->out->router;
    bool groups = row->n_group.keys[0] != NULL;
    if (row->v2_methods)
        TRY(read_v2_method(r, &groups));
    else if (!groups)
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) TRY(only_one(r, others[i]));
    r->out->has_groups = groups;
    if (groups || !row->v2_methods) {
        TRY(mr_config_int(r, "n_group", &row->n_group, 1, &router->n_group));
        TRY(mr_config_int(r, "topk_group", &row->topk_group, 1, &router->topk_group));
    } else {
        router->n_group = router->topk_group = 1;
        mr_config_from(r, "n_group", NULL, "%s: the greedy method has no groups", row->class_name);
        mr_config_from(r, "topk_group", NULL, "%s: likewise", row->class_name);
    }
    if (router->experts % router->n_group != 0)
        return mr_fail(r->err, MR_ERR_VALUE, "%s: \"%s\" is %d and does not divide the %d experts",
                       r->path, mr_config_named(r, row->n_group.keys[0]), router->n_group,
                       router->experts);
    if (router->topk_group > router->n_group)
        return mr_fail(r->err, MR_ERR_VALUE, "%s: \"%s\" is %d, more than \"%s\" = %d", r->path,
                       mr_config_named(r, row->topk_group.keys[0]), router->topk_group,
                       mr_config_named(r, row->n_group.keys[0]), router->n_group);
    router->group_score = row->group_score;
    if (groups && mr_config_get(r, "topk_method"))
        mr_config_from(r, "group_score", "topk_method", FROM_KEY);
    else
        mr_config_from(r, "group_score", NULL,
                       groups ? "%s: as noaux_tc" : "%s selects without groups", row->class_name);
    return MR_OK;
}

static enum mr_status read_norm(struct config_reading *r)
{
    const struct config_row *row = r->row;
    bool *norm = &r->out->router.norm_topk_prob;
    const char *key = row->norm_key ? row->norm_key : "norm_topk_prob";
    const json_t *value = mr_config_get(r, key);
    *norm = row->norm == NORM_BY_KEY ? row->norm_fallback : row->norm == NORM_ALWAYS;
    if (!value && row->norm_missing)
        return mr_fail(r->err, MR_ERR_MISSING, "%s: key \"%s\" is missing, and %s", r->path,
                       mr_config_named(r, key), row->norm_missing);
    if (!value) {
        if (row->norm == NORM_BY_KEY) mr_config_from(r, "norm_topk_prob", NULL, FROM_DEFAULT(r));
        else mr_config_from(r, "norm_topk_prob", NULL, "%s", row->norm_note);
        return MR_OK;
    }
    bool said;
    TRY(mr_json_bool(value, r->path, mr_config_named(r, key), &said, r->err));
    if (row->norm != NORM_BY_KEY && said != *norm)
        return mr_fail(r->err, MR_ERR_UNSUPPORTED, "%s: \"%s\" is %s, but %s", r->path,
                       mr_config_named(r, key), said ? "true" : "false", row->norm_note);
    *norm = said;
    mr_config_from(r, "norm_topk_prob", key, FROM_KEY);
    return MR_OK;
}

static enum mr_status read_scaling(struct config_reading *r)
{
    static const char field[] = "routed_scaling_factor";
    const struct config_row *row = r->row;
    double *scaling = &r->out->router.routed_scaling_factor;
    const char *key = row->scaling_key;
    *scaling = 1.0;
    if (!key) {
        TRY(only_one(r, field));
        mr_config_from(r, field, NULL, FROM_CLASS(r));
        return MR_OK;
    }
    const json_t *value = mr_config_get(r, key);
    const char *name = mr_config_named(r, key);
    if (value && json_is_null(value) && row->scaling_null_is_1) {
        mr_config_from(r, field, key, "%s", "null: 1");
    } else if (value) {
        TRY(mr_json_double(value, r->path, name, scaling, r->err));
        mr_config_from(r, field, key, FROM_KEY);
    } else if (row->scaling_missing) {
        return mr_fail(r->err, MR_ERR_MISSING, "%s: key \"%s\" is missing, and %s", r->path, name,
                       row->scaling_missing);
    } else {
        *scaling = row->scaling_fallback;
        mr_config_from(r, field, NULL, FROM_DEFAULT(r));
    }
    return MR_OK;
}

static enum mr_status read_shared(struct config_reading *r)
{
    int *shared = &r->out->shared_experts;
    TRY(mr_config_int(r, "shared_experts", &r->row->shared, 0, shared));
    if (r->row->shared_width) *shared = *shared > 0;
    return MR_OK;
}

enum mr_status mr_config_read_router(struct config_reading *r)
{
    const struct config_row *row = r->row;
    struct mr_router *router = &r->out->router;
    TRY(mr_config_int(r, "experts", &row->experts, 1, &router->experts));
    TRY(mr_config_int(r, "top_k", &row->top_k, 1, &router->top_k));
    if (router->top_k > router->experts)
        return mr_fail(r->err, MR_ERR_VALUE, "%s: \"%s\" is %d, more than the %d experts", r->path,
                       mr_config_named(r, row->top_k.keys[0]), router->top_k, router->experts);
    TRY(mr_config_int(r, "hidden", &row->hidden, 1, &router->hidden));
    TRY(read_score(r));
    TRY(read_bias(r));
    TRY(read_groups(r));
    TRY(read_norm(r));
    TRY(read_scaling(r));
    r->out->expert_scale = row->expert_scale != NULL;
    if (row->expert_scale)
        mr_config_from(r, "expert_scale", NULL, "the checkpoint's %s multiplies each weight",
                       row->expert_scale);
    TRY(read_shared(r));
    TRY(mr_config_int(r, "moe_intermediate", &row->moe_intermediate, 1,
                      &r->out->moe_intermediate));
    return mr_router_check(router, r->path, r->err);
}
