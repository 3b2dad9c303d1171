/* cuBLAS as PyTorch's mm calls it, for row-major [rows, K] x [N, K]^T -> [rows, N]. The library is
 * loaded at run time: MOEREF_CUBLAS=PATH, else libcublas.so.13 as the loader finds it. */
#ifndef REVEAL_CUBLAS_H
#define REVEAL_CUBLAS_H

enum gemm_kind { GEMM_BF16_FP32, GEMM_BF16_BF16, GEMM_FP32, GEMM_KINDS };
extern const char *const gemm_kind_names[GEMM_KINDS]; /* bf16-fp32, bf16-bf16, fp32 */

/* Both end the program with a message if they fail. */
void gemm_start(void);
int gemm_version(void); /* of cuBLAS: 130100 is 13.1.0 */
/* Device pointers: a, w bf16 or fp32, d fp32 or bf16. Asynchronous, on stream 0. */
void gemm(enum gemm_kind kind, int rows, int n, int k, const void *a, const void *w, void *d);

#endif
