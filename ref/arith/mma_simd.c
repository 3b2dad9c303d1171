/* The fast tensor-core step: the lanes of a vector are columns of b, with a fixed row of a.
 *
 * A step. Products p of two elements are exact in binary32: significands have at most 11 bits. The
 * alignment exponent E comes from integer sums of un-normalised exponents, in lanes of 16 bits.
 * Then s = 2^(F - E), and the conversion of p * s to int32 truncates it toward zero to a multiple
 * of 2^(E - F): that is the term. The integers are added; their sum, rounded toward zero to
 * binary32 by the conversion (or as the form wants it), times 2^(E - F), is the result.
 *
 * Why it is exact, for MMA_LEAST <= E <= MMA_MOST and F <= 25:
 * - |p| < 2^(E + 2) < 2^128: nothing overflows. s and 2^(E - F) are normal numbers.
 * - A p that counts has |p| >= 2^(E - F) >= 2^-125. It is a normal number, so exact, and so is its
 *   product with s. Any other p may be rounded on underflow, to at most 2^-126 in magnitude: times
 * s it is below 1 and truncates to 0, as it must, however the processor rounds.
 * - |p * s| < 2^(F + 2) <= 2^27, so that 16 terms are below 2^31: they fit with their sign. Adding
 *   the next 16, and c (< 2^26), may overflow: sums are modular, and each such addition is tested
 * by the signs.
 * - A sum that is not 0 is at least 2^(E - F) >= 2^-125 and below 2^(E - F + 31) <= 2^126: its
 *   result is normal, and is the binary32 number with the integer's leading 24 bits.
 * - A c that is subnormal is as nothing beside such an E; Inf and NaN have an exponent above MOST.
 * E below MMA_LEAST with a product or c that is not 0, E above MMA_MOST, a sum that overflowed:
 * each makes the output bad, and it stays bad to the end of the chain. If every term is zero, so is
 * the result (+0), for any E. Elements that are Inf or NaN are found when they are read. */
#include "mma_simd.h"

#include "../num/bits.h"
#include "../vec.h"

enum { LANES = 2 * MR_LANES, WIDTH = 2 * LANES, BLOCK = 16 };
#if defined(__AVX512BW__)
enum { ROWS = 4 }; /* 8 sums, 8 scales, 2 vectors of b: of 32 registers */
#else
enum { ROWS = 2 };
#endif

typedef uint32_t vu __attribute__((vector_size(8 * MR_LANES)));
typedef int16_t vs __attribute__((vector_size(8 * MR_LANES)));

/* Toward zero whatever the rounding mode; what does not fit is unspecified. */
#if defined(__AVX512F__)
#define TRUNCATE(v)  ((vu)_mm512_cvttps_epi32((__m512)(v)))
#define MAX_16(a, b) ((vu)_mm512_max_epi16((__m512i)(a), (__m512i)(b)))
#elif defined(__AVX2__)
#define TRUNCATE(v)  ((vu)_mm256_cvttps_epi32((__m256)(v)))
#define MAX_16(a, b) ((vu)_mm256_max_epi16((__m256i)(a), (__m256i)(b)))
#elif defined(__SSE2__)
#include <emmintrin.h>
#define TRUNCATE(v)  ((vu)_mm_cvttps_epi32((__m128)(v)))
#define MAX_16(a, b) ((vu)_mm_max_epi16((__m128i)(a), (__m128i)(b)))
#else
#define TRUNCATE(v)  ((vu) __builtin_convertvector((v), mr_vi2))
MR_INLINE vu max_16(vu a, vu b)
{
    vu more = (vu)((vs)a > (vs)b);
    return (a & more) | (b & ~more);
}
#define MAX_16(a, b) max_16(a, b)
#endif

MR_INLINE mr_vf2 load_f(const float *p)
{
    mr_vf2 v;
    memcpy(&v, p, sizeof v);
    return v;
}

MR_INLINE vu load_u(const float *p)
{
    vu v;
    memcpy(&v, p, sizeof v);
    return v;
}

MR_INLINE vu splat(uint32_t x)
{
    return (vu){0} + x;
}

struct mr_mma_shape MR_ISA_NAME(mr_mma_shape)(void)
{
    return (struct mr_mma_shape){WIDTH, ROWS};
}

bool MR_ISA_NAME(mr_mma_read)(struct mr_mma_reading how, const uint32_t *codes, size_t n,
                              float *value, uint32_t *code)
{
    const struct mr_mma_type_info *t = &mr_mma_types[how.type];
    bool wide = how.type == MR_MMA_BF16 || how.type == MR_MMA_TF32;
    int left = how.type == MR_MMA_BF16 ? 16 : 0;
    uint32_t sign = t->sign, fraction = (uint32_t)t->fraction, least = (uint32_t)(how.emin + 127);
    uint32_t hidden = 1u << fraction;
    /* Magnitudes from here on are Inf or NaN. */
    uint32_t special = wide ? 0x7f800000 : t->has_inf ? (uint32_t)t->top << fraction : t->nan;
    if (special == 0) special = sign;
    uint32_t found = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t word, magnitude;
        if (wide) { /* binary32 itself, cut */
            word = (codes[i] << left) & 0xffffe000;
            magnitude = word & 0x7fffffff;
            found |= mask32(magnitude >= special);
        } else { /* significand * 2^(exponent - fraction), both small */
            magnitude = codes[i] & (sign - 1);
            found |= mask32(magnitude >= special);
            uint32_t field = magnitude >> fraction, normal = mask32(field != 0);
            uint32_t significand = (magnitude & (hidden - 1)) | (hidden & normal);
            uint32_t exponent = (uint32_t)t->emin + ((field - 1) & normal) + 127 - fraction;
            word = f32_bits((float)(int32_t)significand * f32_from(exponent << 23));
            word |= (codes[i] & sign) ? 0x80000000 : 0;
        }
        value[i] = f32_from(word);
        uint32_t e = (word & 0x7fffffff) >> 23;
        e = e < least ? least : e;
        e = (e + (MMA_CODE_BIAS - 127)) & mask32((word & 0x7fffffff) != 0);
        code[i] = e | e << 16;
    }
    return found != 0;
}

/* One group of rows in the middle of its chains. */
struct state {
    mr_vf2 c[ROWS][2];
    vu bad[ROWS][2]; /* sign bits */
    vu bad16[ROWS];  /* sign bits of 16-bit lanes */
};

/* The integer sums of one step in units of 2^(e - F); e are exponent codes. */
struct aligned {
    vu sum[ROWS][2], e[ROWS][2];
};

struct limits {
    vs tiny, span, most;
    vu floor, least_c;
    uint32_t up; /* (up - e) << 23 is 2^(F - E) */
};

MR_INLINE struct limits limits_of(const struct mr_mma *mma)
{
    enum { BIAS = 2 * MMA_CODE_BIAS };
    int least = mma->e_zero > MMA_LEAST ? mma->e_zero : MMA_LEAST;
    /* Exponent sums of products that are not zero begin here; those of zeros end far below. A sum
     * below e_zero is no harm: E is e_zero then. */
    int nonzero = BIAS - 252;
    int span = mma->e_zero > MMA_LEAST ? 0 : BIAS + MMA_LEAST - nonzero;
    int emin = mr_mma_types[mma->accumulator].emin;
    return (struct limits){
        (vs){0} + (int16_t)nonzero,           (vs){0} + (int16_t)span,
        (vs){0} + (int16_t)(BIAS + MMA_MOST), splat((uint32_t)(BIAS + least) * 0x10001u),
        splat((uint32_t)(emin + 127)),        (uint32_t)(127 + mma->fraction + BIAS)};
}

/* The code of c: 0 for a zero, else exponent + 2 * MMA_CODE_BIAS. */
MR_INLINE vu code_of(mr_vf2 c, const struct limits *l)
{
    vu magnitude = (vu)c & 0x7fffffff;
    vu field = magnitude >> 23;
    vu low = (vu)(field < l->least_c);
    field = (field & ~low) | (l->least_c & low);
    return (field + (2 * MMA_CODE_BIAS - 127)) & (vu)(magnitude != 0);
}

/* Adds the terms of positions at[0 .. n) to sum. */
MR_INLINE void add_block(const struct mr_mma_rows *in, size_t at, size_t n, const uint8_t *index,
                         mr_vf2 scale[ROWS][2], vu sum[ROWS][2])
{
    for (size_t i = 0; i < n; i++) {
        size_t k = at + (index ? index[i] : i);
        const float *b = in->tile + k * (WIDTH + LANES);
        mr_vf2 b0 = load_f(b), b1 = load_f(b + LANES);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            mr_vf2 a = (mr_vf2)splat(f32_bits(in->value[(size_t)r * in->stride + k]));
            sum[r][0] += TRUNCATE(a * b0 * scale[r][0]);
            sum[r][1] += TRUNCATE(a * b1 * scale[r][1]);
        }
    }
}

/* Positions at + index[0 .. n), index NULL: at .. at + n. */
MR_INLINE void align_and_add(const struct mr_mma_rows *in, const struct limits *l, size_t at,
                             size_t n, const uint8_t *index, struct state *st, struct aligned *out)
{
    vu e[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) e[r] = code_of(st->c[r][0], l) | code_of(st->c[r][1], l) << 16;
    for (size_t i = 0; i < n; i++) {
        size_t k = at + (index ? index[i] : i);
        vu b = load_u(in->tile + k * (WIDTH + LANES) + WIDTH);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++)
            e[r] = MAX_16(e[r], b + splat(in->code[(size_t)r * in->stride + k]));
    }
    mr_vf2 scale[ROWS][2];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) {
        vs x = (vs)e[r] - l->tiny;
        st->bad16[r] |= (vu)((~x & (x - l->span)) | (l->most - (vs)e[r]));
        e[r] = MAX_16(e[r], l->floor);
        out->e[r][0] = e[r] & 0xffff;
        out->e[r][1] = e[r] >> 16;
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            scale[r][h] = (mr_vf2)((l->up - out->e[r][h]) << 23);
            out->sum[r][h] = TRUNCATE(st->c[r][h] * scale[r][h]);
        }
    }
    for (size_t done = 0; done < n; done += BLOCK) {
        vu sum[ROWS][2];
        memset(sum, 0, sizeof sum);
        add_block(in, index ? at : at + done, n - done < BLOCK ? n - done : BLOCK,
                  index ? index + done : NULL, scale, sum);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                vu total = out->sum[r][h] + sum[r][h];
                st->bad[r][h] |= (total ^ out->sum[r][h]) & (total ^ sum[r][h]);
                out->sum[r][h] = total;
            }
        }
    }
}

/* 2^(E - F) for codes e. */
MR_INLINE mr_vf2 unit(vu e, const struct limits *l)
{
    return (mr_vf2)((e - (l->up - 254)) << 23);
}

MR_INLINE void finish(const struct state *st, float *d, uint32_t *bad)
{
    for (int r = 0; r < ROWS; r++) {
        for (int h = 0; h < 2; h++) {
            vu tests = st->bad[r][h] | (h ? st->bad16[r] : st->bad16[r] << 16);
            tests = tests >> 31;
            memcpy(d + r * WIDTH + h * LANES, &st->c[r][h], sizeof tests);
            memcpy(bad + r * WIDTH + h * LANES, &tests, sizeof tests);
        }
    }
}

MR_INLINE void start(struct state *st, const float *c)
{
    memset(st->bad, 0, sizeof st->bad);
    memset(st->bad16, 0, sizeof st->bad16);
    for (int r = 0; r < ROWS; r++) {
        for (int h = 0; h < 2; h++) {
            st->c[r][h] = load_f(c + r * WIDTH + h * LANES);
        }
    }
}

/* fp32 accumulators: the conversion to binary32 rounds toward zero, as the thread's mode is. */
MR_INLINE void run_plain(const struct mr_mma_rows *in, float *d, uint32_t *bad)
{
    struct limits l = limits_of(in->mma);
    struct state st;
    start(&st, d);
    vu keep = splat(in->mma->rounding == MR_MMA_RZ_E8M13 ? 0xfffffc00u : 0xffffffffu);
    size_t step = (size_t)in->mma->terms;
    for (size_t k = 0; k < in->n; k += step) {
        struct aligned sums;
        align_and_add(in, &l, k, in->n - k < step ? in->n - k : step, NULL, &st, &sums);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                mr_vf2 f = __builtin_convertvector((mr_vi2)sums.sum[r][h], mr_vf2);
                st.c[r][h] = (mr_vf2)((vu)f & keep) * unit(sums.e[r][h], &l);
            }
        }
    }
    finish(&st, d, bad);
}

/* magnitude * 2^q rounded to nearest even to an fp16 number, q >= -47, magnitude below 2^31. Sign
 * bits of *bad: where that is beyond 65504, or zero without magnitude being zero. */
MR_INLINE mr_vf2 nearest_fp16(vu magnitude, mr_vi2 q, vu *bad)
{
    /* Position of the leading bit, from a conversion that rounding cannot carry over it. */
    mr_vf2 lead = __builtin_convertvector((mr_vi2)(magnitude & ~(magnitude >> 1)), mr_vf2);
    mr_vi2 drop = MR_MAX_I2((mr_vi2)((vu)lead >> 23) - (127 + 10), -24 - q);
    drop = MR_MAX_I2(drop, (mr_vi2){0});
    vu half = (splat(1) << (vu)drop) >> 1;
    vu odd = (magnitude >> (vu)drop) & 1;
    vu n = (magnitude + ((half - 1 + odd) & (vu)(half != 0))) >> (vu)drop;
    mr_vf2 unit = (mr_vf2)(((vu)(drop + q) + 127) << 23);
    mr_vf2 f = __builtin_convertvector((mr_vi2)n, mr_vf2) * unit;
    *bad |= (vu)((vu)f >= 0x47800000) | ((vu)(n == 0) & (vu)(magnitude != 0));
    return f;
}

MR_INLINE void round_to_fp16(const struct aligned *sums, const struct limits *l, struct state *st)
{
    for (int r = 0; r < ROWS; r++) {
        for (int h = 0; h < 2; h++) {
            vu sum = sums->sum[r][h], negative = (vu)((mr_vi2)sum >> 31);
            mr_vi2 q = (mr_vi2)(sums->e[r][h] - (l->up - 127)); /* E - F */
            mr_vf2 f = nearest_fp16((sum ^ negative) - negative, q, &st->bad[r][h]);
            st->c[r][h] = (mr_vf2)((vu)f | (sum & 0x80000000));
        }
    }
}

/* x + y of fp16 numbers, to nearest, as the thread rounds: first to 24 bits, then to 11, which is
 * the same as once (S. A. Figueroa, "When is double rounding innocuous?", 1995: 24 >= 2 * 11 + 2;
 * subnormal sums are exact). Inf and NaN are as numbers above 65504 to nearest_fp16. */
MR_INLINE mr_vf2 add_fp16(mr_vf2 x, mr_vf2 y, vu *bad)
{
    vu sum = (vu)(x + y), field = (sum >> 23) & 255;
    vu significand = ((sum & 0x7fffff) | 0x800000) & (vu)(field != 0);
    mr_vi2 q = MR_MAX_I2((mr_vi2)field - (127 + 23), (mr_vi2){0} - 47);
    mr_vf2 f = nearest_fp16(significand, q, bad);
    return (mr_vf2)((vu)f | (sum & 0x80000000));
}

static void run_fp16(const struct mr_mma_rows *in, float *d, uint32_t *bad)
{
    struct limits l = limits_of(in->mma);
    struct state st;
    start(&st, d);
    size_t step = (size_t)in->mma->terms;
    for (size_t k = 0; k < in->n; k += step) {
        struct aligned sums;
        align_and_add(in, &l, k, in->n - k < step ? in->n - k : step, NULL, &st, &sums);
        round_to_fp16(&sums, &l, &st);
    }
    finish(&st, d, bad);
}

/* An integer to binary32, toward zero, while the thread rounds to nearest: what was rounded up is
 * the next number above. (The conversion back of 2^31 is the least integer, and the difference is
 * negative all the same.) */
MR_INLINE mr_vf2 toward_zero(vu sum)
{
    vu sign = sum & 0x80000000;
    vu negative = (vu)((mr_vi2)sum >> 31);
    vu magnitude = (sum ^ negative) - negative;
    mr_vf2 f = __builtin_convertvector((mr_vi2)magnitude, mr_vf2);
    vu up = (magnitude - TRUNCATE(f)) >> 31;
    return (mr_vf2)(((vu)f - up) | sign);
}

/* Two fp16 steps from zero, then the accumulator, by an addition of its type. */
static void run_by_fp16(const struct mr_mma_rows *in, float *d, uint32_t *bad)
{
    uint8_t pair[2][16]; /* columns 0, 1, 4, 5 ... 29; 2, 3, 6, 7 ... 31 */
    for (int i = 0; i < 32; i++)
        pair[i / 16][i % 16] = (uint8_t)(i % 16 / 2 * 4 + i % 2 + i / 16 * 2);
    bool half = in->mma->accumulator == MR_MMA_FP16;
    struct limits l = limits_of(in->mma);
    struct state st;
    mr_vf2 c[ROWS][2];
    start(&st, d);
    memcpy(c, st.c, sizeof c);
    for (size_t k = 0; k < in->n; k += 32) {
        memset(st.c, 0, sizeof st.c);
        for (int p = 0; p < 2; p++) {
            size_t n = 0;
            while (n < 16 && k + pair[p][n] < in->n) n++;
            struct aligned sums;
            align_and_add(in, &l, k, n, pair[p], &st, &sums);
            if (half) {
                round_to_fp16(&sums, &l, &st);
                continue;
            }
            for (int r = 0; r < ROWS; r++)
                for (int h = 0; h < 2; h++)
                    st.c[r][h] = toward_zero(sums.sum[r][h]) * unit(sums.e[r][h], &l);
        }
        for (int r = 0; r < ROWS; r++) {
            for (int h = 0; h < 2; h++) {
                if (half) {
                    c[r][h] = add_fp16(st.c[r][h], c[r][h], &st.bad[r][h]);
                    continue;
                }
                mr_vf2 sum = st.c[r][h] + c[r][h];
                st.bad[r][h] |= (vu)(((vu)sum & 0x7fffffff) >= 0x7f800000);
                c[r][h] = sum;
            }
        }
    }
    memcpy(st.c, c, sizeof c);
    finish(&st, d, bad);
}

void MR_ISA_NAME(mr_mma_run)(const struct mr_mma_rows *in, float *d, uint32_t *bad)
{
    if (in->mma->form == MR_MMA_BY_FP16)
        run_by_fp16(in, d, bad);
    else if (in->mma->accumulator == MR_MMA_FP16)
        run_fp16(in, d, bad);
    else
        run_plain(in, d, bad);
}
