/* The kernel of tiny_gemm.cu, for chains that begin with it. */
#ifndef MOEREF_TINY_GEMM_CUH
#define MOEREF_TINY_GEMM_CUH

#include "kernel.cuh"

#define TINY_THREADS 256
#define TINY_WARPS   (TINY_THREADS / 32)
#define TINY_TILE    16 /* consecutive positions of one thread */
#define TINY_EXPERTS 2  /* of one block */
#define TINY_LINE    "fma/deal:256x16:pairs"

struct tile { /* 16 bf16 */
    uint4 low, high;
};

__device__ static inline struct tile load_tile(const uint16_t *row, int tile)
{
    const uint4 *p = (const uint4 *)(row + tile * TINY_TILE);
    struct tile t = {p[0], p[1]};
    return t;
}
__device__ static inline struct tile load_constant_tile(const uint16_t *row, int tile)
{
    const uint4 *p = (const uint4 *)(row + tile * TINY_TILE);
    struct tile t = {load_constant(p), load_constant(p + 1)};
    return t;
}
__device__ static inline float dot_pair(uint32_t a, uint32_t b, float sum)
{
    return fmaf(bf16_high(a), bf16_high(b), fmaf(bf16_low(a), bf16_low(b), sum));
}
__device__ static inline float dot_four(const uint4 &a, const uint4 &b, float sum)
{
    return dot_pair(a.w, b.w, dot_pair(a.z, b.z, dot_pair(a.y, b.y, dot_pair(a.x, b.x, sum))));
}
__device__ static inline float dot_tile(const struct tile &a, const struct tile &b, float sum)
{
    return dot_four(a.high, b.high, dot_four(a.low, b.low, sum));
}

/* Sums N values over the warp, lanes by xor 1, 2, 4, 8, 16. As long as there are several values,
 * the two lanes of an exchange part them between them: N - 1 shuffles and a few, not 5 N. At the
 * end value *which is in v[0] of this lane; *which is -1 in lanes that have none or a copy. */
template <int N, int D = 1>
__device__ static inline void sum_over_warp(float *v, int *which, int first = 0, int end = N,
                                            bool copy = false)
{
    if constexpr (D == 32) {
        static_assert(N == 1, "more values than lanes");
        *which = first < end && !copy ? first : -1;
    } else if constexpr (N == 1) {
        v[0] = plus(v[0], shuffle_xor(v[0], D));
        sum_over_warp<1, D * 2>(v, which, first, end, copy || (warp_lane() & D));
    } else {
        constexpr int H = (N + 1) / 2;
        bool upper = (warp_lane() & D) != 0;
#pragma unroll
        for (int i = 0; i < H; i++) {
            float low = v[i], high = H + i < N ? v[H + i] : 0.0f;
            float other = shuffle_xor(upper ? low : high, D);
            v[i] = plus(upper ? high : low, other);
        }
        int middle = first + H < end ? first + H : end;
        sum_over_warp<H, D * 2>(v, which, upper ? middle : first, upper ? end : middle, copy);
    }
}

/* ROWS rows by two experts a block. Thread t has tiles t, t + 256, ... of 16 positions; TILES of
 * them are loaded ahead: with hidden <= 256 * 16 * TILES that is all of the weights, before the
 * hidden states are there. Threads without a tile hold -0, which adds nothing to anything. */
template <int ROWS, int TILES>
__global__ void __launch_bounds__(TINY_THREADS, 2)
    tiny_gemm(const uint16_t *hidden, const uint16_t *gate, const float *gate_bias, float *logits,
              int rows, int experts, int terms, int delay_ns)
{
    constexpr int N = ROWS * TINY_EXPERTS;
    __shared__ float part[TINY_WARPS][N];
    int thread = (int)threadIdx.x, tiles = terms / TINY_TILE;
    int expert = (int)blockIdx.x * TINY_EXPERTS, row = (int)blockIdx.y * ROWS;
    const uint16_t *one = gate + (size_t)expert * terms;
    const uint16_t *two = expert + 1 < experts ? one + terms : one;
    struct tile w[TILES][TINY_EXPERTS];
    float sum[N];
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] = thread < tiles ? 0.0f : -0.0f;
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        int t = thread + j * TINY_THREADS;
        if (t >= tiles) continue;
        w[j][0] = load_constant_tile(one, t);
        w[j][1] = load_constant_tile(two, t);
    }
    let_consumers_start();
    wait_for_producers();
    spin(delay_ns);
    for (int base = 0; base < tiles; base += TINY_THREADS * TILES) {
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            int t = base + thread + j * TINY_THREADS;
            if (t >= tiles) continue;
            if (base > 0) {
                w[j][0] = load_constant_tile(one, t);
                w[j][1] = load_constant_tile(two, t);
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                int at = row + r < rows ? row + r : rows - 1;
                struct tile x = load_tile(hidden + (size_t)at * terms, t);
                sum[r * 2] = dot_tile(x, w[j][0], sum[r * 2]);
                sum[r * 2 + 1] = dot_tile(x, w[j][1], sum[r * 2 + 1]);
            }
        }
    }
    int which;
    sum_over_warp<N>(sum, &which);
    if (which >= 0) part[thread / 32][which] = sum[0];
    sync_block();
    if (thread >= N) return;
    const float(*p)[N] = part;
    int v = thread, r = row + v / 2, e = expert + v % 2;
    if (r >= rows || e >= experts) return;
    float total =
        ((p[0][v] + p[1][v]) + (p[2][v] + p[3][v])) + ((p[4][v] + p[5][v]) + (p[6][v] + p[7][v]));
    logits[(size_t)r * experts + e] = gate_bias ? total + gate_bias[e] : total;
}

/* Rows of one block, at most: more would spill. */
#define TINY_ROWS           16
#define TINY_ROWS_TWO_TILES 8

/* The kernel compiled for that many rows a block, from ROWS up. */
template <int ROWS>
static cudaError_t launch_tiny_rows(int block_rows, dim3 blocks, const struct mr_kernel_problem *p,
                                    const struct mr_kernel_buffers *b, void *stream)
{
    if constexpr (ROWS < TINY_ROWS)
        if (ROWS < block_rows) return launch_tiny_rows<ROWS + 1>(block_rows, blocks, p, b, stream);
    void (*kernel)(const uint16_t *, const uint16_t *, const float *, float *, int, int, int, int) =
        tiny_gemm<ROWS, 1>;
    if constexpr (ROWS <= TINY_ROWS_TWO_TILES)
        if (p->router.hidden > TINY_THREADS * TINY_TILE) kernel = tiny_gemm<ROWS, 2>;
    /* First of a chain, so never dependent. */
    return launch_grid(false, stream, blocks, TINY_THREADS, kernel, (const uint16_t *)b->hidden,
                       (const uint16_t *)b->gate, b->gate_bias, (float *)b->logits, p->rows,
                       p->router.experts, p->router.hidden, p->delay_ns);
}

/* block_rows: rows of one block, at most. */
static inline int launch_tiny_gemm(const struct mr_kernel_problem *p,
                                   const struct mr_kernel_buffers *b, int block_rows,
                                   void *stream, struct mr_kernel_why why)
{
    if (p->router.hidden > TINY_THREADS * TINY_TILE && block_rows > TINY_ROWS_TWO_TILES)
        block_rows = TINY_ROWS_TWO_TILES;
    unsigned shares = ceil_div(p->rows, block_rows);
    dim3 blocks(ceil_div(p->router.experts, TINY_EXPERTS), shares);
    int each = (int)ceil_div(p->rows, (int)shares);
    return launched(launch_tiny_rows<1>(each, blocks, p, b, stream), "tiny_gemm", why);
}

static inline int tiny_gemm_supported(const struct mr_kernel_problem *p, struct mr_kernel_why why)
{
    if (p->router.hidden % TINY_TILE == 0 && p->router.hidden > 0) return 1;
    SAY(why, "hidden %d: not a multiple of %d", p->router.hidden, TINY_TILE);
    return 0;
}

#endif
