/* Routers, texts and options; the inputs are in api_input.c, the two calls in api_route.c and
 * api_verify.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../io/json_python.h"
#include "../io/json_value.h"
#include "../io/router_json.h"
#include "../moeref.h"
#include "api_private.h"

/* Far beyond any model; a mistyped figure does not take all memory. */
enum { MOST_EXPERTS = 1 << 20 };

int mr_api_version(void)
{
    return MR_API_VERSION;
}

const char *mr_api_library_version(void)
{
    return MR_VERSION;
}

const char *mr_api_status_name(int status)
{
    return mr_status_name((enum mr_status)status);
}

const char *mr_api_certificate_name(int certificate)
{
    return certificate >= 0 && certificate < MR_CERT_COUNT
               ? mr_certificate_name((enum mr_certificate)certificate) : "?";
}

const char *mr_api_verdict_name(int verdict)
{
    _Static_assert(MR_API_PADDING > MR_VERDICT_COUNT, "padding is no verdict");
    if (verdict == MR_API_PADDING) return "padding";
    return verdict >= 0 && verdict < MR_VERDICT_COUNT
               ? mr_verdict_name((enum mr_verdict)verdict) : "?";
}

char *mr_api_text(json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

/* The text is jansson's, which the program may have given another malloc. */
void mr_api_text_free(char *text)
{
    json_malloc_t allocate;
    json_free_t release;
    json_get_alloc_funcs(&allocate, &release);
    if (text) release(text);
}

int mr_api_end(enum mr_status status, const struct mr_error *err, char *why, size_t why_bytes)
{
    if (!why || !why_bytes) return (int)status;
    const char *text = err->text[0] || !status ? err->text
                       : status == MR_ERR_MEMORY ? "out of memory" : mr_status_name(status);
    snprintf(why, why_bytes, "%s", status ? text : "");
    return (int)status;
}

int mr_api_router_new(const char *config, const char *json, struct mr_api_router **out, char *why,
                      size_t why_bytes)
{
    struct mr_error err = {{0}};
    struct mr_router router;
    *out = NULL;
    enum mr_status status = mr_router_load(config, json, &router, &err);
    if (!status && router.experts > MOST_EXPERTS)
        status = mr_fail(&err, MR_ERR_UNSUPPORTED, "Router: expected at most %d experts, found %d",
                         MOST_EXPERTS, router.experts);
    if (!status) {
        *out = malloc(sizeof **out);
        if (*out) (*out)->router = router;
        else status = MR_ERR_MEMORY;
    }
    return mr_api_end(status, &err, why, why_bytes);
}

char *mr_api_router_text(const struct mr_api_router *router)
{
    return mr_api_text(mr_router_json(&router->router));
}

void mr_api_router_free(struct mr_api_router *router)
{
    free(router);
}

static enum mr_status read_flag(const json_t *o, const char *key, bool *out, struct mr_error *err)
{
    const json_t *value = json_object_get(o, key);
    return value ? mr_json_bool(value, "options", key, out, err) : MR_OK;
}

/* null is as good as absent. */
static enum mr_status read_line(const json_t *o, const char *key, const char **out,
                                struct mr_error *err)
{
    const json_t *value = json_object_get(o, key);
    return value && !json_is_null(value) ? mr_json_string(value, "options", key, out, err) : MR_OK;
}

/* 0 to most. */
static enum mr_status read_number(const json_t *o, const char *key, int most, int *out,
                                  struct mr_error *err)
{
    const json_t *value = json_object_get(o, key);
    if (!value) return MR_OK;
    TRY(mr_json_int(value, "options", key, 0, out, err));
    return *out <= most ? MR_OK
                        : mr_fail(err, MR_ERR_VALUE, "options: \"%s\": expected at most %d, found "
                                  "%d", key, most, *out);
}

static enum mr_status read_padding(const json_t *o, uint64_t *out, struct mr_error *err)
{
    const json_t *value = json_object_get(o, "non_padded");
    char shown[MR_JSON_SHOWN];
    if (!value || json_is_null(value)) return MR_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return mr_fail(err, MR_ERR_VALUE, "options: \"non_padded\": expected a number of rows, "
                       "found %s", mr_json_show(value, shown));
    *out = (uint64_t)json_integer_value(value);
    return MR_OK;
}

static enum mr_status read_options(bool verify, struct api_options *o, struct mr_error *err)
{
    static const char *const routes[] = {"threads", "exact_weights", "without_blas",
                                         "allow_nonfinite", NULL};
    static const char *const judges[] = {"threads", "without_blas", "allow_nonfinite", "arith",
                                         "profile", "non_padded", "strict", "worst", NULL};
    TRY(mr_json_keys(o->json, "options", "", verify ? judges : routes, err));
    TRY(read_number(o->json, "threads", 1024, &o->threads, err));
    TRY(read_number(o->json, "worst", 100000, &o->worst, err));
    TRY(read_flag(o->json, "exact_weights", &o->exact_weights, err));
    TRY(read_flag(o->json, "without_blas", &o->without_blas, err));
    TRY(read_flag(o->json, "allow_nonfinite", &o->allow_nonfinite, err));
    TRY(read_flag(o->json, "strict", &o->strict, err));
    TRY(read_line(o->json, "arith", &o->arith, err));
    TRY(read_line(o->json, "profile", &o->profile, err));
    return read_padding(o->json, &o->non_padded, err);
}

enum mr_status mr_api_options(const char *text, bool verify, struct api_options *out,
                              struct mr_error *err)
{
    *out = (struct api_options){.worst = 100, .non_padded = UINT64_MAX};
    if (!text) return MR_OK;
    TRY(mr_json_document(text, strlen(text), "options", MR_JSON_STRICT, &out->json, err));
    enum mr_status status = read_options(verify, out, err);
    if (!status) return MR_OK;
    json_decref(out->json);
    out->json = NULL;
    return status;
}
