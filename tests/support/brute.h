/* An independent router: every expert, every step in MPFR, from the stored matrices. Nothing here
 * calls the code under test; only its types are used. Failed allocations abort. */
#ifndef BRUTE_H
#define BRUTE_H

#include <mpfr.h>
#include <stdbool.h>

#include "../../ref/arith/arith.h"
#include "../../ref/route/route.h"

/* The answer for one token. */
struct brute {
    int experts, top_k;
    bool nonfinite;      /* the row holds an Inf or NaN: nothing below is set */
    bool unsure;         /* two keys at the cut or above stay together at the highest precision */
    mpfr_t *logit;       /* [experts], exact */
    mpfr_t *score, *key; /* [experts] */
    int *order;          /* [experts], descending key, equal keys by lowest id */
    mpfr_t *weight;      /* [top_k], of order */
    mpfr_t gap;          /* 0 if top_k == experts */
    int tie_count,
        tie_slots; /* experts whose key equals that of both sides of the cut; 0: no tie */
    int *tied;     /* ascending */
};
void brute_route(const struct mr_layer *layer, size_t token, struct brute *out);
void brute_free(struct brute *b);

/* A stored element as binary64, by its fields. */
double brute_element(const struct mr_matrix *m, size_t row, size_t column);
/* One rounding to nearest, ties to even; Inf on overflow. */
double brute_round(const mpfr_t value, enum mr_type type);

/* What an arithmetic makes of that token. */
struct brute_emulated {
    int *chosen;       /* [top_k] */
    double *key_error; /* [experts] */
    bool flip;
    double moved;
};
void brute_emulate(const struct mr_layer *layer, const struct brute *truth,
                   const struct mr_arith *arith, struct brute_emulated *out);
void brute_emulated_free(struct brute_emulated *e);

#endif
