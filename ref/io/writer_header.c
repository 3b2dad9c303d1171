/* The header that the writer makes. Its bytes depend on what was declared and on nothing else:
 * jansson writes the keys of an object in the order in which they were set. */
#include <stdlib.h>
#include <string.h>

#include "writer_file.h"

#define LENGTH_BYTES 8
#define MAX_HEADER   100000000u /* tensor.rs, MAX_HEADER_SIZE: readers refuse more */

static int by_width(const void *a, const void *b)
{
    const struct mr_declared *x = *(struct mr_declared *const *)a;
    const struct mr_declared *y = *(struct mr_declared *const *)b;
    unsigned wx = mr_dtype_bits(x->dtype), wy = mr_dtype_bits(y->dtype);
    if (wx != wy) return wx > wy ? -1 : 1;
    return x < y ? -1 : x > y; /* both lie in w->tensors, in the order declared */
}

static json_t *entry(const struct mr_declared *t)
{
    json_t *shape = json_array();
    for (int i = 0; shape && i < t->ndim; i++)
        if (json_array_append_new(shape, json_integer((json_int_t)t->shape[i]))) {
            json_decref(shape);
            shape = NULL;
        }
    if (!shape) return NULL;
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", mr_dtype_name(t->dtype), "shape", shape,
                     "data_offsets", (json_int_t)t->begin, (json_int_t)(t->begin + t->bytes));
}

/* NULL: out of memory. */
static json_t *tree(struct mr_writer *w, struct mr_declared **order)
{
    json_t *root = json_object();
    if (root && json_object_size(w->metadata) &&
        json_object_set(root, "__metadata__", w->metadata)) {
        json_decref(root);
        return NULL;
    }
    for (size_t i = 0; root && i < w->count; i++)
        if (json_object_set_new(root, order[i]->name, entry(order[i]))) {
            json_decref(root);
            return NULL;
        }
    return root;
}

static enum mr_status place(struct mr_writer *w, struct mr_declared **order, struct mr_error *err)
{
    for (size_t i = 0; i < w->count; i++) order[i] = &w->tensors[i];
    qsort(order, w->count, sizeof *order, by_width);
    w->bytes = 0;
    for (size_t i = 0; i < w->count; i++) {
        order[i]->begin = w->bytes;
        /* The sum, header included, must be an off_t. */
        if (__builtin_add_overflow(w->bytes, order[i]->bytes, &w->bytes) ||
            w->bytes > INT64_MAX - MAX_HEADER - LENGTH_BYTES)
            return mr_fail(err, MR_ERR_VALUE, "%s: the tensors take more than 2^63 bytes together",
                           w->path);
    }
    return MR_OK;
}

static enum mr_status render(struct mr_writer *w, const char *json, char **header, size_t *bytes,
                             struct mr_error *err)
{
    size_t text = strlen(json), padded = (text + 7) / 8 * 8;
    if (padded > MAX_HEADER)
        return mr_fail(err, MR_ERR_VALUE, "%s: the header takes %zu bytes; the format allows %u",
                       w->path, padded, MAX_HEADER);
    char *out = malloc(LENGTH_BYTES + padded);
    if (!out)
        return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory for a header of %zu bytes", w->path,
                       padded);
    for (int i = 0; i < LENGTH_BYTES; i++) out[i] = (char)((uint64_t)padded >> 8 * i & 0xff);
    memcpy(out + LENGTH_BYTES, json, text);
    memset(out + LENGTH_BYTES + text, ' ', padded - text);
    *header = out;
    *bytes = LENGTH_BYTES + padded;
    return MR_OK;
}

enum mr_status mr_writer_layout(struct mr_writer *w, char **header, size_t *bytes,
                                struct mr_error *err)
{
    struct mr_declared **order = calloc(w->count + 1, sizeof *order);
    json_t *root = NULL;
    char *json = NULL;
    enum mr_status status = MR_OK;
    if (order) status = place(w, order, err);
    if (order && !status) root = tree(w, order);
    if (root) json = json_dumps(root, JSON_COMPACT);
    if (json)
        status = render(w, json, header, bytes, err);
    else if (!status)
        status = mr_fail(err, MR_ERR_MEMORY, "%s: out of memory for the header", w->path);
    free(json);
    json_decref(root);
    free(order);
    return status;
}
