/* Keys and weights of real arithmetic, by MPFR at 256 bits (exp itself bounds what that is worth:
 * the scores here are above e^-200). */
#ifndef RADIUS_TRUTH_H
#define RADIUS_TRUTH_H

#include "../../ref/route/router.h"

/* Sigmoid or sqrt-softplus, rounded to binary32; and truncated to 30 bits with the last bit set if
 * that was inexact, returned as the binary32 above or below which rounding to bf16 needs. */
double truth_score(enum mr_score score, double logit);
float truth_odd(enum mr_score score, double logit);
/* |got - (score + bias)|, rounded up. */
double truth_key_error(enum mr_score score, double logit, double bias, double got);
/* |got - (softmax_i + bias)|, rounded up. */
double truth_softmax_error(const double *logits, int n, int i, double bias, double got);
/* Weight of expert e if the first k of n experts are selected. */
double truth_weight(const struct mr_router *router, const double *logits, int n, int e, int k);

#endif
