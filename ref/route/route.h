/* Certified routing of one layer: all tokens, in parallel, in bounded memory. */
#ifndef MOEREF_ROUTE_H
#define MOEREF_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../arith/arith.h"
#include "../status.h"
#include "../tensor.h"
#include "blas.h"
#include "certify.h"
#include "flips.h"

/* Either hidden [tokens, hidden] and gate [experts, hidden], both BF16, F16 or F32; or logits
 * [tokens, experts] of such a type, which are then the given numbers, exact by definition. The
 * unused ones have data NULL. */
struct mr_layer {
    const struct mr_router *router;
    struct mr_matrix hidden, gate, logits;
    const double *bias; /* [experts], finite, the stored values; NULL if the router has none */
    /* [experts], binary32 numbers: part of the logit of hidden and gate (gpt-oss), never of given
     * logits, which hold it already; NULL: none */
    const double *gate_bias;
    const int32_t *given; /* [tokens, top_k] experts chosen without ranking (hash.h); NULL: rank */
};

struct mr_inspection;

/* Answers of consecutive tokens; arrays as struct mr_routed, row major. */
struct mr_rows {
    size_t first, rows;
    const int32_t *ids;    /* [rows, top_k] */
    const double *weights; /* [rows, top_k] */
    const double *gap, *gap_radius;
    const uint8_t *certificate;
    const double *group_gap, *group_gap_radius;
};

/* An exact tie at the cut: `slots` of the `count` experts listed (ascending) are selected, and any
 * such choice is right. Between groups at their cut: the same of group_slots of the groups listed;
 * experts are then those that tie (if any do) where the groups of lowest id stay. */
struct mr_tie {
    size_t token;
    int slots, count;
    const int *experts;
    int group_slots, group_count;
    const int *groups;
};

struct mr_route_options {
    int threads;         /* 0: as many as OpenMP has */
    bool exact_weights;  /* weights correctly rounded through MPFR */
    bool without_blas;   /* every logit exact: slow, and needs no trust */
    bool wide_filter;    /* the fp64 filter where the fp32 one would serve */
    const struct mr_blas *blas; /* NULL: OpenBLAS */
    const struct mr_arith *arith; /* arithmetics to emulate */
    size_t arith_count;
    /* Called with blocks of answers, one call at a time, in no fixed order; a layer that has to be
     * done again without BLAS calls again with the same tokens. May be NULL. */
    enum mr_status (*rows)(void *context, const struct mr_rows *rows, struct mr_error *err);
    enum mr_status (*tie)(void *context, const struct mr_tie *tie, struct mr_error *err);
    /* The experts that the arith-th arithmetic chooses for a token, [top_k]. May be NULL. */
    enum mr_status (*emulated)(void *context, size_t token, size_t arith, const int *chosen,
                               struct mr_error *err);
    /* What certification knows of a token, while it still knows it (inspect.h). Calls of different
     * workers overlap, those of one never do; workers are numbered from 0 and are fewer than the
     * threads asked for, or than OpenMP has. May be NULL. */
    enum mr_status (*inspect)(void *context, const struct mr_inspection *inspection,
                              struct mr_error *err);
    void (*restart)(void *context); /* forget what was reported of this layer */
    void *context;
};

struct mr_route_result {
    uint64_t tokens;
    uint64_t certified[MR_CERT_COUNT];
    uint64_t exact_dots;  /* logits computed exactly */
    uint64_t blas_alarms; /* rows whose BLAS check failed, computed exactly instead */
    uint64_t blas_wrong;  /* rows in which BLAS was off by more than its proven radius; if any, the
                             whole layer has been done again without BLAS */
};

/* flips: [arith_count], zeroed by the caller or holding earlier layers to add to. Shapes, k, NaN in
 * gate or bias: MR_ERR_SHAPE, MR_ERR_VALUE, with a message. */
enum mr_status mr_route_layer(const struct mr_layer *layer, const struct mr_route_options *options,
                              struct mr_route_result *result, struct mr_flips *flips,
                              struct mr_error *err);

#endif
