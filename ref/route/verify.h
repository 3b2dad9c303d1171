/* Judges what kernels gave for one layer, while it is being routed. */
#ifndef MOEREF_VERIFY_H
#define MOEREF_VERIFY_H

#include "claims.h"
#include "findings.h"
#include "route.h"

struct mr_verify_options {
    int threads;       /* 0: as many as OpenMP has */
    bool without_blas;
    struct mr_error_model model; /* what rounding may do. Weights and logits that are stored in a
                                    narrower type than it says were rounded to that, too */
    const struct mr_error_model *models; /* [count] of each source instead; NULL: model for all */
    bool ordered;      /* descending keys are promised */
    const struct mr_error_model *power; /* arithmetics whose power to detect is wanted, */
    size_t power_count;                 /* as models of the case's own sums */
    size_t order;      /* goes into the findings: */
    int layer;
    const char *phase;
};

/* Of one source. */
struct mr_verify_tally {
    uint64_t rows, padding; /* rows that were judged or skipped; of them, rightly masked padding */
    uint64_t verdicts[MR_VERDICT_COUNT];
    uint64_t logit_rows;    /* judged by their logits, having no ids */
    double logit_error;     /* the largest |observed - exact logit| of those */
};

/* Adds to what is there, so that layers can be summed up; zeroed by the caller. */
struct mr_verify_result {
    struct mr_route_result route;
    struct mr_verify_tally *tally; /* [sources] */
    uint64_t *gained, *lost;       /* [experts]; rows in which sets differ, ties apart */
    uint64_t power_tokens;         /* tokens with a cut that was decided */
    uint64_t *power;               /* [power_count] tokens on which the swap is WRONG */
    /* [sources], each [rows] or NULL: written, not added to. An enum mr_verdict, or
     * MR_VERDICT_COUNT for padding that is masked as it must be. NULL: none */
    uint8_t *const *verdicts;
};

/* observed: [count], of this layer; found: its worst findings are added, bounded by its size. */
enum mr_status mr_verify_layer(const struct mr_layer *layer,
                               const struct mr_verify_options *options,
                               const struct mr_observed *observed, size_t count,
                               struct mr_verify_result *result, struct mr_findings *found,
                               struct mr_error *err);

#endif
