/* The classes of generate_edge.h, and the numbers they draw. Internal to ref/io. */
#ifndef MOEREF_GENERATE_EDGE_ROWS_H
#define MOEREF_GENERATE_EDGE_ROWS_H

#include "generate_edge.h"

/* Ties (generate_edge_ties.c). */
void mr_edge_tie_at_cut(const struct mr_edge_job *job);
void mr_edge_near_tie(const struct mr_edge_job *job);
void mr_edge_tie_in_groups(const struct mr_edge_job *job);
void mr_edge_tie_between_groups(const struct mr_edge_job *job);
void mr_edge_group_top2_equal(const struct mr_edge_job *job);

/* Values (generate_edge_rows.c). */
void mr_edge_all_equal(const struct mr_edge_job *job);
void mr_edge_all_negative(const struct mr_edge_job *job);
void mr_edge_saturated(const struct mr_edge_job *job);
void mr_edge_sigmoid_tail(const struct mr_edge_job *job);
void mr_edge_softplus_tail(const struct mr_edge_job *job);
void mr_edge_bias_offsets(const struct mr_edge_job *job);
void mr_edge_bias_negative(const struct mr_edge_job *job);
void mr_edge_minus_zero(const struct mr_edge_job *job);
void mr_edge_subnormal(const struct mr_edge_job *job);
void mr_edge_nan_column(const struct mr_edge_job *job);
void mr_edge_inf_column(const struct mr_edge_job *job);
void mr_edge_nan_rows(const struct mr_edge_job *job);
void mr_edge_inf_rows(const struct mr_edge_job *job);
void mr_edge_plain(const struct mr_edge_job *job);

/* Patterns of a class: token t shows pattern t % patterns. */
enum {
    MR_EDGE_TIE_PATTERNS = 12, MR_EDGE_GROUP_PATTERNS = 6, MR_EDGE_EQUAL_PATTERNS = 8,
    MR_EDGE_NEGATIVE_PATTERNS = 4, MR_EDGE_SATURATED_PATTERNS = 4, MR_EDGE_TAIL_PATTERNS = 16,
    MR_EDGE_ZERO_PATTERNS = 4, MR_EDGE_SUBNORMAL_PATTERNS = 4, MR_EDGE_BAD_PATTERNS = 4
};

/* A row's stream; element i of it. */
uint64_t mr_edge_row_key(const struct mr_edge_job *job, size_t token);
uint64_t mr_edge_below(uint64_t key, uint64_t index, uint64_t limit); /* in [0, limit) */
/* About N(0, 1.43^2), a multiple of 2^-17 below 8.5: exact in fp32. */
float mr_edge_normal(uint64_t key, uint64_t index);
/* In [0, 1), a multiple of 2^-20. */
float mr_edge_uniform(uint64_t key, uint64_t index);
/* order[0 .. count) := a permutation of 0 .. count - 1. */
void mr_edge_shuffle(uint64_t key, int *order, int count);

#endif
