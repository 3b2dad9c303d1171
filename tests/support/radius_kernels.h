/* Kernels that the radius must cover, written from their descriptions and not from ref/arith: sums
 * in many orders, the tensor-core step on integers, score functions with every operation moved
 * within its documented error. */
#ifndef RADIUS_KERNELS_H
#define RADIUS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "../../ref/arith/radius.h"

uint64_t kernel_random(uint64_t *state); /* splitmix64 */
double kernel_uniform(uint64_t *state);  /* [0, 1) */

enum order {
    ORDER_SEQUENTIAL,
    ORDER_REVERSED,
    ORDER_PAIRWISE,
    ORDER_LANES,
    ORDER_SPLIT,
    ORDER_TREE,
    ORDER_SHUFFLED,
    ORDER_COUNT
};
/* Binary32 sum of x_i * w_i. fused: FMA where the order has chains. state seeds random orders. */
float kernel_sum(enum order order, bool fused, const float *x, const float *w, size_t n,
                 uint64_t *state);
/* Sequential, always taking next the remaining product whose addition errs furthest down (sign -1)
 * or up, among the large ones first: O(n^2). */
float kernel_greedy_sum(const float *p, size_t n, int sign);

/* T-FDPA steps of 16 bf16 products with 25 bits, c = 0 at first, K cut into `splits` runs whose
 * results are added in binary32. Results must be normal or zero. */
float kernel_tensor(const float *x, const float *w, size_t n, size_t splits);

/* A score function as a kernel has it; every operation that is not correctly rounded is moved by
 * its documented error in the direction of push (+1, -1: the score up or down; 0: at random). */
enum kernel_score {
    KERNEL_SIGMOID_EXPF,
    KERNEL_SIGMOID_FAST,
    KERNEL_SIGMOID_TANH,
    KERNEL_SOFTPLUS_CLASSIC, /* sqrt(x > 20 ? x : __logf(1 + __expf(x))) */
    KERNEL_SOFTPLUS_LOG1P,   /* sqrtf(log1pf(expf(x))) */
    KERNEL_SOFTPLUS_LOG,     /* sqrtf(x > 20 ? x : logf(1 + expf(x))) */
    KERNEL_SOFTPLUS_STABLE,  /* sqrtf(fmaxf(x, 0) + log1pf(expf(-|x|))) */
    KERNEL_SCORE_COUNT
};
float kernel_score(enum kernel_score which, float x, int push, uint64_t *state);
/* Softmax of n logits: fast: ex2.approx and div.full; else expf, and 1/sum times if reciprocal.
 * Terms are added in a random order. push moves expert `which` up and all others down, or the
 * reverse. */
void kernel_softmax(const float *x, size_t n, bool fast, bool reciprocal, size_t which, int push,
                    float *out, uint64_t *state);
float kernel_narrow(enum mr_type type, float x); /* one RNE rounding, by shifting bits */

#endif
