/* A whole GEMM under an arithmetic, bit for bit: logits = hidden . gate^T (+ gate bias).
 *
 * Inf, signed zeros and subnormals are IEEE 754's at every step: operands and results are never
 * flushed (cuBLAS's kernels do not; -ftz=true is none of these arithmetics), and the floating-point
 * modes of the calling thread neither count nor change. A NaN comes out as what NVIDIA's
 * instructions give, 0x7fffffff (or the value of bf16 or fp16 0x7fff); which NaN went in is not
 * followed. */
#ifndef MOEREF_REPLAY_H
#define MOEREF_REPLAY_H

#include <stddef.h>

#include "../tensor.h"
#include "arith.h"

/* Operands as stored: BF16, F16, F32, F8_E4M3 or F8_E5M2, row major, unaligned. They outlive the
 * replay. */
struct mr_gemm {
    struct mr_matrix hidden; /* [tokens, k] */
    struct mr_matrix gate;   /* [experts, k] */
    /* [experts] or NULL: added to the binary32 sum before the final rounding (a cuBLASLt bias
     * epilogue; unverified). */
    const float *gate_bias;
    /* Scales of PROMOTE, one for each tile of that level, or NULL: 1. The factor of one part is
     * hidden_scale * gate_scale, rounded to binary32. [tokens, tiles], [experts, tiles]. */
    const float *hidden_scale, *gate_scale;
};

struct mr_replay; /* the gate weight, packed for one arithmetic */

/* arith->sum EXACT: the exact dot (+ gate bias), rounded once to the type of logits; +0 if it is
 * zero; Inf or NaN if a product or the bias is. For an instruction, operands must be values of its
 * types, once the words bf16-hidden and bf16-gate have rounded them (TF32 takes any binary32 word
 * and drops its low 13 bits): else MR_ERR_VALUE names the first that is not, as tensor, row and
 * column; of hidden states in mr_replay_rows. MR_ERR_UNSUPPORTED for an instruction that needs block
 * scales (mxf8f6f4, mxf4, nvf4): those are replayed as single steps only (mma.h). MR_ERR_USAGE for
 * scales without exactly one promote level. */
enum mr_status mr_replay_new(const struct mr_arith *arith, const struct mr_gemm *gemm,
                             struct mr_replay **out, struct mr_error *err);
/* Rows first .. first + count - 1 of hidden into out [count, experts], as values: the bits of a
 * bf16 or fp16 logit are those of its value. The same bits whichever way rows are grouped. Runs on
 * the calling thread; threads may share a replay. */
enum mr_status mr_replay_rows(const struct mr_replay *replay, size_t first, size_t count,
                              float *out, struct mr_error *err);
void mr_replay_free(struct mr_replay *replay);

#endif
