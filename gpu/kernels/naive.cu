/* naive: what eager code does, in nine launches: cast the hidden states to fp32, fp32 GEMM (cuBLAS,
 * no TF32), score, add bias, top-k, gather, sum, add guard, divide. The gate weight is cast once,
 * when the kernel is prepared.
 *
 *   naive   any types in, fp32 logits
 *
 * Rows: any. Launches: 9 for a sigmoid or sqrt-softplus router with bias and norm_topk_prob whose
 * GEMM is one kernel (split GEMMs add one that adds up); steps.cuh says what others leave out.
 * Arithmetic line: where cuBLAS's was measured on an H200, cublas_lines.h. */
#ifndef MR_SIMT

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "library.cuh"
#include "steps.cuh"

__global__ static void cast_step(const void *in, int type, size_t n, float *out)
{
    size_t i = step_index();
    if (i >= n) return;
    out[i] = type == MR_KERNEL_BF16   ? __bfloat162float(((const __nv_bfloat16 *)in)[i])
             : type == MR_KERNEL_FP16 ? __half2float(((const __half *)in)[i])
                                      : ((const float *)in)[i];
}

static int cast(const void *in, int type, size_t n, float *out, void *stream,
                struct mr_kernel_why why)
{
    return launched(launch_grid(false, stream,
                                dim3((unsigned)((n + STEP_THREADS - 1) / STEP_THREADS)),
                                STEP_THREADS, cast_step, in, type, n, out),
                    "cast", why);
}

static void line(const struct mr_kernel_problem *p, char *out, size_t size)
{
    snprintf(out, size, "%s", cublas_line_fp32(p));
}

static uint64_t hidden_bytes(const struct mr_kernel_problem *p)
{
    return round_256((uint64_t)p->rows * (uint64_t)p->router.hidden * sizeof(float));
}

static int sizes(const struct mr_kernel_problem *p, struct mr_kernel_sizes *out,
                 struct mr_kernel_why)
{
    out->state = (uint64_t)p->router.experts * (uint64_t)p->router.hidden * sizeof(float);
    out->scratch = CUBLAS_WORKSPACE + hidden_bytes(p) + steps_scratch(p);
    return MR_KERNEL_OK;
}

static int prepare(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                   void *stream, void **handle, struct mr_kernel_why why)
{
    *handle = cublas_open(why);
    if (!*handle) return MR_KERNEL_FAILED;
    return cast(b->gate, p->gate_type, (size_t)p->router.experts * p->router.hidden,
                (float *)b->state, stream, why);
}

static void release(void *handle)
{
    cublas_close((struct cublas *)handle);
}

static int launch(void *handle, const struct mr_kernel_problem *p,
                  const struct mr_kernel_buffers *b, void *stream, struct mr_kernel_why why)
{
    struct cublas *c = (struct cublas *)handle;
    float *hidden = (float *)((char *)b->scratch + CUBLAS_WORKSPACE), *logits = (float *)b->logits;
    void *steps = (char *)hidden + hidden_bytes(p);
    size_t all = (size_t)p->rows * p->router.experts;
    int status = cublas_use(c, stream, b->scratch, why);
    if (status == MR_KERNEL_OK)
        status = cast(b->hidden, p->hidden_type, (size_t)p->rows * p->router.hidden, hidden, stream,
                      why);
    if (status == MR_KERNEL_OK)
        status = cublas_router_fp32(c, p, hidden, (const float *)b->state, logits, why);
    if (status == MR_KERNEL_OK && b->gate_bias)
        status = launched(launch_grid(false, stream,
                                      dim3((unsigned)((all + STEP_THREADS - 1) / STEP_THREADS)),
                                      STEP_THREADS, gate_bias_step<float>, b->gate_bias,
                                      p->router.experts, all, logits),
                          "gate bias", why);
    if (status != MR_KERNEL_OK) return status;
    return launch_steps<float>(p, b, (const float *)logits, steps, stream, why);
}

#define ANY_TYPE (MR_KERNEL_BF16 | MR_KERNEL_FP16 | MR_KERNEL_FP32)
static const struct mr_kernel naive = {
    .abi = MR_KERNEL_ABI,
    .family = "naive",
    .name = "naive",
    .summary = "cast, fp32 GEMM of cuBLAS, then separate steps: nine launches",
    .memory = MR_KERNEL_WHERE,
    .min_rows = 1,
    .max_rows = 0,
    .hidden_types = ANY_TYPE,
    .gate_types = ANY_TYPE,
    .gives = MR_GIVES_LOGITS | MR_GIVES_IDS | MR_GIVES_WEIGHTS,
    .logits_type = MR_KERNEL_FP32,
    .weights_type = MR_KERNEL_FP32,
    .promises = MR_KERNEL_DETERMINISTIC | MR_KERNEL_ORDERED,
    .supports = routing_supported,
    .arith = line,
    .sizes = sizes,
    .prepare = prepare,
    .launch = launch,
    .release = release,
};
MR_KERNEL_ADD(naive)

#endif
