/* Times a graph of work, cold and warm (DESIGN section 8).
 *
 * A sample is one replay of the graph. Cold: a kernel before it, in the same stream, reads more
 * than twice the L2; the edge between them is an ordinary one, so no part of the graph begins
 * before the flush has ended. The host enqueues flush, events and replay while the flush before
 * still runs: what is timed never waits for the host. Warm: replays follow each other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_glue.h"
#include "device.h"
#include "stats.h"

#define TRY(call)                                     \
    do {                                              \
        enum mr_status try_status_ = (call);          \
        if (try_status_ != MR_OK) return try_status_; \
    } while (0)

#define CUDA(call, what)                                                                      \
    do {                                                                                      \
        cudaError_t cuda_error_ = (call);                                                     \
        if (cuda_error_)                                                                      \
            return mr_fail(err, cuda_error_ == cudaErrorMemoryAllocation ? MR_ERR_MEMORY      \
                                                                         : MR_ERR_UNSUPPORTED, \
                           "%s: %s", what, cudaGetErrorString(cuda_error_));                  \
    } while (0)

enum { WARM_UP = 5, PIECE = 32 };

/* Made once a process. */
static struct {
    void *flush;
    size_t flush_bytes;
    int *sink;
    cudaEvent_t before[PIECE], after[PIECE];
    bool ready, cupti;
} rig;

void gpu_timing_begin(const struct gpu_timing_options *options)
{
    const char *why;
    rig.cupti = !options->no_cupti && gpu_cupti_start(&why);
}

static enum mr_status prepare(struct mr_error *err)
{
    int l2 = 0;
    if (rig.ready) return MR_OK;
    CUDA(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, 0), "asking for the L2's size");
    rig.flush_bytes = ((size_t)l2 * 5 / 2 + (1 << 20)) / 256 * 256;
    CUDA(cudaMalloc(&rig.flush, rig.flush_bytes), "memory to flush the L2 by");
    CUDA(cudaMemset(rig.flush, 0x11, rig.flush_bytes), "memory to flush the L2 by");
    CUDA(cudaMalloc((void **)&rig.sink, sizeof *rig.sink), "device memory");
    for (int i = 0; i < PIECE; i++) {
        CUDA(cudaEventCreate(&rig.before[i]), "an event");
        CUDA(cudaEventCreate(&rig.after[i]), "an event");
    }
    CUDA(cudaDeviceSynchronize(), "preparing to time");
    rig.ready = true;
    return MR_OK;
}

static enum mr_status capture(const struct gpu_work *work, cudaStream_t stream,
                              cudaGraphExec_t *out, struct mr_error *err)
{
    cudaGraph_t graph = NULL;
    /* Once before: kernels are loaded when they are first launched, which a capture may refuse. */
    TRY(work->launch(work->context, stream, err));
    CUDA(cudaStreamSynchronize(stream), "running");
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a graph");
    enum mr_status status = work->launch(work->context, stream, err);
    cudaError_t e = cudaStreamEndCapture(stream, &graph);
    if (status) return status;
    CUDA(e, "capturing a graph");
    e = cudaGraphInstantiate(out, graph, 0);
    cudaGraphDestroy(graph);
    CUDA(e, "instantiating a graph");
    return MR_OK;
}

/* `count` replays, at most PIECE; events_us [count]. */
static enum mr_status piece(cudaGraphExec_t graph, cudaStream_t stream, bool cold, int count,
                            double *events_us, struct mr_error *err)
{
    for (int i = 0; i < count; i++) {
        if (cold)
            CUDA(gpu_launch_read(rig.flush, rig.flush_bytes, rig.sink, stream), "flushing the L2");
        CUDA(cudaEventRecord(rig.before[i], stream), "recording an event");
        CUDA(cudaGraphLaunch(graph, stream), "replaying a graph");
        CUDA(cudaEventRecord(rig.after[i], stream), "recording an event");
    }
    CUDA(cudaStreamSynchronize(stream), "running");
    for (int i = 0; i < count; i++) {
        float ms;
        CUDA(cudaEventElapsedTime(&ms, rig.before[i], rig.after[i]), "reading an event");
        events_us[i] = 1e3 * (double)ms;
    }
    return MR_OK;
}

/* Samples of one temperature: by CUPTI where every replay left its span, else by events. */
static enum mr_status sample(cudaGraphExec_t graph, cudaStream_t stream, bool cold, int repeats,
                             struct gpu_samples *out, double *events, bool *by_cupti, int *kernels,
                             struct mr_error *err)
{
    int all = repeats + WARM_UP, n = 0;
    const struct gpu_span *span;
    double *us = malloc((size_t)all * sizeof *us);
    out->at = malloc((size_t)repeats * sizeof *out->at);
    out->count = repeats;
    if (!us || !out->at) {
        free(us);
        return mr_fail(err, MR_ERR_MEMORY, "out of memory");
    }
    enum mr_status status = MR_OK;
    if (rig.cupti) gpu_cupti_take(&span); /* what was before */
    for (int done = 0; done < all && !status; done += PIECE)
        status = piece(graph, stream, cold, all - done < PIECE ? all - done : PIECE, us + done,
                       err);
    if (rig.cupti && !status) n = gpu_cupti_take(&span);
    *by_cupti = n == all;
    for (int i = 0; i < repeats && !status; i++)
        out->at[i] = *by_cupti ? 1e-3 * (double)(span[WARM_UP + i].end - span[WARM_UP + i].start)
                               : us[WARM_UP + i];
    *kernels = *by_cupti ? span[WARM_UP].kernels : 0;
    gpu_sort(us + WARM_UP, repeats);
    *events = gpu_quantile(us + WARM_UP, repeats, 0.5);
    gpu_sort(out->at, repeats);
    free(us);
    return status;
}

enum mr_status gpu_time(const struct gpu_work *work, const struct gpu_timing_options *options,
                        struct gpu_timing *out, struct mr_error *err)
{
    void *stream;
    cudaGraphExec_t graph = NULL;
    bool cold = false, warm = false;
    int kernels;
    *out = (struct gpu_timing){0};
    TRY(gpu_device_memory()->stream(&stream, err));
    TRY(prepare(err));
    TRY(capture(work, stream, &graph, err));
    enum mr_status status = sample(graph, stream, true, options->repeats, &out->cold,
                                   &out->events_cold, &cold, &out->kernels, err);
    if (!status)
        status = sample(graph, stream, false, options->repeats, &out->warm, &out->events_warm,
                        &warm, &kernels, err);
    cudaGraphExecDestroy(graph);
    out->method = cold && warm ? "cupti" : cold || warm ? "cupti and events" : "events";
    if (status) gpu_timing_free(out);
    return status;
}

void gpu_timing_free(struct gpu_timing *timing)
{
    free(timing->cold.at);
    free(timing->warm.at);
    *timing = (struct gpu_timing){0};
}

static enum mr_status launched(cudaError_t e, struct mr_error *err)
{
    CUDA(e, "a launch");
    return MR_OK;
}

static enum mr_status run_empty(void *context, void *stream, struct mr_error *err)
{
    return launched(gpu_launch_empty((int)(intptr_t)context, (cudaStream_t)stream), err);
}

struct gpu_work gpu_work_empty(int blocks)
{
    return (struct gpu_work){run_empty, (void *)(intptr_t)blocks};
}

static struct read_work {
    const void *data;
    size_t bytes;
    int *sink;
} reading;

static enum mr_status run_read(void *context, void *stream, struct mr_error *err)
{
    const struct read_work *r = context;
    return launched(gpu_launch_read(r->data, r->bytes, r->sink, (cudaStream_t)stream), err);
}

struct gpu_work gpu_work_read(const void *data, size_t bytes, int *sink)
{
    reading = (struct read_work){data, bytes, sink};
    return (struct gpu_work){run_read, &reading};
}
