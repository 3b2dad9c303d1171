/* Start and end of kernels that ran in graphs, by CUPTI's activity records (CUPTI documentation,
 * "CUPTI Activity API"). The library is opened when asked for: a program linked against it would
 * not start where it is missing. */
#include "cuda_glue.h"

#if defined(__has_include)
#if __has_include(<cupti.h>)
#define HAVE_CUPTI 1
#endif
#endif

#ifndef HAVE_CUPTI

bool gpu_cupti_start(const char **why)
{
    *why = "built without cupti.h";
    return false;
}

int gpu_cupti_take(const struct gpu_span **out)
{
    *out = NULL;
    return -1;
}

#else

#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The record has grown with the versions; each keeps the fields of the one before. */
#if CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 kernel_record;
#else
typedef CUpti_ActivityKernel9 kernel_record;
#endif

enum { BUFFER = 4 << 20, SPANS = 1 << 16 };

static struct {
    CUptiResult (*enable)(CUpti_ActivityKind);
    CUptiResult (*callbacks)(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc);
    CUptiResult (*next)(uint8_t *, size_t, CUpti_Activity **);
    CUptiResult (*dropped)(CUcontext, uint32_t, size_t *);
    CUptiResult (*flush)(uint32_t);
} api;

/* Buffers come back on CUPTI's own threads. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_span spans[SPANS], taken[SPANS];
static int span_count;
static bool lost;

static void add(const kernel_record *k)
{
    if (!k->graphId) return;
    for (int i = span_count - 1; i >= 0; i--) {
        if (spans[i].id != k->correlationId) continue;
        if (k->start < spans[i].start) spans[i].start = k->start;
        if (k->end > spans[i].end) spans[i].end = k->end;
        spans[i].kernels++;
        return;
    }
    if (span_count == SPANS) {
        lost = true;
        return;
    }
    spans[span_count++] = (struct gpu_span){k->correlationId, k->start, k->end, 1};
}

static void CUPTIAPI want_buffer(uint8_t **buffer, size_t *size, size_t *records)
{
    *buffer = aligned_alloc(64, BUFFER);
    *size = *buffer ? BUFFER : 0;
    *records = 0;
}

static void CUPTIAPI got_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                size_t valid)
{
    CUpti_Activity *record = NULL;
    size_t dropped = 0;
    (void)size;
    pthread_mutex_lock(&lock);
    while (valid && api.next(buffer, valid, &record) == CUPTI_SUCCESS)
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
            add((const kernel_record *)record);
    if (api.dropped && api.dropped(context, stream, &dropped) == CUPTI_SUCCESS && dropped)
        lost = true;
    pthread_mutex_unlock(&lock);
    free(buffer);
}

static void *open_library(void)
{
    char number[32];
    snprintf(number, sizeof number, "libcupti.so.%d", CUPTI_API_VERSION / 10000);
    const char *const names[] = {number, "libcupti.so",
                                 "/usr/local/cuda/lib64/libcupti.so",
                                 "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    return NULL;
}

bool gpu_cupti_start(const char **why)
{
    void *library = open_library();
    *why = "libcupti is not installed here";
    if (!library) return false;
    *(void **)&api.enable = dlsym(library, "cuptiActivityEnable");
    *(void **)&api.callbacks = dlsym(library, "cuptiActivityRegisterCallbacks");
    *(void **)&api.next = dlsym(library, "cuptiActivityGetNextRecord");
    *(void **)&api.dropped = dlsym(library, "cuptiActivityGetNumDroppedRecords");
    *(void **)&api.flush = dlsym(library, "cuptiActivityFlushAll");
    *why = "libcupti lacks functions of its activity API";
    if (!api.enable || !api.callbacks || !api.next || !api.flush) return false;
    *why = "CUPTI refused to record kernels";
    return api.callbacks(want_buffer, got_buffer) == CUPTI_SUCCESS &&
           api.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS;
}

static int by_start(const void *a, const void *b)
{
    const struct gpu_span *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* The caller has synchronised, so that every record is complete. */
int gpu_cupti_take(const struct gpu_span **out)
{
    bool bad = api.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != CUPTI_SUCCESS;
    pthread_mutex_lock(&lock);
    int n = span_count;
    memcpy(taken, spans, (size_t)n * sizeof *spans);
    bad |= lost;
    span_count = 0;
    lost = false;
    pthread_mutex_unlock(&lock);
    qsort(taken, (size_t)n, sizeof *taken, by_start);
    *out = taken;
    return bad ? -1 : n;
}

#endif
