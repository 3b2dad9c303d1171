/* Kernels of a device, for the fake one: a right one, and one that comes to grief. */
#include <stdlib.h>

#include "plain_router.h"

static int launch(void *handle, const struct mr_kernel_problem *p,
                  const struct mr_kernel_buffers *b, void *stream, struct mr_kernel_why why)
{
    (void)handle;
    (void)stream;
    (void)why;
    return plain_run(p, b, 1, PLAIN);
}

/* Fails at 2 rows, dies at 4. */
static int launch_grief(void *handle, const struct mr_kernel_problem *p,
                        const struct mr_kernel_buffers *b, void *stream, struct mr_kernel_why why)
{
    if (p->rows == 4) abort();
    if (p->rows != 2) return launch(handle, p, b, stream, why);
    snprintf(why.text, why.size, "out of luck");
    return MR_KERNEL_FAILED;
}

#define KERNEL(id, most, run, flags)                                                            \
    static const struct mr_kernel id = {                                                        \
        .abi = MR_KERNEL_ABI, .family = "fake", .name = #id, .summary = "on the fake device",    \
        .memory = MR_MEMORY_DEVICE, .min_rows = 1, .max_rows = most,                            \
        .hidden_types = MR_KERNEL_FP32, .gate_types = MR_KERNEL_FP32,                           \
        .gives = MR_GIVES_IDS | MR_GIVES_WEIGHTS, .weights_type = MR_KERNEL_FP32,               \
        .promises = MR_KERNEL_DETERMINISTIC | (flags), .launch = run};
KERNEL(fine, 8, launch, MR_KERNEL_HAS_PDL)
KERNEL(grief, 0, launch_grief, 0)

static const struct mr_kernel *const kernels[] = {&fine, &grief};
MR_PLUGIN_EXPORT moeref_plugin = {MR_KERNEL_ABI, 2, kernels};
