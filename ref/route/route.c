/* The driver: fixed blocks of rows, each filtered by one single-threaded BLAS call a chunk, threads
 * over blocks. Everything a token gets depends on its block alone, and what is summed over tokens
 * is an integer or is summed in block order, so any number of threads gives the same bytes. */
#include "route.h"

#include <fenv.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "../num/num.h"
#include "inspect.h"
#include "layer_check.h"
#include "replayed.h"
#include "token_source.h"

/* One thread. */
struct worker {
    struct mr_filter filter;
    struct mr_certifier certifier;
    struct mr_emulator *emulator;
    struct mr_flips *flips;
    float **replayed; /* logits of the block, [arith_count] */
    struct mr_token_source source;
    double *zeros, *exact_row; /* [experts] */
    int32_t *ids;
    double *weights, *gap, *gap_radius, *group_gap, *group_gap_radius;
    uint8_t *certificate;
    struct mr_route_result result;
};

struct run {
    const struct mr_layer *layer;
    const struct mr_route_options *options;
    const struct mr_blas *blas;
    const struct mr_gate *gate; /* NULL: from logits */
    const struct mr_matrix *input;
    struct mr_replayed replayed;
    double *moved; /* [blocks, arith_count] */
    bool without_blas;
    enum mr_status status;
    struct mr_error *err;
};

static void worker_free(const struct run *run, struct worker *w)
{
    mr_replayed_rooms_free(&run->replayed, w->replayed);
    mr_filter_free(&w->filter);
    mr_certifier_free(&w->certifier);
    mr_emulator_free(w->emulator);
    free(w->flips);
    free(w->source.wide);
    free(w->zeros);
    free(w->exact_row);
    free(w->ids);
    free(w->weights);
    free(w->gap);
    free(w->gap_radius);
    free(w->group_gap);
    free(w->group_gap_radius);
    free(w->certificate);
}

static enum mr_status worker_new(const struct run *run, struct worker *w)
{
    const struct mr_router *r = run->layer->router;
    size_t experts = (size_t)r->experts, k = (size_t)r->top_k, arith = run->options->arith_count;
    *w = (struct worker){0};
    enum mr_status status = run->gate ? mr_filter_new(run->gate, &w->filter) : MR_OK;
    if (!status && !run->gate) {
        w->filter.logits = malloc(MR_BLOCK_ROWS * experts * sizeof(double));
        w->filter.x32 = malloc(experts * sizeof(float));
        if (!w->filter.logits || !w->filter.x32) status = MR_ERR_MEMORY;
    }
    if (!status) status = mr_certifier_new(r->experts, &w->certifier);
    if (!status)
        status = mr_emulator_new(r->experts, r->top_k, run->options->arith, arith, &w->emulator);
    if (!status) status = mr_replayed_rooms(&run->replayed, r->experts, &w->replayed);
    w->flips = calloc(arith + 1, sizeof *w->flips);
    w->source.wide = malloc((run->input->cols + 1) * sizeof(double));
    w->zeros = calloc(experts, sizeof(double));
    w->exact_row = malloc(experts * sizeof(double));
    w->ids = malloc(MR_BLOCK_ROWS * k * sizeof *w->ids);
    w->weights = malloc(MR_BLOCK_ROWS * k * sizeof *w->weights);
    w->gap = malloc(MR_BLOCK_ROWS * sizeof *w->gap);
    w->gap_radius = malloc(MR_BLOCK_ROWS * sizeof *w->gap_radius);
    w->group_gap = malloc(MR_BLOCK_ROWS * sizeof *w->group_gap);
    w->group_gap_radius = malloc(MR_BLOCK_ROWS * sizeof *w->group_gap_radius);
    w->certificate = malloc(MR_BLOCK_ROWS);
    if (!status && w->flips && w->source.wide && w->zeros && w->exact_row && w->ids && w->weights &&
        w->gap && w->gap_radius && w->group_gap && w->group_gap_radius && w->certificate)
        return MR_OK;
    worker_free(run, w);
    return status ? status : MR_ERR_MEMORY;
}

/* Every logit exact: the row is its own truth but for the rounding to binary64. */
static enum mr_status exact_row(struct worker *w, struct mr_token *t)
{
    double most = 0;
    int experts = t->router->experts;
    struct mr_key *keys = w->certifier.keys;
    for (int e = 0; e < experts; e++) keys[e].expert = e;
    enum mr_status status = mr_token_exact(&w->source, keys, experts);
    if (status) return status;
    for (int e = 0; e < experts; e++) {
        w->exact_row[e] = keys[e].logit.hi;
        if (fabs(w->exact_row[e]) > most) most = fabs(w->exact_row[e]);
    }
    w->result.exact_dots += (uint64_t)experts;
    t->logits = w->exact_row;
    t->scale = 0;
    t->offset = most * 0x1p-53;
    return MR_OK;
}

/* Is some filtered logit further from the exact one than its radius? */
static bool outside(const struct worker *w, const double *filtered, const struct mr_gate *g,
                    const struct mr_radius *radius)
{
    for (size_t e = 0; e < g->stored.rows; e++) {
        double r = radius->scale * g->norm[e] + radius->offset + 0x1p-52 * fabs(w->exact_row[e]);
        if (!(fabs(filtered[e] - w->exact_row[e]) <= r * (1 + 0x1p-40))) return true;
    }
    return false;
}

/* t NULL: a row that is not finite. */
static enum mr_status inspect(const struct run *run, struct worker *w, size_t token,
                              const struct mr_token *t, const struct mr_routed *out)
{
    struct mr_inspection i = {.token = token,
                              .worker = omp_get_thread_num(),
                              .routed = out,
                              .of = t,
                              .certifier = &w->certifier,
                              .source = &w->source};
    return run->options->inspect(run->options->context, &i, run->err);
}

/* logit = dot + bias, rounded once more: 2^-53 of the largest covers every expert. */
static void add_gate_bias(const double *bias, int experts, double *logits, struct mr_radius *radius)
{
    double most = 0;
    for (int e = 0; e < experts; e++) {
        logits[e] += bias[e];
        if (fabs(logits[e]) > most) most = fabs(logits[e]);
    }
    radius->offset = (radius->offset + most * 0x1p-53) * (1 + 0x1p-50);
}

/* One row, the token-th of the layer, that has been filtered (or given). */
static enum mr_status route_row(const struct run *run, struct worker *w, size_t r, size_t token,
                                struct mr_routed *out)
{
    const struct mr_router *router = run->layer->router;
    const struct mr_gate *g = run->gate;
    size_t experts = (size_t)router->experts;
    double *filtered = w->filter.logits + r * experts;
    struct mr_token t = {.router = router,
                         .bias = run->layer->bias,
                         .logits = filtered,
                         .norm = g ? g->norm : w->zeros,
                         .exact = mr_token_exact,
                         .source = {&w->source, router->experts, mr_token_value},
                         .exact_weights = run->options->exact_weights,
                         .given = run->layer->given ? run->layer->given +
                                                          token * (size_t)router->top_k : NULL};
    enum mr_status status = MR_OK;
    w->source.widened = false;
    if (!g) {
        w->source.given = filtered;
    } else {
        struct mr_radius radius;
        w->source.stats = w->filter.stats[r];
        bool usable = mr_filter_radius(g, &w->filter.stats[r], &radius) && !run->without_blas;
        bool alarm =
            usable && !mr_blas_check(g, filtered, w->filter.check + r * MR_CHECKS, &radius);
        if (run->layer->gate_bias)
            add_gate_bias(run->layer->gate_bias, router->experts, filtered, &radius);
        t.scale = radius.scale;
        t.offset = radius.offset;
        if (!usable || alarm) status = exact_row(w, &t);
        if (alarm && !status) {
            w->result.blas_alarms++;
            w->result.blas_wrong += outside(w, filtered, g, &radius);
        }
    }
    if (!status) status = mr_certify(&w->certifier, &t, out);
    w->result.exact_dots += (uint64_t)out->exact_dots;
    if (!status && out->filter_wrong) {
        w->result.blas_wrong++;
        status = exact_row(w, &t);
        if (!status) status = mr_certify(&w->certifier, &t, out);
    }
    for (size_t i = 0; i < run->replayed.count; i++)
        if (w->replayed[i])
            mr_emulator_logits(w->emulator, i, w->replayed[i] + r * experts);
    if (!status) status = mr_emulate(w->emulator, &w->certifier, &t, out, w->flips);
    if (!status && run->options->inspect) status = inspect(run, w, token, &t, out);
    return status;
}

static bool all_finite(const double *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(v[i])) return false;
    return true;
}

static enum mr_status report_tie(const struct run *run, size_t token, const struct mr_routed *out)
{
    struct mr_tie tie = {token,     out->tie_slots,       out->tie_count,
                         out->ties, out->group_tie_slots, out->group_tie_count,
                         out->group_ties};
    enum mr_status status = MR_OK;
#pragma omp critical(mr_route_report)
    if (run->options->tie) status = run->options->tie(run->options->context, &tie, run->err);
    return status;
}

static enum mr_status report_emulated(const struct run *run, const struct worker *w, size_t token)
{
    enum mr_status status = MR_OK;
    for (size_t i = 0; i < run->options->arith_count && !status; i++)
#pragma omp critical(mr_route_report)
        status = run->options->emulated(run->options->context, token, i,
                                        mr_emulator_choice(w->emulator, i), run->err);
    return status;
}

static enum mr_status route_block(struct run *run, struct worker *w, size_t block)
{
    const struct mr_router *router = run->layer->router;
    const struct mr_matrix *in = run->input;
    size_t first = block * MR_BLOCK_ROWS, k = (size_t)router->top_k, n = in->cols;
    size_t rows = in->rows - first < MR_BLOCK_ROWS ? in->rows - first : MR_BLOCK_ROWS;
    size_t stride = n * (mr_dtype_bits(in->dtype) / 8), arith = run->options->arith_count;
    const char *data = (const char *)in->data + first * stride;
    if (run->gate) mr_filter_block(&w->filter, run->gate, data, in->dtype, rows, run->blas);
    else
        for (size_t r = 0; r < rows; r++)
            mr_widen_f64(data + r * stride, in->dtype, n, w->filter.logits + r * n);
    w->source.gate = run->gate;
    w->source.gate_bias = run->layer->gate_bias;
    w->source.dtype = in->dtype;
    enum mr_status status =
        mr_replayed_block(&run->replayed, first, rows, w->replayed, run->err);
    for (size_t r = 0; r < rows && !status; r++) {
        struct mr_routed out = {.ids = w->ids + r * k, .weights = w->weights + r * k};
        w->source.hidden = data + r * stride;
        bool finite = run->gate ? w->filter.stats[r].finite
                                : all_finite(w->filter.logits + r * n, n);
        if (finite) status = route_row(run, w, r, first + r, &out);
        else mr_routed_nonfinite(router, &out);
        if (!finite && run->options->inspect) status = inspect(run, w, first + r, NULL, &out);
        w->gap[r] = out.gap;
        w->gap_radius[r] = out.gap_radius;
        w->group_gap[r] = out.group_gap;
        w->group_gap_radius[r] = out.group_gap_radius;
        w->certificate[r] = (uint8_t)out.certificate;
        w->result.certified[out.certificate]++;
        if (!status && run->options->emulated && out.certificate < MR_CERT_UNDECIDED)
            status = report_emulated(run, w, first + r);
        if (!status && out.certificate == MR_CERT_TIE) status = report_tie(run, first + r, &out);
    }
    for (size_t i = 0; i < arith; i++) {
        run->moved[block * arith + i] = w->flips[i].weight_moved;
        w->flips[i].weight_moved = 0;
    }
    struct mr_rows answer = {first,  rows,          w->ids,         w->weights,
                             w->gap, w->gap_radius, w->certificate, w->group_gap,
                             w->group_gap_radius};
#pragma omp critical(mr_route_report)
    if (!status && run->options->rows)
        status = run->options->rows(run->options->context, &answer, run->err);
    return status;
}

static void merge(const struct run *run, const struct worker *w, struct mr_route_result *result,
                  struct mr_flips *flips)
{
    for (int c = 0; c < MR_CERT_COUNT; c++) result->certified[c] += w->result.certified[c];
    result->exact_dots += w->result.exact_dots;
    result->blas_alarms += w->result.blas_alarms;
    result->blas_wrong += w->result.blas_wrong;
    mr_flips_add(flips, w->flips, run->options->arith_count); /* weight_moved is in run->moved */
}

/* Every bound needs rounding to nearest and subnormals, whatever the host program has set. */
static void default_modes(fenv_t *before)
{
    fegetenv(before);
    fesetenv(FE_DFL_ENV);
}

static int threads_of(const struct mr_route_options *options)
{
    return options->threads > 0 ? options->threads : omp_get_max_threads();
}

/* All blocks once. */
static enum mr_status pass(struct run *run, struct mr_route_result *result, struct mr_flips *flips)
{
    size_t blocks = (run->input->rows + MR_BLOCK_ROWS - 1) / MR_BLOCK_ROWS;
    size_t arith = run->options->arith_count;
    int threads = threads_of(run->options);
    if ((size_t)threads > blocks) threads = blocks ? (int)blocks : 1;
    run->moved = calloc(blocks * arith + 1, sizeof *run->moved);
    if (!run->moved) return MR_ERR_MEMORY;
#pragma omp parallel num_threads(threads)
    {
        struct worker w;
        fenv_t env;
        default_modes(&env);
        enum mr_status status = worker_new(run, &w);
        bool made = !status;
#pragma omp for schedule(dynamic)
        for (size_t b = 0; b < blocks; b++) {
            enum mr_status seen;
#pragma omp atomic read
            seen = run->status;
            if (seen || status) continue;
            status = route_block(run, &w, b);
        }
#pragma omp critical(mr_route_merge)
        {
            if (status && !run->status) {
#pragma omp atomic write
                run->status = status;
            }
            if (made) merge(run, &w, result, flips);
        }
        if (made) worker_free(run, &w);
        mpfr_free_cache();
        fesetenv(&env);
    }
    for (size_t b = 0; b < blocks; b++)
        for (size_t i = 0; i < arith; i++) flips[i].weight_moved += run->moved[b * arith + i];
    free(run->moved);
    return run->status;
}

static enum mr_status route_layer(const struct mr_layer *layer,
                                  const struct mr_route_options *options,
                                  struct mr_route_result *result, struct mr_flips *flips,
                                  struct mr_error *err)
{
    *result = (struct mr_route_result){0};
    enum mr_status status = mr_layer_check(layer, err);
    for (size_t i = 0; i < options->arith_count && !status; i++)
        status = mr_score_word_check(options->arith[i].score, layer->router, err);
    if (status) return status;
    bool hidden = layer->hidden.data && !layer->logits.data;
    /* The fp32 filter cannot feed what needs every logit (DESIGN section 3). */
    const struct mr_router *r = layer->router;
    bool narrow = (r->score != MR_SCORE_SOFTMAX || r->selection == MR_SELECT_LOGIT) &&
                  !options->arith_count && !options->wide_filter;
    struct mr_gate gate = {0};
    if (hidden) {
        status = mr_gate_prepare(&layer->gate, layer->hidden.dtype, narrow, threads_of(options),
                                 &gate, err);
        if (status) return status;
    }
    struct run run = {.layer = layer,
                      .options = options,
                      .blas = options->blas ? options->blas : &mr_openblas,
                      .gate = hidden ? &gate : NULL,
                      .input = hidden ? &layer->hidden : &layer->logits,
                      .without_blas = options->without_blas,
                      .err = err};
    if (!options->blas) mr_openblas_single_threaded();
    size_t count = options->arith_count;
    struct mr_flips *fresh = calloc(count + 1, sizeof *fresh);
    status = mr_replayed_new(layer, options->arith, count, &run.replayed, err);
    if (!status) status = fresh ? pass(&run, result, fresh) : MR_ERR_MEMORY;
    if (!status && result->blas_wrong) {
        /* A BLAS that was caught once is not trusted with the rows that raised no alarm. */
        uint64_t alarms = result->blas_alarms, wrong = result->blas_wrong;
        *result = (struct mr_route_result){0};
        memset(fresh, 0, count * sizeof *fresh);
        if (options->restart) options->restart(options->context);
        run.without_blas = true;
        status = pass(&run, result, fresh);
        result->blas_alarms = alarms;
        result->blas_wrong = wrong;
    }
    result->tokens = run.input->rows;
    if (!status) mr_flips_add(flips, fresh, count);
    free(fresh);
    mr_replayed_free(&run.replayed);
    mr_gate_free(&gate);
    if (status == MR_ERR_MEMORY && err && !err->text[0]) mr_fail(err, status, "out of memory");
    return status;
}

enum mr_status mr_route_layer(const struct mr_layer *layer, const struct mr_route_options *options,
                              struct mr_route_result *result, struct mr_flips *flips,
                              struct mr_error *err)
{
    fenv_t env;
    default_modes(&env); /* glibc's fesetenv sets all of MXCSR: FTZ and DAZ too */
    enum mr_status status = route_layer(layer, options, result, flips, err);
    fesetenv(&env);
    return status;
}
