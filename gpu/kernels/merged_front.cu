/* merged_front: what stands at the front of a MoE block in one pass over the hidden states: the
 * gate weight stacked on a projection of 3584 rows, one GEMM (cuBLAS, bf16 in, fp32 out) over all
 * of it, then one kernel with the top-k (radix select, radix.cuh) of the first columns and a bf16
 * cast of the rest.
 *
 *   merged_front          ids and weights
 *   merged_front_logits   copies the logits out, too
 *   radix_select          the second kernel's top-k alone, from fp32 logits
 *
 * Rows: any. Launches: the GEMM's one or two, and 1; the second kernel tied to cuBLAS's by
 * programmatic dependent launch. Made for 896 experts of hidden size 7168 and top_k 16; any other
 * shape is served. The projection is made by prepare (front.h), since the harness has none. Its
 * results are computed, rounded and written at every launch, and judged by nobody on a GPU:
 * tests/test_kernel_front.c holds the cast against mr_bf16_encode, on a CPU.
 *
 * Arithmetic line: none. Which algorithm cuBLAS takes depends on all columns, and no H200 has been
 * asked about these; so logits depend on the rows as cuBLAS's choice does. radix_select: fp32,
 * batch-invariant. Without cuBLAS (MR_SIMT) a chain of FMA stands in its place: fma. */
#include "front.h"
#include "radix.cuh"
#ifndef MR_SIMT
#include "library.cuh"
#endif

#define STACK_THREADS 256

/* stacked [experts + FRONT_ROWS, hidden]: the gate, then the projection. */
__global__ static void stack_step(const uint16_t *gate, size_t of_gate, size_t n, uint16_t *stacked)
{
    size_t i = (size_t)blockIdx.x * STACK_THREADS + threadIdx.x;
    if (i < n) stacked[i] = i < of_gate ? gate[i] : front_weight((uint32_t)(i - of_gate));
}

static int stack(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b, void *stream,
                 struct mr_kernel_why why)
{
    size_t hidden = (size_t)p->router.hidden, n = front_columns(p) * hidden;
    return launched(launch_grid(false, stream,
                                dim3((unsigned)((n + STACK_THREADS - 1) / STACK_THREADS)),
                                STACK_THREADS, stack_step, (const uint16_t *)b->gate,
                                (size_t)p->router.experts * hidden, n, (uint16_t *)b->state),
                    "stack", why);
}

#ifdef MR_SIMT
#define FRONT_WORKSPACE 0
struct cublas;
static struct cublas *cublas_open(struct mr_kernel_why)
{
    return nullptr;
}
static void cublas_close(struct cublas *)
{
}
static int merged(struct cublas *, const struct mr_kernel_problem *p,
                  const struct mr_kernel_buffers *b, float *out, void *, struct mr_kernel_why)
{
    size_t n = front_columns(p), k = (size_t)p->router.hidden;
    const uint16_t *x = (const uint16_t *)b->hidden, *w = (const uint16_t *)b->state;
    for (size_t row = 0; row < (size_t)p->rows; row++)
        for (size_t c = 0; c < n; c++) {
            float sum = 0.0f;
            for (size_t i = 0; i < k; i++)
                sum = fmaf(load_logit(x, row * k + i), load_logit(w, c * k + i), sum);
            out[row * n + c] = sum;
        }
    return MR_KERNEL_OK;
}
static void line(const struct mr_kernel_problem *, char *out, size_t size)
{
    snprintf(out, size, "fma");
}
#else
#define FRONT_WORKSPACE CUBLAS_WORKSPACE
__global__ static void delay(int ns)
{
    spin(ns);
}
/* cuBLAS's kernels cannot be told to spin: one ahead of them does. */
static int merged(struct cublas *c, const struct mr_kernel_problem *p,
                  const struct mr_kernel_buffers *b, float *out, void *stream,
                  struct mr_kernel_why why)
{
    struct mr_kernel_problem wide = *p;
    wide.router.experts = (int32_t)front_columns(p);
    int status = cublas_use(c, stream, b->scratch, why);
    if (status == MR_KERNEL_OK && p->delay_ns > 0)
        status =
            launched(launch_grid(false, stream, dim3(1), 32, delay, p->delay_ns), "delay", why);
    if (status != MR_KERNEL_OK) return status;
    return cublas_router(c, &wide, b->hidden, b->state, out, CUDA_R_16BF, CUDA_R_32F, why);
}
static void line(const struct mr_kernel_problem *, char *out, size_t)
{
    out[0] = '\0';
}
#endif

static int sizes(const struct mr_kernel_problem *p, struct mr_kernel_sizes *out,
                 struct mr_kernel_why)
{
    out->state = front_columns(p) * (uint64_t)p->router.hidden * sizeof(uint16_t);
    out->scratch = FRONT_WORKSPACE + front_merged_bytes(p) + front_rest_bytes(p);
    return MR_KERNEL_OK;
}

static int prepare(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                   void *stream, void **handle, struct mr_kernel_why why)
{
    *handle = cublas_open(why);
    if (FRONT_WORKSPACE && !*handle) return MR_KERNEL_FAILED;
    return stack(p, b, stream, why);
}

static void release(void *handle)
{
    cublas_close((struct cublas *)handle);
}

static int launch(void *handle, const struct mr_kernel_problem *p,
                  const struct mr_kernel_buffers *b, void *stream, struct mr_kernel_why why)
{
    float *all = (float *)((char *)b->scratch + FRONT_WORKSPACE);
    const struct radix_in in = {all, front_columns(p), b->bias, b->gate_bias};
    const struct radix_out out = {(float *)b->logits, b->ids, (float *)b->weights,
                                  (uint16_t *)((char *)all + front_merged_bytes(p))};
    int status = merged((struct cublas *)handle, p, b, all, stream, why);
    return status != MR_KERNEL_OK ? status : launch_radix(p, in, out, p->pdl, stream, why);
}

static void select_line(const struct mr_kernel_problem *, char *out, size_t size)
{
    snprintf(out, size, "fp32");
}
static int select_launch(void *, const struct mr_kernel_problem *p,
                         const struct mr_kernel_buffers *b, void *stream, struct mr_kernel_why why)
{
    const struct radix_in in = {(const float *)b->given, (size_t)p->router.experts, b->bias,
                                nullptr};
    const struct radix_out out = {nullptr, b->ids, (float *)b->weights, nullptr};
    return launch_radix(p, in, out, false, stream, why);
}

#define FRONT(NAME, ABOUT, MORE)                                                                   \
    {                                                                                              \
        .abi = MR_KERNEL_ABI, .family = "merged_front", .name = NAME, .summary = ABOUT,            \
        .memory = MR_KERNEL_WHERE, .min_rows = 1, .max_rows = 0, .hidden_types = MR_KERNEL_BF16,   \
        .gate_types = MR_KERNEL_BF16, .gives = MR_GIVES_IDS | MR_GIVES_WEIGHTS | MORE,             \
        .logits_type = MR_KERNEL_FP32, .weights_type = MR_KERNEL_FP32,                             \
        .promises =                                                                                \
            MR_KERNEL_DETERMINISTIC | MR_KERNEL_ORDERED | MR_KERNEL_HAS_DELAY | MR_KERNEL_HAS_PDL, \
        .supports = routing_supported, .arith = line, .sizes = sizes, .prepare = prepare,          \
        .launch = launch, .release = release                                                       \
    }
static const struct mr_kernel front = FRONT(
    "merged_front", "gate and a 3584-row projection in one cuBLAS GEMM, radix select and cast", 0);
static const struct mr_kernel front_logits =
    FRONT("merged_front_logits", "merged_front, which copies its logits out", MR_GIVES_LOGITS);
static const struct mr_kernel radix = {
    .abi = MR_KERNEL_ABI,
    .family = "merged_front",
    .name = "radix_select",
    .summary = "a block a row, radix select, from fp32 logits",
    .memory = MR_KERNEL_WHERE,
    .min_rows = 1,
    .max_rows = 0,
    .given_types = MR_KERNEL_FP32,
    .gives = MR_GIVES_IDS | MR_GIVES_WEIGHTS,
    .weights_type = MR_KERNEL_FP32,
    .promises = MR_KERNEL_DETERMINISTIC | MR_KERNEL_BATCH_INVARIANT | MR_KERNEL_ORDERED,
    .supports = routing_supported,
    .arith = select_line,
    .launch = select_launch,
};
MR_KERNEL_ADD(front)
MR_KERNEL_ADD(front_logits)
MR_KERNEL_ADD(radix)
