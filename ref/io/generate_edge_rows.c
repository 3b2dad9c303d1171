#include "generate_edge_rows.h"

#include <math.h>

#include "generate_rows.h"

/* Streams below a layer's key. Numbers are part of the output: never reuse or renumber one. */
enum { STREAM_ROWS = 1, STREAM_BIAS };

uint64_t mr_edge_row_key(const struct mr_edge_job *job, size_t token)
{
    return mr_generate_key(mr_generate_key(job->key, STREAM_ROWS), token);
}

uint64_t mr_edge_below(uint64_t key, uint64_t index, uint64_t limit)
{
    /* The top 32 bits times limit: a bias of limit / 2^32 does not matter here. */
    return (mr_generate_bits(key, index) >> 32) * limit >> 32;
}

float mr_edge_normal(uint64_t key, uint64_t index)
{
    return (float)mr_generate_normal(mr_generate_bits(key, index)) * 0x1p-17f;
}

float mr_edge_uniform(uint64_t key, uint64_t index)
{
    return (float)(mr_generate_bits(key, index) >> 44) * 0x1p-20f;
}

void mr_edge_shuffle(uint64_t key, int *order, int count)
{
    for (int i = 0; i < count; i++) order[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int j = (int)mr_edge_below(key, (uint64_t)i, (uint64_t)i + 1), other = order[i];
        order[i] = order[j];
        order[j] = other;
    }
}

static float *row(const struct mr_edge_job *job, size_t token)
{
    return job->logits + token * job->stride;
}

/* offset + spread * u, u in [-0.5, 0.5): the form of a trained correction bias. */
static void fill_bias(const struct mr_edge_job *job, float offset, float spread)
{
    uint64_t key = mr_generate_key(job->key, STREAM_BIAS);
    for (int e = 0; job->bias && e < job->router->experts; e++)
        job->bias[e] = offset + spread * (mr_edge_uniform(key, (uint64_t)e) - 0.5f);
}

static void fill_normal(const struct mr_edge_job *job, size_t token)
{
    uint64_t key = mr_edge_row_key(job, token);
    for (int e = 0; e < job->router->experts; e++)
        row(job, token)[e] = mr_edge_normal(key, (uint64_t)e);
}

/* Ordinary logits; what is hard is the shape, or the number of tokens. */
void mr_edge_plain(const struct mr_edge_job *job)
{
    fill_bias(job, 0, 0.25f);
    for (size_t t = 0; t < job->tokens; t++) fill_normal(job, t);
}

/* Layers: biases about 0, 2, 8, 12 and 35 (published: 6.8 to 7.1, 8.08, 11.5 to 12, up to 35). The
 * larger the offset, the fewer bits of the score are left in score + bias. */
void mr_edge_bias_offsets(const struct mr_edge_job *job)
{
    static const float offset[] = {0, 2, 8, 12, 35};
    fill_bias(job, offset[job->layer % 5], 0.25f);
    for (size_t t = 0; t < job->tokens; t++) fill_normal(job, t);
}

/* Every key is below 0: a mask value of 0.0 beats them all. */
void mr_edge_bias_negative(const struct mr_edge_job *job)
{
    fill_bias(job, job->layer ? -3 : -1.25f, 0.25f);
    for (size_t t = 0; t < job->tokens; t++) fill_normal(job, t);
}

void mr_edge_all_equal(const struct mr_edge_job *job)
{
    static const float value[MR_EDGE_EQUAL_PATTERNS] = {0, -0.0f, 1, -3.5f, 16.75f, -17, 90, -200};
    fill_bias(job, job->layer ? 8 : 0, 0);
    for (size_t t = 0; t < job->tokens; t++)
        for (int e = 0; e < job->router->experts; e++)
            row(job, t)[e] = value[t % MR_EDGE_EQUAL_PATTERNS];
}

/* Logits in [-9, -1), then narrower and deeper bands. */
void mr_edge_all_negative(const struct mr_edge_job *job)
{
    static const struct {
        float top, width;
    } band[MR_EDGE_NEGATIVE_PATTERNS] = {{-1, 8}, {-1, 0.125f}, {-8, 1}, {-0x1p-10f, 0x1p-4f}};
    fill_bias(job, 0, 0.25f);
    for (size_t t = 0; t < job->tokens; t++) {
        uint64_t key = mr_edge_row_key(job, t);
        float top = band[t % MR_EDGE_NEGATIVE_PATTERNS].top;
        float width = band[t % MR_EDGE_NEGATIVE_PATTERNS].width;
        for (int e = 0; e < job->router->experts; e++)
            row(job, t)[e] = top - width * mr_edge_uniform(key, (uint64_t)e);
    }
}

/* Sigmoids that round to 1 in fp32 (from 16.64 on), most of them in binary64 too (from 36.8 on),
 * and differ all the same. */
void mr_edge_saturated(const struct mr_edge_job *job)
{
    static const float least[MR_EDGE_SATURATED_PATTERNS] = {16.5f, 17, 36, 88};
    fill_bias(job, job->layer ? 2 : 0, job->layer ? 0x1p-18f : 0);
    for (size_t t = 0; t < job->tokens; t++) {
        uint64_t key = mr_edge_row_key(job, t);
        for (int e = 0; e < job->router->experts; e++)
            row(job, t)[e] = least[t % MR_EDGE_SATURATED_PATTERNS] +
                             4 * mr_edge_uniform(key, (uint64_t)e);
    }
}

/* Where forms of the score part (notes of mr_edge_at): one level a token, and small differences. */
static void fill_tail(const struct mr_edge_job *job, const float level[MR_EDGE_TAIL_PATTERNS])
{
    for (size_t t = 0; t < job->tokens; t++) {
        uint64_t key = mr_edge_row_key(job, t);
        float at = level[t % MR_EDGE_TAIL_PATTERNS];
        for (int e = 0; e < job->router->experts; e++)
            row(job, t)[e] = at + 0.125f * (mr_edge_uniform(key, (uint64_t)e) - 0.5f);
    }
}

/* 0.5 tanh(x/2) + 0.5 is 0 from -18.02 down in fp32; exp(-x) overflows fp32 at -88.73; the sigmoid
 * itself leaves fp32's normal numbers at -87.3 and is 0 below -104. */
void mr_edge_sigmoid_tail(const struct mr_edge_job *job)
{
    static const float level[MR_EDGE_TAIL_PATTERNS] = {
        -14, -15, -16, -16.625f, -16.75f, -17, -18, -18.125f,
        -20, -30, -60, -87.25f, -88.75f, -103.5f, -104.25f, -200};
    fill_bias(job, job->layer ? 12 : 0, job->layer ? 0.25f : 0);
    fill_tail(job, level);
}

/* log(1 + exp x) is 0 in fp32 below -16.64, exp overflows at 88.73, kernels switch to x at 20. */
void mr_edge_softplus_tail(const struct mr_edge_job *job)
{
    static const float level[MR_EDGE_TAIL_PATTERNS] = {
        -200, -104, -88.75f, -60, -30, -20, -17, -16.625f,
        -8, 16.75f, 17, 20, 20.125f, 88.625f, 90, 200};
    fill_bias(job, job->layer ? 8 : 0, job->layer ? 0.25f : 0);
    fill_tail(job, level);
}

/* +0 and -0 are equal numbers with different encodings: kernels that compare bit patterns part
 * them. */
void mr_edge_minus_zero(const struct mr_edge_job *job)
{
    for (int e = 0; job->bias && e < job->router->experts; e++)
        job->bias[e] = job->layer ? (e & 1 ? -0.0f : 0.0f) : 0;
    for (size_t t = 0; t < job->tokens; t++) {
        uint64_t key = mr_edge_row_key(job, t);
        for (int e = 0; e < job->router->experts; e++) {
            float zero = mr_generate_bits(key, (uint64_t)e) >> 63 ? -0.0f : 0.0f;
            uint64_t other = mr_edge_below(key, 1000000 + (uint64_t)e, 8);
            float small = 0x1p-20f * (mr_edge_uniform(key, 2000000 + (uint64_t)e) - 0.5f);
            switch (t % MR_EDGE_ZERO_PATTERNS) {
            case 0: break;                                    /* zeros alone */
            case 1: zero = other ? zero : small; break;       /* few others */
            case 2: zero = other ? -1 - (float)other : zero; break; /* fewer zeros than slots */
            default: zero = e < job->router->top_k ? -0.0f : 0.0f; break;
            }
            row(job, t)[e] = zero;
        }
    }
}

/* Steps of 2^-149: kernels that flush subnormals to zero make ties of them. */
void mr_edge_subnormal(const struct mr_edge_job *job)
{
    fill_bias(job, 0, 0);
    for (size_t t = 0; t < job->tokens; t++) {
        uint64_t key = mr_edge_row_key(job, t);
        for (int e = 0; e < job->router->experts; e++) {
            float step = (float)(int)mr_edge_below(key, (uint64_t)e, 1 << 20);
            if (t % 2) step -= 0x1p19f;
            row(job, t)[e] = step * (t % MR_EDGE_SUBNORMAL_PATTERNS < 2 ? 0x1p-149f : 0x1p-140f);
        }
    }
}

/* The same experts in every token: a broken row of the gate. Layer 0: one column; layer 1: all but
 * top_k - 1, so that fewer numbers than slots are left. */
static void fill_column(const struct mr_edge_job *job, float bad)
{
    int experts = job->router->experts;
    int columns = job->layer ? experts - job->router->top_k + 1 : 1;
    mr_edge_shuffle(mr_generate_key(job->key, STREAM_BIAS + 1), job->order, experts);
    fill_bias(job, 0, 0.25f);
    for (size_t t = 0; t < job->tokens; t++) {
        fill_normal(job, t);
        for (int i = 0; i < columns; i++) row(job, t)[job->order[i]] = bad;
    }
}

/* The same tokens in every expert: padding rows of a CUDA graph. Every other token is sound, and
 * must be routed as if the bad ones were not there. */
static void fill_rows(const struct mr_edge_job *job, float bad)
{
    fill_bias(job, 0, 0.25f);
    for (size_t t = 0; t < job->tokens; t++) {
        fill_normal(job, t);
        for (int e = 0; t % 2 && e < job->router->experts; e++)
            row(job, t)[e] = t % MR_EDGE_BAD_PATTERNS == 1 || e % 2 ? bad : row(job, t)[e];
    }
}

void mr_edge_nan_column(const struct mr_edge_job *job)
{
    fill_column(job, NAN);
}

void mr_edge_inf_column(const struct mr_edge_job *job)
{
    fill_column(job, job->layer ? -INFINITY : INFINITY);
}

void mr_edge_nan_rows(const struct mr_edge_job *job)
{
    fill_rows(job, NAN);
}

void mr_edge_inf_rows(const struct mr_edge_job *job)
{
    fill_rows(job, job->layer ? -INFINITY : INFINITY);
}
