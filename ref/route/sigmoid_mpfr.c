#include "score.h"

/* 1 / (1 + exp(-x)): exp within 1 ulp, sum and quotient correctly rounded: 4 ulp at most (the
 * relative error of exp counts by e/(1+e) < 1). */
void mr_sigmoid_mpfr(mpfr_t out, const mpfr_t logit)
{
    mpfr_prec_t want = mpfr_get_prec(out);
    mpfr_t t, x;
    mpfr_init2(t, 64);
    mpfr_init2(x, mpfr_get_prec(logit));
    mpfr_neg(x, logit, MPFR_RNDN);
    for (mpfr_prec_t p = want + 32;; p *= 2) {
        mpfr_set_prec(t, p);
        mpfr_exp(t, x, MPFR_RNDN);
        mpfr_add_ui(t, t, 1, MPFR_RNDN);
        mpfr_ui_div(t, 1, t, MPFR_RNDN);
        if (mpfr_zero_p(t)) break; /* exp overflows MPFR's exponents: below all of them */
        if (p > MR_COMPARE_CAP || mpfr_can_round(t, p - 3, MPFR_RNDN, MPFR_RNDN, want)) break;
    }
    mpfr_set(out, t, MPFR_RNDN);
    mpfr_clears(t, x, (mpfr_ptr)0);
}
