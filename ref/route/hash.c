#include "hash.h"

#include <stdlib.h>
#include <string.h>

static int64_t entry(const struct mr_hash *h, size_t row, size_t column)
{
    size_t at = row * (size_t)h->columns + column;
    int32_t narrow;
    int64_t wide;
    if (h->dtype == MR_I64) {
        memcpy(&wide, (const char *)h->table + at * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)h->table + at * sizeof narrow, sizeof narrow);
    return narrow;
}

enum mr_status mr_hash_ids(const struct mr_hash *h, const struct mr_router *r, size_t count,
                           int32_t *ids, struct mr_error *err)
{
    if (h->dtype != MR_I32 && h->dtype != MR_I64)
        return mr_fail(err, MR_ERR_DTYPE, "tid2eid: expected I32 or I64");
    if (h->columns != r->top_k)
        return mr_fail(err, MR_ERR_SHAPE, "tid2eid has %d columns: expected top_k = %d", h->columns,
                       r->top_k);
    for (size_t i = 0; i < count; i++) {
        int64_t token = h->tokens[i];
        if (token < 0 || (uint64_t)token >= h->vocabulary)
            return mr_fail(err, MR_ERR_VALUE,
                           "token id [%zu] is %lld: expected one below %zu, the rows of "
                           "tid2eid",
                           i, (long long)token, h->vocabulary);
        for (int j = 0; j < h->columns; j++) {
            int64_t e = entry(h, (size_t)token, (size_t)j);
            if (e < 0 || e >= r->experts)
                return mr_fail(err, MR_ERR_VALUE,
                               "tid2eid [%lld, %d] is %lld: expected an expert, 0 "
                               "to %d",
                               (long long)token, j, (long long)e, r->experts - 1);
            ids[i * (size_t)h->columns + (size_t)j] = (int32_t)e;
        }
    }
    return MR_OK;
}

enum mr_status mr_route_hash(const struct mr_layer *layer, const struct mr_hash *hash,
                             const struct mr_route_options *options, struct mr_route_result *result,
                             struct mr_flips *flips, struct mr_error *err)
{
    struct mr_layer given = *layer;
    struct mr_router router = *layer->router;
    size_t rows = layer->logits.data ? layer->logits.rows : layer->hidden.rows;
    if (hash->columns < 1) return mr_fail(err, MR_ERR_SHAPE, "tid2eid has no columns");
    int32_t *ids = malloc((rows * (size_t)hash->columns + 1) * sizeof *ids);
    if (!ids) return mr_fail(err, MR_ERR_MEMORY, "no memory for %zu tokens", rows);
    enum mr_status status = mr_hash_ids(hash, layer->router, rows, ids, err);
    router.bias = false;
    router.n_group = router.topk_group = 1;
    given.router = &router;
    given.bias = NULL;
    given.given = ids;
    if (!status) status = mr_route_layer(&given, options, result, flips, err);
    free(ids);
    return status;
}
