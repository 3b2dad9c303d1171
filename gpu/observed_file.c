#include "observed_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                                     \
    do {                                              \
        enum mr_status try_status_ = (call);          \
        if (try_status_ != MR_OK) return try_status_; \
    } while (0)

void gpu_observed_path(const char *folder, const char *kernel, int rows, char *path, size_t size)
{
    snprintf(path, size, "%s/%s.m%d.safetensors", folder, kernel, rows);
}

static enum mr_status number(struct mr_writer *w, const char *key, uint64_t value,
                             struct mr_error *err)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return mr_writer_metadata(w, key, text, err);
}

static enum mr_status describe(struct mr_writer *w, const struct gpu_provenance *p,
                               struct mr_error *err)
{
    const struct gpu_faults *f = p->faults;
    TRY(mr_writer_metadata(w, "engine", "moeref-gpu " MR_VERSION, err));
    TRY(mr_writer_metadata(w, "commit", gpu_commit, err));
    TRY(mr_writer_metadata(w, "case", p->case_name, err));
    TRY(mr_writer_metadata(w, "kernel", p->kernel->name, err));
    TRY(mr_writer_metadata(w, "family", p->kernel->family, err));
    TRY(number(w, "rows", (uint64_t)p->rows, err));
    TRY(mr_writer_metadata(w, "arithmetic", p->arith, err));
    TRY(mr_writer_metadata(w, "seed", p->seed, err));
    TRY(mr_writer_metadata(w, "device", p->device, err));
    TRY(mr_writer_metadata(w, "driver", p->driver, err));
    TRY(mr_writer_metadata(w, "cuda", p->cuda, err));
    TRY(number(w, "launched_rows", f->rows, err));
    TRY(number(w, "holes", f->holes, err));
    TRY(number(w, "poison_rows", f->poison_rows, err));
    TRY(number(w, "unstable_rows", f->unstable_rows, err));
    TRY(number(w, "delay_rows", f->delay_rows, err));
    TRY(mr_writer_metadata(w, "first", f->first, err));
    TRY(mr_writer_metadata(w, "outside", f->outside, err));
    return mr_writer_metadata(w, "books", f->books, err);
}

enum { PARTS = 4 };

struct part {
    const char *ending;
    enum mr_dtype dtype;
    uint64_t cols; /* 0: one dimension */
    const void *data;
    size_t index;
};

static void parts_of(const struct gpu_provenance *p, const struct gpu_layer_rows *l,
                     struct part part[PARTS])
{
    const struct mr_kernel *k = p->kernel;
    part[0] = (struct part){"topk_ids", MR_I32, (uint64_t)p->top_k, l->ids, 0};
    part[1] = (struct part){"topk_weights", gpu_type_dtype(k->weights_type), (uint64_t)p->top_k,
                            l->weights, 0};
    part[2] = (struct part){"gate.logits", gpu_type_dtype(k->logits_type), (uint64_t)p->experts,
                            l->logits, 0};
    part[3] = (struct part){"gate.token_index", MR_I64, 0, l->index, 0};
}

static enum mr_status declare(struct mr_writer *w, const struct gpu_layer_rows *l,
                              struct part part[PARTS], struct mr_error *err)
{
    for (int i = 0; i < PARTS; i++) {
        char name[512];
        uint64_t shape[2] = {l->rows, part[i].cols};
        if (!part[i].data) continue;
        snprintf(name, sizeof name, "%s.model.layers.%d.mlp.%s", l->phase, l->layer,
                 part[i].ending);
        TRY(mr_writer_declare(w, name, part[i].dtype, part[i].cols ? 2 : 1, shape, &part[i].index,
                              err));
    }
    return MR_OK;
}

static enum mr_status put(struct mr_writer *w, const struct gpu_layer_rows *l,
                          const struct part part[PARTS], struct mr_error *err)
{
    for (int i = 0; i < PARTS; i++) {
        uint64_t n = l->rows * (part[i].cols ? part[i].cols : 1);
        if (!part[i].data) continue;
        TRY(mr_writer_put(w, part[i].index, 0, part[i].data, n * mr_dtype_bits(part[i].dtype) / 8,
                          err));
    }
    return MR_OK;
}

static enum mr_status fill(struct mr_writer *w, const struct gpu_provenance *from,
                           const struct gpu_layer_rows *layer, size_t count,
                           struct part (*part)[PARTS], struct mr_error *err)
{
    TRY(describe(w, from, err));
    for (size_t i = 0; i < count; i++) {
        parts_of(from, &layer[i], part[i]);
        TRY(declare(w, &layer[i], part[i], err));
    }
    TRY(mr_writer_begin(w, err));
    for (size_t i = 0; i < count; i++) TRY(put(w, &layer[i], part[i], err));
    return MR_OK;
}

enum mr_status gpu_observed_write(const char *path, const struct gpu_provenance *from,
                                  const struct gpu_layer_rows *layer, size_t count,
                                  struct mr_error *err)
{
    struct mr_writer *w;
    struct part(*part)[PARTS] = calloc(count, sizeof *part);
    if (!part) return mr_fail(err, MR_ERR_MEMORY, "out of memory");
    enum mr_status status = mr_writer_new(path, &w, err);
    if (!status) {
        status = fill(w, from, layer, count, part, err);
        if (status) mr_writer_abandon(w);
        else status = mr_writer_finish(w, err);
    }
    free(part);
    return status;
}
