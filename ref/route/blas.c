#include "blas.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "../isa.h"

static void sgemm_nt(size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b,
                     size_t ldb, float beta, float *c, size_t ldc)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)m, (blasint)n, (blasint)k, 1.0f,
                a, (blasint)lda, b, (blasint)ldb, beta, c, (blasint)ldc);
}

static void dgemm_nt(size_t m, size_t n, size_t k, const double *a, size_t lda, const double *b,
                     size_t ldb, double beta, double *c, size_t ldc)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)m, (blasint)n, (blasint)k, 1.0, a,
                (blasint)lda, b, (blasint)ldb, beta, c, (blasint)ldc);
}

const struct mr_blas mr_openblas = {sgemm_nt, dgemm_nt};

void mr_openblas_single_threaded(void)
{
    openblas_set_num_threads(1);
}

const char *mr_openblas_better_core(void)
{
    if (getenv("OPENBLAS_CORETYPE") || strcmp(openblas_get_corename(), "Prescott")) return NULL;
    switch (mr_isa_best()) {
    case MR_ISA_V4: return "SkylakeX";
    case MR_ISA_V3: return "Haswell";
    default: return NULL;
    }
}
