/* A kernel of the device: what is said where there is none. */
#include "../../gpu/harness.h"

static int launch(void *handle, const struct mr_kernel_problem *p,
                  const struct mr_kernel_buffers *b, void *stream, struct mr_kernel_why why)
{
    (void)handle;
    (void)p;
    (void)b;
    (void)stream;
    (void)why;
    return MR_KERNEL_OK;
}

static const struct mr_kernel kernel = {
    .abi = MR_KERNEL_ABI, .family = "nothing", .name = "nothing", .summary = "launches nothing",
    .memory = MR_MEMORY_DEVICE, .min_rows = 2, .max_rows = 64, .hidden_types = MR_KERNEL_FP32,
    .gate_types = MR_KERNEL_FP32, .gives = MR_GIVES_IDS, .launch = launch};
static const struct mr_kernel *const kernels[] = {&kernel};
MR_PLUGIN_EXPORT moeref_plugin = {MR_KERNEL_ABI, 1, kernels};
