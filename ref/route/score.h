/* The score functions behind one table: filter form, double-double form, MPFR twin. Adding a score
 * is adding a row (ref/route/score.c), its two files and its worst cases. */
#ifndef MOEREF_SCORE_H
#define MOEREF_SCORE_H

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

extern const struct mr_score_ops mr_sigmoid_ops, mr_softmax_ops;

/* exp(logit - m), logit not above m, within MR_SOFTMAX_TERM_REL if both are complete or below 2^40 in
 * size (what hi and lo leave out is 2^-106 of that); 0 below e^-700. */
#define MR_SOFTMAX_TERM_REL (MR_EXP_DD_REL + 0x1p-64)
struct mr_dd mr_softmax_term(const struct mr_exact *logit, const struct mr_exact *m);

/* MPFR twins: out = the score correctly rounded (RNE) to out's precision, by Ziv's strategy; a
 * result that stays undecidable at 65536 bits is exactly representable and is taken as it is.
 * Logits are exact. */
void mr_sigmoid_mpfr(mpfr_t out, const mpfr_t logit);
/* logits [count]; out[i] for i = which only. */
void mr_softmax_mpfr(mpfr_t out, const mpfr_t *logits, int count, int which);

#endif
