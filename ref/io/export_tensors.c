/* The tensors of an exported case, as they are stored; logits that are asked for are made. */
#include <stdlib.h>
#include <string.h>

#include "../route/rounded_logits.h"
#include "case_layer.h"
#include "case_private.h"
#include "export_private.h"

/* One layer of one phase: what the case brings, and where it goes. */
struct part {
    struct mr_case_layer l;
    size_t index[TENSOR_COUNT];
    bool written[TENSOR_COUNT];
};

struct tensors {
    const struct mr_export_job *job;
    struct mr_writer *w;
    struct part *part;
    size_t count;
};

static const struct mr_tensor *tensor_of(const struct mr_case_layer *l, enum case_tensor which)
{
    switch (which) {
    case TENSOR_HIDDEN: return &l->hidden;
    case TENSOR_GATE: return &l->gate;
    case TENSOR_BIAS: return &l->bias;
    case TENSOR_GATE_BIAS: return &l->gate_bias;
    case TENSOR_LOGITS: return &l->logits;
    case TENSOR_IDS: return &l->topk_ids;
    case TENSOR_WEIGHTS: return &l->topk_weights;
    default: return NULL;
    }
}

/* Whether this tensor goes into the file as the case has it. */
static bool copied(const struct mr_export_job *job, enum case_tensor which)
{
    switch (which) {
    case TENSOR_HIDDEN:
    case TENSOR_GATE:
    case TENSOR_GATE_BIAS: return !job->logits;
    case TENSOR_BIAS: return true;
    case TENSOR_LOGITS: return !job->how->logits;
    case TENSOR_IDS:
    case TENSOR_WEIGHTS: return job->observed;
    default: return false;
    }
}

/* A tensor of the checkpoint is written once, with the layer's first phase. *yes: it has been. */
static enum mr_status repeated(struct tensors *t, enum case_tensor which,
                               const struct mr_case_layer *l, bool *yes, struct mr_error *err)
{
    const struct mr_tensor *b = tensor_of(l, which);
    *yes = false;
    for (size_t i = 0; i < t->count && !*yes && mr_case_in_checkpoint(which); i++) {
        const struct mr_tensor *a = tensor_of(&t->part[i].l, which);
        if (t->part[i].l.layer != l->layer) continue;
        *yes = true;
        if (a->dtype != b->dtype || a->bytes != b->bytes || memcmp(a->data, b->data, b->bytes))
            return mr_fail(err, MR_ERR_UNSUPPORTED, "%s: layer %d: its %s in phase %s is not that "
                           "in phase %s, and an exported case has one", t->job->c->path, l->layer,
                           mr_case_tensor_keys[which], l->phase, t->part[i].l.phase);
    }
    return MR_OK;
}

static enum mr_status declare(struct tensors *t, struct part *p, enum case_tensor which,
                              enum mr_dtype dtype, int ndim, const uint64_t *shape,
                              struct mr_error *err)
{
    /* The default names of a case without config, as who reads the export has them. */
    struct mr_case reader = {.path = t->job->c->path};
    char name[512];
    mr_case_default_names(&reader);
    TRY(mr_case_expand(&reader, reader.names[which], p->l.layer, p->l.phase, name, err));
    p->written[which] = true;
    return mr_writer_declare(t->w, name, dtype, ndim, shape, &p->index[which], err);
}

static enum mr_status add_part(struct tensors *t, int layer, const char *phase,
                               struct mr_error *err)
{
    struct part *p = &t->part[t->count];
    *p = (struct part){0};
    TRY(mr_case_get(t->job->c, layer, phase, &p->l, err));
    for (int i = 0; i < TENSOR_COUNT; i++) {
        enum case_tensor which = (enum case_tensor)i;
        const struct mr_tensor *from = tensor_of(&p->l, which);
        bool again = false;
        if (!from || !from->data || !copied(t->job, which)) continue;
        TRY(repeated(t, which, &p->l, &again, err));
        if (!again) TRY(declare(t, p, which, from->dtype, from->ndim, from->shape, err));
    }
    if (t->job->how->logits) {
        bool given = mr_case_from_logits(t->job->c);
        uint64_t shape[2] = {(given ? p->l.logits : p->l.hidden).shape[0],
                             (uint64_t)mr_case_router(t->job->c)->experts};
        TRY(declare(t, p, TENSOR_LOGITS, t->job->how->type, 2, shape, err));
    }
    t->count++;
    return MR_OK;
}

static enum mr_status put_logits(struct tensors *t, const struct part *p, struct mr_error *err)
{
    struct mr_case_input input;
    void *made;
    TRY(mr_case_input_make(t->job->c, &p->l, false, &input, err));
    enum mr_status status = mr_rounded_logits(&input.layer, t->job->how->type, &made, err);
    size_t rows = input.layer.logits.data ? input.layer.logits.rows : input.layer.hidden.rows;
    uint64_t bytes = (uint64_t)rows * (uint64_t)input.layer.router->experts *
                     (mr_dtype_bits(t->job->how->type) / 8);
    if (!status) status = mr_writer_put(t->w, p->index[TENSOR_LOGITS], 0, made, bytes, err);
    free(made);
    mr_case_input_free(&input);
    return status;
}

static enum mr_status put_part(struct tensors *t, const struct part *p, struct mr_error *err)
{
    for (int i = 0; i < TENSOR_COUNT; i++) {
        if (!p->written[i]) continue;
        const struct mr_tensor *from = tensor_of(&p->l, (enum case_tensor)i);
        if (i == TENSOR_LOGITS && t->job->how->logits) TRY(put_logits(t, p, err));
        else TRY(mr_writer_put(t->w, p->index[i], 0, from->data, from->bytes, err));
    }
    return MR_OK;
}

static enum mr_status fill(struct tensors *t, struct mr_error *err)
{
    const struct mr_case *c = t->job->c;
    TRY(mr_writer_metadata(t->w, "generator", "moeref export", err));
    TRY(mr_writer_metadata(t->w, "case", t->job->name, err));
    for (size_t p = 0; p < c->phase_count; p++)
        for (size_t i = 0; i < c->layer_count; i++)
            if (mr_export_has(t->job, i, c->phases[p]))
                TRY(add_part(t, c->layers[i], c->phases[p], err));
    TRY(mr_writer_begin(t->w, err));
    for (size_t i = 0; i < t->count; i++) TRY(put_part(t, &t->part[i], err));
    return MR_OK;
}

enum mr_status mr_export_tensors(const struct mr_export_job *job, const char *path,
                                 struct mr_error *err)
{
    struct tensors t = {.job = job};
    TRY(mr_writer_new(path, &t.w, err));
    t.part = calloc(job->c->phase_count * job->c->layer_count, sizeof *t.part);
    enum mr_status status = t.part ? fill(&t, err)
                                   : mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", path);
    free(t.part);
    if (!status) return mr_writer_finish(t.w, err);
    mr_writer_abandon(t.w);
    return status;
}
