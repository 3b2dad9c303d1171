/* A token whose exact keys, radii and weights are plain arrays: a source for the judge whose right
 * answers can be told by hand or by brute force. */
#ifndef FAKE_TOKEN_H
#define FAKE_TOKEN_H

#include "../../ref/route/verdict.h"

enum { FAKE_EXPERTS = 32, FAKE_TOP_K = 8 };

struct fake_token {
    struct mr_router router;
    double key[FAKE_EXPERTS], radius[FAKE_EXPERTS];       /* exact; of both sides */
    double weight[FAKE_EXPERTS], weight_radius[FAKE_EXPERTS]; /* whatever the set chosen */
    int32_t ids[FAKE_TOP_K]; /* certified, from the keys */
    int ties[FAKE_EXPERTS];
    struct mr_routed routed;
    int key_calls, weight_calls;
};

/* experts, top_k; no groups. All keys 0, all radii 0. */
void fake_new(struct fake_token *t, int experts, int top_k);
/* Fills ids, ties and the certificate from the keys: descending, equal keys by lowest expert. */
void fake_certify(struct fake_token *t);
struct mr_judge_source fake_source(struct fake_token *t);
/* Judges ids [top_k] (weights may be NULL). */
struct mr_judgement fake_judge(struct fake_token *t, const int64_t *ids, const double *weights,
                               bool ordered);
/* What the certified choice looks like. */
void fake_right(const struct fake_token *t, int64_t *ids, double *weights);

#endif
