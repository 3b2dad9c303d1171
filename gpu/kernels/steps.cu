/* naive, from logits: the last steps of naive.cu and cublas.cu alone, so that they can be run on
 * logits as given.
 *
 *   naive_steps        fp32 logits
 *   naive_steps_bf16   bf16 logits
 *
 * Rows: any. Launches: score, add bias, top-k, gather, sum, add guard, divide (steps.cuh). Ids and
 * weights are those of fused_topk, bit for bit. Arithmetic line: fp32; bf16-logits. */
#include "steps.cuh"

static void fp32_line(const struct mr_kernel_problem *, char *line, size_t size)
{
    snprintf(line, size, "fp32");
}
static void bf16_line(const struct mr_kernel_problem *, char *line, size_t size)
{
    snprintf(line, size, "bf16-logits");
}
static int sizes(const struct mr_kernel_problem *p, struct mr_kernel_sizes *out,
                 struct mr_kernel_why)
{
    out->scratch = steps_scratch(p);
    return MR_KERNEL_OK;
}
template <typename T>
static int launch(void *, const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                  void *stream, struct mr_kernel_why why)
{
    return launch_steps<T>(p, b, (const T *)b->given, b->scratch, stream, why);
}

#define NAIVE_STEPS(NAME, ABOUT, TYPE, T, LINE)                                                    \
    {                                                                                              \
        .abi = MR_KERNEL_ABI, .family = "naive", .name = NAME, .summary = ABOUT,                   \
        .memory = MR_KERNEL_WHERE, .min_rows = 1, .max_rows = 0, .given_types = TYPE,              \
        .gives = MR_GIVES_IDS | MR_GIVES_WEIGHTS, .weights_type = MR_KERNEL_FP32,                  \
        .promises = MR_KERNEL_DETERMINISTIC | MR_KERNEL_BATCH_INVARIANT | MR_KERNEL_ORDERED,       \
        .supports = routing_supported, .arith = LINE, .sizes = sizes, .launch = launch<T>          \
    }
static const struct mr_kernel from_fp32 = NAIVE_STEPS(
    "naive_steps", "separate steps, from fp32 logits", MR_KERNEL_FP32, float, fp32_line);
static const struct mr_kernel from_bf16 = NAIVE_STEPS(
    "naive_steps_bf16", "separate steps, from bf16 logits", MR_KERNEL_BF16, uint16_t, bf16_line);
MR_KERNEL_ADD(from_fp32)
MR_KERNEL_ADD(from_bf16)
