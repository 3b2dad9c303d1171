/* `moeref verify` step by step: a case and observed files to a report. */
#ifndef MOEREF_TOOLS_VERIFY_RUN_H
#define MOEREF_TOOLS_VERIFY_RUN_H

#include "../ref/io/case.h"
#include "../ref/io/verify_report.h"

struct verify_request {
    struct mr_case *c;
    const char *layers, *phase;  /* NULL: all */
    const char *const *observed; /* paths; none: the case's own capture */
    size_t observed_count;
    bool from_logits, strict, ordered, without_blas, progress;
    const char *profile;         /* for the report; NULL: none */
    const char *arith;           /* --arith, which is of all sources; or NULL: a file's own, or */
    const char *case_arith;      /* the case's, or NULL */
    bool power;                  /* count the power to detect of the usual arithmetics */
    uint64_t non_padded;         /* rows from here on are padding; UINT64_MAX: not said */
    int threads;
};

/* Dies on failure. */
void verify_all(const struct verify_request *request, struct mr_verify_report *out);
void verify_free(struct mr_verify_report *report);

/* The table for people, and all that is not exact (verbose: all of it). */
void print_verify(const struct mr_case *c, const struct mr_verify_report *report, bool verbose);

#endif
