/* Sets, ways and chains in a tree (tree_private.h). */
#include "tree_private.h"

#include <stdlib.h>
#include <string.h>

#include "mma.h"

uint64_t mr_mix(uint64_t x) /* MurmurHash3's finaliser, by Austin Appleby (public domain) */
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
    return x ^ x >> 33;
}

uint64_t mr_term_hash(uint32_t term)
{
    return mr_mix(term + 0x9e3779b97f4a7c15);
}

static uint64_t node_key(uint64_t sum_of_children)
{
    return mr_mix(sum_of_children * 3 + 1);
}

static void fill(struct mr_index *x)
{
    const struct mr_tree *t = x->tree;
    for (uint32_t i = 0; i < t->terms; i++) {
        x->size[i] = 1;
        x->set[i] = x->key[i] = mr_term_hash(i);
    }
    for (size_t k = 0; k < t->nodes; k++) {
        size_t id = t->terms + k;
        uint64_t sum = 0;
        x->size[id] = 0;
        x->set[id] = 0;
        for (uint32_t i = t->begin[k]; i < t->begin[k + 1]; i++) {
            uint32_t c = t->child[i];
            x->parent[c] = (uint32_t)id;
            x->size[id] += x->size[c];
            x->set[id] += x->set[c];
            sum += x->key[c];
        }
        x->key[id] = node_key(sum);
    }
    x->parent[x->ids - 1] = MR_TREE_ROOT;
    /* Places of leaves in the order of a walk; parents come before children from the end on. */
    x->first[x->ids - 1] = 0;
    for (size_t k = t->nodes; k-- > 0;) {
        uint32_t at = x->first[t->terms + k];
        for (uint32_t i = t->begin[k]; i < t->begin[k + 1]; i++) {
            x->first[t->child[i]] = at;
            at += x->size[t->child[i]];
        }
    }
    for (size_t id = 0; id < x->ids; id++) {
        size_t at = mr_mix(x->set[id]) & x->mask;
        while (x->table[at] != UINT32_MAX) at = (at + 1) & x->mask;
        x->table[at] = (uint32_t)id;
    }
}

bool mr_index_open(struct mr_index *x, const struct mr_tree *tree)
{
    size_t ids = tree->terms + tree->nodes;
    *x = (struct mr_index){.terms = tree->terms, .ids = ids, .tree = tree};
    for (x->mask = 16; x->mask < 2 * ids; x->mask *= 2) {
    }
    x->parent = malloc(ids * sizeof *x->parent);
    x->size = malloc(ids * sizeof *x->size);
    x->first = malloc(ids * sizeof *x->first);
    x->set = malloc(ids * sizeof *x->set);
    x->key = malloc(ids * sizeof *x->key);
    x->table = malloc(x->mask * sizeof *x->table);
    x->slot = malloc(tree->terms * sizeof *x->slot);
    x->scratch = malloc(tree->terms * sizeof *x->scratch);
    if (!x->parent || !x->size || !x->first || !x->set || !x->key || !x->table || !x->slot ||
        !x->scratch)
        return false;
    memset(x->table, 0xff, x->mask * sizeof *x->table);
    x->mask--;
    fill(x);
    return true;
}

void mr_index_close(struct mr_index *x)
{
    free(x->parent);
    free(x->size);
    free(x->first);
    free(x->set);
    free(x->key);
    free(x->table);
    free(x->slot);
    free(x->scratch);
    *x = (struct mr_index){0};
}

uint32_t mr_index_find(const struct mr_index *x, uint64_t set)
{
    for (size_t at = mr_mix(set) & x->mask; x->table[at] != UINT32_MAX; at = (at + 1) & x->mask)
        if (x->set[x->table[at]] == set) return x->table[at];
    return UINT32_MAX;
}

bool mr_index_below(const struct mr_index *x, uint32_t term, uint32_t id)
{
    return x->first[term] - x->first[id] < x->size[id];
}

bool mr_index_binary(const struct mr_index *x, uint32_t id)
{
    const uint32_t *begin = &x->tree->begin[id - x->terms];
    return begin[1] - begin[0] == 2;
}

/* Adds `from` to `into` if one node adds just the two. */
static bool join(const struct mr_index *x, uint32_t *into, uint32_t from)
{
    uint32_t up = x->parent[*into];
    if (up == MR_TREE_ROOT || x->parent[from] != up || !mr_index_binary(x, up)) return false;
    *into = up;
    return true;
}

/* The additions of plan.c, as long as the tree has them. */
static bool adds_up(const struct mr_index *x, enum mr_reduce how, uint32_t *slot, size_t n)
{
    size_t d;
    switch (how) {
    case MR_REDUCE_ORDER:
        for (size_t i = 1; i < n; i++)
            if (!join(x, &slot[0], slot[i])) return false;
        return true;
    case MR_REDUCE_REVERSE:
        for (size_t i = n - 1; i > 0; i--)
            if (!join(x, &slot[i - 1], slot[i])) return false;
        return true;
    case MR_REDUCE_HALVES:
        for (d = 1; d < n; d *= 2) {
        }
        for (d /= 2; d > 0; d /= 2)
            for (size_t i = 0; i < d && i + d < n; i++)
                if (!join(x, &slot[i], slot[i + d])) return false;
        return true;
    case MR_REDUCE_PAIRS:
        for (d = 1; d < n; d *= 2)
            for (size_t i = 0; i + d < n; i += 2 * d)
                if (!join(x, &slot[i], slot[i + d])) return false;
        return true;
    }
    return false;
}

static const enum mr_reduce ways_in_order[] = {MR_REDUCE_ORDER, MR_REDUCE_HALVES, MR_REDUCE_PAIRS,
                                               MR_REDUCE_REVERSE};

unsigned mr_index_ways(struct mr_index *x, const uint32_t *node, size_t n, uint32_t whole)
{
    unsigned ways = 0;
    for (int i = 0; i < 4; i++) {
        memcpy(x->scratch, node, n * sizeof *node);
        if (adds_up(x, ways_in_order[i], x->scratch, n) && x->scratch[0] == whole)
            ways |= 1u << ways_in_order[i];
    }
    return ways;
}

enum mr_reduce mr_first_way(unsigned ways)
{
    for (int i = 0; i < 4; i++)
        if (ways >> ways_in_order[i] & 1) return ways_in_order[i];
    return MR_REDUCE_ORDER;
}

/* How well a row of the table serves to name a step: the operands' type first, then what is most in
 * use. */
static int liking(const struct mr_mma *m, const char *operands)
{
    static const char *const architectures[] = {"sm_90", "sm_80", "sm_100", "sm_89", "sm_75"};
    int score = 0;
    size_t length = operands ? strcspn(operands, "-") : 0;
    if (operands && m->a == m->b && m->a == (enum mr_mma_type)mr_mma_type_parse(operands, length) &&
        (m->accumulator == MR_MMA_FP16) == !strcmp(operands + length, "-fp16"))
        score += 100;
    if (m->accumulator != MR_MMA_FP16) score += 10;
    if (m->evidence) score += 8;
    for (int i = 0; i < 5; i++)
        if (!strcmp(m->architecture, architectures[i])) score += 5 - i;
    return score;
}

static bool same_kind(const struct mr_mma *a, const struct mr_mma *b)
{
    return (a->form == MR_MMA_BY_FP16) == (b->form == MR_MMA_BY_FP16) && a->terms == b->terms;
}

size_t mr_leaf_kinds(const char *operands, struct mr_sum_shape out[MR_LEAF_KINDS])
{
    size_t kinds = 0;
    out[kinds++] = (struct mr_sum_shape){.leaf = MR_LEAF_FMA};
    for (size_t i = 0; i < mr_mma_count(); i++) {
        const struct mr_mma *m = mr_mma_at(i);
        if (m->form != MR_MMA_PLAIN && m->form != MR_MMA_BY_FP16) continue;
        size_t k = 1;
        while (k < kinds && !same_kind(out[k].mma, m)) k++;
        if (k == kinds && kinds < MR_LEAF_KINDS)
            out[kinds++] = (struct mr_sum_shape){.leaf = MR_LEAF_MMA, .mma = m};
        else if (k < kinds && liking(m, operands) > liking(out[k].mma, operands))
            out[k].mma = m;
    }
    /* Of parts so short that several widths fit the best liked comes first. */
    for (size_t i = 2; i < kinds; i++)
        for (size_t k = i; k > 1 && liking(out[k].mma, operands) > liking(out[k - 1].mma, operands);
             k--) {
            struct mr_sum_shape other = out[k];
            out[k] = out[k - 1];
            out[k - 1] = other;
        }
    return kinds;
}

/* A node over what is below (0: nothing) and those of n terms at places lo to hi of each four. */
static uint64_t step_key(uint64_t below, const uint32_t *term, size_t n, unsigned lo, unsigned hi)
{
    uint64_t sum = 0, last = 0;
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (i % 4 < lo || i % 4 > hi) continue;
        sum += last = mr_term_hash(term[i]);
        count++;
    }
    if (count == 0) return below;
    return below ? node_key(below + sum) : count > 1 ? node_key(sum) : last;
}

uint64_t mr_leaf_key(const struct mr_sum_shape *leaf, const uint32_t *term, size_t n)
{
    bool pairs = leaf->leaf == MR_LEAF_MMA && leaf->mma->form == MR_MMA_BY_FP16;
    size_t width = leaf->leaf == MR_LEAF_MMA ? mr_mma_step_columns(leaf->mma) : 1;
    uint64_t c = 0;
    for (size_t at = 0; at < n; at += width) {
        size_t count = n - at < width ? n - at : width;
        if (pairs) {
            uint64_t sum = step_key(step_key(0, term + at, count, 0, 1), term + at, count, 2, 3);
            c = c ? node_key(c + sum) : sum;
        } else {
            c = step_key(c, term + at, count, 0, 3);
        }
    }
    return c;
}
