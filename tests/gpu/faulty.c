/* Kernels with one fault each, named after it. */
#include "plain_router.h"

enum { TILE = 4 };

#define LAUNCH(fault)                                                                          \
    static int launch_##fault(void *handle, const struct mr_kernel_problem *p,                 \
                              const struct mr_kernel_buffers *b, void *stream,                 \
                              struct mr_kernel_why why)                                        \
    {                                                                                          \
        (void)handle;                                                                          \
        (void)stream;                                                                          \
        (void)why;                                                                             \
        return plain_run(p, b, TILE, fault);                                                   \
    }
LAUNCH(PLAIN_OUTSIDE)
LAUNCH(PLAIN_BEFORE)
LAUNCH(PLAIN_INPUT)
LAUNCH(PLAIN_NO_BIAS)
LAUNCH(PLAIN_UNSTABLE)
LAUNCH(PLAIN_STALE)
LAUNCH(PLAIN_BATCH)
LAUNCH(PLAIN_COUNTS)
LAUNCH(PLAIN_SORTED)
LAUNCH(PLAIN_DELAY)

/* All but the weight of the last slot of the last row of several. */
static int launch_PLAIN_HOLES(void *handle, const struct mr_kernel_problem *p,
                              const struct mr_kernel_buffers *b, void *stream,
                              struct mr_kernel_why why)
{
    float *last = (float *)b->weights + p->rows * p->router.top_k - 1, before;
    (void)handle;
    (void)stream;
    (void)why;
    memcpy(&before, last, sizeof before);
    int status = plain_run(p, b, TILE, PLAIN);
    if (p->rows > 1) memcpy(last, &before, sizeof before);
    return status;
}

static void no_such_line(const struct mr_kernel_problem *p, char *line, size_t size)
{
    (void)p;
    snprintf(line, size, "fp32+nonsense");
}

/* But above 4 rows it adds in reverse. */
static void column_line(const struct mr_kernel_problem *p, char *line, size_t size)
{
    (void)p;
    snprintf(line, size, "mul-add");
}

static int refuses(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                   void *stream, void **handle, struct mr_kernel_why why)
{
    (void)p;
    (void)b;
    (void)stream;
    (void)handle;
    snprintf(why.text, why.size, "no licence\tfor this");
    return MR_KERNEL_FAILED;
}

enum { PROMISES = MR_KERNEL_DETERMINISTIC | MR_KERNEL_BATCH_INVARIANT | MR_KERNEL_ORDERED };

#define KERNEL(id, what, fault, more, flags, ...)                                             \
    static const struct mr_kernel id = {                                                       \
        .abi = MR_KERNEL_ABI, .family = "faulty", .name = #id, .summary = what, .min_rows = 1,  \
        .hidden_types = MR_KERNEL_FP32, .gate_types = MR_KERNEL_FP32,                           \
        .gives = MR_GIVES_LOGITS | MR_GIVES_IDS | MR_GIVES_WEIGHTS | (more),                    \
        .logits_type = MR_KERNEL_FP32, .weights_type = MR_KERNEL_FP32, .tile = TILE,            \
        .promises = (flags), .launch = launch_##fault, __VA_ARGS__};
KERNEL(holes, "leaves a weight unwritten", PLAIN_HOLES, 0, PROMISES)
KERNEL(outside, "writes behind its ids", PLAIN_OUTSIDE, 0, PROMISES)
KERNEL(before, "writes before its weights", PLAIN_BEFORE, 0, PROMISES)
KERNEL(input, "writes into the bias", PLAIN_INPUT, 0, MR_KERNEL_ORDERED)
KERNEL(no_bias, "forgets the bias", PLAIN_NO_BIAS, 0, PROMISES)
KERNEL(unstable, "differs by itself", PLAIN_UNSTABLE, 0, MR_KERNEL_ORDERED)
KERNEL(unstable_promise, "and promises not to", PLAIN_UNSTABLE, 0, PROMISES)
KERNEL(stale, "reads what it has not written", PLAIN_STALE, 0, PROMISES)
KERNEL(batch, "sums otherwise above 4 rows", PLAIN_BATCH, 0, MR_KERNEL_ORDERED)
KERNEL(batch_promise, "and promises not to", PLAIN_BATCH, 0, PROMISES)
KERNEL(counts, "counts one too many", PLAIN_COUNTS, MR_GIVES_COUNTS, PROMISES)
KERNEL(sorted, "loses a position", PLAIN_SORTED, MR_GIVES_SORTED, PROMISES)
KERNEL(delay, "does not wait for its producer", PLAIN_DELAY, 0, PROMISES | MR_KERNEL_HAS_DELAY)
KERNEL(line, "an arithmetic that is none", PLAIN_NO_BIAS, 0, PROMISES, .arith = no_such_line)
KERNEL(other_line, "sums otherwise than it says", PLAIN_BATCH, 0, MR_KERNEL_ORDERED,
       .arith = column_line)
KERNEL(refused, "cannot be prepared", PLAIN_NO_BIAS, 0, PROMISES, .prepare = refuses)

static const struct mr_kernel *const kernels[] = {
    &holes, &outside, &before, &input, &no_bias, &unstable, &unstable_promise, &stale, &batch,
    &batch_promise, &counts, &sorted, &delay, &line, &other_line,
    &refused};
MR_PLUGIN_EXPORT moeref_plugin = {MR_KERNEL_ABI, sizeof kernels / sizeof *kernels, kernels};
