/* The library is of this version, its kernel of another. */
#include "../../gpu/harness.h"

static const struct mr_kernel kernel = {.abi = MR_KERNEL_ABI + 1};
static const struct mr_kernel *const kernels[] = {&kernel};
MR_PLUGIN_EXPORT moeref_plugin = {MR_KERNEL_ABI, 1, kernels};
