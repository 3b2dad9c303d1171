/* A layer's logits, rounded once to a type: what a kernel is given that starts from logits. */
#ifndef MOEREF_ROUNDED_LOGITS_H
#define MOEREF_ROUNDED_LOGITS_H

#include "route.h"

/* F32, BF16 or F16 logits of all tokens and experts, row major, malloc'ed. From hidden states: the
 * exact logit rounded once, to nearest; with a gate bias it is rounded to fp32, the bias is added
 * in fp32, and that is rounded again if the type is narrower, as engines do. NaN where a row of an
 * input is not finite. From given logits: those, rounded once. Another type is MR_ERR_DTYPE. */
enum mr_status mr_rounded_logits(const struct mr_layer *layer, enum mr_dtype type, void **out,
                                 struct mr_error *err);

/* The encoding of a binary32 value in BF16 or F16, as mr_bf16_encode; false if the value is not
 * kept. NaN is. */
bool mr_narrow(float value, enum mr_dtype type, uint16_t *out);

#endif
