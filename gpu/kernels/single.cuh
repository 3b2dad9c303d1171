/* The kernel of single.cu.
 *
 * A unit is 16 experts by 512 positions of K, for all rows: experts lie on the M side of
 * mma.m16n8k16, rows on the N side, so a single row wastes no weight that was loaded. Each of 8
 * warps has 64 positions and keeps its weights in registers while rows go by. A lane loads 8
 * consecutive positions at once; their first halves, of the 4 lanes of a row, are the 16 terms of
 * one instruction, their second halves those of another: tiles of 4 terms dealt to two chains,
 * deal:2x4. Then warps are added in order (every:64), and units, by whoever finishes the row
 * (every:512). What is past the end of K is +0, and adds nothing: no sum here is -0, since a chain
 * begins with +0.
 *
 * Many rows: single_tiles.cuh, to the same bits.
 *
 * Finishing a row needs all units. One row: the last block to arrive does it, so nobody waits.
 * More: blocks wait for all, then share the rows; the launch is cooperative, so all are there. */
#ifndef MOEREF_SINGLE_CUH
#define MOEREF_SINGLE_CUH

#include "routing_sort.cuh"
#include "select_quick.cuh"
#include "single_tiles.cuh"

#define SINGLE_LINE      "hopper-bf16/deal:2x4/every:64/every:512"
#define SINGLE_WARPS     8
#define SINGLE_THREADS   (SINGLE_WARPS * 32)
#define SINGLE_EXPERTS   16 /* of a unit */
#define SINGLE_POSITIONS 64 /* of a warp */
#define SINGLE_SLICE     (SINGLE_WARPS * SINGLE_POSITIONS)
#define SINGLE_TILES     4 /* of 8 rows, between two barriers */
#define SINGLE_ROWS      (SINGLE_TILES * 8)
#define SINGLE_STRIDE    20   /* of a row of 16 sums: lanes of a warp write to all banks */
#define SINGLE_SCORES    3072 /* of rows that a block finishes at a time */
#define SINGLE_COUNTERS  3
#define SINGLE_FEW       96 /* rows; above, tiles */

static_assert(SINGLE_WARPS == TILE_WARPS && SINGLE_SLICE == TILE_SLICE &&
                  SINGLE_POSITIONS == TILE_WIDTH,
              "one arithmetic");

enum { SINGLE_MULTIPLY = 1, SINGLE_FINISH = 2, SINGLE_SORT = 4, SINGLE_ALL = 7 };

struct single_work {
    int hidden, tiles, slices; /* units for few rows: tiles of experts x slices of K */
    int parts;                 /* sums that make a logit: slices, or 1 if units did all of K */
    int run, finishers;        /* rows that a block finishes, and how many blocks do */
    int sorters;               /* blocks that sort; finishers, if none does */
    int steps;                 /* SINGLE_ALL; on the CPU, where blocks cannot wait, one by one */
};

struct single_data {
    const uint16_t *hidden, *gate;
    const float *bias, *gate_bias;
    float *partial; /* [parts, rows, experts] */
    float *logits;
    int32_t *ids;
    float *weights;
    int *counts;        /* [finishers, experts] */
    uint32_t *counters; /* all 0 between launches: arrived, finished, left */
};

/* Rows that a block finishes at a time. */
static inline __host__ __device__ int single_group(int experts)
{
    return SINGLE_SCORES / experts < SINGLE_WARPS ? SINGLE_SCORES / experts : SINGLE_WARPS;
}

/* What a warp multiplies: two groups of 32 positions, 8 of each a lane. */
struct single_operand {
    uint4 group[2];
};

/* 8 positions of each group, if there is such a row; at: of this lane in the first group. */
__device__ static inline struct single_operand load_operand(const uint16_t *matrix, int row,
                                                            int rows, int at, int hidden)
{
    struct single_operand x;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        x.group[j] = {0, 0, 0, 0};
        if (row < rows && at + j * 32 < hidden)
            x.group[j] =
                load_constant((const uint4 *)(matrix + (size_t)row * hidden + at + j * 32));
    }
    return x;
}

struct single_rows {
    struct single_operand tile[SINGLE_TILES];
};

__device__ static inline void load_rows(const struct single_data &d, int first, int rows, int at,
                                        int hidden, struct single_rows *x)
{
#pragma unroll
    for (int n = 0; n < SINGLE_TILES; n++)
        if (first + n * 8 < rows)
            x->tile[n] = load_operand(d.hidden, first + n * 8 + warp_lane() / 4, rows, at, hidden);
}

/* Sums of 32 rows over the unit's positions, to partial. part: [warps, SINGLE_ROWS, stride] */
__device__ static inline void multiply_rows(const struct single_rows &x,
                                            const struct single_operand (&w)[2], int first,
                                            int rows, int experts, int expert, float *partial,
                                            float *part)
{
    int thread = (int)threadIdx.x, lane = warp_lane();
    float *mine = part + thread / 32 * SINGLE_ROWS * SINGLE_STRIDE;
#pragma unroll
    for (int n = 0; n < SINGLE_TILES; n++) {
        if (first + n * 8 >= rows) continue;
        float low[4] = {0.0f, 0.0f, 0.0f, 0.0f}, high[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint4 &b = x.tile[n].group[j], &a = w[0].group[j], &a8 = w[1].group[j];
            mma_bf16(low, {a.x, a8.x, a.y, a8.y}, {b.x, b.y});
            mma_bf16(high, {a.z, a8.z, a.w, a8.w}, {b.z, b.w});
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            mine[(n * 8 + lane % 4 * 2 + i % 2) * SINGLE_STRIDE + i / 2 * 8 + lane / 4] =
                plus(low[i], high[i]);
    }
    sync_block();
#pragma unroll
    for (int i = 0; i < SINGLE_ROWS * SINGLE_EXPERTS / SINGLE_THREADS; i++) {
        int at = thread + i * SINGLE_THREADS, row = at / SINGLE_EXPERTS, e = at % SINGLE_EXPERTS;
        if (first + row >= rows || expert + e >= experts) continue;
        const float *p = part + row * SINGLE_STRIDE + e;
        float sum = p[0];
#pragma unroll
        for (int j = 1; j < SINGLE_WARPS; j++) sum = plus(sum, p[j * SINGLE_ROWS * SINGLE_STRIDE]);
        partial[(size_t)(first + row) * experts + expert + e] = sum;
    }
    sync_block();
}

/* All units of this block. While some rows are multiplied the next are on their way. */
__device__ static inline void multiply_units(const struct routing &r, const struct single_work &w,
                                             const struct single_data &d, float *part)
{
    int lane = warp_lane(), warp = (int)threadIdx.x / 32;
#pragma unroll 1
    for (int unit = (int)blockIdx.x; unit < w.tiles * w.slices; unit += (int)gridDim.x) {
        int slice = unit / w.tiles, expert = unit % w.tiles * SINGLE_EXPERTS;
        int at = slice * SINGLE_SLICE + warp * SINGLE_POSITIONS + lane % 4 * 8;
        float *partial = d.partial + (size_t)slice * r.rows * r.experts;
        struct single_operand weights[2];
        struct single_rows even, odd;
#pragma unroll
        for (int i = 0; i < 2; i++)
            weights[i] = load_operand(d.gate, expert + i * 8 + lane / 4, r.experts, at, w.hidden);
        load_rows(d, 0, r.rows, at, w.hidden, &even);
#pragma unroll 1
        for (int row = 0; row < r.rows; row += 2 * SINGLE_ROWS) {
            int next = row + SINGLE_ROWS;
            load_rows(d, next, r.rows, at, w.hidden, &odd);
            multiply_rows(even, weights, row, r.rows, r.experts, expert, partial, part);
            if (next >= r.rows) break;
            load_rows(d, next + SINGLE_ROWS, r.rows, at, w.hidden, &even);
            multiply_rows(odd, weights, next, r.rows, r.experts, expert, partial, part);
        }
    }
}

/* Logit `at` of all, and logit at + SINGLE_THREADS, if they are below end: slices in order. */
__device__ static inline void add_slices(const float *partial, size_t slice, int slices, size_t at,
                                         size_t end, float (&sum)[2])
{
#pragma unroll 1
    for (int s = 0; s < slices; s += 8) {
        float v[2][8];
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                v[i][j] = s + j < slices && at + i * SINGLE_THREADS < end
                              ? load_shared_value(partial + (size_t)(s + j) * slice + at +
                                                  i * SINGLE_THREADS)
                              : 0.0f;
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                if (s + j < slices) sum[i] = s + j > 0 ? plus(sum[i], v[i][j]) : v[i][j];
    }
}

/* Logits [from, to) of all, at most SINGLE_SCORES, into shared memory: a thread's own ones. */
__device__ static inline void add_parts(const struct single_data &d, int parts, size_t slice,
                                        size_t from, size_t to, float *logit)
{
    size_t first = from + threadIdx.x;
    if (parts == 1) {
        float v[SINGLE_SCORES / SINGLE_THREADS];
#pragma unroll
        for (int i = 0; i < SINGLE_SCORES / SINGLE_THREADS; i++)
            v[i] = first + i * SINGLE_THREADS < to
                       ? load_shared_value(d.partial + first + i * SINGLE_THREADS)
                       : 0.0f;
#pragma unroll
        for (int i = 0; i < SINGLE_SCORES / SINGLE_THREADS; i++)
            if (first + i * SINGLE_THREADS < to) logit[threadIdx.x + i * SINGLE_THREADS] = v[i];
        return;
    }
#pragma unroll 1
    for (size_t at = first; at < to; at += 2 * SINGLE_THREADS) {
        float sum[2] = {0.0f, 0.0f};
        add_slices(d.partial, slice, parts, at, to, sum);
        logit[at - from] = sum[0];
        if (at + SINGLE_THREADS < to) logit[at - from + SINGLE_THREADS] = sum[1];
    }
}

/* One expert's score and rank; of a softmax over all experts the logit, for route_scores. */
__device__ static inline void score_logit(const struct routing &r, const float *bias, int e,
                                          float logit, float *score, uint32_t *rank)
{
    float x = logit;
    if (r.score == MR_KERNEL_SIGMOID)
        x = sigmoid_score(logit);
    else if (r.score == MR_KERNEL_SQRT_SOFTPLUS)
        x = sqrt_softplus_score(logit);
    float key = r.by_logit ? logit : bias ? plus(x, bias[e]) : x;
    *score = x;
    *rank = mr_rank(__float_as_uint(key));
}

/* Top-k of a row whose scores and ranks lie in shared memory. The id of slot `lane`. */
template <int V>
__device__ static inline int route_scores(const struct routing &r, const struct single_data &d,
                                          const float *score, const uint32_t *rank,
                                          struct quick_place *place, size_t at)
{
    struct warp_row<V> row;
#pragma unroll
    for (int i = 0; i < V; i++) {
        int e = i * 32 + warp_lane();
        row.score[i] = e < r.experts ? score[e] : __uint_as_float(0xff800000u);
        row.rank[i] = e < r.experts ? rank[e] : MR_RANK_NONE;
    }
    if (r.score == MR_KERNEL_SOFTMAX && !r.by_logit) {
        float bias[V];
        load_bias<V>(d.bias, r.experts, bias);
        rank_row<V>(r, bias, &row);
    }
    if (r.topk_group < r.n_group) keep_groups<V>(r, &row);
    int32_t *ids = d.ids + at * r.top_k;
    float *weights = d.weights + at * r.top_k;
    if (r.by_logit && r.score == MR_KERNEL_SOFTMAX) return select_row<V>(r, &row, ids, weights);
    return quick_select<V>(r, &row, place, ids, weights);
}

/* Rows [first, end), `single_group` at a time. count: how often each expert was chosen, or
 * NULL; chosen: ids of a single row, or NULL */
template <int V>
__device__ static inline void finish_rows(const struct routing &r, const struct single_work &w,
                                          const struct single_data &d, int first, int end,
                                          float *score, uint32_t *rank, struct quick_place *place,
                                          int *count, int *chosen)
{
    int thread = (int)threadIdx.x, warp = thread / 32, group = single_group(r.experts);
    size_t slice = (size_t)r.rows * r.experts;
    for (int base = first; base < end; base += group) {
        int rows = end - base < group ? end - base : group;
        size_t from = (size_t)base * r.experts, to = from + (size_t)rows * r.experts;
        add_parts(d, w.parts, slice, from, to, score);
#pragma unroll 2
        for (int i = thread; i < rows * r.experts; i += SINGLE_THREADS) {
            int e = i % r.experts;
            float logit = d.gate_bias ? plus(score[i], d.gate_bias[e]) : score[i];
            d.logits[from + i] = logit;
            score_logit(r, d.bias, e, logit, &score[i], &rank[i]);
        }
        sync_block();
        if (warp < rows) {
            int id = route_scores<V>(r, d, score + warp * r.experts, rank + warp * r.experts,
                                     place + warp, (size_t)(base + warp));
            if (count && warp_lane() < r.top_k) atomicAdd(&count[id], 1);
            if (chosen && warp_lane() < r.top_k) chosen[warp_lane()] = id;
        }
        sync_block();
    }
}

/* Sorted positions of a single row: each expert that it chose has a tile. */
__device__ static inline void sort_row(const struct routing &r, const int *chosen,
                                       const struct sorted_out &out)
{
    int thread = (int)threadIdx.x;
    for (int e = thread; e < r.experts; e += SINGLE_THREADS) {
        int c = 0;
        for (int j = 0; j < r.top_k; j++) c += chosen[j] == e;
        out.counts[e] = c;
    }
    for (int i = thread; i < r.top_k * out.tile; i += SINGLE_THREADS)
        if (i & (out.tile - 1)) out.sorted[i] = r.top_k;
    if (thread < r.top_k) {
        int before = 0;
        for (int j = 0; j < r.top_k; j++) before += chosen[j] < chosen[thread];
        out.tile_expert[before] = chosen[thread];
        out.sorted[before * out.tile] = thread;
    }
    if (thread == 0) *out.total = r.top_k * out.tile;
}

/* Shared memory of a block, one use after the other. */
union single_space {
    float part[SINGLE_WARPS * SINGLE_ROWS * SINGLE_STRIDE];
    struct {
        float score[SINGLE_SCORES];
        uint32_t rank[SINGLE_SCORES];
        struct quick_place place[SINGLE_WARPS];
    } row;
    uint32_t chose[SORT_WORDS * MOST_EXPERTS];
};

/* Waits until `blocks` blocks have come to the counter; this one comes, too. On the CPU steps are
 * launches of their own. */
__device__ static inline void meet(uint32_t *counter, int blocks, bool waits)
{
    sync_block();
    if (threadIdx.x == 0) {
        arrive(counter);
        if (waits) wait_until(counter, (uint32_t)blocks);
    }
    sync_block();
}

/* True in the last block alone. */
__device__ static inline bool comes_last(uint32_t *counter, int blocks, uint32_t *shared)
{
    sync_block();
    if (threadIdx.x == 0) *shared = arrive(counter);
    sync_block();
    return *shared == (uint32_t)blocks - 1;
}

template <int V, bool SORTED, bool TILES>
__global__ void __launch_bounds__(SINGLE_THREADS, V <= 16 && !TILES ? 2 : 1)
    single_kernel(struct routing r, struct single_work w, struct single_data d,
                  struct sorted_out out)
{
    __shared__ union single_space space;
    __shared__ struct sort_space<SINGLE_WARPS> sort;
    __shared__ uint32_t before;
    int block = (int)blockIdx.x, blocks = (int)gridDim.x;
    bool alone = w.finishers == 1;
    if (w.steps & SINGLE_MULTIPLY) {
        if (block == 0 && (int)threadIdx.x * 32 < r.experts) {
            if (d.bias) prefetch(d.bias + threadIdx.x * 32);
            if (d.gate_bias) prefetch(d.gate_bias + threadIdx.x * 32);
        }
        if (TILES)
            multiply_tiles({r.rows, r.experts, w.hidden, w.parts, d.hidden, d.gate, d.partial},
                           dynamic_shared());
        else
            multiply_units(r, w, d, space.part);
        if (alone) {
            if (!comes_last(&d.counters[0], blocks, &before)) return;
            block = 0;
        } else {
            meet(&d.counters[0], blocks, block < w.finishers);
        }
    }
    if (block >= w.finishers) return;
    int first = block * w.run, end = first + w.run < r.rows ? first + w.run : r.rows;
    bool counted = SORTED && r.rows > SORT_ROWS; /* by run; else blocks that sort look at all ids */
    if (w.steps & SINGLE_FINISH) {
        if (counted) {
            clear(sort.count, r.experts);
            sync_block();
        }
        finish_rows<V>(r, w, d, first, end, space.row.score, space.row.rank, space.row.place,
                       counted ? sort.count : nullptr,
                       SORTED && r.rows == 1 ? sort.place : nullptr);
        if (counted)
            for (int e = (int)threadIdx.x; e < r.experts; e += SINGLE_THREADS)
                d.counts[(size_t)block * r.experts + e] = sort.count[e];
        if (SORTED && !alone) meet(&d.counters[1], w.finishers, block < w.sorters);
    }
    if (block >= w.sorters || !(w.steps & SINGLE_SORT)) return;
    if (SORTED && r.rows == 1)
        sort_row(r, sort.place, out);
    else if (SORTED)
        sort_run<SINGLE_WARPS>(r.experts, r.top_k, r.rows, counted ? w.run : 0, block, w.sorters,
                               d.ids, d.counts, out, &sort, space.chose);
    if (threadIdx.x > 0) return;
    /* Nobody looks at a counter any more when all have come here. */
    if (alone || arrive(&d.counters[2]) == (uint32_t)w.sorters - 1)
        for (int i = 0; i < SINGLE_COUNTERS; i++) d.counters[i] = 0;
}

#endif
