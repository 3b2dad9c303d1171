/* Arrays of stored elements to values, at every instruction set that this processor has. */
#include <check.h>
#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "../ref/isa.h"
#include "../ref/num/widen.h"
#include "support/num_oracle.h"

typedef void (*to_f32)(const void *restrict, size_t, float *restrict);
typedef void (*to_f64)(const void *restrict, size_t, double *restrict);

#if MR_ISA_LEVELS == 3
#define LEVELS(fn) {fn##_base, fn##_v3, fn##_v4}
#else
#define LEVELS(fn) {fn##_base}
#endif

static const struct {
    enum mr_dtype dtype;
    size_t size;
    const struct num_format *format; /* NULL: binary64 */
    to_f32 f32[MR_ISA_LEVELS];
    to_f64 f64[MR_ISA_LEVELS];
} types[] = {
    {MR_BF16, 2, &num_bf16, LEVELS(mr_widen_bf16_f32), LEVELS(mr_widen_bf16_f64)},
    {MR_F16, 2, &num_fp16, LEVELS(mr_widen_f16_f32), LEVELS(mr_widen_f16_f64)},
    {MR_F32, 4, &num_fp32, LEVELS(mr_widen_f32_f32), LEVELS(mr_widen_f32_f64)},
    {MR_F64, 8, NULL, {0}, LEVELS(mr_widen_f64_f64)},
};
enum { TYPES = sizeof types / sizeof *types, CODES = 65536, MARGIN = 4 };

/* All codes of 16 bits; of 32 and 64 bits all leading halves, with tails that make signalling NaNs
 * with a low payload, subnormals and odd numbers. */
static void fill(int t, unsigned char *at)
{
    static const uint64_t tails[] = {0, 1, 0xffffffffffff, 0x800000008000};
    for (uint64_t code = 0; code < CODES; code++) {
        uint64_t word = code << (8 * types[t].size - 16);
        if (types[t].size > 2)
            word |= tails[(code ^ code >> 7) % 4] & ((1ull << (8 * types[t].size - 16)) - 1);
        memcpy(at + code * types[t].size, &word, types[t].size);
    }
}

static uint64_t element(int t, const unsigned char *at, size_t i)
{
    uint64_t word = 0;
    memcpy(&word, at + i * types[t].size, types[t].size);
    return word;
}

/* The binary64 word expected; for a NaN of any payload, the quiet one of its sign. */
static uint64_t wanted(int t, uint64_t word)
{
    const struct num_format *f = types[t].format;
    double v = f ? num_decode(f, (uint32_t)word) : num_double(word);
    if (!isnan(v)) return num_word64(v);
    return 0x7ff8000000000000 | (word >> (8 * types[t].size - 1)) << 63;
}

/* The binary64 word found; a NaN loses its payload, a signalling one comes back as 1. */
static uint64_t found32(float v)
{
    uint32_t word;
    memcpy(&word, &v, sizeof word);
    if ((word & 0x7fffffff) <= 0x7f800000) return num_word64((double)v);
    return word & 0x00400000 ? (uint64_t)(word >> 31) << 63 | 0x7ff8000000000000 : 1;
}

static uint64_t found64(double v)
{
    uint64_t word = num_word64(v);
    if ((word & 0x7fffffffffffffff) <= 0x7ff0000000000000) return word;
    return word & 0x0008000000000000 ? word & 0xfff8000000000000 : 1;
}

static void check_f32(int t, const unsigned char *at, const float *got, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t want = wanted(t, element(t, at, i)), g = found32(got[i]);
        if (g != want)
            ck_abort_msg("%s 0x%llx to f32: found 0x%llx, expected 0x%llx", types[t].format->name,
                         (unsigned long long)element(t, at, i), (unsigned long long)g,
                         (unsigned long long)want);
    }
}

static void check_f64(int t, const unsigned char *at, const double *got, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t want = wanted(t, element(t, at, i)), g = found64(got[i]);
        if (g != want)
            ck_abort_msg("type %d 0x%llx to f64: found 0x%llx, expected 0x%llx", t,
                         (unsigned long long)element(t, at, i), (unsigned long long)g,
                         (unsigned long long)want);
    }
}

START_TEST(corroborate_widen_every_level)
{
    if (_i > (int)mr_isa_best()) return;
    for (int t = 0; t < TYPES; t++) {
        size_t bytes = CODES * types[t].size;
        unsigned char *src = malloc(bytes + 8);
        float *f32 = malloc(CODES * sizeof *f32);
        double *f64 = malloc(CODES * sizeof *f64);
        ck_assert(src && f32 && f64);
        for (size_t offset = 0; offset < 8; offset++) {
            fill(t, src + offset);
            if (types[t].f32[_i]) {
                types[t].f32[_i](src + offset, CODES, f32);
                check_f32(t, src + offset, f32, CODES);
            }
            types[t].f64[_i](src + offset, CODES, f64);
            check_f64(t, src + offset, f64, CODES);
        }
        free(src);
        free(f32);
        free(f64);
    }
}
END_TEST

/* Short arrays end where they say: a block of exactly the size (for AddressSanitizer) to read, a
 * margin after it to find unwritten. */
START_TEST(verify_widen_short_arrays)
{
    if (_i > (int)mr_isa_best()) return;
    unsigned char *codes = malloc(CODES * 8);
    ck_assert(codes);
    for (int t = 0; t < TYPES; t++) {
        fill(t, codes);
        for (size_t n = 0; n <= 70; n++)
            for (size_t offset = 0; offset < 8; offset++) {
                size_t bytes = n * types[t].size;
                unsigned char *src = malloc(offset + bytes + 1);
                float f32[70 + MARGIN];
                double f64[70 + MARGIN];
                ck_assert(src);
                unsigned char *at = src + 1 + offset;
                memcpy(at, codes + (n * 911 + offset * 97) * types[t].size, bytes);
                for (size_t i = 0; i < 70 + MARGIN; i++) f32[i] = -7, f64[i] = -7;
                if (types[t].f32[_i]) {
                    types[t].f32[_i](at, n, f32);
                    check_f32(t, at, f32, n);
                }
                types[t].f64[_i](at, n, f64);
                check_f64(t, at, f64, n);
                for (size_t i = n; i < n + MARGIN; i++) ck_assert(f32[i] == -7 && f64[i] == -7);
                free(src);
            }
    }
    free(codes);
}
END_TEST

/* The public functions, under each rounding mode and, where there is one, with FTZ and DAZ set;
 * what they find there they leave there. */
START_TEST(verify_widen_in_any_environment)
{
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    unsigned char *src = malloc(CODES * 8);
    float *f32 = malloc(CODES * sizeof *f32);
    double *f64 = malloc(CODES * sizeof *f64);
    ck_assert(src && f32 && f64);
    for (int t = 0; t < TYPES; t++) {
        fill(t, src);
        for (int mode = 0; mode < 8; mode++) {
            fenv_t env;
            fegetenv(&env);
            fesetround(modes[mode % 4]);
#ifdef __SSE2__
            unsigned set = _mm_getcsr() | (mode < 4 ? 0 : 0x8040);
            _mm_setcsr(set);
#endif
            if (t < 3) mr_widen_f32(src, types[t].dtype, CODES, f32);
            mr_widen_f64(src, types[t].dtype, CODES, f64);
            int after = fegetround();
#ifdef __SSE2__
            ck_assert_uint_eq(_mm_getcsr() & ~0x3fu, set & ~0x3fu); /* but for the flags */
#endif
            fesetenv(&env);
            ck_assert_int_eq(after, modes[mode % 4]);
            if (t < 3) check_f32(t, src, f32, CODES);
            check_f64(t, src, f64, CODES);
        }
    }
    free(src);
    free(f32);
    free(f64);
}
END_TEST

START_TEST(reject_widen_other_dtypes)
{
    static const unsigned char src[8 * 5];
    for (int dtype = 0; dtype < MR_DTYPE_COUNT; dtype++) {
        float f32[5] = {0};
        double f64[5] = {0};
        bool narrow = dtype == MR_BF16 || dtype == MR_F16 || dtype == MR_F32;
        mr_widen_f32(src, (enum mr_dtype)dtype, 4, f32);
        mr_widen_f64(src, (enum mr_dtype)dtype, 4, f64);
        for (int i = 0; i < 4; i++) {
            ck_assert_int_eq(!isnan(f32[i]), narrow);
            ck_assert_int_eq(!isnan(f64[i]), narrow || dtype == MR_F64);
        }
        ck_assert(f32[4] == 0 && f64[4] == 0);
    }
}
END_TEST

/* Needs a process in which nobody has asked before: Check forks one for each test. */
START_TEST(verify_isa_is_lowered_only)
{
    static const char *const wish[] = {"base", "v3", "v4", "v9", ""};
    if (getenv("CK_FORK") && strcmp(getenv("CK_FORK"), "no") == 0) return;
    ck_assert_int_eq(setenv("MOEREF_ISA", wish[_i], 1), 0);
    enum mr_isa isa = mr_isa_best();
    if (_i < 3) ck_assert_int_le(isa, _i);
    ck_assert_int_lt(isa, MR_ISA_LEVELS);
#if MR_ISA_LEVELS == 3
    if (_i > 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        ck_assert_int_ge(isa, MR_ISA_V3);
    if (!__builtin_cpu_supports("avx2")) ck_assert_int_eq(isa, MR_ISA_BASE);
    if (!__builtin_cpu_supports("avx512f")) ck_assert_int_le(isa, MR_ISA_V3);
#endif
    ck_assert_int_eq(setenv("MOEREF_ISA", "base", 1), 0);
    ck_assert_int_eq(mr_isa_best(), isa); /* read once */
    ck_assert_str_eq(mr_isa_name(isa), isa == 2 ? "v4" : isa == 1 ? "v3" : "base");
}
END_TEST

Suite *suite_num_widen(void);
Suite *suite_num_widen(void)
{
    Suite *suite = suite_create("num_widen");
    TCase *widen = tcase_create("widen");
    tcase_set_timeout(widen, 120);
    tcase_add_loop_test(widen, corroborate_widen_every_level, 0, MR_ISA_LEVELS);
    tcase_add_loop_test(widen, verify_widen_short_arrays, 0, MR_ISA_LEVELS);
    tcase_add_test(widen, verify_widen_in_any_environment);
    tcase_add_test(widen, reject_widen_other_dtypes);
    tcase_add_loop_test(widen, verify_isa_is_lowered_only, 0, 5);
    suite_add_tcase(suite, widen);
    return suite;
}
