/* Mutants: small routers with one fault each, written from what a public report or a suspicion says
 * is wrong (not from any engine's code), and each with a repaired twin. */
#ifndef TESTS_MUTANT_H
#define TESTS_MUTANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../ref/route/router.h"

struct mutant_input {
    const struct mr_router *router;
    size_t tokens;
    const float *logits; /* [tokens, experts]: given, or the exact dot rounded once */
    const float *bias;   /* [experts], or NULL */
    const float *hidden, *gate; /* [tokens, hidden], [experts, hidden]; NULL: routing from logits */
};

/* Fills ids and weights [tokens, top_k]. run: of a mutant whose fault is that two runs differ. */
typedef void mutant_run(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                        float *weights);

/* The logits [tokens, experts] that a mutant ranks by, where they are the fault. */
typedef void mutant_logits(const struct mutant_input *in, bool repaired, int run, float *logits);

struct mutant {
    const char *name;
    mutant_run *run;
    int runs; /* observed files that it makes: 1, or 2 */
    mutant_logits *logits; /* NULL: the given ones */
};

/* NULL: no such mutant. */
const struct mutant *mutant_find(const char *name);
const struct mutant *mutant_at(size_t i); /* NULL past the last */

/* mutants_bias.c */
mutant_run mutant_bias_stored_bf16, mutant_bias_cast_bf16, mutant_bias_updates_bf16,
    mutant_weight_from_key;
/* mutants_score.c */
mutant_run mutant_tanh_without_guard, mutant_softplus_log, mutant_softplus_overflow,
    mutant_sigmoid_for_softplus, mutant_softmax_for_sigmoid, mutant_bf16_logits, mutant_sum_by_rows;
mutant_logits logits_in_bf16, logits_by_rows;
/* mutants_scale.c */
mutant_run mutant_scaled_twice, mutant_scale_missing, mutant_shared_reciprocal,
    mutant_scale_only_normalised, mutant_sum_of_half;
/* mutants_select.c */
mutant_run mutant_nan_again, mutant_padding_zero, mutant_stale_slots, mutant_mask_zero,
    mutant_padded_lane, mutant_winner_minus_inf, mutant_lost_ranks, mutant_index_16;
/* mutants_tie.c */
mutant_run mutant_unsorted, mutant_highest_tie, mutant_tree_of_small_rows, mutant_strictly_below,
    mutant_epsilon_by_id;

#endif
