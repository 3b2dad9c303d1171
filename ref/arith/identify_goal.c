/* What was observed: which sums round to it, and which outputs tell most. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../exact/exact.h"
#include "../num/bits.h"
#include "../num/num.h"
#include "identify_private.h"

static bool is_bf16(float v)
{
    return !(f32_bits(v) & 0xffff);
}

static bool is_fp16(float v)
{
    return f32_bits(mr_fp16_decode(mr_fp16_encode(v, MR_RNE, MR_OVERFLOW_IEEE))) == f32_bits(v);
}

size_t identify_types(enum mr_dtype dtype, const float *values, size_t n, enum mr_type *type)
{
    size_t types = 0;
    bool bf16 = dtype != MR_F16, fp16 = dtype != MR_BF16;
    for (size_t i = 0; i < n && (bf16 || fp16); i++) {
        if (!isfinite(values[i])) continue;
        bf16 &= is_bf16(values[i]);
        fp16 &= is_fp16(values[i]);
    }
    if (dtype == MR_F32) type[types++] = MR_TYPE_FP32;
    if (bf16) type[types++] = MR_TYPE_BF16;
    if (fp16) type[types++] = MR_TYPE_FP16;
    return types;
}

/* Binary32 magnitudes that round to the magnitude m, all as bits. Ties go to even. */
static void bf16_range(uint32_t m, uint32_t *low, uint32_t *high)
{
    uint32_t odd = m >> 16 & 1;
    *low = m ? m - 0x8000 + odd : 0;
    *high = m >= 0x7f800000 ? 0x7f800000 : m + 0x8000 - odd;
}

/* The tie between two neighbours; above the largest number it is 65520. */
static float fp16_tie(uint16_t lower)
{
    float high = lower == 0x7bff ? 65536 : mr_fp16_decode((uint16_t)(lower + 1));
    return (mr_fp16_decode(lower) + high) / 2;
}

static void fp16_range(uint32_t m, uint32_t *low, uint32_t *high)
{
    uint16_t h = mr_fp16_encode(f32_from(m), MR_RNE, MR_OVERFLOW_IEEE), odd = h & 1;
    *low = h ? f32_bits(fp16_tie((uint16_t)(h - 1))) + odd : 0;
    *high = h >= 0x7c00 ? 0x7f800000 : f32_bits(fp16_tie(h)) - odd;
}

static void range_of(enum mr_type type, float v, int32_t *low, int32_t *high)
{
    uint32_t m = f32_bits(v) & 0x7fffffff, lo = m, hi = m;
    if (type == MR_TYPE_BF16) bf16_range(m, &lo, &hi);
    if (type == MR_TYPE_FP16) fp16_range(m, &lo, &hi);
    bool negative = f32_bits(v) >> 31;
    *low = negative ? (int32_t)~hi : (int32_t)lo;
    *high = negative ? (int32_t)~lo : (int32_t)hi;
}

static void aim(const struct identify *s, struct identify_group *g)
{
    g->goal = (struct mr_lane_goal){.types = s->types, .biased = s->gate_bias != NULL};
    for (int i = 0; i < MR_IDENTIFY_WIDTH; i++) {
        float v = s->observed[g->row[i] * s->experts + g->expert[i]];
        if (!isfinite(v)) g->live &= (uint16_t)~(1u << i);
        for (int t = 0; t < s->types; t++)
            range_of(s->type[t], v, &g->goal.low[t][i], &g->goal.high[t][i]);
        if (s->gate_bias) g->goal.bias[i] = s->gate_bias[g->expert[i]];
    }
}

static size_t groups_of(size_t n)
{
    return (n + MR_IDENTIFY_WIDTH - 1) / MR_IDENTIFY_WIDTH;
}

size_t identify_groups(const struct identify *s, size_t *telling)
{
    *telling = groups_of(s->outputs);
    return *telling + (s->rows - s->from_row) * groups_of(s->experts);
}

void identify_nth(const struct identify *s, size_t n, struct identify_group *g, double *need)
{
    size_t a_row = groups_of(s->experts), telling = groups_of(s->outputs);
    *need = 0;
    *g = (struct identify_group){.side_by_side = n >= telling};
    for (size_t i = 0; i < MR_IDENTIFY_WIDTH; i++) {
        size_t at = n * MR_IDENTIFY_WIDTH + i, e = (n - telling) % a_row * MR_IDENTIFY_WIDTH + i;
        bool there = n < telling ? at < s->outputs : e < s->experts;
        if (n < telling) {
            const struct identify_output *o = &s->output[there ? at : n * MR_IDENTIFY_WIDTH];
            g->row[i] = o->row;
            g->expert[i] = o->expert;
            if (i == 0) *need = o->need;
        } else {
            g->row[i] = s->from_row + (n - telling) / a_row;
            g->expert[i] = there ? e : 0;
        }
        if (there) g->live |= (uint16_t)(1u << i);
    }
    aim(s, g);
}

static int by_need(const void *a, const void *b)
{
    const struct identify_output *x = a, *y = b;
    if (x->need != y->need) return x->need < y->need ? -1 : 1;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    return x->expert < y->expert ? -1 : x->expert > y->expert;
}

/* How far v lies within the sums that round to what was observed; negative outside. */
static double inside(enum mr_type type, float observed, double v)
{
    int32_t low, high;
    range_of(type, fabsf(observed), &low, &high);
    if (signbit(observed)) v = -v;
    double to_low = v - f32_from((uint32_t)low), to_high = f32_from((uint32_t)high) - v;
    return to_low < to_high ? to_low : to_high;
}

/* The need of an output whose products sum to `sum` in binary64, and their magnitudes to `size`.
 * One unit covers the error of both, at most terms * 2^-52 * size with terms <= 2^20. Sums near
 * overflow and underflow are not judged: need 0. Negative: the exact sum itself does not fit, so
 * the output tells most. */
static double need_of(const struct identify *s, float observed, double sum, double size,
                      double bias)
{
    sum += bias;
    size += fabs(bias);
    if (!(size < 0x1p126) || !(size > (double)s->terms * 0x1p-120) || observed == 0) return 0;
    return inside(s->type[s->rated], observed, sum) / (0x1p-24 * size) - 1;
}

/* Rates the outputs of rows 0 .. rows - 1. */
static enum mr_status rate(struct identify *s, size_t rows)
{
    size_t k = s->terms, n = s->experts * k;
    const float *w = s->operands[0].rows;
    float *size_w = malloc((n + 1) * sizeof *size_w), *x = malloc((2 * k + 1) * sizeof *x);
    double *x64 = malloc((2 * k + 1) * sizeof *x64);
    enum mr_status status = MR_OK;
    if (!size_w || !x || !x64) {
        status = mr_fail(s->err, MR_ERR_MEMORY, "identify: out of memory");
        rows = 0;
    } else {
        for (size_t i = 0; i < n; i++) size_w[i] = fabsf(w[i]);
    }
    for (size_t r = 0; r < rows; r++) {
        mr_operand_values(&s->hidden, r, NULL, x + k, x);
        for (size_t i = 0; i < k; i++) x64[k + i] = fabs(x64[i] = x[i]);
        double sum[4], size[4];
        for (size_t e = 0; e < s->experts; e++) {
            if (e % 4 == 0) {
                const float *of[4], *size_of[4];
                for (size_t j = 0; j < 4; j++) {
                    size_t at = (e + j < s->experts ? e + j : e) * k;
                    of[j] = w + at;
                    size_of[j] = size_w + at;
                }
                mr_dots_f32(x64, of, k, sum);
                mr_dots_f32(x64 + k, size_of, k, size);
            }
            float v = s->observed[r * s->experts + e];
            double bias = s->gate_bias ? (double)s->gate_bias[e] : 0;
            if (!isfinite(v)) continue;
            s->output[s->outputs++] =
                (struct identify_output){need_of(s, v, sum[e % 4], size[e % 4], bias), (uint32_t)r,
                                         (uint32_t)e};
        }
    }
    free(size_w);
    free(x);
    free(x64);
    return status;
}

/* Of fp32 logits, those that are small, so rounded most finely, but not zero. */
static void take_small(struct identify *s, size_t rows)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t e = 0; e < s->experts; e++) {
            float v = s->observed[r * s->experts + e];
            if (isfinite(v) && v != 0)
                s->output[s->outputs++] = (struct identify_output){fabs((double)v), (uint32_t)r,
                                                                   (uint32_t)e};
        }
}

enum mr_status identify_choose(struct identify *s)
{
    const size_t most = 200 * 1000 * 1000; /* multiplications: a fraction of a second */
    enum { FEW = IDENTIFY_TELLING * MR_IDENTIFY_WIDTH };
    bool fp32 = s->type[s->rated] == MR_TYPE_FP32;
    size_t row_cost = fp32 ? s->experts : s->experts * s->terms;
    size_t rows = row_cost && s->rows > most / row_cost ? most / row_cost + 1 : s->rows;
    if (rows > UINT32_MAX) rows = UINT32_MAX;
    s->output = malloc((rows * s->experts + 1) * sizeof *s->output);
    if (!s->output) return mr_fail(s->err, MR_ERR_MEMORY, "identify: out of memory");
    enum mr_status status = MR_OK;
    if (fp32) take_small(s, rows);
    else status = rate(s, rows);
    qsort(s->output, s->outputs, sizeof *s->output, by_need);
    s->from_row = fp32 ? 0 : rows;
    if (!fp32) return status;
    if (s->outputs > FEW) s->outputs = FEW;
    for (size_t i = 0; i < s->outputs; i++) s->output[i].need = 0;
    return status;
}
