#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                                     \
    do {                                              \
        enum mr_status try_status_ = (call);          \
        if (try_status_ != MR_OK) return try_status_; \
    } while (0)

/* NaN in every format of two and of four bytes; negative as an integer. */
static const unsigned char canary[4] = {0xc1, 0xff, 0xc1, 0xff};

static void guard_fill(unsigned char *guard)
{
    for (size_t i = 0; i < GPU_GUARD; i++) guard[i] = canary[i % 4];
}

/* FNV-1a (Fowler, Noll, Vo) over words of eight bytes: any write to an input changes it, but for
 * one in 2^64. */
static uint64_t digest(const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t h = 14695981039346656037u;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = (h ^ word) * 1099511628211u;
        h ^= h >> 29;
    }
    for (; bytes; p++, bytes--) h = (h ^ *p) * 1099511628211u;
    return h;
}

enum mr_status gpu_buffer_new(const struct gpu_memory *m, const char *name, size_t bytes,
                              struct gpu_buffer *out, struct mr_error *err)
{
    unsigned char guard[GPU_GUARD];
    *out = (struct gpu_buffer){.name = name, .bytes = bytes};
    if (!bytes) return MR_OK;
    TRY(m->allocate(bytes + 2 * GPU_GUARD, &out->base, err));
    out->data = (char *)out->base + GPU_GUARD;
    guard_fill(guard);
    TRY(m->put(out->base, guard, GPU_GUARD, err));
    return m->put((char *)out->data + bytes, guard, GPU_GUARD, err);
}

void gpu_buffer_free(const struct gpu_memory *m, struct gpu_buffer *b)
{
    if (b->base) m->release(b->base, b->bytes + 2 * GPU_GUARD);
    *b = (struct gpu_buffer){0};
}

enum mr_status gpu_buffer_put(const struct gpu_memory *m, struct gpu_buffer *b, const void *from,
                              struct mr_error *err)
{
    if (!b->bytes) return MR_OK;
    b->input = true;
    b->digest = digest(from, b->bytes);
    return m->put(b->data, from, b->bytes, err);
}

static enum mr_status check_guard(const struct gpu_memory *m, const struct gpu_buffer *b,
                                  bool behind, char *fault, size_t size, struct mr_error *err)
{
    unsigned char found[GPU_GUARD], expected[GPU_GUARD];
    size_t n = 0, first = 0, last = 0;
    TRY(m->get(found, behind ? (char *)b->data + b->bytes : b->base, GPU_GUARD, err));
    guard_fill(expected);
    for (size_t i = 0; i < GPU_GUARD; i++) {
        if (found[i] == expected[i]) continue;
        if (!n++) first = i;
        last = i;
    }
    if (!n || *fault) return MR_OK;
    if (behind)
        snprintf(fault, size, "wrote outside: %zu bytes behind %s, from %zu after its end on",
                 n, b->name, first);
    else
        snprintf(fault, size, "wrote outside: %zu bytes before %s, the nearest %zu before its start",
                 n, b->name, (size_t)GPU_GUARD - last);
    return MR_OK;
}

enum mr_status gpu_buffer_check(const struct gpu_memory *m, const struct gpu_buffer *b,
                                char *fault, size_t size, struct mr_error *err)
{
    *fault = '\0';
    if (!b->bytes) return MR_OK;
    TRY(check_guard(m, b, false, fault, size, err));
    TRY(check_guard(m, b, true, fault, size, err));
    if (!b->input || *fault) return MR_OK;
    void *now = malloc(b->bytes);
    if (!now) return mr_fail(err, MR_ERR_MEMORY, "out of memory");
    enum mr_status status = m->get(now, b->data, b->bytes, err);
    if (!status && digest(now, b->bytes) != b->digest)
        snprintf(fault, size, "wrote into its input %s", b->name);
    free(now);
    return status;
}
