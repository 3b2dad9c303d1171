/* Between the CUDA parts of the harness (*_cuda.c, floors.cu). Not for kernels. */
#ifndef MOEREF_GPU_CUDA_GLUE_H
#define MOEREF_GPU_CUDA_GLUE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* floors.cu. All only launch. */
cudaError_t gpu_launch_empty(int blocks, cudaStream_t stream);
/* Every byte of data (16-byte aligned, a multiple of 16) is read once; sink is written never,
 * but no compiler can know. */
cudaError_t gpu_launch_read(const void *data, size_t bytes, int *sink, cudaStream_t stream);
/* Whether this device runs the code of this program. */
cudaError_t gpu_code_runs(void);

/* cupti_cuda.c. A recording of kernels that ran in graphs. */
struct gpu_span {
    unsigned id; /* of the graph's launch */
    unsigned long long start, end; /* ns: of its first kernel, of its last */
    int kernels;
};
/* Loads CUPTI, once, before the first CUDA call; false where it cannot be: *why (static) says
 * why. */
bool gpu_cupti_start(const char **why);
/* Spans of all graph launches since the last call that ended, in order of start: *out is the
 * recorder's own until the next call. -1: records were lost. */
int gpu_cupti_take(const struct gpu_span **out);

#ifdef __cplusplus
}
#endif

#endif
