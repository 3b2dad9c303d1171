/* The parts of identify: that frames of one layout are one, that a frame is laid out as its shape
 * is, that vectors sum as the reference does, and that no sum errs beyond its reach. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/arith/identify_private.h"
#include "../ref/num/bits.h"
#include "../ref/num/num.h"
#include "support/identify_puzzle.h"
#include "support/mpfr_oracle.h"
#include "support/slow_sum.h"

Suite *suite_identify_parts(void);

static bool same_laid(const struct mr_laid *x, const struct mr_laid *y)
{
    bool same = x->parts == y->parts && x->levels == y->levels &&
                !memcmp(x->order, y->order, x->terms * sizeof *x->order) &&
                !memcmp(x->begin, y->begin, (x->parts + 1) * sizeof *x->begin);
    for (int i = 0; i < x->levels && same; i++)
        same = x->nodes[i] == y->nodes[i] &&
               !memcmp(x->children[i], y->children[i], x->nodes[i] * sizeof **x->children);
    return same;
}

/* Every frame of a layout, at sizes that divide well and at some that do not. */
START_TEST(verify_frames_of_a_layout_are_one)
{
    static const size_t terms[] = {1, 7, 64, 100, 333, 512, 1000};
    for (int kind = MR_FAMILY_SIMT; kind <= MR_FAMILY_MMA; kind++) {
        struct mr_family y;
        struct mr_laid first, other;
        size_t k = terms[_i], members = 0, distinct = 0;
        uint64_t *seen;
        ck_assert(!mr_family_make((enum mr_family_kind)kind, k, &y, NULL));
        ck_assert(!mr_laid_new(k, &first, NULL));
        ck_assert(!mr_laid_new(k, &other, NULL));
        seen = calloc(y.frames + 1, sizeof *seen);
        ck_assert(seen != NULL);
        for (size_t i = 0; i < y.layouts; i++) {
            const struct mr_layout *l = &y.layout[i];
            mr_lay(&y.frame[y.member[l->first]], &first);
            distinct++;
            for (uint32_t m = 0; m < l->count; m++, members++) {
                seen[y.member[l->first + m]]++;
                mr_lay(&y.frame[y.member[l->first + m]], &other);
                ck_assert(same_laid(&first, &other));
            }
        }
        ck_assert_uint_eq(members, y.frames);
        for (size_t i = 0; i < y.frames; i++) ck_assert_uint_eq(seen[i], 1);
        ck_assert_uint_ge(distinct, 1);
        free(seen);
        mr_laid_free(&first);
        mr_laid_free(&other);
        mr_family_free(&y);
    }
}
END_TEST

/* Terms, parts and the tree are those of mr_plan_make. */
START_TEST(corroborate_layouts_are_plans)
{
    uint64_t seed = 5;
    struct mr_family y;
    struct mr_laid laid;
    size_t k = _i ? 333 : 512;
    uint64_t *scratch = calloc(2 * k + 2, sizeof *scratch);
    ck_assert(!mr_family_make(MR_FAMILY_SIMT, k, &y, NULL));
    ck_assert(!mr_laid_new(k, &laid, NULL));
    struct identify_leaf leaf = {.leaf = MR_LEAF_FMA, .how = BY_FMA};
    uint64_t key[2], plan_key[2];
    for (int i = 0; i < 4000; i++) {
        const struct mr_frame *f = &y.frame[oracle_random(&seed) % y.frames];
        unsigned c = (unsigned)(oracle_random(&seed) % MR_FRAME_COMBINATIONS);
        c &= (1u << (2 * f->levels)) - 1;
        struct mr_sum_shape shape = mr_frame_shape(f, c, 0);
        struct mr_plan plan;
        shape.leaf = MR_LEAF_FMA;
        mr_lay(f, &laid);
        ck_assert(!mr_plan_make(&shape, k, &plan, NULL));
        ck_assert_uint_eq(plan.parts, laid.parts);
        ck_assert_mem_eq(plan.begin, laid.begin, (plan.parts + 1) * sizeof *plan.begin);
        for (size_t j = 0; j < k; j++)
            ck_assert_uint_eq(plan.order ? plan.order[j] : j, laid.order[j]);
        /* Of this shape and the one before: equal keys here, equal keys there. */
        key[i % 2] = identify_key(&leaf, &laid, c, scratch);
        ck_assert(!mr_plan_key(&shape, &plan, &plan_key[i % 2], NULL));
        if (i) ck_assert_int_eq(key[0] == key[1], plan_key[0] == plan_key[1]);
        /* And of the ways that are said to be the same. */
        unsigned same = mr_laid_combination(&laid, c);
        ck_assert(identify_key(&leaf, &laid, same, scratch) == key[i % 2]);
        mr_plan_free(&plan);
    }
    free(scratch);
    mr_laid_free(&laid);
    mr_family_free(&y);
}
END_TEST

/* Numbers of bf16 for sixteen lanes: of kinds that are hard for a step. */
static void hard_numbers(uint64_t *seed, int kind, float *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t r = oracle_random(seed);
        int spread = kind == 0 ? 3 : kind == 1 ? 40 : kind == 2 ? 140 : 250;
        int exponent = kind == 4 ? 0 : (int)(r >> 8 & 0xffff) % spread - spread / 2;
        uint32_t word = (uint32_t)(127 + exponent) << 23 | (uint32_t)(r & 0x7f) << 16 |
                        (uint32_t)(r >> 40 & 1) << 31;
        if (kind == 4) word = 0x3fff0000; /* all as large as they get: sums of 32 bits */
        if ((r >> 50 & 15) == 0 && kind != 4) word &= 0x80000000;
        v[i] = f32_from(word);
    }
}

/* Steps of vectors against the integer reference, wherever they say that they are sure; and on
 * usual numbers they are. */
START_TEST(corroborate_steps_with_the_reference)
{
    enum { W = MR_IDENTIFY_WIDTH, K = 256 };
    static const char *const names[] = {"hopper-bf16", "ampere-bf16", "hopper-tf32", "ampere-tf32"};
    static float a[K * W], b[K * W], p[K * W], sums[K * W];
    static int32_t e[K * W];
    uint8_t unsure[K];
    uint64_t seed = 77;
    struct mr_lane_terms t = {K, a, b, p, e};
    struct mr_laid laid;
    ck_assert(!mr_laid_new(K, &laid, NULL));
    size_t sure = 0, doubtful = 0;
    for (int round = 0; round < 100; round++) {
        int kind = round % 5;
        const struct mr_mma *m = mr_mma_find(names[round % 4], 11);
        struct mr_frame f = {1, {{MR_CUT_DEAL, 1, (uint16_t)(1 + round % 7), 8}}};
        hard_numbers(&seed, kind, a, K * W);
        hard_numbers(&seed, kind, b, K * W);
        MR_ISA_PICK(mr_lane_products)(&t, -126, -126);
        mr_lay(&f, &laid);
        struct mr_lane_mma steps = {m->terms, m->fraction, ~0u};
        MR_ISA_PICK(mr_lane_parts_mma)(&t, &laid, steps, sums, unsure);
        for (size_t part = 0; part < laid.parts; part++) {
            if (unsure[part]) {
                doubtful++;
                ck_assert_int_ge(kind, 2);
                continue;
            }
            sure++;
            for (int lane = 0; lane < W; lane++) {
                uint32_t x[K], y[K];
                size_t n = 0;
                for (size_t i = laid.begin[part]; i < laid.begin[part + 1]; i++, n++) {
                    size_t at = (size_t)laid.order[i] * W + (size_t)lane;
                    int shift = m->a == MR_MMA_TF32 ? 0 : 16;
                    x[n] = f32_bits(a[at]) >> shift;
                    y[n] = f32_bits(b[at]) >> shift;
                }
                uint32_t d = mr_mma_step(m, x, y, n, 0, NULL);
                ck_assert_uint_eq(d, f32_bits(sums[part * W + (size_t)lane]));
            }
        }
    }
    ck_assert_uint_gt(sure, 100);
    ck_assert_uint_gt(doubtful, 10);
    mr_laid_free(&laid);
}
END_TEST

/* |sum - exact sum| <= reach 2^-24 sum|p|, for lines of every kind. */
START_TEST(verify_no_sum_errs_beyond_its_reach)
{
    uint64_t seed = 99;
    size_t k = 200;
    struct mr_family y[2];
    struct mr_laid laid;
    double worst = 0;
    ck_assert(!mr_family_make(MR_FAMILY_SIMT, k, &y[0], NULL));
    ck_assert(!mr_family_make(MR_FAMILY_MMA, k, &y[1], NULL));
    ck_assert(!mr_laid_new(k, &laid, NULL));
    for (int i = 0; i < 600; i++) {
        struct identify s = {.operands = {{.exact = true}}};
        const struct mr_mma *m = mr_mma_find(i % 4 == 1 ? "hopper-bf16" : "ampere-bf16", 11);
        bool fused = i % 2;
        struct identify_leaf leaf = {.leaf = fused ? MR_LEAF_MMA : MR_LEAF_FMA,
                                     .mma = fused ? m : NULL,
                                     .how = fused ? BY_STEPS : BY_ADDING,
                                     .steps = {m->terms, m->fraction, ~0u}};
        const struct mr_family *f = &y[fused];
        const struct mr_layout *l = &f->layout[oracle_random(&seed) % f->layouts];
        const struct mr_frame *frame = &f->frame[f->member[l->first]];
        struct mr_sum_shape shape = mr_frame_shape(frame, 0, 0);
        float x[200], w[200];
        shape.leaf = leaf.leaf;
        shape.mma = leaf.mma;
        slow_fill(&seed, (enum slow_class)(i % 3 == 2 ? SLOW_SPREAD : SLOW_NORMAL), 8, x, k);
        slow_fill(&seed, SLOW_NORMAL, 8, w, k);
        mr_lay(frame, &laid);
        double reach = identify_reach(&s, &leaf, &laid, l->reduces), sum = 0, size = 0;
        for (size_t j = 0; j < k; j++) {
            sum += (double)x[j] * (double)w[j];
            size += fabs((double)x[j] * (double)w[j]);
        }
        double off = fabs((double)slow_sum(&shape, x, w, k, NULL) - sum) / (0x1p-24 * size);
        ck_assert_msg(off <= reach, "%g beyond %g", off, reach);
        if (off / reach > worst) worst = off / reach;
    }
    ck_assert_double_gt(worst, 0.001); /* it is a bound of something */
    mr_laid_free(&laid);
    mr_family_free(&y[0]);
    mr_family_free(&y[1]);
}
END_TEST

Suite *suite_identify_parts(void)
{
    Suite *s = suite_create("identify_parts");
    TCase *tc = tcase_create("parts");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, verify_frames_of_a_layout_are_one, 0, 7);
    tcase_add_loop_test(tc, corroborate_layouts_are_plans, 0, 2);
    tcase_add_test(tc, corroborate_steps_with_the_reference);
    tcase_add_test(tc, verify_no_sum_errs_beyond_its_reach);
    suite_add_tcase(s, tc);
    return s;
}
