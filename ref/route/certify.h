/* Certified routing of one token: filtered logits with a radius in, a proven expert set out
 * (DESIGN section 3). */
#ifndef MOEREF_CERTIFY_H
#define MOEREF_CERTIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "../exact/compare.h"
#include "../exact/exact.h"
#include "router.h"

/* Certificate codes, as in --tokens files. */
enum mr_certificate {
    MR_CERT_BOUND = 0,     /* the filter's radius separates the set */
    MR_CERT_EXACT = 1,     /* exact logits do */
    MR_CERT_MPFR = 2,      /* MPFR at 128 bits or more does */
    MR_CERT_TIE = 3,       /* exactly equal keys at the cut */
    MR_CERT_UNDECIDED = 4, /* not separated at the precision cap */
    MR_CERT_NONFINITE = 5, /* an input is Inf or NaN: ids -1, weights and gap NaN */
    MR_CERT_COUNT
};
const char *mr_certificate_name(enum mr_certificate c);

/* What certification needs to know of one token. */
struct mr_token {
    const struct mr_router *router;
    const double *bias;   /* [experts], exact; NULL: none */
    const double *logits; /* [experts], each within scale * norm[e] + offset of the truth */
    const double *norm;   /* [experts] */
    double scale, offset; /* both 0: the logits are the truth */
    /* Exact logits of some experts, on demand: sets keys[i].logit of keys[i].expert, i < count. The
     * source also serves logits that hi + lo cannot hold. */
    enum mr_status (*exact)(void *context, struct mr_key *keys, int count);
    struct mr_logit_source source;
    bool exact_weights; /* weights correctly rounded by MPFR */
    const int32_t *given; /* [top_k] experts chosen without ranking (tid2eid); NULL: rank */
};

/* The answer. Pointers are set by the caller, or by mr_certifier_new for the working arrays. */
struct mr_routed {
    int32_t *ids;     /* [top_k], descending key, equal keys by lowest id */
    double *weights;  /* [top_k], of those ids, within MR_WEIGHT_ULPS ulp */
    double gap;       /* key of the last selected - key of the first rejected (of logits with
                         MR_SELECT_LOGIT); with groups both inside the groups that stay; +Inf if
                         nothing is rejected there, NaN if nonfinite */
    double gap_radius; /* error bound of gap: at most 1e-12 (or 2^-53 of a gap above 2^13) */
    enum mr_certificate certificate;
    int tie_count, tie_slots; /* experts whose key equals the last selected's; how many of them are
                                 selected. 0, 0 without a tie */
    const int *ties;          /* [tie_count], ascending */
    int rejected;             /* the first rejected expert; -1: none, or not known */
    /* With n_group > topk_group: score of the last group that stays - score of the first that does
     * not, and its error bound, as for gap; +Inf, 0 where no group is excluded; NaN if nonfinite.
     * Equal groups at the cut: the certificate is a tie; all of them, and how many of them stay.
     * Any such choice is right: ids, weights, gap and ties are those of the lowest group ids
     * (mr_certify_in gives another choice's). */
    double group_gap, group_gap_radius;
    int group_tie_count, group_tie_slots;
    const int *group_ties; /* [group_tie_count], ascending */
    const uint8_t *stays; /* [n_group], 1 for a group that stays; NULL where no group is excluded */
    int exact_dots;           /* exact logits computed */
    bool filter_wrong;        /* a logit was outside its radius: the filter's BLAS is wrong */
};

#define MR_WEIGHT_ULPS 4

/* Working memory of one thread. */
struct mr_certifier {
    int experts;
    double *score, *lo, *hi, *top;
    struct mr_key *keys;
    int *tied;
    int *order;
    struct mr_groups *groups;
    double common_rel; /* relative error shared by all softmax scores: the denominator's */
};
enum mr_status mr_certifier_new(int experts, struct mr_certifier *out);
void mr_certifier_free(struct mr_certifier *c);

/* Makes keys[0..count) of the experts listed in order, their logits exact and their scores refined,
 * and looks whether the filter kept its word. */
enum mr_status mr_certify_keys(struct mr_certifier *c, const struct mr_token *token, int count,
                               struct mr_routed *out);

/* Routes one token. After it c->score[e] + bias[e] is the key of every expert within the filter's
 * radius. MR_ERR_MEMORY, or what exact and source report. */
enum mr_status mr_certify(struct mr_certifier *c, const struct mr_token *token,
                          struct mr_routed *out);

/* The same with the groups that stay [n_group] given: what is right inside them. group_gap is
 * Inf. */
enum mr_status mr_certify_in(struct mr_certifier *c, const struct mr_token *token,
                             const uint8_t *stays, struct mr_routed *out);

/* What is said of a token with an input that is not finite. */
void mr_routed_nonfinite(const struct mr_router *router, struct mr_routed *out);

#endif
