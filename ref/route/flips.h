/* What an emulated arithmetic does to the routing of tokens, against the certified answer. */
#ifndef MOEREF_FLIPS_H
#define MOEREF_FLIPS_H

#include "../arith/arith.h"
#include "certify.h"
#include "histogram.h"

/* Counts of one arithmetic. A flip is a token whose expert set differs from the certified one (at a
 * tie: from every set that is right). Weight moved is the share of a token's routing weight on
 * experts that the certified set lacks, summed over tokens here. With groups the emulated keys
 * choose them (mr_emulated_groups); where groups tie at the cut and the emulated choice of groups
 * is a right one, its experts are held against the certified set inside those groups. Tokens that
 * are undecided or nonfinite are not judged. */
struct mr_flips {
    uint64_t tokens, flips;
    double weight_moved; /* sum over tokens */
    struct mr_histogram key_error; /* |emulated key - certified key|, all experts of all tokens */
};

/* One thread's emulator for a list of arithmetics. */
struct mr_emulator;
enum mr_status mr_emulator_new(int experts, int top_k, const struct mr_arith *arith, size_t count,
                               struct mr_emulator **out);
void mr_emulator_free(struct mr_emulator *e);

/* The logits of the token that comes next under the i-th arithmetic, [experts], as its sum gave
 * them, rounded to their type (arith/replay.h): in place of the exact ones rounded once. They are
 * borrowed until that token is emulated. */
void mr_emulator_logits(struct mr_emulator *e, size_t i, const float *logits);

/* Emulates the token that c has just certified, under every arithmetic; adds to flips[count]. bias
 * as in the token. */
enum mr_status mr_emulate(struct mr_emulator *e, const struct mr_certifier *c,
                          const struct mr_token *token, const struct mr_routed *routed,
                          struct mr_flips *flips);

/* The experts chosen for the last emulated token under the i-th arithmetic, [top_k] by descending
 * key. */
const int *mr_emulator_choice(const struct mr_emulator *e, size_t i);

/* to += from, for count arithmetics. */
void mr_flips_add(struct mr_flips *to, const struct mr_flips *from, size_t count);

#endif
