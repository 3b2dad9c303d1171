/* Tables of the special-function unit (MUFU) of an H200, by segment: C0, and C1 << 12 | C2. Ours:
 * recovered from its outputs by gpu/sweep/recover.c (gpu/sweep/tables.sh). Inside ref/arith. */
#ifndef MOEREF_CUDA_TABLES_H
#define MOEREF_CUDA_TABLES_H

#include <stdint.h>

struct mr_mufu_segment {
    uint32_t c0, c12;
};

extern const struct mr_mufu_segment mr_mufu_ex2[64], mr_mufu_rcp[128], mr_mufu_rsqrt[128],
    mr_mufu_lg2[64], mr_mufu_sqrt[128];

/* MUFU.TANH: y = C0 + C1 xl - C2 q. The octaves from 2^-8 on have 1, 1, 1, 2, 2, 4, 4, 4, 8, 16, 8
 * segments. */
enum { MR_MUFU_TANH_OCTAVES = 11, MR_MUFU_TANH_SEGMENTS = 51 };
struct mr_mufu_tanh_segment {
    double c0, c1, c2;
};
extern const struct mr_mufu_tanh_segment mr_mufu_tanh[MR_MUFU_TANH_SEGMENTS];
/* Of an octave: its first segment | bits of the index << 8. */
extern const uint32_t mr_mufu_tanh_octave[MR_MUFU_TANH_OCTAVES];

#endif
