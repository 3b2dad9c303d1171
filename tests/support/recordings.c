#include "recordings.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../gpu/inputs.h"
#include "../../ref/arith/replay.h"
#include "../../ref/io/observed.h"
#include "../../ref/io/verify_report.h"
#include "kernel_run.h"
#include "slow_sum.h"

enum { MOST_FILES = 256 };

struct recording {
    char name[256];
    struct mr_safetensors *file;
    struct mr_arith arith;
    bool declared;               /* its line is not "" */
    struct mr_observed observed; /* of the layer at hand */
};

struct folder {
    struct recorded *out;
    struct mr_case *c;
    const struct mr_router *router;
    struct mr_kernel_router kernel;
    size_t count;
    struct recording at[MOST_FILES];
    struct mr_error err;
};

#define FAULT(f, ...) (snprintf((f)->out->fault, sizeof(f)->out->fault, __VA_ARGS__), false)

static const char *word(const struct recording *r, const char *key)
{
    const char *text = mr_safetensors_metadata(r->file, key);
    return text ? text : "";
}

static bool open_one(struct folder *f, const char *folder, const char *name)
{
    static const char *const none[] = {"holes", "poison_rows", "unstable_rows", "delay_rows"};
    static const char *const empty[] = {"first", "outside", "books"};
    char path[512];
    if (f->count == MOST_FILES) return FAULT(f, "more than %d files", MOST_FILES);
    struct recording *r = &f->at[f->count];
    *r = (struct recording){.declared = false};
    snprintf(r->name, sizeof r->name, "%s", name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (mr_safetensors_open(path, &r->file, &f->err)) return FAULT(f, "%s", f->err.text);
    f->count++;
    if (strcmp(word(r, "case"), mr_case_name(f->c)))
        return FAULT(f, "%s: of case '%s'", name, word(r, "case"));
    for (int i = 0; i < 4; i++)
        if (strcmp(word(r, none[i]), "0"))
            return FAULT(f, "%s: %s: '%s'", name, none[i], word(r, none[i]));
    for (int i = 0; i < 3; i++)
        if (*word(r, empty[i])) return FAULT(f, "%s: %s", name, word(r, empty[i]));
    r->declared = *word(r, "arithmetic") != '\0';
    if (r->declared && mr_arith_parse(word(r, "arithmetic"), &r->arith, &f->err))
        return FAULT(f, "%s: %s", name, f->err.text);
    f->out->files++;
    return true;
}

static bool open_all(struct folder *f, const char *folder)
{
    struct dirent **entry;
    bool fine = true;
    int n = scandir(folder, &entry, NULL, alphasort);
    if (n < 0) return FAULT(f, "%s: %m", folder);
    for (int i = 0; i < n; i++) {
        const char *end = strstr(entry[i]->d_name, ".safetensors");
        if (fine && end && !end[12]) fine = open_one(f, folder, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    return fine;
}

/* Room for one layer. */
struct room {
    float *bias, *gate_bias, *replayed, *logits, *weights;
    double *wide;
    int32_t *ids;
    int64_t *found;
};

static void room_new(struct room *m, const struct mr_layer *layer)
{
    size_t n = (size_t)layer->router->experts, k = (size_t)layer->router->top_k;
    *m = (struct room){.replayed = malloc(n * 4),
                       .logits = malloc(n * 4),
                       .weights = malloc(k * 4),
                       .wide = malloc(n * 8),
                       .ids = malloc(k * 4),
                       .found = malloc(k * 8)};
    if (layer->bias) m->bias = malloc(n * 4);
    if (layer->gate_bias) m->gate_bias = malloc(n * 4);
    for (size_t e = 0; e < n && m->bias; e++) m->bias[e] = (float)layer->bias[e];
    for (size_t e = 0; e < n && m->gate_bias; e++) m->gate_bias[e] = (float)layer->gate_bias[e];
}

static void room_free(struct room *m)
{
    free(m->bias);
    free(m->gate_bias);
    free(m->replayed);
    free(m->logits);
    free(m->weights);
    free(m->wide);
    free(m->ids);
    free(m->found);
}

static bool check_logits(struct folder *f, const struct recording *r, size_t row, struct room *m,
                         bool sum)
{
    size_t n = (size_t)f->router->experts;
    mr_observed_logits(&r->observed, row, m->wide);
    for (size_t e = 0; e < n; e++) m->logits[e] = (float)m->wide[e];
    if (!sum) return true;
    for (size_t e = 0; e < n; e++)
        if (slow_bits(m->logits[e]) != slow_bits(m->replayed[e]))
            return FAULT(f, "%s: row %zu, expert %zu: logit %a, %s makes it %a", r->name, row, e,
                         (double)m->logits[e], word(r, "arithmetic"), (double)m->replayed[e]);
    f->out->logits += n;
    return true;
}

static bool check_choice(struct folder *f, const struct recording *r, size_t row, struct room *m)
{
    int k = f->router->top_k;
    stated_route(&f->kernel, m->logits, m->bias, m->ids, m->weights);
    mr_observed_ids(&r->observed, row, m->found);
    for (int j = 0; j < k; j++)
        if (m->found[j] != m->ids[j])
            return FAULT(f, "%s: row %zu, slot %d: expert %lld, not %d", r->name, row, j,
                         (long long)m->found[j], m->ids[j]);
    f->out->rows++;
    if (!r->observed.weights.data) return true;
    mr_observed_weights(&r->observed, row, m->wide);
    for (int j = 0; j < k; j++)
        if (slow_bits((float)m->wide[j]) != slow_bits(m->weights[j]))
            return FAULT(f, "%s: row %zu, slot %d: weight %a, not %a", r->name, row, j, m->wide[j],
                         (double)m->weights[j]);
    return true;
}

/* One file. Without a line and without logits there is nothing to start from. */
static bool check_rows(struct folder *f, const struct recording *r, const struct mr_layer *layer,
                       struct room *m)
{
    const struct mr_observed *o = &r->observed;
    const struct mr_gemm gemm = {
        .hidden = layer->hidden, .gate = layer->gate, .gate_bias = m->gate_bias};
    bool sum = r->declared && r->arith.sum.leaf != MR_LEAF_EXACT, fine = true;
    bool replayed = sum || (r->declared && !o->logits.data);
    struct mr_replay *replay = NULL;
    if (!replayed && !o->logits.data) return true;
    if (replayed && mr_replay_new(&r->arith, &gemm, &replay, &f->err))
        return FAULT(f, "%s: %s", r->name, f->err.text);
    for (size_t t = 0; t < o->tokens && fine; t++) {
        const size_t *rows;
        size_t n = mr_observed_rows(o, t, &rows);
        if (n && replayed && mr_replay_rows(replay, t, 1, m->replayed, &f->err))
            fine = FAULT(f, "%s: %s", r->name, f->err.text);
        for (size_t i = 0; i < n && fine; i++) {
            size_t row = rows ? rows[i] : t;
            if (!o->logits.data)
                memcpy(m->logits, m->replayed, (size_t)f->router->experts * 4);
            else
                fine = check_logits(f, r, row, m, sum);
            if (fine && o->ids.data) fine = check_choice(f, r, row, m);
        }
    }
    mr_replay_free(replay);
    return fine;
}

/* All files at once, each by its own arithmetic. */
static bool judge(struct folder *f, const struct mr_layer *layer, int number, const char *phase)
{
    size_t n = (size_t)f->router->experts;
    struct mr_error_model *models = calloc(f->count, sizeof *models);
    struct mr_observed *o = calloc(f->count, sizeof *o);
    struct mr_verify_result result = {.tally = calloc(f->count, sizeof *result.tally),
                                      .gained = calloc(n, sizeof *result.gained),
                                      .lost = calloc(n, sizeof *result.lost)};
    struct mr_findings found;
    bool fine = true;
    for (size_t i = 0; i < f->count; i++) {
        models[i] = mr_error_model(f->at[i].declared ? &f->at[i].arith : NULL);
        o[i] = f->at[i].observed;
    }
    const struct mr_verify_options options = {.models = models, .layer = number, .phase = phase};
    if (mr_findings_new(1, f->router->top_k, &found) ||
        mr_verify_layer(layer, &options, o, f->count, &result, &found, &f->err))
        fine = FAULT(f, "layer %d, %s: %s", number, phase, f->err.text);
    for (size_t i = 0; i < f->count && fine; i++) {
        f->out->judged += result.tally[i].rows;
        if (mr_tally_failures(&result.tally[i], false))
            fine = FAULT(f, "%s: layer %d, %s: %d of %d rows fail before the judge", f->at[i].name,
                         number, phase, (int)mr_tally_failures(&result.tally[i], false),
                         (int)result.tally[i].rows);
    }
    mr_findings_free(&found);
    free(result.tally);
    free(result.gained);
    free(result.lost);
    free(models);
    free(o);
    return fine;
}

static bool check_layer(struct folder *f, int number, const char *phase)
{
    struct mr_case_layer l;
    struct mr_case_input input;
    struct room m;
    bool fine = true, any = false;
    if (mr_case_get(f->c, number, phase, &l, &f->err) ||
        mr_case_input_make(f->c, &l, false, &input, &f->err))
        return FAULT(f, "%s", f->err.text);
    for (size_t i = 0; i < f->count; i++) {
        bool found;
        f->at[i].observed = (struct mr_observed){0};
        if (fine &&
            mr_observed_read(f->at[i].file, number, phase, f->router, input.layer.hidden.rows,
                             UINT64_MAX, &f->at[i].observed, &found, &f->err))
            fine = FAULT(f, "%s", f->err.text);
        else if (fine)
            any |= found;
    }
    room_new(&m, &input.layer);
    for (size_t i = 0; i < f->count && fine; i++) fine = check_rows(f, &f->at[i], &input.layer, &m);
    if (fine && any) fine = judge(f, &input.layer, number, phase);
    room_free(&m);
    for (size_t i = 0; i < f->count; i++) mr_observed_free(&f->at[i].observed);
    mr_case_input_free(&input);
    mr_case_release(f->c, number, phase);
    return fine;
}

static bool check_case(struct folder *f, const char *folder)
{
    f->router = mr_case_router(f->c);
    if (gpu_router(f->router, &f->kernel, &f->err)) return FAULT(f, "%s", f->err.text);
    if (!open_all(f, folder)) return false;
    for (size_t p = 0; p < mr_case_phase_count(f->c); p++)
        for (size_t i = 0; i < mr_case_layer_count(f->c); i++) {
            int layer = mr_case_layer_number(f->c, i);
            const char *phase = mr_case_phase(f->c, p);
            if (mr_case_has(f->c, layer, phase) && !check_layer(f, layer, phase)) return false;
        }
    return true;
}

bool recordings_check(const char *folder, const char *case_path, struct recorded *out)
{
    struct folder *f = calloc(1, sizeof *f);
    f->out = out;
    bool fine = mr_case_load(case_path, NULL, &f->c, &f->err) ? FAULT(f, "%s", f->err.text)
                                                              : check_case(f, folder);
    for (size_t i = 0; i < f->count; i++) mr_safetensors_close(f->at[i].file);
    mr_case_free(f->c);
    free(f);
    return fine;
}
