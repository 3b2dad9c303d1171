/* The reference: the formula step by step, on integers (arXiv:2511.10909 section 4;
 * docs/tensor-core.md). */
#include "mma.h"

enum { MOST_TERMS = 64, GROUP = 16 };

/* (-1)^negative * magnitude * 2^lsb, aligned by `exponent`: which is the sum of the operands'
 * exponents, and not of the product itself (1.5 * 1.5 is not renormalised). */
struct term {
    bool negative;
    uint64_t magnitude;
    int lsb, exponent;
};

/* What specials were seen: they decide before any sum. */
struct specials {
    bool nan, inf[2]; /* inf: positive, negative */
};

static struct term product(struct mr_mma_number a, int a_fraction, struct mr_mma_number b,
                           int b_fraction, struct specials *seen)
{
    bool negative = a.negative != b.negative;
    bool a_zero = a.class == MR_MMA_FINITE && a.significand == 0;
    bool b_zero = b.class == MR_MMA_FINITE && b.significand == 0;
    if (a.class == MR_MMA_NAN || b.class == MR_MMA_NAN)
        seen->nan = true;
    else if (a.class == MR_MMA_INF || b.class == MR_MMA_INF) {
        if (a_zero || b_zero) seen->nan = true;
        seen->inf[negative] = true;
    }
    int exponent = a.exponent + b.exponent;
    return (struct term){negative, (uint64_t)a.significand * b.significand,
                         exponent - a_fraction - b_fraction, exponent};
}

static struct term accumulator(enum mr_mma_type type, uint32_t bits, struct specials *seen)
{
    struct mr_mma_number c = mr_mma_decode(type, bits);
    if (c.class == MR_MMA_NAN) seen->nan = true;
    if (c.class == MR_MMA_INF) seen->inf[c.negative] = true;
    return (struct term){c.negative, c.significand, c.exponent - mr_mma_types[type].fraction,
                         c.exponent};
}

/* Truncates a magnitude toward zero to a multiple of 2^unit, in units of it. A term lies below
 * 2^(exponent + 11) (a group of 16 products of two e2m1 and two scales; below 2^(exponent + 2) for
 * one product), and unit is at least its exponent - 35: no left shift overflows. */
static uint64_t truncated(struct term t, int unit)
{
    int left = t.lsb - unit;
    if (t.magnitude == 0) return 0; /* its own exponent, which did not count, may be above */
    if (left >= 0) return t.magnitude << left;
    return left <= -64 ? 0 : t.magnitude >> -left;
}

static int bit_length(uint64_t x)
{
    return x ? 64 - __builtin_clzll(x) : 0;
}

static uint32_t nan_of(enum mr_mma_type type)
{
    return type == MR_MMA_FP16 ? 0x7fff : 0x7fffffff;
}

static uint32_t inf_of(enum mr_mma_type type, bool negative)
{
    const struct mr_mma_type_info *t = &mr_mma_types[type];
    return (negative ? t->sign : 0) | (uint32_t)t->top << t->fraction;
}

/* (-1)^negative * magnitude * 2^lsb, not zero, in fp32 or fp16 with that many fraction bits, to
 * nearest or toward zero. Overflow is Inf both ways: what decides is the exponent of the result
 * that the format without a largest number would have. */
static uint32_t rounded(enum mr_mma_type type, int fraction, bool nearest, bool signed_zero,
                        bool negative, uint64_t magnitude, int lsb)
{
    const struct mr_mma_type_info *t = &mr_mma_types[type];
    int exponent = bit_length(magnitude) - 1 + lsb;
    if (exponent < t->emin) exponent = t->emin;
    int drop = exponent - fraction - lsb; /* bits below the last place */
    uint64_t kept, rest = 0, half = 1;
    if (drop <= 0) {
        kept = magnitude << -drop;
    } else if (drop > 63) {
        kept = 0; /* and below half a place: the magnitude has at most 62 bits */
    } else {
        kept = magnitude >> drop;
        rest = magnitude & ((1ull << drop) - 1);
        half = 1ull << (drop - 1);
    }
    if (nearest && (rest > half || (rest == half && kept & 1))) kept++;
    if (kept == 0) return negative && signed_zero ? t->sign : 0;
    /* Codes of positive numbers are consecutive integers: the hidden bit, or the carry of a
     * rounding, adds one to the exponent field. */
    uint64_t code =
        ((uint64_t)(exponent - t->emin) << t->fraction) + (kept << (t->fraction - fraction));
    if (code >= (uint64_t)t->top << t->fraction) return inf_of(type, negative);
    return (negative ? t->sign : 0) | (uint32_t)code;
}

static uint32_t rounded_as(const struct mr_mma *mma, int64_t sum, int lsb)
{
    if (sum == 0) return 0; /* +0, whatever the signs of the terms */
    int fraction = mma->rounding == MR_MMA_RZ_E8M13 ? 13 : mr_mma_types[mma->accumulator].fraction;
    return rounded(mma->accumulator, fraction, mma->rounding == MR_MMA_RNE_FP16, mma->signed_zero,
                   sum < 0, sum < 0 ? (uint64_t)-sum : (uint64_t)sum, lsb);
}

/* Terms and c, aligned to the largest exponent, truncated, added exactly, rounded once. */
static uint32_t fused_sum(const struct mr_mma *mma, const struct term *terms, size_t n,
                          uint32_t c_bits, struct specials seen)
{
    struct term c = accumulator(mma->accumulator, c_bits, &seen);
    if (seen.nan || (seen.inf[0] && seen.inf[1])) return nan_of(mma->accumulator);
    if (seen.inf[0] || seen.inf[1]) return inf_of(mma->accumulator, seen.inf[1]);
    int largest = c.magnitude ? c.exponent : mma->e_zero;
    for (size_t i = 0; i < n; i++) {
        int exponent = terms[i].magnitude ? terms[i].exponent : mma->e_zero;
        if (exponent > largest) largest = exponent;
    }
    int unit = largest - mma->fraction;
    int64_t sum = (int64_t)truncated(c, unit);
    if (c.negative) sum = -sum;
    for (size_t i = 0; i < n; i++) {
        int64_t t = (int64_t)truncated(terms[i], unit);
        sum += terms[i].negative ? -t : t;
    }
    return rounded_as(mma, sum, unit);
}

static uint32_t plain_step(const struct mr_mma *mma, const uint32_t *a, const uint32_t *b, size_t k,
                           uint32_t c, const struct mr_mma_scales *scales, size_t first)
{
    struct term terms[MOST_TERMS];
    struct specials seen = {0};
    int fa = mr_mma_types[mma->a].fraction, fb = mr_mma_types[mma->b].fraction;
    for (size_t i = 0; i < k; i++) {
        struct mr_mma_number x = mr_mma_decode(mma->a, a[i]), y = mr_mma_decode(mma->b, b[i]);
        terms[i] = product(x, fa, y, fb, &seen);
        if (!scales) continue;
        size_t block = (first + i) / (size_t)mma->scale_block;
        struct mr_mma_number p = mr_mma_decode(mma->scale, scales->a[block]);
        struct mr_mma_number q = mr_mma_decode(mma->scale, scales->b[block]);
        if (p.class == MR_MMA_NAN || q.class == MR_MMA_NAN) seen.nan = true;
        terms[i].lsb += p.exponent + q.exponent;
        terms[i].exponent += p.exponent + q.exponent;
    }
    return fused_sum(mma, terms, k, c, seen);
}

/* The exponent of a group is that of its scales alone, so also of one whose products cancel; a
 * group of zeros, or of a zero scale, is a zero term. */
static uint32_t group_step(const struct mr_mma *mma, const uint32_t *a, const uint32_t *b, size_t k,
                           uint32_t c, const struct mr_mma_scales *scales, size_t first)
{
    struct term terms[MOST_TERMS / GROUP];
    struct specials seen = {0};
    int fa = mr_mma_types[mma->a].fraction, fb = mr_mma_types[mma->b].fraction;
    int fs = mr_mma_types[mma->scale].fraction;
    size_t groups = 0;
    for (size_t i = 0; i < k; groups++) {
        size_t block = (first + i) / (size_t)mma->scale_block;
        struct mr_mma_number p = mr_mma_decode(mma->scale, scales->a[block]);
        struct mr_mma_number q = mr_mma_decode(mma->scale, scales->b[block]);
        if (p.class == MR_MMA_NAN || q.class == MR_MMA_NAN) seen.nan = true;
        int64_t sum = 0;
        bool any = false;
        int lsb = 0;
        for (size_t end = i + GROUP; i < end && i < k; i++) {
            struct term t =
                product(mr_mma_decode(mma->a, a[i]), fa, mr_mma_decode(mma->b, b[i]), fb, &seen);
            /* The element types here have 2 exponent bits: shift to the least exponent's place. */
            int least = 2 * mr_mma_types[mma->a].emin - fa - fb;
            int64_t m = (int64_t)(t.magnitude << (t.lsb - least));
            any |= m != 0;
            sum += t.negative ? -m : m;
            lsb = least;
        }
        uint64_t scale = (uint64_t)p.significand * q.significand;
        int exponent = p.exponent + q.exponent;
        uint64_t magnitude = (sum < 0 ? (uint64_t)-sum : (uint64_t)sum) * scale;
        terms[groups] = (struct term){sum < 0, magnitude, lsb + exponent - 2 * fs, exponent};
        /* A group that cancels keeps its exponent: as a magnitude that truncates to nothing. */
        if (any && scale && magnitude == 0)
            terms[groups] = (struct term){false, 1, exponent - 4096, exponent};
    }
    return fused_sum(mma, terms, groups, c, seen);
}

/* x + y, rounded to nearest even: an ordinary addition, as FADD and HADD do. */
static uint32_t nearest_add(enum mr_mma_type type, uint32_t x_bits, uint32_t y_bits)
{
    struct specials seen = {0};
    struct term x = accumulator(type, x_bits, &seen), y = accumulator(type, y_bits, &seen);
    if (seen.nan || (seen.inf[0] && seen.inf[1])) return nan_of(type);
    if (seen.inf[0] || seen.inf[1]) return inf_of(type, seen.inf[1]);
    if (x.magnitude == 0 && y.magnitude == 0)
        return x.negative && y.negative ? mr_mma_types[type].sign : 0;
    if (x.magnitude == 0) return y_bits;
    if (y.magnitude == 0) return x_bits;
    if (x.lsb < y.lsb) {
        struct term swap = x;
        x = y;
        y = swap;
    }
    /* Beyond 30 places y only breaks a tie, or moves x from a number that is one already by less
     * than a quarter of its last place (a power of two has finer neighbours below): any smaller y
     * of its sign does the same. */
    int shift = x.lsb - y.lsb;
    if (shift > 30) {
        y.magnitude = 1;
        y.lsb = x.lsb - 30;
        shift = 30;
    }
    int64_t sum = (int64_t)(x.magnitude << shift) * (x.negative ? -1 : 1);
    sum += (int64_t)y.magnitude * (y.negative ? -1 : 1);
    if (sum == 0) return 0;
    return rounded(type, mr_mma_types[type].fraction, true, true, sum < 0,
                   sum < 0 ? (uint64_t)-sum : (uint64_t)sum, y.lsb);
}

/* An fp8 number is an fp16 number; e4m3's subnormals are normal there. */
static uint32_t fp8_to_fp16(enum mr_mma_type type, uint32_t bits)
{
    if (type == MR_MMA_E5M2) return bits << 8;
    struct mr_mma_number x = mr_mma_decode(type, bits);
    uint32_t sign = x.negative ? 0x8000 : 0;
    if (x.class == MR_MMA_NAN) return 0x7fff;
    if (x.significand == 0) return sign;
    return sign | rounded(MR_MMA_FP16, 10, false, false, false, x.significand, x.exponent - 3);
}

static uint32_t by_fp16_step(const struct mr_mma *mma, const uint32_t *a, const uint32_t *b,
                             size_t k, uint32_t c)
{
    struct mr_mma step = *mma;
    step.a = step.b = MR_MMA_FP16;
    uint32_t sum = 0, x[16], y[16];
    for (size_t pair = 0; pair < 4; pair += 2) { /* columns 0, 1 of every four; then 2, 3 */
        size_t n = 0;
        for (size_t i = 0; i < k; i++) {
            if ((i & 2) != pair) continue;
            x[n] = fp8_to_fp16(mma->a, a[i]);
            y[n] = fp8_to_fp16(mma->b, b[i]);
            n++;
        }
        sum = plain_step(&step, x, y, n, sum, NULL, 0);
    }
    return nearest_add(mma->accumulator, sum, c);
}

size_t mr_mma_step_columns(const struct mr_mma *mma)
{
    return mma->form == MR_MMA_BY_FP16 ? 32 : (size_t)mma->terms;
}

uint32_t mr_mma_step(const struct mr_mma *mma, const uint32_t *a, const uint32_t *b, size_t k,
                     uint32_t c, const struct mr_mma_scales *scales)
{
    size_t columns = mr_mma_step_columns(mma);
    for (size_t i = 0; i < k; i += columns) {
        size_t n = k - i < columns ? k - i : columns;
        switch (mma->form) {
        case MR_MMA_PLAIN: c = plain_step(mma, a + i, b + i, n, c, NULL, i); break;
        case MR_MMA_SCALED: c = plain_step(mma, a + i, b + i, n, c, scales, i); break;
        case MR_MMA_GROUP_SCALED: c = group_step(mma, a + i, b + i, n, c, scales, i); break;
        case MR_MMA_BY_FP16: c = by_fp16_step(mma, a + i, b + i, n, c); break;
        }
    }
    return c;
}
