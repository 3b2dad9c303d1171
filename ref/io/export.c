/* Where an exported case goes, and that nothing else is lost there. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "case_private.h"
#include "export_private.h"

bool mr_export_has(const struct mr_export_job *job, size_t i, const char *phase)
{
    const struct mr_export *how = job->how;
    return (!how->layers || how->layers[i]) && (!how->phase || !strcmp(how->phase, phase)) &&
           mr_case_has(job->c, mr_case_layer_number(job->c, i), phase);
}

const char *mr_export_type(enum mr_dtype type)
{
    return type == MR_F32 ? "fp32" : type == MR_BF16 ? "bf16" : "fp16";
}

static enum mr_status make_names(struct mr_export_job *job, struct mr_error *err)
{
    const struct mr_export *how = job->how;
    const char *name = mr_case_name(job->c), *folder = how->folder;
    /* The name becomes a file's: no other folder, and no hidden file. */
    if (*name == '.' || strchr(name, '/') || strlen(name) > 200)
        return mr_fail(err, MR_ERR_VALUE, "%s: \"name\": \"%.200s\" cannot be a file's name",
                       job->c->path, name);
    const char *slash = *folder && folder[strlen(folder) - 1] == '/' ? "" : "/";
    snprintf(job->name, sizeof job->name, "%s%s%s%s", name, how->logits ? "." : "",
             how->logits ? mr_export_type(how->type) : "", how->logits ? "-logits" : "");
    int n = snprintf(job->json, PATH_MAX, "%s%s%s.json", folder, slash, job->name);
    int m = snprintf(job->tensors, PATH_MAX - 40, "%s%s%s.safetensors", folder, slash, job->name);
    if (n < 0 || n >= PATH_MAX || m < 0 || m >= PATH_MAX - 40)
        return mr_fail(err, MR_ERR_VALUE, "%.200s: the path is too long", folder);
    return MR_OK;
}

static enum mr_status check_job(struct mr_export_job *job, struct mr_error *err)
{
    size_t found = 0;
    for (size_t i = 0; i < job->c->layer_count; i++)
        for (size_t p = 0; p < job->c->phase_count; p++) {
            if (!mr_export_has(job, i, job->c->phases[p])) continue;
            found++;
            if (mr_case_by_token_id(job->c, job->c->layers[i]))
                return mr_fail(err, MR_ERR_UNSUPPORTED, "%s: layer %d chooses experts by token "
                               "id, which an exported case cannot say", job->c->path,
                               job->c->layers[i]);
        }
    if (found) return MR_OK;
    return mr_fail(err, MR_ERR_MISSING, "%s: no layer asked for has an input in a phase asked for",
                   job->c->path);
}

/* Bytes of two files; false if one cannot be read. */
static bool same(const char *path, const char *other)
{
    char a[1 << 14], b[1 << 14];
    FILE *f = fopen(path, "rb"), *g = fopen(other, "rb");
    bool equal = f && g;
    while (equal) {
        size_t n = fread(a, 1, sizeof a, f), m = fread(b, 1, sizeof b, g);
        equal = n == m && !memcmp(a, b, n) && !ferror(f) && !ferror(g);
        if (n < sizeof a) break;
    }
    if (f) fclose(f);
    if (g) fclose(g);
    return equal;
}

static enum mr_status taken(const char *path, struct mr_error *err)
{
    return mr_fail(err, MR_ERR_IO, "%s: is there already and holds something else (another case of "
                   "that name, or other layers, phases or seed): remove it, or choose another "
                   "folder", path);
}

/* Puts a finished file in its place; what is there stays, and must have the same bytes. In one step,
 * so that of two exports at once none replaces the other's file; a file system that cannot do that
 * (EINVAL) gets two. */
static enum mr_status place(const char *temporary, const char *path, struct mr_error *err)
{
    if (!renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE)) return MR_OK;
    int why = errno;
    enum mr_status status = MR_OK;
    if (why == EEXIST || (why == EINVAL && !access(path, F_OK))) {
        if (!same(temporary, path)) status = taken(path, err);
    } else if (why != EINVAL || rename(temporary, path)) {
        status = mr_fail(err, MR_ERR_IO, "%s: %s", path, strerror(errno));
    }
    unlink(temporary);
    return status;
}

static enum mr_status put_text(const char *text, const char *path, struct mr_error *err)
{
    FILE *f = fopen(path, "w");
    if (!f) return mr_fail(err, MR_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    bool bad = fputs(text, f) == EOF;
    bad |= fclose(f) != 0;
    if (!bad) return MR_OK;
    int why = errno;
    unlink(path);
    return mr_fail(err, MR_ERR_IO, "%s: cannot write: %s", path, strerror(why));
}

/* The case last: who finds it finds its tensors. But whether its place is free is asked first. */
static enum mr_status write_both(const struct mr_export_job *job, const char *text,
                                 struct mr_error *err)
{
    char new_json[PATH_MAX + 32], new_tensors[PATH_MAX + 32];
    snprintf(new_json, sizeof new_json, "%s.new.%ld", job->json, (long)getpid());
    snprintf(new_tensors, sizeof new_tensors, "%s.new.%ld", job->tensors, (long)getpid());
    TRY(put_text(text, new_json, err));
    enum mr_status status = MR_OK;
    if (!access(job->json, F_OK) && !same(new_json, job->json)) status = taken(job->json, err);
    if (!status) status = mr_export_tensors(job, new_tensors, err);
    if (!status) status = place(new_tensors, job->tensors, err);
    if (!status) return place(new_json, job->json, err);
    unlink(new_json);
    return status;
}

enum mr_status mr_export_write(struct mr_case *c, const struct mr_export *how,
                               struct mr_error *err)
{
    struct mr_export_job job = {.c = c, .how = how, .logits = how->logits || c->from_logits,
                                .observed = !how->logits};
    job.weights = !job.logits || c->router.bias;
    TRY(make_names(&job, err));
    TRY(check_job(&job, err));
    char *text = mr_export_json(&job);
    if (!text) return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", c->path);
    enum mr_status status = write_both(&job, text, err);
    free(text);
    return status;
}
