#include "verify.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "inspect.h"
#include "verdict_source.h"

/* One thread. */
struct worker {
    struct mr_judge *judge;
    struct mr_figures *figures;
    struct mr_findings findings;
    struct mr_verify_tally *tally; /* [count] */
    uint64_t *gained, *lost;       /* [experts] */
    uint64_t *power, power_tokens;
    int64_t *ids;                  /* [top_k] */
    double *weights, *logits;      /* [top_k], [experts] */
};

struct state {
    const struct mr_layer *layer;
    const struct mr_verify_options *options;
    const struct mr_observed *observed;
    struct mr_error_model *model; /* [count] */
    struct mr_error_model *power; /* [power_count] */
    size_t count;
    uint8_t *const *verdicts; /* of each row, wherever it is wanted */
    struct worker *worker;
    int workers;
};

static void worker_free(struct worker *w)
{
    mr_judge_free(w->judge);
    mr_figures_free(w->figures);
    mr_findings_free(&w->findings);
    free(w->tally);
    free(w->gained);
    free(w->lost);
    free(w->power);
    free(w->ids);
    free(w->weights);
    free(w->logits);
}

static enum mr_status worker_new(const struct state *s, size_t most, struct worker *w)
{
    const struct mr_router *r = s->layer->router;
    size_t experts = (size_t)r->experts, k = (size_t)r->top_k;
    size_t hidden = s->layer->hidden.data ? s->layer->hidden.cols : 0;
    enum mr_status status = mr_judge_new(r, &w->judge);
    if (!status) status = mr_figures_new(r, hidden, &w->figures);
    if (!status) status = mr_findings_new(most, r->top_k, &w->findings);
    w->tally = calloc(s->count + 1, sizeof *w->tally);
    w->gained = calloc(experts, sizeof *w->gained);
    w->lost = calloc(experts, sizeof *w->lost);
    w->power = calloc(s->options->power_count + 1, sizeof *w->power);
    w->ids = malloc(k * sizeof *w->ids);
    w->weights = malloc(k * sizeof *w->weights);
    w->logits = malloc(experts * sizeof *w->logits);
    if (status) return status;
    return w->tally && w->gained && w->lost && w->power && w->ids && w->weights && w->logits
               ? MR_OK : MR_ERR_MEMORY;
}

/* The layer is routed again: nothing of it counts. */
static void restart(void *context)
{
    struct state *s = context;
    size_t experts = (size_t)s->layer->router->experts;
    for (int i = 0; i < s->workers; i++) {
        struct worker *w = &s->worker[i];
        memset(w->tally, 0, s->count * sizeof *w->tally);
        memset(w->gained, 0, experts * sizeof *w->gained);
        memset(w->lost, 0, experts * sizeof *w->lost);
        memset(w->power, 0, s->options->power_count * sizeof *w->power);
        w->power_tokens = 0;
        w->findings.count = 0;
    }
}

static bool narrower(enum mr_dtype d, enum mr_type *type)
{
    if (d == MR_BF16) *type = MR_TYPE_BF16;
    else if (d == MR_F16) *type = MR_TYPE_FP16;
    return d == MR_BF16 || d == MR_F16;
}

/* What was stored in 16 bits was rounded to them, whatever else is declared. */
static struct mr_error_model model_of(const struct mr_observed *o,
                                      const struct mr_error_model *declared)
{
    struct mr_error_model m = *declared;
    enum mr_type type;
    if (o->weights.data && m.arith.weights == MR_TYPE_FP32 && narrower(o->weights.dtype, &type))
        m.arith.weights = type;
    if (!o->ids.data && o->logits.data && m.arith.logits == MR_TYPE_FP32 &&
        narrower(o->logits.dtype, &type))
        m.arith.logits = type;
    return m;
}

/* What the line says of this layer's sums. */
static enum mr_status sharpen(const struct mr_layer *layer, struct mr_error_model *m,
                              struct mr_error *err)
{
    const struct mr_matrix *h = &layer->hidden, *g = &layer->gate;
    enum mr_status status = mr_score_word_check(m->arith.score, layer->router, err);
    if (status) return status;
    if (!h->data || layer->logits.data) return MR_OK;
    return mr_sum_of_arith(&m->arith, h->cols, h->dtype, g->dtype, layer->gate_bias != NULL,
                           &m->sum, err);
}

static enum mr_status models(struct state *s, struct mr_error *err)
{
    const struct mr_verify_options *o = s->options;
    enum mr_status status = MR_OK;
    for (size_t i = 0; i < s->count && !status; i++) {
        s->model[i] = model_of(&s->observed[i], o->models ? &o->models[i] : &o->model);
        status = sharpen(s->layer, &s->model[i], err);
    }
    for (size_t i = 0; i < o->power_count && !status; i++) {
        s->power[i] = o->power[i];
        status = sharpen(s->layer, &s->power[i], err);
    }
    return status;
}

static enum mr_status count_power(const struct state *s, struct worker *w,
                                  const struct mr_inspection *t)
{
    bool cut = t->routed->certificate < MR_CERT_UNDECIDED && t->routed->rejected >= 0;
    if (!cut || !s->options->power_count) return MR_OK;
    w->power_tokens++;
    for (size_t i = 0; i < s->options->power_count; i++) {
        bool wrong;
        mr_figures_model(w->figures, &s->power[i]);
        enum mr_status status = mr_figures_swap_is_wrong(w->figures, &wrong);
        if (status) return status;
        w->power[i] += wrong;
    }
    return MR_OK;
}

static void count_experts(struct worker *w)
{
    const int *omitted, *included;
    int n = mr_judge_difference(w->judge, &omitted, &included);
    for (int i = 0; i < n; i++) {
        w->lost[omitted[i]]++;
        w->gained[included[i]]++;
    }
}

/* A row that is declared to be padding: true if it is masked, all ids -1. */
static bool masked(const struct worker *w, int k, struct mr_judgement *out)
{
    *out = mr_judgement_exact;
    for (int i = 0; i < k; i++) {
        if (w->ids[i] == -1) continue;
        out->verdict = out->set = MR_MALFORMED;
        out->cause = MR_CAUSE_PADDING;
        out->slot = i;
        out->id = w->ids[i];
        return false;
    }
    return true;
}

static enum mr_status judge_ids(const struct state *s, struct worker *w,
                                const struct mr_observed *o, const struct mr_inspection *t,
                                size_t row, struct mr_judgement *out)
{
    struct mr_claim claim = {w->ids, s->layer->router->top_k, NULL, s->options->ordered};
    struct mr_judge_source source = mr_figures_source(w->figures);
    if (o->weights.data) {
        mr_observed_weights(o, row, w->weights);
        claim.weights = w->weights;
    }
    enum mr_status status = mr_judge_token(w->judge, t->routed, &claim, &source, out);
    if (!status && out->set != MR_TIE) count_experts(w);
    return status;
}

static enum mr_status judge_logits(struct worker *w, const struct mr_observed *o,
                                   const struct mr_inspection *t, size_t row,
                                   struct mr_verify_tally *tally, struct mr_judgement *out)
{
    tally->logit_rows++;
    *out = mr_judgement_exact;
    out->verdict = MR_UNDECIDED;
    out->cause = MR_CAUSE_INPUT;
    if (!t->of) return MR_OK;
    double error;
    mr_observed_logits(o, row, w->logits);
    enum mr_status status = mr_figures_logits(w->figures, w->logits, out, &error);
    if (error > tally->logit_error) tally->logit_error = error;
    return status;
}

/* Rows have one token each, so that no other worker writes here. */
static void tell(const struct state *s, size_t source, size_t row, int verdict)
{
    if (s->verdicts && s->verdicts[source]) s->verdicts[source][row] = (uint8_t)verdict;
}

static enum mr_status judge_row(const struct state *s, struct worker *w, size_t source,
                                const struct mr_inspection *t, size_t row)
{
    const struct mr_observed *o = &s->observed[source];
    struct mr_verify_tally *tally = &w->tally[source];
    bool known = t->routed->certificate != MR_CERT_NONFINITE, padding = row >= o->non_padded;
    struct mr_judgement j;
    enum mr_status status = MR_OK;
    tally->rows++;
    if (o->ids.data) mr_observed_ids(o, row, w->ids);
    if (padding && (!o->ids.data || masked(w, s->layer->router->top_k, &j))) {
        tally->padding++;
        tell(s, source, row, MR_VERDICT_COUNT);
        return MR_OK;
    }
    if (!padding)
        status = o->ids.data ? judge_ids(s, w, o, t, row, &j)
                             : judge_logits(w, o, t, row, tally, &j);
    if (status) return status;
    tally->verdicts[j.verdict]++;
    tell(s, source, row, j.verdict);
    if (j.verdict == MR_EXACT) return MR_OK;
    struct mr_finding finding = {s->options->order, s->options->layer, s->options->phase,
                                 source, row, t->token, t->routed->certificate, t->routed->gap, j,
                                 0};
    mr_findings_add(&w->findings, &finding, known ? t->routed->ids : NULL,
                    o->ids.data ? w->ids : NULL);
    return MR_OK;
}

static enum mr_status inspect(void *context, const struct mr_inspection *t, struct mr_error *err)
{
    (void)err;
    const struct state *s = context;
    struct worker *w = &s->worker[t->worker];
    mr_figures_token(w->figures, t);
    enum mr_status power = t->of ? count_power(s, w, t) : MR_OK;
    if (power) return power;
    for (size_t i = 0; i < s->count; i++) {
        const size_t *row;
        size_t rows = mr_observed_rows(&s->observed[i], t->token, &row);
        if (rows && t->of) mr_figures_model(w->figures, &s->model[i]);
        for (size_t r = 0; r < rows; r++) {
            enum mr_status status = judge_row(s, w, i, t, row ? row[r] : t->token);
            if (status) return status;
        }
    }
    return MR_OK;
}

static void merge(const struct state *s, struct mr_verify_result *result,
                  struct mr_findings *found)
{
    for (int i = 0; i < s->workers; i++) {
        struct worker *w = &s->worker[i];
        for (size_t c = 0; c < s->count; c++) {
            struct mr_verify_tally *t = &result->tally[c], *from = &w->tally[c];
            t->rows += from->rows;
            t->padding += from->padding;
            t->logit_rows += from->logit_rows;
            if (from->logit_error > t->logit_error) t->logit_error = from->logit_error;
            for (int v = 0; v < MR_VERDICT_COUNT; v++) t->verdicts[v] += from->verdicts[v];
        }
        for (int e = 0; e < s->layer->router->experts; e++) {
            result->gained[e] += w->gained[e];
            result->lost[e] += w->lost[e];
        }
        for (size_t p = 0; p < s->options->power_count; p++) result->power[p] += w->power[p];
        result->power_tokens += w->power_tokens;
        mr_findings_merge(found, &w->findings);
    }
    mr_findings_sort(found);
}

static void add_route(struct mr_route_result *to, const struct mr_route_result *from)
{
    to->tokens += from->tokens;
    to->exact_dots += from->exact_dots;
    to->blas_alarms += from->blas_alarms;
    to->blas_wrong += from->blas_wrong;
    for (int c = 0; c < MR_CERT_COUNT; c++) to->certified[c] += from->certified[c];
}

/* No more than there are blocks of rows: route.c starts no more threads either. */
static int workers_of(const struct mr_layer *layer, const struct mr_verify_options *options)
{
    int threads = options->threads > 0 ? options->threads : omp_get_max_threads();
    size_t rows = layer->logits.data ? layer->logits.rows : layer->hidden.rows;
    size_t blocks = (rows + MR_BLOCK_ROWS - 1) / MR_BLOCK_ROWS;
    return (size_t)threads < blocks ? threads : blocks ? (int)blocks : 1;
}

enum mr_status mr_verify_layer(const struct mr_layer *layer,
                               const struct mr_verify_options *options,
                               const struct mr_observed *observed, size_t count,
                               struct mr_verify_result *result, struct mr_findings *found,
                               struct mr_error *err)
{
    struct state s = {.layer = layer, .options = options, .observed = observed, .count = count,
                      .verdicts = result->verdicts, .workers = workers_of(layer, options)};
    struct mr_route_result routed;
    s.worker = calloc((size_t)s.workers, sizeof *s.worker);
    s.model = calloc(count + 1, sizeof *s.model);
    s.power = calloc(options->power_count + 1, sizeof *s.power);
    enum mr_status status = s.worker && s.model && s.power ? MR_OK : MR_ERR_MEMORY;
    if (!status) status = models(&s, err);
    for (int i = 0; i < s.workers && !status; i++)
        status = worker_new(&s, found->most, &s.worker[i]);
    struct mr_route_options route = {.threads = options->threads,
                                     .without_blas = options->without_blas,
                                     .inspect = inspect,
                                     .restart = restart,
                                     .context = &s};
    if (!status) status = mr_route_layer(layer, &route, &routed, NULL, err);
    if (!status) {
        add_route(&result->route, &routed);
        merge(&s, result, found);
    }
    for (int i = 0; s.worker && i < s.workers; i++) worker_free(&s.worker[i]);
    free(s.worker);
    free(s.model);
    free(s.power);
    if (status == MR_ERR_MEMORY && err && !err->text[0]) mr_fail(err, status, "out of memory");
    return status;
}
