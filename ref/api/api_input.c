/* Arrays by name, checked when they are set as far as they say anything alone, and as a layer when
 * they are used. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../num/num.h"
#include "api_private.h"

enum cols { COLS_NONE, COLS_HIDDEN, COLS_EXPERTS, COLS_TOP_K };

static const char reals[] = "BF16 F16 F32", all_reals[] = "BF16 F16 F32 F64",
                  integers[] = "I32 I64 U32 U16 U8", index_type[] = "I64";

static const struct {
    const char *name, *dtypes, *rows; /* rows: what the first dimension counts */
    enum cols cols;
} arrays[API_ARRAYS] = {
    [API_HIDDEN] = {"hidden", reals, "tokens", COLS_HIDDEN},
    [API_GATE] = {"gate", reals, "experts", COLS_HIDDEN},
    [API_GATE_BIAS] = {"gate_bias", reals, "experts", COLS_NONE},
    [API_LOGITS] = {"logits", reals, "tokens", COLS_EXPERTS},
    [API_BIAS] = {"bias", reals, "experts", COLS_NONE},
    [API_IDS] = {"topk_ids", integers, "rows", COLS_TOP_K},
    [API_WEIGHTS] = {"topk_weights", all_reals, "rows", COLS_TOP_K},
    [API_GATE_LOGITS] = {"gate_logits", all_reals, "rows", COLS_EXPERTS},
    [API_TOKEN_INDEX] = {"token_index", index_type, "rows", COLS_NONE},
};

int mr_api_input_new(const struct mr_api_router *router, struct mr_api_input **out, char *why,
                     size_t why_bytes)
{
    struct mr_error err = {{0}};
    *out = calloc(1, sizeof **out);
    if (*out) (*out)->router = router->router;
    return mr_api_end(*out ? MR_OK : MR_ERR_MEMORY, &err, why, why_bytes);
}

void mr_api_input_free(struct mr_api_input *input)
{
    free(input);
}

static int find(const char *name)
{
    for (int i = 0; i < API_ARRAYS; i++)
        if (!strcmp(name, arrays[i].name)) return i;
    return -1;
}

/* Whether dtype is one of the words. */
static bool listed(const char *words, const char *dtype)
{
    size_t n = strlen(dtype);
    const char *at = mr_dtype_parse(dtype) >= 0 ? strstr(words, dtype) : NULL;
    for (; at; at = strstr(at + 1, dtype))
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

/* "[tokens, 8]", and what the second dimension must be; 0: anything. */
static uint64_t expected(const struct mr_router *r, int i, char text[64])
{
    uint64_t cols = arrays[i].cols == COLS_HIDDEN ? (uint64_t)r->hidden
                    : arrays[i].cols == COLS_EXPERTS ? (uint64_t)r->experts
                    : arrays[i].cols == COLS_TOP_K ? (uint64_t)r->top_k : 0;
    char rows[24];
    snprintf(rows, sizeof rows, "%s", arrays[i].rows);
    if (!strcmp(rows, "experts")) snprintf(rows, sizeof rows, "%d", r->experts);
    if (arrays[i].cols == COLS_NONE) snprintf(text, 64, "[%s]", rows);
    else if (cols) snprintf(text, 64, "[%s, %" PRIu64 "]", rows, cols);
    else snprintf(text, 64, "[%s, hidden]", rows);
    return cols;
}

static enum mr_status check_shape(const struct mr_router *r, int i, const uint64_t *shape, int ndim,
                                  struct mr_error *err)
{
    char want[64], found[200] = "[";
    uint64_t cols = expected(r, i, want);
    int dims = arrays[i].cols == COLS_NONE ? 1 : 2;
    bool right = ndim == dims;
    if (right && !strcmp(arrays[i].rows, "experts")) right = shape[0] == (uint64_t)r->experts;
    /* OpenBLAS counts in int. */
    if (right && dims == 2) right = cols ? shape[1] == cols : shape[1] >= 1 && shape[1] <= INT_MAX;
    if (right) return MR_OK;
    size_t n = 1;
    for (int d = 0; d < ndim && d < MR_MAX_DIMS; d++)
        n += (size_t)snprintf(found + n, sizeof found - n, "%s%" PRIu64, d ? ", " : "", shape[d]);
    return mr_fail(err, MR_ERR_SHAPE, "%s: expected shape %s, found %s%s]", arrays[i].name, want,
                   found, ndim > MR_MAX_DIMS ? ", ..." : "");
}

static enum mr_status check_bytes(int i, const struct mr_tensor *t, struct mr_error *err)
{
    uint64_t need = mr_dtype_bits(t->dtype) / 8;
    bool over = false;
    for (int d = 0; d < t->ndim; d++) over |= __builtin_mul_overflow(need, t->shape[d], &need);
    if (over || need != t->bytes)
        return mr_fail(err, MR_ERR_SHAPE, "%s: shape and dtype take %s%" PRIu64 " bytes, but there "
                       "are %" PRIu64, arrays[i].name, over ? "more than " : "",
                       over ? UINT64_MAX : need, t->bytes);
    if (need && !t->data) return mr_fail(err, MR_ERR_VALUE, "%s: no data", arrays[i].name);
    return MR_OK;
}

static enum mr_status set(struct mr_api_input *input, const char *name, const char *dtype,
                          const void *data, uint64_t bytes, const uint64_t *shape, int ndim,
                          struct mr_error *err)
{
    static const uint64_t nothing; /* what an array without elements points to */
    int i = find(name);
    if (i < 0) return mr_fail(err, MR_ERR_USAGE, "'%.64s': no such array", name);
    if (input->array[i].data) return mr_fail(err, MR_ERR_USAGE, "%s: set twice", name);
    if (!listed(arrays[i].dtypes, dtype))
        return mr_fail(err, MR_ERR_DTYPE, "%s: expected dtype %s%s, found %.32s", name,
                       strchr(arrays[i].dtypes, ' ') ? "one of " : "", arrays[i].dtypes, dtype);
    TRY(check_shape(&input->router, i, shape, ndim, err));
    struct mr_tensor t = {.dtype = (enum mr_dtype)mr_dtype_parse(dtype), .ndim = ndim,
                          .data = data, .bytes = bytes};
    for (int d = 0; d < ndim; d++) t.shape[d] = shape[d];
    TRY(check_bytes(i, &t, err));
    if (!bytes) t.data = &nothing;
    input->array[i] = t;
    return MR_OK;
}

int mr_api_input_set(struct mr_api_input *input, const char *name, const char *dtype,
                     const void *data, uint64_t bytes, const uint64_t *shape, int ndim, char *why,
                     size_t why_bytes)
{
    struct mr_error err = {{0}};
    return mr_api_end(set(input, name, dtype, data, bytes, shape, ndim, &err), &err, why,
                      why_bytes);
}

static bool has(const struct mr_api_input *input, enum api_array i)
{
    return input->array[i].data != NULL;
}

/* What must come together and what excludes what: nothing that is set is ignored. */
static enum mr_status check_present(const struct mr_api_input *input, struct mr_error *err)
{
    const struct mr_router *r = &input->router;
    bool hidden = has(input, API_HIDDEN), logits = has(input, API_LOGITS);
    if (hidden == logits)
        return mr_fail(err, MR_ERR_USAGE, hidden ? "hidden and logits exclude each other"
                                                 : "expected hidden and gate, or logits");
    if (hidden != has(input, API_GATE))
        return mr_fail(err, MR_ERR_MISSING, hidden ? "hidden needs gate, the gate weight"
                                                   : "gate belongs to hidden, not to logits");
    if (logits && (has(input, API_GATE_BIAS) || has(input, API_GATE_LOGITS)))
        return mr_fail(err, MR_ERR_USAGE, "%s belongs to hidden, not to given logits",
                       has(input, API_GATE_BIAS) ? "gate_bias" : "gate_logits");
    if (r->bias != has(input, API_BIAS))
        return mr_fail(err, MR_ERR_MISSING, r->bias ? "the router has a correction bias: expected "
                                                      "bias"
                                                    : "bias: the router has none");
    if (hidden && r->gate_bias != has(input, API_GATE_BIAS))
        return mr_fail(err, MR_ERR_MISSING, r->gate_bias ? "the router's gate has a linear bias: "
                                                           "expected gate_bias"
                                                         : "gate_bias: the router has none");
    if (hidden && input->array[API_HIDDEN].shape[1] != input->array[API_GATE].shape[1])
        return mr_fail(err, MR_ERR_SHAPE, "hidden has %" PRIu64 " columns, gate %" PRIu64,
                       input->array[API_HIDDEN].shape[1], input->array[API_GATE].shape[1]);
    return MR_OK;
}

/* The column of the first Inf or NaN of a row, cols if there is none. All exponents first, as one
 * maximum, which compilers make vectors of: there is a whole input to go through. */
static size_t not_finite(const float *row, size_t cols)
{
    uint32_t most = 0, bits;
    for (size_t c = 0; c < cols; c++) {
        memcpy(&bits, &row[c], sizeof bits);
        bits &= 0x7f800000u;
        most = bits > most ? bits : most;
    }
    if (most < 0x7f800000u) return cols;
    size_t c = 0;
    while (isfinite(row[c])) c++;
    return c;
}

static enum mr_status check_finite(const char *name, const struct mr_matrix *m,
                                   struct mr_error *err)
{
    size_t stride = m->cols * (mr_dtype_bits(m->dtype) / 8);
    float *row = malloc((m->cols + 1) * sizeof *row);
    enum mr_status status = row ? MR_OK : MR_ERR_MEMORY;
    for (size_t r = 0; r < m->rows && !status; r++) {
        mr_widen_f32((const char *)m->data + r * stride, m->dtype, m->cols, row);
        size_t c = not_finite(row, m->cols);
        if (c < m->cols)
            status = mr_fail(err, MR_ERR_VALUE, "%s[%zu, %zu] is %s: expected finite numbers "
                             "(allow_nonfinite judges the other rows)", name, r, c,
                             isnan(row[c]) ? "NaN" : row[c] > 0 ? "Inf" : "-Inf");
    }
    free(row);
    return status;
}

static struct mr_matrix matrix_of(const struct mr_tensor *t)
{
    return (struct mr_matrix){t->data, t->dtype, (size_t)t->shape[0], (size_t)t->shape[1]};
}

static enum mr_status widen(const struct mr_tensor *t, double **out)
{
    if (!t->data) return MR_OK;
    *out = malloc((size_t)t->shape[0] * sizeof **out);
    if (!*out) return MR_ERR_MEMORY;
    mr_widen_f64(t->data, t->dtype, (size_t)t->shape[0], *out);
    return MR_OK;
}

void mr_api_layer_free(struct api_layer *l)
{
    free(l->bias);
    free(l->gate_bias);
    *l = (struct api_layer){0};
}

enum mr_status mr_api_layer(const struct mr_api_input *input, const struct api_options *options,
                            struct api_layer *out, struct mr_error *err)
{
    *out = (struct api_layer){.layer = {.router = &input->router}};
    TRY(check_present(input, err));
    bool hidden = has(input, API_HIDDEN);
    struct mr_matrix *from = hidden ? &out->layer.hidden : &out->layer.logits;
    *from = matrix_of(&input->array[hidden ? API_HIDDEN : API_LOGITS]);
    if (hidden) out->layer.gate = matrix_of(&input->array[API_GATE]);
    out->tokens = from->rows;
    if (!options->allow_nonfinite)
        TRY(check_finite(hidden ? "hidden" : "logits", from, err));
    enum mr_status status = widen(&input->array[API_BIAS], &out->bias);
    if (!status) status = widen(&input->array[API_GATE_BIAS], &out->gate_bias);
    out->layer.bias = out->bias;
    out->layer.gate_bias = out->gate_bias;
    if (status) mr_api_layer_free(out);
    return status;
}
