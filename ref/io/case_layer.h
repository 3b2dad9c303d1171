/* From what a case brings for one layer to what routing takes. */
#ifndef MOEREF_CASE_LAYER_H
#define MOEREF_CASE_LAYER_H

#include "../route/route.h"
#include "case.h"

/* The layer and the arrays that it borrows. It points into itself: not to be copied. */
struct mr_case_input {
    struct mr_layer layer;
    struct mr_router router; /* of a layer that chooses by token id: without bias and groups */
    double *bias, *gate_bias;
    int32_t *given;
};

/* l is what mr_case_get gave, and outlives *out. from_logits: the observed logits are the given
 * numbers, whatever the case starts from; MR_ERR_MISSING without any. MR_ERR_VALUE names a token id
 * or a table entry that is out of range (hash.h). After a failure there is nothing to free. */
enum mr_status mr_case_input_make(const struct mr_case *c, const struct mr_case_layer *l,
                                  bool from_logits, struct mr_case_input *out,
                                  struct mr_error *err);
void mr_case_input_free(struct mr_case_input *input);

#endif
