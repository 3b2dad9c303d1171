/* Row facts, on which the choice of a way to an exact dot rests, against GMP integers. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "../ref/exact/dot_simd.h"
#include "../ref/num/num.h"
#include "support/mpfr_oracle.h"

enum { MOST = 80 };

static const enum mr_dtype dtypes[3] = {MR_BF16, MR_F16, MR_F32};

static unsigned char row[4 * MOST];
static float wide[MOST];

static void (*const levels[])(struct mr_row_scan *, const float *, size_t) = {
    mr_row_scan_add_base,
#if MR_ISA_LEVELS == 3
    mr_row_scan_add_v3,
    mr_row_scan_add_v4,
#endif
};

static struct mr_row_stats in_pieces(enum mr_dtype d, size_t n, size_t piece)
{
    struct mr_row_scan scan;
    mr_widen_f32(row, d, n, wide);
    mr_row_scan_begin(&scan);
    for (size_t i = 0; i < n; i += piece)
        mr_row_scan_add(&scan, wide + i, n - i < piece ? n - i : piece);
    return mr_row_scan_end(&scan, d);
}

START_TEST(verify_row_stats)
{
    uint64_t seed = 4000 + (uint64_t)_i;
    enum mr_dtype d = dtypes[_i];
    mpz_t sum, e, norm;
    mpz_inits(sum, e, norm, NULL);
    for (size_t n = 0; n <= 80; n++)
        for (int low = 0; low < oracle_fields(d).top + 1; low += d == MR_F16 ? 3 : 23) {
            oracle_fill(&seed, row, d, n, low, (int)(oracle_random(&seed) % 9));
            struct mr_row_stats s = in_pieces(d, n, 1 + oracle_random(&seed) % 40);
            ck_assert(s.finite);
            double max = 0;
            mpz_set_ui(sum, 0);
            for (size_t i = 0; i < n; i++) {
                double v = oracle_value(row, d, i);
                if (fabs(v) > max) max = fabs(v);
                oracle_element(e, row, d, i);
                ck_assert(mpz_sgn(e) == 0 || mpz_scan1(e, 0) >= (unsigned long)(s.ulp + 149));
                mpz_addmul(sum, e, e);
            }
            ck_assert(s.max == max);
            mpz_set_d(norm, ldexp(s.norm, 149 + 60)); /* an integer: norm >= 2^-149 */
            mpz_mul(norm, norm, norm);
            mpz_mul_2exp(sum, sum, 120);
            ck_assert_msg(mpz_cmp(norm, sum) >= 0, "norm %a is too small, n = %zu", s.norm, n);
            mpz_fdiv_q_2exp(e, sum, 39);
            mpz_add(sum, sum, e);
            ck_assert_msg(mpz_cmp(norm, sum) <= 0, "norm %a is too large, n = %zu", s.norm, n);
        }
    mpz_clears(sum, e, norm, NULL);
}
END_TEST

/* Levels differ in the order of the sum of squares only: extremes and count agree. */
START_TEST(verify_row_scan_levels)
{
    uint64_t seed = 5000;
    for (size_t n = 0; n <= 70; n++)
        for (int kind = 0; kind < 4; kind++) {
            oracle_fill(&seed, row, MR_F32, n, kind * 80, kind * 4);
            if (kind == 0 && n) oracle_put(row, MR_F32, n / 3, 1, 0, 0);
            if (kind == 3 && n) oracle_put(row, MR_F32, n - 1, (int)n & 1, 255, (uint32_t)n & 2);
            memcpy(wide, row, n * 4);
            struct mr_row_scan want, got;
            mr_row_scan_begin(&want);
            for (size_t i = 0; i < n; i++) mr_row_scan_add_base(&want, wide + i, 1);
            for (int isa = 0; isa <= (int)mr_isa_best(); isa++) {
                mr_row_scan_begin(&got);
                levels[isa](&got, wide, n);
                ck_assert(got.max_bits == want.max_bits && got.min_bits == want.min_bits &&
                          got.count == n);
                ck_assert_int_eq(mr_row_scan_end(&got, MR_F32).finite, kind != 3 || n == 0);
            }
        }
}
END_TEST

/* Every place of a zero beside the smallest element, in every lane: negating the magnitudes as
 * signed integers overflowed at the zero, which gcc 12 took for a licence to lose the element. */
START_TEST(verify_zero_beside_smallest)
{
    for (size_t n = 2; n <= 64; n++)
        for (size_t zero = 0; zero < n; zero++)
            for (size_t least = zero >= 33 ? zero - 33 : 0; least < n && least < zero + 34;
                 least++) {
                if (least == zero) continue;
                for (size_t i = 0; i < n; i++) wide[i] = (float)(i + 2);
                wide[zero] = zero & 1 ? -0.0f : 0.0f;
                wide[least] = -0x1p-140f;
                for (int isa = 0; isa <= (int)mr_isa_best(); isa++) {
                    struct mr_row_scan scan;
                    mr_row_scan_begin(&scan);
                    levels[isa](&scan, wide, n);
                    ck_assert_msg(scan.min_bits == 1u << 9,
                                  "%s, n = %zu, zero at %zu, least at %zu",
                                  mr_isa_name((enum mr_isa)isa), n, zero, least);
                }
            }
}
END_TEST

Suite *suite_exact_rows(void);
Suite *suite_exact_rows(void)
{
    Suite *suite = suite_create("exact_rows");
    TCase *tc = tcase_create("rows");
    tcase_add_loop_test(tc, verify_row_stats, 0, 3);
    tcase_add_test(tc, verify_row_scan_levels);
    tcase_add_test(tc, verify_zero_beside_smallest);
    suite_add_tcase(suite, tc);
    return suite;
}
