/* One token seen from inside certification: what route.h's inspect callback is given, and exact
 * figures of any of its experts on demand. */
#ifndef MOEREF_INSPECT_H
#define MOEREF_INSPECT_H

#include "certify.h"
#include "token_source.h"

/* Valid during the callback. */
struct mr_inspection {
    size_t token;
    int worker;
    const struct mr_routed *routed;
    const struct mr_token *of; /* its filtered logits and their radius; NULL: not finite */
    struct mr_certifier *certifier; /* score[e] (+ bias) is the key of every expert within the
                                       filter's radius. Its keys[order[0..top_k)] are the certified
                                       ones, until what follows overwrites them */
    const struct mr_token_source *source; /* norms, rows of the gate, the stored hidden states */
};

/* Makes certifier->keys[i] those of experts[i], i < count (distinct, in range): exact logit, bias,
 * score within (rel + certifier->common_rel) of the truth, relatively. */
enum mr_status mr_inspect_keys(const struct mr_inspection *t, const int *experts, int count);

/* The weights that the router gives to these top_k experts, had it selected them: as mr_weights
 * does, and after that certifier->keys[i] are those of experts[i] all the same. */
enum mr_status mr_inspect_weights(const struct mr_inspection *t, const int *experts,
                                  double *weights);

#endif
