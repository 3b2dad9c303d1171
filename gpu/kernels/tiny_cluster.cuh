/* tiny_gemm's arithmetic with the work dealt otherwise: the 8 warps of tiny_gemm's block, which share
 * two experts, become the blocks of a cluster, and each warp of such a block has experts of its own.
 * So a block reads an eighth of each row, not all of it: with 144 blocks, tiny_gemm reads every row
 * of the hidden states 144 times, and from a few rows on that is most of what it does. The price: the
 * last sum goes over the cluster, through distributed shared memory. */
#ifndef MOEREF_TINY_CLUSTER_CUH
#define MOEREF_TINY_CLUSTER_CUH

#include "tiny_gemm.cuh"

#define CLUSTER 8 /* blocks; TINY_WARPS, and the most that every device takes */
static_assert(CLUSTER == TINY_WARPS, "a block stands for a warp of the line");

template <int ROWS, int EACH> struct cluster_shared {
    uint4 half[ROWS > 2 ? ROWS : 1][2][32]; /* halves of the tiles of 32 threads, by row */
    float part[CLUSTER][ROWS * EACH];       /* sums of this block's experts, by sender */
    uint64_t came;
};

/* ROWS rows by EACH experts a warp. Lane l of block b is thread 32 b + l of the line. Rows come to
 * the warps through shared memory if there are several: a lane's 32 bytes lie next to each other, so
 * loads of 16 would meet every line twice, for each warp. */
template <int ROWS, int EACH>
__global__ void __launch_bounds__(TINY_THREADS, 2)
    tiny_cluster(const uint16_t *hidden, const uint16_t *gate, const float *gate_bias,
                 float *logits, int rows, int experts, int terms, int delay_ns)
{
    constexpr int N = ROWS * EACH;
    constexpr bool staged = ROWS > 2;
    typedef struct cluster_shared<ROWS, EACH> shared;
    CLUSTER_SHARED(shared, s);
    int thread = (int)threadIdx.x, warp = thread / 32, lane = warp_lane();
    int block = (int)blockIdx.x % CLUSTER, group = (int)blockIdx.x / CLUSTER;
    int expert = (group * TINY_WARPS + warp) * EACH, tiles = terms / TINY_TILE;
    int first = block * 32 + lane;
    struct tile w[EACH];
    float sum[N];
    cluster_begin(&s->came, (int)sizeof s->part);
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] = first < tiles ? 0.0f : -0.0f;
    const uint16_t *of[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        of[i] = gate + (size_t)(expert + i < experts ? expert + i : experts - 1) * terms;
        if (first < tiles) w[i] = load_constant_tile(of[i], first);
    }
    let_consumers_start();
    wait_for_producers();
    spin(delay_ns);
    for (int base = block * 32; base < tiles; base += TINY_THREADS) {
        int t = base + lane;
        if (staged) {
            if (base >= TINY_THREADS) sync_block();
#pragma unroll
            for (int j = 0; j < ROWS * 64; j += TINY_THREADS) {
                int i = j + thread;
                if (i >= ROWS * 64) continue;
                int row = i / 64, at = i % 64, from = row < rows ? row : rows - 1;
                if (base + at / 2 < tiles)
                    s->half[row][at % 2][at / 2] =
                        ((const uint4 *)(hidden + (size_t)from * terms + base * TINY_TILE))[at];
            }
            sync_block();
        }
        if (t >= tiles) continue;
        if (base >= TINY_THREADS)
#pragma unroll
            for (int i = 0; i < EACH; i++) w[i] = load_constant_tile(of[i], t);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            struct tile x;
            if (staged) {
                x.low = s->half[staged ? r : 0][0][lane];
                x.high = s->half[staged ? r : 0][1][lane];
            } else {
                x = load_tile(hidden + (size_t)(r < rows ? r : rows - 1) * terms, t);
            }
#pragma unroll
            for (int i = 0; i < EACH; i++)
                sum[r * EACH + i] = dot_tile(x, w[i], sum[r * EACH + i]);
        }
    }
    int which;
    sum_over_warp<N>(sum, &which);
    cluster_begun();
    /* Block `warp` ends what this warp's experts are. */
    if (which >= 0) send_to_block(&s->part[block][which], s, warp, sum[0]);
    wait_till_all_came(&s->came);
    if (thread >= N) return;
    int v = thread, r = v / EACH, e = (group * TINY_WARPS + block) * EACH + v % EACH;
    if (r >= rows || e >= experts) return;
    float(*p)[N] = s->part;
    float total =
        ((p[0][v] + p[1][v]) + (p[2][v] + p[3][v])) + ((p[4][v] + p[5][v]) + (p[6][v] + p[7][v]));
    logits[(size_t)r * experts + e] = gate_bias ? total + gate_bias[e] : total;
}

template <int EACH, int MOST, int ROWS = 1>
static cudaError_t launch_cluster_rows(const struct mr_kernel_problem *p,
                                       const struct mr_kernel_buffers *b, void *stream)
{
    if constexpr (ROWS < MOST)
        if (ROWS < p->rows) return launch_cluster_rows<EACH, MOST, ROWS + 1>(p, b, stream);
    unsigned groups = ceil_div(p->router.experts, TINY_WARPS * EACH);
    return launch_clusters(CLUSTER, stream, dim3(groups * CLUSTER), TINY_THREADS,
                           tiny_cluster<ROWS, EACH>, (const uint16_t *)b->hidden,
                           (const uint16_t *)b->gate, b->gate_bias, (float *)b->logits, p->rows,
                           p->router.experts, p->router.hidden, p->delay_ns);
}

/* Up to MOST rows. */
template <int EACH, int MOST>
static int launch_tiny_cluster(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                               void *stream, struct mr_kernel_why why)
{
    return launched(launch_cluster_rows<EACH, MOST>(p, b, stream), "tiny_cluster", why);
}

#endif
