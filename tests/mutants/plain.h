/* A right router in binary32, step by step, each step replaceable: a mutant is this with one step
 * gone wrong. Every function is computed in binary64 and rounded once. */
#ifndef TESTS_MUTANT_PLAIN_H
#define TESTS_MUTANT_PLAIN_H

#include "mutant.h"

struct plain {
    const struct mr_router *router;
    float (*logit)(float logit); /* what becomes of the given logit; NULL: nothing */
    float (*score)(float logit); /* NULL: the router's */
    bool softmax;                /* the score is a softmax over all experts */
    float (*bias)(float bias);   /* as the kernel holds it; NULL: as given */
    float (*key)(float key, int expert);             /* NULL: as it is */
    float (*group)(const float *keys, int n);        /* score of a group */
    float mask;                                      /* key of experts of excluded groups */
    /* ids[i] = expert of the i-th slot; keys may be overwritten. */
    void (*select)(float *keys, int experts, int k, int32_t *ids);
    bool weight_from_key;        /* weight = (score + bias) - bias */
    float (*denominator)(const float *weights, int k);
    float (*scale)(const struct mr_router *router, float weight);
};

struct plain plain_new(const struct mr_router *router);
void plain_token(const struct plain *p, const float *logits, const float *bias, int32_t *ids,
                 float *weights);
/* All tokens of an input. */
void plain_run(const struct plain *p, const struct mutant_input *in, int32_t *ids, float *weights);

/* The steps of a right router. */
float plain_sigmoid(float x);
float plain_softplus(float x); /* sqrt(log(1 + exp x)) */
float plain_top2(const float *keys, int n);
void plain_select(float *keys, int experts, int k, int32_t *ids); /* lowest id among equals */
float plain_denominator(const float *weights, int k); /* sum + 1e-20 */
float plain_scale(const struct mr_router *router, float weight);

float plain_bf16(float x); /* rounded to bf16 */

#endif
