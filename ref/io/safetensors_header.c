/* The header of a safetensors file and its rules.
 *
 * Sources: huggingface/safetensors README, "Format"; safetensors/src/tensor.rs (read_metadata,
 * Metadata::validate). Where the README asks more than that code, the README is followed: the
 * header begins with '{', and no key occurs twice. */
#include "safetensors_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jsontext.h"

#define LENGTH_BYTES 8
#define MAX_HEADER   100000000u /* tensor.rs, MAX_HEADER_SIZE */

static enum mr_status bad_tensor(const struct mr_safetensors *file, const char *name,
                                 enum mr_status status, struct mr_error *err, const char *format,
                                 ...) __attribute__((format(printf, 5, 6)));

static enum mr_status bad_tensor(const struct mr_safetensors *file, const char *name,
                                 enum mr_status status, struct mr_error *err, const char *format,
                                 ...)
{
    char text[384];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return mr_fail(err, status, "%s: tensor '%.*s': %s", file->path, mr_shown(name), name, text);
}

static enum mr_status header_length(const struct mr_safetensors *file, size_t *length,
                                    struct mr_error *err)
{
    if (file->bytes < LENGTH_BYTES)
        return mr_fail(err, MR_ERR_FORMAT,
                       "%s: expected a safetensors file, which begins with 8 bytes of header "
                       "length, found %zu bytes",
                       file->path, file->bytes);
    uint64_t n = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) n = n << 8 | file->image[i];
    if (n == 0)
        return mr_fail(err, MR_ERR_FORMAT,
                       "%s: byte 0: expected a header length of at least 2, found 0", file->path);
    if (n > MAX_HEADER)
        return mr_fail(err, MR_ERR_FORMAT,
                       "%s: byte 0: expected a header length of at most %u, found %llu (no "
                       "safetensors file?)",
                       file->path, MAX_HEADER, (unsigned long long)n);
    if (n > file->bytes - LENGTH_BYTES)
        return mr_fail(err, MR_ERR_FORMAT,
                       "%s: byte 0: header length %llu goes beyond the end of the file: %zu bytes "
                       "follow (truncated?)",
                       file->path, (unsigned long long)n, file->bytes - LENGTH_BYTES);
    *length = (size_t)n;
    return MR_OK;
}

static enum mr_status read_dtype(const struct mr_safetensors *file, struct mr_entry *e,
                                 const json_t *value, struct mr_error *err)
{
    if (!json_is_string(value))
        return bad_tensor(file, e->name, MR_ERR_FORMAT, err, "dtype: expected a string, found %s",
                          mr_jsontext_kind(value));
    const char *text = json_string_value(value);
    int dtype = mr_dtype_parse(text);
    if (dtype < 0)
        return bad_tensor(file, e->name, MR_ERR_FORMAT, err, "unknown dtype '%.*s'", mr_shown(text),
                          text);
    e->tensor.dtype = (enum mr_dtype)dtype;
    return MR_OK;
}

static enum mr_status read_shape(const struct mr_safetensors *file, struct mr_entry *e,
                                 const json_t *value, struct mr_error *err)
{
    if (!json_is_array(value))
        return bad_tensor(file, e->name, MR_ERR_FORMAT, err, "shape: expected an array, found %s",
                          mr_jsontext_kind(value));
    size_t ndim = json_array_size(value);
    for (size_t i = 0; i < ndim; i++) {
        const json_t *dim = json_array_get(value, i);
        if (!json_is_integer(dim))
            return bad_tensor(file, e->name, MR_ERR_FORMAT, err,
                              "shape[%zu]: expected an integer, found %s", i,
                              mr_jsontext_kind(dim));
        json_int_t n = json_integer_value(dim);
        if (n < 0)
            return bad_tensor(file, e->name, MR_ERR_FORMAT, err,
                              "shape[%zu]: expected no negative number, found %lld", i,
                              (long long)n);
        if (i < MR_MAX_DIMS) e->tensor.shape[i] = (uint64_t)n;
    }
    if (ndim > MR_MAX_DIMS)
        return bad_tensor(file, e->name, MR_ERR_UNSUPPORTED, err,
                          "%zu dimensions; at most %d are served", ndim, MR_MAX_DIMS);
    e->tensor.ndim = (int)ndim;
    return MR_OK;
}

static enum mr_status read_offsets(const struct mr_safetensors *file, struct mr_entry *e,
                                   const json_t *value, uint64_t room, struct mr_error *err)
{
    if (!json_is_array(value))
        return bad_tensor(file, e->name, MR_ERR_FORMAT, err,
                          "data_offsets: expected an array of two integers, found %s",
                          mr_jsontext_kind(value));
    if (json_array_size(value) != 2)
        return bad_tensor(file, e->name, MR_ERR_FORMAT, err,
                          "data_offsets: expected two integers, found %zu values",
                          json_array_size(value));
    uint64_t at[2];
    for (size_t i = 0; i < 2; i++) {
        const json_t *offset = json_array_get(value, i);
        if (!json_is_integer(offset))
            return bad_tensor(file, e->name, MR_ERR_FORMAT, err,
                              "data_offsets[%zu]: expected an integer, found %s", i,
                              mr_jsontext_kind(offset));
        if (json_integer_value(offset) < 0)
            return bad_tensor(file, e->name, MR_ERR_FORMAT, err,
                              "data_offsets[%zu]: expected no negative number, found %lld", i,
                              (long long)json_integer_value(offset));
        at[i] = (uint64_t)json_integer_value(offset);
    }
    e->begin = at[0];
    e->end = at[1];
    if (e->begin > e->end)
        return bad_tensor(file, e->name, MR_ERR_FORMAT, err,
                          "data_offsets [%llu, %llu] begin after their end (swapped?)",
                          (unsigned long long)e->begin, (unsigned long long)e->end);
    if (e->end > room)
        return bad_tensor(file, e->name, MR_ERR_FORMAT, err,
                          "data_offsets [%llu, %llu] go beyond the end of the file, which holds "
                          "%llu bytes of data (truncated?)",
                          (unsigned long long)e->begin, (unsigned long long)e->end,
                          (unsigned long long)room);
    return MR_OK;
}

/* Zero dimensions are left out of the product that is tested for overflow: whatever order a caller
 * multiplies in, no partial product wraps. tensor.rs, which multiplies from the left, accepts
 * [0, 2^40, 2^40] and refuses [2^40, 2^40, 0]; here both are refused. */
static enum mr_status check_size(const struct mr_safetensors *file, struct mr_entry *e,
                                 struct mr_error *err)
{
    uint64_t bits = mr_dtype_bits(e->tensor.dtype);
    bool none = false;
    for (int i = 0; i < e->tensor.ndim; i++) {
        if (!e->tensor.shape[i])
            none = true;
        else if (__builtin_mul_overflow(bits, e->tensor.shape[i], &bits))
            return bad_tensor(file, e->name, MR_ERR_FORMAT, err,
                              "the product of shape and dtype overflows 64 bits at shape[%d] = "
                              "%llu",
                              i, (unsigned long long)e->tensor.shape[i]);
    }
    if (none) bits = 0;
    if (bits % 8)
        return bad_tensor(file, e->name, MR_ERR_FORMAT, err,
                          "%s of this shape takes %llu bits: expected whole bytes",
                          mr_dtype_name(e->tensor.dtype), (unsigned long long)bits);
    if (bits / 8 != e->end - e->begin)
        return bad_tensor(file, e->name, MR_ERR_FORMAT, err,
                          "%s of this shape takes %llu bytes, data_offsets [%llu, %llu] hold %llu",
                          mr_dtype_name(e->tensor.dtype), (unsigned long long)(bits / 8),
                          (unsigned long long)e->begin, (unsigned long long)e->end,
                          (unsigned long long)(e->end - e->begin));
    e->tensor.bytes = e->end - e->begin;
    return MR_OK;
}

/* Other keys are refused, though serde ignores them in tensor.rs (TensorInfo has no
 * deny_unknown_fields): a key such as "strides" or "scale" would change what the bytes mean, and a
 * judge must not guess that it does not. No known writer makes any. */
static enum mr_status read_entry(const struct mr_safetensors *file, struct mr_entry *e,
                                 json_t *value, uint64_t room, struct mr_error *err)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    if (!json_is_object(value))
        return bad_tensor(file, e->name, MR_ERR_FORMAT, err,
                          "expected an object with dtype, shape and data_offsets, found %s",
                          mr_jsontext_kind(value));
    for (size_t i = 0; i < 3; i++)
        if (!json_object_get(value, keys[i]))
            return bad_tensor(file, e->name, MR_ERR_FORMAT, err, "no key '%s'", keys[i]);
    const char *key;
    json_t *ignored;
    json_object_foreach(
        value, key,
        ignored) if (strcmp(key, keys[0]) && strcmp(key, keys[1]) &&
                     strcmp(key, keys[2])) return bad_tensor(file, e->name, MR_ERR_FORMAT, err,
                                                             "expected only dtype, shape and "
                                                             "data_offsets, found a key '%.*s'",
                                                             mr_shown(key), key);
    enum mr_status status = read_dtype(file, e, json_object_get(value, keys[0]), err);
    if (!status) status = read_shape(file, e, json_object_get(value, keys[1]), err);
    if (!status) status = read_offsets(file, e, json_object_get(value, keys[2]), room, err);
    if (!status) status = check_size(file, e, err);
    return status;
}

static enum mr_status read_metadata(struct mr_safetensors *file, json_t *value,
                                    struct mr_error *err)
{
    if (!json_is_object(value))
        return mr_fail(err, MR_ERR_FORMAT, "%s: __metadata__: expected an object, found %s",
                       file->path, mr_jsontext_kind(value));
    const char *key;
    json_t *text;
    json_object_foreach(value, key, text) if (!json_is_string(text)) return mr_fail(
        err, MR_ERR_FORMAT, "%s: __metadata__ '%.*s': expected a string, found %s", file->path,
        mr_shown(key), key, mr_jsontext_kind(text));
    file->metadata = json_incref(value);
    return MR_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct mr_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* The ranges, sorted, tile the data: what lies in no tensor, or in two, makes polyglot files. */
static enum mr_status check_tiling(const struct mr_safetensors *file, uint64_t room,
                                   struct mr_error *err)
{
    uint64_t end = 0;
    for (size_t i = 0; i < file->count; i++) {
        const struct mr_entry *e = &file->entries[i];
        if (e->begin > end)
            return bad_tensor(file, e->name, MR_ERR_FORMAT, err,
                              "begins at %llu of the data, but the tensors before it end at %llu: "
                              "a hole",
                              (unsigned long long)e->begin, (unsigned long long)end);
        if (e->begin < end) { /* never the first: end is 0 there */
            const char *before = file->entries[i - 1].name;
            return bad_tensor(file, e->name, MR_ERR_FORMAT, err,
                              "begins at %llu of the data: overlap with tensor '%.*s', which ends "
                              "at %llu",
                              (unsigned long long)e->begin, mr_shown(before), before,
                              (unsigned long long)end);
        }
        end = e->end;
    }
    if (end != room)
        return mr_fail(err, MR_ERR_FORMAT,
                       "%s: %llu trailing bytes: the tensors end at %llu of the data, the file at "
                       "%llu",
                       file->path, (unsigned long long)(room - end), (unsigned long long)end,
                       (unsigned long long)room);
    return MR_OK;
}

/* Names and entries are copied out of the JSON tree, which takes several times their memory. */
static enum mr_status read_entries(struct mr_safetensors *file, json_t *root, size_t base,
                                   struct mr_error *err)
{
    const char *key;
    json_t *value;
    size_t name_bytes = 0, room = file->bytes - base; /* names: less than the header's bytes */
    json_object_foreach(root, key, value) name_bytes += strlen(key) + 1;
    file->entries = calloc(json_object_size(root) + 1, sizeof *file->entries);
    file->names = malloc(name_bytes + 1);
    if (!file->entries || !file->names)
        return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory for %zu tensors", file->path,
                       json_object_size(root));
    char *name = file->names;
    json_object_foreach(root, key, value)
    {
        enum mr_status status;
        if (!strcmp(key, "__metadata__")) {
            status = read_metadata(file, value, err);
        } else {
            struct mr_entry *e = &file->entries[file->count++];
            e->name = name;
            name = stpcpy(name, key) + 1;
            status = read_entry(file, e, value, room, err);
            e->tensor.data = file->image + base + (status ? 0 : e->begin);
        }
        if (status) return status;
    }
    qsort(file->entries, file->count, sizeof *file->entries, by_offset);
    return check_tiling(file, room, err);
}

enum mr_status mr_safetensors_read_header(struct mr_safetensors *file, struct mr_error *err)
{
    size_t length = 0;
    enum mr_status status = header_length(file, &length, err);
    if (status) return status;
    const char *text = (const char *)file->image + LENGTH_BYTES;
    if (*text != '{')
        return mr_fail(err, MR_ERR_FORMAT,
                       "%s: byte %d: expected the header to begin with '{', found 0x%02x",
                       file->path, LENGTH_BYTES, (unsigned char)*text);
    json_t *root;
    status = mr_jsontext_parse(text, length, LENGTH_BYTES, file->path, &root, err);
    if (status) return status;
    status = read_entries(file, root, LENGTH_BYTES + length, err);
    json_decref(root);
    return status;
}
