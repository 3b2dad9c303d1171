/* Two kernels on the same rows: how far their logits are apart, and whose sets differ. */
#ifndef MOEREF_GPU_AGAINST_H
#define MOEREF_GPU_AGAINST_H

#include "../ref/moeref.h"

struct gpu_against {
    uint64_t rows;     /* compared; 0: there was nothing to compare */
    double difference; /* largest |a - b| of their logits; NAN: one of them gave none */
    uint64_t bits;     /* rows with a logit that differs in its bits (as values of binary32) */
    uint64_t sets;     /* rows with other experts */
    bool has_sets;     /* both gave ids */
};
void gpu_against_init(struct gpu_against *a);

/* Adds the rows of one layer. Both hold the same tokens in the same rows, which is what the harness
 * gives every kernel at a row count; if they do not, nothing is added. */
enum mr_status gpu_against_add(const struct mr_observed *a, const struct mr_observed *b, int top_k,
                               int experts, struct gpu_against *out);

#endif
