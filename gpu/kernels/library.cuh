/* cuBLAS, loaded when a kernel is prepared: programs that only list kernels, and machines without
 * it, do not need it. */
#ifndef MOEREF_LIBRARY_CUH
#define MOEREF_LIBRARY_CUH

#include <cublasLt.h>
#include <cublas_v2.h>
#include <dlfcn.h>

#include "cublas_lines.h"
#include "kernel.cuh"

static inline void *open_library(const char *name, struct mr_kernel_why why)
{
    char path[128];
    snprintf(path, sizeof path, "%s.so.%d", name, CUBLAS_VER_MAJOR);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (library) return library;
    SAY(why, "%s", dlerror());
    snprintf(path, sizeof path, "/usr/local/cuda/lib64/%s.so.%d", name, CUBLAS_VER_MAJOR);
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

/* Looks a function up under its own name; false with a reason. */
template <typename F>
static bool find_function(void *library, const char *name, F *out, struct mr_kernel_why why)
{
    *out = (F)dlsym(library, name);
    if (!*out) SAY(why, "cuBLAS has no %s", name);
    return *out != nullptr;
}
#define FIND(library, NAME, out, why) find_function(library, NAME, &(out), why)

struct cublas {
    cublasHandle_t handle;
    void *stream, *workspace; /* as last set */
    decltype(&cublasCreate_v2) create;
    decltype(&cublasDestroy_v2) destroy;
    decltype(&cublasSetStream_v2) set_stream;
    decltype(&cublasSetWorkspace_v2) set_workspace;
    /* cublasGemmEx, which is overloaded in C++ */
    cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                           const void *, const void *, cudaDataType, int, const void *,
                           cudaDataType, int, const void *, void *, cudaDataType, int,
                           cublasComputeType_t, cublasGemmAlgo_t);
    decltype(&cublasSgemm_v2) sgemm;
};

/* What PyTorch gives cuBLAS on Hopper; the choice of algorithm depends on it. */
#define CUBLAS_WORKSPACE (UINT64_C(32) << 20)

static inline int cublas_status(cublasStatus_t status, const char *what, struct mr_kernel_why why)
{
    if (status == CUBLAS_STATUS_SUCCESS) return MR_KERNEL_OK;
    SAY(why, "%s: cuBLAS status %d", what, (int)status);
    return MR_KERNEL_FAILED;
}

static inline void cublas_close(struct cublas *c)
{
    if (c && c->handle) c->destroy(c->handle);
    delete c;
}

/* NULL with a reason. */
static inline struct cublas *cublas_open(struct mr_kernel_why why)
{
    void *library = open_library("libcublas", why);
    if (!library) return nullptr;
    struct cublas *c = new struct cublas();
    if (FIND(library, "cublasCreate_v2", c->create, why) &&
        FIND(library, "cublasDestroy_v2", c->destroy, why) &&
        FIND(library, "cublasSetStream_v2", c->set_stream, why) &&
        FIND(library, "cublasSetWorkspace_v2", c->set_workspace, why) &&
        FIND(library, "cublasGemmEx", c->gemm, why) &&
        FIND(library, "cublasSgemm_v2", c->sgemm, why) &&
        cublas_status(c->create(&c->handle), "cublasCreate", why) == MR_KERNEL_OK)
        return c;
    cublas_close(c);
    return nullptr;
}

/* Only what is new, since launches are captured too. The stream first: setting it takes the
 * workspace away. */
static inline int cublas_use(struct cublas *c, void *stream, void *workspace,
                             struct mr_kernel_why why)
{
    if (c->stream == stream && c->workspace == workspace) return MR_KERNEL_OK;
    int status =
        cublas_status(c->set_stream(c->handle, (cudaStream_t)stream), "cublasSetStream", why);
    if (status == MR_KERNEL_OK)
        status = cublas_status(c->set_workspace(c->handle, workspace, CUBLAS_WORKSPACE),
                               "cublasSetWorkspace", why);
    c->stream = stream;
    c->workspace = status == MR_KERNEL_OK ? workspace : nullptr;
    return status;
}

/* logits [rows, experts] = hidden [rows, k] . gate [experts, k]^T, all row major: column major it
 * is logits^T = gate^T^T . hidden^T. */
static inline int cublas_router(struct cublas *c, const struct mr_kernel_problem *p,
                                const void *hidden, const void *gate, void *logits,
                                cudaDataType_t in, cudaDataType_t out, struct mr_kernel_why why)
{
    const float one = 1, zero = 0;
    int experts = p->router.experts, k = p->router.hidden;
    return cublas_status(c->gemm(c->handle, CUBLAS_OP_T, CUBLAS_OP_N, experts, p->rows, k, &one,
                                 gate, in, k, hidden, in, k, &zero, logits, out, experts,
                                 CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP),
                         "cublasGemmEx", why);
}

static inline int cublas_router_fp32(struct cublas *c, const struct mr_kernel_problem *p,
                                     const float *hidden, const float *gate, float *logits,
                                     struct mr_kernel_why why)
{
    const float one = 1, zero = 0;
    int experts = p->router.experts, k = p->router.hidden;
    return cublas_status(c->sgemm(c->handle, CUBLAS_OP_T, CUBLAS_OP_N, experts, p->rows, k, &one,
                                  gate, k, hidden, k, &zero, logits, experts),
                         "cublasSgemm", why);
}

#endif
