/* What cuBLAS 13.1 was seen to compute on an H200, as gpu/reveal revealed it: the table
 * is that of data/reveal-h200/orders.tsv, which tests/test_cublas_h200.c holds it against. Which
 * algorithm cuBLAS takes depends on all of the shape, so nothing is said of others. Plain C as
 * well.
 *
 * With bf16 out the order is that of fp32 out, rounded: the H200's logits of 288 x 4096 and 128 x
 * 512 come back so (cases/cublas-h200-*.json); of 256 x 7168 none were recorded. */
#ifndef MOEREF_CUBLAS_LINES_H
#define MOEREF_CUBLAS_LINES_H

#include <stddef.h>

#include "../harness.h"

struct cublas_seen {
    int experts, hidden, rows;
    const char *bf16, *fp32; /* both operands of that type, fp32 out */
};
static const struct cublas_seen cublas_seen[] = {
    {288, 4096, 1, "hopper-bf16/runs:3x64", "fma/deal:32:halves"},
    {288, 4096, 2, "hopper-bf16/runs:3x64", "fma/runs:64"},
    {288, 4096, 4, "hopper-bf16/runs:3x64", "fma/runs:64"},
    {288, 4096, 5, "hopper-bf16/runs:3x64", "fma/runs:64"},
    {288, 4096, 6, "hopper-bf16/runs:3x64", "fma/runs:64"},
    {288, 4096, 8, "hopper-bf16/runs:3x64", "fma/deal:33x8"},
    {288, 4096, 16, "hopper-bf16/runs:3x64", "fma/deal:33x8"},
    {288, 4096, 17, "hopper-bf16/runs:3x64", "fma/deal:16x8"},
    {288, 4096, 18, "hopper-bf16/runs:3x64", "fma/deal:16x8"},
    {288, 4096, 24, "hopper-bf16/runs:3x64", "fma/deal:16x8"},
    {288, 4096, 32, "hopper-bf16/runs:3x64", "fma/runs:32"},
    {288, 4096, 33, "hopper-bf16/runs:3x64", "fma/deal:16x8"},
    {288, 4096, 64, "hopper-bf16/runs:3x64", "fma/deal:16x8"},
    {288, 4096, 96, "hopper-bf16/runs:3x64", "fma/deal:16x8"},
    {288, 4096, 128, "hopper-bf16/runs:3x64", "fma/deal:16x8"},
    {288, 4096, 256, "hopper-bf16/runs:3x64", "fma/deal:13x8"},
    {288, 4096, 257, "hopper-bf16/runs:2", "fma/deal:10x8"},
    {288, 4096, 512, "hopper-bf16", "fma/deal:13x8"},
    {288, 4096, 513, "hopper-bf16", "fma/deal:5x8"},
    {288, 4096, 1024, "hopper-bf16/runs:2", "fma/deal:6x8"},
    {288, 4096, 1025, "hopper-bf16", "fma/deal:5x8"},
    {288, 4096, 2048, "hopper-bf16", "fma/deal:6x8"},
    {288, 4096, 4096, "hopper-bf16", "fma/deal:3x8"},
    {288, 4096, 8192, "hopper-bf16", "fma/deal:3x8"},
    {128, 512, 1, "hopper-bf16", "fma/runs:32:halves"},
    {128, 512, 2, "hopper-bf16", "fma/runs:16"},
    {128, 512, 4, "hopper-bf16", "fma/runs:16"},
    {128, 512, 5, "hopper-bf16", "fma/runs:16"},
    {128, 512, 6, "hopper-bf16", "fma/runs:16"},
    {128, 512, 8, "hopper-bf16", "fma/runs:64"},
    {128, 512, 16, "hopper-bf16", "fma/runs:64"},
    {128, 512, 17, "hopper-bf16", "fma/runs:16"},
    {128, 512, 18, "hopper-bf16", "fma/runs:16"},
    {128, 512, 24, "hopper-bf16", "fma/runs:16"},
    {128, 512, 32, "hopper-bf16", "fma/runs:8"},
    {128, 512, 33, "hopper-bf16", "fma/runs:8"},
    {128, 512, 64, "hopper-bf16", "fma/runs:8"},
    {128, 512, 96, "hopper-bf16", "fma/runs:8"},
    {128, 512, 128, "hopper-bf16", "fma/runs:8"},
    {128, 512, 256, "hopper-bf16", "fma/runs:8"},
    {128, 512, 257, "hopper-bf16", "fma/runs:8"},
    {128, 512, 512, "hopper-bf16", "fma/runs:8"},
    {128, 512, 513, "hopper-bf16", "fma/runs:6x32"},
    {128, 512, 1024, "hopper-bf16", "fma/deal:4x8"},
    {128, 512, 1025, "hopper-bf16", "fma/deal:7x8"},
    {128, 512, 2048, "hopper-bf16", "fma/deal:4x8"},
    {128, 512, 4096, "hopper-bf16", "fma/deal:2x8"},
    {128, 512, 8192, "hopper-bf16", "fma"},
    {256, 7168, 1, "hopper-bf16/runs:5x64", "fma/deal:32:halves"},
    {256, 7168, 2, "hopper-bf16/runs:5x64", "fma/runs:56"},
    {256, 7168, 4, "hopper-bf16/runs:5x64", "fma/runs:56"},
    {256, 7168, 5, "hopper-bf16/runs:5x64", "fma/runs:56"},
    {256, 7168, 6, "hopper-bf16/runs:5x64", "fma/runs:56"},
    {256, 7168, 8, "hopper-bf16/runs:5x64", "fma/deal:33x8"},
    {256, 7168, 16, "hopper-bf16/runs:5x64", "fma/deal:33x8"},
    {256, 7168, 17, "hopper-bf16/runs:5x64", "fma/runs:56"},
    {256, 7168, 18, "hopper-bf16/runs:5x64", "fma/runs:56"},
    {256, 7168, 24, "hopper-bf16/runs:5x64", "fma/runs:56"},
    {256, 7168, 32, "hopper-bf16/runs:5x64", "fma/runs:56"},
    {256, 7168, 33, "hopper-bf16/runs:5x64", "fma/runs:56"},
    {256, 7168, 64, "hopper-bf16/runs:5x64", "fma/runs:56"},
    {256, 7168, 96, "hopper-bf16/runs:5x64", "fma/runs:56"},
    {256, 7168, 128, "hopper-bf16/runs:5x64", "fma/runs:56"},
    {256, 7168, 256, "hopper-bf16/runs:3x64", "fma/deal:16x8"},
    {256, 7168, 257, "hopper-bf16/runs:5x64", "fma/deal:13x8"},
    {256, 7168, 512, "hopper-bf16/runs:3x64", "fma/deal:8x8"},
    {256, 7168, 513, "hopper-bf16/runs:3x64", "fma/deal:7x8"},
    {256, 7168, 1024, "hopper-bf16/runs:2", "fma/deal:8x8"},
    {256, 7168, 1025, "hopper-bf16/runs:3x64", "fma/deal:14x8"},
    {256, 7168, 2048, "hopper-bf16", "fma/deal:8x8"},
    {256, 7168, 4096, "hopper-bf16", "fma/deal:4x8"},
    {256, 7168, 8192, "hopper-bf16", "fma/deal:2x8"},
};
enum { CUBLAS_SEEN = sizeof cublas_seen / sizeof *cublas_seen };

/* NULL: that shape was never looked at. */
static inline const struct cublas_seen *cublas_seen_at(const struct mr_kernel_problem *p)
{
    for (int i = 0; i < CUBLAS_SEEN; i++)
        if (cublas_seen[i].experts == p->router.experts &&
            cublas_seen[i].hidden == p->router.hidden && cublas_seen[i].rows == p->rows)
            return &cublas_seen[i];
    return NULL;
}

/* bf16 in, fp32 out; "": nothing is declared. */
static inline const char *cublas_line(const struct mr_kernel_problem *p)
{
    const struct cublas_seen *seen = cublas_seen_at(p);
    return seen ? seen->bf16 : "";
}
/* fp32 in and out. */
static inline const char *cublas_line_fp32(const struct mr_kernel_problem *p)
{
    const struct cublas_seen *seen = cublas_seen_at(p);
    return seen ? seen->fp32 : "";
}
/* bf16 in and out: what stands before "bf16-logits", joined by '+'. A gate's own bias is added to a
 * logit that is rounded already, which no line says. */
static inline const char *cublas_line_bf16(const struct mr_kernel_problem *p)
{
    const struct cublas_seen *seen = cublas_seen_at(p);
    int recorded = (p->router.experts == 288 && p->router.hidden == 4096) ||
                   (p->router.experts == 128 && p->router.hidden == 512);
    return seen && recorded && !p->router.gate_bias ? seen->bf16 : "";
}

#endif
