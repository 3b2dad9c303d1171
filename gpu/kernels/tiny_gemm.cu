/* tiny_gemm: logits of few rows, on FMA units. Two experts a block of 256 threads, 16 consecutive
 * positions a thread, binary32 sums, one reduction over the block. The gate weight is on its way to
 * registers before the wait for the hidden states.
 *
 *   tiny_gemm_16   up to 16 rows: each block has them all (hidden above 4096: up to 8 of them)
 *   tiny_gemm_64   up to 64 rows: shared out evenly among layers of blocks, up to 8 to each
 *
 * Launches: 1. hidden: any multiple of 16. bf16 in, fp32 out.
 * Arithmetic line: fma/deal:256x16:pairs. Thread t chains its tiles t, t + 256, ...; lanes are
 * added by xor 1, 2, 4, 8, 16, and then the 8 warps alike, which is one tree over 256 threads. The
 * gate's own bias is added last. It is the same for every number of rows, so logits are
 * batch-invariant. */
#include "tiny_gemm.cuh"

static void line(const struct mr_kernel_problem *, char *out, size_t size)
{
    snprintf(out, size, "%s", TINY_LINE);
}
template <int ROWS>
static int launch(void *, const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                  void *stream, struct mr_kernel_why why)
{
    return launch_tiny_gemm(p, b, ROWS, stream, why);
}

#define TINY_GEMM(NAME, ROWS, LAUNCH, ABOUT)                                                       \
    {                                                                                              \
        .abi = MR_KERNEL_ABI, .family = "tiny_gemm", .name = NAME, .summary = ABOUT,               \
        .memory = MR_KERNEL_WHERE, .min_rows = 1, .max_rows = ROWS,                                \
        .hidden_types = MR_KERNEL_BF16, .gate_types = MR_KERNEL_BF16, .gives = MR_GIVES_LOGITS,    \
        .logits_type = MR_KERNEL_FP32,                                                             \
        .promises = MR_KERNEL_DETERMINISTIC | MR_KERNEL_BATCH_INVARIANT,                           \
        .supports = tiny_gemm_supported, .arith = line, .launch = LAUNCH                           \
    }
static const struct mr_kernel up_to_16 =
    TINY_GEMM("tiny_gemm_16", 16, launch<16>, "two experts a block, all rows in it");
static const struct mr_kernel up_to_64 =
    TINY_GEMM("tiny_gemm_64", 64, launch<8>, "two experts and up to 8 rows a block");
MR_KERNEL_ADD(up_to_16)
MR_KERNEL_ADD(up_to_64)
