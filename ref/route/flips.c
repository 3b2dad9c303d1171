#include "flips.h"

#include <stdlib.h>
#include <string.h>

#include "../num/num.h"
#include "emulate.h"
#include "keys_simd.h"

/* Stages are shared by the arithmetics that agree on them; a token counter marks what is fresh. */
struct mr_emulator {
    int experts, top_k;
    size_t count;
    struct mr_arith *arith;
    uint64_t token;
    float *logits[MR_TYPE_COUNT], *scores[MR_TYPE_COUNT][MR_TYPE_COUNT];
    uint64_t logits_of[MR_TYPE_COUNT], scores_of[MR_TYPE_COUNT][MR_TYPE_COUNT];
    float *bias[MR_TYPE_COUNT]; /* rounded once, when the bias is first seen */
    const double *bias_of;
    float *key;
    double *exact_key, *error;
    uint8_t *mark;
    int *chosen; /* [count, top_k] */
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
    free(m->key);
    free(m->exact_key);
    free(m->error);
    free(m->mark);
    free(m->chosen);
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
    bool ok = (m->arith = malloc((count + 1) * sizeof *arith)) != NULL;
    for (int i = 0; i < MR_TYPE_COUNT; i++) {
        ok &= (m->logits[i] = malloc(n * sizeof(float))) != NULL;
        ok &= (m->bias[i] = malloc(n * sizeof(float))) != NULL;
        for (int j = 0; j < MR_TYPE_COUNT; j++)
            ok &= (m->scores[i][j] = malloc(n * sizeof(float))) != NULL;
    }
    ok &= (m->key = malloc(n * sizeof(float))) && (m->exact_key = malloc(n * sizeof(double))) &&
          (m->error = malloc(n * sizeof(double))) && (m->mark = calloc(n, 1)) &&
          (m->chosen = malloc((count + 1) * (size_t)top_k * sizeof(int))) &&
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

/* Share of the emulated weight on experts that no right set holds; *flip if the set is not right. */
static double judge(const struct mr_emulator *m, const struct mr_router *router,
                    const struct mr_arith *a, const int *chosen, const float *score,
                    const struct mr_routed *routed, bool *flip)
{
    int seen[3] = {0}, tied = 0;
    double sum = 0, all = 0, moved = 0;
    for (int i = 0; i < m->top_k; i++) {
        seen[m->mark[chosen[i]]]++;
        sum += score[chosen[i]];
    }
    *flip = seen[SURE] != m->top_k - routed->tie_slots || seen[TIED] != routed->tie_slots;
    if (!*flip) return 0;
    for (int i = 0; i < m->top_k; i++) {
        double w = (router->norm_topk_prob ? score[chosen[i]] / sum : score[chosen[i]]) *
                   router->routed_scaling_factor;
        if (a->weights != MR_TYPE_FP32) w = mr_round_sum(w, 0, mr_type_format(a->weights));
        all += w;
        /* Of more tied experts than have a place, the lowest ranked are the wrong ones. */
        int place = m->mark[chosen[i]];
        if (place == OUTSIDE || (place == TIED && ++tied > routed->tie_slots)) moved += w;
    }
    return all > 0 ? moved / all : 1; /* all scores zero or NaN: nothing of the weight is right */
}

static enum mr_status stage(struct mr_emulator *m, const struct mr_token *t,
                            const struct mr_arith *a, const float **score)
{
    enum mr_type l = a->logits, s = a->scores;
    enum mr_status status = MR_OK;
    if (m->logits_of[l] != m->token) {
        status = mr_stage_logits(t, m->experts, l, &m->scratch, m->logits[l]);
        m->logits_of[l] = m->token;
    }
    if (!status && m->scores_of[l][s] != m->token) {
        status = mr_stage_scores(t->router->score, m->logits[l], m->experts, s, &m->scratch,
                                 m->scores[l][s]);
        m->scores_of[l][s] = m->token;
    }
    *score = m->scores[l][s];
    return status;
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
    for (int i = 0; i < m->top_k; i++) m->mark[routed->ids[i]] = SURE;
    for (int i = 0; i < routed->tie_count; i++) m->mark[routed->ties[i]] = TIED;
    enum mr_status status = MR_OK;
    for (size_t i = 0; i < m->count && !status; i++) {
        const struct mr_arith *a = &m->arith[i];
        const float *score;
        status = stage(m, t, a, &score);
        if (status) break;
        MR_ISA_PICK(mr_emulated_keys)
        (score, t->bias ? m->bias[a->bias] : NULL, m->exact_key, (size_t)m->experts, m->key,
         m->error);
        mr_histogram_add(&flips[i].key_error, m->error, (size_t)m->experts);
        int *chosen = m->chosen + i * (size_t)m->top_k;
        MR_ISA_PICK(mr_select_top)(m->key, m->experts, m->top_k, chosen);
        bool flip;
        flips[i].weight_moved += judge(m, t->router, a, chosen, score, routed, &flip);
        flips[i].tokens++;
        flips[i].flips += flip;
    }
    for (int i = 0; i < m->top_k; i++) m->mark[routed->ids[i]] = OUTSIDE;
    for (int i = 0; i < routed->tie_count; i++) m->mark[routed->ties[i]] = OUTSIDE;
    return status;
}

const int *mr_emulator_choice(const struct mr_emulator *m, size_t i)
{
    return m->chosen + i * (size_t)m->top_k;
}
