/* One GEMM problem on the device, what both modes of the program share. */
#ifndef REVEAL_PROBLEM_H
#define REVEAL_PROBLEM_H

#include <cstddef>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <string>

#include "cublas.h"
extern "C" {
#include "../../ref/io/safetensors.h"
}

/* End the program with a message. */
void check(cudaError_t e, const char *what);
void check(enum mr_status s, const struct mr_error &err);

static const int row_axis[] = {1,  2,  4,   5,   6,   8,   16,  17,   18,   24,   32,   33,
                               64, 96, 128, 256, 257, 512, 513, 1024, 1025, 2048, 4096, 8192};
enum { MOST_ROWS = 8192 };

/* Both types of both operands, room for any row count. */
struct problem {
    int n, k;
    float *a32, *w32, *d32;
    __nv_bfloat16 *a16, *w16, *d16;
};
problem make_problem(int n, int k);
void free_problem(const problem &p);

/* The GEMM of the first `rows` rows; the result is in d32, widened if need be. D is poisoned before. */
void run(const problem &p, enum gemm_kind kind, int rows);

void narrow(const float *in, __nv_bfloat16 *out, size_t n);
void widen(const __nv_bfloat16 *in, float *out, size_t n);
/* Near N(0, 1), bf16 numbers, by place. */
void fill(float *out, size_t n);

/* Program, GPU, driver, CUDA, cuBLAS. */
void write_metadata(struct mr_writer *w);

int record(const char *source_path, const std::string &folder);
int reveal_trees(const char *path, double limit);

#endif
