#include "identify_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/num/num.h"
#include "common.h"

bool recording_identified(const struct recording *r)
{
    return r->found.lines || r->found.everything;
}

static struct mr_matrix matrix_of(const struct mr_tensor *t)
{
    return (struct mr_matrix){t->data, t->dtype, (size_t)t->shape[0], (size_t)t->shape[1]};
}

static float *gate_bias_of(const struct mr_case_layer *l)
{
    if (!l->gate_bias.data) return NULL;
    float *bias = need((size_t)l->gate_bias.shape[0], sizeof *bias);
    mr_widen_f32(l->gate_bias.data, l->gate_bias.dtype, (size_t)l->gate_bias.shape[0], bias);
    return bias;
}

static void show(void *context, int done)
{
    const struct recording *r = context;
    fprintf(stderr, "\r\033[K%s: %d %%", r->name, done / 10);
}

struct run {
    const struct identify_request *request;
    void (*each)(void *context, const struct recording *r);
    void *context;
    struct identify_report *report;
};

static void run_layer(struct run *run, int layer, const char *phase)
{
    const struct identify_request *q = run->request;
    struct mr_case_layer l;
    struct mr_error err = {{0}};
    enum mr_status status = mr_case_get(q->c, layer, phase, &l, &err);
    if (status) die_of(status, &err);
    if (l.logits.data) {
        struct mr_matrix observed = matrix_of(&l.logits);
        float *bias = gate_bias_of(&l);
        struct mr_gemm gemm = {
            .hidden = matrix_of(&l.hidden), .gate = matrix_of(&l.gate), .gate_bias = bias};
        struct recording r = {.layer = layer, .phase = phase, .rows = observed.rows,
                              .experts = observed.cols, .terms = gemm.hidden.cols};
        if (mr_case_layer_count(q->c) > 1)
            snprintf(r.name, sizeof r.name, "%.70s layer %d", phase, layer);
        else
            snprintf(r.name, sizeof r.name, "%.90s", phase);
        struct mr_identify_options options = {
            .threads = q->threads, .progress = q->progress ? show : NULL, .context = &r};
        status = mr_identify(&gemm, &observed, &options, &r.found, &err);
        if (q->progress) fputs("\r\033[K", stderr);
        if (status)
            die(mr_status_exit(status), "layer %d, phase %s: %s", layer, phase, err.text);
        run->report->count++;
        run->report->unidentified += !recording_identified(&r);
        run->report->unverified |= r.found.unverified;
        if (r.found.searched > run->report->searched) run->report->searched = r.found.searched;
        run->each(run->context, &r);
        mr_identified_free(&r.found);
        free(bias);
    }
    mr_case_release(q->c, layer, phase);
}

void identify_check(const struct identify_request *q)
{
    bool known = !q->phase;
    for (size_t p = 0; p < mr_case_phase_count(q->c); p++)
        if (q->phase && !strcmp(q->phase, mr_case_phase(q->c, p))) known = true;
    if (!known) die(3, "%s: no phase '%s'", mr_case_name(q->c), q->phase);
    need_layers(q->c, q->layers);
    if (mr_case_from_logits(q->c))
        die(3, "identify: %s: its input is logits: nothing is there that made them",
            mr_case_name(q->c));
}

void identify_all(const struct identify_request *q,
                  void (*each)(void *context, const struct recording *r), void *context,
                  struct identify_report *out)
{
    size_t phases = mr_case_phase_count(q->c), layers = mr_case_layer_count(q->c);
    struct run run = {q, each, context, out};
    *out = (struct identify_report){.case_name = mr_case_name(q->c)};
    for (size_t p = 0; p < phases; p++) {
        const char *phase = mr_case_phase(q->c, p);
        if (q->phase && strcmp(phase, q->phase)) continue;
        for (size_t i = 0; i < layers; i++) {
            int layer = mr_case_layer_number(q->c, i);
            if (layer_listed(q->layers, layer) && mr_case_has(q->c, layer, phase))
                run_layer(&run, layer, phase);
        }
    }
    if (!out->count)
        die(3, "%s: nothing to identify: no observed logits of a layer and phase asked for",
            out->case_name);
}
