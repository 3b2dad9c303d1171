/* The step by its definition: exact values, cut to multiples of one unit, added, rounded once. */
#include "mma_oracle.h"

#include <gmp.h>
#include <string.h>

enum { SCALE = 400 }; /* an mpz z stands for z * 2^-SCALE; the least product is 2^-266 */

struct number {
    bool nan, inf, zero, negative;
    int exponent; /* of the field; that of the least normal number for subnormals */
    uint32_t significand;
    int fraction;
};

static struct number read_number(const struct mma_format *f, uint32_t w)
{
    struct number x = {.fraction = f->fraction, .negative = w >> (f->bits - 1) & 1};
    uint32_t fraction = w >> f->low & ((1u << f->fraction) - 1);
    int field = (int)(w >> (f->low + f->fraction) & ((1u << f->exponent) - 1));
    int ones = (1 << f->exponent) - 1;
    bool small = f == &mma_e4m3;
    x.nan = field == ones && (small ? fraction == 7 : fraction != 0);
    x.inf = field == ones && !small && fraction == 0;
    x.exponent = (field ? field : 1) - f->bias;
    x.significand = fraction | (field ? 1u << f->fraction : 0);
    x.zero = x.significand == 0;
    return x;
}

/* significand * 2^exponent at the scale. */
static void place(mpz_t z, uint64_t significand, int exponent)
{
    mpz_set_ui(z, significand);
    mpz_mul_2exp(z, z, (mp_bitcnt_t)(exponent + SCALE));
}

static uint32_t nan_word(const struct mma_format *f)
{
    return f->bits == 16 ? 0x7fff : 0x7fffffff;
}

static uint32_t inf_word(const struct mma_format *f, bool negative)
{
    uint32_t w = ((1u << f->exponent) - 1) << f->fraction;
    return negative ? w | 1u << (f->bits - 1) : w;
}

/* The sum in format f with `result` fraction bits, to nearest even or toward zero. */
static uint32_t round_sum(const mpz_t sum, const struct mma_format *f, int result, bool nearest,
                          bool plain_zero)
{
    if (mpz_sgn(sum) == 0) return 0;
    bool negative = mpz_sgn(sum) < 0;
    mpz_t kept, rest;
    mpz_inits(kept, rest, NULL);
    mpz_abs(rest, sum);
    int least = 1 - f->bias, e = (int)mpz_sizeinbase(rest, 2) - 1 - SCALE;
    if (e < least) e = least;
    int unit = e - result + SCALE;
    mpz_tdiv_q_2exp(kept, rest, (mp_bitcnt_t)unit);
    mpz_tdiv_r_2exp(rest, rest, (mp_bitcnt_t)unit);
    uint64_t units = mpz_get_ui(kept);
    if (nearest) {
        mpz_ui_pow_ui(kept, 2, (unsigned long)unit - 1);
        int side = mpz_cmp(rest, kept);
        if (side > 0 || (side == 0 && units % 2)) units++;
    }
    mpz_clears(kept, rest, NULL);
    uint32_t sign = negative ? 1u << (f->bits - 1) : 0;
    if (units == 0) return plain_zero ? 0 : sign;
    while (units >> (result + 1)) units >>= 1, e++; /* rounded up to the next power of two */
    if (e > f->top) return inf_word(f, negative);
    uint32_t hidden = 1u << f->fraction, m = (uint32_t)units << (f->fraction - result);
    uint32_t field = m & hidden ? (uint32_t)(e + f->bias) : 0;
    return sign | field << f->fraction | (m & (hidden - 1));
}

static uint32_t fused(const struct mma_format *fa, const struct mma_format *fb,
                      const struct mma_format *fc, const struct oracle_rule *rule,
                      const uint32_t *a, const uint32_t *b, size_t k, uint32_t c)
{
    struct number z = read_number(fc, c);
    bool nan = z.nan, inf[2] = {z.inf && !z.negative, z.inf && z.negative};
    int largest = z.zero ? rule->e_zero : z.exponent;
    for (size_t i = 0; i < k; i++) {
        struct number x = read_number(fa, a[i]), y = read_number(fb, b[i]);
        bool negative = (x.negative != y.negative) != rule->negate;
        nan |= x.nan || y.nan || (x.inf && y.zero) || (x.zero && y.inf);
        if (x.inf || y.inf) inf[negative] = true;
        int e = x.zero || y.zero ? rule->e_zero : x.exponent + y.exponent;
        if (e > largest) largest = e;
    }
    if (nan || (inf[0] && inf[1])) return nan_word(fc);
    if (inf[0] || inf[1]) return inf_word(fc, inf[1]);
    mpz_t sum, term, unit;
    mpz_inits(sum, term, unit, NULL);
    mpz_ui_pow_ui(unit, 2, (unsigned long)(largest - rule->bits + SCALE));
    for (size_t i = 0; i <= k; i++) {
        bool negative = z.negative;
        if (i < k) {
            struct number x = read_number(fa, a[i]), y = read_number(fb, b[i]);
            negative = (x.negative != y.negative) != rule->negate;
            place(term, (uint64_t)x.significand * y.significand,
                  x.exponent + y.exponent - x.fraction - y.fraction);
        } else {
            place(term, z.significand, z.exponent - z.fraction);
        }
        if (negative) mpz_neg(term, term);
        mpz_tdiv_q(term, term, unit);
        mpz_addmul(sum, term, unit);
    }
    bool nearest = fc == &mma_fp16;
    uint32_t d = round_sum(sum, fc, nearest ? 10 : rule->result, nearest, rule->plain_zero);
    mpz_clears(sum, term, unit, NULL);
    return d;
}

/* x + y, to nearest even: what FADD and HADD2 do. */
static uint32_t add(const struct mma_format *f, uint32_t xw, uint32_t yw)
{
    struct number x = read_number(f, xw), y = read_number(f, yw);
    if (x.nan || y.nan || (x.inf && y.inf && x.negative != y.negative)) return nan_word(f);
    if (x.inf || y.inf) return inf_word(f, x.inf ? x.negative : y.negative);
    if (x.zero && y.zero) return xw & yw;
    mpz_t p, q;
    mpz_inits(p, q, NULL);
    place(p, x.significand, x.exponent - x.fraction);
    place(q, y.significand, y.exponent - y.fraction);
    if (x.negative) mpz_neg(p, p);
    if (y.negative) mpz_neg(q, q);
    mpz_add(p, p, q);
    uint32_t d = round_sum(p, f, f->fraction, true, false);
    mpz_clears(p, q, NULL);
    return d;
}

/* An 8-bit float as fp16, exactly: what F2FP.F16.UNPACK_B does. NaN of any payload. */
static uint32_t half_of(const struct mma_format *f, uint32_t w)
{
    struct number x = read_number(f, w);
    if (x.nan) return nan_word(&mma_fp16);
    if (x.inf) return inf_word(&mma_fp16, x.negative);
    uint32_t sign = x.negative ? 0x8000 : 0;
    if (x.zero) return sign;
    mpz_t z;
    mpz_init(z);
    place(z, x.significand, x.exponent - x.fraction);
    uint32_t d = round_sum(z, &mma_fp16, 10, false, false);
    mpz_clear(z);
    return sign | d;
}

static uint32_t by_fp16(const struct mma_set *set, const struct oracle_rule *rule,
                        const uint32_t *a, const uint32_t *b, size_t k, uint32_t c)
{
    uint32_t d = 0;
    for (size_t pair = 0; pair < 4; pair += 2) {
        uint32_t x[MMA_MAX_K], y[MMA_MAX_K];
        size_t n = 0;
        for (size_t i = 0; i < k; i++) {
            if (i % 4 / 2 != pair / 2) continue;
            x[n] = half_of(set->a, a[i]);
            y[n++] = half_of(set->b, b[i]);
        }
        d = fused(&mma_fp16, &mma_fp16, set->c, rule, x, y, n, d);
    }
    return add(set->c, d, c);
}

static uint32_t integers(const struct oracle_rule *rule, const uint32_t *a, const uint32_t *b,
                         size_t k, uint32_t c)
{
    int64_t sum = (int32_t)c;
    for (size_t i = 0; i < k; i++) sum += (int8_t)a[i] * (int8_t)b[i];
    if (rule->form == ORACLE_SATURATE) {
        if (sum > INT32_MAX) sum = INT32_MAX;
        if (sum < INT32_MIN) sum = INT32_MIN;
    }
    return (uint32_t)sum;
}

uint32_t oracle_step(const struct mma_set *set, const struct oracle_rule *rule, const uint32_t *a,
                     const uint32_t *b, size_t k, uint32_t c)
{
    if (rule->form == ORACLE_INTEGER || rule->form == ORACLE_SATURATE)
        return integers(rule, a, b, k, c);
    if (rule->form == ORACLE_BY_FP16) return by_fp16(set, rule, a, b, k, c);
    size_t terms = (size_t)rule->terms;
    for (size_t i = 0; i < k; i += terms)
        c = fused(set->a, set->b, set->c, rule, a + i, b + i, k - i < terms ? k - i : terms, c);
    return c;
}

bool oracle_rule_of(const char *instruction, struct oracle_rule *rule, bool *no_c)
{
    bool warpgroup = !strncmp(instruction, "wgmma.", 6),
         half = strstr(instruction, ".f16.") != NULL;
    bool fp8 = strstr(instruction, ".e4m3") || strstr(instruction, ".e5m2");
    bool fp16_d = half && (strstr(instruction, ".f16.f16.f16") || fp8);
    *rule = (struct oracle_rule){ORACLE_FUSED, 16, 25, 23, fp16_d ? -21 : -133, true, false};
    *no_c = strstr(instruction, "+z") != NULL;
    rule->negate = (strstr(instruction, "+na") != NULL) != (strstr(instruction, "+nb") != NULL);
    if (strstr(instruction, ".s8"))
        rule->form = strstr(instruction, "+sat") ? ORACLE_SATURATE : ORACLE_INTEGER;
    else if (fp8 && warpgroup)
        rule->terms = 32, rule->bits = 13, rule->result = 13;
    else if (fp8)
        rule->form = ORACLE_BY_FP16;
    else if (strstr(instruction, ".tf32"))
        rule->terms = 8;
    return warpgroup || !strncmp(instruction, "mma.", 4);
}
