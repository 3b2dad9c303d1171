#include "profiles_run.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/case_layer.h"
#include "../ref/num/num.h"
#include "../ref/route/inspect.h"
#include "common.h"

/* One thread's memory and counts of the layer that runs. */
struct worker {
    struct mr_profile_scratch scratch;
    float *logits, *weights;
    int32_t *ids;
    struct profiles_outcome count;
};

struct state {
    const struct route_request *request;
    const struct mr_router *router;
    struct profiles_outcome *out;
    struct worker *workers;
    int worker_count;
    struct mr_profile_batch batch;
    float *bias;
    int layer;
    const char *phase;
    size_t listed_before;
    struct mr_error err;
};

/* Exact logits rounded once to fp32; given ones as they are (widening them is exact). */
static enum mr_status fp32_logits(const struct mr_inspection *t, const struct mr_router *r,
                                  float *out)
{
    if (!t->source->gate) {
        mr_widen_f32(t->source->hidden, t->source->dtype, (size_t)r->experts, out);
        return MR_OK;
    }
    struct mr_key *keys = t->certifier->keys;
    for (int e = 0; e < r->experts; e++) keys[e].expert = e;
    enum mr_status status = t->of->exact(t->of->source.context, keys, r->experts);
    for (int e = 0; e < r->experts && !status; e++) {
        if (keys[e].logit.complete) {
            out[e] = (float)mr_round_sum(keys[e].logit.hi, keys[e].logit.lo, &mr_format_fp32);
            continue;
        }
        mpfr_t value;
        mpfr_init2(value, 64);
        status = t->of->source.value(t->of->source.context, e, value);
        out[e] = mpfr_get_flt(value, MPFR_RNDN);
        mpfr_clear(value);
    }
    return status;
}

static void *copy(const void *from, size_t count, size_t size)
{
    void *to = malloc(count * size);
    if (to) memcpy(to, from, count * size);
    return to;
}

static void free_token(struct parted_token *t)
{
    free(t->ids);
    free(t->part);
    free(t->certified);
}

/* Keeps the lowest tokens of the layer, whatever the order of calls: the list is sorted. */
static enum mr_status list_token(struct state *s, const struct mr_inspection *t,
                                 const int32_t *ids, const struct mr_profile_part *part)
{
    struct profiles_outcome *out = s->out;
    size_t at = out->listed, k = (size_t)out->top_k, n = (size_t)out->count;
    while (at > s->listed_before && out->token[at - 1].token > t->token) at--;
    if (at == LISTED_TOKENS) return MR_OK;
    struct parted_token new = {s->layer, s->phase, t->token, copy(ids, n * k, sizeof *ids),
                               copy(part, n, sizeof *part),
                               copy(t->routed->ids, k, sizeof *ids)};
    if (!new.ids || !new.part || !new.certified) {
        free_token(&new);
        return MR_ERR_MEMORY;
    }
    if (out->listed == LISTED_TOKENS) free_token(&out->token[--out->listed]);
    memmove(out->token + at + 1, out->token + at, (out->listed - at) * sizeof *out->token);
    out->token[at] = new;
    out->listed++;
    return MR_OK;
}

static void count(struct profile_tally *t, const struct mr_profile_part *p)
{
    t->set[p->set]++;
    if (p->why >= 0) t->why[p->why]++;
    t->repeated += p->note.repeated;
    t->undefined += p->note.undefined;
    if (p->weight_error < 0) return;
    if (p->weight_error <= 1e300 && p->weight_error > t->weight_error)
        t->weight_error = p->weight_error;
    t->nonfinite += p->weight_error > 1e300;
    t->weight_part += p->weight_error > MR_WEIGHT_PART;
    if (p->weight_why >= 0) t->weight_why[p->weight_why]++;
}

static enum mr_status on_inspect(void *context, const struct mr_inspection *t,
                                 struct mr_error *err)
{
    struct state *s = context;
    struct profiles_outcome *out = s->out;
    struct worker *w = &s->workers[t->worker];
    struct mr_profile_part part[MOST_PROFILES];
    int k = out->top_k, first = -1;
    bool parted = false;
    w->count.tokens++;
    if (!t->of && t->source->gate) { /* hidden states that are not finite have no logits */
        for (int p = 0; p < out->count; p++)
            if (out->tally[p].row) w->count.tally[p].set[MR_PART_UNKNOWN]++;
        return MR_OK;
    }
    enum mr_status status = fp32_logits(t, s->router, w->logits);
    if (status) return mr_fail(err, status, "exact logits of token %zu", t->token);
    for (int p = 0; p < out->count; p++) {
        if (!out->tally[p].row) continue;
        mr_profile_compare(out->tally[p].row, s->router, &s->batch, false, w->logits, s->bias,
                           t->routed, &w->scratch, w->ids + p * k, w->weights, &part[p]);
        count(&w->count.tally[p], &part[p]);
        /* Weights of 16 bits part on every token: that is counted, and not news. */
        int why = part[p].weight_why;
        parted |= part[p].set == MR_PART_OTHER || part[p].set == MR_PART_TIE ||
                  (why >= 0 && why != MR_CELL_OUTPUT && why != MR_CELL_SCORE_TYPE);
        if (first < 0) first = p;
        for (int q = 0; q < p; q++)
            if (out->tally[q].row && !mr_same_ids(w->ids + p * k, w->ids + q * k, k))
                w->count.pair[q][p]++;
        parted |= !mr_same_ids(w->ids + p * k, w->ids + first * k, k);
    }
    if (!parted) return MR_OK;
    w->count.parted++;
#pragma omp critical(profiles_list)
    status = list_token(s, t, w->ids, part);
    return status ? mr_fail(err, status, "no memory for tokens") : MR_OK;
}

static void clear_layer(struct state *s)
{
    for (int i = 0; i < s->worker_count; i++)
        s->workers[i].count = (struct profiles_outcome){0};
    while (s->out->listed > s->listed_before) free_token(&s->out->token[--s->out->listed]);
}

static void on_restart(void *context)
{
    clear_layer(context);
}

static void merge(struct profiles_outcome *to, const struct profiles_outcome *from)
{
    to->tokens += from->tokens;
    to->parted += from->parted;
    for (int p = 0; p < MOST_PROFILES; p++) {
        struct profile_tally *a = &to->tally[p];
        const struct profile_tally *b = &from->tally[p];
        for (int i = 0; i < 4; i++) a->set[i] += b->set[i];
        for (int i = 0; i < MR_WHY_COUNT; i++) a->why[i] += b->why[i];
        for (int i = 0; i < MR_WHY_COUNT; i++) a->weight_why[i] += b->weight_why[i];
        a->repeated += b->repeated;
        a->undefined += b->undefined;
        a->nonfinite += b->nonfinite;
        a->weight_part += b->weight_part;
        if (b->weight_error > a->weight_error) a->weight_error = b->weight_error;
        for (int q = 0; q < MOST_PROFILES; q++) to->pair[p][q] += from->pair[p][q];
    }
}

/* The type of the logits: that of the tensor, or what the case's arithmetic says they were before
 * they were widened. */
static enum mr_type logits_type(const struct mr_case *c, const struct mr_tensor *logits)
{
    struct mr_arith arith;
    if (!logits) return MR_TYPE_FP32;
    if (logits->dtype == MR_BF16) return MR_TYPE_BF16;
    if (logits->dtype == MR_F16) return MR_TYPE_FP16;
    if (mr_case_arith(c) && mr_arith_parse(mr_case_arith(c), &arith, NULL) == MR_OK)
        return arith.logits;
    return MR_TYPE_FP32;
}

static void run_layer(struct state *s)
{
    const struct route_request *q = s->request;
    struct mr_case_layer l;
    struct mr_case_input input;
    size_t experts = (size_t)s->router->experts;
    enum mr_status status = mr_case_get(q->c, s->layer, s->phase, &l, &s->err);
    if (status) die_of(status, &s->err);
    /* The rows found for this router rank, and the tables show what parts when ranking. */
    if (l.hash.data)
        die(3, "%s: layer %d chooses experts by token id, which --profiles does not emulate: leave "
            "it out by --layers", mr_case_name(q->c), s->layer);
    status = mr_case_input_make(q->c, &l, q->from_logits, &input, &s->err);
    if (status) die_of(status, &s->err);
    s->bias = NULL;
    float *narrow = need(experts, sizeof *narrow);
    if (l.bias.data) {
        mr_widen_f32(l.bias.data, l.bias.dtype, experts, narrow);
        s->bias = narrow;
    }
    s->batch.rows = s->out->from_logits ? input.layer.logits.rows : input.layer.hidden.rows;
    s->batch.logits = logits_type(q->c, s->out->from_logits ? &l.logits : NULL);
    s->listed_before = s->out->listed;
    clear_layer(s);
    struct mr_route_options options = {.threads = q->threads,
                                       .without_blas = q->without_blas,
                                       .inspect = on_inspect,
                                       .restart = on_restart,
                                       .context = s};
    struct mr_route_result result = {0};
    status = mr_route_layer(&input.layer, &options, &result, NULL, &s->err);
    mr_case_input_free(&input);
    free(narrow);
    if (status) {
        if (s->err.text[0]) die(mr_status_exit(status), "layer %d, phase %s: %s", s->layer,
                                s->phase, s->err.text);
        die_of(status, &s->err);
    }
    for (int i = 0; i < s->worker_count; i++) merge(s->out, &s->workers[i].count);
    mr_case_release(q->c, s->layer, s->phase);
}

static void find_rows(struct state *s)
{
    struct profiles_outcome *out = s->out;
    bool any = false;
    for (size_t i = 0; mr_profile_at(i) && i < MOST_PROFILES; i++) {
        struct profile_tally *t = &out->tally[out->count++];
        struct mr_error why = {{0}};
        t->profile = mr_profile_at(i);
        if (mr_profile_row(t->profile, s->router, false, &t->row, &why))
            snprintf(t->unserved, sizeof t->unserved, "%.255s", why.text);
        if (t->row && strcmp(t->row->profile, t->profile->name)) {
            snprintf(t->unserved, sizeof t->unserved, "as %s for this router", t->row->profile);
            t->row = NULL;
        }
        any |= t->row != NULL;
    }
    if (!any)
        die(3, "%s: no profile serves this router (%s)", out->case_name,
            mr_profile_kind_name(out->kind));
}

void profiles_all(const struct route_request *q, struct profiles_outcome *out)
{
    struct state s = {.request = q, .router = mr_case_router(q->c), .out = out};
    size_t experts = (size_t)s.router->experts, k = (size_t)s.router->top_k;
    bool phase_known = !q->phase, any = false;
    out->case_name = mr_case_name(q->c);
    out->top_k = s.router->top_k;
    out->kind = mr_profile_kind_of(s.router, false);
    out->from_logits = q->from_logits || mr_case_from_logits(q->c);
    find_rows(&s);
    int most = omp_get_max_threads();
    s.worker_count = q->threads > most ? q->threads : most;
    s.workers = need((size_t)s.worker_count, sizeof *s.workers);
    for (int i = 0; i < s.worker_count; i++) {
        struct worker *w = &s.workers[i];
        if (mr_profile_scratch_new(s.router->experts, &w->scratch)) die(4, "out of memory");
        w->logits = need(experts, sizeof *w->logits);
        w->weights = need(k, sizeof *w->weights);
        w->ids = need(k * MOST_PROFILES, sizeof *w->ids);
    }
    for (size_t p = 0; p < mr_case_phase_count(q->c); p++) {
        s.phase = mr_case_phase(q->c, p);
        if (q->phase && strcmp(s.phase, q->phase)) continue;
        phase_known = true;
        for (size_t i = 0; i < mr_case_layer_count(q->c); i++) {
            s.layer = mr_case_layer_number(q->c, i);
            if (!layer_listed(q->layers, s.layer) || !mr_case_has(q->c, s.layer, s.phase)) continue;
            any = true;
            if (q->progress) fprintf(stderr, "\rlayer %d, %s   ", s.layer, s.phase);
            run_layer(&s);
        }
    }
    if (q->progress) fputs("\r\033[K", stderr);
    if (!phase_known) die(3, "%s: no phase '%s'", out->case_name, q->phase);
    if (!any)
        die(3, "%s: no layer%s%s to route", out->case_name, q->layers ? " of --layers " : "",
            q->layers ? q->layers : "");
    for (int i = 0; i < s.worker_count; i++) {
        mr_profile_scratch_free(&s.workers[i].scratch);
        free(s.workers[i].logits);
        free(s.workers[i].weights);
        free(s.workers[i].ids);
    }
    free(s.workers);
}

void profiles_free(struct profiles_outcome *out)
{
    for (size_t i = 0; i < out->listed; i++) free_token(&out->token[i]);
    out->listed = 0;
}
