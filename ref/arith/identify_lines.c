/* From the layouts that fit to lines: every frame of a layout, with every way of adding up that
 * comes to a combination that fits; then by sum, the simplest first. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "identify_private.h"

/* The finaliser of MurmurHash3, by Austin Appleby (public domain): a bijection of 64 bits. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
    return x ^ x >> 33;
}

static uint64_t add_keys(uint64_t x, uint64_t y)
{
    return mix(x + y + 1);
}

/* As reduce in plan.c. */
static uint64_t reduce_keys(uint64_t *k, size_t n, unsigned how)
{
    size_t d = 1;
    switch (how) {
    case MR_REDUCE_ORDER:
        for (size_t i = 1; i < n; i++) k[0] = add_keys(k[0], k[i]);
        break;
    case MR_REDUCE_REVERSE:
        for (size_t i = n - 1; i > 0; i--) k[i - 1] = add_keys(k[i - 1], k[i]);
        break;
    case MR_REDUCE_HALVES:
        while (d < n) d *= 2;
        for (d /= 2; d > 0; d /= 2)
            for (size_t i = 0; i < d && i + d < n; i++) k[i] = add_keys(k[i], k[i + d]);
        break;
    default:
        for (; d < n; d *= 2)
            for (size_t i = 0; i + d < n; i += 2 * d) k[i] = add_keys(k[i], k[i + d]);
    }
    return k[0];
}

static uint64_t term_key(uint32_t term)
{
    return mix(term + 0x9e3779b97f4a7c15);
}

/* Keys of the parts. The terms of one tensor-core step may change places. A product is a sum of one
 * term; adding another is an addition, if it was rounded (or needed no rounding) before. */
static void part_keys(const struct identify_leaf *leaf, const struct mr_laid *l, uint64_t *part)
{
    size_t width = leaf->mma ? mr_mma_step_columns(leaf->mma) : 1;
    for (size_t p = 0; p < l->parts; p++) {
        size_t i = l->begin[p], end = l->begin[p + 1];
        uint64_t key = leaf->mma ? width : term_key(l->order[i++]);
        while (i < end) {
            uint64_t step = 0;
            for (size_t n = 0; n < width && i < end; n++, i++) step += term_key(l->order[i]);
            key = leaf->how == BY_ADDING ? add_keys(key, step) : mix(key * 3 + mix(step));
        }
        part[p] = key;
    }
}

static uint64_t combine_keys(const struct mr_laid *l, unsigned combination, const uint64_t *part,
                             uint64_t *key)
{
    memcpy(key, part, l->parts * sizeof *key);
    for (int v = 0; v < l->levels; v++) {
        unsigned how = mr_combination_reduce(combination, v);
        uint64_t *from = key;
        for (size_t node = 0; node < l->nodes[v]; node++) {
            size_t n = l->children[v][node];
            uint64_t sum = reduce_keys(from, n, how);
            from += n;
            key[node] = sum;
        }
    }
    return key[0];
}

uint64_t identify_key(const struct identify_leaf *leaf, const struct mr_laid *l,
                      unsigned combination, uint64_t *part)
{
    part_keys(leaf, l, part);
    return combine_keys(l, combination, part, part + l->parts);
}

struct mr_arith identify_arith(const struct identify *s, const struct identify_leaf *leaf, int type,
                               const struct mr_frame *frame, unsigned combination,
                               unsigned promote)
{
    const struct identify_operands *o = &s->operands[leaf->operands];
    struct mr_arith a = {.logits = s->type[type], .hidden = o->hidden, .gate = o->gate};
    a.sum = mr_frame_shape(frame, combination, promote);
    a.sum.leaf = leaf->leaf;
    a.sum.mma = leaf->mma;
    return a;
}

/* How simple a line is, as bytes to be compared: levels; ways that are not in order; cuts from the
 * outermost in, in the order of the grammar, with their parts and tiles; ways; leaf and type. */
enum { RANK = 2 + 7 * MR_FRAME_LEVELS + MR_FRAME_LEVELS + 2 };
struct entry {
    size_t text;   /* where it begins in list.text */
    uint64_t key;  /* of the tree, leaf and type */
    uint32_t best; /* place of the simplest line of its sum */
    uint8_t rank[RANK];
};

static void rank_of(const struct mr_sum_shape *sum, size_t leaf, int type, uint8_t rank[RANK])
{
    uint8_t *to = rank + 2;
    memset(rank, 0, RANK);
    rank[0] = (uint8_t)sum->levels;
    for (int i = sum->levels - 1; i >= 0; i--) {
        const struct mr_sum_level *l = &sum->level[i];
        rank[1] += l->reduce != MR_REDUCE_ORDER;
        *to++ = (uint8_t)l->cut;
        *to++ = (uint8_t)(l->parts >> 8);
        *to++ = (uint8_t)l->parts;
        for (int shift = 24; shift >= 0; shift -= 8) *to++ = (uint8_t)(l->tile >> shift);
    }
    for (int i = sum->levels - 1; i >= 0; i--) *to++ = (uint8_t)sum->level[i].reduce;
    rank[RANK - 2] = (uint8_t)leaf;
    rank[RANK - 1] = (uint8_t)type;
}

struct list {
    struct entry *entry;
    char *text; /* all lines, one after the other */
    size_t count, room, used, text_room;
    bool failed;
};

static void push(struct list *list, const struct mr_arith *a, size_t leaf, int type, uint64_t key)
{
    if (list->failed) return;
    if (list->count == list->room) {
        size_t room = list->room * 2 + 64;
        struct entry *more = realloc(list->entry, room * sizeof *more);
        if (more) list->entry = more;
        list->room = more ? room : list->room;
        list->failed |= !more;
    }
    if (list->text_room - list->used < MR_ARITH_TEXT) {
        size_t room = list->text_room * 2 + 16 * MR_ARITH_TEXT;
        char *more = realloc(list->text, room);
        if (more) list->text = more;
        list->text_room = more ? room : list->text_room;
        list->failed |= !more;
    }
    if (list->failed) return;
    struct entry *e = &list->entry[list->count++];
    *e = (struct entry){.text = list->used, .key = key};
    mr_arith_print(a, list->text + list->used, MR_ARITH_TEXT);
    list->used += strlen(list->text + list->used) + 1;
    rank_of(&a->sum, leaf, type, e->rank);
}

/* All lines of one frame that come to combinations that fit. key[combination]. */
static void push_frame(const struct identify *s, const struct identify_candidate *c,
                       const struct mr_laid *laid, const struct mr_frame *f, const uint64_t *key,
                       struct list *list)
{
    const struct identify_leaf *leaf = &s->leaf[c->leaf];
    uint8_t reduces[MR_FRAME_LEVELS] = {0};
    unsigned promotes = 0;
    for (int i = 0; i < f->levels; i++) {
        reduces[i] = f->level[i].reduces & MR_BY_ALL;
        if (f->level[i].reduces & MR_BY_PROMOTE) promotes |= 1u << i;
    }
    for (mr_combinations r = mr_combinations_of(reduces, f->levels); r; r &= r - 1) {
        unsigned b = (unsigned)__builtin_ctzll(r), stands = mr_laid_combination(laid, b);
        for (int t = 0; t < s->types; t++) {
            if (!(c->alive[t] >> stands & 1)) continue;
            /* fma and mul-add of single products are one. */
            uint64_t of_leaf = leaf->mma ? 64 + c->leaf : leaf->operands;
            uint64_t k = mix(key[stands] + of_leaf * 8 + (uint64_t)t);
            for (unsigned p = promotes;; p = (p - 1) & promotes) { /* every subset, none last */
                bool in_order = true;
                for (int i = 0; i < f->levels; i++)
                    in_order &= !(p >> i & 1) || mr_combination_reduce(b, i) == MR_REDUCE_ORDER;
                if (in_order) {
                    struct mr_arith a = identify_arith(s, leaf, t, f, b, p);
                    push(list, &a, c->leaf + 1, t, k);
                }
                if (!p) break;
            }
        }
    }
}

static void push_candidate(const struct identify *s, const struct identify_candidate *c,
                           struct mr_laid *laid, uint64_t *scratch, struct list *list)
{
    const struct identify_leaf *leaf = &s->leaf[c->leaf];
    const struct mr_family *y = leaf->family;
    const struct mr_layout *layout = &y->layout[c->layout];
    uint64_t key[MR_FRAME_COMBINATIONS] = {0};
    mr_combinations any = 0;
    mr_lay(&y->frame[y->member[layout->first]], laid);
    part_keys(leaf, laid, scratch);
    for (int t = 0; t < s->types; t++) any |= c->alive[t];
    for (; any; any &= any - 1) {
        unsigned b = (unsigned)__builtin_ctzll(any);
        key[b] = combine_keys(laid, b, scratch, scratch + laid->parts);
    }
    for (uint32_t i = 0; i < layout->count && !list->failed; i++)
        push_frame(s, c, laid, &y->frame[y->member[layout->first + i]], key, list);
}

static int by_simplicity(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return memcmp(x->rank, y->rank, RANK);
}

static int by_sum(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->best != y->best) return x->best < y->best ? -1 : 1;
    return by_simplicity(a, b);
}

struct mark {
    uint64_t key;
    uint32_t place;
};

static int by_key(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static enum mr_status group(struct list *list, struct mr_identified *out, struct mr_error *err)
{
    size_t n = list->count;
    if (n) qsort(list->entry, n, sizeof *list->entry, by_simplicity);
    struct mark *mark = malloc((n + 1) * sizeof *mark);
    out->line = malloc((n + 1) * sizeof *out->line);
    if (!mark || !out->line) {
        free(mark);
        return mr_fail(err, MR_ERR_MEMORY, "identify: out of memory");
    }
    for (size_t i = 0; i < n; i++) mark[i] = (struct mark){list->entry[i].key, (uint32_t)i};
    qsort(mark, n, sizeof *mark, by_key);
    for (size_t i = 0, best = 0; i < n; i++) {
        if (!i || mark[i].key != mark[i - 1].key) best = mark[i].place;
        list->entry[mark[i].place].best = (uint32_t)best;
    }
    free(mark);
    if (n) qsort(list->entry, n, sizeof *list->entry, by_sum);
    for (size_t i = 0; i < n; i++) {
        if (!i || list->entry[i].best != list->entry[i - 1].best) out->sums++;
        out->line[i] = (struct mr_identified_line){list->text + list->entry[i].text, out->sums - 1};
    }
    out->lines = n;
    out->text = list->text;
    return MR_OK;
}

enum mr_status identify_lines(const struct identify *s, const struct identify_outcome *o,
                              const bool exact[MR_IDENTIFY_TYPES], struct mr_identified *out)
{
    struct list list = {0};
    struct mr_laid laid;
    uint64_t *scratch = malloc((2 * s->terms + 2) * sizeof *scratch);
    enum mr_status status = mr_laid_new(s->terms, &laid, s->err);
    if (!scratch) list.failed = true;
    for (int t = 0; t < s->types; t++) {
        struct mr_arith a = {.logits = s->type[t]};
        if (exact[t]) push(&list, &a, 0, t, mix((uint64_t)t));
    }
    for (size_t i = 0; i < o->fits && !status && !list.failed; i++) {
        const struct identify_candidate *c = &o->fit[i];
        if (!o->everything || c->layout == 0) push_candidate(s, c, &laid, scratch, &list);
    }
    if (!status) mr_laid_free(&laid);
    free(scratch);
    if (!status && list.failed) status = mr_fail(s->err, MR_ERR_MEMORY, "identify: out of memory");
    if (!status) status = group(&list, out, s->err);
    if (status) free(list.text);
    free(list.entry);
    return status;
}
