/* What the two halves of the safetensors reader share. Internal to ref/io. */
#ifndef MOEREF_SAFETENSORS_FILE_H
#define MOEREF_SAFETENSORS_FILE_H

#include <jansson.h>

#include "mapped.h"
#include "safetensors.h"

struct mr_entry {
    const char *name;
    struct mr_tensor tensor;
    uint64_t begin, end; /* data_offsets: bytes after the header */
};

struct mr_safetensors {
    char *path;
    struct mr_mapped map; /* map.image is NULL when the image is the caller's */
    const unsigned char *image;
    size_t bytes;
    size_t count;
    struct mr_entry *entries;        /* by begin, end, name */
    const struct mr_entry **by_name; /* the same, by name */
    char *names;                     /* all names, one behind the other */
    json_t *metadata;                /* object of strings, or NULL */
};

/* Fills count, entries, names and metadata from the image. What it allocated belongs to file also
 * after a failure. Reads the header only, never tensor data. */
enum mr_status mr_safetensors_read_header(struct mr_safetensors *file, struct mr_error *err);

#endif
