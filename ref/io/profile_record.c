#include "profile_record.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../num/num.h"
#include "../route/profile_compare.h"
#include "../route/profile_emulate.h"
#include "observed.h"

enum { MOST_SLOTS = 256 };

struct comparison {
    const struct mr_profile_row *row;
    const struct mr_router *router;
    struct mr_profile_batch batch;
    struct mr_profile_scratch scratch;
    const struct mr_case_layer *layer;
    const struct mr_observed *seen;
    float *logits, *bias; /* bias NULL: none */
    struct mr_profile_record *out;
};

static bool decides_ties(const struct mr_profile_row *row)
{
    return row->cell[MR_CELL_TIE].value != MR_TIE_UNDEFINED;
}

bool mr_profile_record_agrees(const struct mr_profile_row *row, const struct mr_profile_record *r)
{
    bool ordered = mr_profile_promises_order(row) && decides_ties(row);
    return r->tokens && r->sets + r->undefined == r->tokens && r->same == r->weights &&
           (!ordered || r->ordered == r->tokens);
}

/* Bits, so that zeros have their sign; all NaN are one. */
static bool same(float a, float b)
{
    return !memcmp(&a, &b, sizeof a) || (isnan(a) && isnan(b));
}

static void note_first(struct comparison *c, size_t token, int slot, const char *what, double seen,
                       double made)
{
    if (c->out->first[0]) return;
    snprintf(c->out->first, sizeof c->out->first,
             "layer %d, %.60s, token %zu, slot %d: %s %.9g (%a), the profile's %.9g (%a)",
             c->layer->layer, c->layer->phase, token, slot, what, seen, seen, made, made);
}

static void compare_row(struct comparison *c, size_t token, size_t at)
{
    int k = c->router->top_k;
    int64_t wide[MOST_SLOTS];
    int32_t seen[MOST_SLOTS], ids[MOST_SLOTS];
    float made[MOST_SLOTS];
    double weights[MOST_SLOTS];
    struct mr_profile_note note;
    mr_observed_ids(c->seen, at, wide);
    for (int i = 0; i < k; i++)
        seen[i] = wide[i] < INT32_MIN || wide[i] > INT32_MAX ? INT32_MIN : (int32_t)wide[i];
    mr_profile_emulate(c->row, c->router, &c->batch, c->logits, c->bias, &c->scratch, ids, made,
                       &note);
    bool set = mr_same_ids(seen, ids, k), order = !memcmp(seen, ids, (size_t)k * sizeof *ids);
    c->out->tokens++;
    c->out->sets += set;
    c->out->ordered += order;
    c->out->undefined += !set && note.undefined;
    bool ordered = mr_profile_promises_order(c->row) && decides_ties(c->row);
    if ((!set && !note.undefined) || (ordered && !order))
        for (int i = 0; i < k; i++)
            if (seen[i] != ids[i]) note_first(c, token, i, "expert", seen[i], ids[i]);
    if (!c->seen->weights.data) return;
    mr_observed_weights(c->seen, at, weights);
    /* The kernel's own choice where it is the same, since a row of its own makes (ids 0, 1 ...) are
     * weighed apart; else the weights of what was recorded. */
    if (!order) mr_profile_weigh(c->row, c->router, &c->batch, c->logits, c->bias, &c->scratch, seen,
                                 made);
    for (int i = 0; i < k; i++) {
        bool fine = same((float)weights[i], made[i]);
        c->out->weights++;
        c->out->same += fine;
        if (!fine) note_first(c, token, i, "weight", weights[i], (double)made[i]);
    }
}

static enum mr_status compare_layer(struct comparison *c, const struct mr_case_layer *l,
                                    const struct mr_safetensors *file, struct mr_error *err)
{
    size_t n = (size_t)c->router->experts, tokens = (size_t)l->logits.shape[0];
    size_t bytes = mr_dtype_bits(l->logits.dtype) / 8;
    struct mr_observed seen;
    bool found;
    enum mr_status status = mr_observed_read(file, l->layer, l->phase, c->router, tokens,
                                             UINT64_MAX, &seen, &found, err);
    if (status || !found) return status;
    c->layer = l;
    c->seen = &seen;
    c->batch.logits = l->logits.dtype == MR_BF16  ? MR_TYPE_BF16
                      : l->logits.dtype == MR_F16 ? MR_TYPE_FP16
                                                  : MR_TYPE_FP32;
    if (l->bias.data) mr_widen_f32(l->bias.data, l->bias.dtype, n, c->bias);
    else c->bias = NULL;
    for (size_t t = 0; seen.ids.data && t < tokens; t++) {
        const size_t *rows;
        size_t count = mr_observed_rows(&seen, t, &rows);
        if (!count) continue;
        mr_widen_f32((const char *)l->logits.data + t * n * bytes, l->logits.dtype, n, c->logits);
        for (size_t i = 0; i < count; i++) compare_row(c, t, rows ? rows[i] : t);
    }
    mr_observed_free(&seen);
    return MR_OK;
}

static enum mr_status rows_of(const struct mr_safetensors *file, size_t *rows, struct mr_error *err)
{
    const char *text = mr_safetensors_metadata(file, "rows");
    char *end;
    errno = 0;
    unsigned long long v = text ? strtoull(text, &end, 10) : 0;
    if (!text || *text < '1' || *text > '9' || *end || errno || v > SIZE_MAX)
        return mr_fail(err, MR_ERR_VALUE, "%s: metadata key \"rows\": expected the rows of a launch, "
                       "found '%.32s'", mr_safetensors_path(file), text ? text : "nothing");
    *rows = (size_t)v;
    return MR_OK;
}

static enum mr_status compare_case(struct comparison *c, struct mr_case *from,
                                   const struct mr_safetensors *file, float *bias,
                                   struct mr_error *err)
{
    for (size_t p = 0; p < mr_case_phase_count(from); p++)
        for (size_t i = 0; i < mr_case_layer_count(from); i++) {
            struct mr_case_layer l;
            const char *phase = mr_case_phase(from, p);
            int layer = mr_case_layer_number(from, i);
            if (!mr_case_has(from, layer, phase)) continue;
            enum mr_status status = mr_case_get(from, layer, phase, &l, err);
            if (!status && l.hash.data)
                status = mr_fail(err, MR_ERR_UNSUPPORTED, "%s: layer %d chooses experts by token id",
                                 mr_case_name(from), layer);
            c->bias = bias;
            if (!status) status = compare_layer(c, &l, file, err);
            if (status) return status;
        }
    if (c->out->tokens) return MR_OK;
    return mr_fail(err, MR_ERR_MISSING, "%s: no topk_ids of any layer of %s",
                   mr_safetensors_path(file), mr_case_name(from));
}

enum mr_status mr_profile_record(struct mr_case *from, const struct mr_safetensors *file,
                                 const struct mr_profile_row *row, struct mr_profile_record *out,
                                 struct mr_error *err)
{
    const struct mr_profile_row asked = mr_profile_asked(row);
    const struct mr_router *router = mr_case_router(from);
    struct comparison c = {.row = &asked, .router = router, .out = out};
    size_t n = router->experts > 0 ? (size_t)router->experts : 1;
    *out = (struct mr_profile_record){0};
    if (!mr_case_from_logits(from))
        return mr_fail(err, MR_ERR_UNSUPPORTED, "%s: starts from hidden states: a profile starts from "
                       "logits ('moeref export --logits' makes them)", mr_case_name(from));
    if (router->top_k > MOST_SLOTS)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "%s: top_k %d: at most %d", mr_case_name(from),
                       router->top_k, MOST_SLOTS);
    enum mr_status status = rows_of(file, &c.batch.rows, err);
    if (status) return status;
    float *bias = malloc(n * sizeof *bias);
    c.logits = malloc(n * sizeof *c.logits);
    status = mr_profile_scratch_new(router->experts, &c.scratch);
    if (!bias || !c.logits) status = MR_ERR_MEMORY;
    if (status) mr_fail(err, status, "%s: out of memory", mr_case_name(from));
    else status = compare_case(&c, from, file, bias, err);
    mr_profile_scratch_free(&c.scratch);
    free(bias);
    free(c.logits);
    return status;
}
