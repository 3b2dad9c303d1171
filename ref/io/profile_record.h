/* A profile's row against what its kernel gave: from the same logits, the same ids and weights. */
#ifndef MOEREF_PROFILE_RECORD_H
#define MOEREF_PROFILE_RECORD_H

#include "../route/profile.h"
#include "case.h"
#include "safetensors.h"

struct mr_profile_record {
    size_t tokens;        /* rows compared */
    size_t sets, ordered; /* with the same ids; and in the same order */
    size_t undefined;     /* with other ids, where equal keys leave the choice to the engine */
    size_t weights, same; /* weights given; with the row's bits */
    char first[200];      /* the first that differs, or "" */
};

/* The recording's ids are the emulated ones, in order where the row promises an order and decides
 * ties, and all weights have the row's bits, as weights of the recorded ids in recorded order.
 * routed_scaling_factor is in the weights (mr_profile_asked). c starts from logits; the number of
 * rows of a launch is the file's metadata "rows". MR_ERR_MISSING: the file says nothing of c's
 * layers; MR_ERR_UNSUPPORTED: c starts from hidden states, or a layer chooses by token id. */
enum mr_status mr_profile_record(struct mr_case *c, const struct mr_safetensors *file,
                                 const struct mr_profile_row *row, struct mr_profile_record *out,
                                 struct mr_error *err);
/* Nothing differs. */
bool mr_profile_record_agrees(const struct mr_profile_row *row, const struct mr_profile_record *r);

#endif
