/* mr_api_route: blocks of answers into the caller's arrays, and the rest as JSON. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../io/report.h"
#include "api_private.h"

struct tie {
    size_t token;
    json_t *json;
};

struct outputs {
    int32_t *ids;
    double *weights, *gap, *gap_radius, *group_gap, *group_gap_radius;
    uint8_t *certificate;
    size_t k;
    struct tie *tie; /* [MR_TIES_LISTED] */
    size_t tie_count, tie_total;
};

static void copy(void *to, size_t first, const void *from, size_t count, size_t size)
{
    if (to) memcpy((char *)to + first * size, from, count * size);
}

static enum mr_status take_rows(void *context, const struct mr_rows *r, struct mr_error *err)
{
    (void)err;
    struct outputs *o = context;
    copy(o->ids, r->first * o->k, r->ids, r->rows * o->k, sizeof *r->ids);
    copy(o->weights, r->first * o->k, r->weights, r->rows * o->k, sizeof *r->weights);
    copy(o->gap, r->first, r->gap, r->rows, sizeof *r->gap);
    copy(o->gap_radius, r->first, r->gap_radius, r->rows, sizeof *r->gap_radius);
    copy(o->group_gap, r->first, r->group_gap, r->rows, sizeof *r->group_gap);
    copy(o->group_gap_radius, r->first, r->group_gap_radius, r->rows, sizeof *r->group_gap_radius);
    copy(o->certificate, r->first, r->certificate, r->rows, sizeof *r->certificate);
    return MR_OK;
}

static json_t *list_json(const int *v, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(list, json_integer(v[i]));
    return list;
}

static int by_token(const void *a, const void *b)
{
    const struct tie *x = a, *y = b;
    return x->token < y->token ? -1 : x->token > y->token;
}

/* Ties come in no fixed order: the list is kept to twice its length by dropping the last tokens, so
 * that it is the same for any number of threads. */
static void shorten(struct outputs *o)
{
    qsort(o->tie, o->tie_count, sizeof *o->tie, by_token);
    while (o->tie_count > MR_TIES_LISTED) json_decref(o->tie[--o->tie_count].json);
}

static enum mr_status take_tie(void *context, const struct mr_tie *t, struct mr_error *err)
{
    (void)err;
    struct outputs *o = context;
    json_t *json = json_pack("{s:I, s:i, s:o, s:i, s:o}", "token", (json_int_t)t->token, "slots",
                             t->slots, "experts", list_json(t->experts, t->count), "group_slots",
                             t->group_slots, "groups", list_json(t->groups, t->group_count));
    if (!json) return MR_ERR_MEMORY;
    if (o->tie_count == 2 * MR_TIES_LISTED) shorten(o);
    o->tie[o->tie_count++] = (struct tie){t->token, json};
    o->tie_total++;
    return MR_OK;
}

static void forget_ties(void *context)
{
    struct outputs *o = context;
    while (o->tie_count) json_decref(o->tie[--o->tie_count].json);
    o->tie_total = 0;
}

static json_t *result_json(struct outputs *o, const struct mr_route_result *r)
{
    json_t *certified = json_object(), *ties = json_array();
    for (int c = 0; c < MR_CERT_COUNT; c++)
        json_object_set_new(certified, mr_certificate_name((enum mr_certificate)c),
                            json_integer((json_int_t)r->certified[c]));
    shorten(o);
    for (size_t i = 0; i < o->tie_count; i++) json_array_append(ties, o->tie[i].json);
    return json_pack("{s:I, s:o, s:I, s:I, s:I, s:o, s:I}", "tokens", (json_int_t)r->tokens,
                     "certified", certified, "exact_dots", (json_int_t)r->exact_dots,
                     "blas_alarms", (json_int_t)r->blas_alarms, "blas_wrong",
                     (json_int_t)r->blas_wrong, "ties", ties, "ties_omitted",
                     (json_int_t)(o->tie_total - o->tie_count));
}

static enum mr_status no_claims(const struct mr_api_input *input, struct mr_error *err)
{
    for (int i = API_IDS; i < API_ARRAYS; i++)
        if (input->array[i].data)
            return mr_fail(err, MR_ERR_USAGE, "what was observed is mr_api_verify's");
    return MR_OK;
}

static enum mr_status route(const struct mr_api_input *input, const struct api_options *options,
                            uint64_t tokens, struct outputs *o, char **text, struct mr_error *err)
{
    struct api_layer layer;
    struct mr_route_result result;
    TRY(no_claims(input, err));
    TRY(mr_api_layer(input, options, &layer, err));
    struct mr_route_options to = {.threads = options->threads,
                                  .exact_weights = options->exact_weights,
                                  .without_blas = options->without_blas,
                                  .rows = take_rows,
                                  .tie = take_tie,
                                  .restart = forget_ties,
                                  .context = o};
    enum mr_status status = MR_OK;
    if (tokens != layer.tokens)
        status = mr_fail(err, MR_ERR_SHAPE, "outputs are for %" PRIu64 " tokens, the input has %zu",
                         tokens, layer.tokens);
    o->tie = status ? NULL : malloc(2 * MR_TIES_LISTED * sizeof *o->tie);
    if (!status && !o->tie) status = MR_ERR_MEMORY;
    if (!status) status = mr_route_layer(&layer.layer, &to, &result, NULL, err);
    if (!status && text) {
        *text = mr_api_text(result_json(o, &result));
        if (!*text) status = MR_ERR_MEMORY;
    }
    forget_ties(o);
    free(o->tie);
    mr_api_layer_free(&layer);
    return status;
}

int mr_api_route(const struct mr_api_input *input, const char *options, uint64_t tokens,
                 int32_t *ids, double *weights, double *gap, double *gap_radius, double *group_gap,
                 double *group_gap_radius, uint8_t *certificate, char **text, char *why,
                 size_t why_bytes)
{
    struct mr_error err = {{0}};
    struct api_options read;
    struct outputs o = {.ids = ids, .weights = weights, .gap = gap, .gap_radius = gap_radius,
                        .group_gap = group_gap, .group_gap_radius = group_gap_radius,
                        .certificate = certificate, .k = (size_t)input->router.top_k};
    if (text) *text = NULL;
    enum mr_status status = mr_api_options(options, false, &read, &err);
    if (!status) status = route(input, &read, tokens, &o, text, &err);
    json_decref(read.json);
    return mr_api_end(status, &err, why, why_bytes);
}
