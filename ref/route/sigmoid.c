/* sigmoid: filter and double-double forms; its MPFR twin is sigmoid_mpfr.c. */
#include "../exact/exp_dd.h"
#include "../exact/vmath.h"
#include "keys_simd.h"
#include "score.h"

/* |sigma'| <= 1/4, so a logit within r gives a score within r/4 of sigma of the filtered logit. */
static void filter(struct mr_certifier *c, const struct mr_token *t)
{
    size_t n = (size_t)c->experts;
    mr_vec_sigmoid(t->logits, n, c->score);
    MR_ISA_PICK(mr_key_intervals)
    (c->score, t->norm, t->bias, n, t->scale * 0.25, t->offset * 0.25 + MR_TINY,
     MR_SIGMOID_ULPS * 0x1p-53, c->lo, c->hi);
}

static enum mr_status refine(struct mr_certifier *c, const struct mr_token *t, int count)
{
    (void)t;
    c->common_rel = 0;
    for (int i = 0; i < count; i++) {
        struct mr_key *k = &c->keys[i];
        double l = k->logit.hi;
        k->rel = MR_SIGMOID_DD_REL;
        if (fabs(l) < 700) {
            k->score = mr_unscale(mr_sigmoid_dd((struct mr_dd){l, k->logit.lo}));
        } else { /* within e^-700 of 0 or 1, which compare allows for */
            k->score = (struct mr_dd){l > 0, 0};
        }
    }
    return MR_OK;
}

const struct mr_score_ops mr_sigmoid_ops = {filter, refine};
