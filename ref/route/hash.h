/* Hash layers (DeepSeek-V4, config key num_hash_layers): experts by token id, from a stored
 * table. */
#ifndef MOEREF_HASH_H
#define MOEREF_HASH_H

#include "route.h"

/* tid2eid [vocabulary, top_k], I32 or I64 (the checkpoint's; transformers reads I64), and the token
 * id of each token of the layer. */
struct mr_hash {
    const void *table;
    enum mr_dtype dtype;
    size_t vocabulary;
    int columns;
    const int64_t *tokens; /* [rows of the layer] */
};

/* ids [count, top_k] = table[tokens[i]]. MR_ERR_VALUE names a token id outside the vocabulary or an
 * entry outside [0, experts): engines leave these undefined. MR_ERR_SHAPE unless columns is
 * top_k. */
enum mr_status mr_hash_ids(const struct mr_hash *hash, const struct mr_router *router, size_t count,
                           int32_t *ids, struct mr_error *err);

/* mr_route_layer with these ids, in the table's order: nothing is ranked (no bias, no groups), the
 * gap is Inf, the certificate `bound`, and the weights are the router's for these experts. An
 * expert that a row names twice gets its weight twice. */
enum mr_status mr_route_hash(const struct mr_layer *layer, const struct mr_hash *hash,
                             const struct mr_route_options *options, struct mr_route_result *result,
                             struct mr_flips *flips, struct mr_error *err);

#endif
