/* Sums for moeref reveal --plugin (ref/arith/reveal_plugin.h): real orders, and ways to go wrong.
 */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../ref/arith/reveal_plugin.h"

mr_reveal_plugin moeref_sum, backwards, pairwise, lanes8, openblas_sdot, openblas_sgemv, from_last,
    sorted, unsteady, crashes, ends, hangs, says_no, writes_nothing;

int moeref_sum(const float *rows, size_t count, size_t terms, float *out)
{
    for (size_t r = 0; r < count; r++) {
        float sum = 0;
        for (size_t i = 0; i < terms; i++) sum += rows[r * terms + i];
        out[r] = sum;
    }
    return 0;
}

int backwards(const float *rows, size_t count, size_t terms, float *out)
{
    for (size_t r = 0; r < count; r++) {
        float sum = 0;
        for (size_t i = terms; i-- > 0;) sum += rows[r * terms + i];
        out[r] = sum;
    }
    return 0;
}

static float pairs(const float *v, size_t n)
{
    return n == 1 ? *v : pairs(v, n / 2) + pairs(v + n / 2, n - n / 2);
}

int pairwise(const float *rows, size_t count, size_t terms, float *out)
{
    for (size_t r = 0; r < count; r++) out[r] = pairs(rows + r * terms, terms);
    return 0;
}

/* Eight accumulators, added as a tree: the block of numpy's pairwise summation. */
int lanes8(const float *rows, size_t count, size_t terms, float *out)
{
    if (terms % 8) return 1;
    for (size_t r = 0; r < count; r++) {
        float a[8];
        memcpy(a, rows + r * terms, sizeof a);
        for (size_t i = 8; i < terms; i++) a[i % 8] += rows[r * terms + i];
        out[r] = ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]));
    }
    return 0;
}

/* What this processor's kernel of OpenBLAS does. */
int openblas_sdot(const float *rows, size_t count, size_t terms, float *out)
{
    float *ones = malloc(terms * sizeof *ones);
    if (!ones) return 1;
    for (size_t i = 0; i < terms; i++) ones[i] = 1;
    for (size_t r = 0; r < count; r++)
        out[r] = cblas_sdot((int)terms, rows + r * terms, 1, ones, 1);
    free(ones);
    return 0;
}

int openblas_sgemv(const float *rows, size_t count, size_t terms, float *out)
{
    float *ones = malloc(terms * sizeof *ones);
    if (!ones) return 1;
    for (size_t i = 0; i < terms; i++) ones[i] = 1;
    for (size_t r = 0; r < count; r++)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, 1, (int)terms, 1, rows + r * terms, (int)terms,
                    ones, 1, 0, out + r, 1);
    free(ones);
    return 0;
}

/* The last term is where the accumulator starts. */
int from_last(const float *rows, size_t count, size_t terms, float *out)
{
    for (size_t r = 0; r < count; r++) {
        float sum = rows[r * terms + terms - 1];
        for (size_t i = 0; i + 1 < terms; i++) sum += rows[r * terms + i];
        out[r] = sum;
    }
    return 0;
}

static int by_magnitude(const void *x, const void *y)
{
    float a = fabsf(*(const float *)x), b = fabsf(*(const float *)y);
    return (a > b) - (a < b);
}

int sorted(const float *rows, size_t count, size_t terms, float *out)
{
    float *v = malloc(terms * sizeof *v);
    if (!v) return 1;
    for (size_t r = 0; r < count; r++) {
        memcpy(v, rows + r * terms, terms * sizeof *v);
        qsort(v, terms, sizeof *v, by_magnitude);
        moeref_sum(v, 1, terms, out + r);
    }
    free(v);
    return 0;
}

/* Begins at another term in each call, as atomics may. */
int unsteady(const float *rows, size_t count, size_t terms, float *out)
{
    static size_t calls;
    size_t first = calls++ * 7 % terms;
    for (size_t r = 0; r < count; r++) {
        float sum = 0;
        for (size_t i = 0; i < terms; i++) sum += rows[r * terms + (first + i) % terms];
        out[r] = sum;
    }
    return 0;
}

int crashes(const float *rows, size_t count, size_t terms, float *out)
{
    (void)rows, (void)count, (void)terms, (void)out;
    abort();
}

int ends(const float *rows, size_t count, size_t terms, float *out)
{
    (void)rows, (void)count, (void)terms, (void)out;
    _exit(7);
}

int hangs(const float *rows, size_t count, size_t terms, float *out)
{
    (void)rows, (void)count, (void)terms, (void)out;
    for (;;) pause();
}

int says_no(const float *rows, size_t count, size_t terms, float *out)
{
    (void)rows, (void)count, (void)terms, (void)out;
    return 5;
}

int writes_nothing(const float *rows, size_t count, size_t terms, float *out)
{
    (void)rows, (void)count, (void)terms, (void)out;
    return 0;
}
