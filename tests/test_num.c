/* Small formats: scalar decode and encode, and the single rounding of a sum. */
#include <check.h>
#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "support/num_oracle.h"

/* The functions under test, one type for all. */
static float bf16_value(uint32_t w) { return mr_bf16_decode((uint16_t)w); }
static float fp16_value(uint32_t w) { return mr_fp16_decode((uint16_t)w); }
static float tf32_value(uint32_t w) { return mr_tf32_decode(w); }
static float e4m3_value(uint32_t w) { return mr_e4m3_decode((uint8_t)w); }
static float e5m2_value(uint32_t w) { return mr_e5m2_decode((uint8_t)w); }

#define WORD(f) \
    static uint32_t f##_word(double v, enum mr_rounding r, enum mr_overflow o) \
    { \
        return mr_##f##_encode(v, r, o); \
    }
WORD(bf16) WORD(fp16) WORD(tf32) WORD(e4m3) WORD(e5m2)

static const struct {
    const struct num_format *format;
    float (*value)(uint32_t word);
    uint32_t (*word)(double value, enum mr_rounding r, enum mr_overflow o);
} formats[] = {
    {&num_bf16, bf16_value, bf16_word}, {&num_fp16, fp16_value, fp16_word},
    {&num_tf32, tf32_value, tf32_word}, {&num_e4m3, e4m3_value, e4m3_word},
    {&num_e5m2, e5m2_value, e5m2_word},
};
enum { FORMATS = sizeof formats / sizeof *formats };

static long times(void)
{
    return getenv("MOEREF_LONG") ? 20 : 1;
}

static uint32_t word32(float value)
{
    union { float value; uint32_t word; } u = {value};
    return u.word;
}

/* One comparison for all decodings: bits, and for a NaN its sign and that it is quiet. */
static void same_value(const char *name, uint32_t code, float got, double want, bool negative)
{
    uint32_t g = word32(got);
    bool right = isnan(want) ? (g & 0x7fc00000) == 0x7fc00000 : g == word32((float)want);
    if (!right || g >> 31 != negative)
        ck_abort_msg("%s 0x%x: %a (0x%08x), expected %a", name, code, (double)got, g, want);
}

static void same_word(const struct num_format *f, double v, enum mr_rounding r, enum mr_overflow o,
                      uint32_t got, uint32_t want)
{
    if (got != want)
        ck_abort_msg("%s of %a, rounding %d, overflow %d: 0x%x, expected 0x%x", f->name, v, r, o,
                     got, want);
}

/* Under both roundings and both overflow policies, both signs (which mirror each other). */
static void check_encode(int i, double v)
{
    const struct num_format *f = formats[i].format;
    for (int c = 0; c < 4; c++) {
        enum mr_rounding r = c & 1 ? MR_RZ : MR_RNE;
        enum mr_overflow o = c & 2 ? MR_OVERFLOW_SATURATE : MR_OVERFLOW_IEEE;
        uint32_t want = num_encode(f, v, r, o);
        same_word(f, v, r, o, formats[i].word(v, r, o), want);
        if (want != f->nan) want |= num_sign(f);
        same_word(f, -v, r, o, formats[i].word(-v, r, o), want);
    }
}

START_TEST(validate_published_values)
{
    /* OCP OFP8 1.0, table 2. */
    ck_assert(mr_e4m3_decode(0x7e) == 448 && mr_e4m3_decode(0xfe) == -448);
    ck_assert(mr_e4m3_decode(0x08) == 0x1p-6f && mr_e4m3_decode(0x07) == 0.875f * 0x1p-6f);
    ck_assert(mr_e4m3_decode(0x01) == 0x1p-9f && isnan(mr_e4m3_decode(0x7f)));
    ck_assert(mr_e5m2_decode(0x7b) == 57344 && mr_e5m2_decode(0xfb) == -57344);
    ck_assert(mr_e5m2_decode(0x04) == 0x1p-14f && mr_e5m2_decode(0x03) == 0.75f * 0x1p-14f);
    ck_assert(mr_e5m2_decode(0x01) == 0x1p-16f && mr_e5m2_decode(0x7c) == INFINITY);
    for (int code = 0x7d; code < 0x80; code++) ck_assert(isnan(mr_e5m2_decode((uint8_t)code)));
    /* OCP MX 1.0, sections 5.3.3 and 5.4.1. */
    static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (uint8_t code = 0; code < 8; code++) {
        ck_assert_uint_eq(word32(mr_e2m1_decode(code)), word32(e2m1[code]));
        ck_assert_uint_eq(word32(mr_e2m1_decode(code | 8)), word32(-e2m1[code]));
        ck_assert_uint_eq(word32(mr_e2m1_decode(code | 0xf0)), word32(e2m1[code]));
    }
    ck_assert(mr_e8m0_decode(0x7f) == 1 && mr_e8m0_decode(0) == 0x1p-127f);
    ck_assert(mr_e8m0_decode(0xfe) == 0x1p127f && isnan(mr_e8m0_decode(0xff)));
    /* IEEE 754 binary16; bf16 and tf32 of pi. */
    ck_assert(mr_fp16_decode(0x7bff) == 65504 && mr_fp16_decode(0x0001) == 0x1p-24f);
    ck_assert(mr_fp16_decode(0x3555) == 0.333251953125f);
    ck_assert(mr_bf16_decode(0x4049) == 3.140625f && mr_tf32_decode(0x40490fdb) == 3.140625f);
    ck_assert_uint_eq(mr_bf16_encode(3.14159265358979, MR_RNE, MR_OVERFLOW_IEEE), 0x4049);
    ck_assert_uint_eq(mr_fp16_encode(1.0 / 3, MR_RNE, MR_OVERFLOW_IEEE), 0x3555);
}
END_TEST

START_TEST(corroborate_decode)
{
    const struct num_format *f = formats[_i].format;
    int bits = 1 + f->exponent_bits + f->fraction_bits;
    for (uint32_t code = 0; code >> bits == 0; code++)
        for (uint32_t low = 0; low <= (1u << f->low_bits) - 1; low += low + 1) {
            uint32_t word = code << f->low_bits | low;
            same_value(f->name, word, formats[_i].value(word), num_decode(f, word),
                       code >> (bits - 1));
        }
}
END_TEST

START_TEST(corroborate_decode_scale)
{
    for (int code = 0; code < 255; code++)
        same_value("e8m0", (uint32_t)code, mr_e8m0_decode((uint8_t)code), ldexp(1, code - 127), 0);
}
END_TEST

START_TEST(verify_round_trip)
{
    const struct num_format *f = formats[_i].format;
    int bits = 1 + f->exponent_bits + f->fraction_bits;
    for (uint32_t code = 0; code >> bits == 0; code++) {
        uint32_t word = code << f->low_bits;
        double v = formats[_i].value(word);
        for (int c = 0; c < 4; c++) {
            enum mr_rounding r = c & 1 ? MR_RZ : MR_RNE;
            enum mr_overflow o = c & 2 ? MR_OVERFLOW_SATURATE : MR_OVERFLOW_IEEE;
            uint32_t got = formats[_i].word(v, r, o);
            if (isnan(v)) same_word(f, v, r, o, got, f->nan);
            else if (!isinf(v) || o == MR_OVERFLOW_IEEE) same_word(f, v, r, o, got, word);
            else ck_assert(formats[_i].value(got) == copysign(f->parameters->largest, v));
        }
    }
}
END_TEST

START_TEST(verify_nan_encodes_canonical)
{
    static const uint64_t nans[] = {0x7ff8000000000000, 0xfff8000000000000, 0x7ff0000000000001,
                                    0xfff0000000000001, 0x7fffffffffffffff, 0xfff7ffffffffffff};
    for (int i = 0; i < FORMATS; i++)
        for (size_t n = 0; n < sizeof nans / sizeof *nans; n++)
            for (int c = 0; c < 4; c++)
                ck_assert_uint_eq(formats[i].word(num_double(nans[n]), c & 1, c & 2 ? 1 : 0),
                                  formats[i].format->nan);
}
END_TEST

/* Every value, every midpoint of neighbours, and the doubles next to those. */
START_TEST(corroborate_encode_neighbours)
{
    const struct num_format *f = formats[_i].format;
    uint32_t n = num_finite(f), step = f == &num_tf32 && times() == 1 ? 7 : 1;
    for (uint32_t code = 0; code < n; code++) {
        /* tf32 is bf16's range with fp16's precision: the ends of each binade, and a sample. */
        uint32_t place = code & ((1u << f->fraction_bits) - 1);
        if (code % step && place > 1 && place < (1u << f->fraction_bits) - 2) continue;
        double v = num_decode(f, code << f->low_bits);
        double unit = code < 2 ? num_decode(f, 1u << f->low_bits)
                               : v - num_decode(f, (code - 1) << f->low_bits);
        double next = code + 1 < n ? num_decode(f, (code + 1) << f->low_bits) : v + unit;
        double tie = v + (next - v) / 2;
        const double points[] = {v, nextafter(tie, 0), tie, nextafter(tie, INFINITY),
                                 nextafter(next, 0)};
        for (size_t p = 0; p < sizeof points / sizeof *points; p++) check_encode(_i, points[p]);
    }
}
END_TEST

START_TEST(validate_thresholds)
{
    const enum mr_overflow ieee = MR_OVERFLOW_IEEE, sat = MR_OVERFLOW_SATURATE;
    /* Half a unit beyond the largest: a tie, to even. */
    ck_assert_uint_eq(mr_e4m3_encode(464, MR_RNE, ieee), 0x7e);
    ck_assert_uint_eq(mr_e4m3_encode(nextafter(464, 465), MR_RNE, ieee), 0x7f);
    ck_assert_uint_eq(mr_e4m3_encode(-480, MR_RNE, sat), 0xfe);
    ck_assert_uint_eq(mr_e4m3_encode(480, MR_RZ, ieee), 0x7e);
    ck_assert_uint_eq(mr_e4m3_encode(-INFINITY, MR_RZ, ieee), 0x7f);
    ck_assert_uint_eq(mr_e4m3_encode(-INFINITY, MR_RNE, sat), 0xfe);
    ck_assert_uint_eq(mr_e5m2_encode(61440, MR_RNE, ieee), 0x7c);
    ck_assert_uint_eq(mr_e5m2_encode(nextafter(61440, 0), MR_RNE, ieee), 0x7b);
    ck_assert_uint_eq(mr_e5m2_encode(-1e300, MR_RNE, sat), 0xfb);
    ck_assert_uint_eq(mr_fp16_encode(65520, MR_RNE, ieee), 0x7c00);
    ck_assert_uint_eq(mr_fp16_encode(nextafter(65520, 0), MR_RNE, ieee), 0x7bff);
    ck_assert_uint_eq(mr_bf16_encode(0x1.ffp127, MR_RNE, ieee), 0x7f80);
    ck_assert_uint_eq(mr_bf16_encode(-0x1.fefffp127, MR_RNE, ieee), 0xff7f);
    /* Half of the least: a tie, to zero, and the sign stays. */
    ck_assert_uint_eq(mr_bf16_encode(-0x1p-134, MR_RNE, ieee), 0x8000);
    ck_assert_uint_eq(mr_bf16_encode(0x1.0000000000001p-134, MR_RNE, ieee), 0x0001);
    ck_assert_uint_eq(mr_fp16_encode(-0x1p-25, MR_RNE, ieee), 0x8000);
    ck_assert_uint_eq(mr_e4m3_encode(-0x1p-10, MR_RNE, ieee), 0x80);
    ck_assert_uint_eq(mr_e5m2_encode(0x1.8p-16, MR_RNE, ieee), 0x02);
    /* A value that rounds up to the least normal number. */
    ck_assert_uint_eq(mr_fp16_encode(0x1.ffdp-15, MR_RNE, ieee), 0x0400);
    for (int i = 0; i < FORMATS; i++) {
        static const double ends[] = {0, INFINITY, 0x1.fffffffffffffp1023, 0x1p-1022, 0x1p-1074,
                                      0x0.fffffffffffffp-1022};
        for (size_t n = 0; n < sizeof ends / sizeof *ends; n++) check_encode(i, ends[n]);
    }
}
END_TEST

START_TEST(corroborate_encode_random)
{
    const struct num_format *f = formats[_i].format;
    uint64_t state = 1 + (uint64_t)_i;
    int low = f->parameters->emin - f->parameters->precision - 2, range = f->parameters->emax - low;
    for (long n = 0; n < 100000 * times(); n++) {
        uint64_t word = num_random(&state);
        double v = num_double(word);
        if (n & 1) { /* most patterns lie far outside: every other one in the format's range */
            v = ldexp(1 + (double)(word & 0xfffffffffffff) * 0x1p-52,
                      low + (int)(word >> 52) % (range + 3));
        }
        enum mr_rounding r = n & 2 ? MR_RZ : MR_RNE;
        enum mr_overflow o = n & 4 ? MR_OVERFLOW_SATURATE : MR_OVERFLOW_IEEE;
        if (n & 8) v = -v;
        same_word(f, v, r, o, formats[_i].word(v, r, o), num_encode(f, v, r, o));
    }
}
END_TEST

START_TEST(corroborate_encode_products)
{
    for (uint32_t a = 0; a < 0x7f; a++)
        for (uint32_t b = a; b < 0x7f; b++)
            check_encode(3, num_decode(&num_e4m3, a) * num_decode(&num_e4m3, b));
}
END_TEST

/* --- mr_round_sum --- */

static const struct num_format *const sums[] = {&num_bf16, &num_fp16, &num_tf32,
                                                &num_fp32, &num_e4m3, &num_e5m2};
enum { SUMS = sizeof sums / sizeof *sums };

static void check_sum(const struct num_format *f, double hi, double lo)
{
    double got = mr_round_sum(hi, lo, f->parameters), want = num_round(f, hi, lo, MR_RNE);
    if (num_word64(got) != num_word64(want))
        ck_abort_msg("%s of %a + %a: %a, expected %a", f->name, hi, lo, got, want);
}

/* hi next to every kind of boundary; lo of every size that a two-sum leaves. */
static void check_boundary(const struct num_format *f, double hi)
{
    double above = nextafter(fabs(hi), INFINITY) - fabs(hi); /* ulp(hi) */
    const double los[] = {0, 0x1p-1074, above * 0x1p-60, above / 4, above / 2};
    for (size_t i = 0; i < sizeof los / sizeof *los; i++) {
        if (los[i] == 0 && hi == 0) continue;
        check_sum(f, hi, los[i]);
        check_sum(f, hi, -los[i]);
    }
}

START_TEST(corroborate_round_sum_boundaries)
{
    const struct num_format *f = sums[_i];
    uint64_t state = 7;
    uint32_t n = num_finite(f);
    bool all = n < 0x8000;
    for (uint32_t k = 0; k < (all ? n : 12000 * (uint32_t)times()); k++) {
        uint32_t code = all ? k : (uint32_t)(num_random(&state) % n);
        if (!all && k % 4 == 0) code &= -1u << f->fraction_bits;             /* powers of two */
        if (!all && k % 4 == 1) code &= (1u << f->fraction_bits) - 1;        /* subnormals */
        if (!all && k < 8) code = n - 1 - k;                                 /* overflow */
        double v = num_decode(f, code << f->low_bits);
        double unit = code ? v - num_decode(f, (code - 1) << f->low_bits)
                           : num_decode(f, 1u << f->low_bits);
        double next = code + 1 < n ? num_decode(f, (code + 1) << f->low_bits) : v + unit;
        double tie = v + (next - v) / 2;
        if (k & 1) v = -v, tie = -tie;
        check_boundary(f, v);
        check_boundary(f, tie);
        check_boundary(f, nextafter(tie, 0));
        check_boundary(f, nextafter(tie, INFINITY));
    }
}
END_TEST

START_TEST(corroborate_round_sum_random)
{
    const struct num_format *f = sums[_i];
    uint64_t state = 11 + (uint64_t)_i;
    for (long n = 0; n < 50000 * times(); n++) {
        uint64_t a = num_random(&state), b = num_random(&state);
        int e = n & 1 ? (int)(a % 2000) - 1000
                      : f->parameters->emin - 30 + (int)(a % (uint64_t)(60 - f->parameters->emin));
        double x = ldexp((double)(int64_t)(a | 1), e - 63);
        if (n & 2) x = (double)(float)x; /* short hi: midpoints and values are then likely */
        double y = ldexp((double)(int64_t)b, e - 63 - 40 - (int)(b % 30));
        double hi = x + y, rest = hi - x, lo = (x - (hi - rest)) + (y - rest); /* Knuth's two-sum */
        if (isfinite(hi) && isfinite(lo)) check_sum(f, hi, lo);
    }
}
END_TEST

START_TEST(verify_round_sum_zero)
{
    for (int i = 0; i < SUMS; i++) {
        const struct mr_format *f = sums[i]->parameters;
        ck_assert(num_word64(mr_round_sum(0.0, 0.0, f)) == 0);
        ck_assert(num_word64(mr_round_sum(0.0, -0.0, f)) == 0);
        ck_assert(num_word64(mr_round_sum(-0.0, 0.0, f)) == 1ull << 63);
        ck_assert(num_word64(mr_round_sum(-0.0, -0.0, f)) == 1ull << 63);
        ck_assert(num_word64(mr_round_sum(-0x1p-1074, 0, f)) == 1ull << 63);
        ck_assert(mr_round_sum(f->largest, 0, f) == f->largest);
        ck_assert(mr_round_sum(0x1.fffffffffffffp1023, 0x1p969, f) == INFINITY);
    }
}
END_TEST

/* A hash of results over the same inputs, in whatever floating-point mode is set. */
static uint64_t hash_all(void)
{
    uint64_t state = 5, hash = 0;
    for (int n = 0; n < 50000; n++) {
        uint64_t word = num_random(&state), low = num_random(&state);
        /* exponents -180 ... 203, and every 16th word as it is */
        if (n % 16) word = (word & 0x800fffffffffffff) | (843 + (word >> 52) % 384) << 52;
        uint64_t tail = low & 0x800fffffffffffff; /* a subnormal lo, which DAZ must not clear */
        for (int i = 0; i < FORMATS; i++) {
            uint64_t got = formats[i].word(num_double(word), n & 1, n & 2 ? 1 : 0);
            hash = (hash ^ got) * 0x9e3779b97f4a7c15;
            hash = (hash ^ word32(formats[i].value((uint32_t)low))) * 0x9e3779b97f4a7c15;
        }
        if ((word >> 52 & 0x7ff) == 0x7ff) continue;
        for (int i = 0; i < SUMS; i++) {
            double sum = mr_round_sum(num_double(word), num_double(tail), sums[i]->parameters);
            hash = (hash ^ num_word64(sum)) * 0x9e3779b97f4a7c15;
        }
    }
    for (int code = 0; code < 256; code++)
        hash = (hash ^ word32(mr_e8m0_decode((uint8_t)code)) ^ word32(mr_e2m1_decode(code & 15))) *
               0x9e3779b97f4a7c15;
    return hash;
}

START_TEST(verify_rounding_mode_is_ignored)
{
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    uint64_t want = hash_all();
    for (int i = 0; i < 3; i++) {
        fesetround(modes[i]);
        uint64_t got = hash_all();
        fesetround(FE_TONEAREST);
        ck_assert_uint_eq(got, want);
    }
}
END_TEST

START_TEST(verify_flush_to_zero_is_ignored)
{
#ifdef __SSE2__
    uint64_t want = hash_all();
    unsigned csr = _mm_getcsr();
    _mm_setcsr(csr | 0x8040); /* FTZ, DAZ */
    uint64_t got = hash_all();
    _mm_setcsr(csr);
    ck_assert_uint_eq(got, want);
#endif
}
END_TEST

Suite *suite_num(void);
Suite *suite_num(void)
{
    Suite *suite = suite_create("num");
    TCase *codes = tcase_create("codes");
    tcase_set_timeout(codes, 600);
    tcase_add_test(codes, validate_published_values);
    tcase_add_loop_test(codes, corroborate_decode, 0, FORMATS);
    tcase_add_test(codes, corroborate_decode_scale);
    tcase_add_loop_test(codes, verify_round_trip, 0, FORMATS);
    tcase_add_test(codes, verify_nan_encodes_canonical);
    tcase_add_test(codes, validate_thresholds);
    tcase_add_loop_test(codes, corroborate_encode_neighbours, 0, FORMATS);
    tcase_add_loop_test(codes, corroborate_encode_random, 0, FORMATS);
    tcase_add_test(codes, corroborate_encode_products);
    tcase_add_test(codes, verify_rounding_mode_is_ignored);
    tcase_add_test(codes, verify_flush_to_zero_is_ignored);
    suite_add_tcase(suite, codes);
    TCase *sum = tcase_create("round_sum");
    tcase_set_timeout(sum, 600);
    tcase_add_loop_test(sum, corroborate_round_sum_boundaries, 0, SUMS);
    tcase_add_loop_test(sum, corroborate_round_sum_random, 0, SUMS);
    tcase_add_test(sum, verify_round_sum_zero);
    suite_add_tcase(suite, sum);
    return suite;
}
