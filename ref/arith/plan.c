/* Lays a sum's shape out for K terms (sum.h). */
#include <stdlib.h>
#include <string.h>

#include "mma.h"
#include "sum.h"

struct builder {
    const struct mr_sum_shape *sum;
    struct mr_plan *plan;
    uint32_t *scratch;
    size_t part_room, step_room;
    bool failed;
};

static void add_part(struct builder *b, size_t end)
{
    struct mr_plan *p = b->plan;
    if (p->parts + 2 > b->part_room) {
        size_t room = b->part_room * 2 + 16;
        uint32_t *more = realloc(p->begin, room * sizeof *more);
        if (!more) {
            b->failed = true;
            return;
        }
        p->begin = more;
        b->part_room = room;
    }
    p->begin[++p->parts] = (uint32_t)end;
}

static void add_step(struct builder *b, uint32_t into, uint32_t from, int32_t block)
{
    struct mr_plan *p = b->plan;
    if (p->steps == b->step_room) {
        size_t room = b->step_room * 2 + 16;
        struct mr_plan_step *more = realloc(p->step, room * sizeof *more);
        if (!more) {
            b->failed = true;
            return;
        }
        p->step = more;
        b->step_room = room;
    }
    p->step[p->steps++] = (struct mr_plan_step){into, from, block};
}

/* How many of n terms part `part` gets, and where it begins, for cuts that keep the order. */
static size_t run_end(const struct mr_sum_level *level, size_t n, size_t part)
{
    size_t tile = (size_t)level->tile, tiles = (n + tile - 1) / tile, count = (size_t)level->parts;
    size_t end;
    switch (level->cut) {
    case MR_CUT_RUNS: end = (part + 1) * ((tiles + count - 1) / count); break;
    case MR_CUT_EVEN:
        end = (part + 1) * (tiles / count) + (part < tiles % count ? part + 1 : tiles % count);
        break;
    default: end = part + 1; break;
    }
    return end * tile < n ? end * tile : n;
}

/* Puts the terms of each part side by side. ends[p]: where part p ends, from lo. */
static void deal(struct builder *b, const struct mr_sum_level *level, size_t lo, size_t n, size_t *ends)
{
    uint32_t *order = b->plan->order + lo;
    size_t tile = (size_t)level->tile, count = (size_t)level->parts, used = 0;
    for (size_t p = 0; p < count; p++) {
        for (size_t at = p * tile; at < n; at += count * tile)
            for (size_t i = at; i < at + tile && i < n; i++) b->scratch[used++] = order[i];
        ends[p] = used;
    }
    memcpy(order, b->scratch, n * sizeof *order);
}

/* Adds up the partial sums slot[0 .. n). The result is in slot[0]; of REVERSE too, since which of
 * two is the target does not matter. */
static void reduce(struct builder *b, enum mr_reduce how, const uint32_t *slot, size_t n)
{
    size_t d;
    switch (how) {
    case MR_REDUCE_ORDER:
        for (size_t i = 1; i < n; i++) add_step(b, slot[0], slot[i], -1);
        break;
    case MR_REDUCE_REVERSE:
        for (size_t i = n - 1; i > 0; i--) add_step(b, slot[i - 1], slot[i], -1);
        break;
    case MR_REDUCE_HALVES:
        for (d = 1; d < n; d *= 2) {}
        for (d /= 2; d > 0; d /= 2)
            for (size_t i = 0; i < d && i + d < n; i++) add_step(b, slot[i], slot[i + d], -1);
        break;
    case MR_REDUCE_PAIRS:
        for (d = 1; d < n; d *= 2)
            for (size_t i = 0; i + d < n; i += 2 * d) add_step(b, slot[i], slot[i + d], -1);
        break;
    }
}

/* Terms [lo, lo + n) of order, cut by levels [0, levels). Gives the slot of their sum. */
static uint32_t build(struct builder *b, int levels, size_t lo, size_t n)
{
    if (levels == 0) {
        add_part(b, lo + n);
        return (uint32_t)(b->plan->parts - 1);
    }
    const struct mr_sum_level *level = &b->sum->level[levels - 1];
    size_t tile = (size_t)level->tile, tiles = (n + tile - 1) / tile;
    bool each = level->cut == MR_CUT_EVERY || level->cut == MR_CUT_PROMOTE;
    size_t count = each || (size_t)level->parts > tiles ? tiles : (size_t)level->parts;
    size_t *ends = malloc((count + 1) * sizeof *ends);
    uint32_t *slot = malloc((count + 1) * sizeof *slot);
    size_t slots = 0;
    if (!ends || !slot) {
        b->failed = true;
        goto done;
    }
    struct mr_sum_level clipped = *level;
    if (level->cut == MR_CUT_DEAL || level->cut == MR_CUT_EVEN) clipped.parts = (int)count;
    if (level->cut == MR_CUT_DEAL)
        deal(b, &clipped, lo, n, ends);
    else
        for (size_t p = 0; p < count; p++) ends[p] = run_end(&clipped, n, p);
    for (size_t p = 0, begin = 0; p < count && !b->failed; begin = ends[p++]) {
        if (ends[p] == begin) continue;
        uint32_t first = b->plan->order[lo + begin];
        slot[slots] = build(b, levels - 1, lo + begin, ends[p] - begin);
        if (level->cut == MR_CUT_PROMOTE)
            add_step(b, slot[0], slot[slots], (int32_t)(first / (uint32_t)level->tile));
        slots++;
    }
    if (level->cut != MR_CUT_PROMOTE) reduce(b, level->reduce, slot, slots);
done:;
    uint32_t result = slots ? slot[0] : 0;
    free(ends);
    free(slot);
    return result;
}

static size_t most_roundings(const struct mr_sum_shape *sum, const struct mr_plan *p, size_t *depth)
{
    size_t width = sum->leaf == MR_LEAF_MMA ? mr_mma_step_columns(sum->mma) : 1;
    size_t product = sum->leaf == MR_LEAF_MUL_ADD ? 1 : 0;
    for (size_t i = 0; i < p->parts; i++)
        depth[i] = (p->begin[i + 1] - p->begin[i] + width - 1) / width + product;
    for (size_t i = 0; i < p->steps; i++) {
        const struct mr_plan_step *s = &p->step[i];
        /* A promoted part is multiplied by its scale, which is one more rounding. */
        size_t from = depth[s->from], into = depth[s->into];
        depth[s->into] = (from > into ? from : into) + (s->block < 0 ? 1 : 2);
    }
    return p->parts ? depth[0] : 0;
}

enum mr_status mr_plan_make(const struct mr_sum_shape *sum, size_t terms, struct mr_plan *out,
                            struct mr_error *err)
{
    *out = (struct mr_plan){.terms = terms};
    struct builder b = {.sum = sum, .plan = out};
    out->order = malloc((terms + 1) * sizeof *out->order);
    out->begin = calloc(16, sizeof *out->begin);
    out->step = NULL;
    b.part_room = 16;
    b.scratch = malloc((terms + 1) * sizeof *b.scratch);
    size_t *depth = NULL;
    if (!out->order || !out->begin || !b.scratch) goto memory;
    for (size_t i = 0; i < terms; i++) out->order[i] = (uint32_t)i;
    if (terms) build(&b, sum->levels, 0, terms);
    if (b.failed) goto memory;
    depth = malloc((out->parts + 1) * sizeof *depth);
    if (!depth) goto memory;
    out->depth = most_roundings(sum, out, depth);
    free(depth);
    free(b.scratch);
    size_t sorted = 0;
    while (sorted < terms && out->order[sorted] == sorted) sorted++;
    if (sorted == terms) {
        free(out->order);
        out->order = NULL;
    }
    return MR_OK;
memory:
    free(b.scratch);
    mr_plan_free(out);
    return mr_fail(err, MR_ERR_MEMORY, "a sum of %zu terms: out of memory", terms);
}

void mr_plan_free(struct mr_plan *plan)
{
    free(plan->order);
    free(plan->begin);
    free(plan->step);
    *plan = (struct mr_plan){0};
}
