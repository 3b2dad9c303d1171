/* Tensor-core arithmetic: what one matrix instruction does to one element of its result, bit for
 * bit. A row of the table (mma_table.c) is the arithmetic of one instruction on one architecture;
 * docs/tensor-core.md explains the model.
 *
 * Names are words of an arithmetic line, lower case, joined by '-':
 *
 *     ARCH[-UNIT]-A[-B][-fp16]
 *
 *     ARCH   volta turing ampere ada hopper blackwell
 *     UNIT   none: what the architecture's GEMMs use (mma.sync up to Ada, wgmma on Hopper, tcgen05
 *            on Blackwell), and mma.sync too where there is no row of its own;
 *            mma: mma.sync on sm_90 and sm_100, where it differs;
 *            rtx: mma.sync kind::f8f6f4 on sm_120;
 *            mx:  block-scaled, kind::mxf8f6f4
 *     A, B   types of the operands, B only if it is not A: bf16 fp16 tf32 e4m3 e5m2 e3m2 e2m3 e2m1
 *     fp16   the accumulator is fp16, else fp32 (8-bit types never mix with fp16, so this is clear)
 *
 * and blackwell-mxf4, blackwell-nvf4: e2m1 with one ue8m0 scale for 32 elements, one ue4m3 for 16.
 * Examples: hopper-bf16, ampere-fp16-fp16, hopper-e4m3-e5m2, hopper-mma-e4m3-fp16,
 * blackwell-mx-e4m3-e2m1.
 *
 * Sources: Xie et al., "MMA-Sim", arXiv:2511.10909; Khattak and Mikaitis, arXiv:2512.07004; PTX
 * ISA. A row is verified if results of real hardware that this repository holds confirm it. */
#ifndef MOEREF_MMA_H
#define MOEREF_MMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../status.h"
#include "mma_format.h"

enum mr_mma_form {
    MR_MMA_PLAIN,       /* one fused sum of `terms` products and the accumulator */
    MR_MMA_BY_FP16,     /* 32 fp8 products as two fp16 steps of 16 from zero, columns 0 and 1 of
                           every four first; then the accumulator is added, rounded to nearest */
    MR_MMA_SCALED,      /* PLAIN; each operand has a power of two for every scale_block columns */
    MR_MMA_GROUP_SCALED /* groups of 16 products are summed exactly, then scaled, then aligned */
};

enum mr_mma_rounding {
    MR_MMA_RZ_FP32,  /* toward zero, 23 fraction bits; 2^128 and above is Inf all the same */
    MR_MMA_RZ_E8M13, /* the same with 13 fraction bits, the low 10 bits of the word are zero */
    MR_MMA_RNE_FP16  /* to nearest, once, from the exact sum of aligned terms */
};

struct mr_mma {
    const char *name;
    const char *architecture;           /* "sm_90" */
    const char *instruction;            /* "wgmma k32" */
    enum mr_mma_type a, b, accumulator; /* accumulator, also the type of the result: fp32 or fp16 */
    enum mr_mma_form form;
    int terms;    /* L: products of one step */
    int fraction; /* F: a term keeps this many bits below the largest exponent of the step */
    enum mr_mma_rounding rounding;
    int e_zero;       /* the exponent of a zero term, so the least exponent of alignment */
    bool signed_zero; /* a sum that is not zero, and is rounded to zero, keeps its sign: of no row;
                         on Hopper such a sum is +0 */
    enum mr_mma_type scale; /* SCALED, GROUP_SCALED: ue8m0 or ue4m3 */
    int scale_block;        /* columns for each scale; 0: no scales */
    const char *evidence;   /* which hardware results confirm the row; NULL: unverified */
};

size_t mr_mma_count(void);
const struct mr_mma *mr_mma_at(size_t i);
/* NULL if there is no such row; mr_mma_explain then says why. */
const struct mr_mma *mr_mma_find(const char *name, size_t length);
/* Why a name is none of the table's: a combination that the hardware does not have, with the
 * reason, or the word that is not known, with the words that are. */
void mr_mma_explain(const char *name, size_t length, char *text, size_t size);

/* "" if verified, else "unverified": stands wherever the row is shown. */
const char *mr_mma_mark(const struct mr_mma *mma);
/* Two names of one arithmetic: the same bits for every input. (Some rows with different parameters
 * agree too; this compares parameters.) */
bool mr_mma_same(const struct mr_mma *x, const struct mr_mma *y);

/* Scales of one chain: one for every scale_block columns of each operand, from column 0. */
struct mr_mma_scales {
    const uint8_t *a, *b;
};

/* The columns of one instruction as its arithmetic groups them: a chain is cut into such steps from
 * its first column. `terms`, but 32 of BY_FP16. */
size_t mr_mma_step_columns(const struct mr_mma *mma);

/* The reference, on integers: one element of the result, encodings in and out. k products; more
 * than one step's are chained in ascending order, the result of a step is the c of the next. A
 * short last step is as if padded with zeros: a zero product has the exponent e_zero, and the
 * alignment exponent is never below that, since c is a term and c's exponent is at least that of a
 * subnormal, which is above e_zero, or e_zero itself if c is zero. k = 0 returns c.
 * scales: NULL for rows without scales. */
uint32_t mr_mma_step(const struct mr_mma *mma, const uint32_t *a, const uint32_t *b, size_t k,
                     uint32_t c, const struct mr_mma_scales *scales);

#endif
