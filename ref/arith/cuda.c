#include "cuda.h"

#include <math.h>
#include <string.h>

const struct mr_cuda_function mr_cuda_functions[MR_CUDA_COUNT] = {
#define X(id, name, what) [MR_CUDA_##id] = {name, what},
    MR_CUDA_FUNCTIONS(X)
#undef X
};

const char *const mr_cuda_quotients[MR_DIV_COUNT] = {
    [MR_DIV_FULL] = "div.full",
    [MR_DIV_FULL_FTZ] = "div.full.ftz",
    [MR_DIV_APPROX] = "div.approx",
    [MR_DIV_APPROX_FTZ] = "div.approx.ftz",
};

int mr_cuda_find(const char *name)
{
    for (int id = 0; id < MR_CUDA_COUNT; id++)
        if (strcmp(mr_cuda_functions[id].name, name) == 0) return id;
    return -1;
}

void mr_cuda_apply(enum mr_cuda_id id, const float *x, size_t n, float *y)
{
    MR_ISA_PICK(mr_cuda_apply)(id, x, n, y);
}

void mr_cuda_divide(enum mr_cuda_quotient how, const float *a, const float *b, size_t n, float *y)
{
    MR_ISA_PICK(mr_cuda_divide)(how, a, b, n, y);
}

uint64_t mr_cuda_checksum(const uint32_t *words, size_t n)
{
    return MR_ISA_PICK(mr_cuda_checksum)(words, n);
}

static size_t power_of_two(size_t n)
{
    size_t p = 1;
    while (p < n) p *= 2;
    return p;
}

struct mr_cuda_softmax mr_cuda_softmax_torch(size_t n)
{
    size_t p = power_of_two(n);
    return (struct mr_cuda_softmax){p < 32 ? (int)p : 32, 1, false, MR_CUDA_EXPF};
}

struct mr_cuda_softmax mr_cuda_softmax_gating(size_t n)
{
    bool power = power_of_two(n) == n;
    size_t vector = !power ? 2 : n < 4 ? n : 4, vectors = n / (vector * 32);
    size_t each = (vectors ? vectors : 1) * vector;
    return (struct mr_cuda_softmax){(int)(n / each), (int)vector, true, MR_CUDA_EXPF};
}

/* In C all NaN are NaN; on the GPU, 0x7fffffff. */
static float quiet(float x)
{
    static const uint32_t bits = 0x7fffffff;
    if (isnan(x)) memcpy(&x, &bits, sizeof x);
    return x;
}

void mr_cuda_softmax_row(const struct mr_cuda_softmax *form, const float *x, size_t n, float *y)
{
    float max = -INFINITY, sums[32] = {0};
    /* Where NaN is, all outputs are NaN, by the maximum or by the sum. */
    for (size_t i = 0; i < n; i++) max = max < x[i] ? x[i] : max;
    for (size_t i = 0; i < n; i++) y[i] = x[i] - max;
    mr_cuda_apply(form->exp, y, n, y);
    size_t threads = (size_t)form->threads, vector = (size_t)form->vector;
    for (size_t i = 0; i < n; i++) sums[i / vector % threads] += y[i];
    for (size_t step = threads / 2; step > 0; step /= 2)
        for (size_t t = 0; t < step; t++) sums[t] += sums[t + step];
    float factor = form->reciprocal ? 1 / sums[0] : sums[0];
    for (size_t i = 0; i < n; i++) y[i] = quiet(form->reciprocal ? y[i] * factor : y[i] / factor);
}
