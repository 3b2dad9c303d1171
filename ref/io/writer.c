#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jsontext.h"
#include "mapped.h"
#include "writer_file.h"

static enum mr_status no_memory(const struct mr_writer *w, struct mr_error *err)
{
    return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", w->path);
}

static void release(struct mr_writer *w)
{
    for (size_t i = 0; i < w->count; i++) free(w->tensors[i].name);
    free(w->tensors);
    json_decref(w->names);
    json_decref(w->metadata);
    free(w->temporary);
    free(w->path);
    free(w);
}

/* After this the writer counts as not begun, so nothing can finish a broken file. */
static void discard(struct mr_writer *w)
{
    if (w->fd < 0) return;
    close(w->fd);
    unlink(w->temporary);
    w->fd = -1;
}

enum mr_status mr_writer_new(const char *path, struct mr_writer **out, struct mr_error *err)
{
    *out = NULL;
    struct mr_writer *w = calloc(1, sizeof *w);
    if (!w) return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", path);
    w->fd = -1;
    /* A link stays: the file that it leads to is replaced. */
    w->path = realpath(path, NULL);
    if (!w->path) w->path = strdup(path);
    w->metadata = json_object();
    w->names = json_object();
    if (w->path && asprintf(&w->temporary, "%s.tmp.%ld", w->path, (long)getpid()) < 0)
        w->temporary = NULL;
    if (!w->path || !w->metadata || !w->names || !w->temporary) {
        release(w);
        return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", path);
    }
    *out = w;
    return MR_OK;
}

/* kind: "tensor" or "metadata key". */
static enum mr_status check_name(const struct mr_writer *w, const char *kind, const char *name,
                                 const json_t *taken, struct mr_error *err)
{
    if (w->fd >= 0)
        return mr_fail(err, MR_ERR_USAGE, "%s: %s '%.*s' comes after the header was written",
                       w->path, kind, mr_shown(name), name);
    size_t bytes = strlen(name), bad = mr_utf8_invalid(name, bytes);
    if (bad < bytes)
        return mr_fail(err, MR_ERR_VALUE,
                       "%s: %s '%.*s': expected UTF-8, found 0x%02x at byte %zu of the name",
                       w->path, kind, mr_shown(name), name, (unsigned char)name[bad], bad);
    if (json_object_get(taken, name))
        return mr_fail(err, MR_ERR_VALUE, "%s: %s '%.*s' is declared twice", w->path, kind,
                       mr_shown(name), name);
    return MR_OK;
}

enum mr_status mr_writer_metadata(struct mr_writer *w, const char *key, const char *value,
                                  struct mr_error *err)
{
    enum mr_status status = check_name(w, "metadata key", key, w->metadata, err);
    if (status) return status;
    size_t bytes = strlen(value), bad = mr_utf8_invalid(value, bytes);
    if (bad < bytes)
        return mr_fail(err, MR_ERR_VALUE,
                       "%s: metadata '%.*s': expected UTF-8, found 0x%02x at byte %zu of the value",
                       w->path, mr_shown(key), key, (unsigned char)value[bad], bad);
    return json_object_set_new(w->metadata, key, json_string(value)) ? no_memory(w, err) : MR_OK;
}

/* As the reader's check_size: zero dimensions do not excuse a product that overflows. */
static enum mr_status measure(const struct mr_writer *w, struct mr_declared *t,
                              struct mr_error *err)
{
    uint64_t bits = mr_dtype_bits(t->dtype);
    bool none = false;
    for (int i = 0; i < t->ndim; i++) {
        if (!t->shape[i])
            none = true;
        else if (t->shape[i] > INT64_MAX || __builtin_mul_overflow(bits, t->shape[i], &bits))
            return mr_fail(err, MR_ERR_VALUE,
                           "%s: tensor '%.*s': the product of shape and dtype overflows 64 bits "
                           "at shape[%d] = %llu",
                           w->path, mr_shown(t->name), t->name, i, (unsigned long long)t->shape[i]);
    }
    if (none) bits = 0;
    if (bits % 8)
        return mr_fail(err, MR_ERR_SHAPE,
                       "%s: tensor '%.*s': %s of this shape takes %llu bits: expected whole bytes",
                       w->path, mr_shown(t->name), t->name, mr_dtype_name(t->dtype),
                       (unsigned long long)bits);
    t->bytes = bits / 8;
    return MR_OK;
}

static enum mr_status add(struct mr_writer *w, const struct mr_declared *t, struct mr_error *err)
{
    if (w->count == w->room) {
        size_t room = w->room ? 2 * w->room : 16;
        struct mr_declared *more = reallocarray(w->tensors, room, sizeof *more);
        if (!more) return no_memory(w, err);
        w->tensors = more;
        w->room = room;
    }
    char *name = strdup(t->name);
    if (!name || json_object_set_new(w->names, name, json_true())) {
        free(name);
        return no_memory(w, err);
    }
    struct mr_declared *slot = &w->tensors[w->count++];
    *slot = *t;
    slot->name = name;
    atomic_init(&slot->put, 0);
    return MR_OK;
}

enum mr_status mr_writer_declare(struct mr_writer *w, const char *name, enum mr_dtype dtype,
                                 int ndim, const uint64_t *shape, size_t *index,
                                 struct mr_error *err)
{
    enum mr_status status = check_name(w, "tensor", name, w->names, err);
    if (status) return status;
    if (!strcmp(name, "__metadata__"))
        return mr_fail(err, MR_ERR_VALUE,
                       "%s: a tensor cannot be called __metadata__, which the format keeps for "
                       "itself",
                       w->path);
    if (!mr_dtype_bits(dtype))
        return mr_fail(err, MR_ERR_USAGE, "%s: tensor '%.*s': %d is no dtype", w->path,
                       mr_shown(name), name, (int)dtype);
    if (ndim < 0 || ndim > MR_MAX_DIMS)
        return mr_fail(err, MR_ERR_USAGE,
                       "%s: tensor '%.*s': expected 0 to %d dimensions, found %d", w->path,
                       mr_shown(name), name, MR_MAX_DIMS, ndim);
    struct mr_declared t = {.name = (char *)name, .dtype = dtype, .ndim = ndim};
    if (ndim) memcpy(t.shape, shape, (size_t)ndim * sizeof *shape);
    status = measure(w, &t, err);
    if (!status) status = add(w, &t, err);
    if (!status) *index = w->count - 1;
    return status;
}

static enum mr_status write_at(const struct mr_writer *w, const void *data, uint64_t bytes,
                               uint64_t at, struct mr_error *err)
{
    const char *p = data;
    while (bytes) {
        size_t chunk = bytes < (1u << 30) ? (size_t)bytes : 1u << 30; /* Linux writes < 2^31 */
        ssize_t n = pwrite(w->fd, p, chunk, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return mr_fail(err, mr_errno_status(errno), "%s: byte %llu: cannot write %zu bytes: %m",
                           w->temporary, (unsigned long long)at, chunk);
        p += n;
        at += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return MR_OK;
}

/* rename would put a regular file in the place of /dev/null or of a FIFO, if it is allowed to. */
static enum mr_status check_target(const struct mr_writer *w, struct mr_error *err)
{
    struct stat st;
    if (!lstat(w->path, &st) && !S_ISREG(st.st_mode))
        return mr_fail(err, MR_ERR_IO, "%s: expected a regular file or nothing there, found %s",
                       w->path, S_ISDIR(st.st_mode) ? "a folder" : "another kind of file");
    return MR_OK;
}

enum mr_status mr_writer_begin(struct mr_writer *w, struct mr_error *err)
{
    char *header = NULL;
    size_t bytes = 0;
    if (w->fd >= 0) return mr_fail(err, MR_ERR_USAGE, "%s: begun twice", w->path);
    enum mr_status status = check_target(w, err);
    if (!status) status = mr_writer_layout(w, &header, &bytes, err);
    if (status) return status;
    unlink(w->temporary); /* left by a run that was killed; O_EXCL follows no link laid there */
    w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd < 0)
        status = mr_fail(err, mr_errno_status(errno), "%s: cannot create: %m", w->temporary);
    else
        status = write_at(w, header, bytes, 0, err);
    free(header);
    w->base = bytes;
    if (!status && ftruncate(w->fd, (off_t)(w->base + w->bytes)))
        status = mr_fail(err, mr_errno_status(errno), "%s: cannot grow to %llu bytes: %m",
                         w->temporary, (unsigned long long)(w->base + w->bytes));
    if (status) discard(w);
    return status;
}

enum mr_status mr_writer_put(struct mr_writer *w, size_t index, uint64_t offset, const void *data,
                             uint64_t bytes, struct mr_error *err)
{
    if (w->fd < 0) return mr_fail(err, MR_ERR_USAGE, "%s: data comes before begin", w->path);
    if (index >= w->count)
        return mr_fail(err, MR_ERR_USAGE, "%s: tensor %zu of %zu", w->path, index, w->count);
    struct mr_declared *t = &w->tensors[index];
    if (offset > t->bytes || bytes > t->bytes - offset)
        return mr_fail(err, MR_ERR_USAGE,
                       "%s: tensor '%.*s': %llu bytes at %llu do not fit its %llu bytes", w->path,
                       mr_shown(t->name), t->name, (unsigned long long)bytes,
                       (unsigned long long)offset, (unsigned long long)t->bytes);
    enum mr_status status = write_at(w, data, bytes, w->base + t->begin + offset, err);
    if (!status) atomic_fetch_add(&t->put, bytes);
    return status;
}

/* A tensor that was not filled would read as zeros, which look like data. */
static enum mr_status check_filled(struct mr_writer *w, struct mr_error *err)
{
    if (w->fd < 0) return mr_fail(err, MR_ERR_USAGE, "%s: finished before begin", w->path);
    for (size_t i = 0; i < w->count; i++) {
        struct mr_declared *t = &w->tensors[i];
        uint64_t put = atomic_load(&t->put);
        if (put < t->bytes)
            return mr_fail(err, MR_ERR_USAGE, "%s: tensor '%.*s': %llu of its %llu bytes were put",
                           w->path, mr_shown(t->name), t->name, (unsigned long long)put,
                           (unsigned long long)t->bytes);
    }
    return MR_OK;
}

enum mr_status mr_writer_finish(struct mr_writer *w, struct mr_error *err)
{
    enum mr_status status = check_filled(w, err);
    if (!status) {
        int failed = close(w->fd);
        if (failed)
            status = mr_fail(err, mr_errno_status(errno), "%s: cannot close: %m", w->temporary);
        else if (rename(w->temporary, w->path))
            status = mr_fail(err, mr_errno_status(errno), "%s: cannot rename to %s: %m",
                             w->temporary, w->path);
        w->fd = -1;
        if (status) unlink(w->temporary);
    }
    if (status)
        mr_writer_abandon(w);
    else
        release(w);
    return status;
}

void mr_writer_abandon(struct mr_writer *w)
{
    if (!w) return;
    discard(w);
    release(w);
}
