#include "mutant.h"

#include <string.h>

static const struct mutant mutants[] = {
    {"nan_again", mutant_nan_again, 1, NULL},
    {"bias_stored_bf16", mutant_bias_stored_bf16, 1, NULL},
    {"bias_cast_bf16", mutant_bias_cast_bf16, 1, NULL},
    {"bias_updates_bf16", mutant_bias_updates_bf16, 1, NULL},
    {"weight_from_key", mutant_weight_from_key, 1, NULL},
    {"tanh_without_guard", mutant_tanh_without_guard, 1, NULL},
    {"softplus_log", mutant_softplus_log, 1, NULL},
    {"softplus_overflow", mutant_softplus_overflow, 1, NULL},
    {"padding_zero", mutant_padding_zero, 1, NULL},
    {"stale_slots", mutant_stale_slots, 1, NULL},
    {"mask_zero", mutant_mask_zero, 1, NULL},
    {"unsorted", mutant_unsorted, 1, NULL},
    {"highest_tie", mutant_highest_tie, 1, NULL},
    {"scaled_twice", mutant_scaled_twice, 1, NULL},
    {"scale_missing", mutant_scale_missing, 1, NULL},
    {"shared_reciprocal", mutant_shared_reciprocal, 1, NULL},
    {"index_16", mutant_index_16, 1, NULL},
    {"padded_lane", mutant_padded_lane, 1, NULL},
    {"bf16_logits", mutant_bf16_logits, 1, logits_in_bf16},
    {"sum_by_rows", mutant_sum_by_rows, 2, logits_by_rows},
    {"sigmoid_for_softplus", mutant_sigmoid_for_softplus, 1, NULL},
    {"epsilon_by_id", mutant_epsilon_by_id, 1, NULL},
    {"winner_minus_inf", mutant_winner_minus_inf, 1, NULL},
    {"sum_of_half", mutant_sum_of_half, 1, NULL},
    {"tree_of_small_rows", mutant_tree_of_small_rows, 2, NULL},
    {"strictly_below", mutant_strictly_below, 1, NULL},
    {"softmax_for_sigmoid", mutant_softmax_for_sigmoid, 1, NULL},
    {"scale_only_normalised", mutant_scale_only_normalised, 1, NULL},
    {"lost_ranks", mutant_lost_ranks, 1, NULL},
};

const struct mutant *mutant_at(size_t i)
{
    return i < sizeof mutants / sizeof *mutants ? &mutants[i] : NULL;
}

const struct mutant *mutant_find(const char *name)
{
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++)
        if (!strcmp(mutants[i].name, name)) return &mutants[i];
    return NULL;
}
