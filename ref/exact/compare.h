/* Certified comparison of two rank keys, key = score(logit) + bias, from exact logits. */
#ifndef MOEREF_COMPARE_H
#define MOEREF_COMPARE_H

#include <mpfr.h>

#include "../route/router.h"
#include "exact.h"

/* How a comparison was settled; the numbers are those of the certificate (DESIGN section 3). */
enum mr_level {
    MR_LEVEL_EXACT = 1, /* exact logits, keys in double-double */
    MR_LEVEL_MPFR = 2,
    MR_LEVEL_TIE = 3,
    MR_LEVEL_UNDECIDED = 4 /* not separated at the precision cap */
};

/* Where exact logits come from when hi + lo is not all of them: out is set exactly. */
struct mr_logit_source {
    void *context;
    int experts;
    enum mr_status (*value)(void *context, int expert, mpfr_t out);
};

/* One expert of one token. */
struct mr_key {
    int expert;
    struct mr_exact logit;
    double bias;
    struct mr_dd score; /* within rel of the truth, relatively, or within 2^-1000 */
    double rel;
};

struct mr_order {
    int sign; /* of key a - key b; 0 for a tie, and for undecided */
    enum mr_level level;
    double gap;    /* |key a - key b| */
    double radius; /* error bound of gap */
};

/* common_rel: relative error that both scores share (the softmax denominator). Bias and score of a
 * and b must be finite. Failures of the source are reported; MR_ERR_MEMORY otherwise. */
enum mr_status mr_compare_keys(enum mr_score score, const struct mr_key *a, const struct mr_key *b,
                               double common_rel, const struct mr_logit_source *source,
                               struct mr_order *out);

/* The same of the logits themselves, which rank where MR_SELECT_LOGIT says so; gap is theirs. */
enum mr_status mr_compare_logits(const struct mr_key *a, const struct mr_key *b,
                                 const struct mr_logit_source *source, struct mr_order *out);

/* The same of two sums, a[0] + a[1] and b[0] + b[1]: group scores (compare_sums.c). All four are
 * different experts. */
enum mr_status mr_compare_sums(enum mr_score score, const struct mr_key *const a[2],
                               const struct mr_key *const b[2], double common_rel,
                               const struct mr_logit_source *source, struct mr_order *out);

/* k's logit, exactly; out's precision is set to hold it. */
enum mr_status mr_key_logit(const struct mr_key *k, const struct mr_logit_source *source,
                            mpfr_t out);

/* Precision caps in bits: where a theorem says that a difference is a tie or shows itself in the
 * end, and for sqrt-softplus, where none does. */
#define MR_COMPARE_CAP 65536
#define MR_COMPARE_CAP_OPEN 8192

#endif
