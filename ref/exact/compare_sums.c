/* Group scores: sums of two keys.
 *
 * D = B + sum_i s_i f(l_i), with s = +1 for the two keys of a, -1 for those of b, and B the bias of
 * a's less that of b's, rational. Logits that stand on both sides cancel first; n = 0, 1 or 2 are
 * left a side. Then, exactly: n = 0 leaves B. If a's logits, sorted, are not below b's and B >= 0,
 * D > 0 (scores increase with the logit), and the other way round. Sigmoid and softmax scores lie
 * strictly between 0 and 1: |B| >= n decides alone.
 *
 * Sigmoid: with t_i = e^(-l_i), D = 0 means, times all (1 + t_i),
 *   sum over subsets S of the terms of c(S) e^(-sum_S l) = 0,   c(S) = B + sum of s_i, i not in S.
 * The exponents are rational and the c rational: by Lindemann-Weierstrass D = 0 exactly if, for
 * each different value of sum_S l, the c(S) of the subsets that have it sum to 0. There are 16
 * subsets at most, and all of this is rational arithmetic. It knows sigma(x) + sigma(-x) = 1,
 * sigma(0) = 1/2, and whatever else holds.
 * Softmax: times the denominator, sum over e of (B + c_e) e^(l_e), with c_e = s_i for the experts
 * of the sums and 0 for the others. D = 0 exactly if B n_v + c_v = 0 for each value v that n_v
 * logits have, c_v their c's sum. All c sum to 0, so B times the number of experts is 0, hence B =
 * 0 and all c_v = 0: nothing is left on either side, n = 0.
 * So for both a difference that is no tie shows in the end. sqrt-softplus has no such theorem. */
#include <stdlib.h>

#include "sum_sign.h"

/* What is left of the logits after the common ones cancel, largest first. */
struct sides {
    mpfr_t value[2][2];
    int left;
};

/* Moves a logit that both sides have to the end of both. */
static bool common_last(struct sides *s)
{
    for (int i = 0; i < s->left; i++)
        for (int j = 0; j < s->left; j++) {
            if (!mpfr_equal_p(s->value[0][i], s->value[1][j])) continue;
            mpfr_swap(s->value[0][i], s->value[0][s->left - 1]);
            mpfr_swap(s->value[1][j], s->value[1][s->left - 1]);
            return true;
        }
    return false;
}

static enum mr_status read_sides(const struct mr_key *const *a, const struct mr_key *const *b,
                                 const struct mr_logit_source *source, struct sides *s)
{
    for (int i = 0; i < 2; i++) {
        const struct mr_key *const *k = i ? b : a;
        for (int j = 0; j < 2; j++) {
            enum mr_status status = mr_key_logit(k[j], source, s->value[i][j]);
            if (status) return status;
        }
        if (mpfr_less_p(s->value[i][0], s->value[i][1])) mpfr_swap(s->value[i][0], s->value[i][1]);
    }
    s->left = 2;
    while (s->left && common_last(s)) s->left--;
    return MR_OK;
}

/* 1 or -1 if biases and order settle it, 0 if not; *tie if nothing is left. */
static int settled(enum mr_score score, const struct sides *s, const mpfr_t bias, bool *tie)
{
    int sign = mpfr_sgn(bias), above = 1, below = 1;
    *tie = s->left == 0 && sign == 0;
    if (s->left == 0) return sign;
    if (score != MR_SCORE_SQRT_SOFTPLUS && mpfr_cmpabs_ui(bias, (unsigned long)s->left) >= 0)
        return sign;
    for (int i = 0; i < s->left; i++) {
        above &= mpfr_greaterequal_p(s->value[0][i], s->value[1][i]) != 0;
        below &= mpfr_lessequal_p(s->value[0][i], s->value[1][i]) != 0;
    }
    return above && sign >= 0 ? 1 : below && sign <= 0 ? -1 : 0;
}

/* Is B + sum of s_i sigma(l_i) exactly 0? */
static bool sigmoid_vanishes(const struct mr_signed_logit *term, int count, const mpfr_t bias)
{
    enum { MOST = 1 << MR_SUM_TERMS };
    mpfr_t exponent[MOST], total;
    int subsets = 1 << count, ones[MOST];
    bool vanishes = true, done[MOST] = {false};
    mpfr_init2(total, MR_SUM_BITS);
    for (int s = 0; s < subsets; s++) {
        mpfr_init2(exponent[s], MR_SUM_BITS);
        mpfr_set_zero(exponent[s], 1);
        ones[s] = 0;
        for (int i = 0; i < count; i++) {
            if (s >> i & 1) mpfr_add(exponent[s], exponent[s], term[i].value, MPFR_RNDN);
            else ones[s] += term[i].sign;
        }
    }
    for (int s = 0; s < subsets && vanishes; s++) {
        if (done[s]) continue;
        mpfr_set_zero(total, 1);
        for (int r = s; r < subsets; r++) {
            if (!mpfr_equal_p(exponent[r], exponent[s])) continue;
            done[r] = true;
            mpfr_add(total, total, bias, MPFR_RNDN);
            mpfr_add_si(total, total, ones[r], MPFR_RNDN);
        }
        vanishes = mpfr_zero_p(total) != 0;
    }
    for (int s = 0; s < subsets; s++) mpfr_clear(exponent[s]);
    mpfr_clear(total);
    return vanishes;
}

static enum mr_status exactly(enum mr_score score, const struct mr_key *const *a,
                              const struct mr_key *const *b, const struct mr_logit_source *source,
                              struct mr_order *out)
{
    struct sides s;
    mpfr_t bias;
    mpfr_init2(bias, MR_SUM_BITS);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) mpfr_init2(s.value[i][j], MR_SUM_BITS);
    mpfr_set_d(bias, a[0]->bias, MPFR_RNDN);
    mpfr_add_d(bias, bias, a[1]->bias, MPFR_RNDN);
    mpfr_sub_d(bias, bias, b[0]->bias, MPFR_RNDN);
    mpfr_sub_d(bias, bias, b[1]->bias, MPFR_RNDN);
    enum mr_status status = read_sides(a, b, source, &s);
    bool tie = false;
    if (!status) {
        struct mr_signed_logit term[MR_SUM_TERMS];
        int count = 0;
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < s.left; j++)
                term[count++] = (struct mr_signed_logit){s.value[i][j], i ? -1 : 1};
        out->sign = settled(score, &s, bias, &tie);
        tie |= !out->sign && score == MR_SCORE_SIGMOID && sigmoid_vanishes(term, count, bias);
        if (tie) {
            *out = (struct mr_order){0, MR_LEVEL_TIE, 0, 0};
        } else if (out->sign) {
            out->level = MR_LEVEL_EXACT;
            if (s.left == 0) {
                out->gap = fabs(mpfr_get_d(bias, MPFR_RNDN));
                out->radius = 0x1p-53 * out->gap + 0x1p-1074;
            }
        } else {
            status = mr_sum_sign(score, term, count, bias, source, out);
        }
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) mpfr_clear(s.value[i][j]);
    mpfr_clear(bias);
    return status;
}

enum mr_status mr_compare_sums(enum mr_score score, const struct mr_key *const a[2],
                               const struct mr_key *const b[2], double common_rel,
                               const struct mr_logit_source *source, struct mr_order *out)
{
    double own = 0, size = 0;
    for (int i = 0; i < 2; i++) {
        own += a[i]->rel * fabs(a[i]->score.hi) + b[i]->rel * fabs(b[i]->score.hi);
        size += fabs(a[i]->score.hi) + fabs(b[i]->score.hi);
    }
    struct mr_dd s = mr_dd_add(mr_dd_add(a[0]->score, mr_dd_neg(b[0]->score)),
                               mr_dd_add(a[1]->score, mr_dd_neg(b[1]->score)));
    struct mr_dd bias = mr_dd_add(mr_two_sum(a[0]->bias, -b[0]->bias),
                                  mr_two_sum(a[1]->bias, -b[1]->bias));
    double d = mr_dd_add(s, bias).hi;
    /* two_sum is exact, each dd sum errs by 3u^2 of its own result: large biases that cancel cost
     * nothing. */
    double radius = own * (1 + common_rel) + common_rel * fabs(s.hi) +
                    0x1p-100 * (size + fabs(bias.hi) + fabs(d));
    radius += 0x1p-998 + 0x1p-50 * radius;
    *out = (struct mr_order){0, MR_LEVEL_UNDECIDED, fabs(d), radius + 0x1p-53 * fabs(d)};
    if (out->gap > radius) {
        out->sign = d > 0 ? 1 : -1;
        out->level = MR_LEVEL_EXACT;
        return MR_OK;
    }
    return exactly(score, a, b, source, out);
}
