#include "route_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../ref/io/case_layer.h"
#include "../ref/io/spill.h"
#include "common.h"

/* One layer of one phase to be routed. */
struct job {
    int layer;
    const char *phase;
    size_t tokens;
    size_t index[5]; /* tensors in the tokens file */
};

struct state {
    const struct route_request *request;
    const struct mr_router *router;
    struct route_outcome *out;
    struct mr_writer *writer;
    struct mr_spill *gaps, *all_gaps;
    uint64_t all_gaps_before;
    size_t ties_before, tie_total_before;
    struct job *job; /* the one running */
    size_t job_count;
    struct job *jobs;
    struct mr_flips *flips, *total_flips;
    bool show;
    size_t shown_before;
    enum mr_status status;
    struct mr_error err;
};

/* Tensors of a tokens file, in the order declared. */
static const struct {
    const char *name;
    enum mr_dtype dtype;
    bool per_slot;
} outputs[5] = {{"topk_ids", MR_I32, true},
                {"topk_weights", MR_F64, true},
                {"gap", MR_F64, false},
                {"gap_radius", MR_F64, false},
                {"certificate", MR_U8, false}};

static _Noreturn void fail(struct state *s, enum mr_status status)
{
    if (s->writer) mr_writer_abandon(s->writer);
    die_of(status, &s->err);
}

static void check_call(struct state *s, enum mr_status status)
{
    if (status) fail(s, status);
}

static enum mr_status put(struct state *s, int output, size_t first, size_t count,
                          const void *data, size_t unit, struct mr_error *err)
{
    return mr_writer_put(s->writer, s->job->index[output], first * unit, data, count * unit, err);
}

static enum mr_status write_rows(struct state *s, const struct mr_rows *r, struct mr_error *err)
{
    size_t k = (size_t)s->router->top_k;
    enum mr_status status = put(s, 0, r->first, r->rows, r->ids, k * sizeof *r->ids, err);
    if (!status) status = put(s, 1, r->first, r->rows, r->weights, k * sizeof *r->weights, err);
    if (!status) status = put(s, 2, r->first, r->rows, r->gap, sizeof *r->gap, err);
    if (!status) status = put(s, 3, r->first, r->rows, r->gap_radius, sizeof *r->gap_radius, err);
    if (!status) status = put(s, 4, r->first, r->rows, r->certificate, 1, err);
    return status;
}

/* The shown token of this layer, made on first sight. */
static struct shown_token *shown_of(struct state *s, size_t token)
{
    for (size_t i = s->shown_before; i < s->out->shown_count; i++)
        if (s->out->shown[i].token == token) return &s->out->shown[i];
    struct shown_token *t = &s->out->shown[s->out->shown_count++];
    size_t k = (size_t)s->router->top_k;
    *t = (struct shown_token){.layer = s->job->layer, .phase = s->job->phase, .token = token};
    t->ids = need(k, sizeof *t->ids);
    t->weights = need(k, sizeof *t->weights);
    t->chosen = need(k * s->request->arith_count, sizeof *t->chosen);
    return t;
}

static void show_rows(struct state *s, const struct mr_rows *r)
{
    size_t k = (size_t)s->router->top_k;
    for (size_t i = 0; i < r->rows; i++) {
        struct shown_token *t = shown_of(s, r->first + i);
        memcpy(t->ids, r->ids + i * k, k * sizeof *t->ids);
        memcpy(t->weights, r->weights + i * k, k * sizeof *t->weights);
        t->gap = r->gap[i];
        t->certificate = (enum mr_certificate)r->certificate[i];
    }
}

static enum mr_status on_rows(void *context, const struct mr_rows *r, struct mr_error *err)
{
    struct state *s = context;
    if (s->show) show_rows(s, r);
    for (size_t i = 0; i < r->rows; i++) {
        if (r->certificate[i] == MR_CERT_NONFINITE) continue;
        enum mr_status status = mr_spill_add(s->gaps, &r->gap[i], 1, err);
        if (!status) status = mr_spill_add(s->all_gaps, &r->gap[i], 1, err);
        if (status) return status;
    }
    return s->writer ? write_rows(s, r, err) : MR_OK;
}

static enum mr_status on_emulated(void *context, size_t token, size_t arith, const int *chosen,
                                  struct mr_error *err)
{
    (void)err;
    struct state *s = context;
    size_t k = (size_t)s->router->top_k;
    memcpy(shown_of(s, token)->chosen + arith * k, chosen, k * sizeof *chosen);
    return MR_OK;
}

static enum mr_status on_tie(void *context, const struct mr_tie *tie, struct mr_error *err)
{
    struct state *s = context;
    struct mr_report *r = &s->out->report;
    r->tie_total++;
    if (r->tie_count == MR_TIES_LISTED) return MR_OK;
    int *experts = malloc((size_t)tie->count * sizeof *experts);
    if (!experts) return mr_fail(err, MR_ERR_MEMORY, "no memory for ties");
    memcpy(experts, tie->experts, (size_t)tie->count * sizeof *experts);
    r->tie[r->tie_count++] = (struct mr_report_tie){s->job->layer, s->job->phase, tie->token,
                                                    tie->slots,    tie->count,    experts};
    return MR_OK;
}

static void on_restart(void *context)
{
    struct state *s = context;
    struct mr_report *r = &s->out->report;
    check_call(s, mr_spill_truncate(s->gaps, 0, &s->err));
    check_call(s, mr_spill_truncate(s->all_gaps, s->all_gaps_before, &s->err));
    while (r->tie_count > s->ties_before) free(r->tie[--r->tie_count].experts);
    r->tie_total = s->tie_total_before;
    s->out->shown_count = s->shown_before;
}

static int by_token(const void *a, const void *b)
{
    const struct mr_report_tie *x = a, *y = b;
    return (x->token > y->token) - (x->token < y->token);
}

static void quantiles(struct state *s, struct mr_spill *spill, double *out)
{
    check_call(s, mr_spill_quantiles(spill, mr_gap_quantile, MR_GAP_COUNT, out, &s->err));
}

static void summarise(struct mr_report_row *row, const struct mr_flips *flips, size_t count)
{
    row->arith = need(count, sizeof *row->arith);
    for (size_t i = 0; i < count; i++)
        row->arith[i] = (struct mr_report_arith){
            flips[i].tokens, flips[i].flips, flips[i].weight_moved / (double)flips[i].tokens,
            mr_histogram_quantile(&flips[i].key_error, 0.5),
            mr_histogram_quantile(&flips[i].key_error, 0.99)};
}

static void add_total(struct state *s, const struct mr_route_result *r)
{
    struct mr_route_result *t = &s->out->report.total.result;
    t->tokens += r->tokens;
    t->exact_dots += r->exact_dots;
    t->blas_alarms += r->blas_alarms;
    t->blas_wrong += r->blas_wrong;
    for (int c = 0; c < MR_CERT_COUNT; c++) t->certified[c] += r->certified[c];
    for (size_t i = 0; i < s->request->arith_count; i++) {
        s->total_flips[i].tokens += s->flips[i].tokens;
        s->total_flips[i].flips += s->flips[i].flips;
        s->total_flips[i].weight_moved += s->flips[i].weight_moved;
        mr_histogram_merge(&s->total_flips[i].key_error, &s->flips[i].key_error);
    }
}

static void run_job(struct state *s, struct job *job)
{
    const struct route_request *q = s->request;
    struct mr_report *report = &s->out->report;
    struct mr_case_layer l;
    s->job = job;
    check_call(s, mr_case_get(q->c, job->layer, job->phase, &l, &s->err));
    struct mr_case_input input;
    check_call(s, mr_case_input_make(q->c, &l, q->from_logits, &input, &s->err));
    memset(s->flips, 0, q->arith_count * sizeof *s->flips);
    check_call(s, mr_spill_truncate(s->gaps, 0, &s->err));
    s->all_gaps_before = mr_spill_count(s->all_gaps);
    s->ties_before = report->tie_count;
    s->tie_total_before = report->tie_total;
    s->shown_before = s->out->shown_count;
    struct mr_route_options options = {.threads = q->threads,
                                       .exact_weights = q->exact_weights,
                                       .without_blas = q->without_blas,
                                       .arith = q->arith,
                                       .arith_count = q->arith_count,
                                       .rows = on_rows,
                                       .tie = on_tie,
                                       .emulated = s->show ? on_emulated : NULL,
                                       .restart = on_restart,
                                       .context = s};
    struct mr_report_row *row = &report->row[report->row_count++];
    *row = (struct mr_report_row){.layer = job->layer,
                                  .phase = job->phase,
                                  .experts = s->router->experts,
                                  .top_k = s->router->top_k};
    enum mr_status status = mr_route_layer(&input.layer, &options, &row->result, s->flips,
                                           &s->err);
    mr_case_input_free(&input);
    if (status) {
        char text[sizeof s->err.text];
        snprintf(text, sizeof text, "%s", s->err.text);
        mr_fail(&s->err, status, "layer %d, phase %s: %.600s", job->layer, job->phase, text);
        fail(s, status);
    }
    qsort(report->tie + s->ties_before, report->tie_count - s->ties_before, sizeof *report->tie,
          by_token);
    quantiles(s, s->gaps, row->gap);
    summarise(row, s->flips, q->arith_count);
    add_total(s, &row->result);
    mr_case_release(q->c, job->layer, job->phase);
}

/* Lists the layers wanted and declares their outputs. */
static void plan(struct state *s)
{
    const struct route_request *q = s->request;
    size_t phases = mr_case_phase_count(q->c), layers = mr_case_layer_count(q->c), tokens = 0;
    s->jobs = need(phases * layers, sizeof *s->jobs);
    bool phase_known = !q->phase;
    for (size_t p = 0; p < phases; p++) {
        const char *phase = mr_case_phase(q->c, p);
        if (q->phase && strcmp(phase, q->phase)) continue;
        phase_known = true;
        for (size_t i = 0; i < layers; i++) {
            int layer = mr_case_layer_number(q->c, i);
            struct mr_case_layer l;
            if (!layer_listed(q->layers, layer)) continue;
            if (!mr_case_has(q->c, layer, phase)) continue;
            check_call(s, mr_case_get(q->c, layer, phase, &l, &s->err));
            bool given = q->from_logits || mr_case_from_logits(q->c);
            if (given && !l.logits.data)
                die(3, "%s: layer %d, phase %s: no logits to start from", mr_case_name(q->c), layer,
                    phase);
            size_t rows = (size_t)(given ? l.logits.shape[0] : l.hidden.shape[0]);
            s->jobs[s->job_count++] = (struct job){.layer = layer, .phase = phase, .tokens = rows};
            tokens += rows;
            mr_case_release(q->c, layer, phase);
        }
    }
    if (!phase_known) die(3, "%s: no phase '%s'", mr_case_name(q->c), q->phase);
    if (!s->job_count)
        die(3, "%s: no layer%s%s to route", mr_case_name(q->c), q->layers ? " of --layers " : "",
            q->layers ? q->layers : "");
    s->show = tokens <= SHOWN_TOKENS;
}

static void open_tokens(struct state *s)
{
    const struct route_request *q = s->request;
    check_call(s, mr_writer_new(q->tokens, &s->writer, &s->err));
    check_call(s, mr_writer_metadata(s->writer, "moeref_case", mr_case_name(q->c), &s->err));
    for (size_t j = 0; j < s->job_count; j++) {
        for (int o = 0; o < 5; o++) {
            char name[256];
            uint64_t shape[2] = {s->jobs[j].tokens, (uint64_t)s->router->top_k};
            snprintf(name, sizeof name, "%s.model.layers.%d.mlp.%s", s->jobs[j].phase,
                     s->jobs[j].layer, outputs[o].name);
            check_call(s, mr_writer_declare(s->writer, name, outputs[o].dtype,
                                            outputs[o].per_slot ? 2 : 1, shape,
                                            &s->jobs[j].index[o], &s->err));
        }
    }
    check_call(s, mr_writer_begin(s->writer, &s->err));
}

void route_all(const struct route_request *q, struct route_outcome *out)
{
    struct state s = {.request = q, .router = mr_case_router(q->c), .out = out};
    struct mr_report *r = &out->report;
    need_layers(q->c, q->layers);
    plan(&s);
    s.flips = need(q->arith_count, sizeof *s.flips);
    s.total_flips = need(q->arith_count, sizeof *s.total_flips);
    r->case_name = mr_case_name(q->c);
    r->arith_count = q->arith_count;
    r->arith_name = need(q->arith_count, sizeof *r->arith_name);
    for (size_t i = 0; i < q->arith_count; i++)
        snprintf(r->arith_name[i], sizeof r->arith_name[i], "%s", q->arith_line[i]);
    r->row = need(s.job_count, sizeof *r->row);
    r->tie = need(MR_TIES_LISTED, sizeof *r->tie);
    r->total = (struct mr_report_row){
        .layer = -1, .experts = s.router->experts, .top_k = s.router->top_k};
    check_call(&s, mr_spill_new(&s.gaps, &s.err));
    check_call(&s, mr_spill_new(&s.all_gaps, &s.err));
    if (q->tokens) open_tokens(&s);
    for (size_t j = 0; j < s.job_count; j++) {
        if (q->progress)
            fprintf(stderr, "\rlayer %d, %s (%zu of %zu)   ", s.jobs[j].layer, s.jobs[j].phase,
                    j + 1, s.job_count);
        run_job(&s, &s.jobs[j]);
    }
    if (q->progress) fputs("\r\033[K", stderr);
    if (s.writer) {
        enum mr_status status = mr_writer_finish(s.writer, &s.err);
        s.writer = NULL;
        check_call(&s, status);
    }
    quantiles(&s, s.all_gaps, r->total.gap);
    summarise(&r->total, s.total_flips, q->arith_count);
    mr_spill_free(s.gaps);
    mr_spill_free(s.all_gaps);
    free(s.flips);
    free(s.total_flips);
    free(s.jobs);
}

void route_outcome_free(struct route_outcome *out)
{
    struct mr_report *r = &out->report;
    for (size_t i = 0; i < r->row_count; i++) free(r->row[i].arith);
    for (size_t i = 0; i < r->tie_count; i++) free(r->tie[i].experts);
    for (size_t i = 0; i < out->shown_count; i++) {
        free(out->shown[i].ids);
        free(out->shown[i].weights);
        free(out->shown[i].chosen);
    }
    free(r->arith_name);
    free(r->row);
    free(r->total.arith);
    free(r->tie);
}
