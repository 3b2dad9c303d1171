/* Exact logits of one token on demand, from stored hidden states or from given logits. */
#ifndef MOEREF_TOKEN_SOURCE_H
#define MOEREF_TOKEN_SOURCE_H

#include "filter.h"
#include "route.h"

struct mr_token_source {
    const struct mr_gate *gate; /* NULL: logits are given */
    const double
        *gate_bias; /* [experts], binary32 numbers, part of the logit of a gate; NULL: none */
    const double *given;        /* [experts], then */
    const void *hidden;         /* this token's stored row */
    enum mr_dtype dtype;
    struct mr_row_stats stats;
    double *wide; /* [hidden] scratch */
    bool widened; /* set false for a new token */
};

/* For struct mr_token: context is a struct mr_token_source. */
enum mr_status mr_token_exact(void *context, struct mr_key *keys, int count);
enum mr_status mr_token_value(void *context, int expert, mpfr_t out);

#endif
