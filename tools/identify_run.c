#include "identify_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/moeref.h"
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

static void run_layer(const struct identify_request *q, int layer, const char *phase,
                      struct identify_report *out)
{
    struct mr_case_layer l;
    struct mr_error err = {{0}};
    enum mr_status status = mr_case_get(q->c, layer, phase, &l, &err);
    if (status) die_of(status, &err);
    if (l.logits.data) {
        struct recording *r = &out->recording[out->count++];
        struct mr_matrix observed = matrix_of(&l.logits);
        float *bias = gate_bias_of(&l);
        struct mr_gemm gemm = {
            .hidden = matrix_of(&l.hidden), .gate = matrix_of(&l.gate), .gate_bias = bias};
        *r = (struct recording){.layer = layer, .phase = phase, .rows = observed.rows,
                                .experts = observed.cols, .terms = gemm.hidden.cols};
        if (mr_case_layer_count(q->c) > 1)
            snprintf(r->name, sizeof r->name, "%.70s layer %d", phase, layer);
        else
            snprintf(r->name, sizeof r->name, "%.90s", phase);
        struct mr_identify_options options = {
            .threads = q->threads, .progress = q->progress ? show : NULL, .context = r};
        status = mr_identify(&gemm, &observed, &options, &r->found, &err);
        if (status)
            die(mr_status_exit(status), "layer %d, phase %s: %s", layer, phase, err.text);
        out->unidentified += !recording_identified(r);
        free(bias);
    }
    mr_case_release(q->c, layer, phase);
}

static void check_asked(const struct identify_request *q)
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

void identify_all(const struct identify_request *q, struct identify_report *out)
{
    size_t phases = mr_case_phase_count(q->c), layers = mr_case_layer_count(q->c);
    check_asked(q);
    *out = (struct identify_report){.case_name = mr_case_name(q->c)};
    out->recording = need(phases * layers, sizeof *out->recording);
    for (size_t p = 0; p < phases; p++) {
        const char *phase = mr_case_phase(q->c, p);
        if (q->phase && strcmp(phase, q->phase)) continue;
        for (size_t i = 0; i < layers; i++) {
            int layer = mr_case_layer_number(q->c, i);
            if (layer_listed(q->layers, layer) && mr_case_has(q->c, layer, phase))
                run_layer(q, layer, phase, out);
        }
    }
    if (q->progress) fputs("\r\033[K", stderr);
    if (!out->count)
        die(3, "%s: nothing to identify: no observed logits of a layer and phase asked for",
            out->case_name);
}

void identify_free(struct identify_report *report)
{
    for (size_t i = 0; i < report->count; i++) mr_identified_free(&report->recording[i].found);
    free(report->recording);
}

static json_t *recording_json(const struct recording *r)
{
    const struct mr_identified *f = &r->found;
    json_t *lines = json_array(), *sums = json_array();
    for (size_t i = 0; i < f->lines; i++) {
        json_array_append_new(lines, json_string(f->line[i].text));
        if (!i || f->line[i].sum != f->line[i - 1].sum)
            json_array_append_new(sums, json_string(f->line[i].text));
    }
    bool named = recording_identified(r);
    return json_pack("{s:s, s:s, s:i, s:I, s:I, s:I, s:b, s:b, s:b, s:o, s:o, s:I, s:I, s:I, s:I, "
                     "s:s?}",
                     "name", r->name, "phase", r->phase, "layer", r->layer, "rows",
                     (json_int_t)r->rows, "experts", (json_int_t)r->experts, "terms",
                     (json_int_t)r->terms, "identified", named, "everything", f->everything,
                     "unverified", f->unverified, "lines", lines, "sums", sums, "checked",
                     (json_int_t)f->checked, "not_finite", (json_int_t)f->not_finite, "mismatches",
                     (json_int_t)f->mismatches, "searched", (json_int_t)f->searched, "nearest",
                     *f->nearest ? f->nearest : NULL);
}

json_t *identify_json(const struct identify_report *report)
{
    json_t *recordings = json_array();
    for (size_t i = 0; i < report->count; i++)
        json_array_append_new(recordings, recording_json(&report->recording[i]));
    return json_pack("{s:{s:s}, s:s, s:s?, s:o, s:I}", "moeref", "version", MR_VERSION, "command",
                     "identify", "case", report->case_name, "recordings", recordings,
                     "unidentified", (json_int_t)report->unidentified);
}
