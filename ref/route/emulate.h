/* The stages of an emulated router, each correctly rounded (grammar in arith/arith.h). */
#ifndef MOEREF_EMULATE_H
#define MOEREF_EMULATE_H

#include "../arith/arith.h"
#include "../num/num.h"
#include "certify.h"

const struct mr_format *mr_type_format(enum mr_type type);

struct mr_stage_scratch {
    double *a, *b, *c;  /* [experts] each */
    uint8_t *undecided; /* [experts] */
    struct mr_key *keys; /* [experts] */
};

/* Exact logits rounded once to type. */
enum mr_status mr_stage_logits(const struct mr_token *t, int experts, enum mr_type type,
                               struct mr_stage_scratch *s, float *out);
/* The exact score of those rounded logits, rounded once to type. Rows in which an Inf (fp16) makes
 * softmax meaningless give NaN. */
enum mr_status mr_stage_scores(enum mr_score score, const float *logits, int experts,
                               enum mr_type type, struct mr_stage_scratch *s, float *out);

#endif
