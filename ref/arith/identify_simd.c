#include <math.h>

#include "identify_simd.h"

#include "../vec.h"

/* The lanes as vectors of this instruction set. */
enum { WIDTH = MR_IDENTIFY_WIDTH, VECTOR = 2 * MR_LANES, VECTORS = WIDTH / VECTOR };
struct lanes {
    mr_vf2 v[VECTORS];
};

MR_INLINE mr_vf2 load(const float *p)
{
    mr_vf2 v;
    memcpy(&v, p, sizeof v);
    return v;
}

MR_INLINE mr_vi2 load_i(const int32_t *p)
{
    mr_vi2 v;
    memcpy(&v, p, sizeof v);
    return v;
}

MR_INLINE struct lanes load_lanes(const float *p)
{
    struct lanes x;
    for (int i = 0; i < VECTORS; i++) x.v[i] = load(p + i * VECTOR);
    return x;
}

MR_INLINE void store_lanes(float *p, struct lanes x)
{
    for (int i = 0; i < VECTORS; i++) memcpy(p + i * VECTOR, &x.v[i], sizeof x.v[i]);
}

MR_INLINE struct lanes add(struct lanes x, struct lanes y)
{
    for (int i = 0; i < VECTORS; i++) x.v[i] += y.v[i];
    return x;
}

#if defined(__AVX512F__)
#define TO_INT(x) ((mr_vi2)_mm512_cvttps_epi32((__m512)(x)))
#define TO_FLOAT(x) ((mr_vf2)_mm512_cvtepi32_ps((__m512i)(x)))
#define FMA(a, b, c) ((mr_vf2)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#elif defined(__AVX2__) && defined(__FMA__)
#define TO_INT(x) ((mr_vi2)_mm256_cvttps_epi32((__m256)(x)))
#define TO_FLOAT(x) ((mr_vf2)_mm256_cvtepi32_ps((__m256i)(x)))
#define FMA(a, b, c) ((mr_vf2)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#else
#if defined(__SSE2__)
#include <emmintrin.h>
#define TO_INT(x) ((mr_vi2)_mm_cvttps_epi32((__m128)(x)))
#define TO_FLOAT(x) ((mr_vf2)_mm_cvtepi32_ps((__m128i)(x)))
#else
#define TO_INT(x) __builtin_convertvector((x), mr_vi2)
#define TO_FLOAT(x) __builtin_convertvector((x), mr_vf2)
#endif
MR_INLINE mr_vf2 fma_each(mr_vf2 a, mr_vf2 b, mr_vf2 c)
{
    for (int i = 0; i < VECTOR; i++) c[i] = fmaf(a[i], b[i], c[i]);
    return c;
}
#define FMA(a, b, c) fma_each(a, b, c)
#endif

MR_INLINE mr_vi2 exponents(mr_vf2 x, int least)
{
    mr_vi2 e = ((mr_vi2)x >> 23 & 255) - 127, floor = (mr_vi2){0} + least;
    return MR_MAX_I2(e, floor);
}

void MR_ISA_NAME(mr_lane_products)(struct mr_lane_terms *t, int least_a, int least_b)
{
    for (size_t i = 0; i < t->terms * WIDTH; i += VECTOR) {
        mr_vf2 a = load(t->a + i), b = load(t->b + i), p = a * b;
        mr_vi2 zero = (a == 0) | (b == 0);
        mr_vi2 e = exponents(a, least_a) + exponents(b, least_b);
        e = (e & ~zero) | (zero & MR_LANE_ZERO);
        memcpy(t->p + i, &p, sizeof p);
        memcpy(t->e + i, &e, sizeof e);
    }
}

/* Four parts at a time: an addition takes four cycles, and one may begin in each. Of fewer the last
 * is done over. */
enum { AT_ONCE = 4 };
struct four {
    const uint32_t *order[AT_ONCE];
    size_t length[AT_ONCE], least, part[AT_ONCE];
};

MR_INLINE struct four take_four(const struct mr_laid *l, size_t first)
{
    struct four f;
    f.least = SIZE_MAX;
    for (int j = 0; j < AT_ONCE; j++) {
        size_t p = first + (size_t)j < l->parts ? first + (size_t)j : l->parts - 1;
        f.part[j] = p;
        f.order[j] = l->order + l->begin[p];
        f.length[j] = l->begin[p + 1] - l->begin[p];
        if (f.length[j] < f.least) f.least = f.length[j];
    }
    return f;
}

void MR_ISA_NAME(mr_lane_parts_add)(const struct mr_lane_terms *t, const struct mr_laid *l,
                                    float *sums)
{
    for (size_t first = 0; first < l->parts; first += AT_ONCE) {
        struct four f = take_four(l, first);
        struct lanes s[AT_ONCE];
        memset(s, 0, sizeof s);
        for (size_t i = 0; i < f.least; i++)
            for (int j = 0; j < AT_ONCE; j++)
                s[j] = add(s[j], load_lanes(t->p + (size_t)f.order[j][i] * WIDTH));
        for (int j = 0; j < AT_ONCE; j++) {
            for (size_t i = f.least; i < f.length[j]; i++)
                s[j] = add(s[j], load_lanes(t->p + (size_t)f.order[j][i] * WIDTH));
            store_lanes(sums + f.part[j] * WIDTH, s[j]);
        }
    }
}

MR_INLINE struct lanes fma_lanes(const struct mr_lane_terms *t, size_t k, struct lanes s)
{
    for (int i = 0; i < VECTORS; i++)
        s.v[i] = FMA(load(t->a + k * WIDTH + i * VECTOR), load(t->b + k * WIDTH + i * VECTOR),
                     s.v[i]);
    return s;
}

void MR_ISA_NAME(mr_lane_parts_fma)(const struct mr_lane_terms *t, const struct mr_laid *l,
                                    float *sums)
{
    for (size_t first = 0; first < l->parts; first += AT_ONCE) {
        struct four f = take_four(l, first);
        struct lanes s[AT_ONCE];
        memset(s, 0, sizeof s);
        for (size_t i = 0; i < f.least; i++)
            for (int j = 0; j < AT_ONCE; j++) s[j] = fma_lanes(t, f.order[j][i], s[j]);
        for (int j = 0; j < AT_ONCE; j++) {
            for (size_t i = f.least; i < f.length[j]; i++)
                s[j] = fma_lanes(t, f.order[j][i], s[j]);
            store_lanes(sums + f.part[j] * WIDTH, s[j]);
        }
    }
}

/* One step of n <= mma.terms products for one vector: c and the products are scaled by 2^(F - emax)
 * and truncated to integers, which are added, and the sum is truncated to 24 bits. Exact if
 * -90 <= emax <= 120: then a product that binary32 did not hold exactly is below 2^-124, and is 0
 * beside 2^(emax - F), F <= 25; both scales are normal; the result is normal, or zero. Sums stay
 * below 2^31 - 200, which a sum of quarters tells. */
MR_INLINE mr_vf2 step(const struct mr_lane_terms *t, const uint32_t *order, size_t n, size_t at,
                      mr_vf2 c, struct mr_lane_mma mma, mr_vi2 *unsure)
{
    const mr_vi2 none = {0};
    mr_vi2 top = none + MR_LANE_ZERO;
    for (size_t i = 0; i < n; i++) {
        mr_vi2 e = load_i(t->e + (size_t)order[i] * WIDTH + at);
        top = MR_MAX_I2(top, e);
    }
    mr_vi2 of_c = ((mr_vi2)c >> 23 & 255) - 127, empty = (top == MR_LANE_ZERO) & (c == 0);
    top = MR_MAX_I2(top, of_c);
    top &= ~empty;
    *unsure |= (top < -90) | (top > 120);
    mr_vf2 up = (mr_vf2)((127 + mma.fraction - top) << 23);
    mr_vi2 whole = TO_INT(c * up), quarters = whole >> 2;
    for (size_t i = 0; i < n;) {
        mr_vi2 part = none; /* below 2^30 */
        for (size_t stop = i + 8 < n ? i + 8 : n; i < stop; i++)
            part += TO_INT(load(t->p + (size_t)order[i] * WIDTH + at) * up);
        whole += part;
        quarters += part >> 2;
    }
    const int most = (1 << 29) - 64;
    *unsure |= (quarters > most) | (quarters < -most);
    mr_vi2 sign = whole & INT32_MIN, size = (whole ^ whole >> 31) - (whole >> 31);
    mr_vf2 f = TO_FLOAT(size);
    mr_vi2 above = TO_INT(f) > size; /* rounded up: all ones, which is -1 */
    mr_vi2 bits = ((mr_vi2)f + above) & (int32_t)mma.keep;
    mr_vf2 down = (mr_vf2)((127 - mma.fraction + top) << 23);
    return (mr_vf2)((mr_vi2)((mr_vf2)bits * down) | sign);
}

void MR_ISA_NAME(mr_lane_parts_mma)(const struct mr_lane_terms *t, const struct mr_laid *l,
                                    struct mr_lane_mma mma, float *sums, uint8_t *unsure)
{
    for (size_t p = 0; p < l->parts; p++) {
        const uint32_t *order = l->order + l->begin[p];
        size_t n = l->begin[p + 1] - l->begin[p];
        unsure[p] = 0;
        for (int i = 0; i < VECTORS; i++) {
            mr_vf2 c = {0};
            mr_vi2 bad = {0};
            for (size_t at = 0; at < n; at += (size_t)mma.terms) {
                size_t take = n - at < (size_t)mma.terms ? n - at : (size_t)mma.terms;
                c = step(t, order + at, take, (size_t)i * VECTOR, c, mma, &bad);
            }
            unsure[p] |= MR_ANY2(bad);
            memcpy(sums + p * WIDTH + i * VECTOR, &c, sizeof c);
        }
    }
}

/* The sum of in[0 .. n), n >= 1. */
static struct lanes reduce_node(const float *in, size_t n, unsigned how, float *work)
{
    struct lanes s;
    switch (how) {
    case MR_REDUCE_ORDER:
        s = load_lanes(in);
        for (size_t i = 1; i < n; i++) s = add(s, load_lanes(in + i * WIDTH));
        return s;
    case MR_REDUCE_REVERSE:
        s = load_lanes(in + (n - 1) * WIDTH);
        for (size_t i = n - 1; i-- > 0;) s = add(s, load_lanes(in + i * WIDTH));
        return s;
    default: break;
    }
    if (n == 1) return load_lanes(in);
    if (how == MR_REDUCE_HALVES) {
        size_t d = 1;
        while (2 * d < n) d *= 2;
        for (size_t i = 0; i < d; i++) {
            s = load_lanes(in + i * WIDTH);
            if (i + d < n) s = add(s, load_lanes(in + (i + d) * WIDTH));
            store_lanes(work + i * WIDTH, s);
        }
        for (d /= 2; d > 0; d /= 2)
            for (size_t i = 0; i < d; i++)
                store_lanes(work + i * WIDTH, add(load_lanes(work + i * WIDTH),
                                                  load_lanes(work + (i + d) * WIDTH)));
    } else {
        for (const float *from = in; n > 1; from = work, n = (n + 1) / 2)
            for (size_t i = 0; i < n; i += 2) {
                s = load_lanes(from + i * WIDTH);
                if (i + 1 < n) s = add(s, load_lanes(from + (i + 1) * WIDTH));
                store_lanes(work + i / 2 * WIDTH, s);
            }
    }
    return load_lanes(work);
}

static uint16_t agree(struct lanes s, const struct mr_lane_goal *goal, int type)
{
    uint16_t hit = 0;
    for (int i = 0; i < VECTORS; i++) {
        mr_vf2 x = s.v[i];
        if (goal->biased) x += load(goal->bias + i * VECTOR);
        mr_vi2 bits = (mr_vi2)x, ordered = bits ^ (bits >> 31 & INT32_MAX);
        mr_vi2 in = (ordered >= load_i(goal->low[type] + i * VECTOR)) &
                    (ordered <= load_i(goal->high[type] + i * VECTOR));
#if defined(__AVX512DQ__)
        hit |= (uint16_t)_mm512_movepi32_mask((__m512i)in);
#elif defined(__AVX__)
        hit |= (uint16_t)(_mm256_movemask_ps((__m256)in) << (i * VECTOR));
#else
        for (int j = 0; j < VECTOR; j++) hit |= (uint16_t)((in[j] & 1) << (i * VECTOR + j));
#endif
    }
    return hit;
}

/* Level by level; partial results of a level are kept while the levels above try all their ways. */
static __attribute__((noinline)) void
reduce_level(const struct mr_laid *l, int level, const float *in, unsigned combination,
             mr_combinations wanted, const struct mr_lane_goal *goal, float *work,
             uint16_t hit[MR_IDENTIFY_TYPES][MR_FRAME_COMBINATIONS])
{
    if (level == l->levels || level == MR_FRAME_LEVELS) {
        struct lanes s = load_lanes(in);
        for (int type = 0; type < goal->types; type++)
            hit[type][combination] = agree(s, goal, type);
        return;
    }
    /* Combinations whose lowest levels are in order; shifted by c, those that begin as c does. */
    const mr_combinations same_so_far[] = {0x1111111111111111, 0x0001000100010001, 1};
    float *out = work, *rest = work + l->nodes[level] * WIDTH;
    for (unsigned how = 0; how < 4; how++) {
        unsigned c = combination | how << (2 * level);
        mr_combinations here = wanted & same_so_far[level] << c;
        if (!here) continue;
        const float *from = in;
        for (size_t node = 0; node < l->nodes[level]; node++) {
            size_t n = l->children[level][node];
            store_lanes(out + node * WIDTH, reduce_node(from, n, how, rest));
            from += n * WIDTH;
        }
        reduce_level(l, level + 1, out, c, here, goal, rest, hit);
    }
}

void MR_ISA_NAME(mr_lane_reduce)(const struct mr_laid *l, const float *sums, mr_combinations wanted,
                                 const struct mr_lane_goal *goal, float *work,
                                 uint16_t hit[MR_IDENTIFY_TYPES][MR_FRAME_COMBINATIONS])
{
    reduce_level(l, 0, sums, 0, wanted, goal, work, hit);
}
