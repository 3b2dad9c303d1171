/* The one thing the filter asks of BLAS: C = beta C + A B^T, beta 0 or 1, row major, A [m, k],
 * B [n, k], C [m, n]. A pair of function pointers, so that tests can put a wrong BLAS there. */
#ifndef MOEREF_BLAS_H
#define MOEREF_BLAS_H

#include <stddef.h>

struct mr_blas {
    void (*sgemm_nt)(size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b,
                     size_t ldb, float beta, float *c, size_t ldc);
    void (*dgemm_nt)(size_t m, size_t n, size_t k, const double *a, size_t lda, const double *b,
                     size_t ldb, double beta, double *c, size_t ldc);
};

extern const struct mr_blas mr_openblas;

/* One thread for each BLAS call: rows are shared out by the caller. Call once, before threads. */
void mr_openblas_single_threaded(void);

/* OpenBLAS picks its kernels by a table of processors when it is loaded; one that is newer than the
 * table gets those of a Prescott (2004), five times slower than need be (measured: 0.3.21 on a
 * Sapphire Rapids Xeon, 303 ms against 61). The OPENBLAS_CORETYPE that serves such a processor, or
 * NULL if OpenBLAS chose well or the variable is set. It takes effect in a new process only. */
const char *mr_openblas_better_core(void);

#endif
