#include "verify_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/case_layer.h"
#include "../ref/io/observed.h"
#include "common.h"

struct state {
    const struct verify_request *request;
    struct mr_verify_report *report;
    const struct mr_router *router;
    struct mr_safetensors **file; /* [sources], none if the case's own capture is judged */
    struct mr_observed *observed; /* [sources] of the layer at hand */
    bool *seen;                   /* [sources] anything found so far */
    struct mr_verify_options options;
    struct mr_verify_result result; /* of the layer at hand */
    const char **line;            /* [sources] what each declares; NULL: nothing */
    struct mr_error_model *model; /* [sources] */
    struct mr_error_model *power;
    size_t order;
    struct mr_error err;
};

static void check_call(struct state *s, enum mr_status status)
{
    if (status) die_of(status, &s->err);
}

/* What source i declares, NULL for nothing, and who says so. A file that says of itself what made it
 * is right about that; the case's line is about the case's own capture. */
static const char *line_of(const struct state *s, size_t i, const char **said)
{
    const struct verify_request *q = s->request;
    const char *own = q->observed_count ? mr_safetensors_metadata(s->file[i], "arithmetic") : NULL;
    *said = "";
    if (q->arith || !own) return q->arith ? q->arith : q->case_arith;
    *said = ", as the file says";
    return *own ? own : NULL;
}

/* The report names what made the radius. */
static char *describe(const char *line, const char *said, bool given, bool sum)
{
    char *text = need(MR_RADIUS_TEXT, 1);
    mr_radius_text(line, said, given, sum, text);
    return text;
}

static void set_models(struct state *s, bool given)
{
    const struct verify_request *q = s->request;
    size_t n = s->report->source_count;
    const char **text = need(n, sizeof *text);
    bool same = true;
    s->report->source_arith = text;
    s->line = need(n, sizeof *s->line);
    s->model = need(n, sizeof *s->model);
    for (size_t i = 0; i < n; i++) {
        struct mr_arith declared = {0};
        const char *said;
        s->line[i] = line_of(s, i, &said);
        enum mr_status status = s->line[i] ? mr_arith_parse(s->line[i], &declared, &s->err) : MR_OK;
        if (status && *said)
            die(3, "%s: its metadata key \"arithmetic\": %s (--arith A would stand in its place)",
                q->observed[i], s->err.text);
        check_call(s, status);
        s->model[i] = mr_error_model(s->line[i] ? &declared : NULL);
        text[i] = describe(s->line[i], said, given, declared.sum.leaf != MR_LEAF_EXACT);
        same &= !strcmp(text[i], text[0]);
    }
    s->options = (struct mr_verify_options){.threads = q->threads,
                                            .without_blas = q->without_blas,
                                            .models = s->model,
                                            .ordered = q->ordered};
    s->report->arith = same ? text[0] : "of each file its own";
}

/* Arithmetics whose power is told; those of the bias only if there is one. */
static void set_power(struct state *s)
{
    static const char *const usual[] = {"fp32", "bf16-logits", "fp16-logits", "bf16-scores",
                                        "bf16-bias", "bf16-logits+bf16-bias"};
    enum { USUAL = sizeof usual / sizeof *usual };
    struct mr_verify_report *r = s->report;
    if (!s->request->power) return;
    const char **lines = need(USUAL + r->source_count, sizeof *lines);
    size_t n = 0;
    for (size_t i = 0; i < USUAL; i++)
        if (!strstr(usual[i], "bias") || s->router->bias) lines[n++] = usual[i];
    for (size_t i = 0; i < r->source_count; i++) {
        bool listed = !s->line[i];
        for (size_t j = 0; j < n && !listed; j++) listed = !strcmp(lines[j], s->line[i]);
        if (!listed) lines[n++] = s->line[i];
    }
    s->power = need(n, sizeof *s->power);
    r->power = need(n, sizeof *r->power);
    for (size_t i = 0; i < n; i++) {
        struct mr_arith a;
        check_call(s, mr_arith_parse(lines[i], &a, &s->err));
        s->power[i] = mr_error_model(&a);
        r->power[i].arith = strdup(lines[i]);
        if (!r->power[i].arith) die(4, "out of memory");
    }
    free(lines);
    r->power_count = s->options.power_count = n;
    s->options.power = s->power;
    s->result.power = need(n, sizeof *s->result.power);
}

static void open_sources(struct state *s)
{
    const struct verify_request *q = s->request;
    struct mr_verify_report *r = s->report;
    r->source_count = q->observed_count ? q->observed_count : 1;
    const char **names = need(r->source_count, sizeof *names);
    s->file = need(r->source_count, sizeof *s->file);
    s->observed = need(r->source_count, sizeof *s->observed);
    s->seen = need(r->source_count, sizeof *s->seen);
    names[0] = mr_case_name(q->c);
    for (size_t i = 0; i < q->observed_count; i++) {
        check_call(s, mr_safetensors_open(q->observed[i], &s->file[i], &s->err));
        names[i] = q->observed[i];
    }
    r->source = names;
}

/* What there is to judge in this layer; false if nothing. */
static bool observe(struct state *s, const struct mr_case_layer *l, size_t tokens)
{
    const struct verify_request *q = s->request;
    bool any = false;
    for (size_t i = 0; i < s->report->source_count; i++) {
        bool found;
        check_call(s, q->observed_count
                          ? mr_observed_read(s->file[i], l->layer, l->phase, s->router, tokens,
                                             q->non_padded, &s->observed[i], &found, &s->err)
                          : mr_observed_of_case(q->c, l, tokens, q->non_padded, &s->observed[i],
                                                &found, &s->err));
        s->seen[i] |= found;
        any |= found;
    }
    return any;
}

static struct mr_verify_experts *experts_of(struct mr_verify_report *r, int layer)
{
    for (size_t i = 0; i < r->layer_count; i++)
        if (r->layer[i].layer == layer) return &r->layer[i];
    struct mr_verify_experts *x = &r->layer[r->layer_count++];
    *x = (struct mr_verify_experts){layer, need((size_t)r->experts, sizeof *x->gained),
                                    need((size_t)r->experts, sizeof *x->lost)};
    return x;
}

static void keep(struct state *s, const struct mr_case_layer *l)
{
    struct mr_verify_report *r = s->report;
    for (size_t i = 0; i < r->source_count; i++) {
        if (!s->observed[i].ids.data && !s->observed[i].logits.data) continue;
        struct mr_verify_row *row = &r->row[r->row_count++];
        *row = (struct mr_verify_row){l->layer, l->phase, i, s->result.tally[i]};
        mr_tally_add(&r->total, &row->tally);
    }
    struct mr_verify_experts *x = experts_of(r, l->layer);
    for (int e = 0; e < r->experts; e++) {
        x->gained[e] += s->result.gained[e];
        x->lost[e] += s->result.lost[e];
    }
}

static void run_layer(struct state *s, int number, const char *phase)
{
    const struct verify_request *q = s->request;
    struct mr_verify_report *r = s->report;
    struct mr_case_layer l;
    check_call(s, mr_case_get(q->c, number, phase, &l, &s->err));
    struct mr_case_input input;
    check_call(s, mr_case_input_make(q->c, &l, q->from_logits, &input, &s->err));
    const struct mr_layer *layer = &input.layer;
    if (observe(s, &l, layer->logits.data ? layer->logits.rows : layer->hidden.rows)) {
        memset(s->result.tally, 0, r->source_count * sizeof *s->result.tally);
        memset(s->result.gained, 0, (size_t)r->experts * sizeof *s->result.gained);
        memset(s->result.lost, 0, (size_t)r->experts * sizeof *s->result.lost);
        s->options.order = s->order++;
        s->options.layer = number;
        s->options.phase = phase;
        enum mr_status status = mr_verify_layer(layer, &s->options, s->observed, r->source_count,
                                                &s->result, &r->worst, &s->err);
        if (status)
            die(mr_status_exit(status), "layer %d, phase %s: %s", number, phase, s->err.text);
        keep(s, &l);
    }
    for (size_t i = 0; i < r->source_count; i++) mr_observed_free(&s->observed[i]);
    mr_case_input_free(&input);
    mr_case_release(q->c, number, phase);
}

static void check_asked(const struct verify_request *q)
{
    bool phase_known = !q->phase;
    for (size_t p = 0; p < mr_case_phase_count(q->c); p++)
        if (q->phase && !strcmp(q->phase, mr_case_phase(q->c, p))) phase_known = true;
    if (!phase_known) die(3, "%s: no phase '%s'", mr_case_name(q->c), q->phase);
    need_layers(q->c, q->layers);
}

static void check_seen(const struct state *s)
{
    const struct mr_verify_report *r = s->report;
    for (size_t i = 0; i < r->source_count; i++)
        if (!s->seen[i])
            die(3, "%s: nothing to judge: neither topk_ids nor gate.logits of a layer and phase "
                "%s%s", r->source[i], s->request->observed_count ? "of " : "asked for",
                s->request->observed_count ? mr_case_name(s->request->c) : "");
}

void verify_all(const struct verify_request *q, struct mr_verify_report *r)
{
    struct state s = {.request = q, .report = r, .router = mr_case_router(q->c)};
    size_t phases = mr_case_phase_count(q->c), layers = mr_case_layer_count(q->c), experts;
    check_asked(q);
    *r = (struct mr_verify_report){.case_name = mr_case_name(q->c), .profile = q->profile,
                                   .strict = q->strict, .experts = s.router->experts,
                                   .top_k = s.router->top_k};
    experts = (size_t)r->experts;
    open_sources(&s);
    set_models(&s, q->from_logits || mr_case_from_logits(q->c));
    set_power(&s);
    r->row = need(phases * layers * r->source_count, sizeof *r->row);
    r->layer = need(layers, sizeof *r->layer);
    check_call(&s, mr_findings_new(MR_WORST_LISTED, r->top_k, &r->worst));
    s.result.tally = need(r->source_count, sizeof *s.result.tally);
    s.result.gained = need(experts, sizeof *s.result.gained);
    s.result.lost = need(experts, sizeof *s.result.lost);
    for (size_t p = 0; p < phases; p++) {
        const char *phase = mr_case_phase(q->c, p);
        if (q->phase && strcmp(phase, q->phase)) continue;
        for (size_t i = 0; i < layers; i++) {
            int layer = mr_case_layer_number(q->c, i);
            if (!layer_listed(q->layers, layer) || !mr_case_has(q->c, layer, phase)) continue;
            if (q->progress) fprintf(stderr, "\rlayer %d, %s   ", layer, phase);
            run_layer(&s, layer, phase);
        }
    }
    if (q->progress) fputs("\r\033[K", stderr);
    check_seen(&s);
    r->route = s.result.route;
    r->power_tokens = s.result.power_tokens;
    for (size_t i = 0; i < r->power_count; i++) r->power[i].wrong = s.result.power[i];
    for (size_t i = 0; i < r->source_count; i++) mr_safetensors_close(s.file[i]);
    free(s.file);
    free(s.observed);
    free(s.seen);
    free(s.line);
    free(s.model);
    free(s.power);
    free(s.result.tally);
    free(s.result.gained);
    free(s.result.lost);
    free(s.result.power);
}

void verify_free(struct mr_verify_report *r)
{
    for (size_t i = 0; i < r->layer_count; i++) {
        free(r->layer[i].gained);
        free(r->layer[i].lost);
    }
    mr_findings_free(&r->worst);
    free(r->layer);
    free(r->row);
    for (size_t i = 0; i < r->power_count; i++) free((void *)r->power[i].arith);
    for (size_t i = 0; i < r->source_count; i++) free((void *)r->source_arith[i]);
    free((void *)r->source_arith);
    free(r->power);
    free((void *)r->source);
}
