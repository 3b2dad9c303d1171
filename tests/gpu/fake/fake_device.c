/* A device that is none: host memory, and the clock of the CPU. What is left to be wrong on a real one
 * is device_cuda.c and its like; all that runs, times and reports is tested without. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../../gpu/device.h"
#include "../../../gpu/stats.h"

bool gpu_built_with_cuda(void)
{
    return true;
}

const char *gpu_built_for(void)
{
    return "nothing";
}

enum mr_status gpu_device_open(struct gpu_device *out, struct mr_error *err)
{
    *out = (struct gpu_device){.name = "Fake", .driver = "1.2", .cuda = "3.4", .major = 9,
                               .multiprocessors = 132, .l2_bytes = 50 << 20,
                               .memory_bytes = 1ull << 37, .clock_sm = 1980};
    const char *missing = getenv("FAKE_DEVICE_MISSING");
    return missing ? mr_fail(err, MR_ERR_UNSUPPORTED, "no GPU can be used: %s", missing) : MR_OK;
}

const struct gpu_memory *gpu_device_memory(void)
{
    return &gpu_memory_host;
}

void gpu_timing_begin(const struct gpu_timing_options *options)
{
    (void)options;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static enum mr_status sample(const struct gpu_work *work, int count, struct gpu_samples *out,
                             struct mr_error *err)
{
    enum mr_status status = MR_OK;
    *out = (struct gpu_samples){count, calloc((size_t)count, sizeof(double))};
    for (int i = 0; i < count && !status; i++) {
        double start = now_us();
        status = work->launch(work->context, NULL, err);
        out->at[i] = now_us() - start;
    }
    gpu_sort(out->at, count);
    return status;
}

enum mr_status gpu_time(const struct gpu_work *work, const struct gpu_timing_options *options,
                        struct gpu_timing *out, struct mr_error *err)
{
    *out = (struct gpu_timing){.method = options->no_cupti ? "events" : "cupti", .kernels = 2};
    enum mr_status status = sample(work, options->repeats, &out->cold, err);
    if (!status) status = sample(work, options->repeats, &out->warm, err);
    out->events_cold = gpu_quantile(out->cold.at, out->cold.count, 0.5);
    out->events_warm = NAN;
    if (status) gpu_timing_free(out);
    return status;
}

void gpu_timing_free(struct gpu_timing *timing)
{
    free(timing->cold.at);
    free(timing->warm.at);
    *timing = (struct gpu_timing){0};
}

static enum mr_status nothing(void *context, void *stream, struct mr_error *err)
{
    (void)context;
    (void)stream;
    (void)err;
    return MR_OK;
}

struct gpu_work gpu_work_empty(int blocks)
{
    (void)blocks;
    return (struct gpu_work){nothing, NULL};
}

struct gpu_work gpu_work_read(const void *data, size_t bytes, int *sink)
{
    volatile const char *p = data;
    int sum = 0;
    for (size_t i = 0; i < bytes; i++) sum += p[i];
    *sink = sum;
    return (struct gpu_work){nothing, NULL};
}
