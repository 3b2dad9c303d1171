/* Tokens for the tests of keys and weights: given logits, what is known of their sums, and what a
 * kernel may make of them. All random numbers come from one stream. */
#ifndef RADIUS_CASES_H
#define RADIUS_CASES_H

#include "radius_kernels.h"

extern uint64_t case_state;
int case_rounds(int few); /* more if MOEREF_LONG is set */
double case_between(double a, double b);
int case_push(void); /* -1, 0, 1 */

/* The 24 lines of arith.h, then twelve with fp16 weights. */
enum { CASE_LINES = 36 };
struct mr_arith case_line(int i);
extern const enum mr_sum_kind case_sums[4]; /* EXACT first */
extern const enum mr_form case_form[KERNEL_SCORE_COUNT];

float case_logit(void); /* a binary32 number, of any size up to 60 */
/* 4096 products of magnitude width (|logit| + 1). */
struct mr_radius_expert case_expert(float logit, double bias, double width);
/* Within its radius, at its upper (push 1) or lower end or anywhere; rounded to the type. */
float case_computed(const struct mr_error_model *m, const struct mr_radius_expert *e, int push);

enum { CASE_EXPERTS = 24 };
struct token {
    struct mr_radius_expert e[CASE_EXPERTS];
    struct mr_radius_row row;
    double logit[CASE_EXPERTS];
};
void case_token(struct token *t, const struct mr_error_model *m, double spread, bool bias);
void case_row(struct token *t, const struct mr_error_model *m); /* from the logits */

/* Fails the test unless got is in k. */
void case_inside(struct mr_interval k, double got, const char *what, double logit, double bias);

#endif
