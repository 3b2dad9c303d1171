/* The filter keeps its radius, and a token's answer depends on nothing but the token. */
#include <check.h>
#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "../ref/isa.h"
#include "../ref/route/filter.h"
#include "support/routed.h"

static const enum mr_dtype types[] = {MR_BF16, MR_F16, MR_F32};

/* Five kinds: score, form of the weight and bias. Softmax gaps are compared within their radii:
 * their denominators come from the filter. */
enum { KINDS = 5 };

static struct problem *kind(int i, size_t tokens, int hidden, enum mr_dtype x, enum mr_dtype w)
{
    uint64_t state = 41;
    enum mr_score score = i < 2 ? MR_SCORE_SIGMOID : MR_SCORE_SOFTMAX;
    struct problem *p = problem_new(score, 40, 6, hidden, tokens, x, w, i == 1 || i == 3);
    problem_fill(&p->layer.hidden, 1, &state);
    problem_fill(&p->layer.gate, 2 / sqrt(hidden), &state);
    /* With softmax, so large that the largest logit may be no candidate. */
    if (p->bias) problem_fill_bias(p, i == 3 ? 2 : 0.1, &state);
    p->router.norm_topk_prob = i != 4;
    for (size_t j = 0; j < (size_t)hidden; j++) /* one pair that ties wherever it ranks */
        problem_set(&p->layer.gate, 30, j, brute_element(&p->layer.gate, 20, j));
    return p;
}

START_TEST(verify_threads)
{
    static const int threads[] = {2, 3, 7};
    for (int i = 0; i < KINDS; i++) {
        struct problem *p = kind(i, 1500, 70, MR_BF16, MR_BF16);
        const struct mr_arith arith[] = {
            {0},
            {.logits = MR_TYPE_BF16, .bias = MR_TYPE_BF16, .weights = MR_TYPE_BF16}};
        struct answers one, many;
        struct mr_route_options o = {.threads = 1, .arith = arith, .arith_count = i % 2 ? 2 : 0};
        routed(&p->layer, &o, &one);
        for (int t = 0; t < 3; t++) {
            o.threads = threads[t];
            routed(&p->layer, &o, &many);
            expect_same(&one, 0, &many, 0, 1500, true, "threads");
            ck_assert(!memcmp(one.radius, many.radius, 1500 * sizeof(double)));
            ck_assert(!memcmp(one.certificate, many.certificate, 1500));
            ck_assert(!memcmp(&one.result, &many.result, sizeof one.result));
            ck_assert(!memcmp(one.flips, many.flips, o.arith_count * sizeof *one.flips));
            ck_assert_uint_eq(one.tie_count, many.tie_count);
            answers_free(&many);
        }
        answers_free(&one);
        problem_free(p);
    }
}
END_TEST

/* Slices of every size and offset around a block give what the whole gives. */
START_TEST(verify_batches)
{
    static const size_t sizes[] = {1, 2, 127, 128, 129, 255, 256, 257}, firsts[] = {0, 1, 5, 200};
    for (int i = 0; i < KINDS; i++)
        for (int x = 0; x < 3; x++) {
            struct problem *p = kind(i, 520, 300, types[x], types[x]);
            struct answers whole, part;
            routed(&p->layer, NULL, &whole);
            for (int s = 0; s < 8; s++)
                for (int f = 0; f < 4; f++) {
                    struct mr_layer l = problem_slice(&p->layer, firsts[f], sizes[s]);
                    if (sizes[s] > 2 && f % 3 == 1) continue; /* time */
                    routed(&l, NULL, &part);
                    expect_same(&whole, firsts[f], &part, 0, sizes[s], i < 2, "batch");
                    answers_free(&part);
                }
            answers_free(&whole);
            problem_free(p);
        }
}
END_TEST

START_TEST(verify_permuted_rows)
{
    for (int i = 0; i < KINDS; i++) {
        struct problem *p = kind(i, 300, 270, MR_BF16, MR_F32),
                       *q = kind(i, 300, 270, MR_BF16, MR_F32);
        for (size_t t = 0; t < 300; t++) /* 7 and 300 have no common factor */
            memcpy((char *)q->layer.hidden.data + t * 540,
                   (const char *)p->layer.hidden.data + t * 7 % 300 * 540, 540);
        struct answers a, b;
        routed(&p->layer, NULL, &a);
        routed(&q->layer, NULL, &b);
        for (size_t t = 0; t < 300; t++) expect_same(&a, t * 7 % 300, &b, t, 1, i < 2, "permuted");
        answers_free(&a);
        answers_free(&b);
        problem_free(p);
        problem_free(q);
    }
}
END_TEST

START_TEST(verify_narrow_wide_and_no_blas)
{
    for (int i = 0; i < KINDS; i++)
        for (int x = 0; x < 3; x++) {
            struct problem *p = kind(i, 260, 520, types[x], types[(x + i) % 3]);
            const struct mr_arith arith = {0};
            struct answers narrow, wide, exact, emulated;
            routed(&p->layer, &(struct mr_route_options){.threads = 1}, &narrow);
            routed(&p->layer, &(struct mr_route_options){.threads = 1, .wide_filter = true}, &wide);
            routed(&p->layer, &(struct mr_route_options){.threads = 1, .without_blas = true},
                   &exact);
            routed(&p->layer,
                   &(struct mr_route_options){.threads = 1, .arith = &arith, .arith_count = 1},
                   &emulated);
            expect_same(&narrow, 0, &wide, 0, 260, i < 2, "wide");
            expect_same(&narrow, 0, &exact, 0, 260, i < 2, "without BLAS");
            expect_same(&narrow, 0, &emulated, 0, 260, i < 2, "emulated");
            for (size_t t = 0; t < 260; t++)
                ck_assert((narrow.certificate[t] == MR_CERT_TIE) ==
                          (exact.certificate[t] == MR_CERT_TIE));
            expect_truth(&p->layer, &exact, 100, false, "without BLAS");
            answers_free(&narrow);
            answers_free(&wide);
            answers_free(&exact);
            answers_free(&emulated);
            problem_free(p);
        }
}
END_TEST

/* What one level of instruction set answers, in memory shared with the parent. */
enum { ROWS = 200, TOP = 6 };
struct shared {
    enum mr_isa isa;
    int32_t ids[KINDS][ROWS * TOP];
    double weights[KINDS][ROWS * TOP], gap[KINDS][ROWS], radius[KINDS][ROWS];
    struct mr_flips flips[KINDS];
};

static void answer(struct shared *s)
{
    const struct mr_arith arith = {.logits = MR_TYPE_BF16, .bias = MR_TYPE_BF16,
                                    .scores = MR_TYPE_BF16, .weights = MR_TYPE_BF16};
    s->isa = mr_isa_best();
    for (int i = 0; i < KINDS; i++) {
        struct problem *p = kind(i, ROWS, 275, types[i % 3], types[(i + 1) % 3]);
        struct answers a;
        routed(&p->layer,
               &(struct mr_route_options){.threads = 1, .arith = &arith, .arith_count = i % 2}, &a);
        memcpy(s->ids[i], a.ids, sizeof s->ids[i]);
        memcpy(s->weights[i], a.weights, sizeof s->weights[i]);
        memcpy(s->gap[i], a.gap, sizeof s->gap[i]);
        memcpy(s->radius[i], a.radius, sizeof s->radius[i]);
        if (i % 2) s->flips[i] = a.flips[0];
        answers_free(&a);
        problem_free(p);
    }
}

/* Children, because the level is read from the environment once in a process. */
START_TEST(verify_instruction_sets)
{
    static const char *const names[] = {"base", "v3", "v4"};
    struct shared *s =
        mmap(NULL, 3 * sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(s, MAP_FAILED);
    for (int level = 0; level < 3; level++) {
        pid_t child = fork();
        if (child == 0) {
            setenv("MOEREF_ISA", names[level], 1);
            answer(&s[level]);
            _exit(0);
        }
        int status;
        ck_assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
    }
    for (int level = 1; level < 3; level++)
        for (int i = 0; i < KINDS; i++) {
            const char *name = mr_isa_name(s[level].isa);
            ck_assert_msg(!memcmp(s[0].ids[i], s[level].ids[i], sizeof s->ids[i]), "ids, %s", name);
            ck_assert_msg(!memcmp(s[0].weights[i], s[level].weights[i], sizeof s->weights[i]),
                          "weights of kind %d, %s", i, name);
            ck_assert_msg(s[0].flips[i].flips == s[level].flips[i].flips, "flips, %s", name);
            for (int t = 0; t < ROWS; t++) {
                bool same = !memcmp(&s[0].gap[i][t], &s[level].gap[i][t], sizeof(double));
                double most = i < 2 ? 0 : s[0].radius[i][t] + s[level].radius[i][t];
                ck_assert_msg(same || fabs(s[0].gap[i][t] - s[level].gap[i][t]) <= most, "gap, %s",
                              name);
            }
        }
    munmap(s, 3 * sizeof *s);
}
END_TEST

/* A host program's modes: a rounding direction, and subnormals flushed. */
START_TEST(verify_floating_point_modes)
{
    static const int directions[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (int mode = 1; mode < 5; mode++)
        for (int i = 0; i < KINDS; i++) {
            struct problem *p = kind(i, 30, 64, types[i % 2 * 2], types[i % 2 * 2]);
            for (size_t t = 0; t < 30; t += 2) /* subnormal hidden states that count */
                for (size_t j = 0; j < 64; j++)
                    problem_set(&p->layer.hidden, t, j, 0x1p-130 * (double)((t * j + j) % 7));
            for (size_t e = 0; e < 20; e++)
                for (size_t j = 0; j < 64; j++)
                    problem_set(&p->layer.gate, e, j,
                                0x1p120 * brute_element(&p->layer.gate, e, j));
            struct answers a, b;
            routed(&p->layer, NULL, &a);
            fesetround(directions[mode % 4]);
#ifdef __SSE2__
            if (mode == 4) _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
            routed(&p->layer, NULL, &b);
            ck_assert_int_eq(fegetround(), directions[mode % 4]); /* left as it was */
            fesetenv(FE_DFL_ENV);
            expect_same(&a, 0, &b, 0, 30, true, mode == 4 ? "subnormals flushed" : "rounding mode");
            for (size_t t = 0; t < 30; t += 7) expect_truth(&p->layer, &b, t, false, "modes");
            answers_free(&a);
            answers_free(&b);
            problem_free(p);
        }
}
END_TEST

/* Largest share of the radius that a logit is off by. */
static double share_of_radius(const struct problem *p, bool narrow)
{
    struct mr_gate g;
    struct mr_filter f;
    double most = 0;
    size_t rows = p->layer.hidden.rows, experts = p->layer.gate.rows, usable = 0;
    ck_assert(!mr_gate_prepare(&p->layer.gate, p->layer.hidden.dtype, narrow, 2, &g, NULL));
    ck_assert(!mr_filter_new(&g, &f));
    mr_filter_block(&f, &g, p->layer.hidden.data, p->layer.hidden.dtype, rows, &mr_openblas);
    for (size_t t = 0; t < rows; t++) {
        struct mr_radius r;
        struct brute b;
        if (!mr_filter_radius(&g, &f.stats[t], &r)) continue;
        usable++;
        brute_route(&p->layer, t, &b);
        for (size_t e = 0; e < experts; e++) {
            mpfr_sub_d(b.key[e], b.logit[e], f.logits[t * experts + e], MPFR_RNDN);
            double off = fabs(mpfr_get_d(b.key[e], MPFR_RNDN));
            double radius = r.scale * g.norm[e] + r.offset;
            ck_assert_msg(off <= radius, "%s: a logit is off by %g, its radius is %g", p->name, off,
                          radius);
            if (off > most * radius) most = off / radius;
        }
        brute_free(&b);
    }
    ck_assert_uint_gt(usable, 0);
    mr_filter_free(&f);
    mr_gate_free(&g);
    return most;
}

START_TEST(corroborate_radius)
{
    static const int sizes[] = {1, 255, 256, 257, 1000};
    uint64_t state = 42;
    for (int c = 0; c < 60; c++) {
        enum mr_dtype x = types[c % 3], w = types[c / 3 % 2];
        struct problem *p = problem_new(MR_SCORE_SIGMOID, 9, 3, sizes[c % 5], 3, x, w, false);
        problem_fill(&p->layer.hidden, c % 4 == 0 ? 1e-3 : 1, &state);
        problem_fill(&p->layer.gate, 0.1, &state);
        for (size_t j = 0; j < p->layer.gate.cols; j++) {
            problem_set(&p->layer.hidden, 1, j, 1); /* the sum and its bound meet */
            problem_set(&p->layer.gate, 4, j, 1);
            problem_set(&p->layer.gate, 5, j, j ? 0x1p-12 : 1); /* small onto large */
            if (x == MR_BF16) problem_set(&p->layer.hidden, 2, j, 0x1.8p-133); /* underflow */
        }
        p->name = "radius";
        share_of_radius(p, c % 2);
        problem_free(p);
    }
}
END_TEST

Suite *suite_filter(void);
Suite *suite_filter(void)
{
    Suite *s = suite_create("filter");
    TCase *c = tcase_create("invariance");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, verify_threads);
    tcase_add_test(c, verify_batches);
    tcase_add_test(c, verify_permuted_rows);
    tcase_add_test(c, verify_narrow_wide_and_no_blas);
    tcase_add_test(c, verify_instruction_sets);
    tcase_add_test(c, verify_floating_point_modes);
    tcase_add_test(c, corroborate_radius);
    suite_add_tcase(s, c);
    return s;
}
