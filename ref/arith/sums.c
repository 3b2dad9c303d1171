/* Bounds of |computed - exact| for a sum of n products p, exact value s.
 *
 * Let A >= sum|p| and M = (A + |s|)/2. The positive products sum to (sum|p| + s)/2, the negative
 * ones to (s - sum|p|)/2, so the exact sum of *any subset* of the products is at most M in
 * magnitude. Every node of every summation order, and every prefix of every chain, is the sum of a
 * subset. ufp(x) is the largest power of two <= |x|, u = 2^-24.
 *
 * binary32, to nearest, any order. A product passes through at most D <= n roundings (n - 1
 * additions; one more for its own rounding unless it is exact), each a factor 1 + d, |d| <= u (N.
 * J. Higham, Accuracy and Stability, 3.1). So a computed node is within E0 = ((1 + u)^D - 1) A of
 * its exact subset sum, hence at most M + E0. One rounding of a value of at most B errs by at most
 * u ufp(B): half a unit in the last place. n - 1 additions, or n - 1 fused multiply-adds after a
 * first product:
 *     |error| <= (n - 1) u ufp(M + E0),  + u A for the products unless they are exact,
 * and |error| <= E0, which is the smaller one if the depth D is known to be small. Zero products,
 * and accumulators that start at zero, do not round. Additions of binary32 numbers underflow
 * exactly; a product below 2^-126 errs by 2^-150; a kernel that flushes results (-ftz=true) loses
 * at most 2^-126 an operation: 2n 2^-126 covers all. (Operands that are subnormal in binary32 are
 * taken as they are.) The bound is attained: 1, then n - 1 times 2^-24, summed in that order, gives
 * 1.
 *
 * Tensor-core chain (T-FDPA: arXiv:2511.10909 and arXiv:2512.07004). A step adds to c up to L
 * products; all are cut toward zero to multiples of q = 2^(e - F), e the largest exponent among
 * them, where a product counts as e_a + e_b without normalising, so 2^(e_a+e_b) <= |p| unless an
 * operand is subnormal. The exact sum of the cut terms is then cut to the result: binary32 toward
 * zero, less than r = 2^-23 ufp of it; 13 fraction bits, r = 2^-13; fp16 to nearest, r = 2^-11. A
 * term whose exponent is e is not changed, since a product has at most 20 fraction bits (of fp8: 6)
 * and c those of a result, both at most F; nor is a zero: so with m non-zero products at most m of
 * the m + 1 terms are cut, by less than q each. Take B with |c|, and |the sum before its cut|, <=
 * B; P the largest 2^(e_a+e_b); then q <= 2^-F max(ufp(B), P, Z), Z = 2^e_zero the exponent that
 * zeros carry. A chain of m products has t = ceil(m/L) steps, begins at zero, and is off by
 *     |error| <= m 2^-F max(ufp(B), P, Z) + t r ufp(B) + t tiny.
 * B: with k = m 2^-F + t r, B = (M + k P + t tiny)/(1 - k) gives M + k max(B, P) + t tiny <= B, so
 * by induction over the steps no intermediate exceeds B.
 * K split over S chains, of at most m products each, has at most T = ceil(n/L) + S - 1 steps. The
 * errors of all chains add up to
 *     E <= n 2^-F max(ufp(B), P, Z) + T r ufp(B) + T tiny;
 * and, M of the s-th chain being at most its own share A_s of A, to
 *     E <= sum over s of k max(B_s, P, Z) + T tiny <= k ((A + S (k P + tiny)) / (1 - k) + S P) + T
 * tiny, the smaller one if chains are many and short, as with fp8 promoted every 128 columns.
 * Their sums are then added, N additions in binary32 (a linear bias is one more), each of a value
 * of at most D = (M + E)/(1 - N u): N u ufp(D) more.
 * P need not be known without subnormal operands: 2^(e_a+e_b) <= |p| <= M, a power of two, so
 * P <= ufp(M). It is nearly attained: c = 1 and products just below q.
 * fp8 by way of fp16 (mma.h, BY_FP16) is chains of 32 products, each added to the accumulator.
 *
 * Rounded operands: every product is off by at most v |p|, so the exact sum of the products that
 * are summed by at most v A, and A and M grow by as much. An operand that is subnormal in the
 * narrower format is off by more than its share, but by less than v times the least normal number:
 * n v floor covers it. */
#include "sums.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define U 0x1p-24
enum { MR_STEP_MOST = 64 };

const struct mr_sum mr_sum_default = {
    .kind = MR_SUM_UNDECLARED, .step = 16, .fraction = 25, .splits = 64};

/* Exact for normal x > 0; at least x for smaller ones. */
static double ufp(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0x7ff0000000000000;
    if (!bits) return x > 0 ? 0x1p-1022 : 0;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* Any intermediate of 2^127 or more may be on its way to overflow. */
#define OVERFLOW 0x1p127
/* A few binary64 operations, each rounded: more than they can take away. */
#define UP (1 + 0x1p-44)

/* >= (1 + u)^d - 1: at most e^(du) - 1, and e^x - 1 <= x + x^2 for x <= 1. */
static double growth(double d)
{
    double x = d * U;
    return x <= 1 ? x + x * x : expm1(x) * UP;
}

static double fp32_radius(const struct mr_sum *sum, const struct mr_dot *dot, double m, double a)
{
    double n = (double)dot->terms, inexact = dot->exact ? 0 : 1;
    double deepest = n - 1 + inexact;
    if (sum->depth > 0 && sum->depth < deepest) deepest = sum->depth;
    double e0 = growth(deepest) * a * UP, tiny = 2 * n * 0x1p-126, most = m * UP + e0 + tiny;
    if (!(most < OVERFLOW)) return HUGE_VAL;
    double steps = (n - 1) * U * ufp(most) + inexact * U * a;
    return (fmin(steps, e0) + tiny) * UP;
}

/* What results are, by enum mr_sum_result: the cut r, fraction bits, what underflow can take, 2^e_zero
 * at most, and the least value that may be on its way to overflow. */
static const struct result {
    double cut;
    int bits;
    double tiny, zero, overflow;
} results[] = {
    {0x1p-23, 23, 0x1p-126, 0x1p-131, OVERFLOW},
    {0x1p-13, 13, 0x1p-126, 0x1p-131, OVERFLOW},
    {0x1p-11, 10, 0x1p-24, 0x1p-20, 0x1p15},
};

static double tensor_radius(const struct mr_sum *sum, const struct mr_dot *dot, double m, double a)
{
    const struct result *to = &results[sum->result];
    if (sum->step < 1 || sum->step > MR_STEP_MOST || sum->fraction < to->bits ||
        sum->fraction > 62 || sum->splits < 1)
        return HUGE_VAL;
    double n = (double)dot->terms, s = sum->splits, t = ceil(n / sum->step) + s - 1;
    double longest = sum->chain > 0 && sum->chain < dot->terms ? (double)sum->chain : n;
    double q = 1 / (double)(UINT64_C(1) << sum->fraction);
    double k = longest * q + ceil(longest / sum->step) * to->cut;
    double tiny = (t + s + n) * to->tiny, p = fmax(dot->floor, to->zero);
    double adds = (sum->adds ? (double)sum->adds : s - 1) + 1, grow = adds * (sum->fp16_adds ? 0x1p-11 : U);
    if (!(k < 0.5) || !(grow < 0.5)) return HUGE_VAL;
    double b = (m + k * p + tiny) / (1 - k) * UP;
    if (!(b < to->overflow)) return HUGE_VAL;
    double all = n * q * fmax(ufp(b), p) + t * to->cut * ufp(b) + tiny;
    double each = k * ((a + s * (k * p + tiny)) / (1 - k) + s * p) + tiny;
    double chains = fmin(all, each) * UP, d = (m + chains) / (1 - grow) * UP;
    if (!(d < OVERFLOW)) return HUGE_VAL;
    double low = sum->fp16_adds ? adds * to->tiny : 0;
    return (chains + grow * ufp(d) + low) * UP;
}

static double radius_of(const struct mr_sum *sum, const struct mr_dot *dot, double m, double a)
{
    if (sum->kind == MR_SUM_FP32) return fp32_radius(sum, dot, m, a);
    if (sum->kind == MR_SUM_TENSOR) return dot->exact ? tensor_radius(sum, dot, m, a) : HUGE_VAL;
    double fp32 = fp32_radius(sum, dot, m, a);
    return dot->exact ? fmax(fp32, tensor_radius(sum, dot, m, a)) : fp32;
}

double mr_sum_radius(const struct mr_sum *sum, const struct mr_dot *dot, double logit, double error)
{
    if (sum->kind == MR_SUM_EXACT || dot->terms == 0) return 0;
    double s = fabs(logit) + error, a = fmax(dot->magnitude, s);
    struct mr_dot d = *dot;
    d.exact |= sum->exact;
    double v = sum->operands, m = 0.5 * (a + s);
    if (!(v > 0)) return radius_of(sum, &d, m, a);
    double moved = (v * a + (double)d.terms * v * d.floor) * UP;
    return (radius_of(sum, &d, m + moved, a + moved) + moved) * UP;
}

/* Products of binary32 values are exact in binary64; any order of n additions errs by at most
 * (n - 1) 2^-53 relatively, being of one sign. */
double mr_dot_magnitude(const double *x, const float *w, size_t n, size_t *terms)
{
    enum { LANES = 16 };
    double lane[LANES] = {0}, sum = 0;
    int count[LANES] = {0};
    size_t i = 0, found = 0;
    while (i + LANES <= n) {
        size_t stop = n - i > 0x40000000 ? i + 0x40000000 : n; /* counts are int, to vectorise */
        for (; i + LANES <= stop; i += LANES)
            for (int j = 0; j < LANES; j++) {
                double p = fabs(x[i + (size_t)j] * (double)w[i + (size_t)j]);
                lane[j] += p;
                count[j] += p > 0;
            }
        for (int j = 0; j < LANES; j++) {
            found += (size_t)count[j];
            count[j] = 0;
        }
    }
    for (; i < n; i++) {
        double p = fabs(x[i] * (double)w[i]);
        sum += p;
        found += p > 0;
    }
    for (int j = 0; j < LANES; j++) sum += lane[j];
    if (terms) *terms = found > n / MR_STEP_MOST ? n : found * MR_STEP_MOST;
    return sum * (1 + (double)n * 0x1p-52);
}
