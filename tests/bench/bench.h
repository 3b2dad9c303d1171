/* `make bench`: ratios measured in one run, medians. */
#ifndef MOEREF_BENCH_H
#define MOEREF_BENCH_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "../../ref/route/route.h"

/* Inputs of one shape, made by the library's generator. */
struct bench_input {
    size_t tokens, hidden, experts;
    uint16_t *x, *w;   /* bf16 */
    double *bias;
    double *x64, *w64; /* widened, for the bare dgemm */
    struct mr_router sigmoid, softmax;
};

struct mr_layer bench_layer(const struct bench_input *in, const struct mr_router *router);
double bench_now(void);
void bench_settle(void); /* before anything is timed */
double bench_median(double *v, size_t n);

/* One full dgemm [tokens, hidden] x [experts, hidden]^T with `threads` threads; seconds. */
double bench_dgemm(const struct bench_input *in, double *c, int threads);
/* The other processors' dgemm kernels that OpenBLAS can be told to use: each in a child process of
 * this program (argv[0]), between two timings of the kernel as found. Fills report and returns the
 * smallest ratio to the kernel as found among those that compute right, or +Inf. */
double bench_other_coretypes(const char *program, const struct bench_input *in, int threads,
                             json_t *report);
/* The child's side: prints median seconds, or dies if a result is wrong. */
int bench_dgemm_child(const struct bench_input *in, int threads);

/* Seconds to judge ids and weights [tokens, top_k], which must be found exact (else NaN). */
double bench_verify(const struct bench_input *in, int threads, const int32_t *ids,
                    const double *weights);

/* Dots by each way, and rows that take the exact-bin path. */
void bench_exact_paths(json_t *report);
/* Tensor-core replay by the loops, hidden x experts, every instruction set in a child process (they
 * are chosen once in a process). report gets GMAC/s by instruction set and arithmetic. */
struct bench_mma {
    double bf16, fp8, portable; /* GMAC/s: best instruction set, and `base` */
    double seconds;             /* 8192 rows, bf16 */
};
struct bench_mma bench_mma(const char *program, size_t hidden, size_t experts, json_t *report);
/* The child's side: prints median seconds, or returns 2 if an output is wrong. */
int bench_mma_child(const char *name, size_t rows, size_t hidden, size_t experts);

/* GMAC/s of whole GEMMs replayed, by line; and prints them. */
json_t *bench_replay(const struct bench_input *in, int threads);
/* Peak anonymous memory of a long run over mapped hidden states, MiB beyond what was there before. */
double bench_peak_memory(const struct bench_input *in, size_t tokens);

#endif
