/* Single tensor-core steps recorded on hardware, replayed. A group is GPU.FORMAT with one output
 * type, in binary32 words: what data/tensor-core holds (operands narrower) and `moeref replay
 * --vectors` reads. */
#ifndef MOEREF_MMA_VECTORS_H
#define MOEREF_MMA_VECTORS_H

#include "../tensor.h"
#include "mma.h"

struct mr_mma_group {
    const char *gpu;    /* "H200" */
    const char *format; /* "bf16" */
    const char *output; /* "fp32", "fp16": what follows d_ */
    size_t rows, k;
    const void *a, *b; /* [rows, k] binary32 words, unaligned */
    const void *c, *d; /* [rows]; c NULL: zeros */
};

struct mr_mma_replayed {
    const struct mr_mma *mma; /* the row of the table: its name, and its mark if unverified */
    bool c_is_zero;           /* the recording was made with c = 0 whatever c says */
    size_t checked, mismatches;
    size_t first;                /* row of the first mismatch, if any */
    uint32_t expected, computed; /* its encodings in the accumulator's type */
};

/* Operands of a format ("bf16", "fp16", "E4M3", "E5M2") may be stored in its own type as well as in
 * binary32 words (of tf32: in these only). False: dtype is neither. */
bool mr_mma_stored(const char *format, enum mr_dtype dtype);
/* n stored operands as binary32 words, NaN apart the same values. */
void mr_mma_words(const void *stored, enum mr_dtype dtype, size_t n, uint32_t *words);

/* Which instruction made the group. MR_ERR_UNSUPPORTED says what is known. */
enum mr_status mr_mma_group_row(const struct mr_mma_group *group, const struct mr_mma **mma,
                                bool *c_is_zero, struct mr_error *err);

/* Replays every row. An element that its format does not have is MR_ERR_VALUE with its place; but
 * the low 13 bits of a tf32 operand are ignored, as the hardware does, and c is rounded to nearest
 * where the accumulator is fp16. */
enum mr_status mr_mma_group_replay(const struct mr_mma_group *group, struct mr_mma_replayed *out,
                                   struct mr_error *err);
/* The same under an mma of the caller's choice; for negative controls. */
enum mr_status mr_mma_group_replay_as(const struct mr_mma_group *group, const struct mr_mma *mma,
                                      bool c_is_zero, struct mr_mma_replayed *out,
                                      struct mr_error *err);

#endif
