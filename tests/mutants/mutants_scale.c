/* Faults of the weights alone: which factor, how often, over which sum. */
#include "plain.h"

static float twice(const struct mr_router *router, float weight)
{
    return plain_scale(router, plain_scale(router, weight));
}

static float never(const struct mr_router *router, float weight)
{
    (void)router;
    return weight;
}

/* vllm#45037: the top-k scales, and so does its caller. */
void mutant_scaled_twice(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                         float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.scale = twice;
    plain_run(&p, in, ids, weights);
}

/* sglang#8333, #8364, #8511: each relies on the other. */
void mutant_scale_missing(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                          float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.scale = never;
    plain_run(&p, in, ids, weights);
}

/* sglang#28237: the shared expert's slot gets 1 / factor, to be multiplied by the factor later, and
 * nobody does. The slot is judged alone: a router of one expert, whose weight is 1. */
static float reciprocal(const struct mr_router *router, float weight)
{
    (void)router;
    return weight / 2.5f;
}

void mutant_shared_reciprocal(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                              float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.scale = reciprocal;
    plain_run(&p, in, ids, weights);
}

static float if_normalised(const struct mr_router *router, float weight)
{
    return router->norm_topk_prob ? plain_scale(router, weight) : weight;
}

/* A suspicion of SGLang's Python paths @000328a: the factor stands inside `if renormalize`. */
void mutant_scale_only_normalised(const struct mutant_input *in, bool repaired, int run,
                                  int32_t *ids, float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.scale = if_normalised;
    plain_run(&p, in, ids, weights);
}

static float first_half(const float *weights, int k)
{
    return plain_denominator(weights, k / 2);
}

/* vLLM-metax#270: right for every shape but 128 experts with top 8, where weights alone are wrong;
 * the report gives no cause. Here: a reduction over half of the lanes, of one instantiation. */
void mutant_sum_of_half(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                        float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired && in->router->experts == 128 && in->router->top_k == 8)
        p.denominator = first_half;
    plain_run(&p, in, ids, weights);
}
