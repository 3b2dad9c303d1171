/* Order statistics of samples. */
#ifndef MOEREF_GPU_STATS_H
#define MOEREF_GPU_STATS_H

void gpu_sort(double *at, int count);
/* Nearest rank of sorted samples: the smallest that at least q of all are not above. NAN without
 * samples. */
double gpu_quantile(const double *at, int count, double q);
/* 90th - 10th percentile. */
double gpu_spread(const double *at, int count);

#endif
