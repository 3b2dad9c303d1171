/* An arithmetic: how a kernel rounds, as a value with a one-line text form (ref/arith/parse.c owns
 * the grammar). So far the words that name where a router rounds, joined by '+':
 *
 *     fp32          nothing below fp32 (alone, or understood)
 *     bf16-logits   the exact logit rounded once to bf16       fp16-logits   to fp16
 *     bf16-bias     the correction bias rounded to bf16
 *     bf16-scores   the score (sigmoid, softmax) rounded once to bf16
 *     bf16-weights  the routing weight rounded to bf16
 *
 * All else is fp32, each step correctly rounded (RNE): logit = the exact dot product rounded once;
 * score = the exact score of that rounded logit (softmax: of all rounded logits) rounded once; key =
 * score + bias rounded once; the top_k largest keys are selected, the lowest id among equals. */
#ifndef MOEREF_ARITH_H
#define MOEREF_ARITH_H

#include <stddef.h>

#include "../status.h"

enum mr_type { MR_TYPE_FP32, MR_TYPE_BF16, MR_TYPE_FP16, MR_TYPE_COUNT };

struct mr_arith {
    enum mr_type logits, bias, scores, weights;
};

/* Reads a line. MR_ERR_USAGE with the column (from 1) of the word at fault, and the words known. */
enum mr_status mr_arith_parse(const char *line, struct mr_arith *out, struct mr_error *err);

/* Writes the canonical line; parse(print(a)) == a. size MR_ARITH_TEXT is always enough. */
#define MR_ARITH_TEXT 128
void mr_arith_print(const struct mr_arith *arith, char *text, size_t size);

#endif
