/* Between trees and the sums of arithmetic lines. */
#ifndef MOEREF_TREE_LINE_H
#define MOEREF_TREE_LINE_H

#include "sum.h"
#include "tree.h"

/* The tree of a sum of `terms` terms, 1 or more. MR_ERR_UNSUPPORTED for the exact sum, which has
 * none, and for instructions that sum groups exactly first (mxf4, nvf4). */
enum mr_status mr_tree_of_sum(const struct mr_sum_shape *sum, size_t terms, struct mr_tree *out,
                              struct mr_error *err);

/* Sums whose tree this is, the shortest lines first, at most `room`; *found: how many, 0 if no line
 * has the tree. They are one sum at this number of terms and may differ at others: tiles of 64 and
 * of 128, a run or a tile. A tree does not tell fma from mul-add (fma is given), every from promote
 * (every), a fused step of two terms from an addition (fma), nor instructions of the same number of
 * terms: one stands for them, for operands of the type if there is one (a name of mr_reveal_masks;
 * NULL: any). */
enum mr_status mr_tree_lines(const struct mr_tree *tree, const char *operands,
                             struct mr_sum_shape *out, size_t room, size_t *found,
                             struct mr_error *err);

#endif
