#include "replay_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/arith/mma.h"
#include "../ref/num/num.h"
#include "common.h"

static void parse_line(const char *line, struct mr_arith *out)
{
    struct mr_error err = {{0}};
    enum mr_status status = mr_arith_parse(line, out, &err);
    if (status) die(mr_status_exit(status), "replay: %s", err.text);
}

/* The line that the case has for a phase: "replay", else "arith" if that says how the sum is made.
 */
static const char *own_line(const struct mr_case *c, const char *phase)
{
    const char *line = mr_case_replay(c, phase);
    if (line) return line;
    struct mr_arith a;
    line = mr_case_arith(c);
    if (line) parse_line(line, &a);
    if (!line || a.sum.leaf == MR_LEAF_EXACT)
        die(2,
            "replay: %s has no \"replay\" line for phase '%s'%s: say --arith A, such as "
            "hopper-bf16/runs:3x64 or fma/deal:6x8",
            mr_case_name(c), phase, line ? ", and its \"arith\" holds no sum" : "");
    return line;
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

static void run_line(const struct replay_request *q, const struct mr_case_layer *l,
                     const struct mr_gemm *gemm, const char *line, struct mr_replay_report *r)
{
    struct mr_arith arith;
    struct mr_error err = {{0}};
    struct mr_replay *replay = NULL;
    struct mr_matrix observed = matrix_of(&l->logits);
    struct mr_replay_group *g = &r->group[r->count++];
    parse_line(line, &arith);
    *g = (struct mr_replay_group){.layer = l->layer,
                                  .phase = l->phase,
                                  .type = arith.logits,
                                  .rows = observed.rows,
                                  .experts = observed.cols,
                                  .mark = ""};
    if (mr_case_layer_count(q->c) > 1)
        snprintf(g->name, sizeof g->name, "%.70s layer %d", l->phase, l->layer);
    else
        snprintf(g->name, sizeof g->name, "%.90s", l->phase);
    mr_arith_print(&arith, g->arith, sizeof g->arith);
    if (arith.sum.leaf == MR_LEAF_MMA) g->mark = mr_mma_mark(arith.sum.mma);
    enum mr_status status = mr_replay_new(&arith, gemm, &replay, &err);
    if (!status) status = mr_replay_compare(replay, &observed, q->threads, &g->tally, &err);
    if (status)
        die(mr_status_exit(status), "replay: layer %d, phase %s, %s: %s", l->layer, l->phase,
            g->arith, err.text);
    mr_replay_free(replay);
    mr_replay_tally_add(&r->total, &g->tally);
}

static void run_layer(const struct replay_request *q, int layer, const char *phase,
                      struct mr_replay_report *r)
{
    struct mr_case_layer l;
    struct mr_error err = {{0}};
    enum mr_status status = mr_case_get(q->c, layer, phase, &l, &err);
    if (status) die_of(status, &err);
    if (l.logits.data) {
        float *bias = gate_bias_of(&l);
        struct mr_gemm gemm = {
            .hidden = matrix_of(&l.hidden), .gate = matrix_of(&l.gate), .gate_bias = bias};
        for (size_t i = 0; i < q->arith_count; i++) run_line(q, &l, &gemm, q->arith[i], r);
        if (!q->arith_count) run_line(q, &l, &gemm, own_line(q->c, phase), r);
        free(bias);
    }
    mr_case_release(q->c, layer, phase);
}

static void check_asked(const struct replay_request *q)
{
    bool known = !q->phase;
    for (size_t p = 0; p < mr_case_phase_count(q->c); p++)
        if (q->phase && !strcmp(q->phase, mr_case_phase(q->c, p))) known = true;
    if (!known) die(3, "%s: no phase '%s'", mr_case_name(q->c), q->phase);
    need_layers(q->c, q->layers);
    if (mr_case_from_logits(q->c))
        die(3, "replay: %s: its input is logits: nothing made them that could be replayed",
            mr_case_name(q->c));
    /* Before the work, not after hours of it. */
    struct mr_arith ignored;
    for (size_t i = 0; i < q->arith_count; i++) parse_line(q->arith[i], &ignored);
}

void replay_all(const struct replay_request *q, struct mr_replay_report *r)
{
    size_t phases = mr_case_phase_count(q->c), layers = mr_case_layer_count(q->c);
    check_asked(q);
    *r = (struct mr_replay_report){.case_name = mr_case_name(q->c)};
    r->group = need(phases * layers * (q->arith_count + 1), sizeof *r->group);
    for (size_t p = 0; p < phases; p++) {
        const char *phase = mr_case_phase(q->c, p);
        if (q->phase && strcmp(phase, q->phase)) continue;
        for (size_t i = 0; i < layers; i++) {
            int layer = mr_case_layer_number(q->c, i);
            if (!layer_listed(q->layers, layer) || !mr_case_has(q->c, layer, phase)) continue;
            if (q->progress) fprintf(stderr, "\rlayer %d, %s   ", layer, phase);
            run_layer(q, layer, phase, r);
        }
    }
    if (q->progress) fputs("\r\033[K", stderr);
    if (!r->count)
        die(3, "%s: nothing to replay: no observed logits of a layer and phase asked for",
            r->case_name);
}
