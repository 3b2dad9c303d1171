/* The loops for many outputs against the reference, at every instruction set. */
#include <check.h>
#include <fenv.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "../ref/isa.h"
#include "support/mma_inputs.h"

enum { MOST = 256 };

/* Check forks for every test: nothing of this process has asked for the level before. */
static bool set_isa(int level)
{
    static const char *const names[] = {"base", "v3", "v4"};
    setenv("MOEREF_ISA", names[level], 1);
    return (int)mr_isa_best() == level; /* else the processor has less, or CK_FORK=no */
}

static bool is_long(void)
{
    return getenv("MOEREF_LONG") != NULL;
}

static uint32_t *shuffled(size_t n, uint64_t *s)
{
    uint32_t *order = malloc(n * sizeof *order + 1);
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    for (size_t i = n; i > 1; i--) {
        size_t j = mma_below(s, (uint32_t)i);
        uint32_t swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
    return order;
}

/* Chains over a random range in a random order; returns how many steps were compared. */
static size_t compare(const struct mma_case *m, const char *what, uint64_t *s)
{
    size_t block = m->mma->scale_block ? (size_t)m->mma->scale_block : 1;
    size_t begin = mma_below(s, 3) ? 0 : mma_below(s, (uint32_t)(m->k / block)) * block;
    size_t end = mma_below(s, 3) ? m->k : begin + mma_below(s, (uint32_t)(m->k - begin) + 1);
    uint32_t *order = block == 1 && mma_below(s, 3) == 0 ? shuffled(m->k, s) : NULL;
    bool from_zero = mma_below(s, 4) == 0;
    uint32_t *d = malloc(m->rows * m->cols * sizeof *d);
    struct mr_mma_operand a = mma_case_a(m), b = mma_case_b(m);
    struct mr_mma_packed *packed;
    struct mr_error err = {{0}};
    ck_assert_msg(!mr_mma_pack(m->mma, &b, order, &packed, &err), "%s", err.text);
    ck_assert_msg(!mr_mma_chain(packed, &a, begin, end, from_zero ? NULL : m->c, d, &err), "%s",
                  err.text);
    for (size_t r = 0; r < m->rows; r++) {
        for (size_t c = 0; c < m->cols; c++) {
            size_t at = r * m->cols + c;
            uint32_t want =
                mma_case_reference(m, r, c, begin, end, order, from_zero ? 0 : m->c[at]);
            ck_assert_msg(d[at] == want,
                          "%s, %s: row %zu, column %zu, [%zu, %zu)%s: %08x, reference %08x",
                          m->mma->name, what, r, c, begin, end, order ? " in another order" : "",
                          d[at], want);
        }
    }
    mr_mma_packed_free(packed);
    free(order);
    free(d);
    size_t columns = mr_mma_step_columns(m->mma);
    return m->rows * m->cols * ((end - begin + columns - 1) / columns);
}

/* In the long run 10^8 steps, over the three levels. */
START_TEST(corroborate_loops_and_reference)
{
    if (!set_isa(_i)) return;
    const struct mr_mma *rows[MOST];
    size_t n = mma_distinct(rows, MOST), steps = 0;
    size_t wanted = is_long() ? 34000000 : 400000;
    uint64_t s = 17 + (uint64_t)_i;
    while (steps < wanted) {
        for (int class = 0; class < MMA_CLASSES; class ++) {
            /* Every class meets every row in time; the rows of GEMMs in use more often. */
            const struct mr_mma *mma = rows[mma_below(&s, (uint32_t)n)];
            if (mma_below(&s, 2)) mma = mr_mma_find("hopper-bf16", 11);
            struct mma_case m;
            size_t r = 1 + mma_below(&s, 9), c = 1 + mma_below(&s, 70), k = 1 + mma_below(&s, 130);
            mma_case_make(&m, mma, (enum mma_class) class, r, c, k, &s);
            steps += compare(&m, mma_class_names[class], &s);
            mma_case_free(&m);
        }
    }
}
END_TEST

/* Every distinct row with every class. */
START_TEST(corroborate_every_row)
{
    if (!set_isa(_i)) return;
    const struct mr_mma *rows[MOST];
    size_t n = mma_distinct(rows, MOST);
    ck_assert_uint_gt(n, 100);
    ck_assert_uint_lt(n, MOST);
    uint64_t s = 5;
    for (size_t i = 0; i < n; i++) {
        for (int class = 0; class < MMA_CLASSES; class ++) {
            struct mma_case m;
            mma_case_make(&m, rows[i], (enum mma_class) class, 3, 35, 70, &s);
            compare(&m, mma_class_names[class], &s);
            mma_case_free(&m);
        }
    }
}
END_TEST

/* N(0,1), zeros and short ranges stay in the loops: none of the comparisons above is of the
 * reference with itself. */
START_TEST(verify_loops_are_used)
{
    if (!set_isa(_i)) return;
    static const char *const names[] = {"hopper-bf16",
                                        "ampere-tf32",
                                        "hopper-e4m3",
                                        "volta-fp16-fp16",
                                        "hopper-mma-e5m2",
                                        "hopper-mma-e4m3-fp16",
                                        "blackwell-mx-e4m3-e2m1",
                                        "blackwell-mxf4",
                                        "blackwell-nvf4"};
    uint64_t s = 3;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (int class = MMA_NORMAL; class <= MMA_ZEROS; class += MMA_ZEROS - MMA_NORMAL) {
            struct mma_case m;
            const struct mr_mma *mma = mr_mma_find(names[i], strlen(names[i]));
            mma_case_make(&m, mma, (enum mma_class) class, 8, 40, 100, &s);
            size_t before = mr_mma_chain_fallbacks();
            compare(&m, mma_class_names[class], &s);
            /* A sum that fp16 rounds to zero, or E below -100 of one small product, is rare. */
            ck_assert_msg(mr_mma_chain_fallbacks() - before <= 3, "%s, %s: %zu of 320", names[i],
                          mma_class_names[class], mr_mma_chain_fallbacks() - before);
            mma_case_free(&m);
        }
    }
}
END_TEST

static void chain(const struct mr_mma_packed *packed, const struct mma_case *m, size_t begin,
                  size_t end, const uint32_t *c, uint32_t *d)
{
    struct mr_mma_operand a = mma_case_a(m);
    struct mr_error err = {{0}};
    ck_assert_msg(!mr_mma_chain(packed, &a, begin, end, c, d, &err), "%s", err.text);
}

/* A host's rounding mode, FTZ and DAZ change nothing, and are found as they were. */
START_TEST(verify_any_environment)
{
    static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};
    static uint32_t want[9 * 40], got[9 * 40];
    uint64_t s = 11;
    for (int round = 0; round < 12 * MMA_CLASSES; round++) {
        struct mma_case m;
        struct mr_mma_packed *packed;
        const struct mr_mma *mma = mr_mma_at(mma_below(&s, (uint32_t)mr_mma_count()));
        if (round % 2) mma = mr_mma_find("hopper-bf16", 11);
        enum mma_class class = (enum mma_class)(round % MMA_CLASSES);
        mma_case_make(&m, mma, class, 9, 40, 64, &s);
        struct mr_mma_operand b = mma_case_b(&m);
        ck_assert_int_eq(mr_mma_pack(mma, &b, NULL, &packed, NULL), MR_OK);
        chain(packed, &m, 0, 64, m.c, want);
        for (int i = 0; i < 8; i++) {
            fesetround(modes[i % 4]);
#ifdef __SSE2__
            if (i >= 4) _mm_setcsr(_mm_getcsr() | 0x8040);
            unsigned csr = _mm_getcsr() & 0xffc0;
            chain(packed, &m, 0, 64, m.c, got);
            unsigned after = _mm_getcsr() & 0xffc0;
            _mm_setcsr(0x1f80);
            ck_assert_uint_eq(csr, after);
#else
            chain(packed, &m, 0, 64, m.c, got);
            ck_assert_int_eq(fegetround(), modes[i % 4]);
#endif
            fesetround(FE_TONEAREST);
            ck_assert_mem_eq(got, want, sizeof want);
        }
        mr_mma_packed_free(packed);
        mma_case_free(&m);
    }
}
END_TEST

/* One pass, or runs of whole steps that go on from each other; d may be c; threads share. */
START_TEST(verify_runs_and_threads)
{
    enum { R = 40, C = 50, K = 256 };
    static uint32_t whole[R * C], parts[R * C], shared[R * C];
    uint64_t s = 23;
    struct mma_case m;
    const struct mr_mma *mma = mr_mma_find("hopper-bf16", 11);
    mma_case_make(&m, mma, MMA_NORMAL, R, C, K, &s);
    struct mr_mma_operand b = mma_case_b(&m);
    struct mr_mma_packed *packed;
    ck_assert_int_eq(mr_mma_pack(mma, &b, NULL, &packed, NULL), MR_OK);
    chain(packed, &m, 0, K, m.c, whole);
    memcpy(parts, m.c, sizeof parts);
    for (size_t at = 0; at < K; at += 64) chain(packed, &m, at, at + 64, parts, parts);
    ck_assert_mem_eq(parts, whole, sizeof whole);
    uint32_t kept = m.c[5];
    m.c[5] = 0x7f800123;
    chain(packed, &m, 16, 16, m.c, parts); /* nothing, not even to a NaN */
    ck_assert_mem_eq(parts, m.c, sizeof parts);
    m.c[5] = kept;
#pragma omp parallel for schedule(dynamic) num_threads(4)
    for (int r = 0; r < R; r++) {
        struct mr_mma_operand row = mma_case_a(&m);
        row.data = m.packed_a + (size_t)r * K * 2;
        row.rows = 1;
        mr_mma_chain(packed, &row, 0, K, m.c + r * C, shared + r * C, NULL);
    }
    ck_assert_mem_eq(shared, whole, sizeof whole);
    mr_mma_packed_free(packed);
    mma_case_free(&m);
}
END_TEST

/* Rows further apart than they are long, at odd addresses. */
START_TEST(verify_pitch_and_alignment)
{
    enum { R = 3, C = 5, K = 33, PITCH = 37 };
    static unsigned char bytes[2 * R * PITCH + 1];
    uint32_t want[R * C], got[R * C];
    uint64_t s = 29;
    struct mma_case m;
    const struct mr_mma *mma = mr_mma_find("hopper-fp16", 11);
    mma_case_make(&m, mma, MMA_NORMAL, R, C, K, &s);
    struct mr_mma_operand a = mma_case_a(&m), b = mma_case_b(&m);
    struct mr_mma_packed *packed;
    ck_assert_int_eq(mr_mma_pack(mma, &b, NULL, &packed, NULL), MR_OK);
    chain(packed, &m, 0, K, NULL, want);
    for (size_t r = 0; r < R; r++) memcpy(bytes + 1 + 2 * r * PITCH, m.packed_a + 2 * r * K, 2 * K);
    a.data = bytes + 1;
    a.pitch = PITCH;
    ck_assert_int_eq(mr_mma_chain(packed, &a, 0, K, NULL, got, NULL), MR_OK);
    ck_assert_mem_eq(got, want, sizeof want);
    mr_mma_packed_free(packed);
    mma_case_free(&m);
}
END_TEST

START_TEST(reject_wrong_calls)
{
    uint64_t s = 31;
    struct mma_case m;
    const struct mr_mma *mma = mr_mma_find("blackwell-mx-e4m3", 17);
    mma_case_make(&m, mma, MMA_NORMAL, 2, 2, 64, &s);
    struct mr_mma_operand a = mma_case_a(&m), b = mma_case_b(&m), bare = b;
    struct mr_mma_packed *packed;
    struct mr_error err = {{0}};
    uint32_t order[64] = {0}, d[4];
    ck_assert_int_eq(mr_mma_pack(mma, &b, order, &packed, &err), MR_ERR_UNSUPPORTED);
    ck_assert_ptr_null(packed);
    bare.scales = NULL;
    ck_assert_int_eq(mr_mma_pack(mma, &bare, NULL, &packed, &err), MR_ERR_USAGE);
    ck_assert_int_eq(mr_mma_pack(mma, &b, NULL, &packed, &err), MR_OK);
    ck_assert_int_eq(mr_mma_chain(packed, &a, 16, 64, NULL, d, &err), MR_ERR_USAGE);
    ck_assert_str_eq(err.text, "blackwell-mx-e4m3: a range begins inside of a block of scales");
    ck_assert_int_eq(mr_mma_chain(packed, &a, 32, 65, NULL, d, &err), MR_ERR_USAGE);
    ck_assert_int_eq(mr_mma_chain(packed, &a, 64, 32, NULL, d, &err), MR_ERR_USAGE);
    a.cols = 63;
    ck_assert_int_eq(mr_mma_chain(packed, &a, 0, 63, NULL, d, &err), MR_ERR_SHAPE);
    mr_mma_packed_free(packed);
    const struct mr_mma *plain = mr_mma_find("hopper-e4m3", 11);
    order[63] = 64;
    ck_assert_int_eq(mr_mma_pack(plain, &b, order, &packed, &err), MR_ERR_USAGE);
    ck_assert_str_eq(err.text, "order: entry 63 is column 64 of 64");
    mma_case_free(&m);
}
END_TEST

Suite *suite_mma_chain(void);
Suite *suite_mma_chain(void)
{
    Suite *suite = suite_create("mma_chain");
    TCase *loops = tcase_create("loops");
    tcase_set_timeout(loops, getenv("MOEREF_LONG") ? 1800 : 120);
    tcase_add_loop_test(loops, corroborate_loops_and_reference, 0, MR_ISA_LEVELS);
    tcase_add_loop_test(loops, corroborate_every_row, 0, MR_ISA_LEVELS);
    tcase_add_loop_test(loops, verify_loops_are_used, 0, MR_ISA_LEVELS);
    tcase_add_test(loops, verify_any_environment);
    tcase_add_test(loops, verify_runs_and_threads);
    tcase_add_test(loops, verify_pitch_and_alignment);
    tcase_add_test(loops, reject_wrong_calls);
    suite_add_tcase(suite, loops);
    return suite;
}
