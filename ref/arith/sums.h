/* How far a computed dot product can lie from the exact one (derivations in sums.c). */
#ifndef MOEREF_SUMS_H
#define MOEREF_SUMS_H

#include <stdbool.h>
#include <stddef.h>

#include "../tensor.h"
#include "arith.h"

/* How the products of one logit were summed. */
enum mr_sum_kind {
    MR_SUM_UNDECLARED, /* the larger radius of FP32 and TENSOR */
    MR_SUM_EXACT,      /* rounded once, as arith.h says; and logits that are given */
    MR_SUM_FP32,       /* binary32, every operation rounded to nearest, in any order: any tree,
                          lanes, split-K, with or without FMA, with or without FTZ of results */
    MR_SUM_TENSOR      /* chains of fused tensor-core steps; chains added in binary32 (split-K, or
                          promotion of partial sums, as DeepGEMM does every 128 columns) */
};

/* What a step's exact sum is cut to. */
enum mr_sum_result {
    MR_SUM_TO_FP32, /* toward zero */
    MR_SUM_TO_13,   /* toward zero, 13 fraction bits: fp8 on Ada and Hopper (products of 6 bits) */
    MR_SUM_TO_FP16  /* to nearest */
};

struct mr_sum {
    enum mr_sum_kind kind;
    /* FP32: the most roundings that a product passes through on its way to the logit, if the shape
     * of the sum is known; 0: not known. A product rounded before it is added counts one more. */
    int depth;
    /* TENSOR: `step` products and the accumulator are aligned to the largest exponent, cut to
     * `fraction` bits below it, added exactly, and cut to the result. 16 and 25 for bf16 and fp16
     * on Hopper and Blackwell; Ampere and Ada 8 and 24, Volta 4 and 23 have larger radii. At most
     * `splits` chains. step from 1 to 64, fraction from the result's to 62. */
    int step, fraction, splits;
    enum mr_sum_result result; /* of a step */
    size_t chain; /* most products of one chain; 0: all */
    size_t adds;  /* additions of chains; 0: splits - 1 */
    bool fp16_adds; /* they are rounded to fp16 */
    /* Any kind: operands are rounded before they are multiplied; the sum of the relative errors
     * that this makes in one product. exact: after that, products are binary32 numbers. */
    double operands;
    bool exact;
};


/* The sum of an arithmetic line over `terms` columns of operands stored so (sum_model.c): depth,
 * steps and chains of its SUM, and the rounding of its operands. gate_bias: one more addition. A
 * line without SUM keeps *out as it is but for the operands. MR_ERR_UNSUPPORTED for block-scaled
 * instructions. */
enum mr_status mr_sum_of_arith(const struct mr_arith *arith, size_t terms, enum mr_dtype hidden,
                               enum mr_dtype gate, bool gate_bias, struct mr_sum *out,
                               struct mr_error *err);

/* UNDECLARED; 16, 25; 64 chains: measured so far are up to 5 (cuBLAS), 8 (vLLM ll_router_gemm), and
 * 56 promotions of 128 columns at 7168. More than enough costs little: 5 % at 4096 columns. */
extern const struct mr_sum mr_sum_default;

/* What is known of the products p of one logit. */
struct mr_dot {
    size_t terms; /* how many: columns, or what mr_dot_magnitude says; a linear bias is one more */
    double magnitude; /* >= sum |p|: ||x|| ||w|| rounded up, or the sum itself (mr_dot_magnitude);
                         with a linear bias, + |bias| */
    bool exact;   /* every product is a binary32 number, underflow aside: bf16 or fp16 by bf16 or
                     fp16. If not, there is no tensor-core bound (TF32 rounds its inputs, which no
                     arithmetic line says yet), and UNDECLARED is FP32 */
    double floor; /* TENSOR: 0; if an operand is subnormal in its own format, max|x| max|w|, each
                     maximum raised to the least normal number of its format */
};

/* >= |computed sum - exact sum|, for a kernel that sums so; logit: the exact sum, or anything
 * within `error` of it. EXACT: 0 (the rounding to the logit's type is not counted here). +Inf if a
 * partial sum may overflow. Grows with magnitude, terms and |logit|. */
double mr_sum_radius(const struct mr_sum *sum, const struct mr_dot *dot, double logit,
                     double error);

/* sum |x_i w_i|, rounded up; x, w finite. About 0.5 us at 4096. *terms (may be NULL) is what
 * dot.terms needs to be: at most n, and at most 64 for each product that is not zero, since a fused
 * step (of 64 terms at most) may hold just one. */
double mr_dot_magnitude(const double *x, const float *w, size_t n, size_t *terms);

#endif
