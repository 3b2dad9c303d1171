/* Tiles of operands by class; what each class is for stands at its function. */
#include "mma_classes.h"

#include <stdbool.h>
#include <string.h>

const struct mma_format mma_bf16 = {"bf16", 16, 8, 7, 0, 127, 127};
const struct mma_format mma_fp16 = {"fp16", 16, 5, 10, 0, 15, 15};
const struct mma_format mma_tf32 = {"tf32", 32, 8, 10, 13, 127, 127};
const struct mma_format mma_e4m3 = {"e4m3", 8, 4, 3, 0, 7, 8};
const struct mma_format mma_e5m2 = {"e5m2", 8, 5, 2, 0, 15, 15};
const struct mma_format mma_fp32 = {"fp32", 32, 8, 23, 0, 127, 127};
const struct mma_format mma_s8 = {"s8", 8, 0, 8, 0, 0, 0};
const struct mma_format mma_s32 = {"s32", 32, 0, 32, 0, 0, 0};

const struct mma_set mma_sets[] = {
    {"bf16-fp32", &mma_bf16, &mma_bf16, &mma_fp32, 16},
    {"fp16-fp32", &mma_fp16, &mma_fp16, &mma_fp32, 16},
    {"fp16-fp16", &mma_fp16, &mma_fp16, &mma_fp16, 16},
    {"tf32-fp32", &mma_tf32, &mma_tf32, &mma_fp32, 8},
    {"e4m3-fp32", &mma_e4m3, &mma_e4m3, &mma_fp32, 32},
    {"e4m3-e5m2-fp32", &mma_e4m3, &mma_e5m2, &mma_fp32, 32},
    {"e5m2-e4m3-fp32", &mma_e5m2, &mma_e4m3, &mma_fp32, 32},
    {"e5m2-fp32", &mma_e5m2, &mma_e5m2, &mma_fp32, 32},
    {"e4m3-fp16", &mma_e4m3, &mma_e4m3, &mma_fp16, 32},
    {"e4m3-e5m2-fp16", &mma_e4m3, &mma_e5m2, &mma_fp16, 32},
    {"e5m2-e4m3-fp16", &mma_e5m2, &mma_e4m3, &mma_fp16, 32},
    {"e5m2-fp16", &mma_e5m2, &mma_e5m2, &mma_fp16, 32},
    {"s8-s32", &mma_s8, &mma_s8, &mma_s32, 32},
};
const int mma_set_count = sizeof mma_sets / sizeof *mma_sets;

/* What a class function sees: where it writes, and the set's types. */
struct maker {
    uint64_t state;
    const struct mma_format *fa, *fb, *fc;
    int k;
    bool eight;  /* 8-bit operands: their exponents cannot spread over 25 binades from one */
    bool narrow; /* fp16 accumulator */
    struct mma_tile *t;
};

static uint32_t draw(struct maker *m) /* splitmix64, upper half */
{
    uint64_t z = m->state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (uint32_t)((z ^ z >> 31) >> 32);
}

/* [lo, hi] */
static int between(struct maker *m, int lo, int hi)
{
    return lo + (int)(((uint64_t)draw(m) * (uint64_t)(hi - lo + 1)) >> 32);
}

static bool one_in(struct maker *m, int n)
{
    return between(m, 1, n) == 1;
}

static int emin(const struct mma_format *f)
{
    return 1 - f->bias;
}

static uint32_t sign_of(const struct mma_format *f, uint32_t sign)
{
    return (sign & 1) << (f->bits - 1);
}

/* (-1)^sign * 1.f * 2^e, f the upper bits of fraction; what the format cannot hold is cut: to a
 * subnormal, to zero, to the largest exponent. */
static uint32_t word(struct maker *m, const struct mma_format *f, uint32_t sign, int e,
                     uint32_t fraction)
{
    uint32_t low = f->low ? draw(m) >> (32 - f->low) : 0;
    uint32_t frac = fraction >> (32 - f->fraction);
    if (e > f->top) e = f->top;
    if (e < emin(f)) {
        uint32_t full = 1u << f->fraction | frac;
        int down = emin(f) - e;
        frac = down > f->fraction ? 0 : full >> down;
        return sign_of(f, sign) | frac << f->low | low;
    }
    if (f == &mma_e4m3 && e == f->top && frac == 7) frac = 6; /* 7 is NaN there */
    return sign_of(f, sign) | ((uint32_t)(e + f->bias) << f->fraction | frac) << f->low | low;
}

static uint32_t any(struct maker *m, const struct mma_format *f, int lo, int hi)
{
    uint32_t sign = draw(m);
    int e = between(m, lo, hi);
    uint32_t fraction = draw(m);
    return word(m, f, sign, e, fraction);
}

static uint32_t zero(struct maker *m, const struct mma_format *f)
{
    uint32_t sign = draw(m);
    return word(m, f, sign, emin(f) - 40, 0);
}

/* v * 2^shift, cut toward zero to the format. */
static uint32_t integer(struct maker *m, const struct mma_format *f, int64_t v, int shift)
{
    uint64_t size = v < 0 ? (uint64_t)-v : (uint64_t)v;
    if (!size) return word(m, f, 0, emin(f) - 40, 0);
    int top = 63 - __builtin_clzll(size);
    return word(m, f, v < 0, top + shift, (uint32_t)(size << (63 - top) << 1 >> 32));
}

/* Near N(0, 1): four uniform 16-bit numbers. */
static uint32_t normal(struct maker *m, const struct mma_format *f, int shift)
{
    int64_t sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += draw(m) >> 16;
    }
    return integer(m, f, sum - 2 * 65535, shift - 15);
}

static uint32_t infinity_of(struct maker *m, const struct mma_format *f)
{
    uint32_t sign = draw(m);
    if (f == &mma_e4m3) return sign_of(f, sign) | 0x7e; /* has none: its largest value */
    uint32_t low = f->low && one_in(m, 2) ? draw(m) >> (32 - f->low) : 0;
    return sign_of(f, sign) | ((1u << f->exponent) - 1) << (f->fraction + f->low) | low;
}

static uint32_t nan_of(struct maker *m, const struct mma_format *f)
{
    uint32_t sign = draw(m), payload = draw(m) >> (32 - f->fraction);
    if (f == &mma_e4m3) return sign_of(f, sign) | 0x7f;
    if (!payload) payload = 1;
    uint32_t low = f->low ? draw(m) >> (32 - f->low) : 0;
    return sign_of(f, sign) | (((1u << f->exponent) - 1) << f->fraction | payload) << f->low | low;
}

#define A(i, p) m->t->a[(i) * m->k + (p)]
#define B(j, p) m->t->b[(j) * m->k + (p)]
#define C(i, j) m->t->c[(i) * MMA_COLS + (j)]
#define EACH_A for (int i = 0; i < MMA_ROWS; i++) for (int p = 0; p < m->k; p++)
#define EACH_B for (int j = 0; j < MMA_COLS; j++) for (int p = 0; p < m->k; p++)
#define EACH_C for (int i = 0; i < MMA_ROWS; i++) for (int j = 0; j < MMA_COLS; j++)

/* Small integers: every order and every rounding gives the same, so only a wrong place shows. */
static void integers(struct maker *m)
{
    EACH_A A(i, p) = integer(m, m->fa, between(m, -4, 4), 0);
    EACH_B B(j, p) = integer(m, m->fb, between(m, -4, 4), 0);
    EACH_C C(i, j) = integer(m, m->fc, between(m, -64, 64), 0);
}

static void normals(struct maker *m)
{
    EACH_A A(i, p) = normal(m, m->fa, 0);
    EACH_B B(j, p) = normal(m, m->fb, 0);
    EACH_C C(i, j) = normal(m, m->fc, 2);
}

static uint32_t raw(struct maker *m, const struct mma_format *f)
{
    return draw(m) >> (32 - f->bits);
}

static void bits(struct maker *m)
{
    EACH_A A(i, p) = raw(m, m->fa);
    EACH_B B(j, p) = raw(m, m->fb);
    EACH_C C(i, j) = raw(m, m->fc);
}

/* All exponents of the formats, subnormals included, no special values. */
static void no_specials(struct maker *m)
{
    EACH_A A(i, p) = any(m, m->fa, emin(m->fa) - 1, m->fa->top);
    EACH_B B(j, p) = any(m, m->fb, emin(m->fb) - 1, m->fb->top);
    EACH_C C(i, j) = any(m, m->fc, emin(m->fc) - 1, m->fc->top);
}

/* Products spread over up to 60 binades, less in every second row. */
static void spread(struct maker *m)
{
    static const int half[] = {2, 5, 8, 15};
    EACH_A A(i, p) = any(m, m->fa, -half[i % 4], half[i % 4]);
    EACH_B B(j, p) = any(m, m->fb, -half[j % 4], half[j % 4]);
    EACH_C C(i, j) = any(m, m->fc, -30, 32);
}

/* Rows filled to a length only, zeros of both signs behind it, as padding leaves them; zeros inside
 * in every second column. Before the first element nothing: row 0. */
static void padding(struct maker *m)
{
    EACH_A A(i, p) = p < i % (m->k + 1) ? any(m, m->fa, -9, 3) : zero(m, m->fa);
    EACH_B B(j, p) = j % 2 && one_in(m, 2) ? zero(m, m->fb) : any(m, m->fb, -9, 3);
    EACH_C C(i, j) = j < 3 ? zero(m, m->fc) : any(m, m->fc, -36, 0);
}

/* One product that is not zero, at each position in turn, small; zero products have the exponents
 * of large operands, which must not count. c about 2^-25 of the product, and as large. */
static void single(struct maker *m)
{
    EACH_A A(i, p) = p == i % m->k ? any(m, m->fa, -6, -3) : zero(m, m->fa);
    EACH_B B(j, p) = j < 4 ? any(m, m->fb, -6, -3) : any(m, m->fb, 4, m->fb->top);
    EACH_C C(i, j) = j % 2 ? any(m, m->fc, -40, -20) : any(m, m->fc, -14, 2);
}

/* Zero sums: all products and c are -0; or some of them +0. */
static void zeros(struct maker *m)
{
    EACH_A A(i, p) = i < 24 ? sign_of(m->fa, 1) : i < 40 ? 0 : zero(m, m->fa);
    EACH_B {
        uint32_t w = p % 3 ? any(m, m->fb, -4, 4) : 0;
        B(j, p) = j < 4 ? w & ~sign_of(m->fb, 1) : j < 6 ? w | sign_of(m->fb, 1) : zero(m, m->fb);
    }
    EACH_C C(i, j) = i % 8 < 5 ? sign_of(m->fc, 1) : i % 8 < 7 ? 0 : any(m, m->fc, -140, 3);
}

/* Subnormal operands against small and large ones; c subnormal in half of the columns. */
static void subnormals(struct maker *m)
{
    int a = emin(m->fa), b = emin(m->fb), c = emin(m->fc);
    EACH_A A(i, p) = any(m, m->fa, a - m->fa->fraction, one_in(m, 4) ? a + 3 : a - 1);
    EACH_B {
        int lo = j < 3 ? b - m->fb->fraction : j < 6 ? -4 : m->fb->top - 30;
        int hi = j < 3 ? b + 2 : j < 6 ? 4 : m->fb->top - 3;
        B(j, p) = any(m, m->fb, lo, hi);
    }
    EACH_C C(i, j) = j % 2 ? any(m, m->fc, c - m->fc->fraction, c - 1) : any(m, m->fc, c - 2, c + 25);
}

/* Results at and below the smallest subnormal of the accumulator, 2^-149 or 2^-24: the sign of a
 * sum that is cut to zero. One, two or all positions filled; c zero or a few units. */
static void floors(struct maker *m)
{
    int lo = m->narrow ? -50 : -170, hi = m->narrow ? -24 : -147, unit = m->narrow ? -24 : -149;
    if (!m->narrow && m->fa->exponent < 8) lo = -50, hi = -24; /* cannot get there: c alone can */
    int fill[] = {1, 2, m->k / 2, m->k};
    EACH_A {
        bool filled = p < fill[i / 16];
        A(i, p) = filled ? any(m, m->fa, lo / 2, hi - hi / 2) : zero(m, m->fa);
    }
    EACH_B B(j, p) = any(m, m->fb, lo - lo / 2, hi / 2);
    EACH_C {
        int units = between(m, -2, 2);
        C(i, j) = i % 2 || !units ? zero(m, m->fc) : integer(m, m->fc, units, unit);
    }
}

/* Where the exponent of zero terms shows: c is a zero, one term stands at the rounding place of the
 * result (half of 2^-24 for fp16, 2^-149 for fp32), and what the others come to, 19 to 23 binades
 * below for fp16 and 7 to 14 below for fp32, decides if it is not cut. Rows take one binade each. */
static void floor_of_zero(struct maker *m)
{
    bool deep = !m->narrow && m->fa->exponent == 8; /* others never come near an fp32 floor */
    int main_b = deep ? -75 : -12, tiny_b = deep ? -80 : -23;
    EACH_A {
        bool main_place = p % 4 == 0;
        bool used = main_place ? p / 4 == i % (m->k / 4) : one_in(m, 2);
        int main_e = deep ? -74 + between(m, -1, 1) : -13 + between(m, -1, 1);
        int tiny_e = deep ? -76 - i / 4 % 8 : -21 - i / 4 % 4;
        uint32_t sign = draw(m);
        uint32_t fraction = one_in(m, 4) ? draw(m) : 0;
        int e = main_place ? main_e : tiny_e;
        A(i, p) = used ? word(m, m->fa, sign, e, fraction) : zero(m, m->fa);
    }
    EACH_B {
        uint32_t sign = draw(m);
        uint32_t fraction = j < 6 ? 0 : draw(m);
        B(j, p) = word(m, m->fb, sign, p % 4 ? tiny_b - j % 2 : main_b, fraction);
    }
    EACH_C C(i, j) = j == 7 ? any(m, m->fc, emin(m->fc) - m->fc->fraction, emin(m->fc))
                            : zero(m, m->fc);
}

/* The overflow edge: sums near the largest value from products alone, from c with the last straw,
 * and far beyond it with cancellation. */
static void overflow(struct maker *m)
{
    int top = m->narrow ? 15 : 127; /* the accumulator's largest exponent */
    int a = top / 2 < m->fa->top ? top / 2 : m->fa->top;
    EACH_A {
        uint32_t sign = i % 4 == 0 ? (uint32_t)i / 8 : draw(m);
        int e = i % 4 == 3 ? a - 24 : i % 4 == 2 ? m->fa->top : a - between(m, 0, 2);
        if (m->narrow && i % 4 == 3) e = -2;
        uint32_t fraction = one_in(m, 2) ? 0xffffffff : draw(m);
        bool used = i % 4 == 1 || p < 2 + i / 16;
        A(i, p) = used ? word(m, m->fa, sign, e, fraction) : zero(m, m->fa);
    }
    EACH_B {
        uint32_t sign = j < 4 ? 0 : draw(m);
        int e = j == 3 ? m->fb->top : top - a - between(m, 0, 2);
        if (m->narrow && j != 3) e = between(m, 1, 8);
        uint32_t fraction = one_in(m, 2) ? 0xffffffff : draw(m);
        B(j, p) = word(m, m->fb, sign, e, fraction);
    }
    EACH_C {
        uint32_t sign = draw(m);
        uint32_t near = ~(draw(m) & draw(m) & draw(m) & 0xff000000);
        C(i, j) = word(m, m->fc, sign, one_in(m, 3) ? top - 1 : top, near);
    }
}

static uint32_t special(struct maker *m, const struct mma_format *f)
{
    int kind = between(m, 0, 9);
    return kind < 5 ? infinity_of(m, f) : kind < 7 ? nan_of(m, f) : zero(m, f);
}

/* One operand in 2 k is Inf, NaN of any payload, or zero; so is one c in four. */
static void specials(struct maker *m)
{
    EACH_A A(i, p) = one_in(m, 2 * m->k) ? special(m, m->fa) : any(m, m->fa, -4, 4);
    EACH_B B(j, p) = one_in(m, 2 * m->k) ? special(m, m->fb) : any(m, m->fb, -4, 4);
    EACH_C C(i, j) = one_in(m, 4) ? special(m, m->fc) : any(m, m->fc, -4, 8);
}

/* Pairs of products that cancel exactly, and a residue 8 to 26 binades below in the last four. */
static void cancel(struct maker *m)
{
    int drop = m->eight ? 8 : 13;
    EACH_A {
        if (p >= m->k - 4) A(i, p) = any(m, m->fa, -drop, -4);
        else if (p % 2) A(i, p) = A(i, p - 1) ^ sign_of(m->fa, 1);
        else A(i, p) = any(m, m->fa, 0, 3);
    }
    EACH_B {
        if (p >= m->k - 4) B(j, p) = any(m, m->fb, -drop, -4);
        else if (p % 2) B(j, p) = B(j, p - 1);
        else B(j, p) = any(m, m->fb, 0, 3);
    }
    EACH_C C(i, j) = j % 2 ? zero(m, m->fc) : any(m, m->fc, -30, -4);
}

/* Significand with hidden bit, and the exponent of its last place. */
static int64_t whole_of(const struct mma_format *f, uint32_t w, int *shift)
{
    uint32_t frac = w >> f->low & ((1u << f->fraction) - 1);
    int e = (int)(w >> (f->low + f->fraction) & ((1u << f->exponent) - 1));
    *shift = (e ? e : 1) - f->bias - f->fraction;
    int64_t s = frac | (e ? 1u << f->fraction : 0);
    return w >> (f->bits - 1) & 1 ? -s : s;
}

/* c cancels the first product, or all but its last places; the rest lies far below. */
static void cancel_c(struct maker *m)
{
    int drop = m->eight ? 7 : 14;
    EACH_A A(i, p) = any(m, m->fa, p ? -drop : 0, p ? -drop / 2 : 3);
    EACH_B B(j, p) = any(m, m->fb, p ? -drop : 0, p ? -drop / 2 : 3);
    EACH_C {
        int ea, eb;
        int64_t a = whole_of(m->fa, A(i, 0), &ea), b = whole_of(m->fb, B(j, 0), &eb);
        int off = one_in(m, 3) ? between(m, -1, 1) : 0;
        C(i, j) = integer(m, m->fc, -a * b + off, ea + eb);
    }
}

/* One term sets the exponent; all others have their last bits about 2^-13 (every second row of the
 * 8-bit formats) or 2^-25 of it, fractions all ones, or a single bit. */
static void truncation(struct maker *m)
{
    int big_a = m->eight ? m->fa->top - 1 : 0, big_b = m->eight ? m->fb->top - 1 : 0;
    EACH_A {
        int below = m->eight && i % 2 ? 13 : 25;
        int e = big_a - below / 2 - between(m, -2, 2);
        uint32_t sign = draw(m);
        uint32_t fraction = one_in(m, 3) ? 0 : one_in(m, 2) ? 0xffffffff : draw(m);
        bool main_place = p == i / 2 % m->k;
        A(i, p) = word(m, m->fa, sign, main_place ? big_a : e, main_place ? 0 : fraction);
    }
    EACH_B {
        uint32_t fraction = one_in(m, 2) ? 0 : draw(m);
        B(j, p) = word(m, m->fb, 0, big_b - (j < 4 ? 0 : 10) - between(m, 0, 1), fraction);
    }
    EACH_C C(i, j) = j % 2 ? zero(m, m->fc) : any(m, m->fc, big_a + big_b - 28, big_a + big_b + 1);
}

/* Same exponents and large significands: the sum grows by carries, up to the last position. */
static void carry(struct maker *m)
{
    EACH_A {
        uint32_t sign = i % 2 ? draw(m) : 0;
        uint32_t fraction = ~(draw(m) & draw(m) & draw(m));
        A(i, p) = word(m, m->fa, sign, 0, fraction);
    }
    EACH_B {
        uint32_t fraction = ~(draw(m) & draw(m) & draw(m));
        B(j, p) = word(m, m->fb, (uint32_t)j, 0, fraction);
    }
    EACH_C C(i, j) = any(m, m->fc, -1, 7);
}

/* Products of 2 and more, which keep the exponent e_a + e_b: one such term, others at the place
 * where half an exponent decides what is cut. */
static void unnormalised(struct maker *m)
{
    int big_a = m->eight ? m->fa->top - 1 : 0, big_b = m->eight ? m->fb->top - 1 : 0;
    EACH_A {
        bool main_place = p == i % m->k;
        uint32_t sign = main_place ? 0 : draw(m);
        int e = big_a - (main_place ? 0 : m->eight && i % 2 ? between(m, 4, 8) : between(m, 11, 13));
        uint32_t fraction = draw(m) & 0xc0000000;
        A(i, p) = word(m, m->fa, sign, e, fraction);
    }
    EACH_B {
        int e = big_b - (j < 4 ? 0 : between(m, 11, 13));
        uint32_t fraction = draw(m) & 0xc0000000;
        B(j, p) = word(m, m->fb, 0, e, fraction);
    }
    EACH_C C(i, j) = j == 3 ? any(m, m->fc, big_a + big_b + 1, big_a + big_b + 1)
                            : integer(m, m->fc, between(m, -3, 3), big_a + big_b - 25);
}

/* Groups of positions of very different size, by place in four and by half: whoever sums them in
 * parts rounds between the parts. */
static void groups(struct maker *m)
{
    EACH_A {
        int group = i < 32 ? p % 4 / 2 : i < 48 ? p / (m->k / 2) : p % 2;
        int drop = m->eight ? 9 : 12;
        int e = (group == i % 2 ? 0 : -drop) + between(m, -3, 3);
        A(i, p) = any(m, m->fa, e, e);
    }
    EACH_B {
        int e = between(m, -3, 3) + (j % 2 ? 3 : -3);
        B(j, p) = any(m, m->fb, e, e);
    }
    EACH_C C(i, j) = any(m, m->fc, -18, 12);
}

/* The rounding of the result: c with a whole last place, terms that come to halves of it and a
 * little more or less. */
static void halves(struct maker *m)
{
    int places[] = {m->fc->fraction, 13, m->fc->fraction, m->fc->fraction - 1};
    EACH_A {
        int tiny = one_in(m, 2) ? 0 : m->eight ? between(m, -9, -5) : between(m, -13, -7);
        uint32_t sign = draw(m);
        bool used = p < 2 || one_in(m, 6);
        A(i, p) = used ? word(m, m->fa, sign, p < 2 ? 0 : tiny, 0) : zero(m, m->fa);
    }
    EACH_B {
        int e = p < 2 ? between(m, -1, 1) : between(m, -6, -1);
        uint32_t sign = draw(m);
        B(j, p) = word(m, m->fb, sign, e, p < 2 ? draw(m) & 0x80000000 : 0);
    }
    EACH_C {
        uint32_t sign = draw(m);
        C(i, j) = word(m, m->fc, sign, places[i % 4] + (j % 4 == 3), draw(m));
    }
}

#define CLASSES(X) \
    X("integers", integers) X("normal", normals) X("bits", bits) X("finite", no_specials) \
    X("spread", spread) X("padding", padding) X("single", single) X("zeros", zeros) \
    X("subnormals", subnormals) X("floor", floors) X("floor-of-zero", floor_of_zero) \
    X("overflow", overflow) X("specials", specials) X("cancel", cancel) X("cancel-c", cancel_c) \
    X("truncation", truncation) X("carry", carry) X("unnormalised", unnormalised) \
    X("groups", groups) X("halves", halves)
#define NAME(name, make) name,
#define MAKE(name, make) make,
const char *const mma_classes[] = {CLASSES(NAME)};
static void (*const makers[])(struct maker *) = {CLASSES(MAKE)};
const int mma_class_count = sizeof makers / sizeof *makers;

/* Integers have no classes but their bits. */
static void small_whole(struct maker *m)
{
    EACH_A A(i, p) = (uint32_t)between(m, -4, 4) & 0xff;
    EACH_B B(j, p) = (uint32_t)between(m, -4, 4) & 0xff;
    EACH_C C(i, j) = (uint32_t)between(m, -64, 64);
}

void mma_tile_make(const struct mma_set *set, int class_index, uint32_t number,
                   struct mma_tile *tile)
{
    uint64_t seed = (uint64_t)(set - mma_sets) << 48 | (uint64_t)class_index << 32 | number;
    struct maker m = {.state = seed * 0xd1342543de82ef95, .fa = set->a, .fb = set->b,
                      .fc = set->c, .k = set->k, .eight = set->a->bits == 8,
                      .narrow = set->c == &mma_fp16, .t = tile};
    memset(tile, 0, sizeof *tile);
    if (set->a != &mma_s8) makers[class_index](&m);
    else if (class_index) bits(&m);
    else small_whole(&m);
}
