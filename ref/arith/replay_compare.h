/* Observed logits against a replay: encodings, one by one. */
#ifndef MOEREF_REPLAY_COMPARE_H
#define MOEREF_REPLAY_COMPARE_H

#include "replay.h"

/* Distance of a number from a NaN. */
#define MR_ULP_NONE UINT32_MAX

struct mr_replay_tally {
    uint64_t checked, mismatches;
    /* NaN in both, whatever their payloads: a match, since a library may hand on any payload. NaN
     * in one only is a mismatch. -0 and +0 differ. */
    uint64_t nans;
    /* Worst distance of a mismatch in encodings of the logits' type, at least 1: Inf lies next to
     * the largest number. An observed value that is none of the type is rounded to it first.
     * MR_ULP_NONE if one of the two is NaN. */
    uint32_t worst_ulp;
    uint64_t
        bf16; /* observed values that are bf16 numbers: all, and the line may lack bf16-logits */
    struct {
        size_t token, expert;
        float observed, replayed;
    } first; /* of the mismatches, by token, then expert */
};

/* observed: [rows, experts] BF16, F16 or F32, rows 0 .. rows - 1 of hidden. Compared are values:
 * the binary32 words of what was stored. threads 0: all. The same result for any number of threads.
 * MR_ERR_SHAPE and MR_ERR_DTYPE, and what mr_replay_rows gives. */
enum mr_status mr_replay_compare(const struct mr_replay *replay, const struct mr_matrix *observed,
                                 int threads, struct mr_replay_tally *out, struct mr_error *err);
/* to += from; the first mismatch is that of `to`, if it has one. */
void mr_replay_tally_add(struct mr_replay_tally *to, const struct mr_replay_tally *from);
/* As in worst_ulp. */
uint32_t mr_ulp_distance(enum mr_type type, float a, float b);

#endif
