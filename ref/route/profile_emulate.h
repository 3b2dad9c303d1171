/* Emulation of a profile's row on a CPU: selection and weights in the engine's own order of fp32
 * operations, scalar functions bit for bit those of CUDA (ref/arith/cuda.h). Where the order of a sum
 * is not known, it is the exact sum rounded once: so are sums of softmax over counts of experts that
 * a block of threads serves, which no recording shows. */
#ifndef MOEREF_PROFILE_EMULATE_H
#define MOEREF_PROFILE_EMULATE_H

#include <stdint.h>

#include "../arith/arith.h"
#include "profile.h"

/* What is the same for all tokens of a call. */
struct mr_profile_batch {
    size_t rows;         /* tokens in the batch: tie rules depend on it */
    enum mr_type logits; /* the type that the logits had; they are given widened */
};

/* What happened to one token. */
struct mr_profile_note {
    bool tie;       /* equal keys at the cut, or equal group scores at theirs: the tie rule chose */
    bool undefined; /* the result rests on what the engine leaves undefined */
    bool nonfinite; /* a logit, key or weight is NaN or Inf */
    bool repeated;  /* an id comes twice */
};

/* One thread's working memory. */
struct mr_profile_scratch {
    int experts;
    float *score, *key, *group;
    bool *out;
};
enum mr_status mr_profile_scratch_new(int experts, struct mr_profile_scratch *out);
void mr_profile_scratch_free(struct mr_profile_scratch *s);

/* Routes one token under a row: logits [experts], bias [experts] or NULL, ids and weights [top_k]
 * in the order of selection. A row with changed cells may be given. note may be NULL. */
void mr_profile_emulate(const struct mr_profile_row *row, const struct mr_router *router,
                        const struct mr_profile_batch *batch, const float *logits,
                        const float *bias, struct mr_profile_scratch *s, int32_t *ids,
                        float *weights, struct mr_profile_note *note);

/* The weights of ids that somebody else chose (hash layers; a judge). Ids out of range get NaN. */
void mr_profile_weigh(const struct mr_profile_row *row, const struct mr_router *router,
                      const struct mr_profile_batch *batch, const float *logits,
                      const float *bias, struct mr_profile_scratch *s, const int32_t *ids,
                      float *weights);

/* The emulation in one call, which checks the router and finds the row and the memory.
 * MR_ERR_UNSUPPORTED: the profile has no kernel for it. */
enum mr_status mr_profile_route(const struct mr_profile *profile, const struct mr_router *router,
                                const struct mr_profile_batch *batch, const float *logits,
                                const float *bias, int32_t *ids, float *weights,
                                struct mr_profile_note *note, struct mr_error *err);

/* The weight of a shared expert's slot, from the sum of the routed scores before scaling. False if
 * the row has no such slot, or leaves its weight to the caller. */
bool mr_profile_shared_weight(const struct mr_profile_row *row, const struct mr_router *router,
                              float sum, float *weight);

/* Parts, for tests and other emulations. Score of one logit, or of n, under a form (not softmax: NaN);
 * y may be x. */
float mr_form_score(enum mr_score_form form, float logit);
void mr_form_scores(enum mr_score_form form, const float *x, int n, float *y);
/* SGLang's small-row reduction over keys [experts]: the expert it selects, or -1. */
int mr_shuffle_tree(const float *key, int experts);
/* value rounded once to a type. */
float mr_round_type(double value, enum mr_type type);

#endif
