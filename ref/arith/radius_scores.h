/* What keys (radius.c) and weights (weight_radius.c) share. Inside ref/arith. */
#ifndef MOEREF_RADIUS_SCORES_H
#define MOEREF_RADIUS_SCORES_H

#include "radius.h"

double mr_rounded_to(enum mr_type type, double x);
struct mr_interval mr_interval_rounded(enum mr_type type, struct mr_interval x);
double mr_half_ulp(enum mr_type type, double x);

/* Sigmoid and sqrt-softplus, rounded to the type of scores. */
struct mr_interval mr_score_interval(const struct mr_error_model *m, enum mr_score score,
                                     const struct mr_radius_expert *e);
/* Softmax over all experts: what the row's computed denominator does to all its scores, as a factor
 * of the exact ones; and a score but for that factor. */
struct mr_interval mr_row_factor(const struct mr_error_model *m, const struct mr_router *router,
                                 const struct mr_radius_row *row);
struct mr_interval mr_row_score(const struct mr_error_model *m, const struct mr_radius_row *row,
                                struct mr_interval factor, const struct mr_radius_expert *e);
double mr_score_value(enum mr_score score, const struct mr_radius_row *row, double logit);

#endif
