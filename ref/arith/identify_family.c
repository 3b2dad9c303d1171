/* The frames of the family, from tables (identify_family.h states it). */
#include "identify_family.h"

#include <stdlib.h>
#include <string.h>

enum { CUT_RUNS = 1 << MR_CUT_RUNS, CUT_EVEN = 1 << MR_CUT_EVEN, CUT_DEAL = 1 << MR_CUT_DEAL,
       CUT_EVERY = 1 << MR_CUT_EVERY, CUT_SPLITS = CUT_RUNS | CUT_EVEN | CUT_DEAL };

/* Lists end with 0; a range is its ends. */
struct range {
    int low, high;
};
static const struct range all_splits[] = {
    {2, 64},    {72, 72},   {80, 80},   {96, 96},   {112, 112}, {128, 128},   {132, 132},
    {144, 144}, {160, 160}, {192, 192}, {256, 256}, {512, 512}, {1024, 1024}, {0, 0}};
static const struct range outer_splits[] = {
    {2, 32},   {36, 36},   {40, 40},   {44, 44},   {48, 48},   {52, 52},   {56, 56},
    {60, 60},  {64, 64},   {72, 72},   {80, 80},   {96, 96},   {112, 112}, {128, 128},
    {132, 132}, {144, 144}, {160, 160}, {192, 192}, {256, 256}, {512, 512}, {0, 0}};
static const struct range few_splits[] = {{2, 16}, {20, 20}, {24, 24}, {32, 32}, {64, 64}, {0, 0}};
static const struct range mma_splits[] = {{2, 16},  {20, 20}, {24, 24}, {32, 32},
                                          {48, 48}, {64, 64}, {0, 0}};
static const struct range lanes_2_32[] = {{2, 2}, {4, 4}, {8, 8}, {16, 16}, {32, 32}, {0, 0}};
static const struct range lanes_4_32[] = {{4, 4}, {8, 8}, {16, 16}, {32, 32}, {0, 0}};
static const struct range lanes_8_32[] = {{8, 8}, {16, 16}, {32, 32}, {0, 0}};
static const struct range lanes_32[] = {{32, 32}, {0, 0}};
static const struct range two_to_8[] = {{2, 2}, {4, 4}, {8, 8}, {0, 0}};
static const struct range two_or_4[] = {{2, 2}, {4, 4}, {0, 0}};
static const struct range warps[] = {{2, 2}, {4, 4}, {8, 8}, {16, 16}, {0, 0}};
static const struct range no_parts[] = {{1, 1}, {0, 0}};

/* A choice of levels: every cut, with every number of parts, with every power of two of terms from
 * low to high, or only `low` and those of `more`. Relative: times the parts and terms of the level
 * within. */
struct choice {
    unsigned cuts;
    const struct range *parts;
    int low, high;
    unsigned reduces;
    bool relative;
};
enum { CHOICES = 5 };
/* Levels from the inside out; of each level every choice. */
struct block {
    struct choice level[MR_FRAME_LEVELS][CHOICES];
};

#define OHP (MR_BY_ORDER | MR_BY_HALVES | MR_BY_PAIRS)

static const struct block simt[] = {
    {{{{0}}}},
    {{{{CUT_SPLITS, all_splits, 1, 512, MR_BY_ALL, false},
       {CUT_EVERY, no_parts, 2, 1024, MR_BY_ALL | MR_BY_PROMOTE, false}}}},
    {{{{CUT_DEAL, lanes_2_32, 1, 8, OHP, false},
       {CUT_EVEN | CUT_RUNS, lanes_2_32, 1, 1, OHP, false},
       {CUT_EVERY, no_parts, 2, 256, OHP | MR_BY_PROMOTE, false}},
      {{CUT_DEAL, outer_splits, 4, 1024, MR_BY_ALL, false},
       {CUT_EVEN | CUT_RUNS, outer_splits, 1, 1, MR_BY_ALL, false},
       {CUT_EVEN | CUT_RUNS, outer_splits, 8, 128, MR_BY_ALL, false},
       {CUT_EVERY, no_parts, 16, 1024, MR_BY_ALL, false}}}},
    {{{{CUT_DEAL, two_to_8, 1, 1, MR_BY_ORDER | MR_BY_PAIRS, false},
       {CUT_EVEN, two_or_4, 1, 1, MR_BY_ORDER | MR_BY_PAIRS, false},
       {CUT_EVERY, no_parts, 4, 8, MR_BY_ORDER | MR_BY_PAIRS, false}},
      {{CUT_DEAL, lanes_32, 1, 8, MR_BY_HALVES | MR_BY_PAIRS, false},
       {CUT_EVEN, lanes_32, 1, 1, MR_BY_HALVES | MR_BY_PAIRS, false}},
      {{CUT_SPLITS, warps, 1, 1, MR_BY_ORDER | MR_BY_HALVES, true},
       {CUT_SPLITS, warps, 4, 4, MR_BY_ORDER | MR_BY_HALVES, true}}}},
    {{{{CUT_DEAL, lanes_4_32, 1, 8, OHP, false}, {CUT_EVEN, lanes_8_32, 1, 1, OHP, false}},
      {{CUT_SPLITS, warps, 1, 1, MR_BY_ORDER | MR_BY_HALVES, true}},
      {{CUT_EVEN | CUT_RUNS, few_splits, 1, 1, MR_BY_ORDER, false},
       {CUT_DEAL, few_splits, 1, 1, MR_BY_ORDER, true},
       {CUT_DEAL, few_splits, 4, 4, MR_BY_ORDER, true}}}},
};

static const struct block mma[] = {
    {{{{0}}}},
    {{{{CUT_SPLITS, all_splits, 8, 512, MR_BY_ALL, false},
       {CUT_EVERY, no_parts, 8, 1024, MR_BY_ALL | MR_BY_PROMOTE, false}}}},
    {{{{CUT_DEAL, two_to_8, 16, 64, MR_BY_ORDER | MR_BY_PAIRS, false},
       {CUT_EVEN, two_to_8, 1, 1, MR_BY_ORDER | MR_BY_PAIRS, false},
       {CUT_EVERY, no_parts, 32, 256, MR_BY_ORDER | MR_BY_PAIRS | MR_BY_PROMOTE, false}},
      {{CUT_DEAL, mma_splits, 32, 256, OHP, false},
       {CUT_EVEN | CUT_RUNS, mma_splits, 1, 1, OHP, false},
       {CUT_EVEN | CUT_RUNS, mma_splits, 16, 16, OHP, false},
       {CUT_EVEN | CUT_RUNS, mma_splits, 64, 128, OHP, false}}}},
};

/* The finaliser of MurmurHash3, by Austin Appleby (public domain): a bijection of 64 bits. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
    return x ^ x >> 33;
}

/* What a level does to a list of n terms, in a form that is the same for levels that do the same:
 * parts of `size` terms side by side, the last shorter; parts of a cut of its own; or nothing. */
struct effect {
    enum { WHOLE, BLOCKS, EVEN, DEAL } kind;
    size_t parts, tile, size;
};

static struct effect blocks(size_t n, size_t size)
{
    if (size >= n) return (struct effect){WHOLE, 1, 0, n};
    return (struct effect){BLOCKS, (n + size - 1) / size, 0, size};
}

static struct effect effect_of(const struct mr_frame_level *l, size_t n)
{
    size_t tile = l->tile, tiles = (n + tile - 1) / tile, parts = l->parts;
    switch (l->cut) {
    case MR_CUT_RUNS: return blocks(n, (tiles + parts - 1) / parts * tile);
    case MR_CUT_EVEN:
        if (parts >= tiles) return blocks(n, tile);
        /* All parts equal, or only the last a tile shorter. */
        if (tiles % parts == 0) return blocks(n, tiles / parts * tile);
        if (tiles % parts == parts - 1) return blocks(n, (tiles / parts + 1) * tile);
        return (struct effect){EVEN, parts, tile, 0};
    case MR_CUT_DEAL:
        if (parts >= tiles) return blocks(n, tile);
        return parts == 1 ? blocks(n, n) : (struct effect){DEAL, parts, tile, 0};
    default: return blocks(n, tile);
    }
}

/* Terms of part p. */
static size_t part_size(const struct effect *e, size_t n, size_t p)
{
    size_t tiles, last, q;
    switch (e->kind) {
    case BLOCKS: return p + 1 < e->parts ? e->size : n - p * e->size;
    case EVEN:
        tiles = (n + e->tile - 1) / e->tile;
        q = tiles / e->parts + (p < tiles % e->parts);
        return p + 1 < e->parts ? q * e->tile : q * e->tile - (tiles * e->tile - n);
    case DEAL:
        tiles = (n + e->tile - 1) / e->tile;
        last = (tiles - 1) % e->parts;
        q = tiles / e->parts + (p < tiles % e->parts);
        return q * e->tile - (p == last ? tiles * e->tile - n : 0);
    default: return n;
    }
}

/* A hash of what the levels below `levels` do to a list of n terms. *cuts: levels that cut some
 * list, as bits. Parts come in few sizes, and lists of one size are cut alike. */
static uint64_t effects(const struct mr_frame *f, int levels, size_t n, unsigned *cuts)
{
    if (!levels) return 1;
    struct effect e = effect_of(&f->level[levels - 1], n);
    if (e.kind != WHOLE) *cuts |= 1u << (levels - 1);
    uint64_t hash = mix((uint64_t)e.kind + 1);
    hash = mix(hash * 3 + e.parts);
    hash = mix(hash * 3 + e.tile);
    hash = mix(hash * 3 + e.size);
    if (levels == 1) return hash;
    size_t seen[8];
    int sizes = 0;
    for (size_t p = 0; p < e.parts; p++) {
        size_t size = part_size(&e, n, p);
        int i = 0;
        while (i < sizes && seen[i] != size) i++;
        if (i < sizes) continue;
        if (sizes < 8) seen[sizes++] = size;
        hash = mix(hash * 3 + effects(f, levels - 1, size, cuts));
        /* Of BLOCKS only the last differs, of the others sizes come in at most three runs. */
        if (e.kind == BLOCKS && p == 0 && e.parts > 2) p = e.parts - 2;
    }
    return hash;
}

/* Terms of the longest part. */
static size_t longest(const struct mr_frame *f, int levels, size_t n)
{
    if (!levels) return n;
    struct effect e = effect_of(&f->level[levels - 1], n);
    size_t most = 0;
    for (size_t p = 0; p < e.parts; p++)
        if (part_size(&e, n, p) > most) most = part_size(&e, n, p);
    return longest(f, levels - 1, most);
}

struct list {
    struct mr_family *family;
    bool mma;
    uint64_t *hash; /* [room] */
    size_t room;
    bool failed;
};

static void add_frame(struct list *list, const struct mr_frame *f)
{
    struct mr_family *y = list->family;
    unsigned cuts = 0;
    uint64_t hash = mix(effects(f, f->levels, y->terms, &cuts) + (uint64_t)f->levels);
    if (cuts != (1u << f->levels) - 1) return;
    if (list->mma && longest(f, f->levels, y->terms) < 2) return;
    if (y->frames == list->room) {
        size_t room = list->room * 2 + 1024;
        struct mr_frame *frame = realloc(y->frame, room * sizeof *frame);
        if (frame) y->frame = frame;
        uint64_t *more = frame ? realloc(list->hash, room * sizeof *more) : NULL;
        if (!more) {
            list->failed = true;
            return;
        }
        list->hash = more;
        list->room = room;
    }
    list->hash[y->frames] = hash;
    y->frame[y->frames++] = *f;
    uint64_t lines = 1;
    for (int i = 0; i < f->levels; i++) lines *= (uint64_t)__builtin_popcount(f->level[i].reduces);
    y->lines += lines;
}

static void choose(struct list *list, const struct block *b, struct mr_frame *f)
{
    int at = f->levels;
    if (at == MR_FRAME_LEVELS || !b->level[at][0].cuts) {
        add_frame(list, f);
        return;
    }
    for (const struct choice *c = b->level[at]; c < b->level[at] + CHOICES && c->cuts; c++)
        for (int cut = MR_CUT_RUNS; cut <= MR_CUT_EVERY; cut++)
            for (const struct range *r = c->parts; c->cuts >> cut & 1 && r->low; r++)
                for (int parts = r->low; parts <= r->high; parts++)
                    for (int tile = c->low; tile <= c->high && !list->failed; tile *= 2) {
                        uint32_t within = 1;
                        if (c->relative && at > 0)
                            within = f->level[at - 1].tile * f->level[at - 1].parts;
                        f->level[at] = (struct mr_frame_level){
                            (uint8_t)cut, (uint8_t)c->reduces, (uint16_t)parts,
                            (uint32_t)tile * within};
                        f->levels = at + 1;
                        choose(list, b, f);
                        f->levels = at;
                    }
}

/* Frame numbers by hash, then ascending. */
struct tag {
    uint64_t hash;
    uint32_t frame;
};

static int by_hash(const void *a, const void *b)
{
    const struct tag *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return x->frame < y->frame ? -1 : x->frame > y->frame;
}

static int by_first(const void *a, const void *b)
{
    const struct mr_layout *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Gathers frames of one hash to layouts. */
static bool gather(struct mr_family *y, const uint64_t *hash)
{
    struct tag *tag = malloc((y->frames + 1) * sizeof *tag);
    y->layout = malloc((y->frames + 1) * sizeof *y->layout);
    y->member = malloc((y->frames + 1) * sizeof *y->member);
    if (!tag || !y->layout || !y->member) {
        free(tag);
        return false;
    }
    for (size_t i = 0; i < y->frames; i++) tag[i] = (struct tag){hash[i], (uint32_t)i};
    qsort(tag, y->frames, sizeof *tag, by_hash);
    /* first holds the first frame until the layouts are in order. */
    for (size_t i = 0; i < y->frames;) {
        struct mr_layout *l = &y->layout[y->layouts++];
        *l = (struct mr_layout){.first = tag[i].frame};
        for (uint64_t h = tag[i].hash; i < y->frames && tag[i].hash == h; i++) l->count++;
    }
    qsort(y->layout, y->layouts, sizeof *y->layout, by_first);
    uint32_t *where = calloc(y->frames + 1, sizeof *where); /* layout of a first frame */
    if (!where) {
        free(tag);
        return false;
    }
    size_t used = 0;
    for (size_t i = 0; i < y->layouts; i++) {
        where[y->layout[i].first] = (uint32_t)i;
        y->layout[i].first = (uint32_t)used;
        used += y->layout[i].count;
    }
    for (size_t i = 0; i < y->frames;) {
        struct mr_layout *l = &y->layout[where[tag[i].frame]];
        for (uint32_t n = 0; n < l->count; n++, i++) {
            const struct mr_frame *f = &y->frame[tag[i].frame];
            y->member[l->first + n] = tag[i].frame;
            for (int v = 0; v < f->levels && v < MR_FRAME_LEVELS; v++) {
                unsigned r = f->level[v].reduces;
                l->reduces[v] |= (uint8_t)((r & MR_BY_ALL) | (r & MR_BY_PROMOTE ? MR_BY_ORDER : 0));
            }
        }
    }
    free(where);
    free(tag);
    return true;
}

enum mr_status mr_family_make(enum mr_family_kind kind, size_t terms, struct mr_family *out,
                              struct mr_error *err)
{
    *out = (struct mr_family){.terms = terms};
    struct list list = {.family = out, .mma = kind == MR_FAMILY_MMA && terms > 1};
    const struct block *table = kind == MR_FAMILY_SIMT ? simt : mma;
    size_t blocks_ = kind == MR_FAMILY_SIMT ? sizeof simt / sizeof *simt : sizeof mma / sizeof *mma;
    for (size_t i = 0; i < blocks_; i++) {
        struct mr_frame f = {0};
        choose(&list, &table[i], &f);
    }
    bool good = !list.failed && gather(out, list.hash);
    free(list.hash);
    if (good) return MR_OK;
    mr_family_free(out);
    return mr_fail(err, MR_ERR_MEMORY, "the sums of %zu terms to search: out of memory", terms);
}

void mr_family_free(struct mr_family *family)
{
    free(family->frame);
    free(family->layout);
    free(family->member);
    *family = (struct mr_family){0};
}

mr_combinations mr_combinations_of(const uint8_t reduces[MR_FRAME_LEVELS], int levels)
{
    mr_combinations set = 0;
    for (unsigned c = 0; c < MR_FRAME_COMBINATIONS; c++) {
        bool in = true;
        for (int i = 0; i < MR_FRAME_LEVELS; i++) {
            unsigned r = mr_combination_reduce(c, i);
            in &= i < levels ? reduces[i] >> r & 1 : r == 0;
        }
        if (in) set |= (mr_combinations)1 << c;
    }
    return set;
}

struct mr_sum_shape mr_frame_shape(const struct mr_frame *frame, unsigned combination,
                                   unsigned promote)
{
    struct mr_sum_shape shape = {.levels = frame->levels};
    for (int i = 0; i < frame->levels; i++) {
        const struct mr_frame_level *l = &frame->level[i];
        bool has_parts = l->cut != MR_CUT_EVERY;
        shape.level[i] = (struct mr_sum_level){
            promote >> i & 1 ? MR_CUT_PROMOTE : (enum mr_cut)l->cut, has_parts ? l->parts : 0,
            (int)l->tile, (enum mr_reduce)mr_combination_reduce(combination, i)};
    }
    return shape;
}
