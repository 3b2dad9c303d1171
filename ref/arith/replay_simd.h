/* Inside of a replay: many experts' chains of binary32 operations side by side. */
#ifndef MOEREF_REPLAY_SIMD_H
#define MOEREF_REPLAY_SIMD_H

#include <stddef.h>

#include "../isa.h"

/* Experts side by side. gate is [n][LANES], x is `rows` rows of n values, `pitch` apart, and sum is
 * [rows][LANES]: sum = the chain that goes on from it, over n terms ascending. */
enum { MR_REPLAY_LANES = 64 };

/* sum = fma(x, gate, sum), rounded once, with or without an instruction for it. */
MR_ISA_DECLARE(void, mr_chain_fma, const float *gate, const float *x, size_t pitch, size_t n,
               size_t rows, float *sum);
/* sum = sum + (x * gate rounded). */
MR_ISA_DECLARE(void, mr_chain_mul_add, const float *gate, const float *x, size_t pitch, size_t n,
               size_t rows, float *sum);
/* into = into + from, n of each. */
MR_ISA_DECLARE(void, mr_add_partials, float *into, const float *from, size_t n);
/* into = fma(scale, from, into). from may be into: then the last operand is +0. */
MR_ISA_DECLARE(void, mr_promote_partials, float *into, const float *from, const float *scale,
               size_t n);

#endif
