/* Inside of profile_*.c. */
#ifndef MOEREF_PROFILE_PRIVATE_H
#define MOEREF_PROFILE_PRIVATE_H

#include "../arith/cuda.h"
#include "profile_emulate.h"

/* The exact sum rounded once. */
float mr_sum_once(const float *v, int n);
/* a / b as the engine's compiler has it. */
float mr_quotient(float a, float b, enum mr_division how);

bool mr_form_softmax(enum mr_score_form form);
bool mr_form_reciprocal(enum mr_score_form form); /* a softmax that multiplies by 1 / sum */
enum mr_cuda_id mr_form_exp(enum mr_score_form form); /* the exp of a softmax */
/* e = exp(x - max x); then e to shares of a given sum, in place. x may be e. */
void mr_exp_below_max(enum mr_score_form form, const float *x, int n, float *e);
void mr_shares(enum mr_score_form form, float sum, enum mr_division how, int n, float *e);
/* Softmax of a whole row of logits. */
void mr_profile_softmax(const struct mr_profile_row *row, enum mr_type logits, const float *x,
                        int n, float *p);

/* Selection (profile_select.c). */
void mr_profile_select(const struct mr_profile_row *row, const struct mr_router *router,
                       const struct mr_profile_batch *batch, const float *logits,
                       const float *bias, struct mr_profile_scratch *s, int32_t *ids,
                       bool *uniform, struct mr_profile_note *note);

#endif
