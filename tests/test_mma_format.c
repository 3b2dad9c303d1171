/* Number formats as the tensor core reads them. */
#include <check.h>
#include <math.h>

#include "../ref/arith/mma_format.h"
#include "../ref/num/bits.h"
#include "../ref/num/num.h"

static double value(enum mr_mma_type type, uint32_t code)
{
    struct mr_mma_number x = mr_mma_decode(type, code);
    double v = ldexp(x.significand, x.exponent - mr_mma_types[type].fraction);
    if (x.class == MR_MMA_NAN) return NAN;
    if (x.class == MR_MMA_INF) v = INFINITY;
    return x.negative ? -v : v;
}

static double decoded(enum mr_mma_type type, uint32_t code)
{
    switch (type) {
    case MR_MMA_BF16: return (double)mr_bf16_decode((uint16_t)code);
    case MR_MMA_FP16: return (double)mr_fp16_decode((uint16_t)code);
    case MR_MMA_TF32: return (double)mr_tf32_decode(code);
    case MR_MMA_E4M3: return (double)mr_e4m3_decode((uint8_t)code);
    case MR_MMA_E5M2: return (double)mr_e5m2_decode((uint8_t)code);
    case MR_MMA_E2M1: return (double)mr_e2m1_decode((uint8_t)code);
    case MR_MMA_UE8M0: return (double)mr_e8m0_decode((uint8_t)code);
    case MR_MMA_UE4M3: return (double)mr_e4m3_decode((uint8_t)(code & 0x7f));
    default: return (double)f32_from(code);
    }
}

/* Every code of the small types and all leading halves of the others against ref/num, which has its
 * own oracle; and back. */
START_TEST(corroborate_formats)
{
    for (int type = 0; type < MR_MMA_TYPE_COUNT; type++) {
        const struct mr_mma_type_info *t = &mr_mma_types[type];
        uint32_t codes = t->bits == 32 ? 1u << 19 : 1u << t->bits;
        if (type == MR_MMA_E3M2 || type == MR_MMA_E2M3) continue; /* ref/num has none */
        for (uint32_t i = 0; i < codes; i++) {
            uint32_t code = t->bits == 32 ? i << 13 | (type == MR_MMA_FP32 ? i % 7 : 0) : i;
            double v = value((enum mr_mma_type)type, code);
            double want = decoded((enum mr_mma_type)type, code);
            ck_assert_msg(f64_bits(v) == f64_bits(want) || (isnan(v) && isnan(want)),
                          "%s %x: %a, %a", t->name, code, v, want);
            if (type == MR_MMA_UE8M0 || type == MR_MMA_UE4M3) continue;
            bool exact;
            uint32_t back =
                mr_mma_encode_exact((enum mr_mma_type)type, f32_bits((float)want), &exact);
            ck_assert_msg(exact && (back == code || isnan(want)), "%s %x: back %x", t->name, code,
                          back);
        }
    }
}
END_TEST

/* OCP Microscaling Formats 1.0, tables 4 and 5. */
START_TEST(validate_six_bit_formats)
{
    ck_assert(value(MR_MMA_E3M2, 0x01) == 0.0625 && value(MR_MMA_E3M2, 0x03) == 0.1875);
    ck_assert(value(MR_MMA_E3M2, 0x04) == 0.25 && value(MR_MMA_E3M2, 0x1f) == 28);
    ck_assert(value(MR_MMA_E3M2, 0x3f) == -28 && value(MR_MMA_E3M2, 0x0c) == 1);
    ck_assert(value(MR_MMA_E2M3, 0x01) == 0.125 && value(MR_MMA_E2M3, 0x07) == 0.875);
    ck_assert(value(MR_MMA_E2M3, 0x08) == 1 && value(MR_MMA_E2M3, 0x1f) == 7.5);
    ck_assert(value(MR_MMA_E2M3, 0x3f) == -7.5);
    for (uint32_t i = 0; i < 64; i++) {
        bool exact;
        uint32_t word = f32_bits((float)value(MR_MMA_E3M2, i));
        ck_assert(mr_mma_encode_exact(MR_MMA_E3M2, word, &exact) == i && exact);
        word = f32_bits((float)value(MR_MMA_E2M3, i));
        ck_assert(mr_mma_encode_exact(MR_MMA_E2M3, word, &exact) == i && exact);
    }
}
END_TEST

START_TEST(reject_values_that_do_not_fit)
{
    static const struct {
        enum mr_mma_type type;
        float value;
    } bad[] = {{MR_MMA_BF16, 0x1.01p0f},  {MR_MMA_FP16, 65520},     {MR_MMA_FP16, 0x1p-25f},
               {MR_MMA_E4M3, 464},        {MR_MMA_E4M3, 0x1p-10f},  {MR_MMA_E4M3, 0x1.8p-9f},
               {MR_MMA_E5M2, 61440},      {MR_MMA_E2M1, 8},         {MR_MMA_E2M1, 0.25f},
               {MR_MMA_E2M1, 5},          {MR_MMA_E3M2, 32},        {MR_MMA_E2M3, 8},
               {MR_MMA_TF32, 0x1.001p0f}, {MR_MMA_E2M1, INFINITY},  {MR_MMA_E4M3, INFINITY},
               {MR_MMA_E3M2, NAN},        {MR_MMA_BF16, 0x1p-134f}, {MR_MMA_E2M3, 0x1p-149f},
               {MR_MMA_UE4M3, -1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bool exact = true;
        mr_mma_encode_exact(bad[i].type, f32_bits(bad[i].value), &exact);
        ck_assert_msg(!exact, "%s %a", mr_mma_type_name(bad[i].type), (double)bad[i].value);
    }
}
END_TEST

Suite *suite_mma_format(void);
Suite *suite_mma_format(void)
{
    Suite *suite = suite_create("mma_format");
    TCase *formats = tcase_create("formats");
    tcase_add_test(formats, corroborate_formats);
    tcase_add_test(formats, validate_six_bit_formats);
    tcase_add_test(formats, reject_values_that_do_not_fit);
    suite_add_tcase(suite, formats);
    return suite;
}
