/* f(x) = sqrt(s), s = log(1 + e^x) = max(x, 0) + log1p(t), t = e^-|x|: all terms positive, so
 * nothing cancels and every step keeps its relative accuracy, in both tails.
 *
 * log1p(t) = 2 atanh(z), z = t / (2 + t) in [0, 1/3]: 2 z P(w), w = z^2 <= 1/9,
 * P = 1 + w/3 + w^2/5 + ... + w^16/33, the rest below w^17/35 * 9/8 < 2^-58.
 *
 * The error of z moves 2zP by its relative error times 1 + 2 w P'/P <= 1.09 (w P'/P <= 0.042 at
 * 1/9).
 *
 * binary64 (u = 2^-53): t is within 3 u (MR_EXP_ULPS), 2 + t rounds once (and takes on at most a
 * third of t's error, of the other sign: it does not help here), the quotient once more: z within 5
 * u. w rounds: 0.042 u. Horner with positive coefficients: the last step rounds 1 + w q once, and w
 * q, at most 0.04, with some 4 u: 1.2 u. The product rounds: 1 u. In all 5.45 + 0.05 + 1.2 + 1 +
 * 0.04 (rest) < 8 u. The sum with max(x, 0) rounds: 9 u. The root halves it and rounds: 5.5 u,
 * stated as 6. Below e^-708 mr_vec_exp_below is within 2^-1020 only; |sqrt(a) - sqrt(b)| <= sqrt(|a
 * - b|) makes that 2^-510.
 *
 * Double-double, -75 <= x <= 75: t within 2^-56 = u/8, z within that and 14 u^2. P = 1 + B, B <=
 * 0.04 in binary64: w from z.hi within 2 (1 + 1/8) u + u, B moves by at most 1.1 times that (d ln B
 * / d ln w), its Horner and the product w q round by 3.5 u: 7.1 u of B, 0.29 u of P. With 1.09 / 8
 * u from z, the rest's 2^-58 and some u^2: s is within 0.47 u, and the root within 0.24 u < 2^-55.
 * Where s is large the error is smaller, as max(x, 0) is exact.
 * x > 75: t < 2^-108 is left out: s = x, within 2^-114 and what x is off by; the root within 5 u^2.
 * x < -75: f = e^(x/2) sqrt(log1p(t)/t), and the root is within t/4 of 1. x.lo and what x leaves
 * out count absolutely in the exponent: 2^-106 * 1400 is nothing. */
#include "sqrt_softplus.h"

#include <math.h>

#include "../exact/exp_dd.h"
#include "../exact/vmath.h"
#include "keys_simd.h"
#include "score.h"

static const double series[16] = {
    /* 1/33, 1/31 ... 1/3 */
    0x1.f07c1f07c1f08p-6, 0x1.0842108421084p-5, 0x1.1a7b9611a7b96p-5, 0x1.2f684bda12f68p-5,
    0x1.47ae147ae147bp-5, 0x1.642c8590b2164p-5, 0x1.8618618618618p-5, 0x1.af286bca1af28p-5,
    0x1.e1e1e1e1e1e1ep-5, 0x1.1111111111111p-4, 0x1.3b13b13b13b14p-4, 0x1.745d1745d1746p-4,
    0x1.c71c71c71c71cp-4, 0x1.2492492492492p-3, 0x1.999999999999ap-3, 0x1.5555555555555p-2};

/* w/3 + w^2/5 + ... + w^16/33 */
static inline double atanh_rest(double w)
{
    double p = series[0];
    for (int i = 1; i < 16; i++) p = p * w + series[i];
    return w * p;
}

void mr_vec_sqrt_softplus(const double *restrict x, size_t n, double *restrict y)
{
    for (size_t i = 0; i < n; i++) y[i] = -fabs(x[i]);
    mr_vec_exp_below(y, 0, n, y);
    for (size_t i = 0; i < n; i++) {
        double t = y[i], z = t / (2 + t), above = x[i] > 0 ? x[i] : 0;
        y[i] = sqrt(above + 2 * z * (1 + atanh_rest(z * z)));
    }
}

/* One Newton step; what is left out is 1/2 (u)^2 relatively, the rest rounds by 4 u^2 at most. */
static struct mr_dd dd_sqrt(struct mr_dd s)
{
    double r = sqrt(s.hi);
    struct mr_dd square = mr_two_prod(r, r), d = mr_dd_add(s, mr_dd_neg(square));
    return mr_fast_two_sum(r, d.hi / (2 * r));
}

struct mr_dd mr_sqrt_softplus_dd(struct mr_dd x, double *rel)
{
    *rel = 0x1p-98;
    if (x.hi > 75) return dd_sqrt(x);
    if (x.hi < -1400) return (struct mr_dd){0, 0}; /* f < e^-700 */
    *rel = MR_SQRT_SOFTPLUS_DD_REL;
    if (x.hi < -75) return mr_unscale(mr_exp_dd((struct mr_dd){x.hi / 2, x.lo / 2}));
    struct mr_dd t = mr_unscale(mr_exp_dd(x.hi > 0 ? mr_dd_neg(x) : x));
    struct mr_dd z = mr_dd_div(t, mr_dd_add((struct mr_dd){2, 0}, t));
    struct mr_dd p = mr_fast_two_sum(1, atanh_rest(z.hi * z.hi)), s = mr_dd_mul(z, p);
    s = (struct mr_dd){2 * s.hi, 2 * s.lo};
    return dd_sqrt(x.hi > 0 ? mr_dd_add(x, s) : s);
}

/* f' = sigma(x) / (2 f). With y = log(1 + e^x) > 0 this is g(y) = (1 - e^-y) / (2 sqrt(y)), which
 * is 0 at both ends; where g' = 0, 2 y e^-y = 1 - e^-y, that is e^-y = 1 / (1 + 2y), and there
 * g = sqrt(y) / (1 + 2y) <= 1 / (2 sqrt(2)) (arithmetic and geometric mean of 1 and 2y). So a logit
 * within r gives a score within 0.354 r. (The maximum is 0.3191.) */
static const double slope = 0.354;

static void filter(struct mr_certifier *c, const struct mr_token *t)
{
    size_t n = (size_t)c->experts;
    mr_vec_sqrt_softplus(t->logits, n, c->score);
    MR_ISA_PICK(mr_key_intervals)
    (c->score, t->norm, t->bias, n, t->scale * slope, t->offset * slope + MR_SQRT_SOFTPLUS_TINY,
     MR_SQRT_SOFTPLUS_ULPS * 0x1p-53, c->lo, c->hi);
}

static enum mr_status refine(struct mr_certifier *c, const struct mr_token *t, int count)
{
    (void)t;
    c->common_rel = 0;
    for (int i = 0; i < count; i++) {
        struct mr_key *k = &c->keys[i];
        k->score = mr_sqrt_softplus_dd((struct mr_dd){k->logit.hi, k->logit.lo}, &k->rel);
    }
    return MR_OK;
}

const struct mr_score_ops mr_sqrt_softplus_ops = {filter, refine};
