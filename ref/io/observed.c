#include "observed.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                                     \
    do {                                              \
        enum mr_status try_status_ = (call);          \
        if (try_status_ != MR_OK) return try_status_; \
    } while (0)

enum { NAME = 256 };

static const enum mr_dtype id_types[] = {MR_I32, MR_I64, MR_U32, MR_U16, MR_U8};
static const enum mr_dtype real_types[] = {MR_F32, MR_BF16, MR_F16, MR_F64};
static const enum mr_dtype index_types[] = {MR_I64};

/* What a tensor must be. cols 0: one dimension. */
struct expected {
    const enum mr_dtype *types;
    size_t type_count;
    uint64_t cols;
};

static void shape_text(const struct mr_tensor *t, char text[160])
{
    int n = snprintf(text, 160, "[");
    for (int i = 0; i < t->ndim; i++)
        n += snprintf(text + n, (size_t)(160 - n), "%s%" PRIu64, i ? ", " : "", t->shape[i]);
    snprintf(text + n, (size_t)(160 - n), "]");
}

static enum mr_status check_type(const char *source, const char *name, const struct mr_tensor *t,
                                 const struct expected *want, struct mr_error *err)
{
    char types[64] = "";
    for (size_t i = 0; i < want->type_count; i++) {
        if (t->dtype == want->types[i]) return MR_OK;
        strcat(types, i ? ", " : "");
        strcat(types, mr_dtype_name(want->types[i]));
    }
    return mr_fail(err, MR_ERR_DTYPE, "%s: %s: expected %s%s, found %s", source, name,
                   want->type_count > 1 ? "one of " : "", types, mr_dtype_name(t->dtype));
}

/* *rows SIZE_MAX: not known yet, and set. */
static enum mr_status check(const char *source, const char *name, const struct mr_tensor *t,
                            const struct expected *want, size_t *rows, struct mr_error *err)
{
    TRY(check_type(source, name, t, want, err));
    bool known = *rows != SIZE_MAX;
    if (t->ndim == (want->cols ? 2 : 1) && (!want->cols || t->shape[1] == want->cols) &&
        (!known || t->shape[0] == *rows)) {
        *rows = (size_t)t->shape[0];
        return MR_OK;
    }
    char found[160], expected[32] = "rows", cols[32] = "";
    shape_text(t, found);
    if (known) snprintf(expected, sizeof expected, "%zu", *rows);
    if (want->cols) snprintf(cols, sizeof cols, ", %" PRIu64, want->cols);
    return mr_fail(err, MR_ERR_SHAPE, "%s: %s: expected shape [%s%s], found %s", source, name,
                   expected, cols, found);
}

enum mr_status mr_observed_check(struct mr_observed *o, const struct mr_router *router,
                                 const char *const names[4], bool *found, struct mr_error *err)
{
    struct mr_tensor *tensor[4] = {&o->ids, &o->weights, &o->logits, &o->token_index};
    const struct expected want[4] = {{id_types, 5, (uint64_t)router->top_k},
                                     {real_types, 4, (uint64_t)router->top_k},
                                     {real_types, 4, (uint64_t)router->experts},
                                     {index_types, 1, 0}};
    *found = o->ids.data || o->logits.data;
    if (!o->ids.data && o->weights.data)
        return mr_fail(err, MR_ERR_MISSING, "%s: %s: weights of which experts? expected %s beside "
                       "it", o->source, names[1], names[0]);
    if (!*found && o->token_index.data)
        return mr_fail(err, MR_ERR_MISSING, "%s: %s: of what? expected %s or %s beside it",
                       o->source, names[3], names[0], names[2]);
    if (!*found) return MR_OK;
    size_t rows = SIZE_MAX;
    for (int i = 0; i < 4; i++)
        if (tensor[i]->data) TRY(check(o->source, names[i], tensor[i], &want[i], &rows, err));
    o->rows = rows;
    if (o->token_index.data) return mr_observed_index(o, names[3], err);
    if (rows > o->tokens)
        return mr_fail(err, MR_ERR_SHAPE,
                       "%s: %s: %zu rows for %zu tokens: expected %s to say which is which",
                       o->source, names[o->ids.data ? 0 : 2], rows, o->tokens, names[3]);
    return MR_OK;
}

static enum mr_status read_padding(const struct mr_safetensors *file, uint64_t *out,
                                   struct mr_error *err)
{
    const char *text = mr_safetensors_metadata(file, "num_token_non_padded");
    if (!text || *out != UINT64_MAX) return MR_OK;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || v == UINT64_MAX)
        return mr_fail(err, MR_ERR_VALUE, "%s: metadata num_token_non_padded: expected a number, "
                       "found '%.32s'", mr_safetensors_path(file), text);
    *out = v;
    return MR_OK;
}

enum mr_status mr_observed_read(const struct mr_safetensors *file, int layer, const char *phase,
                                const struct mr_router *router, size_t tokens, uint64_t non_padded,
                                struct mr_observed *out, bool *found, struct mr_error *err)
{
    static const char *const endings[4] = {"topk_ids", "topk_weights", "gate.logits",
                                           "gate.token_index"};
    char names[4][NAME];
    const char *const shown[4] = {names[0], names[1], names[2], names[3]};
    *found = false;
    *out = (struct mr_observed){.source = mr_safetensors_path(file), .tokens = tokens,
                                .non_padded = non_padded};
    struct mr_tensor *tensor[4] = {&out->ids, &out->weights, &out->logits, &out->token_index};
    for (int i = 0; i < 4; i++) {
        int n = snprintf(names[i], NAME, "%s.model.layers.%d.mlp.%s", phase, layer, endings[i]);
        if (n < 0 || n >= NAME)
            return mr_fail(err, MR_ERR_VALUE, "%s: phase '%.64s...': too long a name", out->source,
                           phase);
        if (!mr_safetensors_find(file, names[i], tensor[i])) tensor[i]->data = NULL;
    }
    TRY(read_padding(file, &out->non_padded, err));
    enum mr_status status = mr_observed_check(out, router, shown, found, err);
    if (status || !*found) mr_observed_free(out);
    return status;
}

enum mr_status mr_observed_of_case(const struct mr_case *c, const struct mr_case_layer *layer,
                                   size_t tokens, uint64_t non_padded, struct mr_observed *out,
                                   bool *found, struct mr_error *err)
{
    static const char *const what[4] = {"topk_ids", "topk_weights", "logits", "token_index"};
    char names[4][NAME];
    const char *const shown[4] = {names[0], names[1], names[2], names[3]};
    *out = (struct mr_observed){.source = mr_case_name(c), .tokens = tokens,
                                .non_padded = non_padded, .ids = layer->topk_ids,
                                .weights = layer->topk_weights};
    if (!mr_case_from_logits(c)) out->logits = layer->logits;
    for (int i = 0; i < 4; i++)
        snprintf(names[i], NAME, "layer %d, %s: %s", layer->layer, layer->phase, what[i]);
    enum mr_status status = mr_observed_check(out, mr_case_router(c), shown, found, err);
    if (status || !*found) mr_observed_free(out);
    return status;
}
