/* MR_SELECT_LOGIT: logits rank, and the selected ones alone are scored. softmax over them: gpt-oss
 * (transformers' GptOssTopKRouter), Mixtral; sigmoid of the one: Llama 4 (transformers'
 * Llama4Router). Keys are logits: c->score holds them, no bias is added, and the gap is a
 * difference of logits. */
#include <string.h>

#include "keys_simd.h"
#include "score.h"

static void filter(struct mr_certifier *c, const struct mr_token *t)
{
    size_t n = (size_t)c->experts;
    memcpy(c->score, t->logits, n * sizeof *c->score);
    MR_ISA_PICK(mr_value_intervals)(t->logits, t->norm, n, t->scale, t->offset, c->lo, c->hi);
}

/* For softmax exp(l - m) with m the largest of these logits, which the weights then share out; it
 * is below e^-700 where they have to go to MPFR. */
static enum mr_status refine(struct mr_certifier *c, const struct mr_token *t, int count)
{
    if (t->router->score != MR_SCORE_SOFTMAX)
        return mr_score_ops(t->router->score)->refine(c, t, count);
    const struct mr_exact *m = &c->keys[0].logit;
    for (int i = 1; i < count; i++) {
        const struct mr_exact *l = &c->keys[i].logit;
        if (l->hi > m->hi || (!(l->hi < m->hi) && l->lo > m->lo)) m = l;
    }
    c->common_rel = 0;
    for (int i = 0; i < count; i++) {
        c->keys[i].score = mr_softmax_term(&c->keys[i].logit, m);
        c->keys[i].rel = MR_SOFTMAX_TERM_REL;
    }
    return MR_OK;
}

const struct mr_score_ops mr_after_topk_ops = {filter, refine};
