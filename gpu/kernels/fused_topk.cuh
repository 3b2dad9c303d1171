/* The kernel of fused_topk.cu, for chains that end in it. */
#ifndef MOEREF_FUSED_TOPK_CUH
#define MOEREF_FUSED_TOPK_CUH

#include "select_quick.cuh"

template <int V, bool PLAIN, typename T>
__global__ void __launch_bounds__(128)
    fused_topk(struct routing r, const float *bias, const T *logits, int32_t *ids, float *weights)
{
    __shared__ struct quick_place place[4];
    int warp = (int)threadIdx.x / 32, row = (int)(blockIdx.x * (blockDim.x / 32)) + warp;
    float biases[V];
    load_bias<V>(bias, r.experts, biases);
    wait_for_producers();
    if (row >= r.rows) return;
    route_row<V, PLAIN>(r, biases, logits, (size_t)row, &place[warp], ids, weights);
}

/* dependent: the logits come from the kernel ahead of it in the stream. One warp a block spreads
 * few rows over the most multiprocessors; an SM holds at most 32 blocks, so many rows go by fours.
 */
#define FUSED_TOPK_SINGLE 512
template <typename T>
static int launch_fused_topk(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                             const T *logits, bool dependent, void *stream,
                             struct mr_kernel_why why)
{
    struct routing r = routing_of(p);
    int warps = r.rows <= FUSED_TOPK_SINGLE ? 1 : 4;
    cudaError_t status;
#define LAUNCH(V)                                                                                  \
    status = launch_grid(dependent, stream, dim3(ceil_div(r.rows, warps)), warps * 32,             \
                         plain_router(r) ? fused_topk<V, true, T> : fused_topk<V, false, T>, r,    \
                         b->bias, logits, b->ids, (float *)b->weights)
    FOR_EXPERTS(r.experts, LAUNCH);
#undef LAUNCH
    return launched(status, "fused_topk", why);
}

#endif
