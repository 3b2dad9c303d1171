/* Memory that a kernel works on, of the host or of a device; and buffers in it with canaries around
 * them. Called in child processes only. */
#ifndef MOEREF_GPU_MEMORY_H
#define MOEREF_GPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../ref/status.h"

/* Functions return MR_OK, or leave a message. After a failure of a device nothing of it can be
 * used. */
struct gpu_memory {
    enum mr_status (*allocate)(size_t bytes, void **out, struct mr_error *err); /* 256 aligned */
    void (*release)(void *pointer, size_t bytes);
    enum mr_status (*fill)(void *to, int byte, size_t bytes, struct mr_error *err);
    enum mr_status (*put)(void *to, const void *from, size_t bytes, struct mr_error *err);
    enum mr_status (*get)(void *to, const void *from, size_t bytes, struct mr_error *err);
    enum mr_status (*stream)(void **out, struct mr_error *err); /* one, for all of the process */
    /* Waits for the stream, and tells what went wrong on it. */
    enum mr_status (*wait)(void *stream, struct mr_error *err);
};

extern const struct gpu_memory gpu_memory_host;

/* Around every buffer lie GPU_GUARD bytes of canaries: quiet NaNs as bf16, fp16 and fp32, so that
 * what a kernel reads beyond a buffer shows in its results, too. The one behind begins at the very
 * next byte. */
enum { GPU_GUARD = 16384 };

struct gpu_buffer {
    const char *name; /* "hidden", ... */
    size_t bytes;     /* 0: not there, and data is NULL */
    void *data;
    void *base;
    uint64_t digest;  /* of an input's bytes */
    bool input;       /* must not change */
};

/* bytes 0: data is NULL. */
enum mr_status gpu_buffer_new(const struct gpu_memory *m, const char *name, size_t bytes,
                              struct gpu_buffer *out, struct mr_error *err);
void gpu_buffer_free(const struct gpu_memory *m, struct gpu_buffer *b);
/* An input: its values, and what they are to stay. */
enum mr_status gpu_buffer_put(const struct gpu_memory *m, struct gpu_buffer *b, const void *from,
                              struct mr_error *err);
/* Compares canaries, and an input's bytes. *fault: "" or what was found, one line. */
enum mr_status gpu_buffer_check(const struct gpu_memory *m, const struct gpu_buffer *b,
                                char *fault, size_t size, struct mr_error *err);

#endif
