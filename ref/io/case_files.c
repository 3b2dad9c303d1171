/* A case from plain files: --config F --gate F[:TENSOR] ... */
#include "case_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const options[TENSOR_COUNT] = {
    [TENSOR_HIDDEN] = "--hidden", [TENSOR_GATE] = "--gate", [TENSOR_BIAS] = "--bias",
    [TENSOR_LOGITS] = "--logits", [TENSOR_IDS] = "--ids", [TENSOR_WEIGHTS] = "--weights",
    [TENSOR_GATE_BIAS] = "--gate-bias",
};

/* Whether name is pattern with some {phase} (no dot in it) and some {layer}. */
static bool match(const char *pattern, const char *name, int *layer)
{
    while (*pattern) {
        if (strncmp(pattern, "{phase}", 7) == 0) {
            size_t n = strcspn(name, ".");
            if (n == 0) return false;
            pattern += 7;
            name += n;
        } else if (strncmp(pattern, "{layer}", 7) == 0) {
            size_t n = strspn(name, "0123456789");
            if (n == 0 || n > 9 || (n > 1 && *name == '0')) return false;
            *layer = (int)strtol(name, NULL, 10);
            pattern += 7;
            name += n;
        } else if (*pattern++ != *name++) {
            return false;
        }
    }
    return *name == '\0';
}

/* Walks the names of a file and keeps those that serve. */
struct choice {
    const char *pattern, *alias;
    int layer; /* -1: any */
    size_t total, matches;
    int match_layer;
    char match[512], only[512];
    char listed[400]; /* up to 8 candidates, the matches if there are any */
    size_t listed_count;
};

static bool serves(const struct choice *ch, const char *name, int *layer)
{
    if (!(ch->pattern && match(ch->pattern, name, layer)) &&
        !(ch->alias && match(ch->alias, name, layer)))
        return false;
    return ch->layer < 0 || ch->layer == *layer;
}

static bool visit(void *context, const char *name)
{
    struct choice *ch = context;
    int layer = -1;
    if (ch->total++ == 0) snprintf(ch->only, sizeof ch->only, "%s", name);
    if (serves(ch, name, &layer) && ch->matches++ == 0) {
        snprintf(ch->match, sizeof ch->match, "%s", name);
        ch->match_layer = layer;
    }
    return true;
}

static bool list(void *context, const char *name)
{
    struct choice *ch = context;
    int layer = -1;
    if (ch->matches && !serves(ch, name, &layer)) return true;
    size_t used = strlen(ch->listed);
    snprintf(ch->listed + used, sizeof ch->listed - used, "%s%s", used ? ", " : "", name);
    return ++ch->listed_count < 8;
}

/* F[:TENSOR] apart: all of it if that is a file, else what stands before the last colon. */
static enum mr_status split(const char *spec, const char *option, char **path, const char **tensor,
                            struct mr_error *err)
{
    *tensor = NULL;
    if (!(*path = strdup(spec))) return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", option);
    if (access(spec, F_OK) == 0) return MR_OK;
    int first_errno = errno;
    char *colon = strrchr(*path, ':');
    if (!colon || !colon[1])
        return mr_fail(err, MR_ERR_IO, "%s: %s: %s", option, spec, strerror(first_errno));
    *colon = '\0';
    *tensor = spec + (colon - *path) + 1;
    if (access(*path, F_OK) == 0) return MR_OK;
    return mr_fail(err, MR_ERR_IO, "%s: neither %s nor %s is there", option, spec, *path);
}

/* The tensor without a name: by its layer's default name, else the only one there. */
static enum mr_status choose(struct mr_case *c, enum case_tensor which, const char *path,
                             int *layer, char name[512], struct mr_error *err)
{
    struct choice ch = {.pattern = c->names[which], .layer = *layer, .match_layer = -1,
                        .alias = which == TENSOR_GATE ? c->gate_alias : NULL};
    mr_checkpoint_each(c->files[which], visit, &ch);
    if (ch.matches == 1) {
        memcpy(name, ch.match, sizeof ch.match);
        *layer = ch.match_layer;
        return MR_OK;
    }
    if (ch.matches == 0 && ch.total == 1) {
        memcpy(name, ch.only, sizeof ch.only);
        return MR_OK;
    }
    mr_checkpoint_each(c->files[which], list, &ch);
    return mr_fail(err, MR_ERR_MISSING, "%s: %s: which of %zu tensors? say %s F:TENSOR, or the "
                   "layer; there are %s%s", options[which], path,
                   ch.matches ? ch.matches : ch.total, options[which],
                   ch.total ? ch.listed : "none",
                   (ch.matches ? ch.matches : ch.total) > ch.listed_count ? " ..." : "");
}

static enum mr_status open_tensor(struct mr_case *c, enum case_tensor which, const char *path,
                                  const char *tensor, int *layer, struct mr_error *err)
{
    struct case_found *found = &c->plain_tensors[which];
    TRY(mr_checkpoint_new(&c->files[which], err));
    TRY(mr_checkpoint_add(c->files[which], path, err));
    if (tensor) {
        if (strlen(tensor) >= sizeof found->name)
            return mr_fail(err, MR_ERR_VALUE, "%s: expected a tensor name of at most %zu bytes",
                           options[which], sizeof found->name - 1);
        strcpy(found->name, tensor);
        /* The gate's own name may say the layer under which to look for the rest. */
        int named = -1;
        if (*layer < 0 && c->names[which] && match(c->names[which], tensor, &named)) *layer = named;
    } else {
        TRY(choose(c, which, path, layer, found->name, err));
    }
    return mr_checkpoint_find(c->files[which], found->name, &found->tensor, &found->file, err);
}

static enum mr_status open_spec(struct mr_case *c, enum case_tensor which, const char *spec,
                                int *layer, struct mr_error *err)
{
    char *path = NULL;
    const char *tensor;
    if (!spec) return MR_OK;
    enum mr_status status = split(spec, options[which], &path, &tensor, err);
    if (status == MR_OK) status = open_tensor(c, which, path, tensor, layer, err);
    free(path);
    return status;
}

/* A shard as it comes holds weight and bias side by side. */
static enum mr_status beside_gate(struct mr_case *c, enum case_tensor which, const char *what,
                                  int layer, struct mr_error *err)
{
    struct case_found *found = &c->plain_tensors[which];
    struct mr_checkpoint *set = c->files[TENSOR_GATE];
    if (set && layer >= 0 && c->names[which]) {
        TRY(mr_case_expand(c, c->names[which], layer, "all", found->name, err));
        if (mr_checkpoint_has(set, found->name))
            return mr_checkpoint_find(set, found->name, &found->tensor, &found->file, err);
    }
    return mr_fail(err, MR_ERR_MISSING, "%s: %s has a %s bias, expected %s F[:TENSOR]%s%s", c->path,
                   c->config.model_type, what, options[which],
                   *found->name ? " or beside the gate " : "", found->name);
}

/* Options for what the router does not use are refused: nobody is to think that they counted. */
static enum mr_status check_options(const struct mr_case *c, const struct mr_case_files *files,
                                    struct mr_error *err)
{
    if (files->bias && !c->router.bias)
        return mr_fail(err, MR_ERR_USAGE, "--bias: a %s router has none", c->config.model_type);
    if (files->gate_bias && !c->router.gate_bias)
        return mr_fail(err, MR_ERR_USAGE, "--gate-bias: a %s router has none",
                       c->config.model_type);
    if (files->gate_bias && c->from_logits)
        return mr_fail(err, MR_ERR_USAGE, "--gate-bias: given logits hold it already");
    return MR_OK;
}

/* No argument brings a table or token ids, so it must be known that the layer needs none. */
static enum mr_status check_ranked(const struct mr_case *c, int layer, struct mr_error *err)
{
    if (c->router.hash_layers == 0) return MR_OK;
    if (layer < 0)
        return mr_fail(err, MR_ERR_MISSING, "%s: the first %d MoE layers of %s choose experts by "
                       "token id: which layer is this? say --layer N", c->path,
                       c->router.hash_layers, c->config.model_type);
    if (mr_case_by_token_id(c, layer))
        return mr_fail(err, MR_ERR_UNSUPPORTED, "%s: layer %d of %s chooses experts by token id, "
                       "and plain files bring neither its table nor token ids: expected a case "
                       "file", c->path, layer, c->config.model_type);
    return MR_OK;
}

static enum mr_status load(struct mr_case *c, const struct mr_case_files *files,
                           struct mr_error *err)
{
    const char *specs[TENSOR_COUNT] = {
        [TENSOR_HIDDEN] = files->hidden, [TENSOR_GATE] = files->gate, [TENSOR_BIAS] = files->bias,
        [TENSOR_LOGITS] = files->logits ? files->logits : files->observed_logits,
        [TENSOR_IDS] = files->ids,
        [TENSOR_WEIGHTS] = files->weights, [TENSOR_GATE_BIAS] = files->gate_bias,
    };
    static const enum case_tensor order[] = {TENSOR_GATE, TENSOR_BIAS, TENSOR_GATE_BIAS,
                                             TENSOR_HIDDEN, TENSOR_LOGITS, TENSOR_IDS,
                                             TENSOR_WEIGHTS};
    TRY(mr_config_load(files->config, &c->config, err));
    c->has_config = c->plain = true;
    c->router = c->config.router;
    TRY(mr_case_check_config(c, err));
    if (files->observed_logits) c->router.bias = false; /* no key is asked for */
    TRY(check_options(c, files, err));
    mr_case_default_names(c);
    int layer = files->layer;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        TRY(open_spec(c, order[i], specs[order[i]], &layer, err));
    TRY(check_ranked(c, layer, err));
    if (c->router.bias && !files->bias)
        TRY(beside_gate(c, TENSOR_BIAS, "correction", layer, err));
    if (c->router.gate_bias && !files->gate_bias && !c->from_logits)
        TRY(beside_gate(c, TENSOR_GATE_BIAS, "linear gate", layer, err));
    c->phases = calloc(1, sizeof *c->phases);
    c->layers = calloc(1, sizeof *c->layers);
    const char *slash = strrchr(c->path, '/');
    c->json = json_pack("{s:i, s:s, s:s}", "moeref_case", 1, "name", slash ? slash + 1 : c->path,
                        "input", c->from_logits ? "logits" : "hidden");
    if (!c->phases || !c->layers || !c->json)
        return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", c->path);
    c->phases[0] = "all";
    c->layers[0] = layer < 0 ? 0 : layer;
    c->phase_count = c->layer_count = 1;
    c->name = json_string_value(json_object_get(c->json, "name"));
    c->about = "";
    return MR_OK;
}

enum mr_status mr_case_from_files(const struct mr_case_files *files, struct mr_case **out,
                                  struct mr_error *err)
{
    *out = NULL;
    if (!files->config) return mr_fail(err, MR_ERR_USAGE, "plain files need --config F");
    if (!files->hidden == !files->logits)
        return mr_fail(err, MR_ERR_USAGE, "plain files need one of --hidden and --logits, found %s",
                       files->hidden ? "both" : "neither");
    if (files->hidden && !files->gate)
        return mr_fail(err, MR_ERR_USAGE, "--hidden needs --gate F[:TENSOR]");
    struct mr_case *c = calloc(1, sizeof *c);
    if (!c || !(c->path = strdup(files->hidden ? files->hidden : files->logits))) {
        free(c);
        return mr_fail(err, MR_ERR_MEMORY, "out of memory");
    }
    c->from_logits = files->logits != NULL;
    enum mr_status status = load(c, files, err);
    if (status == MR_OK) *out = c;
    else mr_case_free(c);
    return status;
}
