/* What `moeref verify` found, and its JSON, JUnit and TAP forms (DESIGN section 7: the keys are a
 * contract). */
#ifndef MOEREF_VERIFY_REPORT_H
#define MOEREF_VERIFY_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "../route/verify.h"

/* One source's rows of one layer of one phase. */
struct mr_verify_row {
    int layer;
    const char *phase;
    size_t source;
    struct mr_verify_tally tally;
};

struct mr_verify_experts {
    int layer;
    uint64_t *gained, *lost; /* [experts], over all phases and sources */
};

struct mr_verify_power {
    const char *arith;
    uint64_t wrong;
};

struct mr_verify_report {
    const char *case_name;
    const char *arith;   /* how the radius was made, in words, if it is the same for all sources */
    const char *profile; /* NULL: none, which promises no order */
    bool strict;
    int experts, top_k;
    size_t source_count;
    const char *const *source, *const *source_arith; /* [source_count], the latter as arith */
    size_t row_count;
    struct mr_verify_row *row; /* in the order judged */
    struct mr_verify_tally total;
    struct mr_route_result route;
    size_t layer_count;
    struct mr_verify_experts *layer; /* in the order judged */
    struct mr_findings worst;        /* sorted */
    uint64_t power_tokens;
    size_t power_count;
    struct mr_verify_power *power;
};

/* How many findings a report keeps, in JSON; the rest is counted. */
enum { MR_WORST_LISTED = 1000 };

/* Whether a verdict fails: a WRONG, MALFORMED or NONFINITE; if strict, ROUNDING and UNDECIDED
 * too. */
bool mr_verdict_fails(enum mr_verdict v, bool strict);
/* Rows with a verdict that fails. */
uint64_t mr_tally_failures(const struct mr_verify_tally *t, bool strict);
/* Rows with a verdict other than MR_EXACT: what `worst` would list had it no end. */
uint64_t mr_tally_findings(const struct mr_verify_tally *t);
void mr_tally_add(struct mr_verify_tally *to, const struct mr_verify_tally *from);

/* What made a source's radius, in words, for source_arith. line: what was declared, NULL: nothing;
 * said: "" or who declared it; given: the logits are; sum: the line declares one. */
#define MR_RADIUS_TEXT 512
void mr_radius_text(const char *line, const char *said, bool given, bool sum,
                    char text[MR_RADIUS_TEXT]);

/* One finding as a sentence without layer, phase and token: which experts, difference, radius, keys
 * and the bits of those keys rounded to binary32. */
#define MR_FINDING_TEXT 400
void mr_finding_text(const struct mr_finding *finding, char text[MR_FINDING_TEXT]);

/* {"moeref":{"version"},"command":"verify",...}; figures that do not exist are null. The caller
 * owns the result; NULL without memory. */
json_t *mr_verify_json(const struct mr_verify_report *report);
/* JUnit's XML: a test case a row. */
enum mr_status mr_verify_junit(const struct mr_verify_report *report, FILE *to);
/* TAP version 13: a test a row, findings as diagnostics. */
enum mr_status mr_verify_tap(const struct mr_verify_report *report, FILE *to);

#endif
