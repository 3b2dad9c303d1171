#include "histogram.h"

#include <math.h>
#include <string.h>

/* The top 9 fraction bits and the exponent of a binary64 number are its bits 43 and above. */
enum { SHIFT = 43, LOWEST = 1023 - 64 };
static const int64_t first = (int64_t)LOWEST << 9;

void mr_histogram_add(struct mr_histogram *h, const double *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        int64_t bin = (bits >> SHIFT) - first + 1;
        if (bin < 0) bin = 0;
        if (bin > MR_HISTOGRAM_BINS - 1) bin = MR_HISTOGRAM_BINS - 1; /* Inf and NaN too */
        h->count[bin]++;
    }
    h->total += n;
}

void mr_histogram_merge(struct mr_histogram *h, const struct mr_histogram *other)
{
    h->total += other->total;
    for (int i = 0; i < MR_HISTOGRAM_BINS; i++) h->count[i] += other->count[i];
}

double mr_histogram_quantile(const struct mr_histogram *h, double q)
{
    if (!h->total) return NAN;
    double rank = ceil(q * (double)h->total);
    uint64_t want = rank < 1 ? 1 : (uint64_t)rank, seen = 0;
    int bin = 0;
    while (bin < MR_HISTOGRAM_BINS - 1 && (seen += h->count[bin]) < want) bin++;
    if (bin == 0) return 0;
    if (bin == MR_HISTOGRAM_BINS - 1) return HUGE_VAL;
    int64_t bits = ((first + bin - 1) << SHIFT) + ((int64_t)1 << (SHIFT - 1));
    double middle;
    memcpy(&middle, &bits, sizeof middle);
    return middle;
}
