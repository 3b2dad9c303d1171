/* Exact dots: every dtype pair against GMP integers, the conditions of the three ways at their
 * boundaries, every instruction set to the same bits. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/exact/dot_simd.h"
#include "../ref/num/num.h"
#include "support/mpfr_oracle.h"

enum { MOST = 7168 };

static const enum mr_dtype dtypes[3] = {MR_BF16, MR_F16, MR_F32};

static struct {
    unsigned char x[4 * MOST], w[4 * MOST];
    float w32[MOST];
    double x64[MOST], w64[MOST];
    int ways[3];
} at;

static struct mr_row_stats stats_of(const unsigned char *row, enum mr_dtype d, size_t n)
{
    static float wide[MOST];
    struct mr_row_scan scan;
    mr_widen_f32(row, d, n, wide);
    mr_row_scan_begin(&scan);
    mr_row_scan_add(&scan, wide, n);
    return mr_row_scan_end(&scan, d);
}

static void judge(const char *what, const struct oracle_dot *truth, struct mr_exact got, size_t n)
{
    const char *wrong = oracle_judge(truth->sum, got);
    if (wrong) ck_abort_msg("%s, n = %zu: %s (%a + %a)", what, n, wrong, got.hi, got.lo);
}

/* What exact.h demands of a plan, on exact sums: truth in units of 2^-298. */
static void plan_is_proven(const struct oracle_dot *truth, struct mr_dot_plan plan, size_t n)
{
    mpz_t left, right;
    mpz_inits(left, right, NULL);
    if (plan.way == MR_DOT_PLAIN) {
        mpz_set_ui(right, 1);
        mpz_mul_2exp(right, right, truth->least + 53);
        ck_assert_msg(mpz_cmp(truth->size, right) <= 0, "plain: sum|p| > 2^53 L at n = %zu", n);
    } else if (plan.way == MR_DOT_SPLIT) {
        int g = ilogb(plan.magic) - 52 + 298;
        ck_assert_msg(plan.magic == ldexp(1.5, ilogb(plan.magic)) && g >= 0, "magic %a",
                      plan.magic);
        mpz_set_ui(right, 1);
        mpz_mul_2exp(right, right, (unsigned long)g + 50);
        ck_assert_msg(mpz_cmp(truth->size, right) <= 0, "split: sum|p| > 2^50 G at n = %zu", n);
        mpz_set_ui(left, n);
        mpz_mul_2exp(left, left, (unsigned long)g);
        mpz_set_ui(right, 1);
        mpz_mul_2exp(right, right, truth->least + 54);
        ck_assert_msg(mpz_cmp(left, right) <= 0, "split: n G/2 > 2^53 L at n = %zu", n);
    }
    mpz_clears(left, right, NULL);
}

typedef struct mr_exact split32(const double *, const float *, size_t, double);
typedef struct mr_exact split64(const double *, const double *, size_t, double);
typedef double plain32(const double *, const float *, size_t);
typedef double plain64(const double *, const double *, size_t);
typedef void plains32(const double *, const float *const *, size_t, double *);
typedef void plains64(const double *, const double *const *, size_t, double *);
static const struct {
    split32 *s32;
    split64 *s64;
    plain32 *p32;
    plain64 *p64;
    plains32 *ps32;
    plains64 *ps64;
} levels[] = {
    {mr_split_dot_f32_base, mr_split_dot_f64_base, mr_plain_dot_f32_base, mr_plain_dot_f64_base,
     mr_plain_dots_f32_base, mr_plain_dots_f64_base},
#if MR_ISA_LEVELS == 3
    {mr_split_dot_f32_v3, mr_split_dot_f64_v3, mr_plain_dot_f32_v3, mr_plain_dot_f64_v3,
     mr_plain_dots_f32_v3, mr_plain_dots_f64_v3},
    {mr_split_dot_f32_v4, mr_split_dot_f64_v4, mr_plain_dot_f32_v4, mr_plain_dot_f64_v4,
     mr_plain_dots_f32_v4, mr_plain_dots_f64_v4},
#endif
};

/* Four rows at once: w, -w, zeros and w again give the dot, its negative, +0 and the dot. */
static void judge_four(const struct oracle_dot *truth, int isa, size_t n)
{
    static float minus32[MOST], zero32[MOST];
    static double minus64[MOST], zero64[MOST];
    double out[2][4];
    for (size_t i = 0; i < n; i++) minus64[i] = minus32[i] = -at.w32[i];
    levels[isa].ps32(at.x64, (const float *const[]){at.w32, minus32, zero32, at.w32}, n, out[0]);
    levels[isa].ps64(at.x64, (const double *const[]){at.w64, minus64, zero64, at.w64}, n, out[1]);
    for (int k = 0; k < 2; k++) {
        judge("four", truth, (struct mr_exact){out[k][0], 0, true}, n);
        ck_assert(out[k][1] == -out[k][0] && out[k][2] == 0 && out[k][3] == out[k][0]);
    }
}

/* Every level, against the truth: then all levels give the same bits. */
static void judge_levels(const struct oracle_dot *truth, struct mr_dot_plan plan, size_t n)
{
    for (int isa = 0; isa <= (int)mr_isa_best(); isa++) {
        const char *name = mr_isa_name((enum mr_isa)isa);
        if (plan.way == MR_DOT_PLAIN) {
            judge(name, truth, (struct mr_exact){levels[isa].p32(at.x64, at.w32, n), 0, true}, n);
            judge(name, truth, (struct mr_exact){levels[isa].p64(at.x64, at.w64, n), 0, true}, n);
            judge_four(truth, isa, n);
        } else {
            judge(name, truth, levels[isa].s32(at.x64, at.w32, n, plan.magic), n);
            judge(name, truth, levels[isa].s64(at.x64, at.w64, n, plan.magic), n);
        }
    }
}

/* at.x and at.w by every way that applies, against GMP. */
static enum mr_dot_way check(enum mr_dtype dx, enum mr_dtype dw, size_t n)
{
    struct oracle_dot truth;
    oracle_dot_init(&truth);
    oracle_dot(&truth, at.x, dx, at.w, dw, n);
    struct mr_row_stats sx = stats_of(at.x, dx, n), sw = stats_of(at.w, dw, n);
    struct mr_dot_plan plan = mr_dot_choose(&sx, &sw, n);
    plan_is_proven(&truth, plan, n);
    if (plan.way != MR_DOT_BINS) {
        mr_widen_f64(at.x, dx, n, at.x64);
        mr_widen_f64(at.w, dw, n, at.w64);
        mr_widen_f32(at.w, dw, n, at.w32);
        judge("f32", &truth, mr_dot_f32(plan, at.x64, at.w32, n), n);
        judge("f64", &truth, mr_dot_f64(plan, at.x64, at.w64, n), n);
        judge_levels(&truth, plan, n);
    }
    mpfr_t bins;
    mpfr_init2(bins, 64);
    ck_assert_int_eq(mr_bins_dot(at.x, dx, at.w, dw, n, bins), MR_OK);
    mpfr_t exact;
    mpfr_init2(exact, 1000);
    mpfr_set_z_2exp(exact, truth.sum, -298, MPFR_RNDN);
    ck_assert_msg(mpfr_equal_p(bins, exact), "bins are not exact at n = %zu", n);
    judge("bins", &truth, mr_exact_from_mpfr(bins), n);
    mpfr_clears(bins, exact, (mpfr_ptr)0);
    struct mr_matrix a = {at.x, dx, 1, n}, b = {at.w, dw, 1, n};
    struct mr_exact got;
    ck_assert_int_eq(mr_exact_dot(&a, 0, &b, 0, &got), MR_OK);
    judge("mr_exact_dot", &truth, got, n);
    oracle_dot_clear(&truth);
    at.ways[plan.way]++;
    return plan.way;
}

static void spread(enum mr_dtype d, int span, int *low)
{
    int bias = d == MR_F16 ? 15 : 127;
    *low = bias - span / 2 > 0 ? bias - span / 2 : 0;
}

START_TEST(corroborate_pairs)
{
    enum mr_dtype dx = dtypes[_i / 3], dw = dtypes[_i % 3];
    uint64_t seed = 1000 + (uint64_t)_i;
    static const int spans[] = {0,  1,  4,  8,  12, 16,  20,  24,  28,
                                32, 40, 50, 60, 80, 100, 140, 200, 254};
    int low, many = getenv("MOEREF_LONG") ? 20 : 1;
    memset(at.ways, 0, sizeof at.ways);
    for (size_t n = 0; n <= 40; n++)
        for (size_t s = 0; s < sizeof spans / sizeof *spans; s++) {
            spread(dx, spans[s], &low);
            oracle_fill(&seed, at.x, dx, n, low, spans[s]);
            spread(dw, spans[s], &low);
            oracle_fill(&seed, at.w, dw, n, low, s % 2 ? spans[s] : 2);
            check(dx, dw, n);
            if (n < 3) continue;
            oracle_cancel(&seed, at.x, dx, at.w, dw, n, n % 3);
            check(dx, dw, n);
        }
    for (int i = 0; i < 9 * many; i++) {
        size_t n = i % 3 == 0 ? 4096 : i % 3 == 1 ? 7168 : 4096 + (size_t)i;
        int span = i < 3 ? 4 : (i * 7) % 64;
        spread(dx, span, &low);
        oracle_fill(&seed, at.x, dx, n, low, span);
        spread(dw, 8, &low);
        oracle_fill(&seed, at.w, dw, n, low, 8);
        if (i % 2) oracle_cancel(&seed, at.x, dx, at.w, dw, n, (size_t)i);
        check(dx, dw, n);
    }
    /* Two fp16 vectors span too little to need bins. */
    bool bins = dx != MR_F16 || dw != MR_F16;
    ck_assert_msg(at.ways[MR_DOT_SPLIT] && (at.ways[MR_DOT_BINS] || !bins),
                  "a way was not tried: %d %d %d", at.ways[0], at.ways[1], at.ways[2]);
}
END_TEST

START_TEST(corroborate_edges)
{
    enum mr_dtype dx = dtypes[_i / 3], dw = dtypes[_i % 3];
    uint64_t seed = 2000 + (uint64_t)_i;
    int top_x = oracle_fields(dx).top, top_w = oracle_fields(dw).top;
    for (size_t n = 1; n <= 40; n += n < 20 ? 1 : 5) {
        oracle_fill(&seed, at.x, dx, n, 0, 0); /* all subnormal */
        oracle_fill(&seed, at.w, dw, n, 0, 1);
        check(dx, dw, n);
        oracle_fill(&seed, at.w, dw, n, top_w, 0); /* times the largest */
        check(dx, dw, n);
        oracle_fill(&seed, at.x, dx, n, top_x, 0);
        check(dx, dw, n);
        oracle_cancel(&seed, at.x, dx, at.w, dw, n, n & 1);
        check(dx, dw, n);
        oracle_fill(&seed, at.x, dx, n, 0, top_x); /* every exponent there is */
        oracle_fill(&seed, at.w, dw, n, 0, top_w);
        check(dx, dw, n);
        for (size_t i = 0; i < n; i++)
            oracle_put(at.x, dx, i, (int)(i & 1), 0, 0); /* zeros, -0 too */
        ck_assert_int_eq(check(dx, dw, n), MR_DOT_PLAIN);
        oracle_put(at.x, dx, n / 2, 1, 0, 1); /* but for one: the least subnormal */
        check(dx, dw, n);
        oracle_put(at.x, dx, n / 2, 0, top_x, 0xffffffff);
        check(dx, dw, n);
        oracle_put(at.x, dx, 0, 0, 0, 1); /* least and largest */
        check(dx, dw, n);
    }
}
END_TEST

/* One element at `low`, the others at low + s: the products grow a binade a step, so each condition
 * is met exactly and then missed. x = +-w makes ||x|| ||w|| = sum|p|, the worst case of the bound;
 * odd significands leave ties and full rests, equal signs the longest walk of the accumulator. */
START_TEST(corroborate_boundaries)
{
    static const size_t sizes[] = {1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 64, 255, 256, 1024, 4096};
    size_t n = sizes[_i];
    int bias = 127;
    uint64_t seed = 3000;
    for (int d = 0; d < 3; d += 2) { /* bf16, fp32 */
        int last = MR_DOT_PLAIN, first[3] = {0, -1, -1};
        for (int s = 0; s <= 70; s++)
            for (int kind = 0; kind < 4; kind++) {
                if (n > 300 && kind == 1) continue;
                for (size_t i = 0; i < n; i++) {
                    uint32_t m = kind == 0 ? 0 : kind == 1 ? (uint32_t)oracle_random(&seed) : ~0u;
                    int e = bias - 30 + (i == n / 2 ? 0 : s);
                    if (kind == 3 && i % 2) m = 0;
                    oracle_put(at.x, dtypes[d], i, 0, e, m);
                    oracle_put(at.w, dtypes[d], i, (int)(kind == 1 && (oracle_random(&seed) & 1)),
                               e, m);
                }
                int way = check(dtypes[d], dtypes[d], n);
                if (kind == 0) {
                    ck_assert_msg(way >= last, "n = %zu, %d binades: way %d after %d", n, s, way,
                                  last);
                    if (first[way] < 0) first[way] = s;
                    last = way;
                }
            }
        if (n < 4) continue;
        /* kind 0: S = 2^(2s) n L', L' the lowest bit of a product. Nothing but rounding up to
         * powers of two may be lost: three binades, two steps of s. */
        int f = d ? 46 : 14;
        double size = log2((double)n);
        ck_assert_msg(first[1] >= 0 && 2 * first[1] + f + size >= 50, "early: %d", first[1]);
        ck_assert_msg(first[2] >= 0 && 2 * first[2] + f + 2 * size >= 100, "early: %d", first[2]);
    }
}
END_TEST

/* 2^24 terms: 4096 copies of one row, so the dot is 4096 times that row's. */
START_TEST(verify_sixteen_million)
{
    enum { COPIES = 4096, N = 4096 };
    uint64_t seed = 6000;
    unsigned char *x = malloc((size_t)COPIES * N * 2), *w = malloc((size_t)COPIES * N * 2);
    ck_assert(x && w);
    oracle_fill(&seed, at.x, MR_BF16, N, 120, _i ? 40 : 4);
    oracle_fill(&seed, at.w, MR_F16, N, 8, 4);
    for (size_t c = 0; c < COPIES; c++) {
        memcpy(x + c * N * 2, at.x, N * 2);
        memcpy(w + c * N * 2, at.w, N * 2);
    }
    struct oracle_dot truth;
    oracle_dot_init(&truth);
    oracle_dot(&truth, at.x, MR_BF16, at.w, MR_F16, N);
    mpz_mul_ui(truth.sum, truth.sum, COPIES);
    struct mr_matrix a = {x, MR_BF16, 1, (size_t)COPIES * N},
                     b = {w, MR_F16, 1, (size_t)COPIES * N};
    struct mr_exact got;
    ck_assert_int_eq(mr_exact_dot(&a, 0, &b, 0, &got), MR_OK);
    judge("2^24 terms", &truth, got, a.cols);
    oracle_dot_clear(&truth);
    free(x);
    free(w);
}
END_TEST

/* hi, lo and complete of values with bits everywhere, halfway cases and subnormal ends. */
START_TEST(verify_from_mpfr)
{
    mpfr_t v, rest;
    mpfr_init2(v, 3000);
    mpfr_init2(rest, 6000);
    uint64_t seed = 7000;
    for (int i = 0; i < 20000; i++) {
        int e = (int)(oracle_random(&seed) % 1900) - 1130;
        mpfr_set_d(v, oracle_uniform(&seed, -1, 1), MPFR_RNDN);
        for (int part = 0; part < i % 4; part++) { /* bits far below, or a tie */
            e -= part == 0 && i % 8 > 3 ? 1 : 0;
            mpfr_set_d(rest, i % 3 ? 0x1p-53 : oracle_uniform(&seed, -1, 1), MPFR_RNDN);
            mpfr_mul_2si(rest, rest, -(int)(oracle_random(&seed) % 120), MPFR_RNDN);
            mpfr_add(v, v, rest, MPFR_RNDN);
        }
        mpfr_mul_2si(v, v, e, MPFR_RNDN);
        struct mr_exact got = mr_exact_from_mpfr(v);
        ck_assert(got.hi == mpfr_get_d(v, MPFR_RNDN));
        mpfr_set(rest, v, MPFR_RNDN);
        mpfr_sub_d(rest, rest, got.hi, MPFR_RNDN);
        ck_assert(got.lo == mpfr_get_d(rest, MPFR_RNDN));
        mpfr_sub_d(rest, rest, got.lo, MPFR_RNDN);
        ck_assert_int_eq(got.complete, mpfr_zero_p(rest) != 0);
    }
    mpfr_clears(v, rest, (mpfr_ptr)0);
}
END_TEST

START_TEST(reject_not_finite)
{
    struct mr_exact got;
    mpfr_t out;
    mpfr_init2(out, 64);
    for (int i = 0; i < 9; i++) {
        enum mr_dtype dx = dtypes[i / 3], dw = dtypes[i % 3];
        for (size_t n = 1; n <= 40; n++)
            for (uint32_t m = 0; m < 2; m++) { /* Inf, NaN */
                uint64_t seed = n;
                oracle_fill(&seed, at.x, dx, n, 10, 4);
                oracle_fill(&seed, at.w, dw, n, 10, 4);
                oracle_put(at.w, dw, oracle_random(&seed) % n, (int)(n & 1),
                           oracle_fields(dw).top + 1, m);
                struct mr_matrix a = {at.x, dx, 1, n}, b = {at.w, dw, 1, n};
                ck_assert_int_eq(mr_exact_dot(&a, 0, &b, 0, &got), MR_ERR_VALUE);
                ck_assert_int_eq(mr_exact_dot(&b, 0, &a, 0, &got), MR_ERR_VALUE);
            }
    }
    ck_assert_int_eq(mr_bins_dot(at.x, MR_F64, at.w, MR_F32, 1, out), MR_ERR_DTYPE);
    ck_assert_int_eq(mr_bins_dot(at.x, MR_F32, at.w, MR_F8_E4M3, 1, out), MR_ERR_DTYPE);
    mpfr_clear(out);
}
END_TEST

Suite *suite_exact_dot(void);
Suite *suite_exact_dot(void)
{
    Suite *suite = suite_create("exact_dot");
    TCase *tc = tcase_create("dot");
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, corroborate_pairs, 0, 9);
    tcase_add_loop_test(tc, corroborate_edges, 0, 9);
    tcase_add_loop_test(tc, corroborate_boundaries, 0, 15);
    tcase_add_loop_test(tc, verify_sixteen_million, 0, 2);
    tcase_add_test(tc, verify_from_mpfr);
    tcase_add_test(tc, reject_not_finite);
    suite_add_tcase(suite, tc);
    return suite;
}
