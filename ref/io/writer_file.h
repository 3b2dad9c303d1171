/* What the two halves of the safetensors writer share. Internal to ref/io. */
#ifndef MOEREF_WRITER_FILE_H
#define MOEREF_WRITER_FILE_H

#include <jansson.h>
#include <stdatomic.h>

#include "safetensors.h"

struct mr_declared {
    char *name;
    enum mr_dtype dtype;
    int ndim;
    uint64_t shape[MR_MAX_DIMS];
    uint64_t bytes, begin;    /* begin: from the start of the data; set by mr_writer_layout */
    atomic_uint_fast64_t put; /* bytes put so far */
};

struct mr_writer {
    char *path, *temporary;
    int fd;                   /* -1 before begin */
    json_t *metadata, *names; /* names: an object whose keys are the names declared */
    struct mr_declared *tensors;
    size_t count, room;
    uint64_t base, bytes; /* of the data: offset in the file, size */
};

/* Sets every begin and w->bytes, and makes the header: its length, the JSON, spaces. *header is
 * malloc'ed. */
enum mr_status mr_writer_layout(struct mr_writer *w, char **header, size_t *bytes,
                                struct mr_error *err);

#endif
