/* safetensors files: mapped, never read whole. Every rule of the format is enforced with a message
 * of its own (huggingface/safetensors README "Format" and tensor.rs), MR_ERR_FORMAT; a path that
 * cannot be read or is no regular file is MR_ERR_IO, more than MR_MAX_DIMS dimensions
 * MR_ERR_UNSUPPORTED. *out is NULL after a failure.
 *
 * Opened files are immutable and may be read by any number of threads. */
#ifndef MOEREF_SAFETENSORS_H
#define MOEREF_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../status.h"
#include "../tensor.h"

struct mr_safetensors; /* one file */

enum mr_status mr_safetensors_open(const char *path, struct mr_safetensors **out,
                                   struct mr_error *err);
void mr_safetensors_close(struct mr_safetensors *file); /* NULL is allowed */

/* Parses a file image in memory that the caller keeps alive; path is for messages only. The fuzz
 * target's entry. */
enum mr_status mr_safetensors_parse(const void *image, size_t bytes, const char *path,
                                    struct mr_safetensors **out, struct mr_error *err);

const char *mr_safetensors_path(const struct mr_safetensors *file);
size_t mr_safetensors_count(const struct mr_safetensors *file);
/* i-th tensor in file order (by data_offsets, then name); its name is the file's. */
const char *mr_safetensors_name(const struct mr_safetensors *file, size_t i);
struct mr_tensor mr_safetensors_tensor(const struct mr_safetensors *file, size_t i);
/* true and *out filled if there is a tensor of that name. */
bool mr_safetensors_find(const struct mr_safetensors *file, const char *name,
                         struct mr_tensor *out);
/* Value of a __metadata__ key, or NULL. */
const char *mr_safetensors_metadata(const struct mr_safetensors *file, const char *key);

/* A set of files searched as one: checkpoint shards, or router and capture side by side. */
struct mr_checkpoint;
enum mr_status mr_checkpoint_new(struct mr_checkpoint **out, struct mr_error *err);
/* path: a .safetensors file; a model.safetensors.index.json, known by its ending .json (its
 * weight_map is read, a shard is opened when a tensor of it is first asked for, shards lie beside
 * the index); or a folder that holds one or the other (index first, then model.safetensors).
 * A file that the set already holds is passed over. */
enum mr_status mr_checkpoint_add(struct mr_checkpoint *set, const char *path,
                                 struct mr_error *err);
/* MR_ERR_MISSING names the tensor and the files searched; a tensor found in two files is
 * MR_ERR_FORMAT. *file_path (if not NULL) is where it was found. Not thread safe (opens shards). */
enum mr_status mr_checkpoint_find(struct mr_checkpoint *set, const char *name,
                                  struct mr_tensor *out, const char **file_path,
                                  struct mr_error *err);
bool mr_checkpoint_has(const struct mr_checkpoint *set, const char *name);
/* Calls visit for every tensor name known, in a deterministic order (files as added, then file
 * order; for an index, the order of its weight_map). Stops when visit returns false. */
void mr_checkpoint_each(const struct mr_checkpoint *set, bool (*visit)(void *, const char *name),
                        void *context);
void mr_checkpoint_free(struct mr_checkpoint *set);

/* Writer. Declare all tensors, begin, fill in any order and from any thread, finish.
 * Tensors are laid out by falling dtype width, then in the order declared; the header is padded
 * with spaces to a multiple of 8. Written to PATH.tmp.PID and renamed by finish, so that a broken
 * run leaves what was there before. finish refuses (MR_ERR_USAGE) while fewer bytes were put than a
 * tensor holds; PATH must be a regular file (a link to one is followed) or not be there. */
struct mr_writer;
enum mr_status mr_writer_new(const char *path, struct mr_writer **out, struct mr_error *err);
enum mr_status mr_writer_metadata(struct mr_writer *w, const char *key, const char *value,
                                  struct mr_error *err);
/* Returns the tensor's index in *index. The name must be new and valid UTF-8. */
enum mr_status mr_writer_declare(struct mr_writer *w, const char *name, enum mr_dtype dtype,
                                 int ndim, const uint64_t *shape, size_t *index,
                                 struct mr_error *err);
enum mr_status mr_writer_begin(struct mr_writer *w, struct mr_error *err); /* writes the header */
/* bytes at byte offset of tensor index; thread safe (pwrite). */
enum mr_status mr_writer_put(struct mr_writer *w, size_t index, uint64_t offset, const void *data,
                             uint64_t bytes, struct mr_error *err);
enum mr_status mr_writer_finish(struct mr_writer *w, struct mr_error *err); /* frees w always */
void mr_writer_abandon(struct mr_writer *w); /* removes the temporary file, frees w */

#endif
