#include "claims.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../num/num.h"

static size_t token_of(const struct mr_observed *o, size_t row)
{
    int64_t v;
    memcpy(&v, (const char *)o->token_index.data + row * sizeof v, sizeof v);
    return (size_t)v;
}

/* Rows by token, by counting. Every index must be a token. */
enum mr_status mr_observed_index(struct mr_observed *o, const char *name, struct mr_error *err)
{
    for (size_t r = 0; r < o->rows; r++) {
        int64_t v;
        memcpy(&v, (const char *)o->token_index.data + r * sizeof v, sizeof v);
        if (v >= 0 && (uint64_t)v < o->tokens) continue;
        return mr_fail(err, MR_ERR_VALUE,
                       "%s: %s: row %zu: token %" PRId64 ": expected 0 to %zu (the input has %zu "
                       "tokens)",
                       o->source, name, r, v, o->tokens ? o->tokens - 1 : 0, o->tokens);
    }
    o->first = calloc(o->tokens + 2, sizeof *o->first);
    o->row_of = malloc((o->rows + 1) * sizeof *o->row_of);
    if (!o->first || !o->row_of)
        return mr_fail(err, MR_ERR_MEMORY, "%s: no memory for %zu rows", o->source, o->rows);
    /* first[t + 2] counts token t, then becomes where it ends; filling moves first[t + 1] from
     * where t begins to where it ends. */
    for (size_t r = 0; r < o->rows; r++) o->first[token_of(o, r) + 2]++;
    for (size_t t = 2; t < o->tokens + 2; t++) o->first[t] += o->first[t - 1];
    for (size_t r = 0; r < o->rows; r++) o->row_of[o->first[token_of(o, r) + 1]++] = r;
    return MR_OK;
}

void mr_observed_free(struct mr_observed *o)
{
    free(o->first);
    free(o->row_of);
    *o = (struct mr_observed){0};
}

size_t mr_observed_rows(const struct mr_observed *o, size_t token, const size_t **rows)
{
    *rows = NULL;
    if (!o->first) return token < o->rows;
    *rows = o->row_of + o->first[token];
    return o->first[token + 1] - o->first[token];
}

void mr_observed_ids(const struct mr_observed *o, size_t row, int64_t *ids)
{
    size_t k = (size_t)o->ids.shape[1], size = mr_dtype_bits(o->ids.dtype) / 8;
    const char *at = (const char *)o->ids.data + row * k * size;
    for (size_t i = 0; i < k; i++, at += size) {
        int32_t i32;
        uint32_t u32;
        uint16_t u16;
        switch (o->ids.dtype) {
        case MR_I64: memcpy(&ids[i], at, 8); break;
        case MR_U32: memcpy(&u32, at, 4), ids[i] = u32; break;
        case MR_U16: memcpy(&u16, at, 2), ids[i] = u16; break;
        case MR_U8: ids[i] = *(const uint8_t *)at; break;
        default: memcpy(&i32, at, 4), ids[i] = i32; break;
        }
    }
}

static void real_row(const struct mr_tensor *t, size_t row, double *out)
{
    size_t n = (size_t)t->shape[1];
    mr_widen_f64((const char *)t->data + row * n * (mr_dtype_bits(t->dtype) / 8), t->dtype, n, out);
}

void mr_observed_weights(const struct mr_observed *o, size_t row, double *weights)
{
    real_row(&o->weights, row, weights);
}

void mr_observed_logits(const struct mr_observed *o, size_t row, double *logits)
{
    real_row(&o->logits, row, logits);
}
