/* The sign of a sum of scores and a bias, by intervals of ever more bits: what certified comparison
 * comes to when double-double does not settle it. */
#ifndef MOEREF_SUM_SIGN_H
#define MOEREF_SUM_SIGN_H

#include "compare.h"

enum {
    MR_SUM_BITS = 2300, /* holds any sum of a few binary64 numbers and exact logits */
    MR_SUM_TERMS = 4
};

/* sign * score(value): sign is 1 or -1, value is exact. */
struct mr_signed_logit {
    mpfr_ptr value;
    int sign;
};

/* D = bias + sum of at most MR_SUM_TERMS terms. Sets out's sign, gap, radius and MR_LEVEL_MPFR once
 * the sign shows, and leaves sign and level alone otherwise. Softmax scores are those of source's
 * experts. */
enum mr_status mr_sum_sign(enum mr_score score, const struct mr_signed_logit *term, int count,
                           const mpfr_t bias, const struct mr_logit_source *source,
                           struct mr_order *out);

#endif
