/* An arithmetic: how a kernel rounds, as a value with a one-line text form. parse.c and sum_text.c
 * own the grammar; docs/arithmetic.md teaches it. A line is words joined by '+', in any order:
 *
 *     fp32          nothing below fp32 (alone, or understood)
 *     bf16-hidden   the hidden states rounded to bf16 before they are multiplied (RNE)
 *     bf16-gate     the gate weight likewise
 *     bf16-logits   the logit rounded once to bf16             fp16-logits   to fp16
 *     bf16-bias     the correction bias rounded to bf16
 *     bf16-scores   the score (sigmoid, softmax) rounded once to bf16
 *     bf16-weights  the routing weight rounded to bf16
 *     score:NAME    the CUDA code that evaluates the score, bit for bit (score_word.h), such as
 *                   score:sigmoid.expf; without it the score is correctly rounded
 *     SUM           the order and the steps of the dot product (sum.h), such as
 *                   hopper-bf16/runs:3x64 or fma/deal:6x8
 *
 * Without a SUM the logit is the exact dot product rounded once. All else is fp32, each step
 * correctly rounded (RNE): score = the exact score of that rounded logit (softmax: of all rounded
 * logits) rounded once, or with score:NAME what that code gives, rounded again if to bf16; key = score + bias rounded once; the top_k largest keys are selected, the
 * lowest id among equals. */
#ifndef MOEREF_ARITH_H
#define MOEREF_ARITH_H

#include <stdbool.h>
#include <stddef.h>

#include "../status.h"
#include "score_word.h"
#include "sum.h"

enum mr_type { MR_TYPE_FP32, MR_TYPE_BF16, MR_TYPE_FP16, MR_TYPE_COUNT };

struct mr_arith {
    enum mr_type logits, bias, scores, weights;
    enum mr_type hidden, gate; /* operands: FP32 is "as stored" */
    mr_score_word score; /* which code evaluates the score; 0: correctly rounded */
    struct mr_sum_shape sum; /* leaf MR_LEAF_EXACT: no SUM in the line */
};

/* Reads a line. MR_ERR_USAGE with the column (from 1) of what is at fault, and what is known; of an
 * instruction that no processor has, the reason. */
enum mr_status mr_arith_parse(const char *line, struct mr_arith *out, struct mr_error *err);

/* Writes the canonical line; parse(print(a)) == a. size MR_ARITH_TEXT is always enough. */
#define MR_ARITH_TEXT 384
void mr_arith_print(const struct mr_arith *arith, char *text, size_t size);

/* Same arithmetic: all fields equal, instructions of equal parameters being one (mma.h). */
bool mr_arith_same(const struct mr_arith *a, const struct mr_arith *b);

#endif
