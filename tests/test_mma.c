/* Names and single steps of tensor-core arithmetic, worked out by hand. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "../ref/num/bits.h"
#include "support/mma_inputs.h"

static const struct mr_mma *row(const char *name)
{
    const struct mr_mma *mma = mr_mma_find(name, strlen(name));
    ck_assert_msg(mma != NULL, "%s", name);
    return mma;
}

START_TEST(verify_table)
{
    size_t verified = 0;
    for (size_t i = 0; i < mr_mma_count(); i++) {
        const struct mr_mma *m = mr_mma_at(i);
        ck_assert_ptr_eq(row(m->name), m); /* so names are unique */
        ck_assert_uint_eq(strspn(m->name, "abcdefghijklmnopqrstuvwxyz0123456789-"),
                          strlen(m->name));
        ck_assert_str_eq(mr_mma_mark(m), m->evidence ? "" : "unverified");
        verified += m->evidence != NULL;
        ck_assert(m->terms <= 64 && m->fraction <= 35 && m->architecture && m->instruction);
    }
    ck_assert_uint_ge(verified, 29);
    ck_assert_ptr_null(mr_mma_at(mr_mma_count()));
    ck_assert(mr_mma_same(row("ampere-bf16"), row("ada-bf16")));
    ck_assert(mr_mma_same(row("hopper-bf16"), row("blackwell-bf16")));
    ck_assert(!mr_mma_same(row("ampere-bf16"), row("hopper-bf16")));
    ck_assert(!mr_mma_same(row("hopper-bf16"), row("hopper-fp16")));
    ck_assert(!mr_mma_same(row("blackwell-e4m3"), row("blackwell-mma-e4m3")));
    ck_assert_ptr_null(mr_mma_find("hopper-bf16x", 12));
    ck_assert_ptr_nonnull(mr_mma_find("hopper-bf16x", 11));
}
END_TEST

START_TEST(reject_unknown_names)
{
    static const struct {
        const char *name, *says;
    } cases[] = {
        {"ampere-e4m3", "Ampere has no FP8 tensor cores (sm_89 and later have)"},
        {"volta-bf16", "Volta has no bf16 and no tf32 tensor cores (sm_80 and later have)"},
        {"turing-e5m2-fp16", "Turing has no FP8 tensor cores (sm_89 and later have)"},
        {"hopper-e2m1", "FP6 and FP4 tensor cores came with Blackwell (sm_100, sm_120)"},
        {"ada-e4m3-e2m1", "FP6 and FP4 tensor cores came with Blackwell (sm_100, sm_120)"},
        {"ada-nvf4", "FP6 and FP4 tensor cores came with Blackwell (sm_100, sm_120)"},
        {"hopper-bf16-fp16", "bf16 and tf32 operands accumulate in fp32 only"},
        {"hopper-fp16-bf16", "only types of 8, 6 and 4 bits can differ between the operands"},
        {"blackwell-mx-e4m3-fp16", "block-scaled instructions accumulate in fp32 only"},
        {"hopper-e4m3-e4m3", "an operand type that both operands have is written once"},
        {"pascal-fp16", "unknown architecture 'pascal'"},
        {"", "unknown architecture ''"},
        {"hopper", "an operand type must follow"},
        {"hopper-fp12", "unknown operand type 'fp12'"},
        {"hopper-ue4m3", "unknown operand type 'ue4m3'"},
        {"hopper-rtx-e4m3", "'rtx' is a unit of Blackwell"},
        {"ampere-mma-bf16", "before, all is mma.sync"},
        {"hopper-mma-bf16", "'bf16' is understood without 'mma'"},
        {"blackwell-mma-e2m1", "mma.sync of sm_90 and sm_100 has no types of 6 and 4 bits"},
        {"hopper-e4m3-e5m2-fp32", "'fp32' is no accumulator"},
        {"blackwell-mx-nvf4", "blackwell-nvf4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        size_t length = strlen(cases[i].name);
        ck_assert_msg(!mr_mma_find(cases[i].name, length), "%s", cases[i].name);
        mr_mma_explain(cases[i].name, length, text, sizeof text);
        ck_assert_msg(strstr(text, cases[i].says), "%s: %s", cases[i].name, text);
    }
}
END_TEST

enum { MOST = 64 };

static uint32_t code(enum mr_mma_type type, double v)
{
    bool exact;
    uint32_t c = mr_mma_encode_exact(type, f32_bits((float)v), &exact);
    ck_assert_msg(exact && ((double)(float)v == v || isnan(v)), "%s %a", mr_mma_type_name(type), v);
    return c;
}

/* Sum of a[i] * b[i] and c; a list ends with b = 0. */
struct pair {
    double a, b;
};
static uint32_t step(const char *name, double c, const struct pair *p)
{
    const struct mr_mma *mma = row(name);
    uint32_t a[MOST], b[MOST];
    size_t n = 0;
    for (; n < MOST && (p[n].a != 0 || p[n].b != 0); n++) {
        a[n] = code(mma->a, p[n].a);
        b[n] = code(mma->b, p[n].b);
    }
    return mr_mma_step(mma, a, b, n, code(mma->accumulator, c), NULL);
}
#define STEP(name, c, ...) step(name, c, (const struct pair[]){__VA_ARGS__, {0, 0}})
#define expect(got, want)                                                                          \
    do {                                                                                           \
        uint32_t got_ = (got), want_ = (want);                                                     \
        ck_assert_msg(got_ == want_, "%s: %08x, expected %08x", #got, got_, want_);                \
    } while (0)

START_TEST(validate_specials)
{
    double zero = -0.0, inf = INFINITY, max = 0x1.fep127;
    expect(STEP("hopper-bf16", 0, {NAN, 1}), 0x7fffffff);
    expect(STEP("hopper-bf16", NAN, {1, 1}), 0x7fffffff);
    expect(STEP("hopper-bf16", -inf, {inf, 1}), 0x7fffffff);
    expect(STEP("hopper-bf16", 0, {inf, 1}, {-inf, 1}), 0x7fffffff);
    expect(STEP("hopper-bf16", 0, {inf, -1}, {max, max}), 0xff800000);
    expect(STEP("hopper-bf16", inf, {1, 1}), 0x7f800000);
    expect(STEP("hopper-fp16-fp16", NAN, {1, 1}), 0x7fff);
    expect(STEP("hopper-fp16-fp16", 0, {-inf, 1}), 0xfc00);
    expect(STEP("hopper-e4m3", 0, {NAN, 1}), 0x7fffffff);
    expect(STEP("hopper-mma-e5m2", -inf, {inf, 1}), 0x7fffffff);
    expect(STEP("hopper-mma-e5m2-fp16", 0, {inf, -1}), 0xfc00);
    /* 0 * Inf; signs of zeros are lost. */
    uint32_t a[2] = {0x7f80, 0x8000}, b[2] = {0, 0x3f80};
    expect(mr_mma_step(row("hopper-bf16"), a, b, 2, 0, NULL), 0x7fffffff);
    expect(mr_mma_step(row("hopper-bf16"), a + 1, b + 1, 1, 0x80000000, NULL), 0);
    expect(STEP("hopper-bf16", zero, {1, 1}, {-1, 1}), 0);
    /* A tf32 NaN with its payload in the low 13 bits is Inf. */
    uint32_t quiet = 0x7f800001, one = 0x3f800000;
    expect(mr_mma_step(row("hopper-tf32"), &quiet, &one, 1, 0, NULL), 0x7f800000);
}
END_TEST

START_TEST(validate_truncation)
{
    double u = 0x1p-13, v = 0x1p-12;
    /* Beside 1, Hopper keeps 2^-25, Ampere 2^-24, Volta 2^-23; then 23 bits are left. */
    expect(STEP("hopper-bf16", 1, {u, v}, {u, v}, {u, v}, {u, v}), 0x3f800001);
    expect(STEP("hopper-bf16", 1, {u, u}, {u, u}, {u, u}, {u, u}, {u, u}, {u, u}, {u, u}, {u, u}),
           0x3f800000);
    expect(STEP("ampere-bf16", 1, {u, v}, {u, v}, {u, v}, {u, v}), 0x3f800000);
    expect(STEP("ampere-bf16", 1, {v, v}, {v, v}), 0x3f800001);
    expect(STEP("volta-fp16", 1, {v, v}, {v, v}), 0x3f800000);
    /* Toward zero, also of negative sums; c is cut too. */
    expect(STEP("hopper-bf16", -1, {u, v}), 0xbf7fffff);
    expect(STEP("hopper-bf16", 0x1p-26, {1, 1}, {-1, 1}), 0);
    expect(STEP("hopper-bf16", 0x1.8p-25, {1, 1}, {-1, 1}), 0x33000000);
    /* 1.5 * 1.5 aligns with exponent 0, 2.25 * 1 with 1: then 2^-25 is lost. */
    expect(STEP("hopper-bf16", -2.25, {1.5, 1.5}, {u, v}), 0);
    expect(STEP("hopper-bf16", 0, {1.5, 1.5}, {-1.5, 1.5}, {u, v}), 0x33000000);
    expect(STEP("hopper-bf16", 0, {2.25, 1}, {-2.25, 1}, {u, v}), 0);
    /* 13 fraction bits, and no more in the result. */
    expect(STEP("hopper-e4m3", 0, {1, 1}, {0x1p-6, 0x1p-6}, {0x1p-6, 0x1p-6}), 0x3f801000);
    expect(STEP("hopper-e4m3", 0, {1, 1}, {0x1p-7, 0x1p-7}), 0x3f800000);
    expect(STEP("hopper-e4m3", 0x1.ffep0, {0x1p-9, 0x1p-9}), 0x3ffff000);
}
END_TEST

START_TEST(validate_ends_of_the_range)
{
    double max = 0x1.fep127, big = 0x1p127, small = 0x1p-126;
    expect(STEP("hopper-bf16", 0x1.fffffep127, {0x1p103, 0x1.8p0}), 0x7f7fffff); /* below 2^128 */
    expect(STEP("hopper-bf16", 0x1.fffffep127, {0x1p103, 2}), 0x7f800000);
    expect(STEP("hopper-bf16", 0, {big, 2}), 0x7f800000);
    expect(STEP("hopper-bf16", 0, {max, max}, {-max, max}, {1, 1}), 0);
    expect(STEP("hopper-bf16", -0x1p127, {big, 2}), 0x7f000000);
    expect(STEP("hopper-bf16", 0, {small, 0x1p-23}), 1);
    expect(STEP("hopper-bf16", 0, {0x1p-75, 0x1.8p-75}, {0x1p-75, 0x1p-75}), 1);
    expect(STEP("hopper-bf16", 0x1p-149, {0x1p-75, 0x1p-75}), 1);
    /* A subnormal c has exponent -126: 2^-151 is the last that counts beside it. */
    expect(STEP("hopper-bf16", 0, {0x1p-80, 0x1p-79}), 0);
    expect(STEP("hopper-bf16", 0x1p-149, {-0x1p-76, 0x1p-76}, {0x1p-75, 0x1p-74}), 2);
    expect(STEP("hopper-bf16", 0x1p-149, {-0x1p-75, 0x1p-75}, {0x1p-75, 0x1p-74}), 1);
    /* fp16: to nearest even, once; 65520 and above is Inf. */
    expect(STEP("hopper-fp16-fp16", 65504, {15, 1}), 0x7bff);
    expect(STEP("hopper-fp16-fp16", 65504, {16, 1}), 0x7c00);
    expect(STEP("hopper-fp16-fp16", -65504, {-4, 4}), 0xfc00);
    expect(STEP("hopper-fp16-fp16", 1, {0x1p-11, 1}), 0x3c00);
    expect(STEP("hopper-fp16-fp16", 1, {0x1p-11, 1}, {0x1p-12, 0x1p-12}), 0x3c01);
    expect(STEP("hopper-fp16-fp16", 0, {0x1p-24, 0.5}), 0);
    expect(STEP("hopper-fp16-fp16", 0, {0x1p-24, 1.5}), 2);
}
END_TEST

/* 16 columns make a step: what comes later meets a rounded accumulator. */
START_TEST(validate_chains)
{
    const struct mr_mma *mma = row("hopper-bf16"), *ampere = row("ampere-bf16");
    uint32_t a[32], b[32];
    for (int i = 0; i < 32; i++) a[i] = b[i] = 0;
    a[0] = b[0] = 0x3f80;
    a[7] = a[8] = a[15] = a[16] = 0x3980; /* 2^-12 */
    b[7] = b[8] = b[15] = b[16] = 0x3980;
    expect(mr_mma_step(mma, a, b, 8, 0, NULL), 0x3f800000);
    expect(mr_mma_step(mma, a, b, 9, 0, NULL), 0x3f800001);
    expect(mr_mma_step(mma, a, b, 32, 0, NULL), 0x3f800001);
    expect(mr_mma_step(ampere, a, b, 16, 0, NULL), 0x3f800001); /* 1 | 2^-24 + 2^-24 */
    expect(mr_mma_step(ampere, a, b, 9, 0, NULL), 0x3f800000);
    expect(mr_mma_step(mma, a, b, 0, 0x12345678, NULL), 0x12345678);
}
END_TEST

/* fp8 by fp16: columns 0 and 1 of every four, then 2 and 3, then c by an ordinary addition. */
START_TEST(validate_fp8_by_fp16)
{
    const struct mr_mma *f32 = row("blackwell-mma-e4m3"), *f16 = row("blackwell-mma-e4m3-fp16");
    uint32_t a[32] = {0}, b[32] = {0};
    uint32_t one = code(MR_MMA_E4M3, 1), tiny = code(MR_MMA_E4M3, 0x1p-6);
    a[0] = b[0] = one;
    a[2] = b[2] = tiny; /* 2^-12: half a unit of fp16 below 1 */
    a[3] = b[3] = tiny;
    expect(mr_mma_step(f16, a, b, 32, 0, NULL), 0x3c00 | 0); /* 1 + 2^-11: a tie, to even */
    a[1] = b[1] = tiny;                                      /* now 1 + 2^-12 is rounded before */
    expect(mr_mma_step(f16, a, b, 32, 0, NULL), 0x3c00);
    a[4] = b[4] = a[5] = b[5] = tiny; /* 3 * 2^-12 in the first: 1 + 2^-10; then a tie */
    expect(mr_mma_step(f16, a, b, 32, 0, NULL), 0x3c02);
    /* c = 2^24 takes nothing of the sum's fraction: to nearest. */
    for (int i = 0; i < 32; i++) a[i] = b[i] = 0;
    a[0] = one;
    b[0] = code(MR_MMA_E4M3, 3);
    expect(mr_mma_step(f32, a, b, 32, code(MR_MMA_FP32, 0x1p24), NULL),
           code(MR_MMA_FP32, 0x1p24 + 4));
    b[0] = one;
    expect(mr_mma_step(f32, a, b, 32, code(MR_MMA_FP32, 0x1p24), NULL), code(MR_MMA_FP32, 0x1p24));
    /* Additions of very different size, and powers of two above and below. */
    expect(mr_mma_step(f32, a, b, 32, code(MR_MMA_FP32, 0x1p-140), NULL), 0x3f800000);
    expect(mr_mma_step(f32, a, b, 32, code(MR_MMA_FP32, -0x1p-24), NULL), 0x3f7fffff);
    expect(mr_mma_step(f32, a, b, 32, code(MR_MMA_FP32, -0x1p-25), NULL), 0x3f800000);
    expect(mr_mma_step(f32, a, b, 32, code(MR_MMA_FP32, -0x1.000002p-25), NULL), 0x3f7fffff);
    expect(mr_mma_step(f32, a, b, 32, 0x80000000, NULL), 0x3f800000);
    a[0] = 0;
    expect(mr_mma_step(f32, a, b, 32, 0x80000000, NULL), 0);
}
END_TEST

START_TEST(validate_scales)
{
    const struct mr_mma *mx = row("blackwell-mx-e4m3"), *nv = row("blackwell-nvf4");
    uint32_t a[64] = {0}, b[64] = {0};
    uint8_t sa[4] = {130, 127, 127, 127}, sb[4] = {126, 127, 127, 127};
    struct mr_mma_scales s = {sa, sb};
    uint32_t one = code(MR_MMA_E4M3, 1);
    a[0] = b[0] = a[33] = b[33] = one;
    expect(mr_mma_step(mx, a, b, 64, 0, &s), code(MR_MMA_FP32, 5)); /* 2^3 * 2^-1 + 1 */
    sa[0] = 255;
    expect(mr_mma_step(mx, a, b, 64, 0, &s), 0x7fffffff);
    sa[0] = 0;
    sb[0] = 0; /* 2^-254 */
    expect(mr_mma_step(mx, a, b, 32, 0, &s), 0);
    /* ue4m3: 1.125 * 2 * (-) 0.5; the sign of a scale is nothing. */
    uint8_t na[4] = {0x39, 0x38, 0x38, 0x38}, nb[4] = {0xb8, 0x38, 0x38, 0x38};
    s = (struct mr_mma_scales){na, nb};
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    a[0] = code(MR_MMA_E2M1, 2);
    b[0] = code(MR_MMA_E2M1, -0.5);
    expect(mr_mma_step(nv, a, b, 64, 0, &s), code(MR_MMA_FP32, -1.125));
    na[1] = 0x7f;
    expect(mr_mma_step(nv, a, b, 64, 0, &s), 0x7fffffff);
    /* Products that cancel in a group of scale 2^16 keep its exponent: unit 2^-19, and a c of 2^-20
     * is lost; with another scale of 0 the group is a zero. */
    na[1] = 0x38;
    na[0] = nb[0] = 0x78; /* 2^8 */
    a[1] = a[0];
    b[1] = code(MR_MMA_E2M1, 0.5);
    expect(mr_mma_step(nv, a, b, 64, code(MR_MMA_FP32, 0x1p-20), &s), 0);
    expect(mr_mma_step(nv, a, b, 64, code(MR_MMA_FP32, 0x1p-19), &s), code(MR_MMA_FP32, 0x1p-19));
    na[0] = 0;
    expect(mr_mma_step(nv, a, b, 64, code(MR_MMA_FP32, 0x1p-20), &s), code(MR_MMA_FP32, 0x1p-20));
}
END_TEST

/* A short last step is one padded with zeros, of either sign. */
START_TEST(verify_padding)
{
    const struct mr_mma *rows[256];
    size_t n = mma_distinct(rows, 256);
    uint64_t s = 41;
    for (size_t i = 0; i < n; i++) {
        for (int class = 0; class < MMA_CLASSES; class ++) {
            struct mma_case m;
            mma_case_make(&m, rows[i], (enum mma_class) class, 1, 1, 128, &s);
            size_t k = 1 + mma_below(&s, 127);
            uint32_t sign = rows[i]->a == MR_MMA_TF32 ? 0x80000000 : mr_mma_types[rows[i]->a].sign;
            struct mr_mma_scales scales = {m.sa, m.sb}, *used = m.blocks ? &scales : NULL;
            for (size_t b = 0; b < m.blocks; b++) { /* a NaN scale counts only where it is used */
                m.sa[b] &= 0x7e;
                m.sb[b] &= 0x7e;
            }
            uint32_t want = mr_mma_step(rows[i], m.a, m.b, k, m.c[0], used);
            for (size_t j = k; j < 128; j++) {
                m.a[j] = mma_random(&s) >> 63 ? sign : 0;
                m.b[j] = 0;
            }
            size_t columns = mr_mma_step_columns(rows[i]);
            size_t padded = (k + columns - 1) / columns * columns;
            uint32_t got = mr_mma_step(rows[i], m.a, m.b, padded, m.c[0], used);
            ck_assert_msg(got == want, "%s, %s: %zu columns %08x, padded %08x", rows[i]->name,
                          mma_class_names[class], k, want, got);
            mma_case_free(&m);
        }
    }
}
END_TEST

Suite *suite_mma(void);
Suite *suite_mma(void)
{
    Suite *suite = suite_create("mma");
    TCase *table = tcase_create("table");
    tcase_add_test(table, verify_table);
    tcase_add_test(table, reject_unknown_names);
    suite_add_tcase(suite, table);
    TCase *steps = tcase_create("steps");
    tcase_add_test(steps, validate_specials);
    tcase_add_test(steps, validate_truncation);
    tcase_add_test(steps, validate_ends_of_the_range);
    tcase_add_test(steps, validate_chains);
    tcase_add_test(steps, validate_fp8_by_fp16);
    tcase_add_test(steps, validate_scales);
    tcase_add_test(steps, verify_padding);
    suite_add_tcase(suite, steps);
    return suite;
}
