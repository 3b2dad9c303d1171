#include "exp_dd.h"

/* k = rint(x / ln 2); r = x - k ln 2 with ln 2 = L1 + L2 + L3 + d, |d| < 2^-140. L1 has 32 bits and
 * |k| < 2^21, so k L1 is exact, two_sum and two_prod keep everything else; r is off by less than
 * 2^-96 for |x| < 708 (2^-85 at MR_EXP_DD_MAX, where x.lo alone may be 2^-33).
 * exp(r) = 1 + h + h^2/2 + (h^3 Q(h) + l (1 + h + h^2/2)), r = h + l, |h| <= 0.3466. The first three
 * terms are summed exactly into c + (b + d), h^2/2 as two_prod. The bracket is below 0.0079 and is
 * computed in binary64 with at most 8 roundings' relative error (Q by Horner, and Taylor's remainder
 * h^15/15! below 2^-63): 0.0079 * 8 u = 0.064 u; adding b + d + bracket (below 0.0079 + 2^-51)
 * rounds by at most 0.02 u. Over exp(r) >= 0.707: 0.12 u = 2^-56.05. Worst seen against MPFR
 * in the tests: 2^-57.9. */
struct mr_scaled mr_exp_dd(struct mr_dd x)
{
    static const double q[12] = {
        /* 1/14! ... 1/3! */
        0x1.93974a8c07c9dp-37, 0x1.6124613a86d09p-33, 0x1.1eed8eff8d898p-29,
        0x1.ae64567f544e4p-26, 0x1.27e4fb7789f5cp-22, 0x1.71de3a556c734p-19,
        0x1.a01a01a01a01ap-16, 0x1.a01a01a01a01ap-13, 0x1.6c16c16c16c17p-10,
        0x1.1111111111111p-7,  0x1.5555555555555p-5,  0x1.5555555555555p-3};
    double k = nearbyint(x.hi * 0x1.71547652b82fep0);
    struct mr_dd r = mr_two_sum(x.hi, -k * 0x1.62e42feep-1);
    struct mr_dd kl2 = mr_two_prod(k, 0x1.a39ef35793c76p-33);
    r = mr_dd_add(r, (struct mr_dd){-kl2.hi, -kl2.lo});
    double low = r.lo + (x.lo - k * 0x1.cc01f97b57a08p-87);
    r = mr_two_sum(r.hi, low);
    double h = r.hi, p = q[0];
    for (int i = 1; i < 12; i++) p = p * h + q[i];
    struct mr_dd square = mr_two_prod(h, h);
    double bracket = square.hi * h * p + (square.lo * 0.5 + r.lo * (1 + (h + square.hi * 0.5)));
    struct mr_dd ab = mr_fast_two_sum(1, h), cd = mr_two_sum(ab.hi, square.hi * 0.5);
    struct mr_dd m = mr_fast_two_sum(cd.hi, (ab.lo + cd.lo) + bracket);
    return (struct mr_scaled){m, (int)k};
}

struct mr_dd mr_unscale(struct mr_scaled s)
{
    return (struct mr_dd){ldexp(s.m.hi, s.scale), ldexp(s.m.lo, s.scale)};
}

/* x <= 0: e/(1+e), whose relative derivative in e is 1/(1+e) <= 1; x > 0: 1/(1+e), derivative
 * e/(1+e) <= 1/2. With exp's 2^-56.05, the sum's 3u^2 and the quotient's 10u^2: below 2^-56,
 * stated as 2^-55. */
struct mr_scaled mr_sigmoid_dd(struct mr_dd x)
{
    const struct mr_dd one = {1, 0};
    int negative = x.hi <= 0;
    struct mr_scaled e = mr_exp_dd(negative ? x : mr_dd_neg(x));
    struct mr_dd d = mr_dd_add(one, mr_unscale(e));
    struct mr_scaled s = {mr_dd_div(negative ? e.m : one, d), negative ? e.scale : 0};
    return s;
}
