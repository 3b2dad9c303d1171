/* Faults of the logit and of the score function. */
#include <math.h>
#include <stdlib.h>

#include "plain.h"

static float sum_alone(const float *weights, int k)
{
    float sum = 0;
    for (int i = 0; i < k; i++) sum += weights[i];
    return sum;
}

static float half_tanh(float x)
{
    return 0.5f * tanhf(0.5f * x) + 0.5f;
}

/* flashinfer#3803, #3946, sglang#30989: all selected scores are 0, and nothing guards 0 / 0. */
void mutant_tanh_without_guard(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                               float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) {
        p.score = half_tanh;
        p.denominator = sum_alone;
    }
    plain_run(&p, in, ids, weights);
}

static float root_of_log(float x)
{
    return sqrtf(x > 20 ? x : logf(1 + expf(x)));
}

/* sglang#34459: 1 + exp(x) is 1 below -16.64, its logarithm 0. */
void mutant_softplus_log(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                         float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) {
        p.score = root_of_log;
        p.denominator = sum_alone;
    }
    plain_run(&p, in, ids, weights);
}

static float root_of_log1p(float x)
{
    return sqrtf(log1pf(expf(x)));
}

/* A suspicion of vLLM's fast kernel @0263839, class of sglang#34459: no threshold, so exp overflows
 * above 88.72 and Inf / Inf is NaN. */
void mutant_softplus_overflow(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                              float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) {
        p.score = root_of_log1p;
        p.denominator = sum_alone;
    }
    plain_run(&p, in, ids, weights);
}

/* flashinfer#5211: the only method with a bias is DeepSeek-V3's, which scores by sigmoid. */
void mutant_sigmoid_for_softplus(const struct mutant_input *in, bool repaired, int run,
                                 int32_t *ids, float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.score = plain_sigmoid;
    plain_run(&p, in, ids, weights);
}

static float unscaled(const struct mr_router *router, float weight)
{
    (void)router;
    return weight;
}

/* A suspicion of vLLM's GroupedTopKRouter @055e47c: without real groups and without a bias it falls
 * back to a function that is told neither the score function nor the scaling factor. */
void mutant_softmax_for_sigmoid(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                                float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) {
        p.softmax = true;
        p.scale = unscaled;
    }
    plain_run(&p, in, ids, weights);
}

static void run_on(const struct mutant_input *in, mutant_logits *fill, bool repaired, int run,
                   int32_t *ids, float *weights)
{
    size_t count = in->tokens * (size_t)in->router->experts;
    float *logits = malloc((count ? count : 1) * sizeof *logits);
    if (!logits) abort();
    fill(in, repaired, run, logits);
    struct mutant_input seen = *in;
    seen.logits = logits;
    struct plain p = plain_new(in->router);
    plain_run(&p, &seen, ids, weights);
    free(logits);
}

/* local-inference-lab/vllm#652: beyond 16 rows the gate's fallback answers in bf16. */
void logits_in_bf16(const struct mutant_input *in, bool repaired, int run, float *logits)
{
    (void)run;
    for (size_t i = 0; i < in->tokens * (size_t)in->router->experts; i++)
        logits[i] = repaired ? in->logits[i] : plain_bf16(in->logits[i]);
}

void mutant_bf16_logits(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                        float *weights)
{
    run_on(in, logits_in_bf16, repaired, run, ids, weights);
}

/* Parts of equal length, each summed from the left in binary32, then the parts. */
static float dot(const float *x, const float *w, int n, int parts)
{
    float total = 0;
    for (int part = 0; part < parts; part++) {
        float sum = 0;
        for (int i = n * part / parts; i < n * (part + 1) / parts; i++) sum += x[i] * w[i];
        total += sum;
    }
    return total;
}

/* vllm#35404, TransformerEngine#2986, #3556: the library picks another order of the sum for another
 * number of rows, so that a token's experts depend on its neighbours. run 0 and run 1: one chain,
 * or two halves. The twin keeps to one order. */
void logits_by_rows(const struct mutant_input *in, bool repaired, int run, float *logits)
{
    size_t experts = (size_t)in->router->experts, hidden = (size_t)in->router->hidden;
    for (size_t t = 0; t < in->tokens; t++)
        for (size_t e = 0; e < experts; e++)
            logits[t * experts + e] = dot(in->hidden + t * hidden, in->gate + e * hidden,
                                          in->router->hidden, run || repaired ? 2 : 1);
}

void mutant_sum_by_rows(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                        float *weights)
{
    run_on(in, logits_by_rows, repaired, run, ids, weights);
}
