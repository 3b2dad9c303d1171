#include "plain.h"

#include <math.h>
#include <stdlib.h>

#include "../../ref/num/num.h"

enum { MOST_EXPERTS = 1024 };

float plain_bf16(float x)
{
    return mr_bf16_decode(mr_bf16_encode((double)x, MR_RNE, MR_OVERFLOW_IEEE));
}

float plain_sigmoid(float x)
{
    return (float)(1 / (1 + exp(-(double)x)));
}

float plain_softplus(float x)
{
    double d = x;
    return (float)sqrt(fmax(d, 0) + log1p(exp(-fabs(d))));
}

float plain_top2(const float *keys, int n)
{
    float first = -INFINITY, second = -INFINITY;
    for (int i = 0; i < n; i++) {
        if (keys[i] > first) {
            second = first;
            first = keys[i];
        } else if (keys[i] > second) {
            second = keys[i];
        }
    }
    return first + second;
}

static float group_max(const float *keys, int n)
{
    float first = -INFINITY;
    for (int i = 0; i < n; i++) first = keys[i] > first ? keys[i] : first;
    return first;
}

/* A NaN ranks below every number, and is there all the same: ids stay distinct. */
void plain_select(float *keys, int experts, int k, int32_t *ids)
{
    bool taken[MOST_EXPERTS] = {false};
    for (int slot = 0; slot < k; slot++) {
        int best = -1;
        for (int e = 0; e < experts; e++) {
            if (taken[e]) continue;
            if (best < 0 || keys[e] > keys[best] || (isnan(keys[best]) && !isnan(keys[e])))
                best = e;
        }
        taken[best] = true;
        ids[slot] = best;
    }
}

float plain_denominator(const float *weights, int k)
{
    double sum = 0;
    for (int i = 0; i < k; i++) sum += (double)weights[i];
    return (float)(sum + 1e-20);
}

float plain_scale(const struct mr_router *router, float weight)
{
    return (float)((double)weight * router->routed_scaling_factor);
}

struct plain plain_new(const struct mr_router *router)
{
    return (struct plain){
        .router = router,
        .score = router->score == MR_SCORE_SIGMOID         ? plain_sigmoid
                 : router->score == MR_SCORE_SQRT_SOFTPLUS ? plain_softplus
                                                           : NULL,
        .softmax = router->score == MR_SCORE_SOFTMAX,
        .group = router->group_score == MR_GROUP_MAX ? group_max : plain_top2,
        .mask = -INFINITY,
        .select = plain_select,
        .denominator = plain_denominator,
        .scale = plain_scale,
    };
}

static void softmax(const float *logits, const int32_t *which, int n, float *out)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) {
        double x = logits[which ? which[i] : i];
        max = x > max ? x : max;
    }
    for (int i = 0; i < n; i++) sum += exp((double)logits[which ? which[i] : i] - max);
    for (int i = 0; i < n; i++)
        out[i] = (float)(exp((double)logits[which ? which[i] : i] - max) / sum);
}

static void mask_groups(const struct plain *p, float *keys)
{
    int groups = p->router->n_group, n = p->router->experts / groups;
    float score[MOST_EXPERTS];
    int32_t best[MOST_EXPERTS];
    bool stays[MOST_EXPERTS] = {false};
    for (int g = 0; g < groups; g++) score[g] = p->group(keys + g * n, n);
    plain_select(score, groups, p->router->topk_group, best);
    for (int g = 0; g < p->router->topk_group; g++) stays[best[g]] = true;
    for (int e = 0; e < groups * n; e++)
        if (!stays[e / n]) keys[e] = p->mask;
}

void plain_token(const struct plain *p, const float *given, const float *bias, int32_t *ids,
                 float *weights)
{
    const struct mr_router *r = p->router;
    int experts = r->experts, k = r->top_k;
    bool by_logit = r->selection == MR_SELECT_LOGIT;
    float logits[MOST_EXPERTS], score[MOST_EXPERTS], held[MOST_EXPERTS], keys[MOST_EXPERTS];
    for (int e = 0; e < experts; e++) logits[e] = p->logit ? p->logit(given[e]) : given[e];
    if (p->softmax) softmax(logits, NULL, experts, score);
    else for (int e = 0; e < experts; e++) score[e] = p->score(logits[e]);
    for (int e = 0; e < experts; e++) {
        held[e] = bias ? p->bias ? p->bias(bias[e]) : bias[e] : 0;
        keys[e] = by_logit ? logits[e] : bias ? score[e] + held[e] : score[e];
        if (p->key) keys[e] = p->key(keys[e], e);
    }
    if (r->n_group > 1) mask_groups(p, keys);
    p->select(keys, experts, k, ids);
    for (int i = 0; i < k; i++) {
        float w = score[ids[i]];
        weights[i] = p->weight_from_key ? (w + held[ids[i]]) - held[ids[i]] : w;
    }
    if (by_logit && p->softmax) softmax(logits, ids, k, weights);
    else if (r->norm_topk_prob) {
        float d = p->denominator(weights, k);
        for (int i = 0; i < k; i++) weights[i] /= d;
    }
    for (int i = 0; i < k; i++) weights[i] = p->scale(r, weights[i]);
}

void plain_run(const struct plain *p, const struct mutant_input *in, int32_t *ids, float *weights)
{
    size_t k = (size_t)in->router->top_k, experts = (size_t)in->router->experts;
    for (size_t t = 0; t < in->tokens; t++)
        plain_token(p, in->logits + t * experts, in->bias, ids + t * k, weights + t * k);
}
