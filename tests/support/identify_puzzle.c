#include "identify_puzzle.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/arith/mma.h"
#include "../../ref/num/num.h"
#include "mpfr_oracle.h"
#include "slow_sum.h"

static double normal(uint64_t *seed)
{
    double u = (double)(oracle_random(seed) >> 11) * 0x1p-53;
    double v = (double)(oracle_random(seed) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u + 0x1p-60)) * cos(6.283185307179586 * v);
}

static size_t below(uint64_t *seed, size_t n)
{
    return (size_t)(oracle_random(seed) % n);
}

static void fill(uint64_t *seed, enum mr_dtype dtype, double scale, size_t n, float *values,
                 void *stored)
{
    for (size_t i = 0; i < n; i++) {
        double v = scale * normal(seed);
        uint16_t word = 0;
        if (dtype == MR_BF16) {
            word = mr_bf16_encode(v, MR_RNE, MR_OVERFLOW_IEEE);
            values[i] = mr_bf16_decode(word);
        } else if (dtype == MR_F16) {
            word = mr_fp16_encode(v, MR_RNE, MR_OVERFLOW_IEEE);
            values[i] = mr_fp16_decode(word);
        } else {
            values[i] = (float)v;
        }
        if (dtype == MR_F32) ((float *)stored)[i] = values[i];
        else ((uint16_t *)stored)[i] = word;
    }
}

void puzzle_new(uint64_t *seed, enum mr_dtype dtype, size_t rows, size_t experts, size_t terms,
                 struct identify_puzzle *p)
{
    *p = (struct identify_puzzle){.rows = rows, .experts = experts, .terms = terms,
                                   .dtype = dtype};
    p->x = malloc(rows * terms * sizeof *p->x);
    p->w = malloc(experts * terms * sizeof *p->w);
    p->stored_x = malloc(rows * terms * sizeof *p->x);
    p->stored_w = malloc(experts * terms * sizeof *p->w);
    p->logits = calloc(rows * experts, sizeof *p->logits);
    ck_assert(p->x && p->w && p->stored_x && p->stored_w && p->logits);
    fill(seed, dtype, 1, rows * terms, p->x, p->stored_x);
    fill(seed, dtype, 0.02, experts * terms, p->w, p->stored_w);
}

void puzzle_free(struct identify_puzzle *p)
{
    free(p->x);
    free(p->w);
    free(p->stored_x);
    free(p->stored_w);
    free(p->logits);
}

struct mr_gemm puzzle_gemm(const struct identify_puzzle *p)
{
    return (struct mr_gemm){.hidden = {p->stored_x, p->dtype, p->rows, p->terms},
                            .gate = {p->stored_w, p->dtype, p->experts, p->terms}};
}

struct mr_matrix puzzle_observed(const struct identify_puzzle *p)
{
    return (struct mr_matrix){p->logits, MR_F32, p->rows, p->experts};
}

static float *rounded(const float *v, size_t n, enum mr_type type)
{
    float *out = malloc(n * sizeof *out);
    ck_assert(out != NULL);
    for (size_t i = 0; i < n; i++)
        out[i] = type == MR_TYPE_BF16
                     ? mr_bf16_decode(mr_bf16_encode(v[i], MR_RNE, MR_OVERFLOW_IEEE))
                     : v[i];
    return out;
}

void puzzle_solve(struct identify_puzzle *p, const struct mr_arith *a)
{
    float *x = rounded(p->x, p->rows * p->terms, a->hidden);
    float *w = rounded(p->w, p->experts * p->terms, a->gate);
    for (size_t i = 0; i < p->rows * p->experts; i++) {
        float v = slow_sum(&a->sum, x + i / p->experts * p->terms,
                           w + i % p->experts * p->terms, p->terms, NULL);
        if (a->logits == MR_TYPE_BF16)
            v = mr_bf16_decode(mr_bf16_encode(v, MR_RNE, MR_OVERFLOW_IEEE));
        if (a->logits == MR_TYPE_FP16)
            v = mr_fp16_decode(mr_fp16_encode(v, MR_RNE, MR_OVERFLOW_IEEE));
        p->logits[i] = v;
    }
    free(x);
    free(w);
}

void puzzle_identify(const struct identify_puzzle *p, struct mr_identified *found)
{
    struct mr_gemm gemm = puzzle_gemm(p);
    struct mr_matrix observed = puzzle_observed(p);
    struct mr_error err = {{0}};
    ck_assert_msg(!mr_identify(&gemm, &observed, NULL, found, &err), "%s", err.text);
}

void puzzle_line(uint64_t *seed, const struct mr_family *simt, const struct mr_family *mma,
                  enum mr_dtype dtype, struct mr_arith *out)
{
    static const char *const bf16[] = {"hopper-bf16", "ampere-bf16", "hopper-tf32", "ampere-tf32"};
    static const char *const fp16[] = {"hopper-fp16", "ampere-fp16", "volta-fp16",
                                       "hopper-fp16-fp16"};
    static const char *const fp32[] = {"hopper-tf32", "ampere-tf32", "hopper-bf16", "hopper-tf32"};
    const char *const *names = dtype == MR_BF16 ? bf16 : dtype == MR_F16 ? fp16 : fp32;
    *out = (struct mr_arith){0};
    bool fused = below(seed, 3) == 0;
    const struct mr_family *y = fused ? mma : simt;
    int levels = 1 + (int)below(seed, fused ? 2 : 3);
    const struct mr_frame *f;
    do f = &y->frame[below(seed, y->frames)];
    while (f->levels != levels);
    unsigned combination = 0, promote = 0;
    for (int i = 0; i < f->levels; i++) {
        unsigned way;
        do way = (unsigned)below(seed, 5);
        while (!(f->level[i].reduces >> way & 1));
        if (way == 4) promote |= 1u << i;
        else combination |= way << (2 * i);
    }
    out->sum = mr_frame_shape(f, combination, promote);
    out->sum.leaf = fused ? MR_LEAF_MMA : MR_LEAF_FMA;
    if (dtype == MR_F32) {
        unsigned rounding = (unsigned)below(seed, 4);
        out->hidden = rounding & 1 ? MR_TYPE_BF16 : MR_TYPE_FP32;
        out->gate = rounding & 2 ? MR_TYPE_BF16 : MR_TYPE_FP32;
        if (!fused && rounding != 3 && below(seed, 2)) out->sum.leaf = MR_LEAF_MUL_ADD;
    }
    if (!fused) return;
    const char *name = names[below(seed, 4)];
    if (strstr(name, "-bf16"))
        out->hidden = out->gate = dtype == MR_F32 ? MR_TYPE_BF16 : MR_TYPE_FP32;
    out->sum.mma = mr_mma_find(name, strlen(name));
    ck_assert(out->sum.mma != NULL);
}

bool puzzle_listed(const struct mr_identified *found, const char *text)
{
    for (size_t i = 0; i < found->lines; i++)
        if (!strcmp(found->line[i].text, text)) return true;
    return false;
}

static uint64_t key_of(const struct mr_sum_shape *sum, size_t terms)
{
    struct mr_plan plan;
    uint64_t key;
    ck_assert(!mr_plan_make(sum, terms, &plan, NULL));
    ck_assert(!mr_plan_key(sum, &plan, &key, NULL));
    mr_plan_free(&plan);
    return key;
}

bool puzzle_equal_listed(const struct mr_identified *found, const struct mr_arith *a, size_t terms)
{
    uint64_t key = key_of(&a->sum, terms);
    for (size_t i = 0; i < found->lines; i++) {
        struct mr_arith b;
        ck_assert(!mr_arith_parse(found->line[i].text, &b, NULL));
        if (b.sum.leaf == a->sum.leaf && b.logits == a->logits && b.hidden == a->hidden &&
            b.gate == a->gate && (!a->sum.mma || mr_mma_same(a->sum.mma, b.sum.mma)) &&
            key_of(&b.sum, terms) == key)
            return true;
    }
    return false;
}
