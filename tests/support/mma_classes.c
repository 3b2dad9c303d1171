/* Tiles of operands by class; what each class is for stands at its function. */
#include "mma_classes.h"

#include <stdbool.h>
#include <string.h>

#include "mma_words.h"

/* What a class function sees: where it writes, and the set's types. */
struct maker {
    struct mma_source *s;
    const struct mma_format *fa, *fb, *fc;
    int k;
    bool eight;  /* 8-bit operands: their exponents cannot spread over 25 binades from one */
    bool narrow; /* fp16 accumulator */
    struct mma_tile *t;
};

#define A(i, p) m->t->a[(i)*m->k + (p)]
#define B(j, p) m->t->b[(j)*m->k + (p)]
#define C(i, j) m->t->c[(i)*MMA_COLS + (j)]
#define EACH_A                                                                                     \
    for (int i = 0; i < MMA_ROWS; i++)                                                             \
        for (int p = 0; p < m->k; p++)
#define EACH_B                                                                                     \
    for (int j = 0; j < MMA_COLS; j++)                                                             \
        for (int p = 0; p < m->k; p++)
#define EACH_C                                                                                     \
    for (int i = 0; i < MMA_ROWS; i++)                                                             \
        for (int j = 0; j < MMA_COLS; j++)

/* Small integers: every order and every rounding gives the same, so only a wrong place shows. */
static void integers(struct maker *m)
{
    EACH_A A(i, p) = mma_integer(m->s, m->fa, mma_between(m->s, -4, 4), 0);
    EACH_B B(j, p) = mma_integer(m->s, m->fb, mma_between(m->s, -4, 4), 0);
    EACH_C C(i, j) = mma_integer(m->s, m->fc, mma_between(m->s, -64, 64), 0);
}

static void normals(struct maker *m)
{
    EACH_A A(i, p) = mma_normal(m->s, m->fa, 0);
    EACH_B B(j, p) = mma_normal(m->s, m->fb, 0);
    EACH_C C(i, j) = mma_normal(m->s, m->fc, 2);
}

static uint32_t raw(struct maker *m, const struct mma_format *f)
{
    return mma_draw(m->s) >> (32 - f->bits);
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
    EACH_A A(i, p) = mma_any(m->s, m->fa, mma_emin(m->fa) - 1, m->fa->top);
    EACH_B B(j, p) = mma_any(m->s, m->fb, mma_emin(m->fb) - 1, m->fb->top);
    EACH_C C(i, j) = mma_any(m->s, m->fc, mma_emin(m->fc) - 1, m->fc->top);
}

/* Products spread over up to 60 binades, less in every second row. */
static void spread(struct maker *m)
{
    static const int half[] = {2, 5, 8, 15};
    EACH_A A(i, p) = mma_any(m->s, m->fa, -half[i % 4], half[i % 4]);
    EACH_B B(j, p) = mma_any(m->s, m->fb, -half[j % 4], half[j % 4]);
    EACH_C C(i, j) = mma_any(m->s, m->fc, -30, 32);
}

/* Rows filled to a length only, zeros of both signs behind it, as padding leaves them; zeros inside
 * in every second column. Before the first element nothing: row 0. */
static void padding(struct maker *m)
{
    EACH_A A(i, p) = p < i % (m->k + 1) ? mma_any(m->s, m->fa, -9, 3) : mma_zero(m->s, m->fa);
    EACH_B B(j, p) =
        j % 2 && mma_one_in(m->s, 2) ? mma_zero(m->s, m->fb) : mma_any(m->s, m->fb, -9, 3);
    EACH_C C(i, j) = j < 3 ? mma_zero(m->s, m->fc) : mma_any(m->s, m->fc, -36, 0);
}

/* One product that is not zero, at each position in turn, small; zero products have the exponents
 * of large operands, which must not count. c about 2^-25 of the product, and as large. */
static void single(struct maker *m)
{
    EACH_A A(i, p) = p == i % m->k ? mma_any(m->s, m->fa, -6, -3) : mma_zero(m->s, m->fa);
    EACH_B B(j, p) = j < 4 ? mma_any(m->s, m->fb, -6, -3) : mma_any(m->s, m->fb, 4, m->fb->top);
    EACH_C C(i, j) = j % 2 ? mma_any(m->s, m->fc, -40, -20) : mma_any(m->s, m->fc, -14, 2);
}

/* Zero sums: all products and c are -0; or some of them +0. */
static void zeros(struct maker *m)
{
    EACH_A A(i, p) = i < 24 ? mma_sign(m->fa, 1) : i < 40 ? 0 : mma_zero(m->s, m->fa);
    EACH_B
    {
        uint32_t w = p % 3 ? mma_any(m->s, m->fb, -4, 4) : 0;
        B(j, p) = j < 4   ? w & ~mma_sign(m->fb, 1)
                  : j < 6 ? w | mma_sign(m->fb, 1)
                          : mma_zero(m->s, m->fb);
    }
    EACH_C C(i, j) = i % 8 < 5 ? mma_sign(m->fc, 1) : i % 8 < 7 ? 0 : mma_any(m->s, m->fc, -140, 3);
}

/* Subnormal operands against small and large ones; c subnormal in half of the columns. */
static void subnormals(struct maker *m)
{
    int a = mma_emin(m->fa), b = mma_emin(m->fb), c = mma_emin(m->fc);
    EACH_A A(i, p) = mma_any(m->s, m->fa, a - m->fa->fraction, mma_one_in(m->s, 4) ? a + 3 : a - 1);
    EACH_B
    {
        int lo = j < 3 ? b - m->fb->fraction : j < 6 ? -4 : m->fb->top - 30;
        int hi = j < 3 ? b + 2 : j < 6 ? 4 : m->fb->top - 3;
        B(j, p) = mma_any(m->s, m->fb, lo, hi);
    }
    EACH_C C(i, j) = j % 2 ? mma_any(m->s, m->fc, c - m->fc->fraction, c - 1)
                           : mma_any(m->s, m->fc, c - 2, c + 25);
}

/* Results at and below the smallest subnormal of the accumulator, 2^-149 or 2^-24: the sign of a
 * sum that is cut to zero. One, two or all positions filled; c zero or a few units. */
static void floors(struct maker *m)
{
    int lo = m->narrow ? -50 : -170, hi = m->narrow ? -24 : -147, unit = m->narrow ? -24 : -149;
    if (!m->narrow && m->fa->exponent < 8) lo = -50, hi = -24; /* cannot get there: c alone can */
    int fill[] = {1, 2, m->k / 2, m->k};
    EACH_A
    {
        bool filled = p < fill[i / 16];
        A(i, p) = filled ? mma_any(m->s, m->fa, lo / 2, hi - hi / 2) : mma_zero(m->s, m->fa);
    }
    EACH_B B(j, p) = mma_any(m->s, m->fb, lo - lo / 2, hi / 2);
    EACH_C
    {
        int units = mma_between(m->s, -2, 2);
        C(i, j) = i % 2 || !units ? mma_zero(m->s, m->fc) : mma_integer(m->s, m->fc, units, unit);
    }
}

/* Where the exponent of zero terms shows: c is a zero, one term stands at the rounding place of the
 * result (half of 2^-24 for fp16, 2^-149 for fp32), and what the others come to, 19 to 23 binades
 * below for fp16 and 7 to 14 below for fp32, decides if it is not cut. Rows take one binade each.
 */
static void floor_of_zero(struct maker *m)
{
    bool deep = !m->narrow && m->fa->exponent == 8; /* others never come near an fp32 floor */
    int main_b = deep ? -75 : -12, tiny_b = deep ? -80 : -23;
    EACH_A
    {
        bool main_place = p % 4 == 0;
        bool used = main_place ? p / 4 == i % (m->k / 4) : mma_one_in(m->s, 2);
        int main_e = deep ? -74 + mma_between(m->s, -1, 1) : -13 + mma_between(m->s, -1, 1);
        int tiny_e = deep ? -76 - i / 4 % 8 : -21 - i / 4 % 4;
        uint32_t sign = mma_draw(m->s);
        uint32_t fraction = mma_one_in(m->s, 4) ? mma_draw(m->s) : 0;
        int e = main_place ? main_e : tiny_e;
        A(i, p) = used ? mma_word(m->s, m->fa, sign, e, fraction) : mma_zero(m->s, m->fa);
    }
    EACH_B
    {
        uint32_t sign = mma_draw(m->s);
        uint32_t fraction = j < 6 ? 0 : mma_draw(m->s);
        B(j, p) = mma_word(m->s, m->fb, sign, p % 4 ? tiny_b - j % 2 : main_b, fraction);
    }
    EACH_C C(i, j) = j == 7
                         ? mma_any(m->s, m->fc, mma_emin(m->fc) - m->fc->fraction, mma_emin(m->fc))
                         : mma_zero(m->s, m->fc);
}

/* The overflow edge: sums near the largest value from products alone, from c with the last straw,
 * and far beyond it with cancellation. */
static void overflow(struct maker *m)
{
    int top = m->narrow ? 15 : 127; /* the accumulator's largest exponent */
    int a = top / 2 < m->fa->top ? top / 2 : m->fa->top;
    EACH_A
    {
        uint32_t sign = i % 4 == 0 ? (uint32_t)i / 8 : mma_draw(m->s);
        int e = i % 4 == 3 ? a - 24 : i % 4 == 2 ? m->fa->top : a - mma_between(m->s, 0, 2);
        if (m->narrow && i % 4 == 3) e = -2;
        uint32_t fraction = mma_one_in(m->s, 2) ? 0xffffffff : mma_draw(m->s);
        bool used = i % 4 == 1 || p < 2 + i / 16;
        A(i, p) = used ? mma_word(m->s, m->fa, sign, e, fraction) : mma_zero(m->s, m->fa);
    }
    EACH_B
    {
        uint32_t sign = j < 4 ? 0 : mma_draw(m->s);
        int e = j == 3 ? m->fb->top : top - a - mma_between(m->s, 0, 2);
        if (m->narrow && j != 3) e = mma_between(m->s, 1, 8);
        uint32_t fraction = mma_one_in(m->s, 2) ? 0xffffffff : mma_draw(m->s);
        B(j, p) = mma_word(m->s, m->fb, sign, e, fraction);
    }
    EACH_C
    {
        uint32_t sign = mma_draw(m->s);
        uint32_t near = ~(mma_draw(m->s) & mma_draw(m->s) & mma_draw(m->s) & 0xff000000);
        C(i, j) = mma_word(m->s, m->fc, sign, mma_one_in(m->s, 3) ? top - 1 : top, near);
    }
}

static uint32_t special(struct maker *m, const struct mma_format *f)
{
    int kind = mma_between(m->s, 0, 9);
    return kind < 5 ? mma_infinity(m->s, f) : kind < 7 ? mma_nan(m->s, f) : mma_zero(m->s, f);
}

/* One operand in 2 k is Inf, NaN of any payload, or zero; so is one c in four. */
static void specials(struct maker *m)
{
    EACH_A A(i, p) = mma_one_in(m->s, 2 * m->k) ? special(m, m->fa) : mma_any(m->s, m->fa, -4, 4);
    EACH_B B(j, p) = mma_one_in(m->s, 2 * m->k) ? special(m, m->fb) : mma_any(m->s, m->fb, -4, 4);
    EACH_C C(i, j) = mma_one_in(m->s, 4) ? special(m, m->fc) : mma_any(m->s, m->fc, -4, 8);
}

/* Pairs of products that cancel exactly, and a residue 8 to 26 binades below in the last four. */
static void cancel(struct maker *m)
{
    int drop = m->eight ? 8 : 13;
    EACH_A
    {
        if (p >= m->k - 4)
            A(i, p) = mma_any(m->s, m->fa, -drop, -4);
        else if (p % 2)
            A(i, p) = A(i, p - 1) ^ mma_sign(m->fa, 1);
        else
            A(i, p) = mma_any(m->s, m->fa, 0, 3);
    }
    EACH_B
    {
        if (p >= m->k - 4)
            B(j, p) = mma_any(m->s, m->fb, -drop, -4);
        else if (p % 2)
            B(j, p) = B(j, p - 1);
        else
            B(j, p) = mma_any(m->s, m->fb, 0, 3);
    }
    EACH_C C(i, j) = j % 2 ? mma_zero(m->s, m->fc) : mma_any(m->s, m->fc, -30, -4);
}

/* c cancels the first product, or all but its last places; the rest lies far below. */
static void cancel_c(struct maker *m)
{
    int drop = m->eight ? 7 : 14;
    EACH_A A(i, p) = mma_any(m->s, m->fa, p ? -drop : 0, p ? -drop / 2 : 3);
    EACH_B B(j, p) = mma_any(m->s, m->fb, p ? -drop : 0, p ? -drop / 2 : 3);
    EACH_C
    {
        int ea, eb;
        int64_t a = mma_whole(m->fa, A(i, 0), &ea), b = mma_whole(m->fb, B(j, 0), &eb);
        int off = mma_one_in(m->s, 3) ? mma_between(m->s, -1, 1) : 0;
        C(i, j) = mma_integer(m->s, m->fc, -a * b + off, ea + eb);
    }
}

/* One term sets the exponent; all others have their last bits about 2^-13 (every second row of the
 * 8-bit formats) or 2^-25 of it, fractions all ones, or a single bit. */
static void truncation(struct maker *m)
{
    int big_a = m->eight ? m->fa->top - 1 : 0, big_b = m->eight ? m->fb->top - 1 : 0;
    EACH_A
    {
        int below = m->eight && i % 2 ? 13 : 25;
        int e = big_a - below / 2 - mma_between(m->s, -2, 2);
        uint32_t sign = mma_draw(m->s);
        uint32_t fraction = mma_one_in(m->s, 3)   ? 0
                            : mma_one_in(m->s, 2) ? 0xffffffff
                                                  : mma_draw(m->s);
        bool main_place = p == i / 2 % m->k;
        A(i, p) = mma_word(m->s, m->fa, sign, main_place ? big_a : e, main_place ? 0 : fraction);
    }
    EACH_B
    {
        uint32_t fraction = mma_one_in(m->s, 2) ? 0 : mma_draw(m->s);
        B(j, p) =
            mma_word(m->s, m->fb, 0, big_b - (j < 4 ? 0 : 10) - mma_between(m->s, 0, 1), fraction);
    }
    EACH_C C(i, j) =
        j % 2 ? mma_zero(m->s, m->fc) : mma_any(m->s, m->fc, big_a + big_b - 28, big_a + big_b + 1);
}

/* Same exponents and large significands: the sum grows by carries, up to the last position. */
static void carry(struct maker *m)
{
    EACH_A
    {
        uint32_t sign = i % 2 ? mma_draw(m->s) : 0;
        uint32_t fraction = ~(mma_draw(m->s) & mma_draw(m->s) & mma_draw(m->s));
        A(i, p) = mma_word(m->s, m->fa, sign, 0, fraction);
    }
    EACH_B
    {
        uint32_t fraction = ~(mma_draw(m->s) & mma_draw(m->s) & mma_draw(m->s));
        B(j, p) = mma_word(m->s, m->fb, (uint32_t)j, 0, fraction);
    }
    EACH_C C(i, j) = mma_any(m->s, m->fc, -1, 7);
}

/* Products of 2 and more, which keep the exponent e_a + e_b: one such term, others at the place
 * where half an exponent decides what is cut. */
static void unnormalised(struct maker *m)
{
    int big_a = m->eight ? m->fa->top - 1 : 0, big_b = m->eight ? m->fb->top - 1 : 0;
    EACH_A
    {
        bool main_place = p == i % m->k;
        uint32_t sign = main_place ? 0 : mma_draw(m->s);
        int e = big_a - (main_place          ? 0
                         : m->eight && i % 2 ? mma_between(m->s, 4, 8)
                                             : mma_between(m->s, 11, 13));
        uint32_t fraction = mma_draw(m->s) & 0xc0000000;
        A(i, p) = mma_word(m->s, m->fa, sign, e, fraction);
    }
    EACH_B
    {
        int e = big_b - (j < 4 ? 0 : mma_between(m->s, 11, 13));
        uint32_t fraction = mma_draw(m->s) & 0xc0000000;
        B(j, p) = mma_word(m->s, m->fb, 0, e, fraction);
    }
    EACH_C C(i, j) = j == 3
                         ? mma_any(m->s, m->fc, big_a + big_b + 1, big_a + big_b + 1)
                         : mma_integer(m->s, m->fc, mma_between(m->s, -3, 3), big_a + big_b - 25);
}

/* Groups of positions of very different size, by place in four and by half: whoever sums them in
 * parts rounds between the parts. */
static void groups(struct maker *m)
{
    EACH_A
    {
        int group = i < 32 ? p % 4 / 2 : i < 48 ? p / (m->k / 2) : p % 2;
        int drop = m->eight ? 9 : 12;
        int e = (group == i % 2 ? 0 : -drop) + mma_between(m->s, -3, 3);
        A(i, p) = mma_any(m->s, m->fa, e, e);
    }
    EACH_B
    {
        int e = mma_between(m->s, -3, 3) + (j % 2 ? 3 : -3);
        B(j, p) = mma_any(m->s, m->fb, e, e);
    }
    EACH_C C(i, j) = mma_any(m->s, m->fc, -18, 12);
}

/* The rounding of the result: c with a whole last place, terms that come to halves of it and a
 * little more or less. */
static void halves(struct maker *m)
{
    int places[] = {m->fc->fraction, 13, m->fc->fraction, m->fc->fraction - 1};
    EACH_A
    {
        int tiny = mma_one_in(m->s, 2) ? 0
                   : m->eight          ? mma_between(m->s, -9, -5)
                                       : mma_between(m->s, -13, -7);
        uint32_t sign = mma_draw(m->s);
        bool used = p < 2 || mma_one_in(m->s, 6);
        A(i, p) = used ? mma_word(m->s, m->fa, sign, p < 2 ? 0 : tiny, 0) : mma_zero(m->s, m->fa);
    }
    EACH_B
    {
        int e = p < 2 ? mma_between(m->s, -1, 1) : mma_between(m->s, -6, -1);
        uint32_t sign = mma_draw(m->s);
        B(j, p) = mma_word(m->s, m->fb, sign, e, p < 2 ? mma_draw(m->s) & 0x80000000 : 0);
    }
    EACH_C
    {
        uint32_t sign = mma_draw(m->s);
        C(i, j) = mma_word(m->s, m->fc, sign, places[i % 4] + (j % 4 == 3), mma_draw(m->s));
    }
}

#define CLASSES(X)                                                                                 \
    X("integers", integers)                                                                        \
    X("normal", normals) X("bits", bits) X("finite", no_specials) X("spread", spread)              \
        X("padding", padding) X("single", single) X("zeros", zeros) X("subnormals", subnormals)    \
            X("floor", floors) X("floor-of-zero", floor_of_zero) X("overflow", overflow)           \
                X("specials", specials) X("cancel", cancel) X("cancel-c", cancel_c)                \
                    X("truncation", truncation) X("carry", carry) X("unnormalised", unnormalised)  \
                        X("groups", groups) X("halves", halves)
#define NAME(name, make) name,
#define MAKE(name, make) make,
const char *const mma_classes[] = {CLASSES(NAME)};
static void (*const makers[])(struct maker *) = {CLASSES(MAKE)};
const int mma_class_count = sizeof makers / sizeof *makers;

/* Integers have no classes but their bits. */
static void small_whole(struct maker *m)
{
    EACH_A A(i, p) = (uint32_t)mma_between(m->s, -4, 4) & 0xff;
    EACH_B B(j, p) = (uint32_t)mma_between(m->s, -4, 4) & 0xff;
    EACH_C C(i, j) = (uint32_t)mma_between(m->s, -64, 64);
}

void mma_tile_make(const struct mma_set *set, int class_index, uint32_t number,
                   struct mma_tile *tile)
{
    uint64_t seed = (uint64_t)(set - mma_sets) << 48 | (uint64_t)class_index << 32 | number;
    struct mma_source source = {seed * 0xd1342543de82ef95};
    struct maker m = {.s = &source,
                      .fa = set->a,
                      .fb = set->b,
                      .fc = set->c,
                      .k = set->k,
                      .eight = set->a->bits == 8,
                      .narrow = set->c == &mma_fp16,
                      .t = tile};
    memset(tile, 0, sizeof *tile);
    if (set->a != &mma_s8)
        makers[class_index](&m);
    else if (class_index)
        bits(&m);
    else
        small_whole(&m);
}
