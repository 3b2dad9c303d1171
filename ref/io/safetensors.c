#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "safetensors_file.h"

static int by_name(const void *a, const void *b)
{
    const struct mr_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static enum mr_status index_names(struct mr_safetensors *file, struct mr_error *err)
{
    file->by_name = calloc(file->count + 1, sizeof *file->by_name);
    if (!file->by_name)
        return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory for %zu names", file->path,
                       file->count);
    for (size_t i = 0; i < file->count; i++) file->by_name[i] = &file->entries[i];
    qsort(file->by_name, file->count, sizeof *file->by_name, by_name);
    return MR_OK;
}

/* Takes the map (if any) whatever comes of it. */
static enum mr_status load(struct mr_mapped map, const void *image, size_t bytes, const char *path,
                           struct mr_safetensors **out, struct mr_error *err)
{
    *out = NULL;
    struct mr_safetensors *file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path))) {
        free(file);
        mr_mapped_close(&map);
        return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", path);
    }
    file->map = map;
    file->image = image;
    file->bytes = bytes;
    enum mr_status status = mr_safetensors_read_header(file, err);
    if (!status) status = index_names(file, err);
    if (status)
        mr_safetensors_close(file);
    else
        *out = file;
    return status;
}

enum mr_status mr_safetensors_open(const char *path, struct mr_safetensors **out,
                                   struct mr_error *err)
{
    struct mr_mapped map;
    *out = NULL;
    enum mr_status status = mr_mapped_open(path, &map, err);
    return status ? status : load(map, map.image, map.bytes, path, out, err);
}

enum mr_status mr_safetensors_parse(const void *image, size_t bytes, const char *path,
                                    struct mr_safetensors **out, struct mr_error *err)
{
    return load((struct mr_mapped){0}, image, bytes, path, out, err);
}

void mr_safetensors_close(struct mr_safetensors *file)
{
    if (!file) return;
    json_decref(file->metadata);
    free(file->by_name);
    free(file->entries);
    free(file->names);
    free(file->path);
    mr_mapped_close(&file->map);
    free(file);
}

const char *mr_safetensors_path(const struct mr_safetensors *file)
{
    return file->path;
}

size_t mr_safetensors_count(const struct mr_safetensors *file)
{
    return file->count;
}

const char *mr_safetensors_name(const struct mr_safetensors *file, size_t i)
{
    return file->entries[i].name;
}

struct mr_tensor mr_safetensors_tensor(const struct mr_safetensors *file, size_t i)
{
    return file->entries[i].tensor;
}

bool mr_safetensors_find(const struct mr_safetensors *file, const char *name, struct mr_tensor *out)
{
    struct mr_entry wanted = {.name = name};
    const struct mr_entry *key = &wanted;
    const struct mr_entry **hit =
        bsearch(&key, file->by_name, file->count, sizeof *file->by_name, by_name);
    if (hit) *out = (*hit)->tensor;
    return hit != NULL;
}

const char *mr_safetensors_metadata(const struct mr_safetensors *file, const char *key)
{
    return json_string_value(json_object_get(file->metadata, key));
}
