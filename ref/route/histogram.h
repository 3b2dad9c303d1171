/* Counts of non-negative numbers by size, for quantiles over billions of them in bounded memory.
 * Bins are 512 to a binade from 2^-64 to 2^8, one below for smaller numbers (zero among them), one
 * above. A quantile is the middle of its bin: within 2^-10 of the value, relatively. Integer counts,
 * so the order of adding and merging does not matter. */
#ifndef MOEREF_HISTOGRAM_H
#define MOEREF_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

enum { MR_HISTOGRAM_BINS = 72 * 512 + 2 };

struct mr_histogram {
    uint64_t total;
    uint64_t count[MR_HISTOGRAM_BINS];
};

void mr_histogram_add(struct mr_histogram *h, const double *values, size_t n);
void mr_histogram_merge(struct mr_histogram *h, const struct mr_histogram *other);
/* Nearest rank: the ceil(q total)-th smallest. 0 from the lowest bin, +Inf from the highest, NaN of
 * an empty histogram. 0 < q <= 1. */
double mr_histogram_quantile(const struct mr_histogram *h, double q);

#endif
