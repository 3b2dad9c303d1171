/* Which arithmetic made these logits: every line of a family that gives the observed bits from the
 * hidden states and the gate weight.
 *
 * It is a search, not a look-up. The family: an exact dot (no SUM), and the sums of
 * identify_family.h, of which there are some 600,000 at K = 4096, for each of these leaves:
 *   fma; mul-add where products are not exact;
 *   every tensor-core instruction of mma.h without block scales that takes the operands: their own
 *   type, and tf32; instructions that are one arithmetic count once, by their first name;
 * with operands as stored and, where they are binary32 numbers that bf16 does not hold, each
 * rounded to bf16; and with logits of every type that holds the observed values.
 *
 * How: sums that put the same terms into the same tree of parts are one layout. The most telling
 * outputs come first: where sums are rounded to bf16 or fp16, those whose exact sum lies nearest to
 * where the rounding changes; else those that are smallest, so rounded most finely. Sixteen outputs
 * at a time are summed in every layout that is left, its parts once, and then added up in every
 * way. What is left at last has been compared on all outputs. */
#ifndef MOEREF_IDENTIFY_H
#define MOEREF_IDENTIFY_H

#include "replay.h"

struct mr_identify_options {
    int threads; /* 0: all. The same result for any number of threads. */
    /* Told from the calling thread, done of 1000; NULL: nothing is told. */
    void (*progress)(void *context, int done);
    void *context;
};

/* A line that fits; lines of one `sum` are one sum at this K, of one leaf (equal trees). */
struct mr_identified_line {
    const char *text;
    size_t sum;
};

struct mr_identified {
    /* By sum, the one with the simplest line first: of fewest levels, then of fewest ways that are
     * not in order, then runs, even, deal, every before promote, fewer parts and smaller tiles
     * first; the lines of a sum likewise. */
    struct mr_identified_line *line;
    size_t lines, sums;
    char *text; /* what the lines point into */
    /* Every sum of the family fits: the outputs (none, or all zero, say) tell nothing. Then `line`
     * holds but the simplest line of each leaf. */
    bool everything;
    uint64_t checked;    /* outputs: those that are finite */
    uint64_t not_finite; /* left out: no sum is told by a NaN or an Inf */
    uint64_t mismatches; /* of the best line: 0 if there are lines */
    char nearest[MR_ARITH_TEXT]; /* the best line; of several the first to be searched */
    uint64_t searched;   /* lines of the family at this K */
    bool unverified;     /* no hardware here confirms the instruction of a line (mma.h) */
};

/* observed: [rows, experts], rows 0 .. rows - 1 of hidden, BF16, F16 or F32 (which may hold values
 * of the others). MR_ERR_SHAPE, MR_ERR_DTYPE, MR_ERR_MEMORY; MR_ERR_UNSUPPORTED with scales. */
enum mr_status mr_identify(const struct mr_gemm *gemm, const struct mr_matrix *observed,
                           const struct mr_identify_options *options, struct mr_identified *out,
                           struct mr_error *err);
void mr_identified_free(struct mr_identified *found);

#endif
