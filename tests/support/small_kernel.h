/* A plain binary32 router kernel: sums in column order, expf, any router but hash layers. It stands
 * for a sound kernel, whose every row the judge must pass. */
#ifndef SMALL_KERNEL_H
#define SMALL_KERNEL_H

#include "../../ref/route/claims.h"
#include "routed.h"

enum { SMALL_TOKENS = 300, SMALL_HIDDEN = 96, SMALL_EXPERTS = 24, SMALL_K = 4 };

/* What it gave, in memory of its own; observed has ids and weights. */
struct small_kernel {
    int32_t ids[SMALL_TOKENS * SMALL_K];
    float weights[SMALL_TOKENS * SMALL_K];
    float logits[SMALL_TOKENS * SMALL_EXPERTS];
    struct mr_observed observed;
};

void small_kernel_run(const struct problem *p, struct small_kernel *k);
struct mr_tensor small_view(const void *data, enum mr_dtype dtype, uint64_t cols);

/* Routers of all kinds, and made problems of that size for them. */
extern const int small_kinds;
struct problem *small_problem(int kind, uint64_t *state);

#endif
