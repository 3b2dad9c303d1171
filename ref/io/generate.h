/* Synthetic layers for cases with "generate": deterministic (integer arithmetic and exactly rounded
 * operations only, in the default rounding mode with FLT_EVAL_METHOD 0; of libm only sqrt, which
 * IEEE 754 rounds exactly), so the same case and seed give the same bytes on every machine and for
 * any number of threads.
 *
 * Keys: "class"; "tokens", phase to count (0 to 2^24), as {"prompt":1024}; "seed" (default 1);
 * "layers", the layer numbers that exist (default: any). Any shape and score is served.
 *
 * Class "normal": hidden states N(0, hidden_std^2) (default 1), gate weights N(0, gate_std^2)
 * (default 0.02), both bf16; biases uniform in [bias_low, bias_high], zeros without these keys.
 *
 * Class "glm-5.3-flash": made to look, to a router of 288 experts, hidden size 4096 and top_k 8,
 * like what has been published about that model's inputs. Hidden states: mean square 1, half of it
 * in one outlier channel of every 512, whose values are all but constant (magnitude 16 at hidden
 * 4096), the rest with gains that vary by channel, as an RMSNorm leaves them. Gate rows: normal,
 * plus a weight on the outlier channels that sets the expert's mean logit. Biases b: 11.75 + 0.21 *
 * cubic(v), v uniform in (-1, 1). The mean logit undoes the bias, as loss-free balancing
 * (arXiv:2408.15664) arrives at from the other side: every expert's key passes one common value for
 * 8 of 288 tokens.
 *
 * Fitted, for seed 1, layer 0, 1024 tokens, to these published figures and to nothing else:
 *   published                                               seed 1    seeds 1-5, mean (range)
 *   biases in [11.54, 11.96], 7 values in bf16              7         7 (the band by construction)
 *   median key error, bias rounded to bf16         0.012    0.01194   0.0120 (0.0119-0.0121)
 *   median gap at the cut                          0.005    0.0050    0.0052 (0.0050-0.0054)
 *   median key error, logits rounded to bf16       0.0002   0.00020   0.00020
 * by three parameters: the linear part of the cubic (0.11), the score at which a mid-band expert
 * meets the cut (0.29), the standard deviation of an expert's logit over tokens (0.76). The last
 * two do not follow from the figures alone: 0.50 and 0.55 meet them as well (0.0050 and 0.00021).
 * The solution with small scores (median 0.085 against 0.26) was taken before a flip was counted.
 *
 * Flip rates are outcomes. They were not measured until the parameters stood, and must never be
 * tuned:
 *   published                                               seeds 1-5, mean (range)
 *   tokens that change experts with bf16 logits    2.5 %    2.4 % (1.9-2.9)
 *   tokens that change experts with a bf16 bias    66 %     74 % (73-76)
 *   weight moved with a bf16 bias                  7.6 %    9.2 % (8.8-9.5)
 * The other solution has 0.8 %, 77 % and 11.6 %: agreement with the published rates supports the
 * choice a little and proves nothing about the real model. Not modelled: tokens that resemble each
 * other, experts that do so. */
#ifndef MOEREF_GENERATE_H
#define MOEREF_GENERATE_H

#include <jansson.h>
#include <stdint.h>

#include "../route/router.h"
#include "../status.h"

struct mr_generated {
    size_t tokens;
    uint16_t *hidden; /* bf16 [tokens, hidden], malloc'ed */
    uint16_t *gate;   /* bf16 [experts, hidden], malloc'ed; the same for every phase of a layer */
    float *bias;      /* [experts], malloc'ed; NULL when the router has none */
};

/* Checks the "generate" object: known keys, ranges, a class that exists. path is for messages. */
enum mr_status mr_generate_check(const json_t *generate, const struct mr_router *router,
                                 const char *path, struct mr_error *err);
/* One layer of one phase. A negative seed means the object's. A phase that "tokens" does not name,
 * or a layer that "layers" does not list, is MR_ERR_MISSING. On failure *out is empty. */
enum mr_status mr_generate_layer(const json_t *generate, const struct mr_router *router, long seed,
                                 int layer, const char *phase, struct mr_generated *out,
                                 struct mr_error *err);
void mr_generated_free(struct mr_generated *g);

#endif
