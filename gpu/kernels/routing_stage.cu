/* routing_stage: from logits and bias to everything that grouped GEMMs want: ids, weights, how many
 * rows chose each expert, and positions sorted by expert, each expert's share filled up to whole
 * tiles.
 *
 *   routing_stage       tiles of 16
 *   routing_stage_128   tiles of 128
 *
 * Rows: any; top_k up to 32. Launches:
 *   up to 4 rows    1: one block of 4 warps, a warp a row, then all of them sort
 *   up to 16 rows   1: the same with 16 warps
 *   up to 256       2: a warp a row; then a few blocks count all, and write a part each
 *   above           2: a block for a run of rows, which also counts its experts; then as many
 *                   blocks sort, each its run
 * The two are tied by programmatic dependent launch. Selection is
 * select.cuh's, so ids and weights are those of fused_topk and depend on the row alone. Sorting is
 * stable, and no place depends on the order in which atomics arrive (routing_sort.cuh). Arithmetic
 * line: fp32. */
#include "routing_sort.cuh"
#include "select_quick.cuh"

#define SORT_WARPS   16
#define SORT_THREADS (SORT_WARPS * 32)

/* Few rows, all in one block. */
template <int V, bool PLAIN, int WARPS>
__global__ void __launch_bounds__(WARPS * 32)
    routing_small(struct routing r, struct sorted_out out, const float *bias, const float *logits,
                  int32_t *ids, float *weights)
{
    __shared__ struct quick_place place[WARPS];
    __shared__ uint32_t chose[MOST_EXPERTS];
    __shared__ int count[MOST_EXPERTS], first[MOST_EXPERTS + 1], warp_sum[WARPS];
    int thread = (int)threadIdx.x, row = thread / 32, id = 0;
    bool mine = row < r.rows && warp_lane() < r.top_k;
    float biases[V];
    load_bias<V>(bias, r.experts, biases);
    clear(chose, r.experts);
    sync_block();
    wait_for_producers();
    if (row < r.rows)
        id = route_row<V, PLAIN>(r, biases, logits, (size_t)row, &place[row], ids, weights);
    if (mine) atomicOr(&chose[id], 1u << row);
    sync_block();
    for (int e = thread; e < r.experts; e += WARPS * 32) count[e] = __popc(chose[e]);
    sync_block();
    lay_out<WARPS>(count, r.experts, out.tile, first, warp_sum);
    if (mine) {
        int before = __popc(chose[id] & ((1u << row) - 1));
        out.sorted[first[id] * out.tile + before] = row * r.top_k + warp_lane();
    }
    finish(out, count, first, r.experts, r.rows * r.top_k, 0, 1);
}

#define ROW_WARPS 4
#define RUN_WARPS 16

/* First of two. rows_of_block: 0, and a block is as many rows as it has warps; else its run of
 * rows, and counts [blocks, experts] are wanted. */
template <int V, bool PLAIN>
__global__ void __launch_bounds__(RUN_WARPS * 32)
    routing_rows(struct routing r, int rows_of_block, const float *bias, const float *logits,
                 int32_t *ids, float *weights, int *counts, int delay_ns)
{
    __shared__ struct quick_place place[RUN_WARPS];
    __shared__ int count[MOST_EXPERTS];
    int warps = (int)blockDim.x / 32, each = rows_of_block ? rows_of_block : warps;
    int first = (int)blockIdx.x * each, end = first + each < r.rows ? first + each : r.rows;
    float biases[V];
    load_bias<V>(bias, r.experts, biases);
    if (rows_of_block) {
        clear(count, r.experts);
        sync_block();
    }
    let_consumers_start();
    wait_for_producers();
    spin(delay_ns);
    int warp = (int)threadIdx.x / 32;
    for (int row = first + warp; row < end; row += warps) {
        int id =
            route_row<V, PLAIN>(r, biases, logits, (size_t)row, &place[warp], ids, weights);
        if (rows_of_block && warp_lane() < r.top_k) atomicAdd(&count[id], 1);
    }
    if (!rows_of_block) return;
    sync_block();
    for (int e = (int)threadIdx.x; e < r.experts; e += (int)blockDim.x)
        counts[(size_t)blockIdx.x * r.experts + e] = count[e];
}

/* Second of two. */
__global__ static void __launch_bounds__(SORT_THREADS)
    routing_sort(int experts, int top_k, int rows, int run, const int32_t *ids, const int *counts,
                 struct sorted_out out)
{
    __shared__ struct sort_space<SORT_WARPS> space;
    __shared__ uint32_t chose[SORT_WORDS * MOST_EXPERTS];
    sort_run<SORT_WARPS>(experts, top_k, rows, run, (int)blockIdx.x, (int)gridDim.x, ids, counts,
                         out, &space, chose);
}

/* One small kernel: does `warps` warps' worth of rows. */
template <int WARPS>
static cudaError_t launch_small(const struct routing &r, const struct sorted_out &out,
                                const struct mr_kernel_buffers *b, void *stream)
{
    cudaError_t status;
#define LAUNCH(V)                                                                                  \
    status = launch_grid(                                                                          \
        false, stream, dim3(1), WARPS * 32,                                                        \
        plain_router(r) ? routing_small<V, true, WARPS> : routing_small<V, false, WARPS>, r, out,  \
        b->bias, (const float *)b->given, b->ids, (float *)b->weights)
    FOR_EXPERTS(r.experts, LAUNCH);
#undef LAUNCH
    return status;
}

/* A multiple of RUN_WARPS: at most 128 runs, as long as a block can sort one. */
static int rows_of_run(int rows)
{
    int each = (int)ceil_div((int)ceil_div(rows, 128), RUN_WARPS) * RUN_WARPS;
    return each < SORT_ROWS ? each : SORT_ROWS;
}

static cudaError_t launch_two(const struct mr_kernel_problem *p, const struct routing &r,
                              const struct sorted_out &out, const struct mr_kernel_buffers *b,
                              void *stream)
{
    int run = r.rows <= SORT_ROWS ? 0 : rows_of_run(r.rows);
    int warps = run ? RUN_WARPS : ROW_WARPS, *counts = (int *)b->scratch;
    unsigned blocks = ceil_div(r.rows, run ? run : warps);
    cudaError_t status;
#define LAUNCH(V)                                                                                  \
    status = launch_grid(false, stream, dim3(blocks), warps * 32,                                  \
                         plain_router(r) ? routing_rows<V, true> : routing_rows<V, false>, r, run, \
                         b->bias, (const float *)b->given, b->ids, (float *)b->weights, counts,    \
                         (int)p->delay_ns)
    FOR_EXPERTS(r.experts, LAUNCH);
#undef LAUNCH
    if (status != cudaSuccess) return status;
    return launch_grid(p->pdl != 0, stream, dim3(run ? blocks : SORT_ALIKE), SORT_WARPS * 32,
                       routing_sort, r.experts, r.top_k, r.rows, run, (const int32_t *)b->ids,
                       (const int *)counts, out);
}

static int supports(const struct mr_kernel_problem *p, struct mr_kernel_why why)
{
    if (!routing_supported(p, why)) return 0;
    if (p->router.top_k > MOST_SORTED_K) {
        SAY(why, "top_k %d: at most %d", p->router.top_k, MOST_SORTED_K);
        return 0;
    }
    return 1;
}
static void line(const struct mr_kernel_problem *, char *out, size_t size)
{
    snprintf(out, size, "fp32");
}
static int sizes(const struct mr_kernel_problem *p, struct mr_kernel_sizes *out,
                 struct mr_kernel_why)
{
    if (p->rows > SORT_ROWS)
        out->scratch = (uint64_t)ceil_div(p->rows, rows_of_run(p->rows)) *
                       (uint64_t)p->router.experts * sizeof(int);
    return MR_KERNEL_OK;
}

template <int TILE>
static int launch(void *, const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                  void *stream, struct mr_kernel_why why)
{
    struct routing r = routing_of(p);
    struct sorted_out out = {TILE, b->counts, b->sorted, b->sorted_total, b->tile_expert};
    cudaError_t status = r.rows <= 4    ? launch_small<4>(r, out, b, stream)
                         : r.rows <= 16 ? launch_small<16>(r, out, b, stream)
                                        : launch_two(p, r, out, b, stream);
    return launched(status, "routing_stage", why);
}

#define ROUTING_STAGE(NAME, TILE, ABOUT)                                                           \
    {                                                                                              \
        .abi = MR_KERNEL_ABI, .family = "routing_stage", .name = NAME, .summary = ABOUT,           \
        .memory = MR_KERNEL_WHERE, .min_rows = 1, .max_rows = 0, .given_types = MR_KERNEL_FP32,    \
        .gives = MR_GIVES_IDS | MR_GIVES_WEIGHTS | MR_GIVES_COUNTS | MR_GIVES_SORTED,              \
        .weights_type = MR_KERNEL_FP32, .tile = TILE,                                              \
        .promises = MR_KERNEL_DETERMINISTIC | MR_KERNEL_BATCH_INVARIANT | MR_KERNEL_ORDERED |      \
                    MR_KERNEL_HAS_DELAY | MR_KERNEL_HAS_PDL | MR_KERNEL_SORTED_STABLE,             \
        .supports = supports, .arith = line, .sizes = sizes, .launch = launch<TILE>                \
    }
static const struct mr_kernel tile_16 =
    ROUTING_STAGE("routing_stage", 16, "top-k and positions sorted by expert, tiles of 16");
static const struct mr_kernel tile_128 =
    ROUTING_STAGE("routing_stage_128", 128, "top-k and positions sorted by expert, tiles of 128");
MR_KERNEL_ADD(tile_16)
MR_KERNEL_ADD(tile_128)
