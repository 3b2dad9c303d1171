/* Routing weights of the selected experts: score / sum of the selected scores (norm_topk_prob)
 * * routed_scaling_factor, the factor taken as the binary64 number that the config's decimal is. */
#ifndef MOEREF_WEIGHTS_H
#define MOEREF_WEIGHTS_H

#include "certify.h"

/* Weights of keys[order[0..top_k)], whose scores come from exact logits: within MR_WEIGHT_ULPS ulp,
 * or correctly rounded if the token asks for exact_weights. */
enum mr_status mr_weights(const struct mr_certifier *c, const struct mr_token *t, double *weights);

#endif
