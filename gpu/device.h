/* The device: what it is, its memory, and what is timed on it. Two implementations: device_cuda.c
 * and its *_cuda.c with nvcc, cpu_only.c without. Called in child processes only, but for
 * gpu_built_with_cuda. */
#ifndef MOEREF_GPU_DEVICE_H
#define MOEREF_GPU_DEVICE_H

#include <stdbool.h>

#include "harness.h"
#include "memory.h"

bool gpu_built_with_cuda(void);
/* "sm_90a", what the kernels in this program were compiled for; "" without CUDA. */
const char *gpu_built_for(void);

struct gpu_device {
    char name[256];
    char driver[64]; /* the display driver's version where NVML tells it, else the CUDA version that
                        the driver serves */
    char cuda[32];   /* runtime */
    int major, minor, multiprocessors, l2_bytes;
    unsigned long long memory_bytes;
    int clock_sm, clock_memory, clock_sm_most; /* MHz as found; 0: not told (NVML) */
};

/* Opens the first device. MR_ERR_UNSUPPORTED says what is missing in one line: no CUDA in this
 * build, no device, too old a driver, a device that the kernels were not compiled for. */
enum mr_status gpu_device_open(struct gpu_device *out, struct mr_error *err);
const struct gpu_memory *gpu_device_memory(void);

/* Microseconds: sorted samples. */
struct gpu_samples {
    int count;
    double *at;
};

struct gpu_timing_options {
    int repeats;    /* samples each of cold and warm */
    bool no_cupti;  /* under compute-sanitizer or ncu, which want CUPTI for themselves */
};

/* Before gpu_device_open in a process that times: CUPTI wants to be there first. */
void gpu_timing_begin(const struct gpu_timing_options *options);

/* What is timed: enqueues on a stream, also while it is captured. */
struct gpu_work {
    enum mr_status (*launch)(void *context, void *stream, struct mr_error *err);
    void *context;
};

/* A graph of work, replayed. cold: the L2 was flushed by reading more than twice its size; warm:
 * the work ran just before. *method (static): "cupti" or "events" (the latter holds the launch of
 * the graph, too). check: medians by both, if CUPTI is there; else NAN. Samples are the caller's to
 * free. */
struct gpu_timing {
    struct gpu_samples cold, warm;
    const char *method;
    double events_cold, events_warm; /* medians by events around graph replays */
    int kernels;                     /* in the graph, as CUPTI saw it; 0: not known */
};
enum mr_status gpu_time(const struct gpu_work *work, const struct gpu_timing_options *options,
                        struct gpu_timing *out, struct mr_error *err);
void gpu_timing_free(struct gpu_timing *timing);

/* Floors: an empty kernel of some blocks; a kernel that reads bytes and writes next to nothing. */
struct gpu_work gpu_work_empty(int blocks);
struct gpu_work gpu_work_read(const void *data, size_t bytes, int *sink);

#endif
