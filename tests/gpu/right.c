/* Kernels that do nothing wrong. */
#include "plain_router.h"

enum { TILE = 4 };

static int launch(void *handle, const struct mr_kernel_problem *p,
                  const struct mr_kernel_buffers *b, void *stream, struct mr_kernel_why why)
{
    (void)handle;
    (void)stream;
    (void)why;
    return plain_run(p, b, TILE, PLAIN);
}

/* Keeps the gate weight in its state, sums in its scratch, and reads neither before it wrote it. */
static int sizes(const struct mr_kernel_problem *p, struct mr_kernel_sizes *out,
                 struct mr_kernel_why why)
{
    (void)why;
    out->state = (uint64_t)p->router.experts * (uint64_t)p->router.hidden * sizeof(float);
    out->scratch = (uint64_t)p->rows * (uint64_t)p->router.experts * sizeof(float);
    return MR_KERNEL_OK;
}

static int prepare(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                   void *stream, void **handle, struct mr_kernel_why why)
{
    (void)stream;
    (void)why;
    float *gate = b->state;
    size_t n = (size_t)p->router.experts * (size_t)p->router.hidden;
    for (size_t i = 0; i < n; i++) gate[i] = plain_value(b->gate, p->gate_type, i);
    *handle = b->state;
    return MR_KERNEL_OK;
}

static int launch_state(void *handle, const struct mr_kernel_problem *p,
                        const struct mr_kernel_buffers *b, void *stream, struct mr_kernel_why why)
{
    struct mr_kernel_problem wide = *p;
    struct mr_kernel_buffers own = *b;
    wide.gate_type = MR_KERNEL_FP32;
    own.gate = handle;
    own.logits = b->scratch;
    return launch(NULL, &wide, &own, stream, why);
}

/* Serves up to 8 rows, but not 5. */
static int supports_small(const struct mr_kernel_problem *p, struct mr_kernel_why why)
{
    if (p->rows != 5) return plain_supports(p, why);
    snprintf(why.text, why.size, "no 5 rows");
    return 0;
}

static void fp32_line(const struct mr_kernel_problem *p, char *line, size_t size)
{
    (void)p;
    snprintf(line, size, "fp32");
}

/* What plain_logit does. */
static void column_line(const struct mr_kernel_problem *p, char *line, size_t size)
{
    (void)p;
    snprintf(line, size, "mul-add");
}

enum { FINE = MR_KERNEL_DETERMINISTIC | MR_KERNEL_BATCH_INVARIANT | MR_KERNEL_ORDERED };

static const struct mr_kernel all = {
    .abi = MR_KERNEL_ABI, .family = "plain", .name = "plain", .summary = "fp32 in column order",
    .min_rows = 1, .hidden_types = MR_KERNEL_BF16 | MR_KERNEL_FP32,
    .gate_types = MR_KERNEL_BF16 | MR_KERNEL_FP32,
    .gives = MR_GIVES_LOGITS | MR_GIVES_IDS | MR_GIVES_WEIGHTS, .logits_type = MR_KERNEL_FP32,
    .weights_type = MR_KERNEL_FP32, .promises = FINE | MR_KERNEL_HAS_DELAY,
    .supports = plain_supports, .arith = column_line, .launch = launch};
static const struct mr_kernel state = {
    .abi = MR_KERNEL_ABI, .family = "plain", .name = "plain_state", .summary = "from its own copy",
    .min_rows = 1, .hidden_types = MR_KERNEL_BF16 | MR_KERNEL_FP32,
    .gate_types = MR_KERNEL_BF16 | MR_KERNEL_FP32, .gives = MR_GIVES_IDS | MR_GIVES_WEIGHTS,
    .weights_type = MR_KERNEL_FP32, .promises = FINE, .supports = plain_supports,
    .arith = fp32_line, .sizes = sizes, .prepare = prepare, .launch = launch_state};
static const struct mr_kernel logits = {
    .abi = MR_KERNEL_ABI, .family = "plain", .name = "plain_logits", .summary = "logits alone",
    .min_rows = 1, .hidden_types = MR_KERNEL_FP32, .gate_types = MR_KERNEL_FP32,
    .gives = MR_GIVES_LOGITS, .logits_type = MR_KERNEL_FP32, .promises = FINE & ~MR_KERNEL_ORDERED,
    .launch = launch};
static const struct mr_kernel small = {
    .abi = MR_KERNEL_ABI, .family = "plain", .name = "plain_8", .summary = "few rows",
    .min_rows = 1, .max_rows = 8, .hidden_types = MR_KERNEL_FP32, .gate_types = MR_KERNEL_FP32,
    .gives = MR_GIVES_IDS, .promises = FINE, .supports = supports_small, .launch = launch};
static const struct mr_kernel topk = {
    .abi = MR_KERNEL_ABI, .family = "plain_topk", .name = "topk",
    .summary = "from logits, with books",
    .min_rows = 1, .given_types = MR_KERNEL_FP32,
    .gives = MR_GIVES_IDS | MR_GIVES_WEIGHTS | MR_GIVES_COUNTS | MR_GIVES_SORTED,
    .weights_type = MR_KERNEL_FP32, .tile = TILE, .promises = FINE | MR_KERNEL_SORTED_STABLE,
    .supports = plain_supports, .launch = launch};
static const struct mr_kernel topk_bf16 = {
    .abi = MR_KERNEL_ABI, .family = "plain_topk", .name = "topk_bf16",
    .summary = "from bf16 logits",
    .min_rows = 1, .given_types = MR_KERNEL_BF16, .gives = MR_GIVES_IDS | MR_GIVES_WEIGHTS,
    .weights_type = MR_KERNEL_FP32, .promises = FINE, .supports = plain_supports, .launch = launch};

static const struct mr_kernel *const kernels[] = {&topk_bf16, &small, &topk, &logits, &all, &state};
MR_PLUGIN_EXPORT moeref_plugin = {MR_KERNEL_ABI, sizeof kernels / sizeof *kernels, kernels};
