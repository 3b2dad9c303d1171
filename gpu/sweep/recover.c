/* Recovers the tables of the special-function unit (MUFU) from what the hardware answered.
 *
 *     cc -O3 -std=c11 -fopenmp gpu/sweep/recover.c -lm -o recover
 *     recover ex2 ex2.u32
 *
 * The file holds outputs as words: for ex2, rcp, lg2 of all inputs in [1, 2), for rsqrt and sqrt in
 * [1, 4), for tanh of every 16th input from 0 on. gpu/sweep --dump writes them.
 *
 * Known beforehand: only the structure (Oberman, Siu: "A High-Performance Area-Efficient
 * Multifunction Interpolator", ARITH 2005): with the upper bits of the fraction as index and the
 * lower ones as xl, S = C0 2^a +- C1 xl 2^b +- C2 q(xl) 2^c + bias, truncated;
 * docs/cuda-functions.md has the whole. For a segment and a pair C1, C2 each output confines C0 2^a
 * + bias to an interval; what all of them leave is printed. The pairs tried lie around the
 * quadratic through three points. That of tanh was found with the same means: where the quadratics
 * break shows the segments, and the feasible sets of a linear programme the steps of the
 * coefficients. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { C1_SPAN = 300, C2_SPAN = 600, MOST = 64 };

static double of_rcp(double x)
{
    return 1 / x;
}

static double of_rsqrt(double x)
{
    return 1 / sqrt(x);
}

/* Columns are counted from the lowest one that any term has, 2^17 of the published datapath. */
static const struct shape {
    const char *name;
    double (*f)(double);
    int index_bits, parity; /* of the fraction; whether the exponent's lowest bit is one more */
    int a, b, c, sign1, sign2;
    int64_t bias;
    int unit; /* the column of 1 (tanh: of the power of two below the segment's last output) */
} shapes[] = {
    {"ex2", exp2, 6, 0, 15, 2, 2, +1, +1, 0x6fc4 << 1, 40},
    {"rcp", of_rcp, 7, 0, 13, 0, 0, -1, +1, 0x67e7, 39},
    {"rsqrt", of_rsqrt, 6, 1, 14, 0, 2, -1, +1, 0xffff, 40},
    {"lg2", log2, 6, 0, 13, 1, 2, +1, -1, 0x868b, 39},
    {"sqrt", sqrt, 6, 1, 16, 1, 2, +1, -1, 0x1fffe, 41},
    {"tanh", tanh, 0, 0, 0, 3, 3, +1, -1, 0, 40},
};

/* Inputs of one segment: x0 + i step, i < n; xl = i; out[i stride]. */
struct piece {
    const uint32_t *out;
    size_t stride, n;
    int widen; /* q takes xl 2^widen, of 17 bits (tanh: what is printed, too) */
    double x0, width;
    int exponent; /* what the unit column stands for */
};

/* The truncated square over 2^19: rows 2 to 8 of the squarer lose the columns below 2^19. */
static int64_t square(uint32_t x)
{
    int64_t q = (int64_t)(x >> 9) * (x >> 9) >> 1;
    for (int i = 2; i <= 8; i++) q += (x >> i & 1) ? x >> (18 - i) : 0;
    return q;
}

static int64_t power(int k)
{
    return (int64_t)1 << k;
}

/* The values of S that give this output. */
static void interval(const struct shape *s, const struct piece *p, uint32_t out, int64_t *lo,
                     int64_t *hi)
{
    int shift = s->unit + (int)(out >> 23) - 127 - p->exponent - 23;
    int64_t significand = (out & 0x7fffff) | 0x800000;
    *lo = shift >= 0 ? significand * power(shift) : significand >> -shift;
    int64_t width = shift > 0 ? power(shift) : 1;
    if (s->f == log2 && width < 8) width = 8; /* its three lowest columns are cleared */
    *hi = *lo + width - 1;
}

struct found {
    int64_t c1, c2, lo, hi; /* of C0 2^a + bias */
};

static size_t solve(const struct shape *s, const struct piece *p, struct found *found)
{
    size_t n = p->n, known = 0, count = 0;
    double y0 = s->f(p->x0), y1 = s->f(p->x0 + p->width / 2), y2 = s->f(p->x0 + p->width);
    double second = (y0 - 2 * y1 + y2) * 2, first = -3 * y0 + 4 * y1 - y2;
    double scale = ldexp(1, s->unit - p->exponent);
    int64_t c1_mid = llrint(fabs(first) * scale / (double)n / ldexp(1, s->b));
    int64_t c2_mid = llrint(fabs(second) * scale / ldexp(1, 2 * 17 - 19 + s->c));
    int64_t *lo = malloc(n * sizeof *lo), *hi = malloc(n * sizeof *hi), *q = malloc(n * sizeof *q);
    int64_t *xl = malloc(n * sizeof *xl);
    if (!lo || !hi || !q || !xl) exit(4);
    /* Scattered, so that most wrong pairs die early. */
    for (size_t k = 0; k < n; k++) {
        size_t i = k * 40503 & (n - 1);
        uint32_t out = p->out[i * p->stride];
        /* Exact by themselves: reciprocals and roots of 1, log2(1), outputs that are lost. */
        if (i == 0 && s->f != exp2 && s->f != tanh && p->x0 <= 2) continue;
        if (out == UINT32_MAX) continue;
        interval(s, p, out, &lo[known], &hi[known]);
        q[known] = square((uint32_t)i << p->widen);
        xl[known++] = (int64_t)i;
    }
    for (int64_t c1 = c1_mid - C1_SPAN; c1 <= c1_mid + C1_SPAN; c1++)
        for (int64_t c2 = c2_mid - C2_SPAN; c2 <= c2_mid + C2_SPAN; c2++) {
            int64_t from = INT64_MIN, to = INT64_MAX;
            for (size_t k = 0; k < known && from <= to; k++) {
                int64_t r =
                    s->sign1 * c1 * xl[k] * power(s->b) + s->sign2 * c2 * q[k] * power(s->c);
                if (lo[k] - r > from) from = lo[k] - r;
                if (hi[k] - r < to) to = hi[k] - r;
            }
            if (from <= to && count < MOST) found[count++] = (struct found){c1, c2, from, to};
        }
    free(lo), free(hi), free(q), free(xl);
    return count;
}

/* Which biases modulo 2^a, the step of C0, are possible in all segments. */
static void tell_biases(const struct shape *s, int segments, struct found (*found)[MOST],
                        const size_t *counts)
{
    int64_t step = power(s->a), low = -1, high = -1, possible = 0;
    for (int64_t bias = 0; bias < step; bias++) {
        int all = 1;
        for (int i = 0; i < segments && all; i++) {
            int any = 0;
            for (size_t k = 0; k < counts[i] && !any; k++) {
                int64_t c0 = (found[i][k].hi - bias) >> s->a;
                any = c0 * step + bias >= found[i][k].lo;
            }
            all = any;
        }
        if (!all) continue;
        if (low < 0) low = bias;
        high = bias;
        possible++;
    }
    fprintf(stderr, "%s: biases mod %#llx possible: %lld, from %#llx to %#llx; taken %#llx\n",
            s->name, (long long)step, (long long)possible, (long long)low, (long long)high,
            (long long)(s->bias % step));
}

/* The number of [lo, hi] with most zeros at its end. */
static int64_t roundest(int64_t lo, int64_t hi)
{
    int k = 0;
    while (k < 62 && (hi >> (k + 1)) * power(k + 1) >= lo) k++;
    return (hi >> k) * power(k);
}

enum { TANH_FIRST = 119, TANH_OCTAVES = 11 }; /* 2^-8 to 2^2 */
static const int tanh_index_bits[TANH_OCTAVES] = {0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3};

/* xl has 17 bits everywhere; of the last three octaves every second or fourth xl is seen. */
static int tanh_pieces(const uint32_t *out, struct piece *pieces)
{
    int count = 0;
    for (int o = 0; o < TANH_OCTAVES; o++) {
        int index_bits = tanh_index_bits[o], unused = 6 - index_bits;
        int unseen = unused < 4 ? 4 - unused : 0, stride_bits = unused < 4 ? 0 : unused - 4;
        for (int i = 0; i < 1 << index_bits; i++) {
            struct piece *p = &pieces[count++];
            double width = ldexp(1, o + TANH_FIRST - 127 - index_bits);
            size_t n = (size_t)power(17 - unseen), stride = (size_t)power(stride_bits);
            const uint32_t *at =
                out + ((size_t)(o + TANH_FIRST) << 19) + ((size_t)i << (19 - index_bits));
            *p = (struct piece){at,
                                stride,
                                n,
                                unseen,
                                width * (i + (1 << index_bits)),
                                width,
                                (int)(at[(n - 1) * stride] >> 23) - 127};
        }
    }
    return count;
}

int main(int argc, char **argv)
{
    const struct shape *s = shapes, *end = shapes + sizeof shapes / sizeof *shapes;
    while (argc == 3 && s < end && strcmp(s->name, argv[1]) != 0) s++;
    if (argc != 3 || s == end) return fprintf(stderr, "recover NAME FILE\n"), 2;
    size_t words = s->f == tanh ? 0x41000000 / 16 : (size_t)power(23 + s->parity);
    uint32_t *out = malloc(words * sizeof *out);
    static struct piece pieces[128];
    static struct found found[128][MOST];
    size_t counts[128];
    FILE *file = fopen(argv[2], "rb");
    if (!out) return 4;
    if (!file || fread(out, sizeof *out, words, file) != words)
        return fprintf(stderr, "short file\n"), 3;
    fclose(file);
    int segments = 1 << (s->index_bits + s->parity);
    if (s->f == tanh)
        segments = tanh_pieces(out, pieces);
    else
        for (int i = 0; i < segments; i++) {
            int octave = i >> s->index_bits, at = i & ((1 << s->index_bits) - 1);
            size_t n = (size_t)power(23 - s->index_bits);
            double width = ldexp(1, octave - s->index_bits);
            pieces[i] =
                (struct piece){out + (size_t)i * n,           1,     n,           s->index_bits - 6,
                               ldexp(1, octave) + at * width, width, s->f == exp2};
        }
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < segments; i++) counts[i] = solve(s, &pieces[i], found[i]);
    if (s->f != tanh) tell_biases(s, segments, found, counts);
    int bad = 0, many = 0;
    for (int i = 0; i < segments; i++) {
        int fits = 0;
        struct found f = {0};
        int64_t c0 = 0;
        for (size_t k = 0; k < counts[i]; k++) {
            int64_t most = (found[i][k].hi - s->bias) >> s->a;
            int64_t least = (found[i][k].lo - s->bias + power(s->a) - 1) >> s->a;
            if (most < least) continue;
            if (!fits) f = found[i][k], c0 = s->f == tanh ? roundest(f.lo, f.hi) : most;
            fits += s->f == tanh ? 1 : (int)(most - least + 1);
        }
        if (fits == 0) bad++, fprintf(stderr, "segment %d: none (%zu pairs)\n", i, counts[i]);
        many += fits > 1;
        if (s->f == tanh) {
            int k = pieces[i].exponent - s->unit;
            printf("    {%a, %a, %a},\n", ldexp((double)c0, k),
                   ldexp((double)f.c1, k + s->b - pieces[i].widen), ldexp((double)f.c2, k + s->c));
        } else {
            printf("%s{0x%07llx, 0x%08llx},%s", i % 4 == 0 ? "    " : "", (long long)c0,
                   (long long)(f.c1 << 12 | f.c2), i % 4 == 3 ? "\n" : " ");
        }
    }
    fprintf(stderr, "%s: %d segments, %d without a solution, %d with more than one\n", s->name,
            segments, bad, many);
    return bad ? 1 : 0;
}
