/* cublas: logits from cuBLAS's tensor-core GEMM, then separate steps.
 *
 *   cublas          bf16 in, fp32 out; cuBLAS chooses the algorithm by shape
 *   cublas_bf16     bf16 in, bf16 out, likewise
 *   cublas_pinned   bf16 in, fp32 out; one algorithm of cuBLASLt for every number of rows: what its
 *                   heuristics give first for 64 rows, workspace and split-K forbidden
 *
 * Rows: any. Launches: the GEMM's one or two, then score, add bias, top-k, gather, sum, add guard,
 * divide (steps.cuh); a gate's own bias is one more.
 * Arithmetic lines: cublas, cublas_bf16: where it was measured, cublas_lines.h; cublas_pinned:
 * hopper-bf16, one chain of 16-term steps over ascending positions, which does not depend on the
 * rows: batch-invariant. */
#ifndef MR_SIMT

#include "library.cuh"
#include "steps.cuh"

template <typename T>
static int after_gemm(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                      void *steps, void *stream, struct mr_kernel_why why)
{
    size_t all = (size_t)p->rows * p->router.experts;
    T *logits = (T *)b->logits;
    if (b->gate_bias) {
        cudaError_t status = launch_grid(
            false, stream, dim3((unsigned)((all + STEP_THREADS - 1) / STEP_THREADS)), STEP_THREADS,
            gate_bias_step<T>, b->gate_bias, p->router.experts, all, logits);
        if (status != cudaSuccess) return launched(status, "gate bias", why);
    }
    return launch_steps<T>(p, b, (const T *)logits, steps, stream, why);
}

static void line(const struct mr_kernel_problem *p, char *out, size_t size)
{
    snprintf(out, size, "%s", cublas_line(p));
}
static void line_bf16(const struct mr_kernel_problem *p, char *out, size_t size)
{
    const char *sum = cublas_line_bf16(p);
    snprintf(out, size, "%s%sbf16-logits", sum, *sum ? "+" : "");
}

static int sizes(const struct mr_kernel_problem *p, struct mr_kernel_sizes *out,
                 struct mr_kernel_why)
{
    out->scratch = CUBLAS_WORKSPACE + steps_scratch(p);
    return MR_KERNEL_OK;
}

static int prepare(const struct mr_kernel_problem *, const struct mr_kernel_buffers *, void *,
                   void **handle, struct mr_kernel_why why)
{
    *handle = cublas_open(why);
    return *handle ? MR_KERNEL_OK : MR_KERNEL_FAILED;
}

static void release(void *handle)
{
    cublas_close((struct cublas *)handle);
}

template <typename T, cudaDataType_t OUT>
static int launch(void *handle, const struct mr_kernel_problem *p,
                  const struct mr_kernel_buffers *b, void *stream, struct mr_kernel_why why)
{
    struct cublas *c = (struct cublas *)handle;
    int status = cublas_use(c, stream, b->scratch, why);
    if (status == MR_KERNEL_OK)
        status = cublas_router(c, p, b->hidden, b->gate, b->logits, CUDA_R_16BF, OUT, why);
    if (status != MR_KERNEL_OK) return status;
    return after_gemm<T>(p, b, (char *)b->scratch + CUBLAS_WORKSPACE, stream, why);
}

struct pinned {
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtMatmul) matmul;
    decltype(&cublasLtMatmulDescCreate) new_operation;
    decltype(&cublasLtMatmulDescDestroy) free_operation;
    decltype(&cublasLtMatmulDescSetAttribute) set_operation;
    decltype(&cublasLtMatrixLayoutCreate) new_layout;
    decltype(&cublasLtMatrixLayoutDestroy) free_layout;
    decltype(&cublasLtMatmulPreferenceCreate) new_preference;
    decltype(&cublasLtMatmulPreferenceDestroy) free_preference;
    decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
    decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
    decltype(&cublasLtMatmulAlgoCheck) check;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t gate, hidden, logits;
    cublasLtMatmulAlgo_t algorithm;
};

#define PINNED_AT_ROWS 64

static void pinned_free(void *handle)
{
    struct pinned *p = (struct pinned *)handle;
    if (!p) return;
    if (p->logits) p->free_layout(p->logits);
    if (p->hidden) p->free_layout(p->hidden);
    if (p->gate) p->free_layout(p->gate);
    if (p->operation) p->free_operation(p->operation);
    if (p->handle) p->destroy(p->handle);
    delete p;
}

static bool pinned_find(struct pinned *p, struct mr_kernel_why why)
{
    void *l = open_library("libcublasLt", why);
    return l && FIND(l, "cublasLtCreate", p->create, why) &&
           FIND(l, "cublasLtDestroy", p->destroy, why) &&
           FIND(l, "cublasLtMatmul", p->matmul, why) &&
           FIND(l, "cublasLtMatmulDescCreate", p->new_operation, why) &&
           FIND(l, "cublasLtMatmulDescDestroy", p->free_operation, why) &&
           FIND(l, "cublasLtMatmulDescSetAttribute", p->set_operation, why) &&
           FIND(l, "cublasLtMatrixLayoutCreate", p->new_layout, why) &&
           FIND(l, "cublasLtMatrixLayoutDestroy", p->free_layout, why) &&
           FIND(l, "cublasLtMatmulPreferenceCreate", p->new_preference, why) &&
           FIND(l, "cublasLtMatmulPreferenceDestroy", p->free_preference, why) &&
           FIND(l, "cublasLtMatmulPreferenceSetAttribute", p->set_preference, why) &&
           FIND(l, "cublasLtMatmulAlgoGetHeuristic", p->choose, why) &&
           FIND(l, "cublasLtMatmulAlgoCheck", p->check, why);
}

/* Layouts for so many rows; column major, see library.cuh. */
static bool pinned_layouts(struct pinned *c, const struct mr_kernel_problem *p, int rows)
{
    uint64_t experts = (uint64_t)p->router.experts, k = (uint64_t)p->router.hidden;
    if (c->hidden) c->free_layout(c->hidden);
    if (c->logits) c->free_layout(c->logits);
    c->hidden = c->logits = nullptr;
    return c->new_layout(&c->hidden, CUDA_R_16BF, k, (uint64_t)rows, (int64_t)k) ==
               CUBLAS_STATUS_SUCCESS &&
           c->new_layout(&c->logits, CUDA_R_32F, experts, (uint64_t)rows, (int64_t)experts) ==
               CUBLAS_STATUS_SUCCESS;
}

static int pinned_choose(struct pinned *c, const struct mr_kernel_problem *p,
                         struct mr_kernel_why why)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    cublasOperation_t transposed = CUBLAS_OP_T;
    uint32_t no_split = CUBLASLT_REDUCTION_SCHEME_NONE;
    uint64_t no_workspace = 0;
    int found = 0;
    cublasStatus_t s = c->create(&c->handle);
    if (!s) s = c->new_operation(&c->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!s)
        s = c->set_operation(c->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                             sizeof transposed);
    if (!s)
        s = c->new_layout(&c->gate, CUDA_R_16BF, (uint64_t)p->router.hidden,
                          (uint64_t)p->router.experts, p->router.hidden);
    if (!s && !pinned_layouts(c, p, PINNED_AT_ROWS)) s = CUBLAS_STATUS_ALLOC_FAILED;
    if (s) return cublas_status(s, "cublasLt", why);
    s = c->new_preference(&preference);
    if (s) return cublas_status(s, "cublasLtMatmulPreferenceCreate", why);
    s = c->set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_split,
                          sizeof no_split);
    if (!s)
        s = c->set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &no_workspace,
                              sizeof no_workspace);
    if (!s)
        s = c->choose(c->handle, c->operation, c->gate, c->hidden, c->logits, c->logits, preference,
                      1, &result, &found);
    c->free_preference(preference);
    if (s || found < 1)
        return cublas_status(s ? s : CUBLAS_STATUS_NOT_SUPPORTED, "cublasLt heuristics", why);
    c->algorithm = result.algo;
    if (!pinned_layouts(c, p, p->rows)) return cublas_status(CUBLAS_STATUS_ALLOC_FAILED, "", why);
    s = c->check(c->handle, c->operation, c->gate, c->hidden, c->logits, c->logits, &c->algorithm,
                 &result);
    return cublas_status(s, "the pinned algorithm with so many rows", why);
}

static int pinned_prepare(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *,
                          void *, void **handle, struct mr_kernel_why why)
{
    struct pinned *c = new struct pinned();
    *handle = c;
    return pinned_find(c, why) ? pinned_choose(c, p, why) : MR_KERNEL_FAILED;
}

static int pinned_sizes(const struct mr_kernel_problem *p, struct mr_kernel_sizes *out,
                        struct mr_kernel_why)
{
    out->scratch = steps_scratch(p);
    return MR_KERNEL_OK;
}

static int pinned_launch(void *handle, const struct mr_kernel_problem *p,
                         const struct mr_kernel_buffers *b, void *stream, struct mr_kernel_why why)
{
    struct pinned *c = (struct pinned *)handle;
    const float one = 1, zero = 0;
    int status =
        cublas_status(c->matmul(c->handle, c->operation, &one, b->gate, c->gate, b->hidden,
                                c->hidden, &zero, b->logits, c->logits, b->logits, c->logits,
                                &c->algorithm, nullptr, 0, (cudaStream_t)stream),
                      "cublasLtMatmul", why);
    return status != MR_KERNEL_OK ? status : after_gemm<float>(p, b, b->scratch, stream, why);
}

static void pinned_line(const struct mr_kernel_problem *, char *out, size_t size)
{
    snprintf(out, size, "hopper-bf16");
}

#define CUBLAS(NAME, ABOUT, LOGITS, PROMISES, LINE, SIZES, PREPARE, LAUNCH, RELEASE)               \
    {                                                                                              \
        .abi = MR_KERNEL_ABI, .family = "cublas", .name = NAME, .summary = ABOUT,                  \
        .memory = MR_KERNEL_WHERE, .min_rows = 1, .max_rows = 0, .hidden_types = MR_KERNEL_BF16,   \
        .gate_types = MR_KERNEL_BF16, .gives = MR_GIVES_LOGITS | MR_GIVES_IDS | MR_GIVES_WEIGHTS,  \
        .logits_type = LOGITS, .weights_type = MR_KERNEL_FP32,                                     \
        .promises = MR_KERNEL_DETERMINISTIC | MR_KERNEL_ORDERED | PROMISES,                        \
        .supports = routing_supported, .arith = LINE, .sizes = SIZES, .prepare = PREPARE,          \
        .launch = LAUNCH, .release = RELEASE                                                       \
    }
static const struct mr_kernel fp32_out =
    CUBLAS("cublas", "cuBLAS bf16 -> fp32, then separate steps", MR_KERNEL_FP32, 0, line, sizes,
           prepare, (launch<float, CUDA_R_32F>), release);
static const struct mr_kernel bf16_out =
    CUBLAS("cublas_bf16", "cuBLAS bf16 -> bf16, then separate steps", MR_KERNEL_BF16, 0, line_bf16,
           sizes, prepare, (launch<uint16_t, CUDA_R_16BF>), release);
static const struct mr_kernel one_algorithm =
    CUBLAS("cublas_pinned", "cuBLASLt bf16 -> fp32, one algorithm for all rows, separate steps",
           MR_KERNEL_FP32, MR_KERNEL_BATCH_INVARIANT, pinned_line, pinned_sizes, pinned_prepare,
           pinned_launch, pinned_free);
MR_KERNEL_ADD(fp32_out)
MR_KERNEL_ADD(bf16_out)
MR_KERNEL_ADD(one_algorithm)

#endif
