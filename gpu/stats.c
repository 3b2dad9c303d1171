#include "stats.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

void gpu_sort(double *at, int count)
{
    qsort(at, (size_t)count, sizeof *at, compare);
}

double gpu_quantile(const double *at, int count, double q)
{
    if (count < 1) return NAN;
    int rank = (int)ceil(q * (double)count);
    return at[rank < 1 ? 0 : rank > count ? count - 1 : rank - 1];
}

double gpu_spread(const double *at, int count)
{
    return gpu_quantile(at, count, 0.9) - gpu_quantile(at, count, 0.1);
}
