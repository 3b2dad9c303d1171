/* What the judge asks for (verdict.h), from certification at work (inspect.h) and the error
 * model of an arithmetic (arith/radius.h). */
#ifndef MOEREF_VERDICT_SOURCE_H
#define MOEREF_VERDICT_SOURCE_H

#include "inspect.h"
#include "verdict.h"

/* Working memory of one thread. hidden: columns of the hidden states, 0 if logits are given. */
struct mr_figures;
enum mr_status mr_figures_new(const struct mr_router *router, size_t hidden,
                              struct mr_figures **out);
void mr_figures_free(struct mr_figures *f);

/* A new token; t is kept during the callback that it belongs to. If its inputs are not finite,
 * there are no figures, and nothing below but the source itself may be asked for. */
void mr_figures_token(struct mr_figures *f, const struct mr_inspection *t);
/* How rounding is taken to work from here on; model is kept. If logits are given, sums are exact
 * whatever it says. Set after the token. */
void mr_figures_model(struct mr_figures *f, const struct mr_error_model *model);
struct mr_judge_source mr_figures_source(struct mr_figures *f);

/* Power to detect: whether taking the first rejected expert (there must be one) in place of the
 * last selected would be WRONG under the model. */
enum mr_status mr_figures_swap_is_wrong(struct mr_figures *f, bool *wrong);

/* Logits that a kernel computed, [experts], instead of a claim: MR_EXACT if all are within their
 * radii, MR_NONFINITE, or MR_WRONG (MR_CAUSE_LOGIT). *error is the largest |found - exact|. Makes
 * every logit exact: slow. */
enum mr_status mr_figures_logits(struct mr_figures *f, const double *found,
                                 struct mr_judgement *out, double *error);

#endif
