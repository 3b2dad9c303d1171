/* The tree of a sum: which terms meet in which addition. */
#ifndef MOEREF_TREE_H
#define MOEREF_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../status.h"

/* Leaves are terms 0 .. terms - 1, and so are their ids; node k has id terms + k. The form is
 * canonical: children by their smallest term, nodes after their children (post-order), so the root
 * is the last node. Two trees are equal if and only if their arrays are: the operands of an
 * addition may change places, and so may the terms of a fused node. */
struct mr_tree {
    size_t terms, nodes;
    uint32_t *begin; /* [nodes + 1]: node k adds child[begin[k]] ... child[begin[k + 1] - 1] */
    uint32_t *child; /* [terms + nodes - 1] ids */
};

#define MR_TREE_ROOT UINT32_MAX

/* parent[id] of terms leaves and `nodes` nodes in any order; the root's is MR_TREE_ROOT. A node of
 * one child is left out. MR_ERR_VALUE if that is no tree over the terms. */
enum mr_status mr_tree_make(size_t terms, size_t nodes, const uint32_t *parent, struct mr_tree *out,
                            struct mr_error *err);
void mr_tree_free(struct mr_tree *tree);
bool mr_tree_same(const struct mr_tree *a, const struct mr_tree *b);
size_t
mr_tree_widest(const struct mr_tree *tree); /* the most children of a node; 0 without nodes */

/* For people: chains, parts that are alike but for a shift, and what is added to what, about one
 * line for each idea; at most `lines` lines (0: no end), then how many are left out. `start`: the
 * term to print as "c", the start of the accumulator; terms or more: none. */
void mr_tree_print(const struct mr_tree *tree, size_t start, size_t lines, FILE *to);
/* All of it as nested brackets on one line: ((0 1) 2); a fused node is (0 1 2 3). */
void mr_tree_nested(const struct mr_tree *tree, FILE *to);

#endif
