/* Lays a frame out for K terms: what mr_plan_make does, for hundreds of thousands of frames. */
#include <stdlib.h>
#include <string.h>

#include "identify_family.h"

enum mr_status mr_laid_new(size_t terms, struct mr_laid *out, struct mr_error *err)
{
    *out = (struct mr_laid){.terms = terms};
    out->order = malloc((terms + 1) * sizeof *out->order);
    out->begin = malloc((terms + 2) * sizeof *out->begin);
    out->scratch = malloc((terms + 1) * sizeof *out->scratch);
    bool bad = !out->order || !out->begin || !out->scratch;
    for (int i = 0; i < MR_FRAME_LEVELS; i++) {
        out->children[i] = malloc((terms + 1) * sizeof *out->children[i]);
        bad |= !out->children[i];
    }
    if (!bad) return MR_OK;
    mr_laid_free(out);
    return mr_fail(err, MR_ERR_MEMORY, "a sum of %zu terms: out of memory", terms);
}

void mr_laid_free(struct mr_laid *laid)
{
    free(laid->order);
    free(laid->begin);
    free(laid->scratch);
    for (int i = 0; i < MR_FRAME_LEVELS; i++) free(laid->children[i]);
    *laid = (struct mr_laid){0};
}

/* Copies of a size that the compiler knows are a few instructions. */
static inline void deal_tiles(const uint32_t *order, uint32_t *to, size_t n, size_t parts,
                              size_t tile)
{
    size_t whole = n / tile * tile;
    for (size_t p = 0; p < parts; p++) {
        size_t at = p * tile;
        for (; at < whole; at += parts * tile, to += tile)
            memcpy(to, order + at, tile * sizeof *to);
        if (at < n) { /* the short tile */
            memcpy(to, order + at, (n - at) * sizeof *to);
            to += n - at;
        }
    }
}

static void deal(struct mr_laid *l, size_t lo, size_t n, size_t parts, size_t tile)
{
    uint32_t *order = l->order + lo, *to = l->scratch;
    switch (tile) {
    case 1: deal_tiles(order, to, n, parts, 1); break;
    case 2: deal_tiles(order, to, n, parts, 2); break;
    case 4: deal_tiles(order, to, n, parts, 4); break;
    case 8: deal_tiles(order, to, n, parts, 8); break;
    case 16: deal_tiles(order, to, n, parts, 16); break;
    case 32: deal_tiles(order, to, n, parts, 32); break;
    default: deal_tiles(order, to, n, parts, tile);
    }
    memcpy(order, to, n * sizeof *order);
}

/* How many tiles of `tiles` part p gets. */
static size_t share(const struct mr_frame_level *v, size_t parts, size_t tiles, size_t p)
{
    if (v->cut == MR_CUT_EVERY) return 1;
    if (v->cut == MR_CUT_RUNS) {
        size_t per = (tiles + v->parts - 1) / v->parts, begin = p * per;
        return begin >= tiles ? 0 : begin + per > tiles ? tiles - begin : per;
    }
    return tiles / parts + (p < tiles % parts);
}

static void lay(const struct mr_frame *f, struct mr_laid *l, int levels, size_t lo, size_t n)
{
    if (levels == 0) {
        l->begin[++l->parts] = (uint32_t)(lo + n);
        return;
    }
    const struct mr_frame_level *v = &f->level[levels - 1];
    size_t tile = v->tile, tiles = (n + tile - 1) / tile;
    size_t parts = v->cut == MR_CUT_EVERY || v->parts > tiles ? tiles : v->parts;
    if (v->cut == MR_CUT_DEAL) deal(l, lo, n, parts, tile);
    uint32_t children = 0;
    for (size_t p = 0, at = 0; p < parts; p++) {
        size_t size = share(v, parts, tiles, p) * tile;
        /* The short tile is the last one of the list; dealt, of the part that got it. */
        if (v->cut == MR_CUT_DEAL)
            size -= p == (tiles - 1) % parts ? tiles * tile - n : 0;
        else if (at + size > n)
            size = n - at;
        if (!size) continue;
        lay(f, l, levels - 1, lo + at, size);
        children++;
        at += size;
    }
    l->children[levels - 1][l->nodes[levels - 1]++] = children;
    if (children > l->most[levels - 1]) l->most[levels - 1] = children;
}

void mr_lay(const struct mr_frame *frame, struct mr_laid *laid)
{
    laid->parts = 0;
    laid->begin[0] = 0;
    laid->levels = frame->levels;
    for (int i = 0; i < MR_FRAME_LEVELS; i++) laid->nodes[i] = laid->most[i] = 0;
    for (size_t i = 0; i < laid->terms; i++) laid->order[i] = (uint32_t)i;
    if (laid->terms) lay(frame, laid, frame->levels, 0, laid->terms);
}

unsigned mr_laid_combination(const struct mr_laid *laid, unsigned combination)
{
    unsigned out = 0;
    for (int i = 0; i < laid->levels; i++) {
        unsigned r = mr_combination_reduce(combination, i);
        if (laid->most[i] <= 2 || (laid->most[i] == 3 && r == MR_REDUCE_PAIRS)) r = MR_REDUCE_ORDER;
        out |= r << (2 * i);
    }
    return out;
}
