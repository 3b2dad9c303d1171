/* Computed scores of a logit that is only known to lie in an interval. Inside ref/arith. */
#ifndef MOEREF_SCORE_ERROR_H
#define MOEREF_SCORE_ERROR_H

#include "radius.h"

/* The binary32 score, before any rounding to a narrower type; ROUNDED: the exact one. */
struct mr_interval mr_sigmoid_computed(enum mr_form form, struct mr_interval logit);
struct mr_interval mr_sqrt_softplus_computed(enum mr_form form, struct mr_interval logit);

/* exp(logit - max) / z, computed, but for a factor that all experts of the row share: the error of
 * the sum and of its reciprocal. below: at least (largest computed logit) - (any computed logit of
 * the interval). stretch: at least the inverse of the shared factor, for what underflows. */
struct mr_interval mr_softmax_computed(enum mr_form form, struct mr_interval logit, double max,
                                       double z, double below, double stretch);
/* The relative error of the shared sum of `count` terms, and of its reciprocal. */
double mr_softmax_sum_error(enum mr_form form, int count);
/* Relative error of one more quotient of two computed numbers. */
double mr_quotient_error(enum mr_form form);

/* The exact functions in binary64, within 2^-50 relatively. */
double mr_sigmoid_value(double x);
double mr_softplus_value(double x);

/* A little outside of an interval that binary64 arithmetic made. */
static inline double mr_below(double x)
{
    return x - (x < 0 ? -x : x) * 0x1p-48;
}

static inline double mr_above(double x)
{
    return x + (x < 0 ? -x : x) * 0x1p-48;
}

#endif
