/* Does reduceTopK<K, float, N> select the K largest of 32 N numbers, in order, lowest index first?
 * The template comes from the engine's own header, named when this is compiled:
 *
 *   FlashInfer 0.7.4    D=$(python3 -c 'import importlib.util as u; print(list(u.find_spec("flashinfer")
 *                           .submodule_search_locations)[0])')/data
 *     nvcc -std=c++17 -arch=native -I$D/include -I$D/csrc/fused_moe -o probe reduce_topk.cu
 *   vLLM 0.33.0, from its source
 *     nvcc -std=c++17 -arch=native -I$VLLM/csrc/moe -DENGINE=vllm::moe -o probe reduce_topk.cu
 *
 * ./probe prints one line for each K and N; exit status 1 if one is wrong. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "moeTopKFuncs.cuh"

#ifndef ENGINE
#define ENGINE tensorrt_llm::kernels
#endif

#define ROWS 200

#define CUDA(call)                                                                             \
    do {                                                                                       \
        cudaError_t status = (call);                                                           \
        if (status != cudaSuccess) {                                                           \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));                    \
            exit(2);                                                                           \
        }                                                                                      \
    } while (0)

template <int K, int N> __global__ void run(const float *in, float *value, int32_t *index)
{
    namespace cg = cooperative_groups;
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    float mine[N], out[K];
    int32_t at[N], out_at[K];
    int lane = threadIdx.x;
    for (int n = 0; n < N; n++) {
        at[n] = n * 32 + lane;
        mine[n] = in[blockIdx.x * N * 32 + at[n]];
    }
    ENGINE::reduce_topk::reduceTopK(warp, out, out_at, mine, at, -INFINITY);
    if (lane == 0)
        for (int k = 0; k < K; k++) {
            value[blockIdx.x * K + k] = out[k];
            index[blockIdx.x * K + k] = out_at[k];
        }
}

/* Row 0 ascends, so that all K stand at the end; row 1 descends; row 2 is equal; the rest is random. */
static void fill(float *in, int row, int n)
{
    for (int i = 0; i < n; i++)
        in[i] = row == 0 ? i : row == 1 ? -i : row == 2 ? 1 : (float)(rand() % 100000);
}

static bool before(const float *in, int a, int b)
{
    return in[a] != in[b] ? in[a] > in[b] : a < b;
}

template <int K, int N> static int check(void)
{
    enum { n = N * 32 };
    static float in[ROWS * n], value[ROWS * K];
    static int32_t index[ROWS * K];
    float *d_in, *d_value;
    int32_t *d_index;
    for (int r = 0; r < ROWS; r++) fill(in + r * n, r, n);
    CUDA(cudaMalloc(&d_in, sizeof in));
    CUDA(cudaMalloc(&d_value, sizeof value));
    CUDA(cudaMalloc(&d_index, sizeof index));
    CUDA(cudaMemcpy(d_in, in, sizeof in, cudaMemcpyHostToDevice));
    run<K, N><<<ROWS, 32>>>(d_in, d_value, d_index);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(value, d_value, sizeof value, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(index, d_index, sizeof index, cudaMemcpyDeviceToHost));
    cudaFree(d_in), cudaFree(d_value), cudaFree(d_index);

    int wrong = 0;
    printf("K = %-2d N = %-2d (%d numbers): ", K, N, n);
    for (int r = 0; r < ROWS; r++) {
        const float *row = in + r * n;
        bool taken[n] = {false};
        for (int k = 0; k < K; k++) {
            int best = -1;
            for (int i = 0; i < n; i++)
                if (!taken[i] && (best < 0 || before(row, i, best))) best = i;
            taken[best] = true;
            if (index[r * K + k] == best && value[r * K + k] == row[best]) continue;
            if (!wrong++)
                printf("row %d, rank %d: index %d, value %g, expected %d, %g\n    ", r, k,
                       index[r * K + k], value[r * K + k], best, row[best]);
            break;
        }
    }
    printf(wrong ? "%d of %d rows wrong\n" : "right\n", wrong, ROWS);
    return wrong != 0;
}

int main(void)
{
    int wrong = check<6, 1>() + check<8, 2>() + check<8, 3>() + check<8, 4>() + check<8, 8>() +
                check<6, 12>() + check<8, 12>() + check<8, 16>() + check<9, 16>() +
                check<10, 12>() + check<10, 16>() + check<16, 8>() + check<22, 16>();
    return wrong != 0;
}
