/* The kernel of fused_topk.cu, for chains that end in it. */
#ifndef MOEREF_FUSED_TOPK_CUH
#define MOEREF_FUSED_TOPK_CUH

#include "select.cuh"

/* rehearse: while the logits are not there, go through all of it once with the biases in their
 * place, and write nothing. The wait would pass idle, and instructions come from device memory the
 * first time. One copy of the code, so both passes meet in the instruction cache. */
template <int V, typename T>
__global__ void fused_topk(struct routing r, int rehearse, const float *bias, const T *logits,
                           int32_t *ids, float *weights)
{
    int row = (int)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
    float biases[V];
    load_bias<V>(bias, r.experts, biases);
#pragma unroll 1
    for (int pass = rehearse ? 0 : 1; pass < 2; pass++) {
        struct warp_row<V> w;
        if (pass == 1) {
            wait_for_producers();
            if (row >= r.rows) return;
            load_row<V>(r, logits, (size_t)row, &w);
        } else {
#pragma unroll
            for (int i = 0; i < V; i++) w.score[i] = biases[i];
        }
        route_loaded<V>(r, bias != nullptr, biases, &w, (size_t)row, pass == 1, ids, weights);
    }
}

/* dependent: the logits come from the kernel ahead of it in the stream. One warp a block spreads
 * few rows over the most multiprocessors; an SM holds at most 32 blocks, so many rows go by fours.
 */
#define FUSED_TOPK_SINGLE 512
template <typename T>
static int launch_fused_topk(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                             const T *logits, bool dependent, bool rehearse, void *stream,
                             struct mr_kernel_why why)
{
    struct routing r = routing_of(p);
    int warps = r.rows <= FUSED_TOPK_SINGLE ? 1 : 4;
    cudaError_t status;
#define LAUNCH(V)                                                                                  \
    status = launch_grid(dependent, stream, dim3(ceil_div(r.rows, warps)), warps * 32,             \
                         fused_topk<V, T>, r, (int)rehearse, b->bias, logits, b->ids,              \
                         (float *)b->weights)
    FOR_EXPERTS(r.experts, LAUNCH);
#undef LAUNCH
    return launched(status, "fused_topk", why);
}

#endif
