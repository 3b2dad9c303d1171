/* Positions sorted by expert (harness.h: counts, sorted, sorted_total, tile_expert): the parts that
 * kernels share.
 *
 * A row chooses an expert at most once. So the rows that chose an expert are a set of bits, 32 rows
 * a word, and the place of a row among them is the number of bits below its own: the sort is
 * stable, and bits may be set in any order. */
#ifndef MOEREF_ROUTING_SORT_CUH
#define MOEREF_ROUTING_SORT_CUH

#include "kernel.cuh"

#define MOST_SORTED_K 32
#define SORT_ROWS     256 /* of one block, at most */
#define SORT_WORDS    (SORT_ROWS / 32)
#define SORT_BATCH    32 /* loads of a thread under way at once */
#define SORT_ALIKE    8 /* blocks that each count all rows */

struct sorted_out {
    int tile;
    int32_t *counts, *sorted, *total, *tile_expert;
};

template <typename T> __device__ static inline void clear(T *x, int n)
{
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) x[i] = 0;
}

/* first[e] = tiles of the experts before e, first[experts] = all: thread t sums the experts of its
 * share, then shares are summed over lanes and warps. count is complete on entry; ends with a
 * barrier. */
template <int WARPS>
__device__ static inline void lay_out(const int *count, int experts, int tile, int *first,
                                      int *warp_sum)
{
    int thread = (int)threadIdx.x, each = (experts + WARPS * 32 - 1) / (WARPS * 32);
    int from = thread * each, to = from + each < experts ? from + each : experts, mine = 0;
    for (int e = from; e < to; e++) mine += (count[e] + tile - 1) / tile;
    int upto = warp_prefix(mine);
    if (warp_lane() == 31) warp_sum[thread / 32] = upto;
    sync_block();
    int before = upto - mine;
    for (int w = 0; w < thread / 32; w++) before += warp_sum[w];
    for (int e = from; e < to; e++) {
        first[e] = before;
        before += (count[e] + tile - 1) / tile;
    }
    if (from < to && to == experts) first[experts] = before;
    sync_block();
}

/* Counts, the filling of last tiles (with n), the tiles' experts and the total; block `part` of
 * `parts` does its share. A few threads an expert, four words of its last tile each. */
__device__ static inline void finish(const struct sorted_out &out, const int *count,
                                     const int *first, int experts, int n, int part, int parts)
{
    int each = out.tile / 4 < 32 ? out.tile / 4 : 32; /* a power of two */
    int thread = (int)threadIdx.x, lane = thread % each, teams = (int)blockDim.x / each;
    for (int e = part * teams + thread / each; e < experts; e += parts * teams) {
        int c = count[e], from = first[e], to = first[e + 1];
        if (lane == 0) out.counts[e] = c;
        for (int t = from + lane; t < to; t += each) out.tile_expert[t] = e;
        if (from == to) continue;
        int32_t *last = out.sorted + (to - 1) * out.tile;
        int filled = c - (to - 1 - from) * out.tile;
        for (int i = lane * 4; i < out.tile; i += each * 4) {
            if (i >= filled) {
                int4 four = {n, n, n, n};
                *(int4 *)(last + i) = four;
                continue;
            }
            for (int j = i + 1; j < i + 4; j++)
                if (j >= filled) last[j] = n;
        }
    }
    if (part == 0 && thread == 0) *out.total = first[experts] * out.tile;
}

/* What a block needs to sort. chose: [words, experts], words for the rows of its run. */
template <int WARPS> struct sort_space {
    int count[MOST_EXPERTS], first[MOST_EXPERTS + 1], place[MOST_EXPERTS];
    int warp_sum[WARPS];
};

/* Block `block` of `blocks`, all of it, sorts. run > 0: the positions of rows [block run, (block + 1)
 * run), run <= SORT_ROWS; with one block it counts for itself, else counts [blocks, experts] say how
 * often each run has each expert. run 0: at most SORT_ROWS rows, all of which each block counts for
 * itself; then it writes its part. */
template <int WARPS>
__device__ static inline void sort_run(int experts, int top_k, int rows, int run, int block,
                                       int blocks, const int32_t *ids, const int *counts,
                                       const struct sorted_out &out, struct sort_space<WARPS> *s,
                                       uint32_t *chose)
{
    constexpr int THREADS = WARPS * 32;
    int thread = (int)threadIdx.x;
    int n = rows * top_k, from = block * run * top_k, words = ((run ? run : rows) + 31) / 32;
    int to = run && from + run * top_k < n ? from + run * top_k : n;
    bool own = !run || blocks == 1;
    clear(s->count, experts);
    clear(s->place, experts);
    clear(chose, words * experts);
    sync_block();
    wait_for_producers();
    for (int i = from + thread; i < to; i += THREADS) {
        int row = (i - from) / top_k;
        atomicOr(&chose[row / 32 * experts + ids[i]], 1u << (row & 31));
    }
    if (!own) {
        /* Several threads an expert, if there are more threads than experts. */
        int shares = experts < THREADS ? THREADS / experts : 1;
        for (int t = thread; t < shares * experts; t += THREADS) {
            int e = t % experts, all = 0, before = 0;
            for (int b = t / experts; b < blocks; b += shares * SORT_BATCH) {
                int c[SORT_BATCH];
#pragma unroll
                for (int j = 0; j < SORT_BATCH; j++) {
                    int from_block = b + j * shares;
                    c[j] = from_block < blocks ? counts[from_block * experts + e] : 0;
                }
#pragma unroll
                for (int j = 0; j < SORT_BATCH; j++) {
                    all += c[j];
                    before += b + j * shares < block ? c[j] : 0;
                }
            }
            atomicAdd(&s->count[e], all);
            atomicAdd(&s->place[e], before);
        }
    }
    sync_block();
    if (own) {
        for (int e = thread; e < experts; e += THREADS) {
            int all = 0;
            for (int w = 0; w < words; w++) all += __popc(chose[w * experts + e]);
            s->count[e] = all;
        }
        sync_block();
    }
    lay_out<WARPS>(s->count, experts, out.tile, s->first, s->warp_sum);
    int step = run ? THREADS : THREADS * blocks;
    for (int i = from + thread + (run ? 0 : block * THREADS); i < to; i += step) {
        int row = (i - from) / top_k, e = ids[i], before = s->place[e];
        for (int w = 0; w < row / 32; w++) before += __popc(chose[w * experts + e]);
        before += __popc(chose[row / 32 * experts + e] & ((1u << (row & 31)) - 1));
        out.sorted[s->first[e] * out.tile + before] = i;
    }
    finish(out, s->count, s->first, experts, n, block, blocks);
}

#endif
