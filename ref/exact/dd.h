/* Error-free transformations and a minimum of double-double arithmetic, in round-to-nearest.
 * T. J. Dekker, Numer. Math. 18 (1971); D. E. Knuth, TAOCP 2, 4.2.2; M. Joldes, J.-M. Muller,
 * V. Popescu, "Tight and rigorous error bounds for basic building blocks of double-word
 * arithmetic", ACM TOMS 44 (2017): the bounds quoted below are theirs, u = 2^-53. */
#ifndef MOEREF_DD_H
#define MOEREF_DD_H

#include <math.h>

struct mr_dd {
    double hi, lo; /* |lo| <= ulp(hi)/2 */
};

/* hi + lo == a + b exactly (no overflow). */
static inline struct mr_dd mr_two_sum(double a, double b)
{
    double s = a + b, t = s - a;
    return (struct mr_dd){s, (a - (s - t)) + (b - t)};
}

/* The same when |a| >= |b| or a == 0. */
static inline struct mr_dd mr_fast_two_sum(double a, double b)
{
    double s = a + b;
    return (struct mr_dd){s, b - (s - a)};
}

/* hi + lo == a * b exactly (no overflow, and no underflow below 2^-968). */
static inline struct mr_dd mr_two_prod(double a, double b)
{
    double p = a * b;
    return (struct mr_dd){p, fma(a, b, -p)};
}

/* AccurateDWPlusDW: relative error below 3u^2/(1-4u), for any signs. */
static inline struct mr_dd mr_dd_add(struct mr_dd a, struct mr_dd b)
{
    struct mr_dd s = mr_two_sum(a.hi, b.hi), t = mr_two_sum(a.lo, b.lo);
    s = mr_fast_two_sum(s.hi, s.lo + t.hi);
    return mr_fast_two_sum(s.hi, s.lo + t.lo);
}

static inline struct mr_dd mr_dd_neg(struct mr_dd a)
{
    return (struct mr_dd){-a.hi, -a.lo};
}

/* DWTimesDW3: relative error below 4u^2. */
static inline struct mr_dd mr_dd_mul(struct mr_dd a, struct mr_dd b)
{
    struct mr_dd p = mr_two_prod(a.hi, b.hi);
    double t = fma(a.lo, b.hi, fma(a.hi, b.lo, a.lo * b.lo));
    return mr_fast_two_sum(p.hi, p.lo + t);
}

/* DWDivDW3: relative error below 10u^2. b.hi must not be zero, and 1/b.hi must not overflow. */
static inline struct mr_dd mr_dd_div(struct mr_dd a, struct mr_dd b)
{
    double t = 1.0 / b.hi, r = fma(-b.hi, t, 1.0), s = -(b.lo * t);
    struct mr_dd e = mr_fast_two_sum(r, s);
    struct mr_dd d = mr_two_prod(e.hi, t);
    d = mr_fast_two_sum(d.hi, d.lo + e.lo * t);
    struct mr_dd m = mr_fast_two_sum(t, d.hi);
    m.lo += d.lo;
    return mr_dd_mul(a, m);
}

#endif
