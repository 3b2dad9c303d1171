/* What the families share on the host side: launches, reasons, and the router as kernels want it.
 */
#ifndef MOEREF_KERNEL_CUH
#define MOEREF_KERNEL_CUH

#include <stdio.h>

#include "../harness.h"
#include "device.cuh"

/* Members that a kernel's struct does not name are zero, and zero means none. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#ifdef MR_SIMT
#define MR_KERNEL_WHERE       MR_MEMORY_HOST
#define MR_KERNEL_ADD(kernel) MR_SIMT_ANNOUNCE(kernel)
static inline const char *cudaGetErrorString(cudaError_t)
{
    return "no error";
}
template <typename... P, typename... A>
static cudaError_t launch_grid(bool, void *, dim3 blocks, int threads, void (*kernel)(P...),
                               A... args)
{
    auto body = [&]() { kernel(P(args)...); };
    mr_simt_run(
        blocks, threads, [](void *f) { (*(decltype(body) *)f)(); }, &body);
    return cudaSuccess;
}
#else
#define MR_KERNEL_WHERE       MR_MEMORY_DEVICE
#define MR_KERNEL_ADD(kernel) MR_KERNEL_BUILTIN(kernel)
template <typename... P, typename... A>
static cudaError_t launch_with(cudaLaunchAttribute *attribute, void *stream, dim3 blocks,
                               int threads, void (*kernel)(P...), A... args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = dim3((unsigned)threads);
    config.stream = (cudaStream_t)stream;
    config.attrs = attribute;
    config.numAttrs = attribute ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, P(args)...);
}
/* dependent: the kernel may start before the one ahead of it in the stream has ended. */
template <typename... P, typename... A>
static cudaError_t launch_grid(bool dependent, void *stream, dim3 blocks, int threads,
                               void (*kernel)(P...), A... args)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    return launch_with(dependent ? &attribute : nullptr, stream, blocks, threads, kernel, args...);
}
#endif

#define SAY(why, ...) (void)snprintf((why).text, (why).size, __VA_ARGS__)

static inline int launched(cudaError_t status, const char *what, struct mr_kernel_why why)
{
    if (status == cudaSuccess) return MR_KERNEL_OK;
    SAY(why, "%s: %s", what, cudaGetErrorString(status));
    return MR_KERNEL_FAILED;
}

static inline unsigned ceil_div(int a, int b)
{
    return (unsigned)((a + b - 1) / b);
}

/* By value into kernels. */
struct routing {
    int rows, experts, top_k;
    int score, by_logit;
    int n_group, topk_group, group_experts, group_by_max;
    int normalise;
    float scale; /* routed_scaling_factor, rounded to binary32 */
};
static inline struct routing routing_of(const struct mr_kernel_problem *p)
{
    const struct mr_kernel_router *r = &p->router;
    struct routing out = {p->rows,
                          r->experts,
                          r->top_k,
                          r->score,
                          r->rank_by_logit,
                          r->n_group,
                          r->topk_group,
                          r->experts / r->n_group,
                          r->group_score == MR_KERNEL_MAX,
                          r->norm_topk_prob,
                          (float)r->routed_scaling_factor};
    return out;
}

#define MOST_EXPERTS 1024
#define MOST_GROUPS  32

static inline int routing_supported(const struct mr_kernel_problem *p, struct mr_kernel_why why)
{
    const struct mr_kernel_router *r = &p->router;
    if (r->experts > MOST_EXPERTS) {
        SAY(why, "%d experts: at most %d", r->experts, MOST_EXPERTS);
        return 0;
    }
    if (r->n_group > MOST_GROUPS) {
        SAY(why, "%d groups: at most %d", r->n_group, MOST_GROUPS);
        return 0;
    }
    return 1;
}

#endif
