/* What `moeref route` found, layer by layer and in total, and its JSON and CSV forms (DESIGN section
 * 7: the keys are a contract). */
#ifndef MOEREF_REPORT_H
#define MOEREF_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "../route/route.h"
#include "../status.h"

/* Quantiles of the gap over the finite tokens: nearest rank. */
enum { MR_GAP_MIN, MR_GAP_P001, MR_GAP_P01, MR_GAP_P10, MR_GAP_P50, MR_GAP_P90, MR_GAP_MAX,
       MR_GAP_COUNT };
extern const double mr_gap_quantile[MR_GAP_COUNT];  /* 0, 0.001, 0.01, 0.1, 0.5, 0.9, 1 */
extern const char *const mr_gap_name[MR_GAP_COUNT]; /* "min", "p001", ... */

struct mr_report_arith {
    uint64_t tokens, flips;
    double weight_moved; /* mean over the judged tokens */
    double key_error_p50, key_error_p99;
};

struct mr_report_row {
    int layer;         /* -1 in the total */
    const char *phase; /* NULL in the total */
    int experts, top_k;
    struct mr_route_result result;
    double gap[MR_GAP_COUNT];
    struct mr_report_arith *arith; /* [arith_count] */
};

struct mr_report_tie {
    int layer;
    const char *phase;
    size_t token;
    int slots, count;
    int *experts;
};

struct mr_report {
    const char *case_name;
    size_t arith_count;
    char (*arith_name)[MR_ARITH_TEXT];
    size_t row_count;
    struct mr_report_row *row; /* in the order routed */
    struct mr_report_row total;
    size_t tie_count, tie_total; /* listed, and found */
    struct mr_report_tie *tie;
};

/* Ties listed in full; more are counted. */
enum { MR_TIES_LISTED = 10000 };

/* {"moeref":{"version"},"command":"route",...}; quantiles that do not exist are null. The caller owns
 * the result; NULL without memory. */
json_t *mr_report_json(const struct mr_report *report);

/* One line for each layer, phase and arithmetic, then the totals (layer and phase empty). */
enum mr_status mr_report_csv(const struct mr_report *report, FILE *to);

/* Writes JSON to a file, "-" for standard output: to PATH.tmp.PID first, then renamed. */
enum mr_status mr_json_write(const json_t *json, const char *path, struct mr_error *err);

#endif
