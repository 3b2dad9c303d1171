/* Softmax over all experts of a row, summed as the kernels sum it. */
#include <math.h>

#include "profile_private.h"

enum mr_cuda_id mr_form_exp(enum mr_score_form form)
{
    return form == MR_FORM_SOFTMAX_MULTIPLY_FAST ? MR_CUDA_FAST_EXPF_FTZ
           : form == MR_FORM_SOFTMAX_TRITON      ? MR_CUDA_FAST_EXPF
                                                 : MR_CUDA_EXPF;
}

bool mr_form_softmax(enum mr_score_form form)
{
    return form == MR_FORM_SOFTMAX_MULTIPLY || form == MR_FORM_SOFTMAX_MULTIPLY_FAST ||
           form == MR_FORM_SOFTMAX_DIVIDE || form == MR_FORM_SOFTMAX_TRITON;
}

bool mr_form_reciprocal(enum mr_score_form form)
{
    return form == MR_FORM_SOFTMAX_MULTIPLY || form == MR_FORM_SOFTMAX_MULTIPLY_FAST;
}

/* Column c belongs to thread c / vector % threads. Powers of two up to 512 are read in vectors of 16
 * bytes by one warp at most, in Triton as well; topkGating reads five multiples of 64 in pairs.
 * *threads 0: other counts are summed by a block, in an order that is not modelled. */
static void layout(enum mr_score_form form, int experts, enum mr_type logits, int *threads,
                   int *vector)
{
    bool power = (experts & (experts - 1)) == 0;
    int wide = logits == MR_TYPE_FP32 ? 4 : 8;
    *threads = 0;
    *vector = 1;
    if (form == MR_FORM_SOFTMAX_DIVIDE) { /* torch, up to 1024 columns */
        if (experts <= 1024) *threads = mr_cuda_softmax_torch((size_t)experts).threads;
    } else if (power && experts <= 512) {
        *vector = experts < wide ? experts : wide;
        *threads = experts / *vector < 32 ? experts / *vector : 32;
    } else if (form == MR_FORM_SOFTMAX_MULTIPLY && (experts == 192 || experts == 320 ||
               experts == 384 || experts == 448 || experts == 576)) {
        *vector = 2;
        *threads = 32;
    }
}

static float sum_of_row(enum mr_score_form form, enum mr_type logits, const float *e, int n)
{
    float lane[32] = {0};
    int threads, vector;
    layout(form, n, logits, &threads, &vector);
    if (!threads) return mr_sum_once(e, n);
    for (int i = 0; i < n; i++) lane[i / vector % threads] += e[i];
    for (int step = threads / 2; step > 0; step /= 2)
        for (int t = 0; t < step; t++) lane[t] += lane[t + step];
    return lane[0];
}

float mr_quotient(float a, float b, enum mr_division how)
{
    if (how == MR_DIVISION_IEEE) return a / b;
    mr_cuda_divide(how == MR_DIVISION_FULL ? MR_DIV_FULL : MR_DIV_APPROX_FTZ, &a, &b, 1, &a);
    return a;
}

void mr_exp_below_max(enum mr_score_form form, const float *x, int n, float *e)
{
    float max = -INFINITY;
    for (int i = 0; i < n; i++) max = fmaxf(max, x[i]);
    for (int i = 0; i < n; i++) e[i] = x[i] - max;
    mr_cuda_apply(mr_form_exp(form), e, (size_t)n, e);
}

/* p = e / sum, or e times the rounded 1 / sum. */
void mr_shares(enum mr_score_form form, float sum, enum mr_division how, int n, float *e)
{
    float reciprocal = mr_form_reciprocal(form) ? mr_quotient(1, sum, how) : 0;
    for (int i = 0; i < n; i++)
        e[i] = mr_form_reciprocal(form) ? e[i] * reciprocal : mr_quotient(e[i], sum, how);
}

void mr_profile_softmax(const struct mr_profile_row *row, enum mr_type logits, const float *x,
                        int n, float *p)
{
    enum mr_score_form form = row->cell[MR_CELL_SCORE].value;
    mr_exp_below_max(form, x, n, p);
    mr_shares(form, sum_of_row(form, logits, p, n), row->cell[MR_CELL_DIVISION].value, n, p);
}
