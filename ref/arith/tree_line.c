/* Which lines have a given tree (tree_line.h).
 *
 * A sum of d levels is read from the outside in. The part of a level that holds the first term is
 * one of the nodes above that term; its terms tell the cut and leave few choices of parts and tile:
 *     a run from the first term on, of s terms      every:s, runs (T divides s), even (T divides s)
 *     T terms, a gap, the next from T * S on        deal:SxT
 * A choice stands if every part that it makes is a node of the tree, and the nodes are added up as
 * some R says; then each part is read likewise, one level further in, all with the same choice. At
 * the end the parts must be chains of a leaf. Fewer levels are tried first. Whether a set of terms
 * is a node is asked of a table of hashes; so what comes out is laid out again and compared. */
#include "tree_line.h"

#include <stdlib.h>
#include <string.h>

#include "mma.h"
#include "tree_private.h"

struct part {
    uint32_t node;
    size_t begin, end; /* of its terms in the list of its depth */
};

/* What is known at one depth: the parts to be read, each with its terms in ascending order. */
struct depth {
    struct part *part;
    size_t parts;
    bool uneven;      /* parts of several sizes */
    uint32_t *list;   /* [terms] */
    uint64_t *prefix; /* [terms + 1]: sums of hashes of list */
};

struct search {
    struct mr_index index;
    struct depth depth[MR_SUM_LEVELS + 1];
    struct mr_sum_level level[MR_SUM_LEVELS]; /* [0] is the outermost */
    const char *operands;
    struct mr_sum_shape *out;
    size_t room, found, work;
};
#define WORK ((size_t)2000000000) /* after so many steps a tree counts as unnamed */

/* Writes a sum down, unless it is there. */
static void put_shape(struct search *s, const struct mr_sum_shape *shape)
{
    for (size_t i = 0; i < s->found; i++)
        if (mr_sum_same(&s->out[i], shape)) return;
    if (s->found < s->room) s->out[s->found++] = *shape;
}

/* The sum of a leaf and of the levels down to depth d. */
static void put(struct search *s, const struct mr_sum_shape *leaf, int d)
{
    struct mr_sum_shape shape = *leaf;
    shape.levels = d;
    for (int i = 0; i < d; i++) shape.level[i] = s->level[d - 1 - i];
    put_shape(s, &shape);
}

static void read_leaves(struct search *s, int d)
{
    const struct depth *x = &s->depth[d];
    struct mr_sum_shape leaf[MR_LEAF_KINDS];
    size_t leaves = mr_leaf_kinds(s->operands, leaf);
    for (size_t i = 0; i < leaves; i++) {
        bool all = true;
        for (size_t p = 0; all && p < x->parts; p++) {
            size_t n = x->part[p].end - x->part[p].begin;
            s->work += n;
            all = mr_leaf_key(&leaf[i], x->list + x->part[p].begin, n) ==
                  s->index.key[x->part[p].node];
        }
        if (all) put(s, &leaf[i], d);
        /* Parts of one or two terms, which are chains of anything. */
        if (all && leaf[i].leaf == MR_LEAF_FMA) return;
    }
}

/* Part k of n terms at list[begin ..]: copies its terms to *to (to: NULL, only asks), gives their
 * hash. The same cuts as plan.c makes. */
static uint64_t cut_part(const struct depth *x, const struct mr_sum_level *l, size_t begin,
                         size_t n, size_t k, uint32_t **to, size_t *count)
{
    size_t tile = (size_t)l->tile, tiles = (n + tile - 1) / tile, parts = (size_t)l->parts;
    uint64_t hash = 0;
    *count = 0;
    if (l->cut == MR_CUT_DEAL) {
        for (size_t at = k * tile; at < n; at += parts * tile) {
            size_t end = at + tile < n ? at + tile : n;
            hash += x->prefix[begin + end] - x->prefix[begin + at];
            if (to) memcpy(*to + *count, x->list + begin + at, (end - at) * sizeof **to);
            *count += end - at;
        }
    } else {
        size_t per = (tiles + parts - 1) / parts, lo = k * per, hi = lo + per;
        if (l->cut == MR_CUT_EVEN) {
            lo = k * (tiles / parts) + (k < tiles % parts ? k : tiles % parts);
            hi = lo + tiles / parts + (k < tiles % parts);
        }
        lo = lo * tile < n ? lo * tile : n;
        hi = hi * tile < n ? hi * tile : n;
        hash = x->prefix[begin + hi] - x->prefix[begin + lo];
        if (to) memcpy(*to, x->list + begin + lo, (hi - lo) * sizeof **to);
        *count = hi - lo;
    }
    if (to) *to += *count;
    return hash;
}

/* Cuts every part of depth d by the level; false if that makes a part that is no node, or parts
 * that no R adds up. Fills depth d + 1. */
static bool cut_all(struct search *s, int d, struct mr_sum_level *level)
{
    const struct depth *x = &s->depth[d];
    struct depth *y = &s->depth[d + 1];
    unsigned ways = MR_WAYS_ALL;
    bool several = false;
    y->parts = 0;
    uint32_t *to = y->list;
    for (size_t p = 0; p < x->parts; p++) {
        const struct part *whole = &x->part[p];
        size_t n = whole->end - whole->begin, first = y->parts;
        struct mr_sum_level l = *level;
        size_t tiles = (n + (size_t)l.tile - 1) / (size_t)l.tile;
        if (l.cut == MR_CUT_EVERY || (size_t)l.parts > tiles) l.parts = (int)tiles;
        if (l.cut == MR_CUT_EVERY) l.cut = MR_CUT_RUNS;
        for (size_t k = 0, count; k < (size_t)l.parts; k++) {
            size_t begin = (size_t)(to - y->list);
            uint64_t hash = cut_part(x, &l, whole->begin, n, k, &to, &count);
            s->work += count / 8 + 1;
            if (count == 0) continue;
            uint32_t node = mr_index_find(&s->index, hash);
            if (node == UINT32_MAX) return false;
            y->part[y->parts++] = (struct part){node, begin, begin + count};
            s->index.slot[y->parts - 1] = node;
        }
        ways &= mr_index_ways(&s->index, s->index.slot + first, y->parts - first, whole->node);
        if (!ways) return false;
        several |= y->parts - first > 1;
    }
    level->reduce = mr_first_way(ways);
    y->prefix[0] = 0;
    for (size_t i = 0; i < (size_t)(to - y->list); i++)
        y->prefix[i + 1] = y->prefix[i] + mr_term_hash(y->list[i]);
    return several;
}

static void read_depth(struct search *s, int d, int left);

/* Choices that make the same parts succeed or fail together: the parts are read once, and of those
 * that succeed the sums found are written again with the other choice. */
struct tried {
    uint64_t parts[64];
    size_t from[64], to[64], count;
};

static void try_level(struct search *s, int d, int left, struct mr_sum_level level, struct tried *t)
{
    if (s->work > WORK || s->found == s->room) return;
    size_t count;
    const struct depth *x = &s->depth[d];
    /* The second part of the first whole first: most choices fail there. */
    struct mr_sum_level probe = level;
    size_t n = x->part[0].end - x->part[0].begin,
           tiles = (n + (size_t)level.tile - 1) / (size_t)level.tile;
    if (probe.cut == MR_CUT_EVERY || (size_t)probe.parts > tiles) probe.parts = (int)tiles;
    if (probe.cut == MR_CUT_EVERY) probe.cut = MR_CUT_RUNS;
    s->work += 8;
    for (size_t k = 0; k < 2 && k < (size_t)probe.parts; k++) {
        uint64_t hash = cut_part(x, &probe, x->part[0].begin, n, k, NULL, &count);
        if (count && mr_index_find(&s->index, hash) == UINT32_MAX) return;
    }
    if (!cut_all(s, d, &level)) return;
    s->level[d] = level;
    uint64_t parts = level.reduce;
    for (size_t p = 0; p < s->depth[d + 1].parts; p++)
        parts = mr_mix(parts * 3 + s->depth[d + 1].part[p].node);
    for (size_t i = 0; i < t->count; i++) {
        if (t->parts[i] != parts) continue;
        for (size_t f = t->from[i]; f < t->to[i]; f++) {
            struct mr_sum_shape shape = s->out[f];
            shape.level[shape.levels - 1 - d] = level;
            put_shape(s, &shape);
        }
        return;
    }
    size_t from = s->found;
    read_depth(s, d + 1, left - 1);
    if (t->count == 64) return;
    t->parts[t->count] = parts;
    t->from[t->count] = from;
    t->to[t->count++] = s->found;
}

static void try_tile(struct search *s, int d, int left, size_t n, size_t size, size_t tile,
                     enum mr_cut cut, struct tried *t)
{
    if (size % tile || tile > MR_SUM_TILE) return;
    size_t tiles = (n + tile - 1) / tile, per = size / tile;
    /* All S with ceil(tiles / S) == per. More runs than are there leave the others empty, which
     * shows only where parts of several sizes are cut. Runs of one tile each are every. */
    size_t least = (tiles + per - 1) / per, most = per > 1 ? (tiles - 1) / (per - 1) : least;
    if (cut == MR_CUT_RUNS && !s->depth[d].uneven) most = least;
    if (cut == MR_CUT_EVEN && per == 1) return;
    for (size_t parts = least; parts <= most && parts <= MR_SUM_PARTS; parts++)
        try_level(s, d, left, (struct mr_sum_level){cut, (int)parts, (int)tile, 0}, t);
}

static const size_t usual[] = {1, 64, 32, 128, 16, 8, 256, 4, 2};
enum { USUAL = sizeof usual / sizeof *usual };

static bool is_usual(size_t tile)
{
    for (int i = 0; i < USUAL; i++)
        if (usual[i] == tile) return true;
    return false;
}

/* All choices whose first part is a run of `size` terms: tiles that kernels have first, then all
 * others, ascending. */
static void try_runs(struct search *s, int d, int left, size_t n, size_t size, struct tried *t)
{
    const struct mr_sum_level every = {MR_CUT_EVERY, 0, (int)size, 0};
    bool many = (n + size - 1) / size > 64;
    if (many && size <= MR_SUM_TILE) try_level(s, d, left, every, t);
    for (int c = MR_CUT_RUNS; c <= MR_CUT_EVEN; c++) {
        enum mr_cut cut = (enum mr_cut)c;
        for (int i = 0; i < USUAL; i++) try_tile(s, d, left, n, size, usual[i], cut, t);
        if (c == MR_CUT_RUNS && !many && size <= MR_SUM_TILE) try_level(s, d, left, every, t);
        size_t i = 1;
        for (; i * i <= size; i++)
            if (!is_usual(i)) try_tile(s, d, left, n, size, i, cut, t);
        for (i--; i > 0; i--)
            if (size % i == 0 && i * i < size && !is_usual(size / i))
                try_tile(s, d, left, n, size, size / i, cut, t);
    }
}

/* How many of n terms the first part of a deal gets: `tile` of each `turn`; 0: no such deal. */
static size_t dealt(size_t n, size_t turn, size_t tile)
{
    size_t last = n % turn;
    return turn % tile ? 0 : n / turn * tile + (last < tile ? last : tile);
}

/* Reads depth d with exactly `left` more levels. */
static void read_depth(struct search *s, int d, int left)
{
    if (left == 0) {
        read_leaves(s, d);
        return;
    }
    struct depth *x = &s->depth[d];
    /* The largest part decides best, and it is the first to fail. */
    x->uneven = false;
    for (size_t p = 1; p < x->parts; p++) {
        struct part first = x->part[0], other = x->part[p];
        x->uneven |= other.end - other.begin != first.end - first.begin;
        if (other.end - other.begin <= first.end - first.begin) continue;
        x->part[0] = other;
        x->part[p] = first;
    }
    struct tried *tried = calloc(1, sizeof *tried);
    if (!tried) return;
    const struct part *whole = &x->part[0];
    const uint32_t *list = x->list + whole->begin;
    size_t n = whole->end - whole->begin, tile = 1, next = 0;
    for (uint32_t a = list[0]; a != whole->node && s->work < WORK; a = s->index.parent[a]) {
        /* Parts are added two at a time. */
        if (!mr_index_binary(&s->index, s->index.parent[a])) continue;
        size_t size = s->index.size[a];
        if (s->index.set[a] == x->prefix[whole->begin + size] - x->prefix[whole->begin]) {
            try_runs(s, d, left, n, size, tried);
            continue;
        }
        size_t gap = tile;
        while (gap < n && mr_index_below(&s->index, list[gap], a)) gap++;
        if (gap != tile || next == 0) next = n;
        tile = gap;
        /* The node above holds more terms, so the next after the gap only comes nearer. */
        size_t at = tile;
        while (at < next && !mr_index_below(&s->index, list[at], a)) at++;
        s->work += at - tile + 1;
        next = at;
        if (next < n && size == dealt(n, next, tile) && next / tile <= MR_SUM_PARTS &&
            tile <= MR_SUM_TILE)
            try_level(s, d, left,
                      (struct mr_sum_level){MR_CUT_DEAL, (int)(next / tile), (int)tile, 0}, tried);
    }
    free(tried);
}

static void close_search(struct search *s)
{
    mr_index_close(&s->index);
    for (int d = 0; d <= MR_SUM_LEVELS; d++) {
        free(s->depth[d].part);
        free(s->depth[d].list);
        free(s->depth[d].prefix);
    }
}

static bool open_search(struct search *s, const struct mr_tree *tree)
{
    size_t n = tree->terms;
    bool good = mr_index_open(&s->index, tree);
    for (int d = 0; d <= MR_SUM_LEVELS; d++) {
        struct depth *x = &s->depth[d];
        x->part = malloc(n * sizeof *x->part);
        x->list = malloc(n * sizeof *x->list);
        x->prefix = malloc((n + 1) * sizeof *x->prefix);
        good = good && x->part && x->list && x->prefix;
    }
    if (!good) return false;
    struct depth *x = &s->depth[0];
    x->parts = 1;
    x->part[0] = (struct part){(uint32_t)(n + tree->nodes - 1), 0, n};
    x->prefix[0] = 0;
    for (size_t i = 0; i < n; i++) {
        x->list[i] = (uint32_t)i;
        x->prefix[i + 1] = x->prefix[i] + mr_term_hash((uint32_t)i);
    }
    return true;
}

enum mr_status mr_tree_lines(const struct mr_tree *tree, const char *operands,
                             struct mr_sum_shape *out, size_t room, size_t *found,
                             struct mr_error *err)
{
    struct search s = {.operands = operands, .out = out, .room = room};
    *found = 0;
    if (!open_search(&s, tree)) {
        close_search(&s);
        return mr_fail(err, MR_ERR_MEMORY, "a tree of %zu terms: out of memory", tree->terms);
    }
    for (int levels = 0; levels <= MR_SUM_LEVELS && s.found == 0; levels++)
        read_depth(&s, 0, levels);
    close_search(&s);
    enum mr_status status = MR_OK;
    for (size_t i = 0; i < s.found && !status; i++) {
        struct mr_tree again;
        status = mr_tree_of_sum(&out[i], tree->terms, &again, err);
        if (status) break;
        if (mr_tree_same(&again, tree)) out[(*found)++] = out[i];
        mr_tree_free(&again);
    }
    return status;
}
