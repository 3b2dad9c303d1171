/* The device of a harness that was built without nvcc: there is none. */
#include "device.h"

bool gpu_built_with_cuda(void)
{
    return false;
}

const char *gpu_built_for(void)
{
    return "";
}

static enum mr_status none(struct mr_error *err)
{
    return mr_fail(err, MR_ERR_UNSUPPORTED, "no GPU can be used: this moeref-gpu was built without "
                   "CUDA (nvcc was missing): make gpu where there is one");
}

enum mr_status gpu_device_open(struct gpu_device *out, struct mr_error *err)
{
    *out = (struct gpu_device){0};
    return none(err);
}

const struct gpu_memory *gpu_device_memory(void)
{
    return &gpu_memory_host;
}

void gpu_timing_begin(const struct gpu_timing_options *options)
{
    (void)options;
}

enum mr_status gpu_time(const struct gpu_work *work, const struct gpu_timing_options *options,
                        struct gpu_timing *out, struct mr_error *err)
{
    (void)work;
    (void)options;
    *out = (struct gpu_timing){0};
    return none(err);
}

void gpu_timing_free(struct gpu_timing *timing)
{
    *timing = (struct gpu_timing){0};
}

struct gpu_work gpu_work_empty(int blocks)
{
    (void)blocks;
    return (struct gpu_work){0};
}

struct gpu_work gpu_work_read(const void *data, size_t bytes, int *sink)
{
    (void)data;
    (void)bytes;
    (void)sink;
    return (struct gpu_work){0};
}
