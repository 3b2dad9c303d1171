/* pair: tiny_gemm up to 16 rows, cuBLAS above (bf16 in, fp32 out), chained to fused_topk by
 * programmatic dependent launch: the second kernel starts, and reads the biases, while the first
 * still runs, and waits for it before it reads logits.
 *
 *   pair           any rows
 *
 * Launches: 2 up to 16 rows; above, the GEMM's one or two and 1. Arithmetic line:
 * fma/deal:256x16:pairs up to 16 rows; above, what cuBLAS was measured to do (cublas_lines.h). So a
 * token's logits change at 17 rows: not batch-invariant. With a gate's own bias: up to 16 rows. */
#include "fused_topk.cuh"
#include "tiny_gemm.cuh"
#ifndef MR_SIMT
#include "library.cuh"
#endif

#define PAIR_TINY 16

static int supports(const struct mr_kernel_problem *p, struct mr_kernel_why why)
{
    if (!routing_supported(p, why)) return 0;
    if (p->rows <= PAIR_TINY) return tiny_gemm_supported(p, why);
    if (!p->router.gate_bias) return 1;
    SAY(why, "a bias of the gate: at most %d rows", PAIR_TINY);
    return 0;
}

static int small_launch(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                        void *stream, struct mr_kernel_why why)
{
    int status = launch_tiny_gemm(p, b, TINY_ROWS, stream, why);
    if (status != MR_KERNEL_OK) return status;
    return launch_fused_topk<float>(p, b, (const float *)b->logits, p->pdl, stream, why);
}

#ifdef MR_SIMT
#define PAIR_MOST PAIR_TINY
static void line(const struct mr_kernel_problem *, char *out, size_t size)
{
    snprintf(out, size, "%s", TINY_LINE);
}
static int launch(void *, const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                  void *stream, struct mr_kernel_why why)
{
    return small_launch(p, b, stream, why);
}
#define PAIR_CALLS .launch = launch
#else
#define PAIR_MOST          0
static void line(const struct mr_kernel_problem *p, char *out, size_t size)
{
    snprintf(out, size, "%s", p->rows <= PAIR_TINY ? TINY_LINE : cublas_line(p));
}

__global__ static void delay(int ns)
{
    spin(ns);
}

static int sizes(const struct mr_kernel_problem *p, struct mr_kernel_sizes *out,
                 struct mr_kernel_why)
{
    out->scratch = p->rows <= PAIR_TINY ? 0 : CUBLAS_WORKSPACE;
    return MR_KERNEL_OK;
}
static int prepare(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *, void *,
                   void **handle, struct mr_kernel_why why)
{
    if (p->rows <= PAIR_TINY) return MR_KERNEL_OK;
    *handle = cublas_open(why);
    return *handle ? MR_KERNEL_OK : MR_KERNEL_FAILED;
}
static void release(void *handle)
{
    cublas_close((struct cublas *)handle);
}
/* cuBLAS's kernels cannot be told to spin: one ahead of them does. */
static int launch(void *handle, const struct mr_kernel_problem *p,
                  const struct mr_kernel_buffers *b, void *stream, struct mr_kernel_why why)
{
    if (p->rows <= PAIR_TINY) return small_launch(p, b, stream, why);
    struct cublas *c = (struct cublas *)handle;
    int status = cublas_use(c, stream, b->scratch, why);
    if (status == MR_KERNEL_OK && p->delay_ns > 0)
        status =
            launched(launch_grid(false, stream, dim3(1), 32, delay, p->delay_ns), "delay", why);
    if (status == MR_KERNEL_OK)
        status = cublas_router(c, p, b->hidden, b->gate, b->logits, CUDA_R_16BF, CUDA_R_32F, why);
    if (status != MR_KERNEL_OK) return status;
    return launch_fused_topk<float>(p, b, (const float *)b->logits, p->pdl, stream, why);
}
#define PAIR_CALLS .sizes = sizes, .prepare = prepare, .launch = launch, .release = release
#endif

#define PAIR(NAME, ABOUT, MOST, ...)                                                               \
    {                                                                                              \
        .abi = MR_KERNEL_ABI, .family = "pair", .name = NAME, .summary = ABOUT,                    \
        .memory = MR_KERNEL_WHERE, .min_rows = 1, .max_rows = MOST,                                \
        .hidden_types = MR_KERNEL_BF16, .gate_types = MR_KERNEL_BF16,                              \
        .gives = MR_GIVES_LOGITS | MR_GIVES_IDS | MR_GIVES_WEIGHTS, .logits_type = MR_KERNEL_FP32, \
        .weights_type = MR_KERNEL_FP32,                                                            \
        .promises =                                                                                \
            MR_KERNEL_DETERMINISTIC | MR_KERNEL_ORDERED | MR_KERNEL_HAS_DELAY | MR_KERNEL_HAS_PDL, \
        .supports = supports, .arith = line, __VA_ARGS__                                           \
    }
static const struct mr_kernel pair =
    PAIR("pair", "tiny_gemm up to 16 rows, cuBLAS above, chained to fused_topk", PAIR_MOST,
         PAIR_CALLS);
MR_KERNEL_ADD(pair)
