/* What a kernel gave, in safetensors (DESIGN section 6): PHASE.model.layers.N.mlp.topk_ids,
 * topk_weights, gate.logits and gate.token_index. Any subset of tensors and of rows may be
 * there. */
#ifndef MOEREF_OBSERVED_H
#define MOEREF_OBSERVED_H

#include <stdbool.h>
#include <stdint.h>

#include "../route/claims.h"
#include "../route/router.h"
#include "case.h"
#include "safetensors.h"

/* Reads and checks; the views live as long as the file or the case. Free with mr_observed_free.
 * The metadata key num_token_non_padded of a file, a decimal number, is obeyed; non_padded other
 * than UINT64_MAX stands in its place. *found: whether the file says anything of that layer and
 * phase. If not, out is empty and the status MR_OK. MR_ERR_DTYPE, MR_ERR_SHAPE, MR_ERR_VALUE and
 * MR_ERR_MISSING (weights without ids) name file and tensor. */
enum mr_status mr_observed_read(const struct mr_safetensors *file, int layer, const char *phase,
                                const struct mr_router *router, size_t tokens, uint64_t non_padded,
                                struct mr_observed *out, bool *found, struct mr_error *err);
/* The same from a case's own capture. */
enum mr_status mr_observed_of_case(const struct mr_case *c, const struct mr_case_layer *layer,
                                   size_t tokens, uint64_t non_padded, struct mr_observed *out,
                                   bool *found, struct mr_error *err);
/* The same from tensors at hand: source, tokens, non_padded, ids, weights, logits and token_index
 * are set, those that are not there with data NULL; the rest is made here. names: of the four
 * tensors, for messages. After a failure, or if not *found: mr_observed_free. */
enum mr_status mr_observed_check(struct mr_observed *o, const struct mr_router *router,
                                 const char *const names[4], bool *found, struct mr_error *err);
#endif
