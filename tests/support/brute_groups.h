/* An independent router for what brute.h does not know: groups, selection by logit, sqrt-softplus,
 * gate bias. Every expert and every group in MPFR; keys and sums that agree to 4000 bits are taken
 * as equal, which no theorem of the code under test went into. Failed allocations abort. */
#ifndef BRUTE_GROUPS_H
#define BRUTE_GROUPS_H

#include "routed.h"

struct brute_group_truth {
    int experts, groups, top_k;
    mpfr_t *logit, *key, *score; /* [experts] */
    mpfr_t *group;               /* [groups] */
    bool *stays;                 /* [groups] */
    int *order, ranked;          /* experts of the groups that stay, descending */
    int *tied, tie_count, tie_slots, *group_tied, group_tie_count, group_tie_slots;
    mpfr_t gap, group_gap;
    mpfr_t *weight; /* [top_k] */
};
/* stays: the groups that stay, or NULL. */
void brute_groups_route(const struct mr_layer *layer, size_t token, const bool *stays,
                        struct brute_group_truth *out);
void brute_groups_free(struct brute_group_truth *b);

/* Certificates seen by expect_groups in this process, by code. */
extern int brute_groups_seen[MR_CERT_COUNT];

/* Routes all tokens, with plain and with exact weights and with one and three threads, and expects
 * ids, ties, gaps, certificates' class and weights to be the truth. may_be_undecided: tokens so
 * certified are only looked at for their number, which is returned. */
int expect_groups(const struct problem *p, bool may_be_undecided);

#endif
