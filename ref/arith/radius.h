/* The error radius of an arithmetic: how far rounding alone can move the rank key and the weight of
 * an expert. Derived, never measured (derivations in sums.c, score_error.c and radius.c).
 *
 * All is by intervals: what a kernel computes lies in [lo, hi]. Rounding to nearest is monotone, so
 * a stored value lies between the rounded ends; a bias rounded to bf16 is known, not bounded. An
 * omitted expert i can have been beaten by an included expert j only if
 *     key_i - key_j <= (key_i - lo_i) + (hi_j - key_j),
 * which is the test of DESIGN section 4 with r_i the radius downwards and r_j the radius upwards.
 *
 * Use. The radius grows with dot.magnitude, so three calls of rising cost decide:
 *   1. magnitude = |logit|, which is never above sum|p|. A difference that this excuses is excused.
 *   2. magnitude = ||x|| ||w||. A difference that this does not excuse is wrong.
 *   3. only in between, magnitude = mr_dot_magnitude of the stored rows.
 * Tokens with a logit that is not finite are not judged.
 *
 * How wide. Bounds of sums are attained (1.00 of a binary32 order, 0.95 of a tensor-core chain),
 * and with them those of keys and weights. With logits given, the worst kernels that the tests make
 * come to 1/6 of the radius of MR_FORM_ANY and 2/5 of that of their own form, or more.
 *
 * Not covered, so WRONG if it matters: TF32 and bf16x3 products, partial sums stored below
 * binary32, a linear bias added to a logit that was rounded to bf16 before, score + bias rounded to
 * bf16 (SGLang moe_fused_gate.cu@00c0d65, vLLM grouped_topk_kernels.cu@05bd69c with bf16 logits),
 * tanh.approx unless score:sigmoid.tanhf.fast declares it. */
#ifndef MOEREF_RADIUS_H
#define MOEREF_RADIUS_H

#include "../route/router.h"
#include "arith.h"
#include "sums.h"

struct mr_interval {
    double lo, hi;
};

/* How a kernel evaluates exp, log, quotients (bounds and sources in score_error.c). */
enum mr_form {
    MR_FORM_ANY,     /* any of the following */
    MR_FORM_ROUNDED, /* every score and quotient correctly rounded (what arith.h says) */
    MR_FORM_EXPF,    /* library expf, logf, log1pf, sqrtf; division, or 1/sum and a product */
    MR_FORM_FAST,    /* __expf, ex2.approx, __logf, rcp.approx, div.full, sqrt.approx; FTZ */
    MR_FORM_TANH,    /* sigmoid as 0.5 tanhf(0.5 x) + 0.5; the rest as EXPF */
    MR_FORM_TANH_FAST /* the same sigmoid with tanh.approx; the rest as FAST */
};

/* What the kernel is taken to do. */
struct mr_error_model {
    struct mr_arith arith;
    struct mr_sum sum;
    enum mr_form form;
    double guard; /* the most that was added to, or is a floor of, the renormalising sum: 1e-20 */
};
/* declared: the words of --arith or of the case; NULL: nothing is declared, all is binary32. The
 * words say where values are rounded, not how a sum or an exp is evaluated: those are the widest.
 * If weights were stored in a narrower type than that, the caller sets arith.weights to it. */
struct mr_error_model mr_error_model(const struct mr_arith *declared);

/* One expert of one token. */
struct mr_radius_expert {
    double logit, error; /* within error of the exact logit; if error is 0 logit is exact */
    double bias;         /* 0 without one */
    struct mr_dot dot;   /* not read if the model's sum is EXACT */
};

/* What all experts of a token share. Read for softmax over all experts only. */
struct mr_radius_row {
    double max, z;       /* largest logit; sum of exp(logit - max), */
    double z_error;      /*   within this relative error */
    double logit_radius; /* >= mr_logit_radius of every expert: call it for the largest |logit| with
                            the largest magnitude and error */
};

/* The computed logit, rounded to its type. */
struct mr_interval mr_logit_interval(const struct mr_error_model *m,
                                     const struct mr_radius_expert *e);
/* >= |computed - exact logit|; grows with |logit|, error, terms and magnitude. */
double mr_logit_radius(const struct mr_error_model *m, const struct mr_radius_expert *e);

/* The computed rank key, for any router of router.h but its groups. row may be NULL unless softmax
 * is over all experts. */
struct mr_interval mr_key_interval(const struct mr_error_model *m, const struct mr_router *router,
                                   const struct mr_radius_row *row,
                                   const struct mr_radius_expert *e);
/* The exact key in binary64, within 2^-50 (1 + |key|) plus what error makes of it. */
double mr_key_value(const struct mr_router *router, const struct mr_radius_row *row,
                    const struct mr_radius_expert *e);
/* >= |computed - exact key|. */
double mr_key_radius(const struct mr_error_model *m, const struct mr_router *router,
                     const struct mr_radius_row *row, const struct mr_radius_expert *e);

/* One omitted and one included expert. */
struct mr_pair {
    double difference; /* exact key of omitted - of included */
    double radius;     /* how large rounding lets it be */
    bool excused;      /* difference <= radius */
};
/* Sharper than two key intervals where softmax divides both scores by one computed sum. */
struct mr_pair mr_pair_radius(const struct mr_error_model *m, const struct mr_router *router,
                              const struct mr_radius_row *row,
                              const struct mr_radius_expert *omitted,
                              const struct mr_radius_expert *included);

/* The computed score of a group from the key intervals of its n experts; group scores are compared
 * as keys are. */
struct mr_interval mr_group_interval(enum mr_group_score rule, const struct mr_interval *keys,
                                     size_t n);

/* Weights of the k selected experts. */
struct mr_weight {
    double exact;                /* in binary64, within 2^-48 relatively, if errors are 0 */
    struct mr_interval computed; /* what rounding can make of it */
};
/* k <= MR_RADIUS_MOST; all experts' dots and errors as for keys. */
#define MR_RADIUS_MOST 1024
enum mr_status mr_weight_radius(const struct mr_error_model *m, const struct mr_router *router,
                                const struct mr_radius_row *row,
                                const struct mr_radius_expert *selected, int k,
                                struct mr_weight *out, struct mr_error *err);

#endif
