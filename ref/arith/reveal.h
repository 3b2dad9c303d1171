/* Order revealing: the order in which a black box adds up n terms, from its results alone.
 *
 * After FPRev (Xie et al., USENIX ATC 2025, arXiv:2411.00442). Term i is +big, term j is -big, all
 * others are `unit`, so small that it is lost beside big. The two meet in their lowest common
 * ancestor and cancel there; every unit below it has been lost by then, every other one counts. So
 *     l(i, j) = n - result / unit
 * is the number of terms under that ancestor. All l(i, .) of one i give the path from i to the root
 * and the sets that join it on the way; each set is then a smaller question. In a node that adds
 * many terms at once (the step of a tensor core) all units beside +big and -big are lost, whichever
 * child they are in, so its children have the same l pairwise: that is how such nodes appear.
 * The term that is asked about is drawn at random, which keeps a chain of n terms at about 2n rows,
 * in whichever direction it runs; all sets of one round are asked together, in few large calls.
 *
 * What masks see: the tree. What they can't: fma against a product rounded first, the accumulator's
 * width, alignment and rounding of a fused node, which of two operands is the accumulator, anything
 * that multiplies by 1.
 *
 * What is refused (MR_ERR_VALUE, with the reason): sums whose order depends on values or changes
 * from run to run, which give counts that no tree has, or probes that the tree does not reproduce.
 * This file, reveal.c, reveal_check.c, tree.c, tree_print.c and status.c need libc and libm only.
 */
#ifndef MOEREF_REVEAL_H
#define MOEREF_REVEAL_H

#include "../status.h"
#include "tree.h"

/* The black box: sums each of `count` rows of `terms` values into out. A product a * b as a term is
 * the callback's affair: a row as A, ones as B, or factors of both. */
struct mr_summer {
    enum mr_status (*sum)(void *context, const float *rows, size_t count, size_t terms, float *out,
                          struct mr_error *err);
    void *context;
};

struct mr_reveal_options {
    float big, unit; /* powers of two */
    /* Most units in one row; a longer row is asked in blocks, the other units being +0. `most`
     * units are counted exactly, and are lost beside big. */
    size_t most;
    size_t rows;   /* most rows a call; 0: what 32 MiB hold */
    int times;     /* each call is made so often, and must give the same bits; 0: once */
    size_t probes; /* further random rows that the tree must reproduce; 0: 64 */
    size_t widest; /* a node of more children is refused; 0: 130 */
    uint64_t seed; /* of the draws; the tree does not depend on it */
};

/* The masks for operands of a type, by name; the accumulator is fp32 if not said. Units are lost
 * beside big if most * unit < big * 2^-25, the widest alignment of a fused step but those of mxf4.
 *     fp32 bf16 tf32   2^120 and 1
 *     fp16             2^15 and 2^-24, at most 8192 units
 *     e4m3             2^16 and 2^-18, at most 256; the callback gives each operand half of the
 *                      exponent
 *     e5m2             2^30 and 2^-32, likewise by halves, at most 4096: an accumulator of 13
 *                      fraction bits counts them
 *     fp16-fp16, e4m3-fp16, e5m2-fp16: an fp16 accumulator. 2^15 and 2^-24 (e4m3: 2^-18), at most
 *                      1024 (e4m3: 128) units
 * If the result is rounded to bf16, lower most to 256; to fp16, to 2048. false: no such name.
 * Leaves fields other than big, unit and most alone. */
bool mr_reveal_masks(const char *name, struct mr_reveal_options *out);

struct mr_reveal_stats {
    size_t calls, rows; /* what the black box was asked */
    size_t probes;      /* further rows that the tree reproduced */
    size_t fused;       /* nodes of more than two children */
};

/* terms: 1 to 2^24. A failure of the callback is handed on. stats may be NULL. */
enum mr_status mr_reveal(const struct mr_summer *summer, size_t terms,
                         const struct mr_reveal_options *options, struct mr_tree *out,
                         struct mr_reveal_stats *stats, struct mr_error *err);

#endif
