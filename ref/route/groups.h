/* Group-limited selection (DeepSeek-V3, arXiv:2412.19437, section 2.1.2; transformers'
 * DeepseekV3TopkRouter): which groups stay, certified; and the same in binary32, emulated. */
#ifndef MOEREF_GROUPS_H
#define MOEREF_GROUPS_H

#include "certify.h"

/* Working memory of one certifier; NULL if there is none. */
struct mr_groups *mr_groups_new(int experts);
void mr_groups_free(struct mr_groups *g);

/* For a token whose router has n_group > topk_group: sets out->stays, group_gap, group_gap_radius
 * and group ties, and *level to what was needed to prove the choice. Equal groups: the lowest ids
 * stay. c->lo and c->hi are lost. */
enum mr_status mr_choose_groups(struct mr_certifier *c, const struct mr_token *token,
                                struct mr_routed *out, enum mr_certificate *level);
/* The same with every logit made exact, for a softmax whose denominator is not known well
 * enough. */
enum mr_status mr_choose_groups_exactly(struct mr_certifier *c, const struct mr_token *token,
                                        struct mr_routed *out, enum mr_certificate *level);

/* Emulated arithmetic: a group's score is its largest key, or its two largest added in binary32
 * with one rounding (NaN keys never count as larger); the topk_group largest stay, the lowest id
 * among equals. stays [n_group]. score [n_group] is scratch. */
void mr_emulated_groups(const struct mr_router *router, const float *key, float *score,
                        uint8_t *stays);

#endif
