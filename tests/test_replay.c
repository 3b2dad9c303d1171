/* The replay engine against slow_sum.c, over shapes, kinds of numbers, instruction sets, threads
 * and row blocks. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "../ref/arith/mma.h"
#include "../ref/arith/replay.h"
#include "../ref/arith/replay_compare.h"
#include "../ref/isa.h"
#include "../ref/num/num.h"
#include "support/mpfr_oracle.h"
#include "support/slow_sum.h"

Suite *suite_replay(void);

static const char *const instructions[] = {"hopper-bf16", "ampere-bf16", "hopper-tf32",
                                           "hopper-fp16", NULL};
enum { TOKENS = 5, EXPERTS = 70, MOST = 300 };

struct problem {
    size_t n;
    bool stored_bf16; /* the operands, of 8 significand bits, are stored so */
    uint16_t x16[TOKENS * MOST], w16[EXPERTS * MOST];
    float x[TOKENS * MOST], w[EXPERTS * MOST], bias[EXPERTS];
    float x_scale[TOKENS * MOST], w_scale[EXPERTS * MOST];
};

/* Values that every instruction of the list takes: small significands, exponents of fp16. */
static void for_fp16(float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] = mr_fp16_decode((uint16_t)(mr_fp16_encode(v[i], MR_RNE, MR_OVERFLOW_IEEE) & 0xffc0));
}

static void fill(uint64_t *seed, struct problem *p, enum slow_class class, bool fp16, int bits)
{
    slow_fill(seed, class, bits, p->x, TOKENS * p->n);
    slow_fill(seed, class == SLOW_SPECIAL ? SLOW_NORMAL : class, bits, p->w, EXPERTS * p->n);
    slow_fill(seed, SLOW_NORMAL, 24, p->bias, EXPERTS);
    slow_fill(seed, SLOW_NORMAL, 24, p->x_scale, TOKENS * p->n);
    slow_fill(seed, SLOW_NORMAL, 24, p->w_scale, EXPERTS * p->n);
    if (fp16) for_fp16(p->x, TOKENS * p->n);
    if (fp16) for_fp16(p->w, EXPERTS * p->n);
    p->stored_bf16 = bits == 8 && oracle_random(seed) % 2;
    for (size_t i = 0; i < TOKENS * p->n; i++) p->x16[i] = (uint16_t)(slow_bits(p->x[i]) >> 16);
    for (size_t i = 0; i < EXPERTS * p->n; i++) p->w16[i] = (uint16_t)(slow_bits(p->w[i]) >> 16);
}

static struct mr_gemm gemm_of(const struct problem *p)
{
    if (p->stored_bf16)
        return (struct mr_gemm){.hidden = {p->x16, MR_BF16, TOKENS, p->n},
                                .gate = {p->w16, MR_BF16, EXPERTS, p->n}};
    return (struct mr_gemm){.hidden = {p->x, MR_F32, TOKENS, p->n},
                            .gate = {p->w, MR_F32, EXPERTS, p->n}};
}

/* Tiles of the one promote level; 0: none or several. */
static size_t scale_tiles(const struct mr_sum_shape *s, size_t n)
{
    size_t tiles = 0, count = 0;
    for (int i = 0; i < s->levels; i++)
        if (s->level[i].cut == MR_CUT_PROMOTE) {
            count++;
            tiles = (n + (size_t)s->level[i].tile - 1) / (size_t)s->level[i].tile;
        }
    return count == 1 ? tiles : 0;
}

static float rounded(const struct mr_arith *a, float v)
{
    if (a->logits == MR_TYPE_BF16) v = mr_bf16_decode(mr_bf16_encode(v, MR_RNE, MR_OVERFLOW_IEEE));
    if (a->logits == MR_TYPE_FP16) v = mr_fp16_decode(mr_fp16_encode(v, MR_RNE, MR_OVERFLOW_IEEE));
    return v;
}

static void check_problem(const struct problem *p, const struct mr_arith *a, bool bias, bool scaled)
{
    struct mr_gemm gemm = gemm_of(p);
    struct mr_replay *replay;
    struct mr_error err = {{0}};
    float out[TOKENS * EXPERTS];
    char text[MR_ARITH_TEXT];
    size_t tiles = scaled ? scale_tiles(&a->sum, p->n) : 0;
    mr_arith_print(a, text, sizeof text);
    if (bias) gemm.gate_bias = p->bias;
    if (tiles) gemm.hidden_scale = p->x_scale, gemm.gate_scale = p->w_scale;
    ck_assert_msg(!mr_replay_new(a, &gemm, &replay, &err), "%s: %s", text, err.text);
    ck_assert_msg(!mr_replay_rows(replay, 0, TOKENS, out, &err), "%s: %s", text, err.text);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t e = 0; e < EXPERTS; e++) {
            float scale[MOST];
            for (size_t i = 0; i < tiles; i++)
                scale[i] = p->x_scale[t * tiles + i] * p->w_scale[e * tiles + i];
            float want =
                slow_sum(&a->sum, p->x + t * p->n, p->w + e * p->n, p->n, tiles ? scale : NULL);
            if (bias) want += p->bias[e];
            want = rounded(a, want);
            uint32_t got = slow_bits(out[t * EXPERTS + e]);
            ck_assert_msg(got == slow_bits(want),
                          "%s, %zu terms, token %zu, expert %zu: 0x%08x, expected 0x%08x", text,
                          p->n, t, e, got, slow_bits(want));
        }
    mr_replay_free(replay);
}

static const char *const levels[] = {"base", "v3", "v4"};

/* Loop: instruction set. */
START_TEST(corroborate_engine)
{
    setenv("MOEREF_ISA", levels[_i], 1);
    bool slow = getenv("MOEREF_LONG") != NULL;
    static struct problem p;
    uint64_t seed = 100;
    int rounds = slow ? 20000 : 150;
    for (int i = 0; i < rounds; i++) {
        struct mr_arith a = {.logits = (enum mr_type)(i % 4 == 0 ? i / 4 % 3 : 0)};
        p.n = oracle_random(&seed) % (i % 8 ? 90 : MOST);
        slow_shape(&seed, p.n, 3, instructions, &a.sum);
        bool fp16 = a.sum.leaf == MR_LEAF_MMA, wide = !fp16 && i % 3 == 0;
        fill(&seed, &p, (enum slow_class)(i % SLOW_CLASSES), fp16, wide ? 24 : 8);
        check_problem(&p, &a, i % 5 == 0, i % 2);
    }
}
END_TEST

/* What libm's fmaf gives, with an instruction and without. */
START_TEST(corroborate_fused_operation)
{
    setenv("MOEREF_ISA", levels[_i], 1);
    static struct problem p;
    uint64_t seed = 7;
    struct mr_arith a = {.sum = {.leaf = MR_LEAF_FMA}};
    for (int i = 0; i < 200; i++) {
        p.n = 1 + oracle_random(&seed) % 12;
        fill(&seed, &p, (enum slow_class)(i % SLOW_CLASSES), false, 24);
        check_problem(&p, &a, false, false);
    }
}
END_TEST

#ifdef __SSE2__
/* A host program may have set flushing, or another rounding mode: no bit depends on them, and they
 * are as before. Loop: instruction set. */
START_TEST(verify_host_modes)
{
    setenv("MOEREF_ISA", levels[_i], 1);
    static const char *const lines[] = {"fma/deal:3x2", "mul-add", "hopper-bf16/runs:2x16",
                                        "hopper-bf16/promote:16", "fp32"};
    static struct problem p;
    static float want[TOKENS * EXPERTS], got[TOKENS * EXPERTS];
    uint64_t seed = 9;
    p.n = 40;
    for (size_t l = 0; l < 2 * sizeof lines / sizeof *lines; l++) {
        fill(&seed, &p, l % 2 ? SLOW_TINY : SLOW_NORMAL, false, 8);
        struct mr_gemm gemm = gemm_of(&p);
        struct mr_arith a;
        struct mr_replay *r;
        ck_assert(!mr_arith_parse(lines[l / 2], &a, NULL));
        ck_assert(!mr_replay_new(&a, &gemm, &r, NULL));
        ck_assert(!mr_replay_rows(r, 0, TOKENS, want, NULL));
        mr_replay_free(r);
        unsigned before = _mm_getcsr();
        _mm_setcsr(0xffc0); /* toward zero, FTZ, DAZ */
        enum mr_status status = mr_replay_new(&a, &gemm, &r, NULL);
        if (!status) status = mr_replay_rows(r, 0, TOKENS, got, NULL);
        unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        ck_assert(!status);
        ck_assert_uint_eq(after & 0xffc0, 0xffc0);
        ck_assert_msg(!memcmp(want, got, sizeof want), "%s", lines[l / 2]);
        mr_replay_free(r);
    }
}
END_TEST
#endif

/* Rows on their own, in blocks, and all at once. */
START_TEST(verify_row_blocks)
{
    enum { ROWS = 70, N = 130, EX = 33 };
    static float x[ROWS * N], w[EX * N], all[ROWS * EX], some[ROWS * EX];
    static const char *const lines[] = {"fma/deal:6x8",          "mul-add/even:7:reverse",
                                        "hopper-bf16/runs:3x16", "hopper-tf32/promote:32",
                                        "bf16-logits",           "fma/every:1:pairs"};
    uint64_t seed = 5;
    slow_fill(&seed, SLOW_NORMAL, 8, x, ROWS * N);
    slow_fill(&seed, SLOW_NORMAL, 8, w, EX * N);
    struct mr_gemm gemm = {.hidden = {x, MR_F32, ROWS, N}, .gate = {w, MR_F32, EX, N}};
    for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
        struct mr_arith a;
        struct mr_replay *r;
        ck_assert(!mr_arith_parse(lines[l], &a, NULL));
        ck_assert(!mr_replay_new(&a, &gemm, &r, NULL));
        ck_assert(!mr_replay_rows(r, 0, ROWS, all, NULL));
        for (size_t block = 1; block < 40; block += 6) {
            memset(some, 0xff, sizeof some);
            for (size_t at = 0; at < ROWS; at += block) {
                size_t n = ROWS - at < block ? ROWS - at : block;
                ck_assert(!mr_replay_rows(r, at, n, some + at * EX, NULL));
            }
            ck_assert_msg(!memcmp(all, some, sizeof all), "%s, blocks of %zu", lines[l], block);
        }
        struct mr_matrix observed = {all, MR_F32, ROWS, EX};
        for (int threads = 1; threads <= 5; threads++) {
            struct mr_replay_tally t;
            ck_assert(!mr_replay_compare(r, &observed, threads, &t, NULL));
            ck_assert_uint_eq(t.checked, ROWS * EX);
            ck_assert_msg(!t.mismatches, "%s, %d threads", lines[l], threads);
        }
        mr_replay_free(r);
    }
}
END_TEST

/* The same values stored in every type that holds them. */
START_TEST(verify_stored_types)
{
    enum { N = 96 };
    static const enum mr_dtype types[] = {MR_F32, MR_BF16, MR_F16, MR_F8_E4M3, MR_F8_E5M2};
    static const char *const lines[] = {"fma/deal:3x8", "mul-add",
                                        "hopper-bf16",  "hopper-fp16/runs:2x16",
                                        "hopper-tf32",  "hopper-e4m3/promote:32",
                                        "hopper-e5m2",  "fp32"};
    static float x[TOKENS * N], w[EXPERTS * N], want[TOKENS * EXPERTS], got[TOKENS * EXPERTS];
    static unsigned char sx[sizeof x + 1], sw[sizeof w + 1]; /* unaligned */
    uint64_t seed = 3;
    /* 1, 1.5 and 1.25 (e4m3 only) times 2^-2 ... 2^2. */
    for (size_t l = 0; l < sizeof lines / sizeof *lines; l++)
        for (size_t i = 0; i < TOKENS * N + EXPERTS * N; i++) {
            float v = ldexpf(oracle_random(&seed) % 2 ? 1.5f : -1.0f,
                             (int)(oracle_random(&seed) % 5) - 2);
            if (i < TOKENS * N)
                x[i] = v;
            else
                w[i - TOKENS * N] = v;
        }
    for (size_t l = 0; l < sizeof lines / sizeof *lines; l++)
        for (size_t t = 0; t < 5; t++) {
            struct mr_arith a;
            struct mr_replay *r;
            struct mr_error err = {{0}};
            unsigned bytes = mr_dtype_bits(types[t]) / 8;
            for (size_t i = 0; i < TOKENS * N + EXPERTS * N; i++) {
                float v = i < TOKENS * N ? x[i] : w[i - TOKENS * N];
                uint32_t word;
                memcpy(&word, &v, sizeof word);
                if (types[t] == MR_BF16) word >>= 16;
                if (types[t] == MR_F16) word = mr_fp16_encode(v, MR_RNE, MR_OVERFLOW_IEEE);
                if (types[t] == MR_F8_E4M3) word = mr_e4m3_encode(v, MR_RNE, MR_OVERFLOW_IEEE);
                if (types[t] == MR_F8_E5M2) word = mr_e5m2_encode(v, MR_RNE, MR_OVERFLOW_IEEE);
                unsigned char *to =
                    i < TOKENS * N ? sx + 1 + i * bytes : sw + 1 + (i - TOKENS * N) * bytes;
                memcpy(to, &word, bytes);
            }
            struct mr_gemm gemm = {.hidden = {sx + 1, types[t], TOKENS, N},
                                   .gate = {sw + 1, types[t], EXPERTS, N}};
            ck_assert(!mr_arith_parse(lines[l], &a, &err));
            ck_assert_msg(!mr_replay_new(&a, &gemm, &r, &err), "%s: %s", lines[l], err.text);
            ck_assert(!mr_replay_rows(r, 0, TOKENS, t ? got : want, &err));
            if (t)
                ck_assert_msg(!memcmp(want, got, sizeof got), "%s of %s", lines[l],
                              mr_dtype_name(types[t]));
            mr_replay_free(r);
        }
}
END_TEST

/* A line without a sum is one rounding of the exact dot: by MPFR here, to each type, with a bias
 * and without, Inf and NaN by IEEE's rules. */
START_TEST(corroborate_exact_dots)
{
    static struct problem p;
    uint64_t seed = 11;
    mpfr_t sum, term;
    mpfr_inits2(2400, sum, term, (mpfr_ptr)0);
    for (int i = 0; i < 60; i++) {
        struct mr_arith a = {.logits = (enum mr_type)(i % 3)};
        struct mr_replay *r;
        float out[TOKENS * EXPERTS];
        p.n = oracle_random(&seed) % 50;
        fill(&seed, &p, (enum slow_class)(i % SLOW_CLASSES), false, i / 3 % 2 ? 8 : 24);
        struct mr_gemm gemm = gemm_of(&p);
        if (i % 4 == 0) gemm.gate_bias = p.bias;
        ck_assert(!mr_replay_new(&a, &gemm, &r, NULL));
        ck_assert(!mr_replay_rows(r, 0, TOKENS, out, NULL));
        for (size_t k = 0; k < TOKENS * EXPERTS; k++) {
            const float *x = p.x + k / EXPERTS * p.n, *w = p.w + k % EXPERTS * p.n;
            mpfr_set_flt(sum, gemm.gate_bias ? p.bias[k % EXPERTS] : 0, MPFR_RNDN);
            for (size_t j = 0; j < p.n; j++) {
                mpfr_set_flt(term, x[j], MPFR_RNDN);
                mpfr_mul_d(term, term, w[j], MPFR_RNDN);
                mpfr_add(sum, sum, term, MPFR_RNDN);
            }
            double hi = mpfr_get_d(sum, MPFR_RNDN);
            mpfr_sub_d(term, sum, hi, MPFR_RNDN);
            const struct mr_format *f = a.logits == MR_TYPE_BF16   ? &mr_format_bf16
                                        : a.logits == MR_TYPE_FP16 ? &mr_format_fp16
                                                                   : &mr_format_fp32;
            float want = mpfr_zero_p(sum) ? 0
                         : isfinite(hi)   ? (float)mr_round_sum(hi, mpfr_get_d(term, MPFR_RNDN), f)
                                          : (float)hi;
            ck_assert_msg(slow_bits(out[k]) == slow_bits(want), "%d: %a, expected %a", i,
                          (double)out[k], (double)want);
        }
        mr_replay_free(r);
    }
    mpfr_clears(sum, term, (mpfr_ptr)0);
}
END_TEST

Suite *suite_replay(void)
{
    Suite *s = suite_create("replay");
    TCase *engine = tcase_create("engine");
    tcase_set_timeout(engine, 3600);
    tcase_add_loop_test(engine, corroborate_engine, 0, MR_ISA_LEVELS);
    tcase_add_loop_test(engine, corroborate_fused_operation, 0, MR_ISA_LEVELS);
#ifdef __SSE2__
    tcase_add_loop_test(engine, verify_host_modes, 0, MR_ISA_LEVELS);
#endif
    tcase_add_test(engine, verify_row_blocks);
    tcase_add_test(engine, verify_stored_types);
    tcase_add_test(engine, corroborate_exact_dots);
    suite_add_tcase(s, engine);
    return s;
}
