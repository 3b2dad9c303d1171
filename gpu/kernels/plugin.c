/* The kernels of this folder as a shared library (`make gpu-so`): what --plugin and
 * tools/engines/for_moeref.py load. The build for the CPU has its list in simt.cu. */
#include "../../ref/moeref.h"
#include "../harness.h"

#ifndef MR_COMMIT
#define MR_COMMIT "unknown"
#endif
#define SHOWN __attribute__((visibility("default")))

#ifndef MR_SIMT
enum { MOST = 64 };
static const struct mr_kernel *kernels[MOST];
extern SHOWN struct mr_plugin moeref_plugin;
struct mr_plugin moeref_plugin = {MR_KERNEL_ABI, 0, kernels};

void mr_kernel_announce(const struct mr_kernel *kernel)
{
    if (moeref_plugin.count < MOST) kernels[moeref_plugin.count++] = kernel;
}
#endif

/* Python mirrors harness.h by hand (tools/engines/harness_abi.py); these are what it compares its
 * own with before it believes a pointer. */
extern SHOWN const uint32_t moeref_layout[10];
const uint32_t moeref_layout[10] = {
    sizeof(struct mr_kernel_router),
    sizeof(struct mr_kernel_problem),
    sizeof(struct mr_kernel_buffers),
    sizeof(struct mr_kernel_sizes),
    sizeof(struct mr_kernel_why),
    sizeof(struct mr_kernel),
    offsetof(struct mr_kernel_router, routed_scaling_factor),
    offsetof(struct mr_kernel_problem, delay_ns),
    offsetof(struct mr_kernel_buffers, scratch),
    offsetof(struct mr_kernel, release)};

extern SHOWN const char moeref_version[], moeref_commit[];
const char moeref_version[] = MR_VERSION;
const char moeref_commit[] = MR_COMMIT;
