/* The tables of profile rows, one file for each family of engines. Internal to ref/route. */
#ifndef MOEREF_PROFILE_ROWS_H
#define MOEREF_PROFILE_ROWS_H

#include "profile.h"

struct mr_profile_rows {
    const struct mr_profile_row *row;
    size_t count;
};
/* Earlier rows are tried first. */
extern const struct mr_profile_rows mr_torch_rows, mr_vllm_rows, mr_sglang_rows,
    mr_flashinfer_rows;

#endif
