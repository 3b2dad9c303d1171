/* The model of CUDA's scalar functions against itself (instruction sets, lengths) and against other
 * mathematics: glibc's long double, NVIDIA's documented bounds, the intervals of score_error.c. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/arith/cuda.h"
#include "../ref/arith/score_error.h"
#include "support/mpfr_oracle.h"

enum { COUNT = 1 << 15 };

/* Random words; every 8th is near 0, 1, 128, an overflow or one of the special encodings. */
static void fill(float *x, size_t n, uint64_t seed)
{
    static const uint32_t centres[] = {0,          0x00800000, 0x3f800000, 0x42b17218,
                                       0x42aeac50, 0x7f800000, 0x43000000, 0x42fc0000};
    for (size_t i = 0; i < n; i++) {
        uint64_t r = oracle_random(&seed);
        uint32_t word = (uint32_t)r;
        if (i % 8 == 0)
            word = ((uint32_t)(r >> 63) << 31) ^ (centres[r >> 32 & 7] + (uint32_t)(r & 15) - 8);
        memcpy(&x[i], &word, sizeof word);
    }
}

#if MR_ISA_LEVELS == 3
START_TEST(verify_instruction_sets)
{
    static float x[COUNT], b[COUNT], y[3][COUNT];
    int levels = (int)mr_isa_best() + 1;
    fill(x, COUNT, 1);
    fill(b, COUNT, 2);
    for (int id = 0; id < MR_CUDA_COUNT + MR_DIV_COUNT; id++) {
        void (*const one[])(enum mr_cuda_id, const float *, size_t,
                            float *) = {mr_cuda_apply_base, mr_cuda_apply_v3, mr_cuda_apply_v4};
        void (*const two[])(enum mr_cuda_quotient, const float *, const float *, size_t,
                            float *) = {mr_cuda_divide_base, mr_cuda_divide_v3, mr_cuda_divide_v4};
        for (int l = 0; l < levels; l++) {
            if (id < MR_CUDA_COUNT)
                one[l]((enum mr_cuda_id)id, x, COUNT, y[l]);
            else
                two[l]((enum mr_cuda_quotient)(id - MR_CUDA_COUNT), x, b, COUNT, y[l]);
            ck_assert_msg(memcmp(y[0], y[l], sizeof y[0]) == 0, "%s differs at level %d",
                          id < MR_CUDA_COUNT ? mr_cuda_functions[id].name
                                             : mr_cuda_quotients[id - MR_CUDA_COUNT],
                          l);
        }
    }
    uint64_t sums[] = {mr_cuda_checksum_base((const uint32_t *)x, COUNT - 5),
                       levels > 1 ? mr_cuda_checksum_v3((const uint32_t *)x, COUNT - 5) : 0,
                       levels > 2 ? mr_cuda_checksum_v4((const uint32_t *)x, COUNT - 5) : 0};
    for (int l = 0; l < levels; l++) ck_assert_uint_eq(sums[l], sums[0]);
}
END_TEST
#endif

/* An output depends on its input alone; arrays may overlap exactly. */
START_TEST(verify_lengths_and_places)
{
    float x[64], all[64], y[65];
    fill(x, 64, 3);
    for (int id = 0; id < MR_CUDA_COUNT; id++) {
        mr_cuda_apply((enum mr_cuda_id)id, x, 64, all);
        for (size_t n = 0; n <= 40; n++) {
            memset(y, 0x55, sizeof y);
            memcpy(y, x + 7, n * sizeof *y);
            mr_cuda_apply((enum mr_cuda_id)id, y, n, y);
            ck_assert_msg(memcmp(y, all + 7, n * sizeof *y) == 0, "%s, %zu elements",
                          mr_cuda_functions[id].name, n);
            uint32_t behind;
            memcpy(&behind, &y[n], sizeof behind);
            ck_assert_uint_eq(behind, 0x55555555);
        }
    }
    for (size_t n = 0; n <= 40; n++) {
        memset(y, 0x55, sizeof y);
        mr_cuda_divide(MR_DIV_FULL, x, x + 1, n, y);
        mr_cuda_divide(MR_DIV_FULL, x, x + 1, 63, all);
        uint32_t behind;
        memcpy(&behind, &y[n], sizeof behind);
        ck_assert(memcmp(y, all, n * sizeof *y) == 0 && behind == 0x55555555);
    }
}
END_TEST

/* One wrong bit, and two words that change places, change a checksum. */
START_TEST(verify_checksum_sees)
{
    static uint32_t words[4096];
    uint64_t seed = 4;
    for (size_t i = 0; i < 4096; i++) words[i] = (uint32_t)oracle_random(&seed);
    uint64_t sum = mr_cuda_checksum(words, 4096);
    for (int i = 0; i < 1000; i++) {
        size_t a = oracle_random(&seed) % 4095;
        uint32_t bit = 1u << oracle_random(&seed) % 32;
        words[a] ^= bit;
        ck_assert(mr_cuda_checksum(words, 4096) != sum);
        words[a] ^= bit;
        uint32_t old = words[a];
        words[a] = words[a + 1];
        words[a + 1] = old;
        ck_assert(mr_cuda_checksum(words, 4096) != sum || words[a] == words[a + 1]);
        words[a + 1] = words[a];
        words[a] = old;
    }
    ck_assert(mr_cuda_checksum(words, 4096) == sum);
}
END_TEST

START_TEST(verify_names)
{
    for (int id = 0; id < MR_CUDA_COUNT; id++)
        ck_assert_int_eq(mr_cuda_find(mr_cuda_functions[id].name), id);
    ck_assert_int_eq(mr_cuda_find("sinf"), -1);
    ck_assert_int_eq(mr_cuda_find(""), -1);
}
END_TEST

static long double of_rcp(long double x)
{
    return 1 / x;
}

static long double of_rsqrt(long double x)
{
    return 1 / sqrtl(x);
}

static long double of_sigmoid(long double x)
{
    return 1 / (1 + expl(-x));
}

static long double of_softplus(long double x)
{
    return log1pl(expl(x));
}

static long double of_root(long double x)
{
    return sqrtl(of_softplus(x));
}

/* Bounds in ulp + slope |x|, or absolutely in 2^-24: CUDA C++ Programming Guide, "Mathematical
 * Functions" (expf, exp2f, rsqrtf, tanhf 2; logf, log2f, log1pf 1; __expf 2 + |1.173 x|; __logf 3,
 * or 2^-21.41 absolutely; division by -prec-div=false 2); PTX ISA (rcp, sqrt 1 ulp; lg2
 * 2^-22 absolutely on [1/2, 2]; tanh.approx 2^-11 relatively); scores: by score_error.c. */
static const struct {
    enum mr_cuda_id id;
    long double (*f)(long double);
    double low, high, ulps, slope, absolute;
} bounds[] = {
    {MR_CUDA_EX2, exp2l, -126, 128, 2, 0, 0},
    {MR_CUDA_EX2_FTZ, exp2l, -126, 128, 2, 0, 0},
    {MR_CUDA_RCP, of_rcp, 0x1p-126, 0x1p126, 1, 0, 0},
    {MR_CUDA_RSQRT, of_rsqrt, 0x1p-126, 0x1p127, 2, 0, 0},
    {MR_CUDA_SQRT, sqrtl, 0x1p-126, 0x1p127, 1, 0, 0},
    {MR_CUDA_LG2, log2l, 0x1p-126, 0x1p127, 4, 0, 4},
    {MR_CUDA_TANH, tanhl, -20, 20, 0x1p12, 0, 0},
    {MR_CUDA_EXPF, expl, -87, 88.7, 2, 0, 0},
    {MR_CUDA_EXPF_FTZ, expl, -87, 88.7, 2, 0, 0},
    {MR_CUDA_FAST_EXPF, expl, -87, 88.7, 2, 1.173, 0},
    {MR_CUDA_LOGF, logl, 0x1p-149, 0x1p127, 1, 0, 0},
    {MR_CUDA_FAST_LOGF, logl, 0x1p-126, 0x1p127, 3, 0, 6.1},
    {MR_CUDA_LOG1PF, log1pl, -0.9999, 0x1p127, 1, 0, 0},
    {MR_CUDA_LOG2F, log2l, 0x1p-149, 0x1p127, 1, 0, 0},
    {MR_CUDA_TANHF, tanhl, -20, 20, 2, 0, 0},
    {MR_CUDA_SIGMOID, of_sigmoid, -87, 87, 4, 0, 0},
    {MR_CUDA_SIGMOID_TRITON, of_sigmoid, -80, 80, 4, 1.173, 0},
    {MR_CUDA_SIGMOID_TANHF, of_sigmoid, -87, 87, 0, 0, 1.5},
    {MR_CUDA_SOFTPLUS_FMAXF, of_softplus, -80, 80, 4, 0, 0},
    {MR_CUDA_ROOT_FMAXF, of_root, -80, 80, 4, 0, 0},
};

START_TEST(corroborate_long_double)
{
    static float x[COUNT], y[COUNT];
    uint64_t seed = 5;
    for (size_t k = 0; k < sizeof bounds / sizeof *bounds; k++) {
        /* Half evenly spread, half by exponent. */
        double low = bounds[k].low, high = bounds[k].high;
        for (int i = 0; i < COUNT; i++) {
            double v = oracle_uniform(&seed, low, high), e = oracle_uniform(&seed, -100, 7);
            if (i % 2 == 0) v = copysign(exp2(low > 0 && high > 1e6 ? e : fmin(e, 6)), v);
            x[i] = (float)fmin(fmax(v, low), high);
        }
        mr_cuda_apply(bounds[k].id, x, COUNT, y);
        for (int i = 0; i < COUNT; i++) {
            long double truth = bounds[k].f(x[i]), e = fabsl(y[i] - truth);
            int exponent = truth == 0 ? -126 : ilogbl(truth);
            long double ulp = ldexpl(1, (exponent < -126 ? -126 : exponent) - 23);
            long double most = (bounds[k].ulps + bounds[k].slope * fabs((double)x[i])) * ulp;
            most = fmaxl(most, bounds[k].absolute * 0x1p-24L);
            ck_assert_msg(e <= most, "%s of %a: %a is off by %.3Lf ulp",
                          mr_cuda_functions[bounds[k].id].name, x[i], y[i], e / ulp);
        }
    }
}
END_TEST

/* What radius.c assumes of scores: the model stays inside. */
START_TEST(corroborate_score_error)
{
    static const struct {
        enum mr_cuda_id id;
        enum mr_form form;
        double high;
    } scores[] = {
        {MR_CUDA_SIGMOID, MR_FORM_EXPF, 128},
        {MR_CUDA_SIGMOID_FTZ, MR_FORM_EXPF, 128},
        {MR_CUDA_SIGMOID_FAST_EXPF, MR_FORM_FAST, 128},
        {MR_CUDA_SIGMOID_FAST, MR_FORM_FAST, 128},
        {MR_CUDA_SIGMOID_FDIVIDEF, MR_FORM_FAST, 128},
        {MR_CUDA_SIGMOID_TRITON, MR_FORM_FAST, 128},
        {MR_CUDA_SIGMOID_TANHF, MR_FORM_TANH, 128},
        {MR_CUDA_SIGMOID_TANHF_FTZ, MR_FORM_TANH, 128},
        {MR_CUDA_SIGMOID_TANHF_FAST, MR_FORM_TANH_FAST, 128},
        {MR_CUDA_ROOT_LOG1PF, MR_FORM_EXPF, 88.7},
        {MR_CUDA_ROOT_TORCH, MR_FORM_EXPF, 128},
        {MR_CUDA_ROOT_FMAXF, MR_FORM_EXPF, 128},
        {MR_CUDA_ROOT_FAST, MR_FORM_FAST, 128},
        {MR_CUDA_ROOT_TRITON, MR_FORM_FAST, 128},
        {MR_CUDA_ROOT_FAST_FAST, MR_FORM_FAST, 128},
        {MR_CUDA_ROOT_FMAXF_FAST, MR_FORM_FAST, 128},
        {MR_CUDA_ROOT_LOG1PF_FAST, MR_FORM_FAST, 88.7},
    };
    static float x[COUNT], y[COUNT];
    uint64_t seed = 6;
    for (size_t k = 0; k < sizeof scores / sizeof *scores; k++) {
        for (int i = 0; i < COUNT; i++) {
            double v = oracle_uniform(&seed, -128, scores[k].high);
            double e = oracle_uniform(&seed, -30, 6);
            x[i] = (float)(i % 2 ? v : copysign(exp2(e), v));
        }
        mr_cuda_apply(scores[k].id, x, COUNT, y);
        for (int i = 0; i < COUNT; i++) {
            struct mr_interval logit = {x[i], x[i]}, in;
            if (scores[k].id < MR_CUDA_SOFTPLUS_LOG1PF)
                in = mr_sigmoid_computed(scores[k].form, logit);
            else
                in = mr_sqrt_softplus_computed(scores[k].form, logit);
            ck_assert_msg(y[i] >= in.lo && y[i] <= in.hi, "%s of %a: %a is outside [%a, %a]",
                          mr_cuda_functions[scores[k].id].name, x[i], y[i], in.lo, in.hi);
        }
    }
}
END_TEST

/* The worst of all inputs to the sigmoid of tanh.approx (gpu/sweep/errors.c tries every one): 66.98 u
 * off, inside the bound, and out of any that is less. */
START_TEST(verify_tanh_approx_worst)
{
    const float x = 0x1.37fffp+1f;
    struct mr_interval in = mr_sigmoid_computed(MR_FORM_TANH_FAST, (struct mr_interval){x, x});
    float y;
    mr_cuda_apply(MR_CUDA_SIGMOID_TANHF_FAST, &x, 1, &y);
    double off = fabs(y - mr_sigmoid_value(x)) * 0x1p24;
    ck_assert_msg(off > 66.97 && off < 66.98, "%a: %.4f u off", x, off);
    ck_assert_msg(y >= in.lo && y <= in.hi, "%a is outside [%a, %a]", y, in.lo, in.hi);
}
END_TEST

/* Values that decide a route when they are wrong. */
START_TEST(verify_edges)
{
    static const struct {
        enum mr_cuda_id id;
        uint32_t x, y;
    } edges[] = {
        {MR_CUDA_EXPF, 0x7f800001, 0x7fffffff}, /* NaN: the canonical one */
        {MR_CUDA_EXPF, 0xffc00000, 0x7fffffff},
        {MR_CUDA_EXPF, 0xff800000, 0},
        {MR_CUDA_EXPF, 0x7f800000, 0x7f800000},
        {MR_CUDA_EXPF, 0x80000000, 0x3f800000},
        {MR_CUDA_LOGF, 0x80000000, 0xff800000},
        {MR_CUDA_LOGF, 0xbf800000, 0x7fffffff},
        {MR_CUDA_LOG1PF, 0x80000000, 0x80000000},
        {MR_CUDA_LOG1PF, 0xbf800000, 0xff800000},
        {MR_CUDA_TANHF, 0x80000001, 0x80000001}, /* subnormal */
        {MR_CUDA_TANHF_FTZ, 0x80000001, 0x80000000},
        {MR_CUDA_RCP_FTZ, 0x80000001, 0xff800000},
        {MR_CUDA_RCP, 0x80000001, 0xff800000}, /* -2^149 overflows */
        {MR_CUDA_RSQRT_FTZ, 0x80000001, 0xff800000},
        /* Where scores become 0 or 1, and the input before. */
        {MR_CUDA_SIGMOID, 0x41851592, 0x3f800000}, /* 16.6355 */
        {MR_CUDA_SIGMOID, 0x41851591, 0x3f7ffffe},
        {MR_CUDA_SIGMOID, 0xc2b17218, 0}, /* -88.7228 */
        {MR_CUDA_SIGMOID, 0xc2b17217, 0x00200010},
        {MR_CUDA_SIGMOID_FAST, 0xc2aeac51, 0}, /* -87.3366: FTZ */
        {MR_CUDA_SIGMOID_FAST, 0xc2aeac50, 0x00800000},
        {MR_CUDA_SIGMOID_TANHF, 0xc1902cb4, 0}, /* -18.0218 */
        {MR_CUDA_SIGMOID_TANHF, 0xc1902cb3, 0x33000000},
        {MR_CUDA_SIGMOID_TANHF, 0x418762bf, 0x3f800000}, /* 16.9232 */
        {MR_CUDA_SIGMOID_TANHF_FAST, 0xc1800000, 0},     /* -16 */
        {MR_CUDA_SIGMOID_TANHF_FAST, 0xc17fffff, 0x34000000},
        {MR_CUDA_SIGMOID_TANHF_FAST, 0x41800000, 0x3f800000},
        {MR_CUDA_SOFTPLUS_LOG1PF, 0x42b17218, 0x7f800000}, /* 88.7228 */
        {MR_CUDA_SOFTPLUS_FAST, 0xc1851592, 0},            /* -16.6355 */
        {MR_CUDA_SOFTPLUS_FAST, 0xc1851591, 0x344fe3d7},
        {MR_CUDA_SOFTPLUS_FMAXF, 0x7fc00000, 0x7fffffff},
    };
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        uint32_t y;
        mr_cuda_apply(edges[i].id, (const float *)&edges[i].x, 1, (float *)&y);
        ck_assert_msg(y == edges[i].y, "%s of %#x is %#x, not %#x",
                      mr_cuda_functions[edges[i].id].name, edges[i].x, y, edges[i].y);
    }
}
END_TEST

Suite *suite_cuda_model(void);

Suite *suite_cuda_model(void)
{
    Suite *s = suite_create("cuda_model");
    TCase *c = tcase_create("cuda_model");
#if MR_ISA_LEVELS == 3
    tcase_add_test(c, verify_instruction_sets);
#endif
    tcase_add_test(c, verify_lengths_and_places);
    tcase_add_test(c, verify_checksum_sees);
    tcase_add_test(c, verify_names);
    tcase_add_test(c, verify_edges);
    tcase_add_test(c, corroborate_long_double);
    tcase_add_test(c, corroborate_score_error);
    tcase_add_test(c, verify_tanh_approx_worst);
    suite_add_tcase(s, c);
    return s;
}
