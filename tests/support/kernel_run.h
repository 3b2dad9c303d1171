/* Router kernels of gpu/kernels on the CPU (simt.h), and plain C that says what they must give. */
#ifndef KERNEL_RUN_H
#define KERNEL_RUN_H

#include "../../gpu/harness.h"

const struct mr_kernel *kernel_find(const char *name); /* fails the test if there is none */

/* Types are those that the kernel takes; NULL: not given. */
struct kernel_inputs {
    const void *hidden, *gate, *given;
    const float *bias, *gate_bias;
};

/* Everything a kernel gave, in poisoned memory of its own; NULL where it gives nothing. */
struct kernel_run {
    char line[256];
    float *logits, *weights;
    int32_t *ids, *counts, *sorted, *total, *tile_expert;
    int64_t sorted_most;
    int tile;
};
/* Checks the canary behind every output, that reruns over another poison give the same bytes, and
 * that state is after a launch what it was before, so that it can be replayed; that the inputs are
 * left alone is up to const. */
void kernel_run(const char *name, const struct mr_kernel_router *router, int rows,
                const struct kernel_inputs *in, struct kernel_run *out);
void kernel_run_free(struct kernel_run *run);

/* One row by the operations that gpu/kernels/select.cuh states. */
void stated_route(const struct mr_kernel_router *r, const float *logits, const float *bias,
                  int32_t *ids, float *weights);

/* counts, sorted, sorted_total and tile_expert follow from ids as harness.h says, stably. */
void expect_sorted(const struct mr_kernel_router *r, int rows, const struct kernel_run *run);

#endif
