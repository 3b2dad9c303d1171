/* What a run or a bench found, one entry a kernel and row count, and how it is shown. */
#ifndef MOEREF_GPU_RESULTS_H
#define MOEREF_GPU_RESULTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "../ref/io/verify_report.h"
#include "../ref/moeref.h"
#include "against.h"
#include "harness.h"

/* Worst last. */
enum gpu_state {
    GPU_FINE,
    GPU_UNSUPPORTED, /* not served: no failure */
    GPU_WRONG,       /* the judge found rows that no rounding explains */
    GPU_FAULTY,      /* ran, and did what no kernel may: holes, writes outside, a broken promise */
    GPU_NOT_RUN      /* tried and failed */
};
const char *gpu_state_name(enum gpu_state state); /* "ok", "unsupported", ... */

enum { GPU_REASON = 512 };

struct gpu_result {
    const struct mr_kernel *kernel;
    int rows;
    enum gpu_state state;
    char reason[GPU_REASON]; /* of anything but fine; "" */
    char arith[512];         /* what it was judged by; "" if nothing is declared */

    /* run; figures that do not exist are negative. */
    struct mr_verify_tally tally;
    long long flips, decided;   /* rows off the certified set; of so many that have one */
    long long bit_changes;      /* tokens; -1: no logits, or no row count before */
    long long batch_flips, batch_bits;
    long long unstable_rows;
    long long logits_checked, logits_equal; /* by their arithmetic's replay; -1: no sum declared */
    struct gpu_against against; /* the kernel that others are compared with, at this row count */
    char worst[MR_FINDING_TEXT + 160]; /* the worst row, as a sentence; "" */

    /* bench; NAN: not measured. */
    int pdl; /* 1, 0; -1: makes no difference */
    double cold, cold_spread, warm, warm_spread, events_cold, events_warm;
    int samples, kernels;
    char method[32];
};

struct gpu_floor {
    const char *name; /* "empty_1", "empty_288", "read_gate" */
    double cold, cold_spread, warm, warm_spread, events_cold, events_warm;
    char method[32];
};
enum { GPU_FLOORS = 3 };

struct gpu_results {
    const char *command, *case_name;
    const char *against; /* NULL: none */
    char device[256], driver[64], cuda[32]; /* "": no device was used */
    long seed;                              /* -1: none */
    size_t count;
    struct gpu_result *at; /* by kernel, then by rows */
    size_t floor_count;
    struct gpu_floor floor[GPU_FLOORS];
    size_t gate_bytes; /* what read_gate reads */
};

/* A child's line of a floor, or of the gate's size, if it is one. */
void gpu_results_floor(struct gpu_results *r, int fields, char *const field[]);

void gpu_result_init(struct gpu_result *r, const struct mr_kernel *kernel, int rows);
/* Keeps the worst state, with its reason. */
void gpu_result_fail(struct gpu_result *r, enum gpu_state state, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool gpu_results_failed(const struct gpu_results *r);

/* DESIGN section 7; the caller owns the result. NULL without memory. */
json_t *gpu_results_json(const struct gpu_results *r);
void gpu_print_run(const struct gpu_results *r, bool verbose, FILE *to);
void gpu_print_bench(const struct gpu_results *r, FILE *to);

#endif
