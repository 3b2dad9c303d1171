/* Inside of a replay: stored operands to the numbers that a kernel multiplies. */
#ifndef MOEREF_REPLAY_OPERANDS_H
#define MOEREF_REPLAY_OPERANDS_H

#include <stdbool.h>

#include "../tensor.h"
#include "arith.h"

/* One of the two operands of a GEMM. */
struct mr_operand {
    const char *name; /* "hidden", "gate" */
    struct mr_matrix matrix;
    enum mr_type type; /* rounded to it first; FP32: as stored */
};

bool mr_operand_served(enum mr_dtype dtype);
/* Row `row` as values, in the order of the plan (NULL: ascending); scratch [cols]. */
void mr_operand_values(const struct mr_operand *operand, size_t row, const uint32_t *order,
                       float *scratch, float *out);
/* What decides whether products are binary32 numbers: every finite value that is not zero is a
 * multiple of 2^lsb and below 2^top. Empty: lsb > top. */
struct mr_operand_range {
    int lsb, top;
};
extern const struct mr_operand_range mr_operand_no_range;
void mr_operand_widen_range(struct mr_operand_range *range, const float *values, size_t n);
/* Significand bits of the values. */
int mr_operand_bits(const struct mr_operand *operand);

#endif
