/* The bias ranks, the score alone weighs: faults of that. */
#include <math.h>

#include "plain.h"

/* sglang#37133, #31213: the checkpoint's binary32 biases are loaded into a bf16 parameter. */
void mutant_bias_stored_bf16(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                             float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.bias = plain_bf16;
    plain_run(&p, in, ids, weights);
}

/* TensorRT-LLM#13328, FlashInfer fb28d72: a binary32 bias is cast to the output's type, bf16, when
 * it is read for ranking. */
static float read_as_output_type(float bias)
{
    return plain_bf16(bias);
}

void mutant_bias_cast_bf16(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                           float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.bias = read_as_output_type;
    plain_run(&p, in, ids, weights);
}

/* Megatron-LM#1482, #7081: loss-free balancing adds a thousandth to a bias at a time; a bias held
 * in bf16 is not moved by that once it is large. The steps that led to the right bias are repeated,
 * each rounded to bf16, from the whole number below it. */
static float updated_in_bf16(float bias)
{
    float now = floorf(bias);
    for (int steps = (int)lrintf((bias - now) * 1000); steps > 0; steps--)
        now = plain_bf16(now + 0.001f);
    return now;
}

void mutant_bias_updates_bf16(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                              float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.bias = updated_in_bf16;
    plain_run(&p, in, ids, weights);
}

/* flashinfer#3875, vllm#47367; for sqrt-softplus a suspicion of vLLM's kernel @0d89098: only the
 * key is kept, and the weight got back as key - bias, whose low bits are gone. */
void mutant_weight_from_key(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                            float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    p.weight_from_key = !repaired;
    plain_run(&p, in, ids, weights);
}
