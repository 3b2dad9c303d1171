/* `moeref identify` step by step: a case to what made its logits. */
#ifndef MOEREF_TOOLS_IDENTIFY_RUN_H
#define MOEREF_TOOLS_IDENTIFY_RUN_H

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
    struct recording *recording;
    size_t count, unidentified;
};

/* Whether a line, or everything, fits. */
bool recording_identified(const struct recording *r);

/* Dies on failure. */
void identify_all(const struct identify_request *request, struct identify_report *out);
void identify_free(struct identify_report *report);

json_t *identify_json(const struct identify_report *report);
void print_identify(const struct mr_case *c, const struct identify_report *report, bool verbose);

#endif
