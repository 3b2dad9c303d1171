#include "mma_inputs.h"

#include <stdlib.h>
#include <string.h>

#include "../../ref/num/bits.h"

const char *const mma_class_names[MMA_CLASSES] = {"random",  "normal", "spread", "cancel",
                                                  "ties",    "zeros",  "small",  "large",
                                                  "special", "full",   "edge"};

uint64_t mma_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

uint32_t mma_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)((mma_random(state) >> 32) * n >> 32);
}

static const struct mr_mma_type_info *info(enum mr_mma_type type)
{
    return &mr_mma_types[type];
}

/* Greatest exponent of a finite number. */
static int emax(enum mr_mma_type type)
{
    const struct mr_mma_type_info *t = info(type);
    return t->emin + t->top - 1 - (t->has_inf ? 1 : 0);
}

/* (-1)^negative * 1.fraction * 2^exponent, the exponent clamped to the type's; NaN avoided. */
static uint32_t number(enum mr_mma_type type, bool negative, int exponent, uint32_t fraction)
{
    const struct mr_mma_type_info *t = info(type);
    int field = exponent - t->emin + 1, most = emax(type) - t->emin + 1;
    field = field < 0 ? 0 : field > most ? most : field;
    uint32_t magnitude = (uint32_t)field << t->fraction | (fraction & ((1u << t->fraction) - 1));
    if (t->nan && magnitude == t->nan) magnitude--;
    magnitude |= negative ? t->sign : 0;
    return type == MR_MMA_TF32 ? magnitude << 13 : magnitude;
}

static bool coin(uint64_t *s)
{
    return mma_random(s) >> 63;
}

static uint32_t fraction(uint64_t *s)
{
    static const uint32_t often[] = {0, 0x7fffff, 1};
    uint32_t kind = mma_below(s, 8);
    return kind < 3 ? often[kind] : (uint32_t)mma_random(s);
}

static uint32_t normal(enum mr_mma_type type, uint64_t *s)
{
    float sum = 0;
    for (int i = 0; i < 12; i++) sum += (float)(int32_t)mma_below(s, 1u << 16);
    sum = sum * 0x1p-16f - 6;
    uint32_t word = f32_bits(sum);
    if ((word & 0x7fffffff) == 0) return 0;
    int exponent = (int)(word >> 23 & 255) - 127;
    return number(type, word >> 31, exponent, (word & 0x7fffff) >> (23 - info(type)->fraction));
}

static uint32_t random_code(enum mr_mma_type type, uint64_t *s)
{
    const struct mr_mma_type_info *t = info(type);
    uint32_t word = (uint32_t)mma_random(s);
    return t->bits == 32 ? word : word & ((1u << t->bits) - 1);
}

/* Inf or a NaN of any payload, if the type has them. */
static uint32_t special(enum mr_mma_type type, uint64_t *s)
{
    const struct mr_mma_type_info *t = info(type);
    uint32_t sign = coin(s) ? t->sign : 0;
    if (!t->has_inf) return t->nan ? sign | t->nan : normal(type, s);
    uint32_t word = sign | (uint32_t)t->top << t->fraction;
    if (coin(s)) word |= 1u << mma_below(s, (uint32_t)t->fraction);
    if (type != MR_MMA_TF32) return word;
    return word << 13 | (coin(s) ? mma_below(s, 1u << 13) : 0);
}

/* A number of random sign and fraction: one draw a statement, so that every compiler makes the same
 * inputs. */
static uint32_t any_number(enum mr_mma_type type, int exponent, uint64_t *s)
{
    bool negative = coin(s);
    uint32_t f = fraction(s);
    return number(type, negative, exponent, f);
}

/* What the elements of one case have in common. */
struct plan {
    enum mma_class class;
    int high[2], span; /* exponents of operands a and b lie in (high - span, high] */
    int cut;           /* F */
};

static struct plan make_plan(const struct mr_mma *mma, enum mma_class class, uint64_t *s)
{
    struct plan p = {class, {0, 0}, 0, mma->fraction};
    enum mr_mma_type type[2] = {mma->a, mma->b};
    p.span = class == MMA_SPREAD ? (int)mma_below(s, 251) : 1 + (int)mma_below(s, 4);
    if (class == MMA_FULL) p.span = 1;
    for (int i = 0; i < 2; i++) {
        int low = info(type[i])->emin, range = emax(type[i]) - low + 1;
        p.high[i] = low + (int)mma_below(s, (uint32_t)range);
        if (class == MMA_SMALL) p.high[i] = low - 2 + (int)mma_below(s, 6);
        if (class == MMA_LARGE) p.high[i] = emax(type[i]) - (int)mma_below(s, 3);
    }
    /* Sums near 2^120 and 2^-100; results at the end of binary32. */
    int sum = coin(s) ? 117 + (int)mma_below(s, 9) : -104 + (int)mma_below(s, 9);
    if (class == MMA_EDGE) p.high[1] = sum - p.high[0];
    if (class == MMA_LARGE && mma->a <= MR_MMA_TF32)
        p.high[1] = 128 - (int)mma_below(s, 12) - p.high[0];
    uint32_t partner = mma_below(s, 3); /* of the least elements: as small, for sums at the end of
                                           binary32, or large */
    if (class == MMA_SMALL && partner == 1) p.high[1] = -160 + (int)mma_below(s, 40) - p.high[0];
    if (class == MMA_SMALL && partner == 2) p.high[1] = emax(mma->b) - (int)mma_below(s, 20);
    return p;
}

static uint32_t element(const struct plan *p, enum mr_mma_type type, int operand, uint64_t *s)
{
    int e = p->high[operand] - (int)mma_below(s, (uint32_t)p->span);
    switch (p->class) {
    case MMA_RANDOM: return random_code(type, s);
    case MMA_NORMAL:
    case MMA_CANCEL:
    case MMA_ZEROS: return normal(type, s);
    case MMA_SPECIAL: return mma_below(s, 60) ? normal(type, s) : special(type, s);
    case MMA_TIES: /* from a little above to a little below the cut, by operand a */
        e = p->high[operand];
        if (operand == 0 && mma_below(s, 8)) e -= p->cut - 3 + (int)mma_below(s, 6);
        return any_number(type, e, s);
    case MMA_FULL: return number(type, false, p->high[operand], 0x7fffff);
    default: return any_number(type, e, s);
    }
}

static uint32_t zero(enum mr_mma_type type, uint64_t *s)
{
    return coin(s) ? (type == MR_MMA_TF32 ? 0x80000000 : info(type)->sign) : 0;
}

static uint32_t accumulator(const struct plan *p, enum mr_mma_type type, uint64_t *s)
{
    int product = p->high[0] + p->high[1];
    switch (p->class) {
    case MMA_RANDOM: return random_code(type, s);
    case MMA_SPECIAL: return mma_below(s, 20) ? normal(type, s) : special(type, s);
    case MMA_SMALL: return any_number(type, info(type)->emin - (int)mma_below(s, 3), s);
    case MMA_LARGE: return any_number(type, emax(type) - (int)mma_below(s, 3), s);
    case MMA_FULL: return number(type, false, product + 1, 0x7fffff);
    case MMA_ZEROS:
        if (mma_below(s, 3)) return 0;
        return coin(s) ? info(type)->sign : normal(type, s);
    default:
        if (mma_below(s, 4) == 0) return zero(type, s);
        return any_number(type, product + 3 - (int)mma_below(s, (uint32_t)p->cut + 8), s);
    }
}

/* Zeros as padding makes them. */
static void zeros(uint32_t *x, size_t rows, size_t k, enum mr_mma_type type, uint64_t *s)
{
    for (size_t r = 0; r < rows; r++) {
        size_t from = 0, to = k;
        switch (mma_below(s, 5)) {
        case 0: break;
        case 1: from = to = k; break; /* none left: all zeros */
        case 2: to = mma_below(s, (uint32_t)k + 1); break;
        case 3: from = mma_below(s, (uint32_t)k + 1); break;
        case 4:
            from = mma_below(s, (uint32_t)k);
            to = from + 1;
            break;
        }
        if (from == k) to = 0, from = 0;
        for (size_t i = 0; i < k; i++)
            if (i < from || i >= to) x[r * k + i] = zero(type, s);
    }
}

/* Columns 2i + 1 repeat 2i with the sign of b changed; now and then one unit of b apart. */
static void cancel(struct mma_case *m, uint64_t *s)
{
    uint32_t sign = m->mma->b == MR_MMA_TF32 ? 0x80000000 : info(m->mma->b)->sign;
    uint32_t one = m->mma->b == MR_MMA_TF32 ? 1u << 13 : 1;
    for (size_t i = 0; i + 1 < m->k; i += 2) {
        for (size_t r = 0; r < m->rows; r++) m->a[r * m->k + i + 1] = m->a[r * m->k + i];
        for (size_t r = 0; r < m->cols; r++) {
            uint32_t *at = &m->b[r * m->k + i];
            at[1] = at[0] ^ sign;
            if (mma_below(s, 16) == 0) at[1] ^= one;
        }
    }
}

static unsigned char *stored(const uint32_t *codes, size_t n, enum mr_mma_type type)
{
    unsigned bytes = info(type)->bytes;
    unsigned char *out = malloc(n * bytes + 1);
    for (size_t i = 0; i < n; i++) memcpy(out + i * bytes, &codes[i], bytes); /* little endian */
    return out;
}

static void scales(struct mma_case *m, enum mma_class class, uint64_t *s)
{
    m->blocks = (m->k + (size_t)m->mma->scale_block - 1) / (size_t)m->mma->scale_block;
    m->sa = malloc(m->rows * m->blocks + 1);
    m->sb = malloc(m->cols * m->blocks + 1);
    for (int side = 0; side < 2; side++) {
        size_t n = (side ? m->cols : m->rows) * m->blocks;
        for (size_t i = 0; i < n; i++) {
            uint8_t x = (uint8_t)mma_random(s);
            bool any = class == MMA_RANDOM || class == MMA_SPECIAL; /* NaN too */
            bool wide = class == MMA_SPREAD || class == MMA_SMALL || class == MMA_LARGE;
            bool narrow = !any && !(wide && m->mma->scale == MR_MMA_UE8M0);
            if (wide && x == 0xff) x = 0x7f;
            /* Scales of zero, beside which a small c is all that there is. */
            bool zero_scale = class == MMA_SMALL && mma_below(s, 4);
            if (narrow && m->mma->scale == MR_MMA_UE8M0) x = (uint8_t)(117 + x % 21);
            if (narrow && m->mma->scale == MR_MMA_UE4M3 && (x & 0x7f) == 0x7f) x = 0x38;
            if (zero_scale && m->mma->scale == MR_MMA_UE4M3) x &= 0x80;
            (side ? m->sb : m->sa)[i] = x;
        }
    }
}

void mma_case_make(struct mma_case *m, const struct mr_mma *mma, enum mma_class class, size_t rows,
                   size_t cols, size_t k, uint64_t *s)
{
    *m = (struct mma_case){.mma = mma, .rows = rows, .cols = cols, .k = k};
    struct plan p = make_plan(mma, class, s);
    m->a = malloc(rows * k * sizeof *m->a + 1);
    m->b = malloc(cols * k * sizeof *m->b + 1);
    m->c = malloc(rows * cols * sizeof *m->c + 1);
    for (size_t i = 0; i < rows * k; i++) m->a[i] = element(&p, mma->a, 0, s);
    for (size_t i = 0; i < cols * k; i++) m->b[i] = element(&p, mma->b, 1, s);
    for (size_t i = 0; i < rows * cols; i++) m->c[i] = accumulator(&p, mma->accumulator, s);
    if (class == MMA_CANCEL) cancel(m, s);
    if (class == MMA_ZEROS) {
        zeros(m->a, rows, k, mma->a, s);
        zeros(m->b, cols, k, mma->b, s);
    }
    if (mma->scale_block) scales(m, class, s);
    m->packed_a = stored(m->a, rows * k, mma->a);
    m->packed_b = stored(m->b, cols * k, mma->b);
}

void mma_case_free(struct mma_case *m)
{
    free(m->a), free(m->b), free(m->c), free(m->sa), free(m->sb);
    free(m->packed_a), free(m->packed_b);
}

struct mr_mma_operand mma_case_a(const struct mma_case *m)
{
    return (struct mr_mma_operand){m->packed_a, m->rows, m->k, m->k, m->sa, m->blocks};
}

struct mr_mma_operand mma_case_b(const struct mma_case *m)
{
    return (struct mr_mma_operand){m->packed_b, m->cols, m->k, m->k, m->sb, m->blocks};
}

uint32_t mma_case_reference(const struct mma_case *m, size_t row, size_t col, size_t begin,
                            size_t end, const uint32_t *order, uint32_t c)
{
    size_t n = end - begin;
    uint32_t *a = malloc(2 * n * sizeof *a + 1), *b = a + n;
    for (size_t i = 0; i < n; i++) {
        size_t k = order ? order[begin + i] : begin + i;
        a[i] = m->a[row * m->k + k];
        b[i] = m->b[col * m->k + k];
    }
    struct mr_mma_scales s = {0};
    if (m->blocks) {
        size_t block = begin / (size_t)m->mma->scale_block;
        s.a = m->sa + row * m->blocks + block;
        s.b = m->sb + col * m->blocks + block;
    }
    uint32_t d = mr_mma_step(m->mma, a, b, n, c, m->blocks ? &s : NULL);
    free(a);
    return d;
}

size_t mma_distinct(const struct mr_mma **out, size_t most)
{
    size_t n = 0;
    for (size_t i = 0; i < mr_mma_count() && n < most; i++) {
        size_t j = 0;
        while (j < n && !mr_mma_same(out[j], mr_mma_at(i))) j++;
        if (j == n) out[n++] = mr_mma_at(i);
    }
    return n;
}
