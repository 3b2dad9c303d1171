/* The judge: is what a kernel chose for a token right, forced by rounding, or wrong (DESIGN section
 * 4)? Pure functions on one token; nothing here knows of files, or of how a radius comes about. */
#ifndef MOEREF_VERDICT_H
#define MOEREF_VERDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "../arith/radius.h"
#include "../exact/dd.h"
#include "certify.h"

/* Worst first. */
enum mr_verdict {
    MR_MALFORMED, /* no set of experts at all, a broken promise of order, weights out of place */
    MR_NONFINITE, /* NaN or Inf where the reference has a number */
    MR_WRONG,     /* further off than any rounding of the arithmetic explains */
    MR_UNDECIDED, /* the reference itself is not decided, or an input is not finite */
    MR_ROUNDING,  /* another set or order, and every pair is within its radii */
    MR_TIE,       /* one of the equally right choices of an exact tie */
    MR_EXACT,     /* the certified set, promised order kept, every weight within its radius */
    MR_VERDICT_COUNT
};
const char *mr_verdict_name(enum mr_verdict v); /* "malformed", ... */

/* What a verdict rests on. */
enum mr_cause {
    MR_CAUSE_NONE,
    MR_CAUSE_COUNT,     /* fewer or more ids than top_k */
    MR_CAUSE_RANGE,     /* id at slot is no expert */
    MR_CAUSE_DUPLICATE, /* id at slot is there before */
    MR_CAUSE_PADDING,   /* a row declared to be padding that has ids other than -1 */
    MR_CAUSE_GROUP,     /* omitted and included are groups */
    MR_CAUSE_SET,       /* omitted and included are experts */
    MR_CAUSE_ORDER,     /* omitted should stand before included, which stands at slot */
    MR_CAUSE_PAIRING,   /* id at slot has the weight of expert `included` */
    MR_CAUSE_WEIGHT,    /* weight at slot */
    MR_CAUSE_LOGIT,     /* an observed logit, of expert `included` */
    MR_CAUSE_INPUT,     /* the reference has no numbers: an input is not finite */
    MR_CAUSE_REFERENCE, /* the certificate is undecided */
    MR_CAUSE_TIE
};
const char *mr_cause_name(enum mr_cause c); /* "none", "count", ... */

/* How much work goes into a radius. Radii grow with the bound of sum|p| that they are made of:
 * what LEAST excuses is excused, what NORM does not excuse is wrong, and SUM decides between. */
enum mr_effort {
    MR_EFFORT_LEAST, /* sum|p| >= |logit| */
    MR_EFFORT_NORM,  /* sum|p| <= ||x|| ||w|| */
    MR_EFFORT_SUM    /* sum|p| itself */
};

/* One expert: its exact rank key, within error of the truth; a right kernel's lies in
 * [key - down, key + up]. */
struct mr_judge_key {
    struct mr_dd key;
    double error, down, up;
    struct mr_radius_expert expert; /* for the source's own use */
};

/* One weight: exact, and what rounding can make of it. */
struct mr_judge_weight {
    double exact, lo, hi;
};

/* Exact figures and radii of the token at hand, on demand; experts are in range and distinct. */
struct mr_judge_source {
    void *context;
    /* NULL: experts are not ranked (hash layers): any other set is WRONG, and no order is
     * judged. */
    enum mr_status (*keys)(void *context, const int *experts, int count, enum mr_effort effort,
                           struct mr_judge_key *out);
    /* How far a right kernel's key of a may be below that of b: a->down + b->up, or less where both
     * share an error. NULL: a->down + b->up. */
    double (*pair)(void *context, const struct mr_judge_key *a, const struct mr_judge_key *b);
    /* The weights of these top_k experts, had the router chosen them. certified: they are the
     * certified ones, in any order. */
    enum mr_status (*weights)(void *context, const int *experts, bool certified,
                              enum mr_effort effort, struct mr_judge_weight *out);
};

/* What a kernel says of one token. */
struct mr_claim {
    const int64_t *ids;
    int count;             /* of ids, and of weights */
    const double *weights; /* NULL: not observed */
    bool ordered;          /* descending keys are promised */
};

struct mr_judgement {
    enum mr_verdict verdict; /* the worst of the parts; what follows explains it */
    enum mr_verdict set, order, pairing, weight; /* MR_EXACT where there is nothing to judge */
    enum mr_cause cause;
    int omitted, included; /* -1: none */
    int slot;              /* of ids or weights; -1: none */
    int64_t id;            /* at that slot */
    double omitted_key, included_key; /* exact, rounded to binary64; cause LOGIT, WEIGHT, PAIRING:
                                         expected and found */
    double difference, radius; /* SET, GROUP, ORDER: omitted - included, of keys, and how large
                                  rounding lets it be; WEIGHT, PAIRING, LOGIT: the same of |found -
                                  expected| */
};

extern const struct mr_judgement mr_judgement_exact; /* nothing to say */

/* Working memory of one thread. */
struct mr_judge;
enum mr_status mr_judge_new(const struct mr_router *router, struct mr_judge **out);
void mr_judge_free(struct mr_judge *j);

/* The experts in which a claim judged last differs from the certified set, but for a tie:
 * *omitted and *included [count] are valid until the next call. 0 after MR_MALFORMED ids. */
int mr_judge_difference(const struct mr_judge *j, const int **omitted, const int **included);

/* routed: certified ids and their certificate. Reports what the source does. Calls that have
 * nothing to say of a set cost O(top_k) and one weights(); pairs are looked at only where sets
 * differ. */
enum mr_status mr_judge_token(struct mr_judge *j, const struct mr_routed *routed,
                              const struct mr_claim *claim, const struct mr_judge_source *source,
                              struct mr_judgement *out);

/* < 0 if a is worse: by verdict, then by difference / radius. */
int mr_judgement_compare(const struct mr_judgement *a, const struct mr_judgement *b);

#endif
