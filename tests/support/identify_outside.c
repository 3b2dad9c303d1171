/* Sums of one dot product that no line of identify's family makes. */
#include <check.h>
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "../../ref/arith/mma.h"
#include "../../ref/num/bits.h"
#include "../../ref/num/num.h"
#include "identify_puzzle.h"
#include "slow_sum.h"

static float bf16(double v)
{
    return mr_bf16_decode(mr_bf16_encode(v, MR_RNE, MR_OVERFLOW_IEEE));
}

/* v toward zero, to binary32. */
static float toward_zero(double v)
{
    float f = (float)v;
    return fabs((double)f) > fabs(v) ? f32_from(f32_bits(f) - 1) : f;
}

static float kahan(const float *x, const float *w, size_t n)
{
    volatile float sum = 0, lost = 0;
    for (size_t i = 0; i < n; i++) {
        volatile float y = x[i] * w[i] - lost, t = sum + y;
        lost = (t - sum) - y;
        sum = t;
    }
    return sum;
}

/* Terms in the order i * step mod n, step prime to n. */
static float stepped(const float *x, const float *w, size_t n, size_t step)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = i * step % n;
        sum = fmaf(x[at], w[at], sum);
    }
    return sum;
}

static float chain_in(const float *x, const float *w, size_t n, float (*rounding)(double))
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum = (double)rounding(sum + (double)x[i] * (double)w[i]);
    return (float)sum;
}

static float products_in_bf16(const float *x, const float *w, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += bf16((double)x[i] * (double)w[i]);
    return sum;
}

static float in_double(const float *x, const float *w, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)w[i];
    return toward_zero(sum);
}

/* Halves of uneven size, recursively. */
static float lopsided(const float *x, const float *w, size_t n)
{
    if (n == 1) return x[0] * w[0];
    size_t first = (n * 3 + 4) / 8;
    return lopsided(x, w, first) + lopsided(x + first, w + first, n - first);
}

/* The smaller partial sum is summed first: value dependent, as with atomics sorted. */
static float by_size(const float *x, const float *w, size_t n)
{
    float part[8];
    for (size_t p = 0; p < 8; p++)
        part[p] = lopsided(x + p * (n / 8), w + p * (n / 8), n / 8);
    for (int i = 0; i < 8; i++)
        for (int j = i + 1; j < 8; j++)
            if (fabsf(part[j]) < fabsf(part[i])) {
                float t = part[i];
                part[i] = part[j];
                part[j] = t;
            }
    float sum = 0;
    for (int i = 0; i < 8; i++) sum += part[i];
    return sum;
}

/* A chain of steps of an instruction that no processor has. */
static float steps(const float *x, const float *w, size_t n, int terms, int fraction)
{
    struct mr_mma m = *mr_mma_find("hopper-bf16", 11);
    uint32_t a[64], b[64], c = 0;
    m.terms = terms;
    m.fraction = fraction;
    for (size_t at = 0; at < n; at += (size_t)terms) {
        size_t take = n - at < (size_t)terms ? n - at : (size_t)terms;
        for (size_t i = 0; i < take; i++) {
            a[i] = f32_bits(x[at + i]) >> 16;
            b[i] = f32_bits(w[at + i]) >> 16;
        }
        c = mr_mma_step(&m, a, b, take, c, NULL);
    }
    return f32_from(c);
}

static float line(const char *text, const float *x, const float *w, size_t n)
{
    struct mr_arith a;
    ck_assert(!mr_arith_parse(text, &a, NULL));
    return slow_sum(&a.sum, x, w, n, NULL);
}

/* Odd lines: splits, tiles and orders beyond the family. */
static const char *const lines[] = {
    "fma/deal:69x5", "fma/deal:77x4", "fma/deal:6x12", "fma/even:11x3:halves", "fma/even:23x9",
    "fma/deal:21x6:pairs", "fma/deal:3x5/runs:7x11", "hopper-bf16/deal:5x24",
    "hopper-bf16/deal:7x40", "hopper-bf16/deal:3x80", "ampere-bf16/deal:3x24/runs:2"};
enum { LINES = sizeof lines / sizeof *lines };

static const char *const names[] = {
    "compensated sum", "order of 37 i mod n", "order of 1001 i mod n", "rounded toward zero",
    "rounded to bf16 each time", "products rounded to bf16", "binary64, then toward zero",
    "3/8 to 5/8 tree", "partial sums by size", "16 terms, 23 bits", "16 terms, 24 bits",
    "32 terms, 25 bits", "16 terms, 26 bits"};
enum { NAMES = sizeof names / sizeof *names };
_Static_assert(LINES + NAMES == OUTSIDE, "one name a sum");

const char *outside_name(int which)
{
    return which < NAMES ? names[which] : lines[which - NAMES];
}

static float solve(int which, const float *x, const float *w, size_t n)
{
    switch (which) {
    case 0: return kahan(x, w, n);
    case 1: return stepped(x, w, n, 37);
    case 2: return stepped(x, w, n, 1001);
    case 3: return chain_in(x, w, n, toward_zero);
    case 4: return chain_in(x, w, n, bf16);
    case 5: return products_in_bf16(x, w, n);
    case 6: return in_double(x, w, n);
    case 7: return lopsided(x, w, n);
    case 8: return by_size(x, w, n);
    case 9: return steps(x, w, n, 16, 23);
    case 10: return steps(x, w, n, 16, 24);
    case 11: return steps(x, w, n, 32, 25);
    case 12: return steps(x, w, n, 16, 26);
    default: return line(lines[which - NAMES], x, w, n);
    }
}

void outside_solve(struct identify_puzzle *p, int which)
{
    for (size_t i = 0; i < p->rows * p->experts; i++)
        p->logits[i] = solve(which, p->x + i / p->experts * p->terms,
                             p->w + i % p->experts * p->terms, p->terms);
}
