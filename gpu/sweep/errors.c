/* Largest errors of the functions of ref/arith/cuda.h, against binary64 (glibc, below 2^-52
 * relatively), and whether the bounds of ref/arith/score_error.c hold.
 *
 *     cc -O3 -fopenmp gpu/sweep/errors.c build/libmoeref.a -lopenblas -lmpfr -lgmp -ljansson -lm
 *     a.out [NAME ...]
 *
 * Every input of the binades named in the table, both signs where the function has them. What lies
 * outside is trivial: exp(x) of tiny x is 1, roots and reciprocals repeat with the exponent. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/arith/cuda.h"
#include "../../ref/arith/score_error.h"

static double rsqrt_(double x)
{
    return 1 / sqrt(x);
}

static double rcp_(double x)
{
    return 1 / x;
}

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static double root_softplus(double x)
{
    return sqrt(softplus(x));
}

static double sigmoid(double x)
{
    double t = exp(-fabs(x));
    return (x < 0 ? t : 1) / (1 + t);
}

enum { NONE = -1 };
static const struct row {
    enum mr_cuda_id id;
    double (*f)(double);
    int low, high; /* exponents */
    bool negative;
    int form; /* of score_error.c, for scores */
    /* What score_error.c assumes: constant u + slope u |x| relatively, or absolute u */
    double constant, slope, absolute;
} rows[] = {
    {MR_CUDA_EX2, exp2, -26, 6, true, NONE, 0, 0, 0},
    {MR_CUDA_EX2_FTZ, exp2, -26, 6, true, NONE, 0, 0, 0},
    {MR_CUDA_RCP, rcp_, -149, -126, false, NONE, 2, 0, 0},
    {MR_CUDA_RCP, rcp_, 0, 0, false, NONE, 2, 0, 0},
    {MR_CUDA_RCP, rcp_, 125, 127, false, NONE, 0, 0, 0},
    {MR_CUDA_RSQRT, rsqrt_, 0, 1, false, NONE, 0, 0, 0},
    {MR_CUDA_SQRT, sqrt, 0, 1, false, NONE, 2, 0, 0},
    {MR_CUDA_SQRT, sqrt, -149, -127, false, NONE, 2, 0, 0},
    {MR_CUDA_LG2, log2, -149, 127, false, NONE, 0, 0, 0},
    {MR_CUDA_TANH, tanh, -12, 3, true, NONE, 0, 0, 0},
    {MR_CUDA_EXPF, exp, -26, 6, true, NONE, 4, 0, 0},
    {MR_CUDA_FAST_EXPF, exp, -26, 6, true, NONE, 4, 2.346, 0},
    {MR_CUDA_FAST_EXPF_FTZ, exp, -26, 6, true, NONE, 4, 2.346, 0},
    {MR_CUDA_LOGF, log, -149, 127, false, NONE, 3, 0, 0},
    {MR_CUDA_FAST_LOGF, log, -149, 127, false, NONE, 7, 0, 6.1},
    {MR_CUDA_LOG1PF, log1p, -30, 127, false, NONE, 3, 0, 0},
    {MR_CUDA_LOG1PF_FTZ, log1p, -30, 127, false, NONE, 3, 0, 0},
    {MR_CUDA_LOG2F, log2, -149, 127, false, NONE, 0, 0, 0},
    {MR_CUDA_TANHF, tanh, -14, 3, true, NONE, 0, 0, 0},
    {MR_CUDA_SIGMOID, sigmoid, -26, 6, true, MR_FORM_EXPF, 0, 0, 0},
    {MR_CUDA_SIGMOID_FTZ, sigmoid, -26, 6, true, MR_FORM_EXPF, 0, 0, 0},
    {MR_CUDA_SIGMOID_FAST_EXPF, sigmoid, -26, 6, true, MR_FORM_FAST, 0, 0, 0},
    {MR_CUDA_SIGMOID_FDIVIDEF, sigmoid, -26, 6, true, MR_FORM_FAST, 0, 0, 0},
    {MR_CUDA_SIGMOID_FAST, sigmoid, -26, 6, true, MR_FORM_FAST, 0, 0, 0},
    {MR_CUDA_SIGMOID_TRITON, sigmoid, -26, 6, true, MR_FORM_FAST, 0, 0, 0},
    {MR_CUDA_SIGMOID_TANHF, sigmoid, -26, 6, true, MR_FORM_TANH, 0, 0, 0},
    {MR_CUDA_SIGMOID_TANHF_FTZ, sigmoid, -26, 6, true, MR_FORM_TANH, 0, 0, 0},
    {MR_CUDA_SIGMOID_TANHF_FAST, sigmoid, -26, 6, true, MR_FORM_TANH_FAST, 0, 0, 0},
    {MR_CUDA_ROOT_LOG1PF, root_softplus, -26, 6, true, MR_FORM_EXPF, 0, 0, 0},
    {MR_CUDA_ROOT_TORCH, root_softplus, -26, 6, true, MR_FORM_EXPF, 0, 0, 0},
    {MR_CUDA_ROOT_FMAXF, root_softplus, -26, 6, true, MR_FORM_EXPF, 0, 0, 0},
    {MR_CUDA_ROOT_FAST, root_softplus, -26, 6, true, MR_FORM_FAST, 0, 0, 0},
    {MR_CUDA_ROOT_TRITON, root_softplus, -26, 6, true, MR_FORM_FAST, 0, 0, 0},
    {MR_CUDA_ROOT_FAST_FAST, root_softplus, -26, 6, true, MR_FORM_FAST, 0, 0, 0},
    {MR_CUDA_ROOT_FMAXF_FAST, root_softplus, -26, 6, true, MR_FORM_FAST, 0, 0, 0},
    {MR_CUDA_ROOT_LOG1PF_FAST, root_softplus, -26, 6, true, MR_FORM_FAST, 0, 0, 0},
};

struct worst {
    double value;
    float x;
};

static void see(struct worst *w, double value, float x)
{
    if (value > w->value) w->value = value, w->x = x;
}

static void merge(struct worst *w, const struct worst *v)
{
    if (v->value > w->value) *w = *v;
}

struct tally {
    struct worst ulp, relative, absolute, over, used;
    uint64_t wrong, correct, total;
};

static void judge(const struct row *r, float x, float y, struct tally *t)
{
    double truth = r->f(x), e = fabs(y - truth);
    if (!isfinite(truth) || fabs(truth) > 0x1.fffffep127) return;
    t->total++;
    t->correct += y == (float)truth;
    if (isfinite(y)) {
        int k = truth == 0 ? -126 : ilogb(truth);
        see(&t->ulp, ldexp(e, 23 - (k < -126 ? -126 : k)), x);
        see(&t->absolute, e * 0x1p24, x);
        if (fabs(truth) >= 0x1p-126) {
            double rel = e / fabs(truth) * 0x1p24;
            see(&t->relative, rel, x);
            /* Above what is assumed, in u, where neither bound covers it. */
            double over = rel - r->constant - r->slope * fabs((double)x);
            if (r->absolute > 0) over = fmin(over, e * 0x1p24 - r->absolute);
            see(&t->over, over, x);
        }
    }
    if (r->form == NONE || (r->id == MR_CUDA_ROOT_LOG1PF && x > 88.7) ||
        (r->id == MR_CUDA_ROOT_LOG1PF_FAST && x > 88.7))
        return;
    struct mr_interval logit = {x, x}, k = r->f == sigmoid
                                               ? mr_sigmoid_computed(r->form, logit)
                                               : mr_sqrt_softplus_computed(r->form, logit);
    if (!(y >= k.lo && y <= k.hi))
        t->wrong++;
    else if (truth > 0x1p-100)
        see(&t->used, y > truth ? (y - truth) / (k.hi - truth) : (truth - y) / (truth - k.lo), x);
}

static void measure(const struct row *r)
{
    enum { PART = 4096 };
    struct tally all = {.over = {-1e9, 0}};
    uint32_t first = r->low < -126 ? 1 : (uint32_t)(r->low + 127) << 23;
    uint32_t last = ((uint32_t)(r->high < -126 ? 1 : r->high + 128) << 23);
#pragma omp parallel
    {
        struct tally t = {.over = {-1e9, 0}};
        uint32_t x[PART], y[PART];
#pragma omp for schedule(dynamic, 64) collapse(2)
        for (uint32_t sign = 0; sign <= (uint32_t)r->negative; sign++)
            for (uint32_t at = first & ~(PART - 1u); at < last; at += PART) {
                for (uint32_t i = 0; i < PART; i++) x[i] = (sign << 31) | (at + i);
                mr_cuda_apply(r->id, (const float *)x, PART, (float *)y);
                for (uint32_t i = 0; i < PART; i++) {
                    float a, b;
                    memcpy(&a, &x[i], 4);
                    memcpy(&b, &y[i], 4);
                    if (at + i >= first) judge(r, a, b, &t);
                }
            }
#pragma omp critical
        {
            merge(&all.ulp, &t.ulp);
            merge(&all.relative, &t.relative);
            merge(&all.absolute, &t.absolute);
            merge(&all.over, &t.over);
            merge(&all.used, &t.used);
            all.wrong += t.wrong;
            all.correct += t.correct;
            all.total += t.total;
        }
    }
    printf("%-27s 2^%d..2^%d%s: %.1f %% correctly rounded, ulp %.4f (%a), rel %.4f u (%a), abs "
           "%.4f u (%a)",
           mr_cuda_functions[r->id].name, r->low, r->high, r->negative ? " +-" : "",
           100.0 * (double)all.correct / (double)all.total, all.ulp.value, all.ulp.x,
           all.relative.value, all.relative.x, all.absolute.value, all.absolute.x);
    if (r->constant > 0) printf(", beyond what is assumed %.4f u (%a)", all.over.value, all.over.x);
    if (r->form != NONE)
        printf(", outside the bound %llu, of it used at most %.4f (%a)",
               (unsigned long long)all.wrong, all.used.value, all.used.x);
    puts("");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool asked = argc == 1;
        for (int k = 1; k < argc; k++)
            asked |= strcmp(argv[k], mr_cuda_functions[rows[i].id].name) == 0;
        if (asked) measure(&rows[i]);
    }
    return 0;
}
