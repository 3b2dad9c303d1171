#include "score.h"

/* 1 / sum_e exp(l_e - l_which). l_e - l_which rounds by 2^-p |l_e - l_which|, which exp makes a
 * relative error; the exponent of the largest difference pays for that. count exps and additions of
 * positive numbers: at most count + 3 ulp more. */
void mr_softmax_mpfr(mpfr_t out, const mpfr_t *logits, int count, int which)
{
    mpfr_prec_t want = mpfr_get_prec(out), lost = 4;
    mpfr_t t, sum;
    mpfr_init2(t, 64);
    mpfr_init2(sum, 64);
    for (int e = 0; e < count; e++) {
        mpfr_sub(t, logits[e], logits[which], MPFR_RNDA);
        if (!mpfr_zero_p(t) && mpfr_get_exp(t) + 4 > lost) lost = mpfr_get_exp(t) + 4;
    }
    for (int n = count; n; n >>= 1) lost++;
    for (mpfr_prec_t p = want + lost + 32;; p *= 2) {
        mpfr_set_prec(t, p);
        mpfr_set_prec(sum, p);
        mpfr_set_zero(sum, 1);
        for (int e = 0; e < count; e++) {
            mpfr_sub(t, logits[e], logits[which], MPFR_RNDN);
            mpfr_exp(t, t, MPFR_RNDN);
            mpfr_add(sum, sum, t, MPFR_RNDN);
        }
        mpfr_ui_div(t, 1, sum, MPFR_RNDN);
        if (p > MR_COMPARE_CAP || mpfr_zero_p(t) ||
            mpfr_can_round(t, p - lost, MPFR_RNDN, MPFR_RNDN, want)) break;
    }
    mpfr_set(out, t, MPFR_RNDN);
    mpfr_clears(t, sum, (mpfr_ptr)0);
}
