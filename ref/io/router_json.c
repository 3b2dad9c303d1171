#include "router_json.h"

#include <string.h>

#include "case_private.h"
#include "json_python.h"

/* A case's own reading, of a case that is no more than a router. */
enum mr_status mr_router_load(const char *config, const char *text, struct mr_router *out,
                              struct mr_error *err)
{
    static char path[] = "Router";
    struct mr_case c = {.path = path, .from_logits = true};
    json_t *keys = NULL;
    *out = (struct mr_router){0};
    if (config) {
        TRY(mr_config_load(config, &c.config, err));
        c.has_config = true;
        c.router = c.config.router;
        TRY(mr_case_check_config(&c, err));
    }
    if (text) TRY(mr_json_document(text, strlen(text), path, MR_JSON_STRICT, &keys, err));
    enum mr_status status = mr_case_read_router(&c, keys, err);
    json_decref(keys);
    if (!status) *out = c.router;
    return status;
}

json_t *mr_router_json(const struct mr_router *r)
{
    json_t *o = json_pack("{s:i, s:i, s:i, s:s, s:s, s:b, s:b, s:i, s:i, s:s, s:b, s:f, s:i}",
                          "experts", r->experts, "top_k", r->top_k, "hidden", r->hidden, "score",
                          mr_score_name(r->score), "selection", mr_selection_name(r->selection),
                          "bias", r->bias, "gate_bias", r->gate_bias, "n_group", r->n_group,
                          "topk_group", r->topk_group, "group_score",
                          mr_group_score_name(r->group_score), "norm_topk_prob", r->norm_topk_prob,
                          "routed_scaling_factor", r->routed_scaling_factor, "hash_layers",
                          r->hash_layers);
    if (o && !r->hidden) json_object_del(o, "hidden");
    return o;
}
