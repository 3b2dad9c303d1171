#include "replay_hook.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/arith/replay.h"

/* LINES: of a kernel that changes its mind at every row count of two axes. */
enum { LINES = 64, BLOCK = 64 };

struct gpu_replays {
    const struct mr_layer *layer;
    int threads;
    float *gate_bias; /* [experts] or NULL */
    size_t count;
    struct {
        char line[512];
        float *logits; /* [tokens, experts]; NULL: the line holds no sum */
    } made[LINES];
};

enum mr_status gpu_replays_new(const struct mr_layer *layer, int threads,
                               struct gpu_replays **out)
{
    struct gpu_replays *r = *out = calloc(1, sizeof *r);
    if (!r) return MR_ERR_MEMORY;
    r->layer = layer;
    r->threads = threads > 0 ? threads : omp_get_max_threads();
    if (!layer->gate_bias) return MR_OK;
    size_t experts = (size_t)layer->router->experts;
    r->gate_bias = malloc(experts * sizeof *r->gate_bias);
    if (!r->gate_bias) {
        gpu_replays_free(r);
        *out = NULL;
        return MR_ERR_MEMORY;
    }
    for (size_t e = 0; e < experts; e++) r->gate_bias[e] = (float)layer->gate_bias[e];
    return MR_OK;
}

void gpu_replays_free(struct gpu_replays *r)
{
    for (size_t i = 0; r && i < r->count; i++) free(r->made[i].logits);
    if (r) free(r->gate_bias);
    free(r);
}

static enum mr_status replay(const struct gpu_replays *r, const struct mr_arith *arith,
                             float *logits, struct mr_error *err)
{
    const struct mr_layer *l = r->layer;
    const struct mr_gemm gemm = {.hidden = l->hidden, .gate = l->gate, .gate_bias = r->gate_bias};
    size_t experts = (size_t)l->router->experts;
    long blocks = (long)((l->hidden.rows + BLOCK - 1) / BLOCK);
    struct mr_replay *replay;
    enum mr_status status = mr_replay_new(arith, &gemm, &replay, err);
    if (status) return status;
#pragma omp parallel for schedule(dynamic) num_threads(r->threads)
    for (long b = 0; b < blocks; b++) {
        struct mr_error own = {{0}};
        size_t first = (size_t)b * BLOCK, left = l->hidden.rows - first;
        enum mr_status now = mr_replay_rows(replay, first, left < BLOCK ? left : BLOCK,
                                            logits + first * experts, &own);
        if (!now) continue;
#pragma omp critical(gpu_replay_status)
        {
            status = now;
            if (err) *err = own;
        }
    }
    mr_replay_free(replay);
    return status;
}

/* *out: NULL where the line holds no sum. */
static enum mr_status logits_of(struct gpu_replays *r, const char *line, const float **out,
                                struct mr_error *err)
{
    struct mr_arith arith;
    size_t n = r->layer->hidden.rows * (size_t)r->layer->router->experts;
    for (size_t i = 0; i < r->count; i++)
        if (!strcmp(r->made[i].line, line)) return *out = r->made[i].logits, MR_OK;
    enum mr_status status = mr_arith_parse(line, &arith, err);
    if (status) return status;
    if (r->count == LINES || strlen(line) >= sizeof r->made[0].line)
        return mr_fail(err, MR_ERR_MEMORY, "more than %d arithmetics to replay", LINES);
    float *logits = NULL;
    if (arith.sum.leaf != MR_LEAF_EXACT) {
        logits = malloc(n * sizeof *logits + 1);
        if (!logits) return mr_fail(err, MR_ERR_MEMORY, "out of memory");
        status = replay(r, &arith, logits, err);
    }
    if (status) {
        free(logits);
        return status;
    }
    strcpy(r->made[r->count].line, line);
    r->made[r->count++].logits = logits;
    *out = logits;
    return MR_OK;
}

static bool equal(double observed, float replayed)
{
    float value = (float)observed; /* exact: it was stored as binary32 or less */
    return (isnan(value) && isnan(replayed)) || memcmp(&value, &replayed, sizeof value) == 0;
}

enum mr_status gpu_replays_check(struct gpu_replays *r, const char *line,
                                 const struct mr_observed *observed, bool *applies,
                                 struct gpu_replay_count *out, struct mr_error *err)
{
    const float *replayed = NULL;
    size_t experts = (size_t)r->layer->router->experts;
    *applies = false;
    if (!observed->logits.data || !r->layer->hidden.data) return MR_OK;
    enum mr_status status = logits_of(r, line, &replayed, err);
    if (status || !replayed) return status;
    double *row = malloc(experts * sizeof *row);
    if (!row) return mr_fail(err, MR_ERR_MEMORY, "out of memory");
    *applies = true;
    for (size_t t = 0; t < observed->tokens; t++) {
        const size_t *rows;
        size_t n = mr_observed_rows(observed, t, &rows);
        for (size_t i = 0; i < n; i++) {
            mr_observed_logits(observed, rows ? rows[i] : t, row);
            for (size_t e = 0; e < experts; e++)
                out->equal += equal(row[e], replayed[t * experts + e]);
            out->checked += experts;
        }
    }
    free(row);
    return MR_OK;
}
