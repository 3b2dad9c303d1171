/* The score functions behind one table: filter form, double-double form, MPFR twin. Adding a score
 * is adding a row (ref/route/score.c), its two files and its worst cases. */
#ifndef MOEREF_SCORE_H
#define MOEREF_SCORE_H

#include "../exact/exp_dd.h"
#include "certify.h"

struct mr_score_ops {
    /* Fills c->score (all experts, from the filtered logits) and c->lo, c->hi: intervals of
     * something that ranks the experts (keys, or logits where scores are monotone and no bias is
     * there). */
    void (*filter)(struct mr_certifier *c, const struct mr_token *t);
    /* Fills score and rel of the first `count` keys from their exact logits; for softmax it also
     * sets c->common_rel. Reports what the token's source does. */
    enum mr_status (*refine)(struct mr_certifier *c, const struct mr_token *t, int count);
};
const struct mr_score_ops *mr_score_ops(enum mr_score score);
/* What a router ranks by: the score's row, or with MR_SELECT_LOGIT that of after_topk.c. */
const struct mr_score_ops *mr_router_ops(const struct mr_router *router);

extern const struct mr_score_ops mr_sigmoid_ops, mr_softmax_ops, mr_sqrt_softplus_ops,
    mr_after_topk_ops;

/* Whether a weight needs every expert's logit exactly: a softmax over all that is not
 * normalised. */
static inline bool mr_needs_every_logit(const struct mr_router *r)
{
    return r->score == MR_SCORE_SOFTMAX && r->selection == MR_SELECT_SCORE && !r->norm_topk_prob;
}

/* Whether groups compete: n_group > topk_group; by sums of two keys. */
static inline bool mr_groups_compete(const struct mr_router *r)
{
    return r->n_group > r->topk_group;
}
static inline bool mr_keys_are_summed(const struct mr_router *r)
{
    return mr_groups_compete(r) && r->group_score == MR_GROUP_TOP2_SUM;
}

/* exp(logit - m), logit not above m, within MR_SOFTMAX_TERM_REL if both are complete or below 2^40
 * in size (what hi and lo leave out is 2^-106 of that); 0 below e^-700. */
#define MR_SOFTMAX_TERM_REL (MR_EXP_DD_REL + 0x1p-64)
struct mr_dd mr_softmax_term(const struct mr_exact *logit, const struct mr_exact *m);

/* MPFR twins: out = the score correctly rounded (RNE) to out's precision, by Ziv's strategy; a
 * result that stays undecidable at 65536 bits is exactly representable and is taken as it is.
 * Logits are exact. */
void mr_sigmoid_mpfr(mpfr_t out, const mpfr_t logit);
void mr_sqrt_softplus_mpfr(mpfr_t out, const mpfr_t logit);
/* logits [count]; out[i] for i = which only. */
void mr_softmax_mpfr(mpfr_t out, const mpfr_t *logits, int count, int which);

#endif
