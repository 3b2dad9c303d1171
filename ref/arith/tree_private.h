/* What tree_line.c asks of a tree: is this set of terms a node, how are these nodes added up, is
 * this a chain. Internal. */
#ifndef MOEREF_TREE_PRIVATE_H
#define MOEREF_TREE_PRIVATE_H

#include "sum.h"
#include "tree.h"

struct mr_index {
    size_t terms, ids;
    const struct mr_tree *tree;
    uint32_t *parent; /* [ids] */
    uint32_t *size;   /* [ids] terms below */
    uint32_t *first;  /* [ids] in a walk: below id are places first .. first + size - 1 */
    uint64_t *set;    /* [ids] sum of the hashes of the terms below */
    uint64_t *key;    /* [ids] of the tree below, terms told apart, children in any order */
    uint32_t *table;  /* set -> id, open addressing */
    size_t mask;
    uint32_t *slot, *scratch; /* [terms] */
};

bool mr_index_open(struct mr_index *index, const struct mr_tree *tree);
void mr_index_close(struct mr_index *index);
uint64_t mr_mix(uint64_t x);
uint64_t mr_term_hash(uint32_t term);
/* The id with this set of terms, or UINT32_MAX. */
uint32_t mr_index_find(const struct mr_index *index, uint64_t set);
bool mr_index_below(const struct mr_index *index, uint32_t term, uint32_t id);
bool mr_index_binary(const struct mr_index *index, uint32_t id);

/* By which R (bit 1 << R) the n nodes are added up to `whole`. */
#define MR_WAYS_ALL 15u
unsigned mr_index_ways(struct mr_index *index, const uint32_t *node, size_t n, uint32_t whole);
enum mr_reduce mr_first_way(unsigned ways);

/* The leaves that trees tell apart, one for each, in the order of preference. */
enum { MR_LEAF_KINDS = 16 };
size_t mr_leaf_kinds(const char *operands, struct mr_sum_shape out[MR_LEAF_KINDS]);
/* The key of the tree of a leaf's chain over the terms. */
uint64_t mr_leaf_key(const struct mr_sum_shape *leaf, const uint32_t *term, size_t n);

#endif
