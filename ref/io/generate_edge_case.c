/* A class as files: the case, and one safetensors file with its logits and biases. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generate_edge.h"
#include "safetensors.h"

enum { MOST_TOKENS = 1 << 20 };

struct output {
    const struct mr_edge *class;
    uint64_t seed;
    size_t tokens, stride;
    int level;
    char case_path[PATH_MAX], tensor_path[PATH_MAX], about[512];
};

static enum mr_status check_tokens(struct output *o, struct mr_error *err)
{
    const struct mr_edge *c = o->class;
    size_t least = mr_edge_least(c, o->level);
    size_t most = c->patterns == 0 ? 0 : c->most ? c->most : MOST_TOKENS;
    if (o->tokens == 0) o->tokens = least;
    if (o->tokens < least || o->tokens > most)
        return mr_fail(err, MR_ERR_VALUE, "gen: %s: expected %zu to %zu tokens at level %d (each "
                       "of its patterns is shown), found %zu", c->name, least, most, o->level,
                       o->tokens);
    return MR_OK;
}

static enum mr_status make_paths(struct output *o, const char *folder, struct mr_error *err)
{
    size_t slash = *folder && folder[strlen(folder) - 1] == '/' ? 0 : 1;
    int n = snprintf(o->case_path, sizeof o->case_path, "%s%s%s.json", folder, slash ? "/" : "",
                     o->class->name);
    int m = snprintf(o->tensor_path, sizeof o->tensor_path, "%s%s%s.safetensors", folder,
                     slash ? "/" : "", o->class->name);
    if (n < 0 || m < 0 || (size_t)m >= sizeof o->tensor_path)
        return mr_fail(err, MR_ERR_VALUE, "gen: %.200s: the path is too long", folder);
    return MR_OK;
}

static void tensor_name(char name[128], int layer, bool bias)
{
    if (bias)
        snprintf(name, 128, "model.layers.%d.mlp.gate.e_score_correction_bias", layer);
    else
        snprintf(name, 128, "all.model.layers.%d.mlp.gate.logits", layer);
}

static enum mr_status declare(const struct output *o, struct mr_writer *w, struct mr_error *err)
{
    const struct mr_router *r = &o->class->router;
    char seed[32];
    snprintf(seed, sizeof seed, "%" PRIu64, o->seed);
    enum mr_status s = mr_writer_metadata(w, "generator", "moeref gen", err);
    if (!s) s = mr_writer_metadata(w, "class", o->class->name, err);
    if (!s) s = mr_writer_metadata(w, "seed", seed, err);
    for (int layer = 0; layer < o->class->layers && !s; layer++) {
        uint64_t shape[2] = {o->tokens, o->stride}, experts = (uint64_t)r->experts;
        char name[128];
        size_t index;
        tensor_name(name, layer, false);
        s = mr_writer_declare(w, name, MR_F32, 2, shape, &index, err);
        tensor_name(name, layer, true);
        if (!s && r->bias) s = mr_writer_declare(w, name, MR_F32, 1, &experts, &index, err);
    }
    return s ? s : mr_writer_begin(w, err);
}

static enum mr_status put_layers(const struct output *o, struct mr_writer *w, float *logits,
                                 float *bias, struct mr_error *err)
{
    const struct mr_router *r = &o->class->router;
    size_t index = 0;
    for (int layer = 0; layer < o->class->layers; layer++) {
        enum mr_status s = mr_edge_layer(o->class, r, o->seed, layer, o->tokens, o->stride, logits,
                                         r->bias ? bias : NULL, err);
        if (!s) s = mr_writer_put(w, index++, 0, logits, o->tokens * o->stride * sizeof *logits,
                                  err);
        if (!s && r->bias)
            s = mr_writer_put(w, index++, 0, bias, (size_t)r->experts * sizeof *bias, err);
        if (s) return s;
    }
    return MR_OK;
}

static enum mr_status write_tensors(const struct output *o, struct mr_error *err)
{
    struct mr_writer *w = NULL;
    enum mr_status s = mr_writer_new(o->tensor_path, &w, err);
    if (s) return s;
    size_t row = o->stride * sizeof(float);
    float *logits = malloc(o->tokens * row + row); /* never 0 bytes; 2^20 rows of 2^10 at most */
    float *bias = malloc((size_t)o->class->router.experts * sizeof *bias);
    if (!logits || !bias)
        s = mr_fail(err, MR_ERR_MEMORY, "gen: no memory for %zu tokens", o->tokens);
    if (!s) s = declare(o, w, err);
    if (!s) s = put_layers(o, w, logits, bias, err);
    free(logits);
    free(bias);
    if (!s) return mr_writer_finish(w, err);
    mr_writer_abandon(w);
    return s;
}

/* NULL without memory. */
static json_t *case_json(const struct output *o)
{
    const struct mr_router *r = &o->class->router;
    char file[128];
    snprintf(file, sizeof file, "%s.safetensors", o->class->name);
    json_t *json = json_pack(
        "{s:i, s:s, s:s, s:s, s:{s:i, s:i, s:s, s:b, s:i, s:i, s:b, s:f}, s:[s]}", "moeref_case", 1,
        "name", o->class->name, "about", o->about, "input", "logits", "router", "experts",
        r->experts, "top_k", r->top_k, "score", mr_score_name(r->score), "bias", r->bias, "n_group",
        r->n_group, "topk_group", r->topk_group, "norm_topk_prob", r->norm_topk_prob,
        "routed_scaling_factor", r->routed_scaling_factor, "capture", file);
    bool bad = !json;
    if (json && r->n_group > 1)
        bad |= json_object_set_new(json_object_get(json, "router"), "group_score",
                                   json_string(mr_group_score_name(r->group_score))) != 0;
    if (json && o->class->row_stride)
        bad |= json_object_set_new(json, "row_stride",
                                   json_integer((json_int_t)o->class->row_stride)) != 0;
    if (json && r->bias)
        bad |= json_object_set_new(json, "checkpoint", json_pack("[s]", file)) != 0;
    if (!bad) return json;
    json_decref(json);
    return NULL;
}

/* To a temporary name beside it first, so that a broken run leaves what was there before. */
static enum mr_status write_case(const struct output *o, struct mr_error *err)
{
    char temporary[PATH_MAX + 32];
    snprintf(temporary, sizeof temporary, "%s.tmp.%ld", o->case_path, (long)getpid());
    json_t *json = case_json(o);
    char *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
    json_decref(json);
    if (!text) return mr_fail(err, MR_ERR_MEMORY, "gen: out of memory");
    FILE *f = fopen(temporary, "w");
    bool bad = !f || fprintf(f, "%s\n", text) < 0;
    if (f) bad |= fclose(f) != 0;
    free(text);
    if (!bad && rename(temporary, o->case_path) == 0) return MR_OK;
    int first_errno = errno;
    if (f) unlink(temporary);
    return mr_fail(err, MR_ERR_IO, "%s: %s", o->case_path, strerror(first_errno));
}

enum mr_status mr_edge_write(const char *class, uint64_t seed, size_t tokens, int level,
                             const char *folder, struct mr_error *err)
{
    struct output o = {.class = mr_edge_find(class), .seed = seed, .tokens = tokens,
                       .level = level};
    if (!o.class) {
        char names[1024];
        mr_edge_names(names, sizeof names);
        return mr_fail(err, MR_ERR_USAGE, "gen: unknown class '%.64s', known are %s", class, names);
    }
    if (level < 1 || level > MR_EDGE_LEVELS)
        return mr_fail(err, MR_ERR_USAGE, "gen: expected a level from 1 to %d, found %d",
                       MR_EDGE_LEVELS, level);
    enum mr_status s = check_tokens(&o, err);
    if (!s) s = make_paths(&o, folder, err);
    if (s) return s;
    o.stride = o.class->row_stride ? o.class->row_stride : (size_t)o.class->router.experts;
    snprintf(o.about, sizeof o.about, "Made by moeref gen %s --seed %" PRIu64 " --tokens %zu: %s.",
             o.class->name, seed, o.tokens, o.class->about);
    s = write_tensors(&o, err);
    return s ? s : write_case(&o, err);
}
