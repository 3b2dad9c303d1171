#include "radius_kernels.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t kernel_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

double kernel_uniform(uint64_t *state)
{
    return (double)(kernel_random(state) >> 11) * 0x1p-53;
}

static float chain(bool fused, const float *x, const float *w, size_t n, size_t stride)
{
    float s = 0;
    for (size_t i = 0; i < n; i += stride) {
        s = fused ? fmaf(x[i], w[i], s) : s + x[i] * w[i];
    }
    return s;
}

static float pairwise(const float *p, size_t n)
{
    return n == 1 ? p[0] : pairwise(p, n / 2) + pairwise(p + n / 2, n - n / 2);
}

static float random_tree(float *p, size_t n, uint64_t *state)
{
    for (; n > 1; n--) {
        size_t i = kernel_random(state) % n, j = kernel_random(state) % (n - 1);
        float t = p[i];
        p[i] = p[n - 1];
        p[n - 1] = t;
        p[j] += p[n - 1];
    }
    return p[0];
}

/* As a warp does: lane t sums t, t + 32, ...; then a butterfly. */
static float lanes(bool fused, const float *x, const float *w, size_t n)
{
    enum { WARP = 32 };
    float s[WARP] = {0};
    for (size_t t = 0; t < WARP && t < n; t++) s[t] = chain(fused, x + t, w + t, n - t, WARP);
    for (size_t d = WARP / 2; d; d /= 2)
        for (size_t t = 0; t < d; t++) s[t] += s[t + d];
    return s[0];
}

float kernel_sum(enum order order, bool fused, const float *x, const float *w, size_t n,
                 uint64_t *state)
{
    enum { SPLITS = 4 };
    float *p = malloc(n * sizeof *p), s = 0;
    ck_assert_ptr_nonnull(p);
    for (size_t i = 0; i < n; i++) p[i] = x[i] * w[i];
    switch (order) {
    case ORDER_SEQUENTIAL: s = chain(fused, x, w, n, 1); break;
    case ORDER_REVERSED:
        for (size_t i = n; i-- > 0;) s = fused ? fmaf(x[i], w[i], s) : s + p[i];
        break;
    case ORDER_PAIRWISE: s = pairwise(p, n); break;
    case ORDER_LANES: s = lanes(fused, x, w, n); break;
    case ORDER_SPLIT:
        for (size_t i = 0; i < SPLITS; i++) {
            size_t from = n * i / SPLITS, to = n * (i + 1) / SPLITS;
            s += chain(fused, x + from, w + from, to - from, 1);
        }
        break;
    case ORDER_TREE: s = random_tree(p, n, state); break;
    default:
        for (size_t i = n; i > 1; i--) {
            size_t j = kernel_random(state) % i;
            float t = p[i - 1];
            p[i - 1] = p[j];
            p[j] = t;
        }
        for (size_t i = 0; i < n; i++) s += p[i];
    }
    free(p);
    return s;
}

/* Positive terms first, so that partial sums grow; among them, and then among the others, the one
 * whose addition errs most. */
float kernel_greedy_sum(const float *p, size_t n, int sign)
{
    bool *used = calloc(n, sizeof *used);
    ck_assert_ptr_nonnull(used);
    float s = 0;
    for (int negative = 0; negative < 2; negative++)
        for (size_t best = 0; best < n;) {
            double best_error = 0;
            best = n;
            for (size_t i = 0; i < n; i++) {
                if (used[i] || (p[i] < 0) != negative) continue;
                double error = ((double)(s + p[i]) - ((double)s + (double)p[i])) * sign;
                if (best < n && error <= best_error) continue;
                best = i;
                best_error = error;
            }
            if (best == n) break;
            used[best] = true;
            s += p[best];
        }
    free(used);
    return s;
}

static int exponent_of(float x)
{
    int e;
    frexp(x, &e);
    return e - 1;
}

/* significand * 2^(exponent - bits), cut toward zero to a multiple of 2^(top - 25), in those
 * units. */
static int64_t aligned(int64_t significand, int exponent, int bits, int top)
{
    int shift = exponent - bits - (top - 25);
    int64_t size = significand < 0 ? -significand : significand;
    size = shift >= 0 ? size << shift : shift < -62 ? 0 : size >> -shift;
    return significand < 0 ? -size : size;
}

static float step16(const float *x, const float *w, size_t n, float c)
{
    enum { ZERO = -133 };
    int top = c != 0 ? exponent_of(c) : ZERO;
    for (size_t i = 0; i < n; i++) {
        if (x[i] == 0 || w[i] == 0) continue;
        int e = exponent_of(x[i]) + exponent_of(w[i]);
        if (e > top) top = e;
    }
    if (top < ZERO) top = ZERO;
    int64_t sum =
        c != 0 ? aligned((int64_t)ldexp(c, 23 - exponent_of(c)), exponent_of(c), 23, top) : 0;
    for (size_t i = 0; i < n; i++) {
        if (x[i] == 0 || w[i] == 0) continue;
        int ex = exponent_of(x[i]), ew = exponent_of(w[i]);
        int64_t a = (int64_t)ldexp(x[i], 7 - ex), b = (int64_t)ldexp(w[i], 7 - ew);
        sum += aligned(a * b, ex + ew, 14, top);
    }
    if (sum == 0) return 0;
    int64_t size = sum < 0 ? -sum : sum, most = INT64_C(1) << 24;
    int scale = top - 25;
    while (size >= most) {
        size >>= 1;
        scale++;
    }
    double value = ldexp((double)size, scale);
    ck_assert(value >= 0x1p-126 && value < 0x1p128);
    return (float)(sum < 0 ? -value : value);
}

float kernel_tensor(const float *x, const float *w, size_t n, size_t splits)
{
    float total = 0;
    for (size_t i = 0; i < splits; i++) {
        size_t from = n * i / splits, to = n * (i + 1) / splits;
        float c = 0;
        for (size_t k = from; k < to; k += 16)
            c = step16(x + k, w + k, to - k < 16 ? to - k : 16, c);
        total = i ? total + c : c;
    }
    return total;
}

/* The correctly rounded value moved by up to `ulps` units (and so off by half a unit more). */
static float moved(double value, int ulps, int push, uint64_t *state)
{
    float f = (float)value;
    int by = push ? push * ulps : (int)(kernel_random(state) % (2 * (unsigned)ulps + 1)) - ulps;
    for (; by > 0; by--) f = nextafterf(f, HUGE_VALF);
    for (; by < 0; by++) f = nextafterf(f, -HUGE_VALF);
    return f;
}

static float expf_kernel(float x, int push, uint64_t *state)
{
    return moved(exp(x), 1, push, state);
}

static float fast_exp(float x, int push, uint64_t *state)
{
    float t = x * 0x1.715476p+0f;
    float r = moved(exp2(t), 1, push, state);
    return r < 0x1p-126f ? 0 : r;
}

static float fast_log(float x, int push, uint64_t *state)
{
    double by = push ? push : 2 * kernel_uniform(state) - 1;
    if (x > 2) return moved(log(x), 2, push, state);
    return (float)(log(x) + by * 3.5e-7); /* 2^-21.41 = 3.59e-7, less a rounding */
}

float kernel_score(enum kernel_score which, float x, int push, uint64_t *state)
{
    float t, a = fabsf(x);
    switch (which) {
    case KERNEL_SIGMOID_EXPF: return 1.0f / (1.0f + expf_kernel(-x, -push, state));
    case KERNEL_SIGMOID_FAST:
        t = 1.0f + fast_exp(-x, -push, state);
        return t >= 0x1p126f ? 0 : moved(1.0 / t, 1, push, state);
    case KERNEL_SIGMOID_TANH:
        t = moved(tanh(0.5f * x), 1, push, state);
        if (fabsf(t) > 1) t = copysignf(1, t);
        return 0.5f * t + 0.5f;
    case KERNEL_SOFTPLUS_CLASSIC:
        t = x > 20 ? x : fast_log(1.0f + fast_exp(x, push, state), push, state);
        return moved(sqrt(t < 0 ? 0 : t), t > 0, push, state);
    case KERNEL_SOFTPLUS_LOG1P:
        return sqrtf(moved(log1p(expf_kernel(x, push, state)), 0, push, state));
    case KERNEL_SOFTPLUS_LOG:
        return sqrtf(x > 20 ? x : moved(log(1.0f + expf_kernel(x, push, state)), 0, push, state));
    default: return sqrtf(fmaxf(x, 0) + moved(log1p(expf_kernel(-a, push, state)), 0, push, state));
    }
}

void kernel_softmax(const float *x, size_t n, bool fast, bool reciprocal, size_t which, int push,
                    float *out, uint64_t *state)
{
    float max = x[0], *p = malloc(n * sizeof *p);
    ck_assert_ptr_nonnull(p);
    for (size_t i = 1; i < n; i++) max = fmaxf(max, x[i]);
    for (size_t i = 0; i < n; i++) {
        int d = i == which ? push : -push;
        float t = x[i] - max;
        out[i] = p[i] = fast ? fast_exp(t, d, state) : expf_kernel(t, d, state);
    }
    float sum = random_tree(p, n, state), inverse = 1.0f / sum;
    for (size_t i = 0; i < n; i++) {
        if (reciprocal)
            out[i] = out[i] * inverse;
        else if (fast)
            out[i] = moved((double)out[i] / sum, out[i] > 0, i == which ? push : -push, state);
        else
            out[i] = out[i] / sum;
    }
    free(p);
}

float kernel_narrow(enum mr_type type, float x)
{
    if (type == MR_TYPE_FP32 || x == 0) return x;
    if (type == MR_TYPE_FP16) {
        int e = exponent_of(x) < -14 ? -14 : exponent_of(x);
        double unit = ldexp(1, e - 10), v = nearbyint(x / unit) * unit;
        return fabs(v) > 65504 ? copysignf(HUGE_VALF, x) : (float)v;
    }
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000;
    memcpy(&x, &bits, sizeof bits);
    return x;
}
