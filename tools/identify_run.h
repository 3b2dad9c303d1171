/* `moeref identify` step by step: a case to what made its logits. */
#ifndef MOEREF_TOOLS_IDENTIFY_RUN_H
#define MOEREF_TOOLS_IDENTIFY_RUN_H

#include <stdio.h>

#include "../ref/arith/identify.h"
#include "../ref/io/case.h"

struct identify_request {
    struct mr_case *c;
    const char *layers, *phase; /* NULL: all */
    bool progress;
    int threads;
};

/* The observed logits of one layer of one phase. */
struct recording {
    char name[96]; /* as of replay: the phase, with the layer if the case has several */
    int layer;
    const char *phase;
    size_t rows, experts, terms;
    struct mr_identified found;
};

struct identify_report {
    const char *case_name;
    size_t count, unidentified;
    uint64_t searched; /* most lines of any recording */
    bool unverified;
};

/* Whether a line, or everything, fits. */
bool recording_identified(const struct recording *r);

/* Dies unless the case has what is asked for. */
void identify_check(const struct identify_request *request);
/* Calls `each` for every recording as it is done, and keeps none: hundreds of thousands of lines
 * may fit one. Dies on failure. */
void identify_all(const struct identify_request *request,
                  void (*each)(void *context, const struct recording *r), void *context,
                  struct identify_report *out);

void print_identify_head(const struct mr_case *c);
void print_recording(const struct recording *r, bool verbose);
void print_identify_end(const struct identify_report *report);

/* The JSON document, spooled a recording at a time and put in its place at the end. */
struct identify_json {
    FILE *spool;
    size_t count;
};
void identify_json_begin(struct identify_json *json);
void identify_json_add(struct identify_json *json, const struct recording *r);
/* To a file, which is renamed into place, or standard output ("-"). */
void identify_json_end(struct identify_json *json, const struct identify_report *report,
                       const char *path);

#endif
