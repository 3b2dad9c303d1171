/* A kernel that says what cannot be. */
#include "../../gpu/harness.h"

static const struct mr_kernel kernel = {
    .abi = MR_KERNEL_ABI, .family = "none", .name = "contradiction", .summary = "weights of no ids",
    .min_rows = 1, .given_types = MR_KERNEL_FP32, .gives = MR_GIVES_LOGITS | MR_GIVES_WEIGHTS,
    .logits_type = MR_KERNEL_FP32, .weights_type = MR_KERNEL_FP32};
static const struct mr_kernel *const kernels[] = {&kernel};
MR_PLUGIN_EXPORT moeref_plugin = {MR_KERNEL_ABI, 1, kernels};
