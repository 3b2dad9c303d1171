#include "score.h"

/* sqrt(max(x, 0) + log1p(e^-|x|)): exp within 1/2 ulp, which log1p at most passes on (t/((1+t)
 * log(1+t)) <= 1), log1p and the sum round, the root halves and rounds: 2 ulp, stated as 4.
 * No value is a floating-point number q: log(1 + e^x) = q^2 means 1 + e^x = e^(q^2), with rational
 * x and q: exponentials of 0, x and q^2 are independent unless two of these are equal, which leaves
 * 1 = 0 (x = q^2) or a rational and a transcendental number equal (x = 0). So Ziv's loop ends
 * but for time. Its cap meets x > 0 so large that e^-x is beyond it: then the value is the root of
 * x and a little more, which is above a tie that the root of x alone may be.
 * Where e^x leaves MPFR's exponents e^(x/2), within e^x / 4 relatively, does not. */
void mr_sqrt_softplus_mpfr(mpfr_t out, const mpfr_t logit)
{
    mpfr_prec_t want = mpfr_get_prec(out);
    int above = mpfr_sgn(logit) > 0;
    mpfr_t t, x;
    mpfr_init2(t, 64);
    mpfr_init2(x, mpfr_get_prec(logit));
    mpfr_abs(x, logit, MPFR_RNDN);
    mpfr_neg(x, x, MPFR_RNDN);
    for (mpfr_prec_t p = want + 32;; p *= 2) {
        mpfr_set_prec(t, p);
        mpfr_exp(t, x, MPFR_RNDN);
        if (mpfr_zero_p(t) && !above) {
            mpfr_div_2ui(x, x, 1, MPFR_RNDN);
            mpfr_exp(t, x, MPFR_RNDN);
            mpfr_mul_2ui(x, x, 1, MPFR_RNDN);
        } else {
            mpfr_log1p(t, t, MPFR_RNDN);
            if (above) mpfr_add(t, t, logit, MPFR_RNDN);
            mpfr_sqrt(t, t, MPFR_RNDN);
        }
        if (mpfr_zero_p(t) || mpfr_can_round(t, p - 4, MPFR_RNDN, MPFR_RNDN, want)) break;
        if (p <= MR_COMPARE_CAP) continue;
        if (above && mpfr_sqrt(t, logit, MPFR_RNDN) == 0) mpfr_nextabove(t);
        break;
    }
    mpfr_set(out, t, MPFR_RNDN);
    mpfr_clears(t, x, (mpfr_ptr)0);
}
