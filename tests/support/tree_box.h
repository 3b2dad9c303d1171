/* A black box with a known tree: adds rows up in real binary32 arithmetic along a list of
 * additions, some of them fused as a tensor core fuses. Knows nothing of ref/arith/tree.h but
 * parents. */
#ifndef TREE_BOX_H
#define TREE_BOX_H

#include <stddef.h>
#include <stdint.h>

#include "../../ref/arith/reveal.h"

struct tree_box {
    size_t terms, nodes;
    uint32_t *parent;       /* [terms + nodes]; a node's id is above its children's */
    uint32_t *begin, *from; /* node k adds from[begin[k]] ... */
    size_t calls, rows;     /* that were asked */
};

/* Random additions until one value is left. width: of fused nodes, one in three; 2: none.
 * lean: 0 any two (or width) values at a time, else mostly the last sum and other values. */
void tree_box_random(uint64_t *seed, size_t terms, size_t width, int lean, struct tree_box *out);
void tree_box_free(struct tree_box *box);
enum mr_status tree_box_sum(void *box, const float *rows, size_t count, size_t terms, float *out,
                            struct mr_error *err);
/* Terms below the lowest common ancestor of i and j, by walking up. */
size_t tree_box_meet(const struct tree_box *box, uint32_t i, uint32_t j);

#endif
