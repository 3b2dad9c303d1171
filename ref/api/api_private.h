/* Inside of the handles. Private to api. */
#ifndef MOEREF_API_PRIVATE_H
#define MOEREF_API_PRIVATE_H

#include <jansson.h>
#include <stdbool.h>

#include "../route/claims.h"
#include "../route/route.h"
#include "api.h"

struct mr_api_router {
    struct mr_router router;
};

enum api_array {
    API_HIDDEN, API_GATE, API_GATE_BIAS, API_LOGITS, API_BIAS, API_IDS, API_WEIGHTS,
    API_GATE_LOGITS, API_TOKEN_INDEX, API_ARRAYS
};

struct mr_api_input {
    struct mr_router router;
    struct mr_tensor array[API_ARRAYS]; /* data NULL: not set */
};

struct api_options {
    int threads, worst;
    bool exact_weights, without_blas, allow_nonfinite, strict;
    uint64_t non_padded;        /* UINT64_MAX: not said */
    const char *arith, *profile; /* NULL: none; they belong to json */
    json_t *json;
};

/* What one call takes, made of an input. It points into itself: not to be copied. */
struct api_layer {
    struct mr_layer layer;
    double *bias, *gate_bias;
    size_t tokens;
};

#define TRY(call)                                     \
    do {                                              \
        enum mr_status try_status_ = (call);          \
        if (try_status_ != MR_OK) return try_status_; \
    } while (0)

/* Ends an entry: the message to the caller's buffer, cut at its end. Returns status. */
int mr_api_end(enum mr_status status, const struct mr_error *err, char *why, size_t why_bytes);

/* text NULL: none. verify: whether the judge's own options are allowed. Free with json_decref of
 * out->json, which is NULL after a failure. */
enum mr_status mr_api_options(const char *text, bool verify, struct api_options *out,
                              struct mr_error *err);

/* Whether the arrays set make a layer: which are there, their shapes, and (unless allowed) Inf and
 * NaN. After a failure there is nothing to free. */
enum mr_status mr_api_layer(const struct mr_api_input *input, const struct api_options *options,
                            struct api_layer *out, struct mr_error *err);
void mr_api_layer_free(struct api_layer *layer);

/* JSON to text, giving up json; NULL without memory, or if json is NULL. */
char *mr_api_text(json_t *json);

#endif
