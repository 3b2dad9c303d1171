/* One kernel's outputs for the same tokens at many row counts, compared bit for bit. */
#ifndef MOEREF_GPU_BITS_H
#define MOEREF_GPU_BITS_H

#include "../ref/moeref.h"

struct gpu_bits; /* of one kernel and one layer */

enum mr_status gpu_bits_new(size_t tokens, int top_k, int experts, struct gpu_bits **out);
void gpu_bits_free(struct gpu_bits *b);

struct gpu_bits_count {
    uint64_t bit_changes; /* tokens whose logits differ from the row count added before */
    bool compared;        /* logits, with a row count before */
    uint64_t batch_flips; /* tokens with a set other than the first that was ever seen of them */
    uint64_t batch_bits;  /* tokens of whose ids, weights or logits any bit differs from that */
    bool sets;            /* there were ids */
};

/* Adds the rows of one row count; row counts come in ascending order. */
void gpu_bits_add(struct gpu_bits *b, const struct mr_observed *o, struct gpu_bits_count *out);

#endif
