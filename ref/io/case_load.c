/* A case file (DESIGN section 6 is its description): JSON to struct mr_case. */
#include "case_private.h"

#include <stdlib.h>
#include <string.h>

#include "json_python.h"
#include "json_value.h"

static enum mr_status expect_kind(const struct mr_case *c, const char *key, json_type kind,
                                  const char *kind_name, const json_t **out, struct mr_error *err)
{
    char shown[MR_JSON_SHOWN];
    *out = json_object_get(c->json, key);
    if (*out && json_typeof(*out) != kind)
        return mr_fail(err, MR_ERR_FORMAT, "%s: \"%s\": expected %s, found %s", c->path, key,
                       kind_name, mr_json_show(*out, shown));
    return MR_OK;
}

static enum mr_status optional_string(const struct mr_case *c, const char *key, const char **out,
                                      struct mr_error *err)
{
    const json_t *value = json_object_get(c->json, key);
    return value ? mr_json_string(value, c->path, key, out, err) : MR_OK;
}

static enum mr_status read_head(struct mr_case *c, struct mr_error *err)
{
    static const char *const known[] = {
        "moeref_case", "name", "about", "input", "config", "checkpoint", "capture", "phases",
        "arith", "profile", "names", "router", "generate", "inline", "expect", "layers",
        "row_stride", "replay", NULL};
    int version;
    /* The version first: a later one may have keys that this program does not know. */
    TRY(mr_json_int(json_object_get(c->json, "moeref_case"), c->path, "moeref_case", 0, &version,
                    err));
    if (version != 1)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "%s: \"moeref_case\": expected 1, found %d",
                       c->path, version);
    TRY(mr_json_keys(c->json, c->path, "", known, err));
    TRY(mr_json_string(json_object_get(c->json, "name"), c->path, "name", &c->name, err));
    c->about = "";
    TRY(optional_string(c, "about", &c->about, err));
    TRY(optional_string(c, "arith", &c->arith, err));
    TRY(optional_string(c, "profile", &c->profile, err));
    const json_t *ignored, *stride = json_object_get(c->json, "row_stride");
    int elements = 0;
    if (stride) TRY(mr_json_int(stride, c->path, "row_stride", 1, &elements, err));
    c->row_stride = (size_t)elements;
    TRY(expect_kind(c, "expect", JSON_OBJECT, "an object", &ignored, err));
    const char *input;
    TRY(mr_json_string(json_object_get(c->json, "input"), c->path, "input", &input, err));
    c->from_logits = strcmp(input, "logits") == 0;
    if (!c->from_logits && strcmp(input, "hidden") != 0)
        return mr_fail(err, MR_ERR_VALUE, "%s: \"input\": expected \"hidden\" or \"logits\", found "
                       "\"%s\"", c->path, input);
    return MR_OK;
}

static enum mr_status read_phases(struct mr_case *c, struct mr_error *err)
{
    const json_t *list;
    TRY(expect_kind(c, "phases", JSON_ARRAY, "an array of strings", &list, err));
    size_t n = list ? json_array_size(list) : 1;
    if (n == 0) return mr_fail(err, MR_ERR_VALUE, "%s: \"phases\" is empty", c->path);
    c->phases = calloc(n, sizeof *c->phases);
    if (!c->phases) return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", c->path);
    c->phase_count = n;
    if (!list) {
        c->phases[0] = "all";
        return MR_OK;
    }
    for (size_t i = 0; i < n; i++) {
        TRY(mr_json_string(json_array_get(list, i), c->path, "phases", &c->phases[i], err));
        for (size_t j = 0; j < i; j++)
            if (strcmp(c->phases[i], c->phases[j]) == 0)
                return mr_fail(err, MR_ERR_VALUE, "%s: \"phases\" lists \"%s\" twice", c->path,
                               c->phases[i]);
    }
    return MR_OK;
}

static enum mr_status read_replay(struct mr_case *c, struct mr_error *err)
{
    c->replay = json_object_get(c->json, "replay");
    const char *line;
    if (!json_is_object(c->replay))
        return c->replay ? mr_json_string(c->replay, c->path, "replay", &line, err) : MR_OK;
    const char **known = calloc(c->phase_count + 1, sizeof *known);
    if (!known) return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", c->path);
    for (size_t i = 0; i < c->phase_count; i++) known[i] = c->phases[i];
    enum mr_status status = mr_json_keys(c->replay, c->path, "replay.", known, err);
    free(known);
    for (size_t i = 0; i < c->phase_count && !status; i++) {
        const json_t *value = json_object_get(c->replay, c->phases[i]);
        if (value) status = mr_json_string(value, c->path, c->phases[i], &line, err);
    }
    return status;
}

static enum mr_status read_names(struct mr_case *c, struct mr_error *err)
{
    mr_case_default_names(c);
    const json_t *names;
    TRY(expect_kind(c, "names", JSON_OBJECT, "an object", &names, err));
    if (names) TRY(mr_json_keys(names, c->path, "names.", mr_case_tensor_keys, err));
    for (int i = 0; i < TENSOR_COUNT; i++) {
        const json_t *value = json_object_get(names, mr_case_tensor_keys[i]);
        if (!value) continue;
        TRY(mr_json_string(value, c->path, mr_case_tensor_keys[i], &c->names[i], err));
        if (i == TENSOR_GATE) c->gate_alias = NULL;
    }
    return MR_OK;
}

/* A path relative to the folder of the case file, malloc'ed; NULL without memory. */
static char *beside(const struct mr_case *c, const char *path)
{
    const char *slash = strrchr(c->path, '/');
    size_t folder = *path == '/' || !slash ? 0 : (size_t)(slash - c->path) + 1;
    char *joined = malloc(folder + strlen(path) + 1);
    if (!joined) return NULL;
    memcpy(joined, c->path, folder);
    strcpy(joined + folder, path);
    return joined;
}

static enum mr_status read_config(struct mr_case *c, struct mr_error *err)
{
    const char *path = NULL;
    TRY(optional_string(c, "config", &path, err));
    if (!path) return MR_OK;
    char *joined = beside(c, path);
    if (!joined) return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", c->path);
    enum mr_status status = mr_config_load(joined, &c->config, err);
    free(joined);
    if (status != MR_OK) return status;
    c->has_config = true;
    c->router = c->config.router;
    return mr_case_check_config(c, err);
}

/* What no class of generated layers makes. */
static enum mr_status check_generate(const struct mr_case *c, struct mr_error *err)
{
    const struct mr_router *r = &c->router;
    if (r->gate_bias || r->hash_layers)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "%s: \"generate\" makes no %s, and the router has "
                       "%s", c->path, r->gate_bias ? "gate bias" : "table from token id to experts",
                       r->gate_bias ? "one" : "hash_layers");
    return mr_generate_check(c->generate, r, c->path, err);
}

static enum mr_status add_file(const struct mr_case *c, struct mr_checkpoint *set, const char *path,
                               struct mr_error *err)
{
    char *joined = beside(c, path);
    if (!joined) return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", c->path);
    enum mr_status status = mr_checkpoint_add(set, joined, err);
    free(joined);
    return status;
}

static enum mr_status check_list(const struct mr_case *c, const char *key, const json_t **out,
                                 struct mr_error *err)
{
    TRY(expect_kind(c, key, JSON_ARRAY, "an array of paths", out, err));
    if (*out && json_array_size(*out) == 0)
        return mr_fail(err, MR_ERR_VALUE, "%s: \"%s\" is empty", c->path, key);
    for (size_t i = 0; i < json_array_size(*out); i++) {
        const char *path;
        TRY(mr_json_string(json_array_get(*out, i), c->path, key, &path, err));
    }
    return MR_OK;
}

static enum mr_status open_list(const struct mr_case *c, const json_t *list,
                                struct mr_checkpoint **set, struct mr_error *err)
{
    if (!list) return MR_OK;
    TRY(mr_checkpoint_new(set, err));
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(add_file(c, *set, json_string_value(json_array_get(list, i)), err));
    return MR_OK;
}

/* What must come together and what excludes what, before any file is opened. */
static enum mr_status check_sources(const struct mr_case *c, const json_t *checkpoint,
                                    const json_t *capture, bool capture_option,
                                    struct mr_error *err)
{
    const char *conflict = NULL;
    if (c->generate && c->from_logits) conflict = "\"input\": \"logits\"";
    if (c->generate && c->inlined) conflict = "\"inline\"";
    if (c->generate && checkpoint) conflict = "\"checkpoint\"";
    if (conflict)
        return mr_fail(err, MR_ERR_VALUE, "%s: \"generate\" makes hidden states and weights, and "
                       "excludes %s", c->path, conflict);
    if (c->inlined && !c->from_logits)
        return mr_fail(err, MR_ERR_VALUE, "%s: \"inline\" holds logits: expected \"input\": "
                       "\"logits\"", c->path);
    if (c->row_stride && (!c->from_logits || c->inlined))
        return mr_fail(err, MR_ERR_VALUE, "%s: \"row_stride\" is of logits in a capture: expected "
                       "\"input\": \"logits\" and no \"inline\"", c->path);
    if (c->generate || c->inlined) return MR_OK;
    if (!capture && !capture_option)
        return mr_fail(err, MR_ERR_MISSING, "%s: key \"capture\" is missing (or \"generate\", or "
                       "\"inline\")", c->path);
    if (!c->from_logits && !checkpoint)
        return mr_fail(err, MR_ERR_MISSING, "%s: key \"checkpoint\" is missing", c->path);
    return MR_OK;
}

static enum mr_status load(struct mr_case *c, const struct mr_case_options *options,
                           struct mr_error *err)
{
    const char *capture_option = options ? options->capture : NULL;
    const json_t *checkpoint, *capture, *inlined, *router;
    TRY(read_head(c, err));
    TRY(read_phases(c, err));
    TRY(read_replay(c, err));
    TRY(expect_kind(c, "generate", JSON_OBJECT, "an object", &c->generate, err));
    TRY(expect_kind(c, "inline", JSON_OBJECT, "an object", &inlined, err));
    TRY(expect_kind(c, "router", JSON_OBJECT, "an object", &router, err));
    TRY(check_list(c, "checkpoint", &checkpoint, err));
    TRY(check_list(c, "capture", &capture, err));
    c->inlined = inlined != NULL;
    TRY(check_sources(c, checkpoint, capture, capture_option != NULL, err));

    TRY(read_config(c, err));
    TRY(mr_case_read_router(c, router, err));
    if (c->row_stride && c->row_stride < (size_t)c->router.experts)
        return mr_fail(err, MR_ERR_VALUE, "%s: \"row_stride\": expected at least experts = %d, "
                       "found %zu", c->path, c->router.experts, c->row_stride);
    TRY(read_names(c, err));
    if (inlined) TRY(mr_case_read_inline(c, inlined, err));
    if (c->generate) TRY(check_generate(c, err));
    c->seed = options ? options->seed : -1;
    TRY(open_list(c, checkpoint, &c->weights, err));
    if (capture_option) {
        TRY(mr_checkpoint_new(&c->captures, err));
        TRY(mr_checkpoint_add(c->captures, capture_option, err));
    } else {
        TRY(open_list(c, capture, &c->captures, err));
    }
    return mr_case_read_layers(c, err);
}

enum mr_status mr_case_parse(const char *text, size_t bytes, const char *path,
                             const struct mr_case_options *options, struct mr_case **out,
                             struct mr_error *err)
{
    *out = NULL;
    struct mr_case *c = calloc(1, sizeof *c);
    if (!c || !(c->path = strdup(path))) {
        free(c);
        return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", path);
    }
    enum mr_status status = mr_json_document(text, bytes, path, MR_JSON_STRICT, &c->json, err);
    if (status == MR_OK) status = load(c, options, err);
    if (status == MR_OK) *out = c;
    else mr_case_free(c);
    return status;
}

enum mr_status mr_case_load(const char *path, const struct mr_case_options *options,
                            struct mr_case **out, struct mr_error *err)
{
    char *text;
    size_t bytes;
    *out = NULL;
    TRY(mr_json_read(path, &text, &bytes, err));
    enum mr_status status = mr_case_parse(text, bytes, path, options, out, err);
    free(text);
    return status;
}
