/* The other half of brute_groups.h: routes with all callbacks kept, and compares. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "brute_groups.h"

int brute_groups_seen[MR_CERT_COUNT];

static void *get(size_t count, size_t size)
{
    void *p = calloc(count + 1, size);
    if (!p) abort();
    return p;
}

/* What the callbacks give. */
struct kept {
    int top_k;
    int32_t *ids;
    double *weights, *gap[4]; /* gap, radius, group gap, radius */
    uint8_t *certificate;
    struct mr_tie *ties; /* [tokens] */
    bool *has_tie;
};

static enum mr_status keep_rows(void *context, const struct mr_rows *r, struct mr_error *err)
{
    struct kept *a = context;
    size_t k = (size_t)a->top_k;
    const double *gap[] = {r->gap, r->gap_radius, r->group_gap, r->group_gap_radius};
    (void)err;
    memcpy(a->ids + r->first * k, r->ids, r->rows * k * sizeof *a->ids);
    memcpy(a->weights + r->first * k, r->weights, r->rows * k * sizeof *a->weights);
    for (int i = 0; i < 4; i++) memcpy(a->gap[i] + r->first, gap[i], r->rows * sizeof(double));
    memcpy(a->certificate + r->first, r->certificate, r->rows);
    return MR_OK;
}

static int *copy(const int *from, int count)
{
    int *to = get((size_t)count, sizeof *to);
    if (count) memcpy(to, from, (size_t)count * sizeof *to);
    return to;
}

static enum mr_status keep_tie(void *context, const struct mr_tie *t, struct mr_error *err)
{
    struct kept *a = context;
    (void)err;
    ck_assert(!a->has_tie[t->token]);
    a->has_tie[t->token] = true;
    a->ties[t->token] = *t;
    a->ties[t->token].experts = copy(t->experts, t->count);
    a->ties[t->token].groups = copy(t->groups, t->group_count);
    return MR_OK;
}

static struct kept kept_new(size_t tokens, int top_k)
{
    struct kept a = {.top_k = top_k};
    a.ids = get(tokens * (size_t)top_k, sizeof *a.ids);
    a.weights = get(tokens * (size_t)top_k, sizeof *a.weights);
    for (int i = 0; i < 4; i++) a.gap[i] = get(tokens, sizeof(double));
    a.certificate = get(tokens, 1);
    a.ties = get(tokens, sizeof *a.ties);
    a.has_tie = get(tokens, sizeof *a.has_tie);
    return a;
}

static void kept_free(struct kept *a, size_t tokens)
{
    for (size_t t = 0; t < tokens; t++) {
        free((void *)a->ties[t].experts);
        free((void *)a->ties[t].groups);
    }
    free(a->ids);
    free(a->weights);
    for (int i = 0; i < 4; i++) free(a->gap[i]);
    free(a->certificate);
    free(a->ties);
    free(a->has_tie);
}

static void expect_gap(const char *name, const char *what, size_t token, double gap, double radius,
                       const mpfr_t truth)
{
    if (mpfr_inf_p(truth)) {
        ck_assert_msg(isinf(gap) && gap > 0, "%s, token %zu: %s %g", name, token, what, gap);
        return;
    }
    mpfr_t d;
    mpfr_init2(d, mpfr_get_prec(truth));
    mpfr_sub_d(d, truth, gap, MPFR_RNDN);
    mpfr_abs(d, d, MPFR_RNDN);
    ck_assert_msg(gap >= 0 && mpfr_cmp_d(d, radius) <= 0,
                  "%s, token %zu: %s %.17g +- %g, off by %g", name, token, what, gap, radius,
                  mpfr_get_d(d, MPFR_RNDN));
    ck_assert_msg(radius <= 1e-12 || radius <= 0x1p-53 * gap * (1 + 0x1p-20),
                  "%s, token %zu: %s %g has a radius of %g", name, token, what, gap, radius);
    mpfr_clear(d);
}

static void expect_token(const struct problem *p, const struct kept *a, size_t t, bool exact)
{
    const char *name = p->name;
    const struct mr_router *r = &p->router;
    struct brute_group_truth b;
    const struct mr_tie none = {0}, *tie = a->has_tie[t] ? &a->ties[t] : &none;
    size_t k = (size_t)r->top_k;
    brute_groups_route(&p->layer, t, NULL, &b);
    bool ties = b.tie_count || b.group_tie_count;
    for (size_t i = 0; i < k; i++)
        ck_assert_msg(a->ids[t * k + i] == b.order[i],
                      "%s, token %zu: id %zu is %d, expected %d (%s)", name, t, i,
                      a->ids[t * k + i], b.order[i], mr_certificate_name(a->certificate[t]));
    ck_assert_msg(ties == (a->certificate[t] == MR_CERT_TIE) && ties == a->has_tie[t],
                  "%s, token %zu: certificate %s, %d experts and %d groups tie", name, t,
                  mr_certificate_name(a->certificate[t]), b.tie_count, b.group_tie_count);
    ck_assert_msg(
        tie->count == b.tie_count && tie->slots == b.tie_slots &&
            tie->group_count == b.group_tie_count && tie->group_slots == b.group_tie_slots,
        "%s, token %zu: %d of %d experts tie, %d of %d groups; expected %d of %d, %d of %d", name,
        t, tie->slots, tie->count, tie->group_slots, tie->group_count, b.tie_slots, b.tie_count,
        b.group_tie_slots, b.group_tie_count);
    for (int i = 0; i < tie->count; i++) ck_assert_int_eq(tie->experts[i], b.tied[i]);
    for (int i = 0; i < tie->group_count; i++) ck_assert_int_eq(tie->groups[i], b.group_tied[i]);
    expect_gap(name, "gap", t, a->gap[0][t], a->gap[1][t], b.gap);
    if (r->n_group == r->topk_group) mpfr_set_inf(b.group_gap, 1);
    expect_gap(name, "group gap", t, a->gap[2][t], a->gap[3][t], b.group_gap);
    for (size_t i = 0; i < k; i++) {
        double w = a->weights[t * k + i], right = mpfr_get_d(b.weight[i], MPFR_RNDN);
        double ulp = nextafter(fabs(right), HUGE_VAL) - fabs(right);
        ck_assert_msg(fabs(w - right) <= (exact ? 0 : MR_WEIGHT_ULPS * ulp),
                      "%s, token %zu: weight %zu is %.17g, expected %.17g", name, t, i, w, right);
    }
    brute_groups_free(&b);
}

static bool same_bytes(const struct kept *a, const struct kept *b, size_t tokens)
{
    size_t k = (size_t)a->top_k;
    bool same = !memcmp(a->ids, b->ids, tokens * k * sizeof *a->ids) &&
                !memcmp(a->weights, b->weights, tokens * k * sizeof *a->weights) &&
                !memcmp(a->certificate, b->certificate, tokens);
    for (int i = 0; i < 4; i++) same &= !memcmp(a->gap[i], b->gap[i], tokens * sizeof(double));
    return same;
}

int expect_groups(const struct problem *p, bool may_be_undecided)
{
    size_t tokens = p->layer.logits.data ? p->layer.logits.rows : p->layer.hidden.rows;
    struct kept all[3];
    int undecided = 0;
    for (int run = 0; run < 3; run++) {
        all[run] = kept_new(tokens, p->router.top_k);
        struct mr_route_options o = {.threads = run == 2 ? 3 : 1,
                                     .exact_weights = run == 1,
                                     .rows = keep_rows,
                                     .tie = keep_tie,
                                     .context = &all[run]};
        struct mr_route_result result;
        struct mr_error err = {{0}};
        enum mr_status status = mr_route_layer(&p->layer, &o, &result, NULL, &err);
        ck_assert_msg(!status, "%s: %s: %s", p->name, mr_status_name(status), err.text);
        ck_assert_uint_eq(result.blas_wrong, 0);
        for (size_t t = 0; t < tokens && run < 2; t++) {
            bool open = all[run].certificate[t] == MR_CERT_UNDECIDED;
            ck_assert_msg(!open || may_be_undecided, "%s, token %zu: undecided", p->name, t);
            if (run == 0) undecided += open;
            if (run == 0) brute_groups_seen[all[run].certificate[t]]++;
            if (!open) expect_token(p, &all[run], t, run == 1);
        }
    }
    ck_assert_msg(same_bytes(&all[0], &all[2], tokens), "%s: threads change the answer", p->name);
    for (int run = 0; run < 3; run++) kept_free(&all[run], tokens);
    return undecided;
}
