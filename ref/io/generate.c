#include "generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generate_class.h"
#include "generate_rows.h"

#define MAX_TOKENS (1 << 24) /* a phase; at hidden 4096 that is 128 GiB */
#define MAX_LAYER 1023
#define STD_MIN 1e-6 /* bf16 underflow and overflow are out of reach between these */
#define STD_MAX 1e6

struct layer_class {
    const char *name;
    bool parameters; /* hidden_std, gate_std, bias_low, bias_high are known keys */
    enum mr_status (*fill)(const struct mr_generate_job *, struct mr_error *);
};

static const struct layer_class classes[] = {
    {"glm-5.3-flash", false, mr_generate_glm_layer},
    {"normal", true, mr_generate_normal_layer},
};

struct spec {
    const struct layer_class *class;
    uint64_t seed;
    struct mr_generate_params params;
};

/* Class "normal": no structure at all, for benches and for moments that are known exactly. */
enum mr_status mr_generate_normal_layer(const struct mr_generate_job *job, struct mr_error *err)
{
    (void)err;
    size_t hidden = (size_t)job->router->hidden, experts = (size_t)job->router->experts;
    const struct mr_generate_params *p = &job->params;
    for (size_t c = 0; c < hidden; c++) {
        job->base[c] = 0;
        job->gain[c] = (float)(p->hidden_std / MR_GENERATE_SD);
    }
    mr_generate_rows(job->hidden_key, job->out->tokens, hidden, job->base, job->gain,
                     job->out->hidden);
    for (size_t c = 0; c < hidden; c++) job->gain[c] = (float)(p->gate_std / MR_GENERATE_SD);
    mr_generate_rows(mr_generate_key(job->key, MR_STREAM_GATE), experts, hidden, job->base,
                     job->gain, job->out->gate);
    uint64_t key = mr_generate_key(job->key, MR_STREAM_BIAS);
    for (size_t e = 0; e < experts && job->out->bias; e++) {
        double u = mr_generate_uniform(mr_generate_bits(key, e));
        job->out->bias[e] = (float)(p->bias_low + (p->bias_high - p->bias_low) * u);
    }
    return MR_OK;
}

static enum mr_status parse_class(const json_t *generate, const char *path, struct spec *out,
                                  struct mr_error *err)
{
    const json_t *value = json_object_get(generate, "class");
    const char *name = json_string_value(value);
    if (!name)
        return mr_fail(err, value ? MR_ERR_FORMAT : MR_ERR_MISSING,
                       "%s: generate: key \"class\" must be a string, %s", path,
                       value ? "it is something else" : "it is missing");
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strcmp(name, classes[i].name) == 0) {
            out->class = &classes[i];
            return MR_OK;
        }
    return mr_fail(err, MR_ERR_VALUE,
                   "%s: generate: unknown class \"%s\", known are \"glm-5.3-flash\", \"normal\"",
                   path, name);
}

static enum mr_status check_keys(json_t *generate, const struct layer_class *class,
                                 const char *path, struct mr_error *err)
{
    static const char *const keys[] = {"class",    "seed",     "tokens",  "layers",
                                       "hidden_std", "gate_std", "bias_low", "bias_high"};
    size_t known = class->parameters ? sizeof keys / sizeof *keys : 4;
    const char *key;
    json_t *value;
    json_object_foreach(generate, key, value) {
        size_t i = 0;
        while (i < known && strcmp(key, keys[i]) != 0) i++;
        if (i == known)
            return mr_fail(err, MR_ERR_FORMAT, "%s: generate: unknown key \"%s\" for class \"%s\"",
                           path, key, class->name);
    }
    return MR_OK;
}

static enum mr_status check_tokens(json_t *generate, const char *path, struct mr_error *err)
{
    json_t *tokens = json_object_get(generate, "tokens"), *value;
    if (!json_is_object(tokens) || json_object_size(tokens) == 0)
        return mr_fail(err, tokens ? MR_ERR_FORMAT : MR_ERR_MISSING,
                       "%s: generate: key \"tokens\" must be an object, phase to count, %s", path,
                       tokens ? "it is empty or something else" : "it is missing");
    const char *phase;
    json_object_foreach(tokens, phase, value) {
        if (!*phase)
            return mr_fail(err, MR_ERR_VALUE, "%s: generate: tokens: a phase has no name", path);
        if (!json_is_integer(value))
            return mr_fail(err, MR_ERR_FORMAT,
                           "%s: generate: tokens of phase \"%s\" must be an integer", path, phase);
        json_int_t n = json_integer_value(value);
        if (n < 0 || n > MAX_TOKENS)
            return mr_fail(err, MR_ERR_VALUE,
                           "%s: generate: tokens of phase \"%s\" must be 0 to %d, found %lld", path,
                           phase, MAX_TOKENS, (long long)n);
    }
    return MR_OK;
}

static enum mr_status check_layers(json_t *generate, const char *path, struct mr_error *err)
{
    json_t *layers = json_object_get(generate, "layers");
    if (!layers) return MR_OK;
    if (!json_is_array(layers) || json_array_size(layers) == 0)
        return mr_fail(err, MR_ERR_FORMAT, "%s: generate: \"layers\" must be a list of numbers",
                       path);
    bool seen[MAX_LAYER + 1] = {false};
    for (size_t i = 0; i < json_array_size(layers); i++) {
        json_t *value = json_array_get(layers, i);
        json_int_t n = json_integer_value(value);
        if (!json_is_integer(value) || n < 0 || n > MAX_LAYER)
            return mr_fail(err, MR_ERR_VALUE,
                           "%s: generate: layers[%zu] must be an integer, 0 to %d", path, i,
                           MAX_LAYER);
        if (seen[n])
            return mr_fail(err, MR_ERR_VALUE, "%s: generate: layer %lld is listed twice", path,
                           (long long)n);
        seen[n] = true;
    }
    return MR_OK;
}

/* A number in [low, high]; absent leaves *out as it is. */
static enum mr_status parse_number(const json_t *generate, const char *key, double low, double high,
                                   const char *path, double *out, struct mr_error *err)
{
    const json_t *value = json_object_get(generate, key);
    if (!value) return MR_OK;
    if (!json_is_number(value))
        return mr_fail(err, MR_ERR_FORMAT, "%s: generate: \"%s\" must be a number", path, key);
    *out = json_number_value(value);
    if (!(*out >= low && *out <= high)) /* a NaN too */
        return mr_fail(err, MR_ERR_VALUE, "%s: generate: \"%s\" must be %g to %g, found %g", path,
                       key, low, high, *out);
    return MR_OK;
}

static enum mr_status parse_params(const json_t *generate, const struct mr_router *router,
                                   const char *path, struct mr_generate_params *out,
                                   struct mr_error *err)
{
    *out = (struct mr_generate_params){1.0, 0.02, 0, 0};
    enum mr_status s = parse_number(generate, "hidden_std", STD_MIN, STD_MAX, path,
                                    &out->hidden_std, err);
    if (!s) s = parse_number(generate, "gate_std", STD_MIN, STD_MAX, path, &out->gate_std, err);
    if (!s) s = parse_number(generate, "bias_low", -STD_MAX, STD_MAX, path, &out->bias_low, err);
    if (!s) s = parse_number(generate, "bias_high", -STD_MAX, STD_MAX, path, &out->bias_high, err);
    if (s) return s;
    bool low = json_object_get(generate, "bias_low"), high = json_object_get(generate, "bias_high");
    if (low != high)
        return mr_fail(err, MR_ERR_MISSING, "%s: generate: \"%s\" needs \"%s\" beside it", path,
                       low ? "bias_low" : "bias_high", low ? "bias_high" : "bias_low");
    if (low && !router->bias)
        return mr_fail(err, MR_ERR_VALUE, "%s: generate: \"bias_low\", but the router has no bias",
                       path);
    if (out->bias_low > out->bias_high)
        return mr_fail(err, MR_ERR_VALUE, "%s: generate: bias_low %g is above bias_high %g", path,
                       out->bias_low, out->bias_high);
    return MR_OK;
}

static enum mr_status parse(const json_t *object, const struct mr_router *router, const char *path,
                            struct spec *out, struct mr_error *err)
{
    /* jansson iterates over non-const objects only; nothing here changes one. */
    json_t *generate = (json_t *)(uintptr_t)object;
    if (!json_is_object(generate))
        return mr_fail(err, MR_ERR_FORMAT, "%s: \"generate\" must be an object", path);
    if (router->experts < 1 || router->hidden < 1)
        return mr_fail(err, MR_ERR_VALUE,
                       "%s: generate: needs experts and hidden of at least 1, found %d and %d",
                       path, router->experts, router->hidden);
    enum mr_status s = parse_class(generate, path, out, err);
    if (!s) s = check_keys(generate, out->class, path, err);
    if (!s) s = check_tokens(generate, path, err);
    if (!s) s = check_layers(generate, path, err);
    if (!s) s = parse_params(generate, router, path, &out->params, err);
    if (s) return s;
    json_t *seed = json_object_get(generate, "seed");
    if (seed && (!json_is_integer(seed) || json_integer_value(seed) < 0))
        return mr_fail(err, MR_ERR_VALUE, "%s: generate: \"seed\" must be an integer, 0 or more",
                       path);
    out->seed = seed ? (uint64_t)json_integer_value(seed) : 1;
    return MR_OK;
}

enum mr_status mr_generate_check(const json_t *generate, const struct mr_router *router,
                                 const char *path, struct mr_error *err)
{
    struct spec spec;
    return parse(generate, router, path, &spec, err);
}

static bool layer_listed(const json_t *generate, int layer)
{
    const json_t *layers = json_object_get(generate, "layers");
    if (!layers) return layer >= 0 && layer <= MAX_LAYER;
    for (size_t i = 0; i < json_array_size(layers); i++)
        if (json_integer_value(json_array_get(layers, i)) == layer) return true;
    return false;
}

/* rows * cols * width bytes, never 0 (malloc(0) may be NULL); NULL if out of memory or range. */
static void *array(size_t rows, size_t cols, size_t width)
{
    size_t n, bytes;
    if (__builtin_mul_overflow(rows, cols, &n) || __builtin_mul_overflow(n, width, &bytes) ||
        bytes > PTRDIFF_MAX)
        return NULL;
    return malloc(bytes ? bytes : 1);
}

/* FNV-1a: a phase's stream hangs on its name, not on its place in the file. */
static uint64_t name_hash(const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *name; name++) h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return h;
}

enum mr_status mr_generate_layer(const json_t *generate, const struct mr_router *router, long seed,
                                 int layer, const char *phase, struct mr_generated *out,
                                 struct mr_error *err)
{
    *out = (struct mr_generated){0};
    struct spec spec;
    enum mr_status status = parse(generate, router, "case", &spec, err);
    if (status) return status;
    const json_t *count = json_object_get(json_object_get(generate, "tokens"), phase);
    if (!count)
        return mr_fail(err, MR_ERR_MISSING, "generate: phase \"%s\" is not in \"tokens\"", phase);
    if (!layer_listed(generate, layer))
        return mr_fail(err, MR_ERR_MISSING, "generate: layer %d is not one of the layers", layer);
    size_t hidden = (size_t)router->hidden, experts = (size_t)router->experts;
    size_t tokens = (size_t)json_integer_value(count);
    uint64_t key = mr_generate_key(seed < 0 ? spec.seed : (uint64_t)seed, (uint64_t)layer);
    struct mr_generate_job job = {
        .router = router,
        .params = spec.params,
        .key = key,
        .hidden_key = mr_generate_key(mr_generate_key(key, MR_STREAM_HIDDEN), name_hash(phase)),
        .base = array(hidden, 1, sizeof(float)),
        .gain = array(hidden, 1, sizeof(float)),
        .out = out,
    };
    out->tokens = tokens;
    out->hidden = array(tokens, hidden, sizeof *out->hidden);
    out->gate = array(experts, hidden, sizeof *out->gate);
    out->bias = router->bias ? array(experts, 1, sizeof *out->bias) : NULL;
    if (!job.base || !job.gain || !out->hidden || !out->gate || (router->bias && !out->bias))
        status = mr_fail(err, MR_ERR_MEMORY,
                         "generate: no memory for %zu tokens, %zu experts, hidden size %zu", tokens,
                         experts, hidden);
    else
        status = spec.class->fill(&job, err);
    free(job.base);
    free(job.gain);
    if (status) mr_generated_free(out);
    return status;
}

void mr_generated_free(struct mr_generated *g)
{
    free(g->hidden);
    free(g->gate);
    free(g->bias);
    *g = (struct mr_generated){0};
}
