/* The random numbers below the generator of synthetic layers. */
#include <check.h>
#include <math.h>

#include "../ref/io/generate_rows.h"
#include "../ref/num/num.h"

/* The first values of seed 1234567 of the public-domain splitmix64.c (Vigna, prng.di.unimi.it), as
 * Rosetta Code's task "Pseudo-random numbers/Splitmix64" prints them. */
START_TEST(validate_bits_are_splitmix64)
{
    static const uint64_t expected[] = {
        UINT64_C(6457827717110365317), UINT64_C(3203168211198807973), UINT64_C(9817491932198370423),
        UINT64_C(4593380528125082431), UINT64_C(16408922859458223821)};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        ck_assert_uint_eq(mr_generate_bits(1234567, i), expected[i]);
}
END_TEST

START_TEST(corroborate_normal_counts_and_adds)
{
    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t bits = i < 64 ? UINT64_C(1) << i : mr_generate_bits(3, i);
        int32_t ones = 0;
        for (int b = 0; b < 32; b++) ones += (int32_t)(bits >> b & 1);
        int32_t high = (int32_t)(bits >> 48), low = (int32_t)(bits >> 32 & 0xffff);
        ck_assert_int_eq(mr_generate_normal(bits), (ones - 16) * 65536 + high - low);
    }
    ck_assert_int_eq(mr_generate_normal(UINT64_C(0xffff0000ffffffff)), 16 * 65536 + 65535);
    ck_assert_int_eq(mr_generate_normal(UINT64_C(0x0000ffff00000000)), -16 * 65536 - 65535);
}
END_TEST

/* Sample moments against the exact ones: 32 coins have variance 8 and fourth cumulant -4 (in units
 * of 2^16), each uniform 1/12 and -1/120. Bounds are five standard errors of a normal's moments. */
START_TEST(validate_moments_of_normal)
{
    const double count = 1 << 20, sd = sqrt(8 + 2.0 / 12), kurtosis = -(4 + 2.0 / 120) / pow(sd, 4);
    ck_assert_double_eq_tol(MR_GENERATE_SD / 65536, sd, 1e-9);
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    for (uint64_t i = 0; i < (1 << 20); i++) {
        double z = mr_generate_normal(mr_generate_bits(11, i)) / MR_GENERATE_SD, z2 = z * z;
        m1 += z / count, m2 += z2 / count, m3 += z2 * z / count, m4 += z2 * z2 / count;
    }
    ck_assert_double_eq_tol(m1, 0, 5 / sqrt(count));
    ck_assert_double_eq_tol(m2, 1, 5 * sqrt(2 / count));
    ck_assert_double_eq_tol(m3, 0, 5 * sqrt(15 / count));
    ck_assert_double_eq_tol(m4, 3 + kurtosis, 5 * sqrt(96 / count));
}
END_TEST

START_TEST(corroborate_bf16_with_num)
{
    static const double special[] = {0,          0x1p-126, 0x1.fcp-127,  0x1.ffp-127, 1.00390625,
                                     1.01171875, 255.5,    0x1.fefp+126, 1e-6,        0x1.fffp5};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        uint16_t expected = mr_bf16_encode(special[i], MR_RNE, MR_OVERFLOW_IEEE);
        if (expected < 0x80) expected = 0; /* below 2^-126 */
        ck_assert_uint_eq(mr_generate_bf16(special[i]), expected);
        if (expected) ck_assert_uint_eq(mr_generate_bf16(-special[i]), expected | 0x8000);
    }
    for (uint64_t i = 0; i < 200000; i++) {
        /* Half of the values lie on or beside a tie. */
        uint64_t bits = mr_generate_bits(5, i);
        double v = (double)(int64_t)bits;
        if (i & 1) {
            double tie = (double)((bits & 0x7f) | 0x80) + 0.5;
            v = ldexp(tie, 40) + (double)((int)(bits >> 62) - 1);
        }
        ck_assert_uint_eq(mr_generate_bf16(ldexp(v, -60)),
                          mr_bf16_encode(ldexp(v, -60), MR_RNE, MR_OVERFLOW_IEEE));
    }
}
END_TEST

Suite *suite_generate_rows(void);
Suite *suite_generate_rows(void)
{
    Suite *suite = suite_create("generate_rows");
    TCase *numbers = tcase_create("numbers");
    tcase_add_test(numbers, validate_bits_are_splitmix64);
    tcase_add_test(numbers, corroborate_normal_counts_and_adds);
    tcase_add_test(numbers, validate_moments_of_normal);
    tcase_add_test(numbers, corroborate_bf16_with_num);
    suite_add_tcase(suite, numbers);
    return suite;
}
