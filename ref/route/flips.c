#include "flips.h"

#include <stdlib.h>
#include <string.h>

#include "../num/num.h"
#include "emulate.h"
#include "groups.h"
#include "keys_simd.h"
#include "score.h"

/* Stages are shared by the arithmetics that agree on them; a token counter marks what is fresh. */
struct mr_emulator {
    int experts, top_k;
    size_t count;
    struct mr_arith *arith;
    const float **replayed; /* [count] */
    float *finite, *own_scores; /* [experts], of replayed logits */
    uint64_t token;
    float *logits[MR_TYPE_COUNT], *scores[MR_TYPE_COUNT][MR_TYPE_COUNT];
    uint64_t logits_of[MR_TYPE_COUNT], scores_of[MR_TYPE_COUNT][MR_TYPE_COUNT];
    float *bias[MR_TYPE_COUNT]; /* rounded once, when the bias is first seen */
    const double *bias_of;
    float *key;
    double *exact_key, *error;
    uint8_t *mark;
    int *chosen; /* [count, top_k] */
    float *selected; /* [top_k] scores of the chosen */
    /* Groups. */
    float *group_score, *group_key;
    uint8_t *stays;
    int *group_expert;
    struct mr_certifier again; /* for another choice of tied groups; made when first needed */
    int32_t *again_ids;
    double *again_weights;
    struct mr_stage_scratch scratch;
};

void mr_emulator_free(struct mr_emulator *m)
{
    if (!m) return;
    for (int i = 0; i < MR_TYPE_COUNT; i++) {
        free(m->logits[i]);
        free(m->bias[i]);
        for (int j = 0; j < MR_TYPE_COUNT; j++) free(m->scores[i][j]);
    }
    free(m->arith);
    free(m->replayed);
    free(m->finite);
    free(m->own_scores);
    free(m->key);
    free(m->exact_key);
    free(m->error);
    free(m->mark);
    free(m->chosen);
    free(m->selected);
    free(m->group_score);
    free(m->group_key);
    free(m->stays);
    free(m->group_expert);
    mr_certifier_free(&m->again);
    free(m->again_ids);
    free(m->again_weights);
    free(m->scratch.a);
    free(m->scratch.b);
    free(m->scratch.c);
    free(m->scratch.undecided);
    free(m->scratch.keys);
    free(m);
}

enum mr_status mr_emulator_new(int experts, int top_k, const struct mr_arith *arith, size_t count,
                               struct mr_emulator **out)
{
    size_t n = (size_t)experts;
    struct mr_emulator *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return MR_ERR_MEMORY;
    m->experts = experts;
    m->top_k = top_k;
    m->count = count;
    bool ok = (m->arith = malloc((count + 1) * sizeof *arith)) &&
              (m->replayed = calloc(count + 1, sizeof *m->replayed)) &&
              (m->finite = malloc(n * sizeof(float))) &&
              (m->own_scores = malloc(n * sizeof(float)));
    for (int i = 0; i < MR_TYPE_COUNT; i++) {
        ok &= (m->logits[i] = malloc(n * sizeof(float))) != NULL;
        ok &= (m->bias[i] = malloc(n * sizeof(float))) != NULL;
        for (int j = 0; j < MR_TYPE_COUNT; j++)
            ok &= (m->scores[i][j] = malloc(n * sizeof(float))) != NULL;
    }
    ok &= (m->key = malloc(n * sizeof(float))) && (m->exact_key = malloc(n * sizeof(double))) &&
          (m->error = malloc(n * sizeof(double))) && (m->mark = calloc(n, 1)) &&
          (m->chosen = malloc((count + 1) * (size_t)top_k * sizeof(int))) &&
          (m->selected = malloc((size_t)top_k * sizeof(float))) &&
          (m->group_score = malloc(n * sizeof(float))) &&
          (m->group_key = malloc(n * sizeof(float))) && (m->stays = malloc(n)) &&
          (m->group_expert = malloc(n * sizeof(int))) &&
          (m->again_ids = malloc((size_t)top_k * sizeof(int32_t))) &&
          (m->again_weights = malloc((size_t)top_k * sizeof(double))) &&
          (m->scratch.a = malloc(n * sizeof(double))) &&
          (m->scratch.b = malloc(n * sizeof(double))) &&
          (m->scratch.c = malloc(n * sizeof(double))) && (m->scratch.undecided = malloc(n)) &&
          (m->scratch.keys = malloc(n * sizeof *m->scratch.keys));
    if (!ok) {
        mr_emulator_free(m);
        return MR_ERR_MEMORY;
    }
    if (count) memcpy(m->arith, arith, count * sizeof *arith);
    *out = m;
    return MR_OK;
}

enum { OUTSIDE = 0, SURE = 1, TIED = 2 };

/* Share of the emulated weight on experts that no right set holds; *flip if the set is not
 * right. */
static double judge(const struct mr_emulator *m, const struct mr_router *router,
                    const struct mr_arith *a, const int *chosen,
                    const struct mr_routed *routed, bool *flip)
{
    int seen[3] = {0}, tied = 0;
    double sum = 0, all = 0, moved = 0;
    for (int i = 0; i < m->top_k; i++) {
        seen[m->mark[chosen[i]]]++;
        sum += m->selected[i];
    }
    *flip = seen[SURE] != m->top_k - routed->tie_slots || seen[TIED] != routed->tie_slots;
    if (!*flip) return 0;
    for (int i = 0; i < m->top_k; i++) {
        double w = (router->norm_topk_prob ? m->selected[i] / sum : m->selected[i]) *
                   router->routed_scaling_factor;
        if (a->weights != MR_TYPE_FP32) w = mr_round_sum(w, 0, mr_type_format(a->weights));
        all += w;
        /* Of more tied experts than have a place, the lowest ranked are the wrong ones. */
        int place = m->mark[chosen[i]];
        if (place == OUTSIDE || (place == TIED && ++tied > routed->tie_slots)) moved += w;
    }
    return all > 0 ? moved / all : 1; /* all scores zero or NaN: nothing of the weight is right */
}

void mr_emulator_logits(struct mr_emulator *m, size_t i, const float *logits)
{
    m->replayed[i] = logits;
}

/* Scores [n] under a by its own code, or of logits that no other arithmetic has. A logit that is
 * NaN (a tensor-core step that met Inf - Inf) has a NaN for its score, and makes softmax NaN. */
static enum mr_status own_scores(struct mr_emulator *m, const struct mr_router *router,
                                 const struct mr_arith *a, const float *logits, int n, float *out)
{
    if (a->score) {
        mr_score_word_apply(a->score, logits, (size_t)n, out);
        for (int e = 0; e < n && a->scores != MR_TYPE_FP32; e++)
            if (isfinite(out[e]))
                out[e] = (float)mr_round_sum((double)out[e], 0, mr_type_format(a->scores));
        return MR_OK;
    }
    bool nan = false;
    for (int e = 0; e < n; e++) {
        m->finite[e] = isnan(logits[e]) ? 0 : logits[e];
        nan |= isnan(logits[e]);
    }
    enum mr_status status =
        mr_stage_scores(router->score, m->finite, n, a->scores, &m->scratch, out);
    for (int e = 0; e < n && nan; e++)
        if (isnan(logits[e]) || router->score == MR_SCORE_SOFTMAX) out[e] = NAN;
    return status;
}

/* *value: what ranks before the bias, scores or logits. */
static enum mr_status stage(struct mr_emulator *m, const struct mr_token *t, size_t i,
                            const float **value)
{
    const struct mr_arith *a = &m->arith[i];
    enum mr_type l = a->logits, s = a->scores;
    enum mr_status status = MR_OK;
    if (!m->replayed[i] && m->logits_of[l] != m->token) {
        status = mr_stage_logits(t, m->experts, l, &m->scratch, m->logits[l]);
        m->logits_of[l] = m->token;
    }
    *value = m->replayed[i] ? m->replayed[i] : m->logits[l];
    if (status || t->router->selection == MR_SELECT_LOGIT) return status;
    if (m->replayed[i] || a->score) {
        status = own_scores(m, t->router, a, *value, m->experts, m->own_scores);
        *value = m->own_scores;
        return status;
    }
    if (m->scores_of[l][s] != m->token) {
        status = mr_stage_scores(t->router->score, m->logits[l], m->experts, s, &m->scratch,
                                 m->scores[l][s]);
        m->scores_of[l][s] = m->token;
    }
    *value = m->scores[l][s];
    return status;
}

/* The scores of the chosen: those that ranked, or with MR_SELECT_LOGIT those of their logits
 * alone. */
static enum mr_status score_selected(struct mr_emulator *m, const struct mr_token *t,
                                     const struct mr_arith *a, const float *value,
                                     const int *chosen)
{
    for (int i = 0; i < m->top_k; i++) m->selected[i] = value[chosen[i]];
    if (t->router->selection != MR_SELECT_LOGIT) return MR_OK;
    for (int i = 0; i < m->top_k; i++) m->group_key[i] = m->selected[i];
    return own_scores(m, t->router, a, m->group_key, m->top_k, m->selected);
}

/* The largest keys, of the groups that stay. */
static void select_experts(struct mr_emulator *m, const struct mr_token *t,
                           const struct mr_routed *routed, int *chosen)
{
    const struct mr_router *r = t->router;
    if (t->given) {
        for (int i = 0; i < m->top_k; i++) chosen[i] = t->given[i];
    } else if (!mr_groups_compete(r)) {
        /* As many keys as are needed reach the least key of the certified experts. */
        float bar = m->key[routed->ids[0]];
        for (int i = 1; i < m->top_k; i++) bar = fminf(bar, m->key[routed->ids[i]]);
        MR_ISA_PICK(mr_select_top)
        (m->key, m->experts, m->top_k, isnan(bar) ? -HUGE_VALF : bar, chosen);
    } else {
        int count = 0, size = m->experts / r->n_group;
        mr_emulated_groups(r, m->key, m->group_score, m->stays);
        for (int e = 0; e < m->experts; e++) {
            if (!m->stays[e / size]) continue;
            m->group_expert[count] = e;
            m->group_key[count++] = m->key[e];
        }
        MR_ISA_PICK(mr_select_top)(m->group_key, count, m->top_k, -HUGE_VALF, chosen);
        for (int i = 0; i < m->top_k; i++) chosen[i] = m->group_expert[chosen[i]];
    }
}

/* Where groups tie: whether the emulated ones are as right, and then what is right inside them. */
static enum mr_status right_inside(struct mr_emulator *m, const struct mr_token *t,
                                   const struct mr_routed *routed, struct mr_routed *inside,
                                   const struct mr_routed **right)
{
    int n = t->router->n_group, other = 0;
    *right = routed;
    if (!routed->group_tie_count) return MR_OK;
    for (int g = 0; g < n; g++) {
        bool tied = false;
        for (int i = 0; i < routed->group_tie_count; i++) tied |= routed->group_ties[i] == g;
        if (m->stays[g] == routed->stays[g]) continue;
        if (!tied) return MR_OK;
        other++;
    }
    if (!other) return MR_OK;
    enum mr_status status = MR_OK;
    if (!m->again.experts) status = mr_certifier_new(m->experts, &m->again);
    if (status) return status;
    *inside = (struct mr_routed){.ids = m->again_ids, .weights = m->again_weights};
    *right = inside;
    return mr_certify_in(&m->again, t, m->stays, inside);
}

static void mark(struct mr_emulator *m, const struct mr_routed *routed, bool set)
{
    for (int i = 0; i < m->top_k; i++) m->mark[routed->ids[i]] = set ? SURE : OUTSIDE;
    for (int i = 0; i < routed->tie_count; i++) m->mark[routed->ties[i]] = set ? TIED : OUTSIDE;
}

static void round_bias(struct mr_emulator *m, const double *bias)
{
    if (m->bias_of == bias || !bias) return;
    m->bias_of = bias;
    for (int i = 0; i < MR_TYPE_COUNT; i++)
        for (int e = 0; e < m->experts; e++)
            m->bias[i][e] = (float)mr_round_sum(bias[e], 0, mr_type_format((enum mr_type)i));
}

enum mr_status mr_emulate(struct mr_emulator *m, const struct mr_certifier *c,
                          const struct mr_token *t, const struct mr_routed *routed,
                          struct mr_flips *flips)
{
    if (routed->certificate >= MR_CERT_UNDECIDED || !m->count) return MR_OK;
    m->token++;
    round_bias(m, t->bias);
    for (int e = 0; e < m->experts; e++)
        m->exact_key[e] = t->bias ? c->score[e] + t->bias[e] : c->score[e];
    enum mr_status status = MR_OK;
    for (size_t i = 0; i < m->count && !status; i++) {
        const struct mr_arith *a = &m->arith[i];
        const float *value;
        status = stage(m, t, i, &value);
        if (status) break;
        MR_ISA_PICK(mr_emulated_keys)
        (value, t->bias ? m->bias[a->bias] : NULL, m->exact_key, (size_t)m->experts, m->key,
         m->error);
        mr_histogram_add(&flips[i].key_error, m->error, (size_t)m->experts);
        int *chosen = m->chosen + i * (size_t)m->top_k;
        struct mr_routed inside;
        const struct mr_routed *right;
        bool flip;
        select_experts(m, t, routed, chosen);
        status = score_selected(m, t, a, value, chosen);
        if (!status) status = right_inside(m, t, routed, &inside, &right);
        if (status) break;
        mark(m, right, true);
        flips[i].weight_moved += judge(m, t->router, a, chosen, right, &flip);
        mark(m, right, false);
        flips[i].tokens++;
        flips[i].flips += flip;
    }
    return status;
}

const int *mr_emulator_choice(const struct mr_emulator *m, size_t i)
{
    return m->chosen + i * (size_t)m->top_k;
}

void mr_flips_add(struct mr_flips *to, const struct mr_flips *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i].tokens += from[i].tokens;
        to[i].flips += from[i].flips;
        to[i].weight_moved += from[i].weight_moved;
        mr_histogram_merge(&to[i].key_error, &from[i].key_error);
    }
}
