/* Chains of tensor-core steps for many outputs at once: every bit as mr_mma_step gives it.
 *
 *     mr_mma_pack(mma, &gate, NULL, &packed, &err);        once for a gate weight [experts, hidden]
 *     mr_mma_chain(packed, &hidden, 0, hidden.cols, NULL, logits, &err);      from zero, all
 * columns
 *
 * Split-K, tiles dealt to slices and other orders are made of an order and several ranges. */
#ifndef MOEREF_MMA_CHAIN_H
#define MOEREF_MMA_CHAIN_H

#include "mma.h"

/* A row-major matrix of encodings, of the type that the mma has for that operand (mr_mma_types says
 * how many bytes an element has; 6- and 4-bit types have a byte of their own each). Unaligned. */
struct mr_mma_operand {
    const void *data;
    size_t rows, cols;
    size_t pitch;          /* elements from one row to the next */
    const uint8_t *scales; /* of block-scaled mma: [rows], one for every scale_block columns; else
                              not read */
    size_t scale_pitch;
};

struct mr_mma_packed;

/* Decodes operand b. Position p of a chain is column order[p] of both operands; order NULL is
 * ascending, else it has b->cols entries, each a column (repeats are allowed). Everything is
 * copied, also *mma. Block-scaled mma takes no order: MR_ERR_UNSUPPORTED. An order beyond the
 * columns is MR_ERR_USAGE. */
enum mr_status mr_mma_pack(const struct mr_mma *mma, const struct mr_mma_operand *b,
                           const uint32_t *order, struct mr_mma_packed **out, struct mr_error *err);
void mr_mma_packed_free(struct mr_mma_packed *packed); /* NULL is allowed */

/* d [a->rows, b's rows] = chains over positions [begin, end) that start from c (NULL: zeros), cut
 * into steps from begin on; the last may be short. Encodings of the accumulator type, d may be c.
 * a has as many columns as b; block-scaled: begin is a multiple of scale_block.
 *
 * Any number of threads may use one packed operand at once; a call runs on its own thread alone and
 * does not depend on the thread's rounding mode, FTZ or DAZ (nor does it change them). */
enum mr_status mr_mma_chain(const struct mr_mma_packed *b, const struct mr_mma_operand *a,
                            size_t begin, size_t end, const uint32_t *c, uint32_t *d,
                            struct mr_error *err);

/* How many outputs of calls so far were left to the reference, by all threads; for tests. */
size_t mr_mma_chain_fallbacks(void);

#endif
