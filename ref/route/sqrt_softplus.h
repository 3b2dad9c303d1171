/* sqrt(log(1 + exp(x))), the score of DeepSeek-V4 (scoring_func "sqrtsoftplus"), in binary64
 * vectors and in double-double. Its MPFR twin is in score.h. Round-to-nearest. */
#ifndef MOEREF_SQRT_SOFTPLUS_H
#define MOEREF_SQRT_SOFTPLUS_H

#include <stddef.h>

#include "../exact/dd.h"

/* y[i] is within MR_SQRT_SOFTPLUS_ULPS 2^-53 of the truth, relatively, or within
 * MR_SQRT_SOFTPLUS_TINY. y is not x. */
#define MR_SQRT_SOFTPLUS_ULPS 6.0
#define MR_SQRT_SOFTPLUS_TINY 0x1p-509
void mr_vec_sqrt_softplus(const double *x, size_t n, double *y);

/* Within *rel (at most MR_SQRT_SOFTPLUS_DD_REL) of the truth, relatively, or within 2^-1000. x may
 * be off by 2^-106 relatively. */
#define MR_SQRT_SOFTPLUS_DD_REL 0x1p-55
struct mr_dd mr_sqrt_softplus_dd(struct mr_dd x, double *rel);

#endif
