#include "fake_token.h"

#include <check.h>
#include <math.h>
#include <string.h>

void fake_new(struct fake_token *t, int experts, int top_k)
{
    memset(t, 0, sizeof *t);
    ck_assert(experts <= FAKE_EXPERTS && top_k <= FAKE_TOP_K);
    t->router = (struct mr_router){.experts = experts, .top_k = top_k, .n_group = 1,
                                   .topk_group = 1, .bias = true, .norm_topk_prob = true,
                                   .routed_scaling_factor = 1};
}

/* The topk_group best groups by top-2 sums or largest key, the lowest among equals. */
static void keep_groups(const struct fake_token *t, bool *stays)
{
    const struct mr_router *r = &t->router;
    int size = r->experts / r->n_group;
    double score[FAKE_EXPERTS];
    for (int g = 0; g < r->n_group; g++) {
        double first = -HUGE_VAL, second = -HUGE_VAL;
        for (int e = g * size; e < (g + 1) * size; e++) {
            double k = t->key[e];
            if (k > first) {
                second = first;
                first = k;
            } else if (k > second) {
                second = k;
            }
        }
        score[g] = r->group_score == MR_GROUP_MAX ? first : first + second;
        stays[g] = false;
    }
    for (int n = 0; n < r->topk_group; n++) {
        int best = -1;
        for (int g = 0; g < r->n_group; g++)
            if (!stays[g] && (best < 0 || score[g] > score[best])) best = g;
        stays[best] = true;
    }
}

void fake_certify(struct fake_token *t)
{
    const struct mr_router *r = &t->router;
    bool stays[FAKE_EXPERTS], taken[FAKE_EXPERTS] = {false};
    int size = r->experts / r->n_group;
    keep_groups(t, stays);
    t->routed = (struct mr_routed){.ids = t->ids, .ties = t->ties, .certificate = MR_CERT_EXACT};
    for (int i = 0; i <= r->top_k; i++) {
        int best = -1;
        for (int e = 0; e < r->experts; e++)
            if (stays[e / size] && !taken[e] && (best < 0 || t->key[e] > t->key[best])) best = e;
        if (i == r->top_k || best < 0) {
            if (best < 0 || t->key[best] < t->key[t->ids[i - 1]]) break;
            t->routed.certificate = MR_CERT_TIE;
            for (int e = 0; e < r->experts; e++)
                if (stays[e / size] && !(t->key[e] < t->key[best] || t->key[e] > t->key[best])) {
                    t->ties[t->routed.tie_count++] = e;
                    t->routed.tie_slots += taken[e];
                }
            break;
        }
        taken[best] = true;
        t->ids[i] = best;
    }
}

static enum mr_status keys(void *context, const int *experts, int count, enum mr_effort effort,
                           struct mr_judge_key *out)
{
    struct fake_token *t = context;
    double wide = effort == MR_EFFORT_NORM ? 2 : 1; /* the cheap radius is larger */
    t->key_calls++;
    for (int i = 0; i < count; i++) {
        double r = wide * t->radius[experts[i]];
        out[i] = (struct mr_judge_key){.key = {t->key[experts[i]], 0}, .down = r, .up = r};
    }
    return MR_OK;
}

static enum mr_status weights(void *context, const int *experts, bool certified,
                              enum mr_effort effort, struct mr_judge_weight *out)
{
    struct fake_token *t = context;
    double wide = effort == MR_EFFORT_NORM ? 2 : effort == MR_EFFORT_LEAST ? 0.5 : 1;
    (void)certified;
    t->weight_calls++;
    for (int i = 0; i < t->router.top_k; i++) {
        double w = t->weight[experts[i]], r = wide * t->weight_radius[experts[i]];
        out[i] = (struct mr_judge_weight){w, w - r, w + r};
    }
    return MR_OK;
}

struct mr_judge_source fake_source(struct fake_token *t)
{
    return (struct mr_judge_source){t, keys, NULL, weights};
}

struct mr_judgement fake_judge(struct fake_token *t, const int64_t *ids, const double *w,
                               bool ordered)
{
    struct mr_judge *j;
    struct mr_judgement out;
    struct mr_claim claim = {ids, t->router.top_k, w, ordered};
    struct mr_judge_source source = fake_source(t);
    t->key_calls = t->weight_calls = 0;
    ck_assert_int_eq(mr_judge_new(&t->router, &j), MR_OK);
    /* Twice: nothing may be left over from the token before. */
    ck_assert_int_eq(mr_judge_token(j, &t->routed, &claim, &source, &out), MR_OK);
    ck_assert_int_eq(mr_judge_token(j, &t->routed, &claim, &source, &out), MR_OK);
    mr_judge_free(j);
    return out;
}

void fake_right(const struct fake_token *t, int64_t *ids, double *w)
{
    for (int i = 0; i < t->router.top_k; i++) {
        ids[i] = t->ids[i];
        if (w) w[i] = t->weight[t->ids[i]];
    }
}
