/* exp and sigmoid of a double-double argument, as double-double times a power of two: what weights
 * and keys of selected experts are made of. Round-to-nearest. */
#ifndef MOEREF_EXP_DD_H
#define MOEREF_EXP_DD_H

#include "dd.h"

/* (hi + lo) * 2^scale, hi in [1/4, 4). */
struct mr_scaled {
    struct mr_dd m;
    int scale;
};

/* |x| up to this is served; beyond it callers go to MPFR. */
#define MR_EXP_DD_MAX 0x1p20

/* Relative error bounds (derivations in exp_dd.c). */
#define MR_EXP_DD_REL 0x1p-56
#define MR_SIGMOID_DD_REL 0x1p-55

struct mr_scaled mr_exp_dd(struct mr_dd x);
struct mr_scaled mr_sigmoid_dd(struct mr_dd x);

/* As an unscaled double-double; underflow loses at most 2^-1073. */
struct mr_dd mr_unscale(struct mr_scaled s);

#endif
