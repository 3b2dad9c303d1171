#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "jsontext.h"
#include "safetensors_file.h"

#define INDEX_NAME  "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"
/* transformers writes about 100 bytes a tensor; jansson takes some ten times the text. The limit is
 * that of a safetensors header, which holds more for each tensor. */
#define MAX_INDEX 100000000u

/* One path given to mr_checkpoint_add. file is set for a .safetensors file, map for an index. */
struct source {
    char *path;
    dev_t device;
    ino_t inode;
    struct mr_safetensors *file;
    json_t *map;                    /* weight_map: tensor -> shard name, both checked */
    struct mr_safetensors **shards; /* opened so far */
    size_t shard_count;
};

struct mr_checkpoint {
    struct source *sources;
    size_t count;
};

static enum mr_status no_memory(const char *path, struct mr_error *err)
{
    return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", path);
}

static bool same_file(const struct mr_safetensors *a, const struct mr_safetensors *b)
{
    return a->map.device == b->map.device && a->map.inode == b->map.inode;
}

static void release(struct source *s)
{
    mr_safetensors_close(s->file);
    for (size_t i = 0; i < s->shard_count; i++) mr_safetensors_close(s->shards[i]);
    free(s->shards);
    json_decref(s->map);
    free(s->path);
}

enum mr_status mr_checkpoint_new(struct mr_checkpoint **out, struct mr_error *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? MR_OK : mr_fail(err, MR_ERR_MEMORY, "out of memory for a checkpoint");
}

void mr_checkpoint_free(struct mr_checkpoint *set)
{
    if (!set) return;
    for (size_t i = 0; i < set->count; i++) release(&set->sources[i]);
    free(set->sources);
    free(set);
}

/* An index comes with the download: a shard name must not lead to a file outside its folder.
 * (Links are followed: the Hugging Face cache keeps shards as links into its blobs.) */
static bool safe_shard(const char *name)
{
    return *name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

static enum mr_status check_map(const char *path, json_t *map, struct mr_error *err)
{
    if (!json_is_object(map))
        return mr_fail(err, MR_ERR_FORMAT, "%s: weight_map: expected an object, found %s", path,
                       mr_jsontext_kind(map));
    const char *name;
    json_t *shard;
    json_object_foreach(map, name, shard)
    {
        if (!json_is_string(shard))
            return mr_fail(err, MR_ERR_FORMAT,
                           "%s: weight_map '%.*s': expected a file name, found %s", path,
                           mr_shown(name), name, mr_jsontext_kind(shard));
        const char *text = json_string_value(shard);
        if (!safe_shard(text))
            return mr_fail(err, MR_ERR_FORMAT,
                           "%s: weight_map '%.*s': expected the name of a file beside the index, "
                           "found '%.*s'",
                           path, mr_shown(name), name, mr_shown(text), text);
    }
    return MR_OK;
}

static enum mr_status parse_index(struct source *s, const struct mr_mapped *image,
                                  struct mr_error *err)
{
    if (image->bytes > MAX_INDEX)
        return mr_fail(err, MR_ERR_FORMAT, "%s: expected an index of at most %u bytes, found %zu",
                       s->path, MAX_INDEX, image->bytes);
    json_t *root;
    enum mr_status status =
        mr_jsontext_parse((const char *)image->image, image->bytes, 0, s->path, &root, err);
    if (status) return status;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(root))
        status = mr_fail(err, MR_ERR_FORMAT, "%s: expected an object, found %s", s->path,
                         mr_jsontext_kind(root));
    else
        status = check_map(s->path, map, err);
    if (!status) s->map = json_incref(map);
    json_decref(root);
    return status;
}

static enum mr_status open_source(struct source *s, struct mr_error *err)
{
    size_t n = strlen(s->path);
    if (n < 5 || strcmp(s->path + n - 5, ".json")) {
        enum mr_status status = mr_safetensors_open(s->path, &s->file, err);
        if (status) return status;
        s->device = s->file->map.device;
        s->inode = s->file->map.inode;
        return MR_OK;
    }
    struct mr_mapped image;
    enum mr_status status = mr_mapped_open(s->path, &image, err);
    if (status) return status;
    s->device = image.device;
    s->inode = image.inode;
    status = parse_index(s, &image, err);
    mr_mapped_close(&image);
    return status;
}

/* Also true for what is there and cannot be looked at: opening it then says why. */
static bool present(const char *path)
{
    struct stat st;
    return !stat(path, &st) || (errno != ENOENT && errno != ENOTDIR);
}

static char *joined(const char *folder, size_t n, const char *name)
{
    char *path = malloc(n + strlen(name) + 2);
    if (!path) return NULL;
    memcpy(path, folder, n);
    if (n && folder[n - 1] != '/') path[n++] = '/';
    strcpy(path + n, name);
    return path;
}

/* *out: path itself, or for a folder the file in it that is meant. */
static enum mr_status resolve(const char *path, char **out, struct mr_error *err)
{
    struct stat st;
    if (stat(path, &st) || !S_ISDIR(st.st_mode)) {
        *out = strdup(path); /* what is wrong with it, opening it says */
        return *out ? MR_OK : no_memory(path, err);
    }
    static const char *const names[] = {INDEX_NAME, SINGLE_NAME};
    for (size_t i = 0; i < 2; i++) {
        *out = joined(path, strlen(path), names[i]);
        if (!*out) return no_memory(path, err);
        if (present(*out)) return MR_OK;
        free(*out);
    }
    return mr_fail(err, MR_ERR_MISSING,
                   "%s: a folder with neither " INDEX_NAME " nor " SINGLE_NAME " in it", path);
}

enum mr_status mr_checkpoint_add(struct mr_checkpoint *set, const char *path, struct mr_error *err)
{
    struct source s = {0};
    enum mr_status status = resolve(path, &s.path, err);
    if (status) return status;
    struct source *more = reallocarray(set->sources, set->count + 1, sizeof *more);
    if (more) set->sources = more;
    status = more ? open_source(&s, err) : no_memory(path, err);
    /* The same file twice (checkpoint and capture may be one) is not two files. */
    bool known = false;
    for (size_t i = 0; !status && i < set->count; i++)
        if (set->sources[i].device == s.device && set->sources[i].inode == s.inode) known = true;
    if (status || known)
        release(&s);
    else
        set->sources[set->count++] = s;
    return status;
}

static enum mr_status open_shard(struct source *s, const char *name, const char *shard,
                                 struct mr_safetensors **out, struct mr_error *err)
{
    const char *slash = strrchr(s->path, '/');
    char *path = joined(s->path, slash ? (size_t)(slash - s->path) + 1 : 0, shard);
    if (!path) return no_memory(s->path, err);
    for (size_t i = 0; i < s->shard_count; i++)
        if (!strcmp(s->shards[i]->path, path)) {
            *out = s->shards[i];
            free(path);
            return MR_OK;
        }
    enum mr_status status;
    struct mr_error why;
    struct mr_safetensors **more = reallocarray(s->shards, s->shard_count + 1, sizeof *more);
    if (more) s->shards = more;
    if (!more)
        status = no_memory(s->path, err);
    else if (!present(path))
        status = mr_fail(err, MR_ERR_MISSING,
                         "%s: tensor '%.*s' should be in shard %s, which is not there", s->path,
                         mr_shown(name), name, path);
    else if ((status = mr_safetensors_open(path, out, &why)))
        mr_fail(err, status, "%s (shard of %s)", why.text, s->path);
    else
        s->shards[s->shard_count++] = *out;
    free(path);
    return status;
}

/* *file stays NULL if the source does not know the name. */
static enum mr_status look(struct source *s, const char *name, struct mr_tensor *out,
                           struct mr_safetensors **file, struct mr_error *err)
{
    *file = NULL;
    if (s->file) {
        if (mr_safetensors_find(s->file, name, out)) *file = s->file;
        return MR_OK;
    }
    const char *shard = json_string_value(json_object_get(s->map, name));
    if (!shard) return MR_OK;
    struct mr_safetensors *found;
    enum mr_status status = open_shard(s, name, shard, &found, err);
    if (status) return status;
    if (!mr_safetensors_find(found, name, out))
        return mr_fail(err, MR_ERR_MISSING,
                       "%s: no tensor '%.*s' in this shard, though %s puts it there", found->path,
                       mr_shown(name), name, s->path);
    *file = found;
    return MR_OK;
}

static enum mr_status missing(const struct mr_checkpoint *set, const char *name,
                              struct mr_error *err)
{
    char files[512] = "no file";
    size_t n = 0;
    for (size_t i = 0; i < set->count; i++) {
        int more =
            snprintf(files + n, sizeof files - n, "%s%s", i ? ", " : "", set->sources[i].path);
        if (more < 0 || (size_t)more >= sizeof files - n) {
            snprintf(files + n, sizeof files - n, "%s", i ? " ..." : set->sources[i].path);
            break;
        }
        n += (size_t)more;
    }
    return mr_fail(err, MR_ERR_MISSING, "no tensor '%.*s' in %s", mr_shown(name), name, files);
}

enum mr_status mr_checkpoint_find(struct mr_checkpoint *set, const char *name,
                                  struct mr_tensor *out, const char **file_path,
                                  struct mr_error *err)
{
    struct mr_safetensors *first = NULL;
    for (size_t i = 0; i < set->count; i++) {
        struct mr_tensor tensor;
        struct mr_safetensors *file;
        enum mr_status status = look(&set->sources[i], name, &tensor, &file, err);
        if (status) return status;
        if (!file) continue;
        if (!first) {
            first = file;
            *out = tensor;
        } else if (!same_file(first, file)) {
            return mr_fail(err, MR_ERR_FORMAT, "tensor '%.*s' is in two files: %.300s and %.300s",
                           mr_shown(name), name, first->path, file->path);
        }
    }
    if (!first) return missing(set, name, err);
    if (file_path) *file_path = first->path;
    return MR_OK;
}

bool mr_checkpoint_has(const struct mr_checkpoint *set, const char *name)
{
    struct mr_tensor ignored;
    for (size_t i = 0; i < set->count; i++) {
        const struct source *s = &set->sources[i];
        if (s->file ? mr_safetensors_find(s->file, name, &ignored)
                    : json_object_get(s->map, name) != NULL)
            return true;
    }
    return false;
}

void mr_checkpoint_each(const struct mr_checkpoint *set, bool (*visit)(void *, const char *name),
                        void *context)
{
    for (size_t i = 0; i < set->count; i++) {
        const struct source *s = &set->sources[i];
        for (size_t k = 0; s->file && k < s->file->count; k++)
            if (!visit(context, s->file->entries[k].name)) return;
        const char *name;
        json_t *shard;
        json_object_foreach(s->map, name, shard) /* jansson keeps the order of the text */
            if (!visit(context, name)) return;
    }
}
