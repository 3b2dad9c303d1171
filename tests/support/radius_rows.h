/* Rows whose exact dot product binary64 holds, and the search for the worst of them. */
#ifndef RADIUS_ROWS_H
#define RADIUS_ROWS_H

#include "radius_kernels.h"

enum { ROWS_MOST = 4096 };

/* bf16 with exponents in [-5, 5]: products of up to 512 elements are multiples of 2^-24 below 2^21,
 * so that binary64 sums of them are exact: the oracle. */
struct rows {
    size_t n;
    float x[ROWS_MOST], w[ROWS_MOST];
};
float rows_bf16(double value);   /* rounded */
float rows_any(uint64_t *state); /* a random element */
struct mr_dot rows_dot(const struct rows *r, double *exact);
/* error / radius; above 1 fails the test. */
double rows_ratio(const struct mr_sum *sum, const struct rows *r, float computed);

/* The kernel under search: an order of binary32 additions, or chains of fused steps. */
struct kernel {
    bool tensor, fused;
    enum order order;
    size_t splits;
};
/* Hill climbing from a random start: one element is redrawn, doubled, halved, negated or moved by
 * one bf16 unit; what does not lower error / radius stays. Returns the best ratio. */
double rows_climb(const struct kernel *k, const struct mr_sum *sum, size_t n, int moves,
                  uint64_t *state);

#endif
