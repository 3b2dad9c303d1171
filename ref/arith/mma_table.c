/* One row an instruction's arithmetic. Parameters: arXiv:2511.10909 tables 4 and 5; BY_FP16 was
 * found by fitting the recorded vectors (docs/tensor-core.md). e_zero of fp16 accumulators is one
 * less in an early version of that paper's model than in its release 2.1.1 and in arXiv:2512.07004;
 * it decides only whether products of 2^-46 and less can break a tie. */
#include <string.h>

#include "mma.h"

#define TO_FP32(L, F, e_zero) \
    MR_MMA_FP32, MR_MMA_PLAIN, L, F, MR_MMA_RZ_FP32, e_zero, false, MR_MMA_FP32, 0
#define TO_E8M13(L, F, e_zero) \
    MR_MMA_FP32, MR_MMA_PLAIN, L, F, MR_MMA_RZ_E8M13, e_zero, false, MR_MMA_FP32, 0
#define TO_FP16(L, F, e_zero) \
    MR_MMA_FP16, MR_MMA_PLAIN, L, F, MR_MMA_RNE_FP16, e_zero, false, MR_MMA_FP32, 0
#define BY_FP16_TO_FP32 \
    MR_MMA_FP32, MR_MMA_BY_FP16, 16, 25, MR_MMA_RZ_FP32, -133, false, MR_MMA_FP32, 0
#define BY_FP16_TO_FP16 \
    MR_MMA_FP16, MR_MMA_BY_FP16, 16, 25, MR_MMA_RNE_FP16, -21, false, MR_MMA_FP32, 0
#define MX(L, F, e_zero, block) \
    MR_MMA_FP32, MR_MMA_SCALED, L, F, MR_MMA_RZ_FP32, e_zero, false, MR_MMA_UE8M0, block
#define GROUPS(scale, block) \
    MR_MMA_FP32, MR_MMA_GROUP_SCALED, 64, 35, MR_MMA_RZ_FP32, -139, false, scale, block

/* Rows for all pairs of the 8-bit types: evidence for equal and for mixed types. */
#define FP8_ROWS(arch, suffix, architecture, instruction, equal, mixed, ...) \
    ROW(arch "-e4m3" suffix, E4M3, E4M3, architecture, instruction, equal, __VA_ARGS__), \
    ROW(arch "-e5m2" suffix, E5M2, E5M2, architecture, instruction, equal, __VA_ARGS__), \
    ROW(arch "-e4m3-e5m2" suffix, E4M3, E5M2, architecture, instruction, mixed, __VA_ARGS__), \
    ROW(arch "-e5m2-e4m3" suffix, E5M2, E4M3, architecture, instruction, mixed, __VA_ARGS__)
/* X(name, a, b, ...) for all pairs of the 8-, 6- and 4-bit types. */
#define WITH_SMALL(X, arch, suffix, small, type, ...) \
    X(arch "-" small suffix, type, type, __VA_ARGS__), \
    X(arch "-e4m3-" small suffix, E4M3, type, __VA_ARGS__), \
    X(arch "-e5m2-" small suffix, E5M2, type, __VA_ARGS__), \
    X(arch "-" small "-e4m3" suffix, type, E4M3, __VA_ARGS__), \
    X(arch "-" small "-e5m2" suffix, type, E5M2, __VA_ARGS__)
#define F8F6F4_PAIRS(X, arch, suffix, ...) \
    X(arch "-e4m3" suffix, E4M3, E4M3, __VA_ARGS__), \
    X(arch "-e5m2" suffix, E5M2, E5M2, __VA_ARGS__), \
    X(arch "-e4m3-e5m2" suffix, E4M3, E5M2, __VA_ARGS__), \
    X(arch "-e5m2-e4m3" suffix, E5M2, E4M3, __VA_ARGS__), \
    WITH_SMALL(X, arch, suffix, "e3m2", E3M2, __VA_ARGS__), \
    WITH_SMALL(X, arch, suffix, "e2m3", E2M3, __VA_ARGS__), \
    WITH_SMALL(X, arch, suffix, "e2m1", E2M1, __VA_ARGS__), \
    X(arch "-e3m2-e2m3" suffix, E3M2, E2M3, __VA_ARGS__), \
    X(arch "-e2m3-e3m2" suffix, E2M3, E3M2, __VA_ARGS__), \
    X(arch "-e3m2-e2m1" suffix, E3M2, E2M1, __VA_ARGS__), \
    X(arch "-e2m1-e3m2" suffix, E2M1, E3M2, __VA_ARGS__), \
    X(arch "-e2m3-e2m1" suffix, E2M3, E2M1, __VA_ARGS__), \
    X(arch "-e2m1-e2m3" suffix, E2M1, E2M3, __VA_ARGS__)
#define ROW_(name, architecture, instruction, a, b, evidence, ...) \
    {name, architecture, instruction, MR_MMA_##a, MR_MMA_##b, __VA_ARGS__, evidence}
#define ROW(name, a, b, architecture, instruction, evidence, ...) \
    ROW_(name, architecture, instruction, a, b, evidence, __VA_ARGS__)

/* Of 5000 vectors a GPU, data/tensor-core holds 1000 (up to Ada) or 2500. */
#define V100 "vectors of a V100"
#define A100 "vectors of an A100 and an A2"
#define ADA "vectors of an Ada and an L40S GPU"
#define H200 "vectors of an H100 and an H200"
#define EDGES "edge cases of an H200 (data/mma-h200)"
#define H200_EDGES H200 ", " EDGES
#define B200 "vectors of a B200"

static const struct mr_mma table[] = {
    ROW("volta-fp16", FP16, FP16, "sm_70", "mma.sync m8n8k4", V100, TO_FP32(4, 23, -131)),
    ROW("volta-fp16-fp16", FP16, FP16, "sm_70", "mma.sync m8n8k4", V100, TO_FP16(4, 23, -19)),
    ROW("turing-fp16", FP16, FP16, "sm_75", "mma.sync m16n8k8", NULL, TO_FP32(8, 24, -132)),
    ROW("turing-fp16-fp16", FP16, FP16, "sm_75", "mma.sync m16n8k8", NULL, TO_FP16(8, 24, -20)),

    /* m16n8k16 (tf32: m16n8k8) is two steps: the lower half of its columns, then the upper. */
    ROW("ampere-tf32", TF32, TF32, "sm_80", "mma.sync m16n8k4, k8", A100, TO_FP32(4, 24, -132)),
    ROW("ampere-bf16", BF16, BF16, "sm_80", "mma.sync m16n8k8, k16", A100, TO_FP32(8, 24, -132)),
    ROW("ampere-fp16", FP16, FP16, "sm_80", "mma.sync m16n8k8, k16", A100, TO_FP32(8, 24, -132)),
    ROW("ampere-fp16-fp16", FP16, FP16, "sm_80", "mma.sync m16n8k8, k16", A100,
        TO_FP16(8, 24, -20)),
    ROW("ada-tf32", TF32, TF32, "sm_89", "mma.sync m16n8k4, k8", ADA, TO_FP32(4, 24, -132)),
    ROW("ada-bf16", BF16, BF16, "sm_89", "mma.sync m16n8k8, k16", ADA, TO_FP32(8, 24, -132)),
    ROW("ada-fp16", FP16, FP16, "sm_89", "mma.sync m16n8k8, k16", ADA, TO_FP32(8, 24, -132)),
    ROW("ada-fp16-fp16", FP16, FP16, "sm_89", "mma.sync m16n8k8, k16", ADA, TO_FP16(8, 24, -20)),
    FP8_ROWS("ada", "", "sm_89", "mma.sync m16n8k32", ADA, NULL, TO_E8M13(16, 13, -132)),
    FP8_ROWS("ada", "-fp16", "sm_89", "mma.sync m16n8k32", ADA, NULL, TO_FP16(16, 13, -20)),

    ROW("hopper-tf32", TF32, TF32, "sm_90", "mma.sync k4, k8, wgmma k8", H200_EDGES,
        TO_FP32(8, 25, -133)),
    ROW("hopper-bf16", BF16, BF16, "sm_90", "mma.sync k8, k16, wgmma k16", H200_EDGES,
        TO_FP32(16, 25, -133)),
    ROW("hopper-fp16", FP16, FP16, "sm_90", "mma.sync k8, k16, wgmma k16", H200_EDGES,
        TO_FP32(16, 25, -133)),
    ROW("hopper-fp16-fp16", FP16, FP16, "sm_90", "mma.sync k8, k16, wgmma k16", H200_EDGES,
        TO_FP16(16, 25, -21)),
    FP8_ROWS("hopper", "", "sm_90", "wgmma k32", H200_EDGES, EDGES, TO_E8M13(32, 13, -133)),
    FP8_ROWS("hopper", "-fp16", "sm_90", "wgmma k32", EDGES, EDGES, TO_FP16(32, 13, -21)),
    FP8_ROWS("hopper-mma", "", "sm_90", "mma.sync m16n8k16, k32", EDGES, EDGES, BY_FP16_TO_FP32),
    FP8_ROWS("hopper-mma", "-fp16", "sm_90", "mma.sync m16n8k16, k32", H200_EDGES, EDGES,
             BY_FP16_TO_FP16),

    ROW("blackwell-tf32", TF32, TF32, "sm_100", "mma.sync k4, k8, tcgen05 k8", B200,
        TO_FP32(8, 25, -133)),
    ROW("blackwell-bf16", BF16, BF16, "sm_100", "mma.sync k8, k16, tcgen05 k16", B200,
        TO_FP32(16, 25, -133)),
    ROW("blackwell-fp16", FP16, FP16, "sm_100", "mma.sync k8, k16, tcgen05 k16", B200,
        TO_FP32(16, 25, -133)),
    ROW("blackwell-fp16-fp16", FP16, FP16, "sm_100", "tcgen05 k16", NULL, TO_FP16(16, 25, -21)),
    ROW("blackwell-mma-fp16-fp16", FP16, FP16, "sm_100", "mma.sync k8, k16", B200,
        TO_FP16(16, 25, -21)),
    FP8_ROWS("blackwell-mma", "", "sm_100", "mma.sync m16n8k32", B200, NULL, BY_FP16_TO_FP32),
    FP8_ROWS("blackwell-mma", "-fp16", "sm_100", "mma.sync m16n8k32", B200, NULL,
             BY_FP16_TO_FP16),
    F8F6F4_PAIRS(ROW, "blackwell", "", "sm_100", "tcgen05 kind::f8f6f4 k32", NULL,
                 TO_FP32(32, 25, -133)),
    F8F6F4_PAIRS(ROW, "blackwell", "-fp16", "sm_100", "tcgen05 kind::f8f6f4 k32", NULL,
                 TO_FP16(32, 25, -21)),
    F8F6F4_PAIRS(ROW, "blackwell-rtx", "", "sm_120", "mma.sync kind::f8f6f4 m16n8k32", NULL,
                 TO_FP32(32, 25, -133)),
    F8F6F4_PAIRS(ROW, "blackwell-rtx", "-fp16", "sm_120", "mma.sync kind::f8f6f4 m16n8k32", NULL,
                 TO_FP16(32, 25, -21)),
    F8F6F4_PAIRS(ROW, "blackwell-mx", "", "sm_100, sm_120",
                 "tcgen05, mma.sync kind::mxf8f6f4 k32", NULL, MX(32, 25, -133, 32)),
    ROW("blackwell-mxf4", E2M1, E2M1, "sm_100, sm_120", "tcgen05, mma.sync kind::mxf4 k64", NULL,
        GROUPS(MR_MMA_UE8M0, 32)),
    ROW("blackwell-nvf4", E2M1, E2M1, "sm_100, sm_120", "tcgen05, mma.sync kind::mxf4nvf4 k64",
        NULL, GROUPS(MR_MMA_UE4M3, 16)),
};

size_t mr_mma_count(void)
{
    return sizeof table / sizeof *table;
}

const struct mr_mma *mr_mma_at(size_t i)
{
    return i < mr_mma_count() ? &table[i] : NULL;
}

const struct mr_mma *mr_mma_find(const char *name, size_t length)
{
    for (size_t i = 0; i < mr_mma_count(); i++)
        if (strlen(table[i].name) == length && !memcmp(table[i].name, name, length))
            return &table[i];
    return NULL;
}

const char *mr_mma_mark(const struct mr_mma *mma)
{
    return mma->evidence ? "" : "unverified";
}

bool mr_mma_same(const struct mr_mma *x, const struct mr_mma *y)
{
    return x->a == y->a && x->b == y->b && x->accumulator == y->accumulator &&
           x->form == y->form && x->terms == y->terms && x->fraction == y->fraction &&
           x->rounding == y->rounding && x->e_zero == y->e_zero &&
           x->signed_zero == y->signed_zero && x->scale == y->scale &&
           x->scale_block == y->scale_block;
}
