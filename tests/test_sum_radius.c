/* The radius of an arithmetic line's sum against what the line computes. */
#include <check.h>
#include <math.h>
#include <mpfr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/arith/replay.h"
#include "../ref/arith/sums.h"
#include "../ref/num/num.h"
#include "support/radius_kernels.h"

enum { MOST = 640, EXPERTS = 8, TOKENS = 4 };

static uint64_t state = 77;

static double between(double lo, double hi)
{
    return lo + (hi - lo) * kernel_uniform(&state);
}

enum class { NORMAL, POSITIVE, SPREAD, CANCEL, SPARSE, SUBNORMAL, CLASSES };
static const char *const class_names[] = {"normal", "positive", "spread",
                                          "cancelling", "sparse", "subnormal"};

static double draw(enum class class, size_t i, double before)
{
    double u = between(-1, 1);
    switch (class) {
    case POSITIVE: return 1 + fabs(u);
    case SPREAD: return ldexp(u, (int)between(-12, 12));
    case CANCEL: return i % 2 ? -before : u;
    case SPARSE: return i % 16 ? 0 : 1 + fabs(u);
    case SUBNORMAL: return ldexp(u, i % 3 ? -126 : 0);
    default: return u;
    }
}

/* Stores x in a format; gives the stored value. */
static double store(enum mr_dtype dtype, void *at, size_t i, double x)
{
    switch (dtype) {
    case MR_BF16: {
        uint16_t w = mr_bf16_encode(x, MR_RNE, MR_OVERFLOW_SATURATE);
        memcpy((char *)at + 2 * i, &w, 2);
        return (double)mr_bf16_decode(w);
    }
    case MR_F16: {
        uint16_t w = mr_fp16_encode(x, MR_RNE, MR_OVERFLOW_SATURATE);
        memcpy((char *)at + 2 * i, &w, 2);
        return (double)mr_fp16_decode(w);
    }
    case MR_F8_E4M3: {
        uint8_t w = mr_e4m3_encode(x, MR_RNE, MR_OVERFLOW_SATURATE);
        memcpy((char *)at + i, &w, 1);
        return (double)mr_e4m3_decode(w);
    }
    default: {
        float f = (float)x;
        memcpy((char *)at + 4 * i, &f, 4);
        return (double)f;
    }
    }
}

static struct problem {
    enum mr_dtype dtype;
    size_t n;
    float hidden_bytes[TOKENS * MOST], gate_bytes[EXPERTS * MOST];
    double hidden[TOKENS * MOST], gate[EXPERTS * MOST];
    bool low; /* an operand is subnormal in its format */
} p;

static void fill(enum class class, enum mr_dtype dtype, size_t n)
{
    double least = dtype == MR_F16 ? 0x1p-14 : dtype == MR_F8_E4M3 ? 0x1p-6 : 0x1p-126;
    p.dtype = dtype;
    p.n = n;
    p.low = false;
    for (size_t i = 0; i < TOKENS * n; i++) {
        double x = draw(class, i, i ? p.hidden[i - 1] : 0);
        p.hidden[i] = store(dtype, p.hidden_bytes, i, x);
        p.low |= p.hidden[i] != 0 && fabs(p.hidden[i]) < least;
    }
    for (size_t i = 0; i < EXPERTS * n; i++) {
        double w = class == CANCEL ? (i % 2 ? p.gate[i - 1] : draw(NORMAL, i, 0))
                                   : draw(class == SUBNORMAL ? NORMAL : class, i, 0);
        p.gate[i] = store(dtype, p.gate_bytes, i, w);
        p.low |= p.gate[i] != 0 && fabs(p.gate[i]) < least;
    }
}

/* What sums.h asks of the products of one logit; the exact sum in *exact. */
static struct mr_dot dot_of(const double *x, const double *w, mpfr_t exact)
{
    struct mr_dot d = {.terms = p.n, .exact = p.dtype != MR_F32};
    double top_x = 0x1p-126, top_w = 0x1p-126;
    mpfr_t product;
    mpfr_init2(product, 100);
    mpfr_set_zero(exact, 1);
    for (size_t i = 0; i < p.n; i++) {
        mpfr_set_d(product, x[i], MPFR_RNDN);
        mpfr_mul_d(product, product, w[i], MPFR_RNDN);
        mpfr_add(exact, exact, product, MPFR_RNDN);
        d.magnitude += fabs(x[i] * w[i]);
        top_x = fmax(top_x, fabs(x[i]));
        top_w = fmax(top_w, fabs(w[i]));
    }
    d.magnitude *= 1 + 0x1p-40;
    if (p.dtype == MR_F16) top_x = fmax(top_x, 0x1p-14), top_w = fmax(top_w, 0x1p-14);
    if (p.dtype == MR_F8_E4M3) top_x = fmax(top_x, 0x1p-6), top_w = fmax(top_w, 0x1p-6);
    d.floor = p.low ? top_x * top_w : 0;
    mpfr_clear(product);
    return d;
}

/* The largest error / radius over all logits of the problem. */
static double worst_ratio(const char *line, enum class class)
{
    struct mr_arith arith;
    struct mr_error err = {{0}};
    struct mr_replay *replay;
    struct mr_gemm gemm = {.hidden = {p.hidden_bytes, p.dtype, TOKENS, p.n},
                           .gate = {p.gate_bytes, p.dtype, EXPERTS, p.n}};
    static float got[TOKENS * EXPERTS];
    double worst = 0;
    ck_assert_msg(!mr_arith_parse(line, &arith, &err), "%s", err.text);
    ck_assert_msg(!mr_replay_new(&arith, &gemm, &replay, &err), "%s", err.text);
    ck_assert_msg(!mr_replay_rows(replay, 0, TOKENS, got, &err), "%s", err.text);
    mr_replay_free(replay);
    struct mr_sum sum = mr_sum_default;
    ck_assert(!mr_sum_of_arith(&arith, p.n, p.dtype, p.dtype, false, &sum, &err));
    mpfr_t exact, error;
    mpfr_inits2(1500, exact, error, (mpfr_ptr)0);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t e = 0; e < EXPERTS; e++) {
            struct mr_dot d = dot_of(p.hidden + t * p.n, p.gate + e * p.n, exact);
            double logit = mpfr_get_d(exact, MPFR_RNDN), slack = fabs(logit) * 0x1p-53;
            double radius = mr_sum_radius(&sum, &d, logit, slack);
            mpfr_sub_d(error, exact, got[t * EXPERTS + e], MPFR_RNDN);
            double off = fabs(mpfr_get_d(error, MPFR_RNDA));
            if (isinf(radius)) continue; /* overflow cannot be ruled out: Inf and NaN are legal */
            ck_assert_msg(off <= radius, "%s, %s, %zu terms: off by %g, radius %g", line,
                          class_names[class], p.n, off, radius);
            if (radius > 0) worst = fmax(worst, off / radius);
        }
    mpfr_clears(exact, error, (mpfr_ptr)0);
    return worst;
}

static const struct {
    const char *line;
    enum mr_dtype dtype;
} lines[] = {
    {"fma", MR_F32}, {"fma", MR_BF16}, {"mul-add", MR_F32}, {"fma/deal:6x8", MR_BF16},
    {"fma/deal:32:halves", MR_F32}, {"fma/even:32:halves/even:8", MR_F32},
    {"mul-add/every:8/deal:4x8:pairs", MR_F32}, {"hopper-bf16", MR_BF16},
    {"hopper-bf16/runs:3x64", MR_BF16}, {"ampere-bf16/deal:4x32:reverse", MR_BF16},
    {"volta-fp16", MR_F16}, {"hopper-fp16", MR_F16}, {"hopper-fp16-fp16", MR_F16},
    {"hopper-tf32", MR_F32}, {"hopper-tf32/runs:2x32", MR_F32},
    {"hopper-bf16+bf16-hidden+bf16-gate", MR_F32}, {"fma+bf16-hidden", MR_F32},
    {"fma+bf16-gate+bf16-hidden", MR_F16}, {"hopper-e4m3", MR_F8_E4M3},
    {"hopper-e4m3/promote:128", MR_F8_E4M3}, {"hopper-mma-e4m3", MR_F8_E4M3},
    {"hopper-mma-e4m3-fp16", MR_F8_E4M3}, {"blackwell-e4m3", MR_F8_E4M3},
};
enum { LINES = sizeof lines / sizeof *lines };

START_TEST(verify_radius_of_lines_is_never_violated)
{
    int rounds = getenv("MOEREF_LONG") ? 60 : 2;
    static const size_t sizes[] = {1, 7, 32, 130, 512, MOST};
    double worst = 0;
    for (int i = 0; i < LINES; i++) {
        double of_line = 0;
        for (int r = 0; r < rounds; r++)
            for (int c = 0; c < CLASSES; c++)
                for (int s = 0; s < 6; s++) {
                    fill((enum class)c, lines[i].dtype, sizes[s]);
                    of_line = fmax(of_line, worst_ratio(lines[i].line, (enum class)c));
                }
        ck_assert_msg(of_line > 0.02, "%s: the radius is %g times too wide", lines[i].line,
                      1 / of_line);
        worst = fmax(worst, of_line);
        fprintf(stderr, "radius: %-36s error / radius up to %.3f\n", lines[i].line, of_line);
    }
    ck_assert_double_gt(worst, 0.5);
}
END_TEST

/* A line says more than nothing: never a wider radius, and of a butterfly a far smaller one. */
START_TEST(verify_lines_are_sharper)
{
    struct mr_dot d = {.terms = 4096, .magnitude = 100, .exact = true};
    static const char *const of[] = {"fma", "fma/deal:32:halves", "fma/deal:6x8", "hopper-bf16",
                                     "hopper-bf16/runs:3x64"};
    double all = mr_sum_radius(&mr_sum_default, &d, 1, 0), r[5];
    for (int i = 0; i < 5; i++) {
        struct mr_arith a;
        struct mr_sum sum = mr_sum_default;
        ck_assert(!mr_arith_parse(of[i], &a, NULL));
        ck_assert(!mr_sum_of_arith(&a, 4096, MR_BF16, MR_BF16, false, &sum, NULL));
        r[i] = mr_sum_radius(&sum, &d, 1, 0);
        ck_assert_double_gt(r[i], 0);
        ck_assert_double_le(r[i], all);
    }
    ck_assert_double_lt(r[1], r[0] / 9); /* 127 + 5 roundings in place of 4095 */
    ck_assert_double_lt(r[2], r[0]);
}
END_TEST

START_TEST(reject_block_scales)
{
    struct mr_arith a;
    struct mr_sum sum = mr_sum_default;
    struct mr_error err = {{0}};
    ck_assert(!mr_arith_parse("blackwell-nvf4", &a, NULL));
    ck_assert_int_eq(mr_sum_of_arith(&a, 64, MR_F32, MR_F32, false, &sum, &err),
                     MR_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "blackwell-nvf4"));
}
END_TEST

Suite *suite_sum_radius(void);
Suite *suite_sum_radius(void)
{
    Suite *s = suite_create("sum_radius");
    TCase *c = tcase_create("lines");
    tcase_set_timeout(c, 600);
    tcase_add_test(c, verify_radius_of_lines_is_never_violated);
    tcase_add_test(c, verify_lines_are_sharper);
    tcase_add_test(c, reject_block_scales);
    suite_add_tcase(s, c);
    return s;
}
