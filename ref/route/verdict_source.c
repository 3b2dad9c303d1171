#include "verdict_source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../num/num.h"

struct mr_figures {
    const struct mr_router *router;
    const struct mr_inspection *t;
    struct mr_error_model model;
    struct mr_radius_row row; /* softmax over all experts only */
    bool untouched; /* the certifier still holds the certified keys, in its order */
    size_t terms;   /* elements of the hidden states that are not zero; SIZE_MAX: not counted yet */
    float *gate_row;                    /* [hidden] */
    /* What sum_products gave for this token, [experts]: it is the same for all sources and models,
     * and by far the dearest figure. Of the token if its stamp is the token's. */
    struct summed {
        double magnitude;
        size_t terms, stamp;
    } *summed;
    size_t stamp;
    int *all;                           /* [experts] 0, 1, ... */
    struct mr_radius_expert *selected;  /* [top_k] */
    struct mr_weight *weight;           /* [top_k] */
};

enum mr_status mr_figures_new(const struct mr_router *router, size_t hidden,
                              struct mr_figures **out)
{
    struct mr_figures *f = calloc(1, sizeof *f);
    size_t k = (size_t)router->top_k;
    *out = NULL;
    if (!f) return MR_ERR_MEMORY;
    f->router = router;
    f->gate_row = malloc((hidden + 1) * sizeof *f->gate_row);
    f->all = malloc((size_t)router->experts * sizeof *f->all);
    f->summed = calloc((size_t)router->experts, sizeof *f->summed);
    f->selected = malloc(k * sizeof *f->selected);
    f->weight = malloc(k * sizeof *f->weight);
    if (!f->gate_row || !f->all || !f->summed || !f->selected || !f->weight) {
        mr_figures_free(f);
        return MR_ERR_MEMORY;
    }
    for (int e = 0; e < router->experts; e++) f->all[e] = e;
    *out = f;
    return MR_OK;
}

void mr_figures_free(struct mr_figures *f)
{
    if (!f) return;
    free(f->gate_row);
    free(f->all);
    free(f->summed);
    free(f->selected);
    free(f->weight);
    free(f);
}

void mr_figures_token(struct mr_figures *f, const struct mr_inspection *t)
{
    f->t = t;
    f->stamp++;
    f->untouched = true;
    f->terms = SIZE_MAX;
}

/* Zero products do not round: only these make terms. (Zeros of the gate are counted by
 * MR_EFFORT_SUM alone; LEAST may excuse a little too much where they are many.) */
static size_t count_terms(const struct mr_token_source *s)
{
    size_t n = s->gate->stored.cols, terms = 0;
    for (size_t i = 0; i < n && s->dtype == MR_F32; i++) {
        uint32_t bits;
        memcpy(&bits, (const char *)s->hidden + 4 * i, 4);
        terms += (bits & 0x7fffffff) != 0;
    }
    for (size_t i = 0; i < n && s->dtype != MR_F32; i++) {
        uint16_t bits;
        memcpy(&bits, (const char *)s->hidden + 2 * i, 2);
        terms += (bits & 0x7fff) != 0;
    }
    return terms;
}

/* A binary16 or bfloat16 product of two is a binary32 number (22 and 16 bits). */
static bool narrow(enum mr_dtype d)
{
    return d == MR_BF16 || d == MR_F16;
}

/* Exponent of the last bit of subnormals, and of the least binade of normal numbers. */
static int least_ulp(enum mr_dtype d)
{
    return d == MR_BF16 ? -133 : d == MR_F16 ? -24 : -149;
}

static double least_normal(enum mr_dtype d)
{
    return d == MR_F16 ? 0x1p-14 : 0x1p-126;
}

/* radius.h: 0 unless an operand is subnormal in its format. Row facts tell a subnormal number only
 * from one above the least normal binade. */
static double floor_of(const struct mr_token_source *s, int expert)
{
    const struct mr_gate *g = s->gate;
    const struct mr_row_stats *w = &g->stats[expert];
    bool x_low = s->stats.max > 0 && s->stats.ulp <= least_ulp(s->dtype);
    bool w_low = w->max > 0 && w->ulp <= least_ulp(g->stored.dtype);
    if (!x_low && !w_low) return 0;
    return fmax(s->stats.max, least_normal(s->dtype)) *
           fmax(w->max, least_normal(g->stored.dtype));
}

/* Tensor-core sums and rounded operands look at subnormals; sums of binary32 products do not. */
static bool needs_floor(const struct mr_figures *f, bool exact)
{
    return exact || f->model.sum.exact || f->model.sum.operands > 0;
}

static double product_norm(const struct mr_token_source *s, double gate_norm)
{
    return s->stats.norm * gate_norm * (1 + 0x1p-51);
}

static void sum_products(struct mr_figures *f, int expert, struct mr_dot *dot)
{
    struct summed *known = &f->summed[expert];
    const struct mr_token_source *s = f->t->source;
    const struct mr_gate *g = s->gate;
    size_t n = g->stored.cols, bytes = mr_dtype_bits(g->stored.dtype) / 8;
    const float *w = f->gate_row;
    if (known->stamp == f->stamp) {
        dot->magnitude = known->magnitude;
        dot->terms = known->terms;
        return;
    }
    if (g->narrow) w = g->f32 + (size_t)expert * n;
    else
        mr_widen_f32((const char *)g->stored.data + (size_t)expert * n * bytes, g->stored.dtype, n,
                     f->gate_row);
    if (!s->widened) mr_widen_f64(s->hidden, s->dtype, n, s->wide);
    dot->magnitude = mr_dot_magnitude(s->wide, w, n, &dot->terms);
    *known = (struct summed){dot->magnitude, dot->terms, f->stamp};
}

static void describe(struct mr_figures *f, const struct mr_key *key, enum mr_effort effort,
                     struct mr_radius_expert *out)
{
    const struct mr_token_source *s = f->t->source;
    double hi = key->logit.hi, lo = fabs(key->logit.lo);
    *out = (struct mr_radius_expert){.logit = hi, .bias = key->bias};
    out->error = key->logit.complete ? lo : 2 * lo + 0x1p-104 * fabs(hi);
    if (f->model.sum.kind == MR_SUM_EXACT) return;
    if (f->terms == SIZE_MAX) f->terms = count_terms(s);
    out->dot.terms = f->terms;
    out->dot.exact = narrow(s->dtype) && narrow(s->gate->stored.dtype);
    out->dot.floor = needs_floor(f, out->dot.exact) ? floor_of(s, key->expert) : 0;
    if (effort == MR_EFFORT_LEAST) out->dot.magnitude = fabs(hi);
    else if (effort == MR_EFFORT_NORM)
        out->dot.magnitude = product_norm(s, s->gate->norm[key->expert]);
    else sum_products(f, key->expert, &out->dot);
    if (!s->gate_bias) return;
    out->dot.terms++;
    if (effort != MR_EFFORT_LEAST)
        out->dot.magnitude = nextafter(out->dot.magnitude + fabs(s->gate_bias[key->expert]),
                                       HUGE_VAL);
}

/* What all experts of a softmax share. Certification's scores are exp(logit - max) / z of the
 * filtered logits, so the largest one is 1 / z; each term is off by the filter's radius, of its own
 * logit and of the largest, and the sum of n terms by n u. */
static void make_row(struct mr_figures *f)
{
    const struct mr_token *t = f->t->of;
    const struct mr_token_source *s = f->t->source;
    int largest = 0, experts = f->router->experts;
    double most = 0, norm = 0;
    for (int e = 0; e < experts; e++) {
        if (t->logits[e] > t->logits[largest]) largest = e;
        if (fabs(t->logits[e]) > most) most = fabs(t->logits[e]);
        if (t->norm[e] > norm) norm = t->norm[e];
    }
    double filter = t->scale * norm + t->offset;
    f->row.max = t->logits[largest];
    f->row.z = 1 / f->t->certifier->score[largest];
    f->row.z_error = expm1(2 * filter) + ((double)experts + 8) * 0x1p-52 + 4 * most * 0x1p-53;
    struct mr_radius_expert e = {.logit = most, .error = filter};
    if (f->model.sum.kind != MR_SUM_EXACT) {
        const struct mr_gate *g = s->gate;
        e.dot = (struct mr_dot){g->stored.cols, product_norm(s, norm),
                                narrow(s->dtype) && narrow(g->stored.dtype), 0};
        for (int i = 0; i < experts && needs_floor(f, e.dot.exact); i++)
            e.dot.floor = fmax(e.dot.floor, floor_of(s, i));
        double bias = 0;
        for (int i = 0; i < experts && s->gate_bias; i++) bias = fmax(bias, fabs(s->gate_bias[i]));
        e.dot.terms += s->gate_bias != NULL;
        e.dot.magnitude = nextafter(e.dot.magnitude + bias, HUGE_VAL);
    }
    f->row.logit_radius = mr_logit_radius(&f->model, &e);
}

void mr_figures_model(struct mr_figures *f, const struct mr_error_model *model)
{
    f->model = *model;
    if (!f->t->source->gate) f->model.sum.kind = MR_SUM_EXACT;
    if (f->router->score == MR_SCORE_SOFTMAX && f->router->selection == MR_SELECT_SCORE)
        make_row(f);
}

static enum mr_status keys(void *context, const int *experts, int count, enum mr_effort effort,
                           struct mr_judge_key *out)
{
    struct mr_figures *f = context;
    const struct mr_certifier *c = f->t->certifier;
    f->untouched = false;
    enum mr_status status = mr_inspect_keys(f->t, experts, count);
    for (int i = 0; i < count && !status; i++) {
        const struct mr_key *k = &c->keys[i];
        struct mr_judge_key *o = &out[i];
        bool by_logit = f->router->selection == MR_SELECT_LOGIT;
        o->key = by_logit ? (struct mr_dd){k->logit.hi, k->logit.lo}
                          : mr_dd_add(k->score, (struct mr_dd){k->bias, 0});
        o->error = by_logit ? 0x1p-104 * fabs(k->logit.hi)
                            : fabs(k->score.hi) * (k->rel + c->common_rel) + 0x1p-1000;
        describe(f, k, effort, &o->expert);
        struct mr_interval v = mr_key_interval(&f->model, f->router, &f->row, &o->expert);
        o->down = o->key.hi - v.lo;
        o->up = v.hi - o->key.hi;
    }
    return status;
}

static double pair(void *context, const struct mr_judge_key *a, const struct mr_judge_key *b)
{
    struct mr_figures *f = context;
    return mr_pair_radius(&f->model, f->router, &f->row, &a->expert, &b->expert).radius;
}

/* The certified key of an expert, or the one that mr_inspect_keys has left at index i. */
static const struct mr_key *find(const struct mr_figures *f, int expert, int i)
{
    const struct mr_certifier *c = f->t->certifier;
    if (!f->untouched) return &c->keys[i];
    for (int s = 0; s < f->router->top_k; s++)
        if (c->keys[c->order[s]].expert == expert) return &c->keys[c->order[s]];
    return NULL;
}

static enum mr_status weights(void *context, const int *experts, bool certified,
                              enum mr_effort effort, struct mr_judge_weight *out)
{
    struct mr_figures *f = context;
    int k = f->router->top_k;
    if (!certified || !f->untouched) {
        f->untouched = false;
        enum mr_status status = mr_inspect_keys(f->t, experts, k);
        if (status) return status;
    }
    for (int i = 0; i < k; i++) describe(f, find(f, experts[i], i), effort, &f->selected[i]);
    enum mr_status status =
        mr_weight_radius(&f->model, f->router, &f->row, f->selected, k, f->weight, NULL);
    for (int i = 0; i < k && !status; i++)
        out[i] = (struct mr_judge_weight){f->weight[i].exact, f->weight[i].computed.lo,
                                          f->weight[i].computed.hi};
    return status;
}

struct mr_judge_source mr_figures_source(struct mr_figures *f)
{
    bool ranked = !f->t->of || !f->t->of->given; /* tid2eid gives experts, nothing ranks them */
    return (struct mr_judge_source){f, ranked ? keys : NULL, pair, weights};
}

enum mr_status mr_figures_swap_is_wrong(struct mr_figures *f, bool *wrong)
{
    const struct mr_routed *routed = f->t->routed;
    const struct mr_certifier *c = f->t->certifier;
    const int experts[2] = {routed->ids[f->router->top_k - 1], routed->rejected};
    f->untouched = *wrong = false;
    enum mr_status status = mr_inspect_keys(f->t, experts, 2);
    for (enum mr_effort effort = MR_EFFORT_NORM; !status && effort <= MR_EFFORT_SUM; effort++) {
        struct mr_radius_expert last, next;
        describe(f, &c->keys[0], effort, &last);
        describe(f, &c->keys[1], effort, &next);
        struct mr_pair p = mr_pair_radius(&f->model, f->router, &f->row, &last, &next);
        *wrong |= routed->gap - routed->gap_radius > p.radius;
        if (*wrong) break;
    }
    return status;
}

/* 0 inside the interval, else how far beyond. */
static double beyond(struct mr_interval v, double found)
{
    return found > v.hi ? found - v.hi : found < v.lo ? v.lo - found : 0;
}

enum mr_status mr_figures_logits(struct mr_figures *f, const double *found,
                                 struct mr_judgement *out, double *error)
{
    const struct mr_certifier *c = f->t->certifier;
    *out = mr_judgement_exact;
    *error = 0;
    f->untouched = false;
    enum mr_status status = mr_inspect_keys(f->t, f->all, f->router->experts);
    double most = 0;
    for (int e = 0; e < f->router->experts && !status; e++) {
        const struct mr_key *k = &c->keys[e];
        double off = fabs(found[e] - k->logit.hi), over = HUGE_VAL;
        struct mr_interval v = {NAN, NAN};
        for (enum mr_effort effort = MR_EFFORT_LEAST; effort <= MR_EFFORT_SUM; effort++) {
            struct mr_radius_expert x;
            describe(f, k, effort, &x);
            v = mr_logit_interval(&f->model, &x);
            if (isfinite(found[e])) over = beyond(v, found[e]);
            if (over == 0) break;
        }
        if (off > *error) *error = off;
        if (over == 0 || (out->verdict == MR_NONFINITE) || !(over > most)) continue;
        most = over;
        out->verdict = isfinite(found[e]) ? MR_WRONG : MR_NONFINITE;
        out->cause = MR_CAUSE_LOGIT;
        out->included = e;
        out->omitted_key = k->logit.hi;
        out->included_key = found[e];
        out->difference = off;
        out->radius = found[e] > k->logit.hi ? v.hi - k->logit.hi : k->logit.hi - v.lo;
    }
    return status;
}
