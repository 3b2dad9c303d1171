#include "mpfr_oracle.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t oracle_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

double oracle_uniform(uint64_t *state, double least, double most)
{
    return least + (most - least) * ((double)(oracle_random(state) >> 11) * 0x1p-53);
}

struct oracle_fields oracle_fields(enum mr_dtype dtype)
{
    return dtype == MR_BF16  ? (struct oracle_fields){7, 2, 254}
           : dtype == MR_F16 ? (struct oracle_fields){10, 2, 30}
                             : (struct oracle_fields){23, 4, 254};
}

void oracle_put(void *row, enum mr_dtype dtype, size_t i, int sign, int exponent, uint32_t m)
{
    struct oracle_fields f = oracle_fields(dtype);
    uint32_t bits = (uint32_t)sign << (8 * f.bytes - 1) | (uint32_t)exponent << f.fraction |
                    m % (1u << f.fraction);
    memcpy((char *)row + i * (size_t)f.bytes, &bits, (size_t)f.bytes);
}

void oracle_fill(uint64_t *seed, void *row, enum mr_dtype dtype, size_t n, int low, int span)
{
    int top = oracle_fields(dtype).top;
    if (low > top) low = top;
    if (span > top - low) span = top - low;
    for (size_t i = 0; i < n; i++) {
        uint64_t r = oracle_random(seed);
        int e = low + (int)(r % (uint64_t)(span + 1));
        oracle_put(row, dtype, i, (int)(r >> 32) & 1, e, (uint32_t)(r >> 33));
    }
}

static void swap(char *a, char *b, size_t bytes)
{
    char t[4];
    memcpy(t, a, bytes);
    memcpy(a, b, bytes);
    memcpy(b, t, bytes);
}

void oracle_cancel(uint64_t *seed, void *x, enum mr_dtype x_dtype, void *w, enum mr_dtype w_dtype,
                   size_t n, size_t rest)
{
    size_t bx = (size_t)oracle_fields(x_dtype).bytes, bw = (size_t)oracle_fields(w_dtype).bytes;
    size_t half = (n - rest) / 2;
    char *px = x, *pw = w;
    memcpy(px + half * bx, px, half * bx);
    memcpy(pw + half * bw, pw, half * bw);
    for (size_t i = half; i < 2 * half; i++) px[(i + 1) * bx - 1] ^= (char)0x80;
    for (size_t i = n; i-- > 1;) {
        size_t j = oracle_random(seed) % (i + 1);
        if (i == j) continue;
        swap(px + i * bx, px + j * bx, bx);
        swap(pw + i * bw, pw + j * bw, bw);
    }
}

double oracle_value(const void *data, enum mr_dtype dtype, size_t i)
{
    struct oracle_fields f = oracle_fields(dtype);
    const unsigned char *p = (const unsigned char *)data + i * (size_t)f.bytes;
    uint32_t bits = 0;
    for (int b = f.bytes; b-- > 0;) bits = bits << 8 | p[b];
    double m = bits % (1u << f.fraction);
    int e = (int)(bits >> f.fraction) & (f.top + 1), bias = f.top / 2;
    double v =
        e ? ldexp(m + (1 << f.fraction), e - bias - f.fraction) : ldexp(m, 1 - bias - f.fraction);
    return bits >> (8 * f.bytes - 1) ? -v : v;
}

void oracle_element(mpz_t out, const void *data, enum mr_dtype dtype, size_t i)
{
    mpz_set_d(out, ldexp(oracle_value(data, dtype, i), 149));
}

void oracle_dot_init(struct oracle_dot *dot)
{
    mpz_inits(dot->sum, dot->size, NULL);
    dot->least = 0;
}

void oracle_dot_clear(struct oracle_dot *dot)
{
    mpz_clears(dot->sum, dot->size, NULL);
}

void oracle_dot(struct oracle_dot *dot, const void *x, enum mr_dtype x_dtype, const void *w,
                enum mr_dtype w_dtype, size_t n)
{
    mpz_t a, b;
    mpz_inits(a, b, NULL);
    mpz_set_ui(dot->sum, 0);
    mpz_set_ui(dot->size, 0);
    dot->least = ULONG_MAX;
    for (size_t i = 0; i < n; i++) {
        oracle_element(a, x, x_dtype, i);
        oracle_element(b, w, w_dtype, i);
        mpz_mul(a, a, b);
        mpz_add(dot->sum, dot->sum, a);
        mpz_abs(a, a);
        mpz_add(dot->size, dot->size, a);
        if (mpz_sgn(a) && mpz_scan1(a, 0) < dot->least) dot->least = mpz_scan1(a, 0);
    }
    if (dot->least == ULONG_MAX) dot->least = 0;
    mpz_clears(a, b, NULL);
}

/* Units of 2^-360 hold both neighbours of a binary64 number that is not below 2^-298. */
static void scaled(mpz_t out, double d)
{
    mpz_set_d(out, ldexp(d, 360));
}

/* Is d the binary64 number nearest to value (units of 2^-360), ties to even? */
static bool nearest(const mpz_t value, double d)
{
    if (!isfinite(d)) return false;
    mpz_t here, there;
    mpz_inits(here, there, NULL);
    scaled(here, d);
    bool right = mpz_cmp(here, value) == 0;
    if (!right && d != 0) {
        double beside = nextafter(d, mpz_cmp(value, here) > 0 ? HUGE_VAL : -HUGE_VAL);
        uint64_t bits;
        memcpy(&bits, &d, sizeof bits);
        scaled(there, beside);
        mpz_sub(here, value, here);
        mpz_sub(there, there, value);
        int order = mpz_cmpabs(here, there);
        right = order < 0 || (order == 0 && bits % 2 == 0);
    }
    mpz_clears(here, there, NULL);
    return right;
}

const char *oracle_judge(const mpz_t sum, struct mr_exact got)
{
    mpz_t value, part;
    mpz_inits(value, part, NULL);
    mpz_mul_2exp(value, sum, 360 - 298);
    const char *wrong = nearest(value, got.hi) ? NULL : "hi is not the nearest";
    if (!wrong) {
        scaled(part, got.hi);
        mpz_sub(value, value, part);
        if (!nearest(value, got.lo)) wrong = "lo is not the nearest to the rest";
    }
    if (!wrong) {
        scaled(part, got.lo);
        if ((mpz_cmp(value, part) == 0) != got.complete) wrong = "complete is wrong";
    }
    mpz_clears(value, part, NULL);
    return wrong;
}

static mpfr_prec_t room(mpfr_prec_t want, const mpfr_t *logits, int count)
{
    mpfr_prec_t most = 0;
    for (int e = 0; e < count; e++)
        if (!mpfr_zero_p(logits[e]) && mpfr_get_exp(logits[e]) > most)
            most = mpfr_get_exp(logits[e]);
    return want + 2000 + most;
}

void oracle_sigmoid(mpfr_t out, const mpfr_t x)
{
    mpfr_t e, d;
    mpfr_inits2(mpfr_get_prec(out) + 2000, e, d, (mpfr_ptr)0);
    mpfr_exp(e, x, MPFR_RNDN);
    mpfr_add_ui(d, e, 1, MPFR_RNDN);
    mpfr_div(e, e, d, MPFR_RNDN);
    if (mpfr_nan_p(e)) mpfr_set_ui(e, 1, MPFR_RNDN); /* inf/inf: 1 - exp(-7e8) */
    mpfr_set(out, e, MPFR_RNDN);
    mpfr_clears(e, d, (mpfr_ptr)0);
}

void oracle_softmax(mpfr_t out, const mpfr_t *logits, int count, int which)
{
    mpfr_t e, z;
    mpfr_inits2(room(mpfr_get_prec(out), logits, count), e, z, (mpfr_ptr)0);
    mpfr_set_zero(z, 1);
    for (int i = 0; i < count; i++) {
        mpfr_exp(e, logits[i], MPFR_RNDN);
        mpfr_add(z, z, e, MPFR_RNDN);
    }
    mpfr_exp(e, logits[which], MPFR_RNDN);
    mpfr_div(e, e, z, MPFR_RNDN);
    mpfr_set(out, e, MPFR_RNDN);
    mpfr_clears(e, z, (mpfr_ptr)0);
}

/* Softmax takes differences to the largest logit, for logits whose exp no format holds; sigmoid the
 * hyperbolic tangent: (1 + tanh(x/2)) / 2. */
void oracle_difference(mpfr_t out, enum mr_score score, const mpfr_t *logits, int count,
                       const double *bias, int a, int b)
{
    mpfr_prec_t p = mpfr_get_prec(out) + 64;
    mpfr_t s[2], z, e;
    mpfr_inits2(p, s[0], s[1], z, (mpfr_ptr)0);
    mpfr_init2(e, p + 4500); /* differences of logits without rounding */
    int top = 0;
    for (int i = 1; i < count; i++)
        if (mpfr_cmp(logits[i], logits[top]) > 0) top = i;
    mpfr_set_zero(z, 1);
    for (int i = 0; score == MR_SCORE_SOFTMAX && i < count; i++) {
        mpfr_sub(e, logits[i], logits[top], MPFR_RNDN);
        mpfr_exp(s[0], e, MPFR_RNDN);
        mpfr_add(z, z, s[0], MPFR_RNDN);
    }
    for (int i = 0; i < 2; i++) {
        int which = i ? b : a;
        if (score == MR_SCORE_SOFTMAX) {
            mpfr_sub(e, logits[which], logits[top], MPFR_RNDN);
            mpfr_exp(s[i], e, MPFR_RNDN);
            mpfr_div(s[i], s[i], z, MPFR_RNDN);
        } else {
            mpfr_div_2ui(e, logits[which], 1, MPFR_RNDN);
            mpfr_tanh(s[i], e, MPFR_RNDN);
            mpfr_add_ui(s[i], s[i], 1, MPFR_RNDN);
            mpfr_div_2ui(s[i], s[i], 1, MPFR_RNDN);
        }
    }
    /* Biases first, exactly, so that only the scores round. */
    mpfr_set_prec(e, 2200);
    mpfr_set_d(e, bias ? bias[a] : 0, MPFR_RNDN);
    mpfr_sub_d(e, e, bias ? bias[b] : 0, MPFR_RNDN);
    mpfr_sub(s[0], s[0], s[1], MPFR_RNDN);
    mpfr_add(out, s[0], e, MPFR_RNDN);
    mpfr_clears(s[0], s[1], z, e, (mpfr_ptr)0);
}
