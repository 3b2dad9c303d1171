/* The tables of profile rows, one file for each family of engines. Internal to ref/route. */
#ifndef MOEREF_PROFILE_ROWS_H
#define MOEREF_PROFILE_ROWS_H

#include "profile.h"

/* Recordings: from the same logits, at 1, 6, 16 and 513 rows of a launch, the row gives the ids, their
 * order where it promises one, and every bit of every weight. Part of them is under
 * data/engines/profiles, where tests compare them. */
#define MR_H200 "on an H200: "
#define MR_ALL_BITS " tokens: all ids, all weights bit for bit"

struct mr_profile_rows {
    const struct mr_profile_row *row;
    size_t count;
};
/* Earlier rows are tried first. */
extern const struct mr_profile_rows mr_torch_rows, mr_vllm_rows, mr_sglang_rows,
    mr_flashinfer_rows;

#endif
