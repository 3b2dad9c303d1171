#include "replayed.h"

#include <stdlib.h>

#include "filter.h"

enum mr_status mr_replayed_new(const struct mr_layer *layer, const struct mr_arith *arith,
                               size_t count, struct mr_replayed *out, struct mr_error *err)
{
    size_t experts = layer->gate.rows;
    *out = (struct mr_replayed){.count = count};
    out->replay = calloc(count + 1, sizeof *out->replay);
    if (!out->replay) return MR_ERR_MEMORY;
    if (!layer->hidden.data || layer->logits.data) return MR_OK;
    if (layer->gate_bias) {
        out->gate_bias = malloc(experts * sizeof *out->gate_bias);
        if (!out->gate_bias) {
            mr_replayed_free(out);
            return MR_ERR_MEMORY;
        }
        for (size_t e = 0; e < experts; e++) out->gate_bias[e] = (float)layer->gate_bias[e];
    }
    struct mr_gemm gemm = {
        .hidden = layer->hidden, .gate = layer->gate, .gate_bias = out->gate_bias};
    enum mr_status status = MR_OK;
    for (size_t i = 0; i < count && !status; i++)
        if (arith[i].sum.leaf != MR_LEAF_EXACT)
            status = mr_replay_new(&arith[i], &gemm, &out->replay[i], err);
    if (status) mr_replayed_free(out);
    return status;
}

void mr_replayed_free(struct mr_replayed *r)
{
    for (size_t i = 0; i < r->count && r->replay; i++) mr_replay_free(r->replay[i]);
    free(r->replay);
    free(r->gate_bias);
    *r = (struct mr_replayed){0};
}

enum mr_status mr_replayed_rooms(const struct mr_replayed *r, int experts, float ***out)
{
    float **rooms = *out = calloc(r->count + 1, sizeof *rooms);
    bool ok = rooms != NULL;
    for (size_t i = 0; i < r->count && ok; i++)
        if (r->replay[i])
            ok = (rooms[i] = malloc(MR_BLOCK_ROWS * (size_t)experts * sizeof **rooms)) != NULL;
    return ok ? MR_OK : MR_ERR_MEMORY;
}

void mr_replayed_rooms_free(const struct mr_replayed *r, float **rooms)
{
    for (size_t i = 0; i < r->count && rooms; i++) free(rooms[i]);
    free(rooms);
}

enum mr_status mr_replayed_block(const struct mr_replayed *r, size_t first, size_t rows,
                                 float **rooms, struct mr_error *err)
{
    enum mr_status status = MR_OK;
    for (size_t i = 0; i < r->count && !status; i++)
        if (r->replay[i]) status = mr_replay_rows(r->replay[i], first, rows, rooms[i], err);
    return status;
}
