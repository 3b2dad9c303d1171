/* `moeref route` step by step: inputs to a report and a tokens file. */
#ifndef MOEREF_TOOLS_ROUTE_RUN_H
#define MOEREF_TOOLS_ROUTE_RUN_H

#include "../ref/io/case.h"
#include "../ref/io/report.h"

struct route_request {
    struct mr_case *c;
    const char *layers;    /* --layers, or NULL */
    const char *phase;     /* --phase, or NULL */
    bool from_logits;      /* --from logits: observed logits are the given numbers */
    bool exact_weights, without_blas, progress;
    int threads;
    const struct mr_arith *arith;
    const char *const *arith_line; /* as the user wrote them: the names in the report */
    size_t arith_count;
    const char *tokens;    /* --tokens, or NULL */
};

/* Tokens of a tiny run, kept to be shown one by one. */
enum { SHOWN_TOKENS = 8 };
struct shown_token {
    int layer;
    const char *phase;
    size_t token;
    int32_t *ids;
    double *weights, gap;
    enum mr_certificate certificate;
    int *chosen; /* [arith_count, top_k] */
};

struct route_outcome {
    struct mr_report report;
    size_t shown_count; /* 0 if there are more than SHOWN_TOKENS tokens in all */
    struct shown_token shown[SHOWN_TOKENS];
};

/* Dies on failure (a half-written tokens file is removed first). */
void route_all(const struct route_request *request, struct route_outcome *out);

void route_outcome_free(struct route_outcome *out);

/* The table for people. */
void print_outcome(const struct mr_case *c, const struct route_outcome *out, bool from_logits,
                   bool verbose);

#endif
