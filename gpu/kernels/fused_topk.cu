/* fused_topk: from logits to ids and weights in one launch, a warp a row.
 *
 *   fused_topk        fp32 logits
 *   fused_topk_bf16   bf16 logits (the row is read as it is; all else is binary32)
 *
 * Rows: any. Launches: 1. Scores (sigmoid, softmax, sqrt-softplus), groups, ranking by logit, the k
 * largest keys, lowest id among equals, renormalised and scaled: select.cuh has every step,
 * select_quick.cuh the way to the k largest. Scores and keys stay in registers. A row's bits depend on the row alone.
 * Arithmetic line: fp32; bf16-logits. */
#include "fused_topk.cuh"

static void fp32_line(const struct mr_kernel_problem *, char *line, size_t size)
{
    snprintf(line, size, "fp32");
}
static void bf16_line(const struct mr_kernel_problem *, char *line, size_t size)
{
    snprintf(line, size, "bf16-logits");
}

template <typename T>
static int launch(void *, const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                  void *stream, struct mr_kernel_why why)
{
    return launch_fused_topk<T>(p, b, (const T *)b->given, false, stream, why);
}

#define FUSED_TOPK(NAME, ABOUT, TYPE, T, LINE)                                                     \
    {                                                                                              \
        .abi = MR_KERNEL_ABI, .family = "fused_topk", .name = NAME, .summary = ABOUT,              \
        .memory = MR_KERNEL_WHERE, .min_rows = 1, .max_rows = 0, .given_types = TYPE,              \
        .gives = MR_GIVES_IDS | MR_GIVES_WEIGHTS, .weights_type = MR_KERNEL_FP32,                  \
        .promises = MR_KERNEL_DETERMINISTIC | MR_KERNEL_BATCH_INVARIANT | MR_KERNEL_ORDERED,       \
        .supports = routing_supported, .arith = LINE, .launch = launch<T>                          \
    }
static const struct mr_kernel from_fp32 =
    FUSED_TOPK("fused_topk", "a warp a row, from fp32 logits", MR_KERNEL_FP32, float, fp32_line);
static const struct mr_kernel from_bf16 = FUSED_TOPK(
    "fused_topk_bf16", "a warp a row, from bf16 logits", MR_KERNEL_BF16, uint16_t, bf16_line);
MR_KERNEL_ADD(from_fp32)
MR_KERNEL_ADD(from_bf16)
