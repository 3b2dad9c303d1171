/* The calls are those of torch 2.11: cublasGemmEx with fp32 compute for bf16 operands, cublasSgemm
 * without TF32 for fp32, a workspace of 32 MiB (the workspace decides which split-K kernels the
 * heuristics may take). gpu/reveal/reveal.cu compares with recordings that torch.mm made. */
#include "cublas.h"

#include <cstdio>
#include <cstdlib>
#include <cublas_v2.h>
#include <dlfcn.h>

const char *const gemm_kind_names[GEMM_KINDS] = {"bf16-fp32", "bf16-bf16", "fp32"};

static cublasHandle_t handle;
static void *library;

static void *symbol(const char *name)
{
    void *p = dlsym(library, name);
    if (p) return p;
    fprintf(stderr, "reveal: cuBLAS has no %s\n", name);
    exit(1);
}

static void check(cublasStatus_t s, const char *what)
{
    if (s == CUBLAS_STATUS_SUCCESS) return;
    fprintf(stderr, "reveal: %s: cuBLAS status %d\n", what, (int)s);
    exit(1);
}

/* cublas_v2.h gives some functions their names by macros. */
#define STRING_(x) #x
#define STRING(x) STRING_(x)

void gemm_start(void)
{
    const char *path = getenv("MOEREF_CUBLAS");
    library = dlopen(path ? path : "libcublas.so.13", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "reveal: %s (MOEREF_CUBLAS=PATH names libcublas)\n", dlerror());
        exit(1);
    }
    auto create = (cublasStatus_t(*)(cublasHandle_t *))symbol(STRING(cublasCreate));
    auto set_workspace =
        (cublasStatus_t(*)(cublasHandle_t, void *, size_t))symbol(STRING(cublasSetWorkspace));
    check(create(&handle), "create");
    void *workspace;
    const size_t bytes = 32 << 20;
    if (cudaMalloc(&workspace, bytes) != cudaSuccess) exit(1);
    check(set_workspace(handle, workspace, bytes), "workspace");
}

int gemm_version(void)
{
    auto get = (cublasStatus_t(*)(cublasHandle_t, int *))symbol(STRING(cublasGetVersion));
    int version = 0;
    check(get(handle, &version), "version");
    return version;
}

void gemm(enum gemm_kind kind, int rows, int n, int k, const void *a, const void *w, void *d)
{
    const float one = 1, zero = 0;
    static auto gemm_ex =
        (cublasStatus_t(*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                           const void *, const void *, cudaDataType, int, const void *,
                           cudaDataType, int, const void *, void *, cudaDataType, int,
                           cublasComputeType_t, cublasGemmAlgo_t))symbol("cublasGemmEx");
    static auto sgemm = (cublasStatus_t(*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
                                           int, int, const float *, const float *, int,
                                           const float *, int, const float *, float *,
                                           int))symbol(STRING(cublasSgemm));
    if (kind == GEMM_FP32) {
        check(sgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, rows, k, &one, (const float *)w, k,
                    (const float *)a, k, &zero, (float *)d, n), "Sgemm");
        return;
    }
    cudaDataType_t type = kind == GEMM_BF16_FP32 ? CUDA_R_32F : CUDA_R_16BF;
    check(gemm_ex(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, rows, k, &one, w, CUDA_R_16BF, k, a,
                  CUDA_R_16BF, k, &zero, d, type, n, CUBLAS_COMPUTE_32F,
                  CUBLAS_GEMM_DEFAULT_TENSOR_OP), "GemmEx");
}
