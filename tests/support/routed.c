#include "routed.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/num/num.h"

uint64_t routed_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double routed_uniform(uint64_t *state)
{
    return (double)(int64_t)routed_random(state) * 0x1p-63;
}

double routed_normal(uint64_t *state)
{
    return routed_uniform(state) + routed_uniform(state) + routed_uniform(state);
}

static void *get(size_t count, size_t size)
{
    void *p = calloc(count + 1, size);
    if (!p) abort();
    return p;
}

static struct mr_matrix matrix(size_t rows, size_t cols, enum mr_dtype dtype)
{
    return (struct mr_matrix){get(rows * cols, dtype == MR_F32 ? 4 : 2), dtype, rows, cols};
}

struct problem *problem_new(enum mr_score score, int experts, int top_k, int hidden, size_t tokens,
                            enum mr_dtype x, enum mr_dtype w, bool bias)
{
    struct problem *p = get(1, sizeof *p);
    p->router = (struct mr_router){.experts = experts,
                                   .top_k = top_k,
                                   .hidden = hidden,
                                   .score = score,
                                   .bias = bias,
                                   .n_group = 1,
                                   .topk_group = 1,
                                   .norm_topk_prob = true,
                                   .routed_scaling_factor = 1};
    p->layer.router = &p->router;
    if (hidden) {
        p->layer.hidden = matrix(tokens, (size_t)hidden, x);
        p->layer.gate = matrix((size_t)experts, (size_t)hidden, w);
    } else {
        p->layer.logits = matrix(tokens, (size_t)experts, x);
    }
    if (bias) p->layer.bias = p->bias = get((size_t)experts, sizeof *p->bias);
    p->name = "made";
    return p;
}

void problem_free(struct problem *p)
{
    free((void *)p->layer.hidden.data);
    free((void *)p->layer.gate.data);
    free((void *)p->layer.logits.data);
    free(p->bias);
    free(p);
}

void problem_set(struct mr_matrix *m, size_t row, size_t column, double value)
{
    size_t at = row * m->cols + column;
    float wide = (float)value;
    uint16_t half = m->dtype == MR_F16 ? mr_fp16_encode(value, MR_RNE, MR_OVERFLOW_IEEE)
                                       : mr_bf16_encode(value, MR_RNE, MR_OVERFLOW_IEEE);
    if (m->dtype == MR_F32)
        memcpy((char *)m->data + 4 * at, &wide, 4);
    else
        memcpy((char *)m->data + 2 * at, &half, 2);
}

void problem_fill(struct mr_matrix *m, double size, uint64_t *state)
{
    for (size_t i = 0; i < m->rows; i++)
        for (size_t j = 0; j < m->cols; j++) problem_set(m, i, j, size * routed_normal(state));
}

void problem_fill_bias(struct problem *p, double size, uint64_t *state)
{
    for (int e = 0; e < p->router.experts; e++) p->bias[e] = (float)(size * routed_normal(state));
}

struct problem *problem_normal(enum mr_score score, int experts, int top_k, int hidden,
                               size_t tokens, enum mr_dtype x, enum mr_dtype w, bool bias,
                               uint64_t *state, const char *name)
{
    struct problem *p = problem_new(score, experts, top_k, hidden, tokens, x, w, bias);
    problem_fill(&p->layer.hidden, 1, state);
    problem_fill(&p->layer.gate, 2 / sqrt(hidden), state);
    if (bias) problem_fill_bias(p, 0.1, state);
    p->name = name;
    return p;
}

double problem_norm(const struct mr_matrix *m, size_t row)
{
    double sum = 0;
    for (size_t j = 0; j < m->cols; j++) {
        double v = brute_element(m, row, j);
        sum += v * v;
    }
    return sqrt(sum);
}

struct mr_layer problem_slice(const struct mr_layer *layer, size_t first, size_t rows)
{
    struct mr_layer l = *layer;
    struct mr_matrix *m = l.logits.data ? &l.logits : &l.hidden;
    m->data = (const char *)m->data + first * m->cols * (m->dtype == MR_F32 ? 4 : 2);
    m->rows = rows;
    return l;
}

static enum mr_status keep_rows(void *context, const struct mr_rows *r, struct mr_error *err)
{
    struct answers *a = context;
    size_t k = (size_t)a->top_k;
    if (r->first + r->rows > a->rows) return mr_fail(err, MR_ERR_USAGE, "rows out of range");
    memcpy(a->ids + r->first * k, r->ids, r->rows * k * sizeof *a->ids);
    memcpy(a->weights + r->first * k, r->weights, r->rows * k * sizeof *a->weights);
    memcpy(a->gap + r->first, r->gap, r->rows * sizeof *a->gap);
    memcpy(a->radius + r->first, r->gap_radius, r->rows * sizeof *a->radius);
    memcpy(a->certificate + r->first, r->certificate, r->rows);
    for (size_t i = 0; i < r->rows; i++) a->seen[r->first + i]++;
    return MR_OK;
}

static enum mr_status keep_tie(void *context, const struct mr_tie *t, struct mr_error *err)
{
    (void)err;
    struct answers *a = context;
    a->ties = realloc(a->ties, (a->tie_count + 1) * sizeof *a->ties);
    if (!a->ties) abort();
    struct kept_tie *k = &a->ties[a->tie_count++];
    *k = (struct kept_tie){t->token, t->slots, t->count, get((size_t)t->count, sizeof(int))};
    memcpy(k->experts, t->experts, (size_t)t->count * sizeof(int));
    return MR_OK;
}

static enum mr_status keep_emulated(void *context, size_t token, size_t arith, const int *chosen,
                                    struct mr_error *err)
{
    (void)err;
    struct answers *a = context;
    size_t k = (size_t)a->top_k;
    memcpy(a->chosen + (token * a->arith_count + arith) * k, chosen, k * sizeof *chosen);
    return MR_OK;
}

static void drop_ties(struct answers *a)
{
    for (size_t i = 0; i < a->tie_count; i++) free(a->ties[i].experts);
    free(a->ties);
    a->ties = NULL;
    a->tie_count = 0;
}

static void forget(void *context)
{
    struct answers *a = context;
    a->restarts++;
    memset(a->seen, 0, a->rows);
    drop_ties(a);
}

enum mr_status routed_try(const struct mr_layer *layer, const struct mr_route_options *options,
                          struct answers *a, struct mr_error *err)
{
    struct mr_route_options o = options ? *options : (struct mr_route_options){.threads = 1};
    size_t rows = layer->logits.data ? layer->logits.rows : layer->hidden.rows;
    size_t k = layer->router->top_k > 0 ? (size_t)layer->router->top_k : 1;
    *a = (struct answers){.rows = rows, .top_k = (int)k, .arith_count = o.arith_count};
    a->ids = get(rows * k, sizeof *a->ids);
    a->weights = get(rows * k, sizeof *a->weights);
    a->gap = get(rows, sizeof *a->gap);
    a->radius = get(rows, sizeof *a->radius);
    a->certificate = get(rows, 1);
    a->seen = get(rows, 1);
    a->chosen = get(rows * o.arith_count * k, sizeof *a->chosen);
    a->flips = get(o.arith_count, sizeof *a->flips);
    o.rows = keep_rows;
    o.tie = keep_tie;
    o.emulated = o.arith_count ? keep_emulated : NULL;
    o.restart = forget;
    o.context = a;
    return mr_route_layer(layer, &o, &a->result, a->flips, err);
}

void routed(const struct mr_layer *layer, const struct mr_route_options *options, struct answers *a)
{
    struct mr_error err = {{0}};
    enum mr_status status = routed_try(layer, options, a, &err);
    ck_assert_msg(!status, "%s: %s", mr_status_name(status), err.text);
    for (size_t t = 0; t < a->rows; t++) ck_assert_int_eq(a->seen[t], 1);
}

void answers_free(struct answers *a)
{
    drop_ties(a);
    free(a->ids);
    free(a->weights);
    free(a->gap);
    free(a->radius);
    free(a->certificate);
    free(a->seen);
    free(a->chosen);
    free(a->flips);
}

static void expect_tie(const struct answers *a, size_t token, const struct brute *b,
                       const char *name)
{
    bool tie = a->certificate[token] == MR_CERT_TIE;
    ck_assert_msg(tie == (b->tie_count > 0), "%s, token %zu: certificate %s, brute force: %s", name,
                  token, mr_certificate_name(a->certificate[token]), b->tie_count ? "tie" : "none");
    int reported = 0;
    for (size_t i = 0; i < a->tie_count; i++) {
        const struct kept_tie *t = &a->ties[i];
        if (t->token != token) continue;
        reported++;
        ck_assert_msg(t->count == b->tie_count && t->slots == b->tie_slots &&
                          !memcmp(t->experts, b->tied, (size_t)t->count * sizeof(int)),
                      "%s, token %zu: %d of %d tied experts, expected %d of %d", name, token,
                      t->slots, t->count, b->tie_slots, b->tie_count);
    }
    ck_assert_int_eq(reported, tie);
}

static void expect_gap(const struct answers *a, size_t token, const struct brute *b,
                       const char *name)
{
    double gap = a->gap[token], radius = a->radius[token];
    if (b->top_k == b->experts) {
        ck_assert_msg(isinf(gap) && gap > 0, "%s, token %zu: gap %g", name, token, gap);
        return;
    }
    mpfr_t d;
    mpfr_init2(d, mpfr_get_prec(b->gap));
    mpfr_sub_d(d, b->gap, gap, MPFR_RNDN);
    ck_assert_msg(gap >= 0 && radius >= 0 && mpfr_number_p(d) && mpfr_cmp_d(d, radius) <= 0 &&
                      mpfr_cmp_d(d, -radius) >= 0,
                  "%s, token %zu: gap %.17g +- %.3g, off by %.3g", name, token, gap, radius,
                  mpfr_get_d(d, MPFR_RNDN));
    ck_assert_msg(radius <= 1e-12 || radius <= 0x1p-53 * gap * (1 + 0x1p-20),
                  "%s, token %zu: gap %.17g with a radius of %.3g", name, token, gap, radius);
    mpfr_clear(d);
}

static void expect_weight(double w, const mpfr_t truth, bool exact, const char *name, size_t token)
{
    double right = mpfr_get_d(truth, MPFR_RNDN);
    double ulp = nextafter(fabs(right), HUGE_VAL) - fabs(right);
    double most = exact ? 0 : MR_WEIGHT_ULPS * ulp;
    ck_assert_msg(fabs(w - right) <= most, "%s, token %zu: weight %.17g, expected %.17g (%s)", name,
                  token, w, right, exact ? "correctly rounded" : "within 4 ulp");
}

void expect_truth(const struct mr_layer *layer, const struct answers *a, size_t token,
                  bool exact_weights, const char *name)
{
    struct brute b;
    size_t k = (size_t)a->top_k;
    brute_route(layer, token, &b);
    const int32_t *ids = a->ids + token * k;
    ck_assert_msg(b.nonfinite == (a->certificate[token] == MR_CERT_NONFINITE),
                  "%s, token %zu: certificate %s", name, token,
                  mr_certificate_name(a->certificate[token]));
    if (b.nonfinite) {
        ck_assert(isnan(a->gap[token]));
        for (size_t i = 0; i < k; i++) ck_assert(ids[i] == -1 && isnan(a->weights[token * k + i]));
    } else {
        ck_assert_msg(!b.unsure, "%s, token %zu: brute force is unsure", name, token);
        for (size_t i = 0; i < k; i++)
            ck_assert_msg(ids[i] == b.order[i], "%s, token %zu: id %zu is %d, expected %d (%s)",
                          name, token, i, ids[i], b.order[i],
                          mr_certificate_name(a->certificate[token]));
        ck_assert_msg(a->certificate[token] != MR_CERT_UNDECIDED, "%s, token %zu: undecided", name,
                      token);
        expect_tie(a, token, &b, name);
        expect_gap(a, token, &b, name);
        for (size_t i = 0; i < k; i++)
            expect_weight(a->weights[token * k + i], b.weight[i], exact_weights, name, token);
    }
    brute_free(&b);
}

void expect_all(const struct problem *p)
{
    for (int exact = 0; exact < 2; exact++) {
        struct answers a;
        routed(&p->layer, &(struct mr_route_options){.threads = 1, .exact_weights = exact}, &a);
        ck_assert_uint_eq(a.result.blas_wrong, 0);
        for (size_t t = 0; t < a.rows; t++) expect_truth(&p->layer, &a, t, exact, p->name);
        answers_free(&a);
    }
}

void expect_same(const struct answers *a, size_t first_a, const struct answers *b, size_t first_b,
                 size_t rows, bool gap_bits, const char *name)
{
    size_t k = (size_t)a->top_k;
    for (size_t t = 0; t < rows; t++) {
        size_t i = first_a + t, j = first_b + t;
        ck_assert_msg(!memcmp(a->ids + i * k, b->ids + j * k, k * sizeof *a->ids),
                      "%s: ids of tokens %zu and %zu differ", name, i, j);
        ck_assert_msg(!memcmp(a->weights + i * k, b->weights + j * k, k * sizeof *a->weights),
                      "%s: weights of tokens %zu and %zu differ, the first %.17g and %.17g", name,
                      i, j, a->weights[i * k], b->weights[j * k]);
        bool near = fabs(a->gap[i] - b->gap[j]) <= a->radius[i] + b->radius[j];
        bool same = !memcmp(&a->gap[i], &b->gap[j], sizeof *a->gap);
        ck_assert_msg(same || (near && !gap_bits), "%s: gaps of tokens %zu and %zu: %.17g, %.17g",
                      name, i, j, a->gap[i], b->gap[j]);
    }
}
