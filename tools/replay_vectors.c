/* moeref replay --vectors: a file of single steps, GPU.FORMAT.{a,b,c,d_fp32,d_fp16}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/arith/mma_vectors.h"
#include "../ref/io/safetensors.h"
#include "../ref/num/num.h"
#include "common.h"
#include "replay_run.h"

enum { WORD = 24 };

/* The parts of a tensor's name. */
struct parts {
    char gpu[WORD], format[WORD], kind[WORD];
};

static bool split(const char *name, struct parts *p)
{
    char *to[3] = {p->gpu, p->format, p->kind};
    for (int i = 0; i < 3; i++) {
        size_t n = strcspn(name, ".");
        if (n == 0 || n >= WORD || (name[n] == '.') != (i < 2)) return false;
        memcpy(to[i], name, n);
        to[i][n] = '\0';
        name += n + 1;
    }
    return true;
}

static bool beside(const struct mr_safetensors *file, const struct parts *p, const char *kind,
                   struct mr_tensor *out)
{
    char name[3 * WORD + 8];
    snprintf(name, sizeof name, "%s.%s.%s", p->gpu, p->format, kind);
    out->data = NULL;
    return mr_safetensors_find(file, name, out);
}

static void check_shape(const struct mr_safetensors *file, const struct parts *p, const char *kind,
                        const struct mr_tensor *t, uint64_t rows, uint64_t k)
{
    bool right = k ? mr_mma_stored(p->format, t->dtype) : t->dtype == MR_F32;
    if (right && t->ndim == (k ? 2 : 1) && t->shape[0] == rows && (!k || t->shape[1] == k)) return;
    die(3,
        "%s: %s.%s.%s: expected F32%s of %llu rows%s, as %s.%s.a has, found %s of %d dimensions, "
        "%llu rows",
        mr_safetensors_path(file), p->gpu, p->format, kind, k ? " (or the format's own type)" : "",
        (unsigned long long)rows,
        k ? " and as many columns" : "", p->gpu, p->format, mr_dtype_name(t->dtype), t->ndim,
        (unsigned long long)(t->ndim ? t->shape[0] : 0));
}

/* To be freed. */
static uint32_t *words_of(const struct mr_tensor *t)
{
    size_t n = (size_t)t->shape[0] * (size_t)t->shape[1];
    uint32_t *words = need(n, sizeof *words);
    mr_mma_words(t->data, t->dtype, n, words);
    return words;
}

static struct mr_mma_group read_group(const struct mr_safetensors *file, const struct parts *p,
                                      const struct mr_tensor *d)
{
    struct mr_tensor a, b, c;
    bool has_a = beside(file, p, "a", &a), has_b = beside(file, p, "b", &b);
    if (!has_a || !has_b)
        die(3, "%s: %s.%s.%s: expected %s.%s.%s beside it", mr_safetensors_path(file), p->gpu,
            p->format, p->kind, p->gpu, p->format, has_a ? "b" : "a");
    if (!mr_mma_stored(p->format, a.dtype) || a.ndim != 2 || !a.shape[1])
        die(3, "%s: %s.%s.a: expected F32 (or the format's own type) [rows, columns], found %s of "
               "%d dimensions", mr_safetensors_path(file), p->gpu, p->format,
            mr_dtype_name(a.dtype), a.ndim);
    check_shape(file, p, "b", &b, a.shape[0], a.shape[1]);
    check_shape(file, p, p->kind, d, a.shape[0], 0);
    if (beside(file, p, "c", &c)) check_shape(file, p, "c", &c, a.shape[0], 0);
    return (struct mr_mma_group){.gpu = p->gpu,
                                 .format = p->format,
                                 .output = p->kind + 2,
                                 .rows = (size_t)a.shape[0],
                                 .k = (size_t)a.shape[1],
                                 .a = words_of(&a),
                                 .b = words_of(&b),
                                 .c = c.data,
                                 .d = d->data};
}

static float value_of(const struct mr_mma *mma, uint32_t code)
{
    float v;
    if (mma->accumulator == MR_MMA_FP16) return mr_fp16_decode((uint16_t)code);
    memcpy(&v, &code, sizeof v);
    return v;
}

static void replay_group(const struct mr_safetensors *file, const char *name, const struct parts *p,
                         const struct mr_tensor *d, struct mr_replay_report *r)
{
    struct mr_error err = {{0}};
    struct mr_mma_replayed found;
    struct mr_mma_group group = read_group(file, p, d);
    enum mr_status status = mr_mma_group_replay(&group, &found, &err);
    if (status) die(mr_status_exit(status), "%s: %s", mr_safetensors_path(file), err.text);
    free((void *)group.a);
    free((void *)group.b);
    struct mr_replay_group *g = &r->group[r->count++];
    *g = (struct mr_replay_group){.rows = group.rows, .mark = mr_mma_mark(found.mma)};
    snprintf(g->name, sizeof g->name, "%s", name);
    snprintf(g->arith, sizeof g->arith, "%s", found.mma->name);
    g->tally.checked = found.checked;
    g->tally.mismatches = found.mismatches;
    if (found.mismatches) {
        g->tally.first.token = found.first;
        g->tally.first.observed = value_of(found.mma, found.expected);
        g->tally.first.replayed = value_of(found.mma, found.computed);
    }
    mr_replay_tally_add(&r->total, &g->tally);
}

void replay_vectors(const char *path, struct mr_replay_report *r)
{
    struct mr_error err = {{0}};
    struct mr_safetensors *file;
    enum mr_status status = mr_safetensors_open(path, &file, &err);
    if (status) die_of(status, &err);
    size_t count = mr_safetensors_count(file);
    *r = (struct mr_replay_report){.case_name = path};
    r->group = need(count, sizeof *r->group);
    for (size_t i = 0; i < count; i++) {
        const char *name = mr_safetensors_name(file, i);
        struct parts p;
        bool known = split(name, &p);
        bool result = known && !strncmp(p.kind, "d_", 2);
        if (known && !result && (!p.kind[0] || p.kind[1] || !strchr("abc", p.kind[0])))
            known = false;
        struct mr_tensor d = mr_safetensors_tensor(file, i), ignored;
        if (!known)
            die(3, "%s: tensor '%.80s': expected GPU.FORMAT.a, b, c, d_fp32 or d_fp16", path, name);
        if (result)
            replay_group(file, name, &p, &d, r);
        else if (!beside(file, &p, "d_fp32", &ignored) && !beside(file, &p, "d_fp16", &ignored))
            die(3, "%s: tensor '%.80s' has no results: expected %s.%s.d_fp32 or d_fp16", path, name,
                p.gpu, p.format);
    }
    if (!r->count) die(3, "%s: nothing to replay: no tensor GPU.FORMAT.d_fp32 or d_fp16", path);
    mr_safetensors_close(file);
}
