/* Logits of a layer under the arithmetics whose lines hold a sum, replayed block by block. Inside
 * ref/route. */
#ifndef MOEREF_REPLAYED_H
#define MOEREF_REPLAYED_H

#include "../arith/replay.h"
#include "route.h"

/* For a layer of given logits there is nothing to replay: they are what the sum gave. */
struct mr_replayed {
    size_t count;
    struct mr_replay **replay; /* [count]; NULL where a line holds no sum */
    float *gate_bias;
};
enum mr_status mr_replayed_new(const struct mr_layer *layer, const struct mr_arith *arith,
                               size_t count, struct mr_replayed *out, struct mr_error *err);
void mr_replayed_free(struct mr_replayed *r);

/* One thread's logits of one block: [count] of [MR_BLOCK_ROWS, experts], NULL as above. */
enum mr_status mr_replayed_rooms(const struct mr_replayed *r, int experts, float ***out);
void mr_replayed_rooms_free(const struct mr_replayed *r, float **rooms);
enum mr_status mr_replayed_block(const struct mr_replayed *r, size_t first, size_t rows,
                                 float **rooms, struct mr_error *err);

#endif
