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

void identify_aim(const struct identify *s, struct identify_group *g)
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

size_t identify_groups(const struct identify *s)
{
    return s->rows * (s->padded / MR_IDENTIFY_WIDTH);
}

void identify_nth(const struct identify *s, size_t n, struct identify_group *g)
{
    size_t a_row = s->padded / MR_IDENTIFY_WIDTH;
    *g = (struct identify_group){.side_by_side = true};
    for (size_t i = 0; i < MR_IDENTIFY_WIDTH; i++) {
        size_t e = n % a_row * MR_IDENTIFY_WIDTH + i;
        g->row[i] = n / a_row;
        g->expert[i] = e < s->experts ? e : 0;
        if (e < s->experts) g->live |= (uint16_t)(1u << i);
    }
    identify_aim(s, g);
}

/* An output, and how little it tells. */
struct output {
    double dull;
    uint32_t row, expert;
};

static int by_dullness(const void *a, const void *b)
{
    const struct output *x = a, *y = b;
    if (x->dull != y->dull) return x->dull < y->dull ? -1 : 1;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    return x->expert < y->expert ? -1 : x->expert > y->expert;
}

/* Distance of v to the nearest end of the sums that round to what was observed. */
static double to_edge(enum mr_type type, float observed, double v)
{
    int32_t low, high;
    range_of(type, fabsf(observed), &low, &high);
    double l = low ? f32_from((uint32_t)low) : -(double)f32_from((uint32_t)high);
    double to_low = fabs(fabs(v) - l), to_high = fabs(fabs(v) - (double)f32_from((uint32_t)high));
    return to_low < to_high ? to_low : to_high;
}

/* Of outputs of fp32: small ones, that are not zero. Of the others by dots in binary64, of as many
 * rows as are looked at in a fraction of a second. */
static enum mr_status rate(const struct identify *s, enum mr_type type, size_t rows,
                           struct output *out)
{
    size_t k = s->terms;
    const float *w = s->operands[0].rows;
    float *x = malloc((2 * k + 1) * sizeof *x);
    double *x64 = malloc((k + 1) * sizeof *x64);
    if (!x || !x64) {
        free(x);
        free(x64);
        return mr_fail(s->err, MR_ERR_MEMORY, "identify: out of memory");
    }
    for (size_t r = 0; r < rows; r++) {
        double norm = 0, dot[4];
        if (type != MR_TYPE_FP32) mr_operand_values(&s->hidden, r, NULL, x + k, x);
        for (size_t i = 0; i < k && type != MR_TYPE_FP32; i++) {
            x64[i] = x[i];
            norm += x64[i] * x64[i];
        }
        for (size_t e = 0; e < s->experts; e++) {
            float v = s->observed[r * s->experts + e];
            struct output *o = &out[r * s->experts + e];
            *o = (struct output){v == 0 ? (double)INFINITY : fabs((double)v), (uint32_t)r,
                                 (uint32_t)e};
            if (type != MR_TYPE_FP32) {
                if (e % 4 == 0) {
                    const float *four[4];
                    for (size_t j = 0; j < 4; j++)
                        four[j] = w + (e + j < s->experts ? e + j : e) * k;
                    mr_dots_f32(x64, four, k, dot);
                }
                double d = dot[e % 4] + (s->gate_bias ? (double)s->gate_bias[e] : 0);
                o->dull = to_edge(type, v, d) / sqrt(norm);
            }
            if (!isfinite(v) || isnan(o->dull)) o->dull = (double)INFINITY;
        }
    }
    free(x);
    free(x64);
    return MR_OK;
}

enum mr_status identify_choose(const struct identify *s, size_t most, struct identify_group *group,
                               size_t *groups)
{
    const size_t budget = 200 * 1000 * 1000;
    enum mr_type type = s->type[s->types - 1];
    size_t rows = s->rows, row_cost = type == MR_TYPE_FP32 ? s->experts : s->experts * s->terms;
    while (rows > 1 && rows * row_cost > budget) rows--;
    size_t n = rows * s->experts;
    *groups = 0;
    struct output *o = malloc((n + 1) * sizeof *o);
    if (!o) return mr_fail(s->err, MR_ERR_MEMORY, "identify: out of memory");
    enum mr_status status = rate(s, type, rows, o);
    if (!status) qsort(o, n, sizeof *o, by_dullness);
    for (size_t at = 0; !status && at < n && *groups < most; at += MR_IDENTIFY_WIDTH) {
        struct identify_group *g = &group[(*groups)++];
        *g = (struct identify_group){0};
        for (size_t i = 0; i < MR_IDENTIFY_WIDTH; i++) {
            const struct output *from = &o[at + i < n ? at + i : at];
            g->row[i] = from->row;
            g->expert[i] = from->expert;
            if (at + i < n) g->live |= (uint16_t)(1u << i);
        }
        identify_aim(s, g);
    }
    free(o);
    return status;
}
