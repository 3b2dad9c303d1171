/* The family of sums that identify searches, and which of its shapes are one layout at a given K.
 *
 * A frame is the cuts of a sum's shape (sum.h), without its leaf, and for each cut the ways of
 * adding up parts that belong to the family: so a frame stands for as many lines as it has
 * combinations of those. The frames, S parts, T terms a tile, innermost level first; ways of
 * adding up on the right, `any way` being order, halves, pairs and reverse:
 *
 *     SIMT (leaf fma or mul-add)
 *     none
 *     runs|even|deal : S x T       S 2 to 64, 72 80 96 112 128 132 144 160 192 256 512 1024;
 *                                  T 1 2 4 ... 512                         any way
 *     every:T, promote:T           T 2 4 ... 1024                          any way
 *     lanes / slices               lanes: deal:2|4|8|16|32 x 1|2|4|8, even: and runs:2|4|8|16|32,
 *                                  or every|promote:2 4 ... 256            order halves pairs
 *                                  slices: S 2 to 32, 36 40 44 48 52 56 60 64 72 80 96 112 128 132
 *                                  144 160 192 256 512; deal x 4 8 ... 1024, runs and even x
 *                                  1 8 16 32 64 128; every:16 32 ... 1024  any way
 *     accumulators / lanes / warps deal:2|4|8, even:2|4, every:4|8         order pairs
 *                                  deal:32 x 1|2|4|8, even:32              halves pairs
 *                                  deal|even|runs:2|4|8|16 x (1|4 times the lanes)  order halves
 *     lanes / warps / slices       deal:4|8|16|32 x 1|2|4|8, even:8|16|32  order halves pairs
 *                                  deal|even|runs:2|4|8|16 x the lanes     order halves
 *                                  runs|even|deal: S 2 to 16, 20 24 32 64, runs and even x 1,
 *                                  deal x (1|4 times the warps)            order
 *
 *     MMA (a tensor-core leaf)
 *     none
 *     runs|even|deal : S x T       S as above; T 8 16 ... 512              any way
 *     every:T, promote:T           T 8 16 ... 1024                         any way
 *     warps / slices               deal:2|4|8 x 16|32|64, even:2|4|8, every|promote:32 64 128 256
 *                                                                          order pairs
 *                                  S 2 to 16, 20 24 32 48 64; deal x 32 64 128 256, runs and even
 *                                  x 1 16 64 128                           order halves pairs
 *
 * A frame with a level that leaves its list whole at this K says what a shorter one says, and is
 * left out; so are, with a tensor-core leaf, frames with parts of one term only. */
#ifndef MOEREF_IDENTIFY_FAMILY_H
#define MOEREF_IDENTIFY_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sum.h"

enum { MR_FRAME_LEVELS = 3, MR_FRAME_COMBINATIONS = 64 };
/* Bit of a way of adding up: 1 << enum mr_reduce. That `every` may be written `promote` is a bit
 * of its own: its scales being 1, it is `every` in order, but for the sign of a sum whose parts all
 * underflowed to -0. */
enum {
    MR_BY_ORDER = 1 << MR_REDUCE_ORDER, MR_BY_HALVES = 1 << MR_REDUCE_HALVES,
    MR_BY_PAIRS = 1 << MR_REDUCE_PAIRS, MR_BY_REVERSE = 1 << MR_REDUCE_REVERSE,
    MR_BY_ALL = 15, MR_BY_PROMOTE = 16
};

struct mr_frame_level {
    uint8_t cut, reduces;
    uint16_t parts;
    uint32_t tile;
};
struct mr_frame {
    int levels;
    struct mr_frame_level level[MR_FRAME_LEVELS];
};

/* A combination says how each level is added up: bits 2i and 2i + 1 are level i's mr_reduce. */
typedef uint64_t mr_combinations; /* a set of them */
static inline unsigned mr_combination_reduce(unsigned combination, int level)
{
    return combination >> (2 * level) & 3;
}
/* All combinations of these ways of each level. */
mr_combinations mr_combinations_of(const uint8_t reduces[MR_FRAME_LEVELS], int levels);

/* Frames that put the same terms into the same tree of parts. */
struct mr_layout {
    uint32_t first, count; /* of mr_family.member: its frames */
    uint8_t reduces[MR_FRAME_LEVELS]; /* those of all its frames */
};

struct mr_family {
    size_t terms, frames, layouts;
    struct mr_frame *frame;
    struct mr_layout *layout; /* in the order of their first frames */
    uint32_t *member;         /* frames by layout, ascending in each */
    uint64_t lines;
};

enum mr_family_kind { MR_FAMILY_SIMT, MR_FAMILY_MMA };

/* MR_ERR_MEMORY. */
enum mr_status mr_family_make(enum mr_family_kind kind, size_t terms, struct mr_family *out,
                              struct mr_error *err);
void mr_family_free(struct mr_family *family);

/* The shape of a frame: `promote` bit i writes level i so. */
struct mr_sum_shape mr_frame_shape(const struct mr_frame *frame, unsigned combination,
                                   unsigned promote);

/* A frame laid out for K terms, as mr_plan is, but with the counts of the tree in place of its
 * steps. For many frames in turn. */
struct mr_laid {
    size_t terms, parts;
    uint32_t *order;  /* [terms] */
    uint32_t *begin;  /* [parts + 1] */
    int levels;
    size_t nodes[MR_FRAME_LEVELS];
    uint32_t *children[MR_FRAME_LEVELS]; /* [nodes]: of each node, which are the nodes of the level
                                            below (level 0: the parts) in turn */
    uint32_t most[MR_FRAME_LEVELS];      /* children of any node */
    uint32_t *scratch;
};
enum mr_status mr_laid_new(size_t terms, struct mr_laid *out, struct mr_error *err);
void mr_lay(const struct mr_frame *frame, struct mr_laid *laid);
void mr_laid_free(struct mr_laid *laid);

/* Of at most two parts every way is one way, and of three, pairs is in order: the combination that
 * stands for all that are the same here. */
unsigned mr_laid_combination(const struct mr_laid *laid, unsigned combination);

#endif
