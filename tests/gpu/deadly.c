/* Kernels that do not come back, at some row counts. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "plain_router.h"

static int run(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b)
{
    return plain_run(p, b, 1, PLAIN);
}

#define LAUNCH(id, ...)                                                                         \
    static int launch_##id(void *handle, const struct mr_kernel_problem *p,                     \
                           const struct mr_kernel_buffers *b, void *stream,                     \
                           struct mr_kernel_why why)                                            \
    {                                                                                           \
        (void)handle;                                                                           \
        (void)stream;                                                                           \
        (void)why;                                                                              \
        if (p->rows == 4) __VA_ARGS__;                                                          \
        return run(p, b);                                                                       \
    }                                                                                           \
    static const struct mr_kernel id = {                                                        \
        .abi = MR_KERNEL_ABI, .family = "deadly", .name = #id, .summary = "at 4 rows",           \
        .min_rows = 1, .hidden_types = MR_KERNEL_FP32, .gate_types = MR_KERNEL_FP32,             \
        .gives = MR_GIVES_IDS | MR_GIVES_WEIGHTS, .weights_type = MR_KERNEL_FP32,                \
        .launch = launch_##id};
LAUNCH(hang, for (;;) pause())
LAUNCH(crash, ((volatile char *)b->ids)[1 << 20] = 0) /* beyond the canaries */
LAUNCH(die, abort())
LAUNCH(quit, exit(0))
LAUNCH(fail, return snprintf(why.text, why.size, "out of luck"), MR_KERNEL_FAILED)

static int launch_always(void *handle, const struct mr_kernel_problem *p,
                         const struct mr_kernel_buffers *b, void *stream, struct mr_kernel_why why)
{
    (void)handle;
    (void)p;
    (void)b;
    (void)stream;
    (void)why;
    raise(SIGKILL);
    return MR_KERNEL_OK;
}
static const struct mr_kernel always = {
    .abi = MR_KERNEL_ABI, .family = "deadly", .name = "always", .summary = "at any row count",
    .min_rows = 1, .hidden_types = MR_KERNEL_FP32, .gate_types = MR_KERNEL_FP32,
    .gives = MR_GIVES_IDS, .launch = launch_always};

static const struct mr_kernel *const kernels[] = {&hang, &crash, &die, &quit, &fail, &always};
MR_PLUGIN_EXPORT moeref_plugin = {MR_KERNEL_ABI, sizeof kernels / sizeof *kernels, kernels};
