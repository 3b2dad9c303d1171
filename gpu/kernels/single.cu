/* single: the whole router in one launch: GEMM on tensor cores, scores, top-k, at any row count.
 * single_sorted: and the bookkeeping of routing_stage.
 *
 *   single              logits, ids, weights
 *   single_sorted       and counts, and positions sorted by expert in tiles of 16
 *   single_sorted_128   in tiles of 128
 *
 * Rows: any (sorted: up to 32768). K a multiple of 16, top_k up to
 * 32. Launches: 1. Arithmetic line, at every row count: hopper-bf16/deal:2x4/every:64/every:512, so
 * all of it is batch-invariant. single.cuh explains the work. */
#include "single.cuh"

typedef void single_function(struct routing, struct single_work, struct single_data,
                             struct sorted_out);

static bool by_tiles(const struct mr_kernel_problem *p)
{
    return p->rows > SINGLE_FEW;
}
static int shared_of(const struct mr_kernel_problem *p)
{
    return by_tiles(p) ? TILE_SHARED : 0;
}
static single_function *find_kernel(const struct mr_kernel_problem *p, bool sorted)
{
    single_function *kernel;
#define FIND(V)                                                                                    \
    kernel = by_tiles(p)                                                                           \
                 ? (sorted ? single_kernel<V, true, true> : single_kernel<V, false, true>)         \
                 : (sorted ? single_kernel<V, true, false> : single_kernel<V, false, false>)
    FOR_EXPERTS(p->router.experts, FIND);
#undef FIND
    return kernel;
}

/* How many blocks the GPU holds at once; what a launch needs to know. */
struct single_handle {
    int resident;
};

#ifdef MR_SIMT
/* Few, so that a block has several units. */
#define SIMT_RESIDENT 5
static int prepare(const struct mr_kernel_problem *, const struct mr_kernel_buffers *b, void *,
                   void **, struct mr_kernel_why)
{
    memset(b->state, 0, SINGLE_COUNTERS * sizeof(uint32_t));
    return MR_KERNEL_OK;
}
static int resident_blocks(const void *)
{
    return SIMT_RESIDENT;
}
static void release(void *)
{
}
static cudaError_t launch_single(single_function *kernel, int blocks, int, void *,
                                 const struct routing &r, const struct single_work &w,
                                 const struct single_data &d, const struct sorted_out &out)
{
    static const int steps[] = {SINGLE_MULTIPLY, SINGLE_FINISH, SINGLE_SORT};
    struct single_work step = w;
    if (w.finishers == 1)
        return launch_grid(false, nullptr, dim3((unsigned)blocks), SINGLE_THREADS, kernel, r, w, d,
                           out);
    for (int i = 0; i < 3; i++) {
        step.steps = steps[i];
        launch_grid(false, nullptr, dim3((unsigned)blocks), SINGLE_THREADS, kernel, r, step, d,
                    out);
    }
    return cudaSuccess;
}
#else
static cudaError_t count_resident(single_function *kernel, int shared, int *resident)
{
    int device, processors, each;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (status == cudaSuccess)
        status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (status == cudaSuccess)
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, SINGLE_THREADS,
                                                               (size_t)shared);
    if (status == cudaSuccess) *resident = processors * each;
    return status;
}
static int prepare(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                   void *stream, void **handle, struct mr_kernel_why why)
{
    int resident = 0;
    cudaError_t status =
        cudaMemsetAsync(b->state, 0, SINGLE_COUNTERS * sizeof(uint32_t), (cudaStream_t)stream);
    if (status == cudaSuccess)
        status = count_resident(find_kernel(p, b->sorted != nullptr), shared_of(p), &resident);
    if (status == cudaSuccess) *handle = new single_handle{resident};
    return launched(status, "single", why);
}
static int resident_blocks(const void *handle)
{
    return ((const struct single_handle *)handle)->resident;
}
static void release(void *handle)
{
    delete (struct single_handle *)handle;
}
/* Blocks that wait for each other must all be there: cooperative. (A graph keeps the attribute.) */
static cudaError_t launch_single(single_function *kernel, int blocks, int shared, void *stream,
                                 const struct routing &r, const struct single_work &w,
                                 const struct single_data &d, const struct sorted_out &out)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(SINGLE_THREADS);
    config.dynamicSmemBytes = (size_t)shared;
    config.stream = (cudaStream_t)stream;
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    config.attrs = &attribute;
    config.numAttrs = w.finishers > 1 ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, r, w, d, out);
}
#endif

static int supports(const struct mr_kernel_problem *p, struct mr_kernel_why why)
{
    const struct mr_kernel_router *r = &p->router;
    if (!routing_supported(p, why)) return 0;
    if (r->hidden % 16 != 0 || r->hidden <= 0) {
        SAY(why, "hidden %d: not a multiple of 16", r->hidden);
        return 0;
    }
    if (r->top_k <= MOST_SORTED_K) return 1;
    SAY(why, "top_k %d: at most %d", r->top_k, MOST_SORTED_K);
    return 0;
}
static void line(const struct mr_kernel_problem *, char *out, size_t size)
{
    snprintf(out, size, "%s", SINGLE_LINE);
}

/* Rows that a block finishes. Where runs are sorted, each costs all the others the reading of its
 * counts. */
static int rows_of_run(const struct mr_kernel_problem *p, int blocks, bool sorted)
{
    int group = single_group(p->router.experts), each = (int)ceil_div(p->rows, blocks);
    return sorted && p->rows > SORT_ROWS && each < group ? group : each;
}
static int tile_units(const struct mr_kernel_problem *p)
{
    return (int)(ceil_div(p->rows, TILE_ROWS) * ceil_div(p->router.experts, TILE_EXPERTS));
}
/* Units of all of K, unless units of one slice are done sooner: in fewer rounds. */
static int parts_of(const struct mr_kernel_problem *p, int resident)
{
    int units = tile_units(p), slices = (int)ceil_div(p->router.hidden, SINGLE_SLICE);
    int whole = (int)ceil_div(units, resident) * slices;
    return (int)ceil_div(units * slices, resident) < whole ? slices : 1;
}
static uint64_t partial_bytes(const struct mr_kernel_problem *p)
{
    uint64_t slices = ceil_div(p->router.hidden, SINGLE_SLICE);
    return (slices * (uint64_t)p->rows * (uint64_t)p->router.experts * sizeof(float) + 255) / 256 *
           256;
}
static int sizes(const struct mr_kernel_problem *p, struct mr_kernel_sizes *out,
                 struct mr_kernel_why)
{
    uint64_t runs = ceil_div(p->rows, single_group(p->router.experts));
    out->state = SINGLE_COUNTERS * sizeof(uint32_t);
    out->scratch = partial_bytes(p) + runs * (uint64_t)p->router.experts * sizeof(int);
    return MR_KERNEL_OK;
}

template <bool SORTED, int TILE>
static int launch(void *handle, const struct mr_kernel_problem *p,
                  const struct mr_kernel_buffers *b, void *stream, struct mr_kernel_why why)
{
    struct routing r = routing_of(p);
    struct single_work w = {};
    w.hidden = p->router.hidden;
    w.tiles = (int)ceil_div(r.experts, SINGLE_EXPERTS);
    w.slices = (int)ceil_div(w.hidden, SINGLE_SLICE);
    w.steps = SINGLE_ALL;
    w.parts = by_tiles(p) ? parts_of(p, resident_blocks(handle)) : w.slices;
    int blocks = by_tiles(p) ? tile_units(p) * w.parts : w.tiles * w.slices;
    if (blocks < r.rows) blocks = r.rows; /* that many can finish one each */
    if (blocks > resident_blocks(handle)) blocks = resident_blocks(handle);
    w.run = rows_of_run(p, blocks, SORTED);
    w.finishers = (int)ceil_div(r.rows, w.run);
    w.sorters = w.finishers;
    if (SORTED && r.rows <= SORT_ROWS && w.sorters > SORT_ALIKE) w.sorters = SORT_ALIKE;
    if (SORTED && w.run > SORT_ROWS) {
        SAY(why, "%d rows: at most %d", r.rows, blocks * SORT_ROWS);
        return MR_KERNEL_FAILED;
    }
    struct single_data d = {(const uint16_t *)b->hidden,
                            (const uint16_t *)b->gate,
                            b->bias,
                            b->gate_bias,
                            (float *)b->scratch,
                            (float *)b->logits,
                            b->ids,
                            (float *)b->weights,
                            (int *)((char *)b->scratch + partial_bytes(p)),
                            (uint32_t *)b->state};
    struct sorted_out out = {TILE, b->counts, b->sorted, b->sorted_total, b->tile_expert};
    cudaError_t status =
        launch_single(find_kernel(p, SORTED), blocks, shared_of(p), stream, r, w, d, out);
    return launched(status, "single", why);
}

#define SORTED_ROWS 32768 /* SORT_ROWS in each of 128 blocks */
#define SINGLE(NAME, FAMILY, ABOUT, MORE, PROMISE, SORTED, TILE, MOST)                             \
    {                                                                                              \
        .abi = MR_KERNEL_ABI, .family = FAMILY, .name = NAME, .summary = ABOUT,                    \
        .memory = MR_KERNEL_WHERE, .min_rows = 1, .max_rows = MOST,                                \
        .hidden_types = MR_KERNEL_BF16, .gate_types = MR_KERNEL_BF16,                              \
        .gives = MR_GIVES_LOGITS | MR_GIVES_IDS | MR_GIVES_WEIGHTS | MORE,                         \
        .logits_type = MR_KERNEL_FP32, .weights_type = MR_KERNEL_FP32, .tile = TILE,               \
        .promises =                                                                                \
            MR_KERNEL_DETERMINISTIC | MR_KERNEL_BATCH_INVARIANT | MR_KERNEL_ORDERED | PROMISE,     \
        .supports = supports, .arith = line, .sizes = sizes, .prepare = prepare,                   \
        .launch = launch<SORTED, TILE>, .release = release                                         \
    }
static const struct mr_kernel single =
    SINGLE("single", "single", "GEMM, scores and top-k in one launch", 0, 0, false, 0, 0);
static const struct mr_kernel single_sorted =
    SINGLE("single_sorted", "single_sorted",
           "GEMM, scores, top-k and positions sorted by expert, tiles of 16, in one launch",
           MR_GIVES_COUNTS | MR_GIVES_SORTED, MR_KERNEL_SORTED_STABLE, true, 16, SORTED_ROWS);
static const struct mr_kernel single_sorted_128 =
    SINGLE("single_sorted_128", "single_sorted", "single_sorted with tiles of 128",
           MR_GIVES_COUNTS | MR_GIVES_SORTED, MR_KERNEL_SORTED_STABLE, true, 128, SORTED_ROWS);
MR_KERNEL_ADD(single)
MR_KERNEL_ADD(single_sorted)
MR_KERNEL_ADD(single_sorted_128)
