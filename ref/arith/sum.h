/* The shape of a sum: in which order, and by which steps, a kernel adds up one dot product. The SUM
 * of an arithmetic line (arith.h), written from the inside out:
 *
 *     SUM    := LEAF { '/' LEVEL }             at most MR_SUM_LEVELS levels, innermost first
 *     LEAF   := 'fma' | 'mul-add' | MMA        how the terms of one part are summed, ascending, from +0
 *     LEVEL  := 'runs:' S ['x' T] [':' R]      S runs of ceil(tiles / S) tiles each; the last ones are
 *                                              shorter or empty
 *             | 'even:' S ['x' T] [':' R]      S runs of tiles, the first (tiles mod S) one tile longer
 *             | 'deal:' S ['x' T] [':' R]      tile t goes to part t mod S
 *             | 'every:' T [':' R]             every tile is a part
 *             | 'promote:' T                   every tile is a part, added to a binary32 accumulator
 *                                              by fma(scale, part, accumulator), from +0
 *     R      := 'halves' | 'pairs' | 'reverse' how the parts are added up; without it, in order
 *
 * fma: c = fma(a, b, c). mul-add: c = c + (a * b rounded). MMA: a name of mma.h, such as
 * hopper-bf16: a chain of its fused steps. Tiles are of T terms (1 if not said; the last may be
 * shorter).
 *
 * A level cuts the list of terms that it is given into parts by position; the next level inwards
 * cuts each part in turn, positions counted from the start of the part; the outermost level gets
 * all K terms in ascending order. Empty parts are left out. Partial sums are binary32 and are added
 * with one rounding to nearest each:
 *     in order   ((p0 + p1) + p2) + ...                    split-K workspaces, serial slices
 *     reverse    ((pn + pn-1) + ...) + p0
 *     halves     i with i + d, d = 16, 8, 4, 2, 1 for 32   xor butterflies and shuffles down: d is the
 *                                                          largest power of two below the count
 *     pairs      i with i + d, d = 1, 2, 4, ...            xor butterflies from 1 upwards
 * A butterfly leaves the same bits in every lane, since addition commutes.
 *
 * Examples, all proven on an H200 (docs/arithmetic.md): cuBLAS's bf16 -> fp32 GEMM in three
 * split-K runs hopper-bf16/runs:3x64; its fp32 SIMT GEMM that deals tiles of 8 to 6 slices
 * fma/deal:6x8; its gemv, 32 lanes and a butterfly, fma/deal:32:halves, or with consecutive terms
 * a lane fma/even:32:halves. */
#ifndef MOEREF_SUM_H
#define MOEREF_SUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../status.h"

struct mr_mma; /* mma.h */

enum mr_leaf { MR_LEAF_EXACT, MR_LEAF_FMA, MR_LEAF_MUL_ADD, MR_LEAF_MMA };
enum mr_cut { MR_CUT_RUNS, MR_CUT_EVEN, MR_CUT_DEAL, MR_CUT_EVERY, MR_CUT_PROMOTE };
enum mr_reduce { MR_REDUCE_ORDER, MR_REDUCE_HALVES, MR_REDUCE_PAIRS, MR_REDUCE_REVERSE };

struct mr_sum_level {
    enum mr_cut cut;
    int parts; /* 1 to MR_SUM_PARTS; of EVERY and PROMOTE not read, 0 */
    int tile;  /* terms, 1 to MR_SUM_TILE */
    enum mr_reduce reduce; /* of PROMOTE: ORDER */
};

#define MR_SUM_LEVELS 4
#define MR_SUM_PARTS 65536
#define MR_SUM_TILE (1 << 20)

struct mr_sum_shape {
    enum mr_leaf leaf;
    const struct mr_mma *mma; /* of MMA; points into the table of mma.h */
    int levels;
    struct mr_sum_level level[MR_SUM_LEVELS]; /* [0] is the innermost */
};

/* Reads a SUM of `length` characters that begins at `line + at`; messages quote line, and count
 * columns in it from 1. */
enum mr_status mr_sum_parse(const char *line, size_t at, size_t length, struct mr_sum_shape *out,
                            struct mr_error *err);
/* Whether a word is meant as a SUM: it begins as one does. */
bool mr_sum_begins(const char *word, size_t length);
#define MR_SUM_TEXT 256
void mr_sum_print(const struct mr_sum_shape *sum, char *text, size_t size);
bool mr_sum_same(const struct mr_sum_shape *a, const struct mr_sum_shape *b);

/* A shape laid out for K terms: the terms in an order in which every part is contiguous, and the
 * additions of partial sums, in an order that may be followed. */
struct mr_plan {
    size_t terms, parts, steps;
    uint32_t *order; /* [terms]: a permutation of 0 .. terms - 1; NULL: ascending */
    uint32_t *begin; /* [parts + 1]: part p is order[begin[p]] ... order[begin[p + 1] - 1] */
    struct mr_plan_step {
        uint32_t into, from; /* partial sum `into` += partial sum `from`; the result is in 0 */
        int32_t block;       /* -1: addition. Else PROMOTE: into = fma(scale[block], from, into),
                                and if into == from, into = fma(scale[block], into, +0);
                                block = first term of the part / tile */
    } *step; /* [steps] */
    size_t depth; /* most roundings that a product passes through: leaf steps, then additions */
};
/* terms >= 0; of 0 terms the sum is +0: no parts. MR_ERR_MEMORY. */
enum mr_status mr_plan_make(const struct mr_sum_shape *sum, size_t terms, struct mr_plan *out,
                            struct mr_error *err);
void mr_plan_free(struct mr_plan *plan);
/* A hash of the tree, to find shapes that are one sum at this K among millions: equal for equal
 * trees (parts that are added may change places, and so may the terms of one fused step), different
 * for others but for a chance of 2^-64 a pair. Instructions count by their terms only. */
enum mr_status mr_plan_key(const struct mr_sum_shape *sum, const struct mr_plan *plan,
                           uint64_t *out, struct mr_error *err);

#endif
