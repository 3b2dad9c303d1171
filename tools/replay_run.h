/* `moeref replay` step by step: a case to a report. */
#ifndef MOEREF_TOOLS_REPLAY_RUN_H
#define MOEREF_TOOLS_REPLAY_RUN_H

#include "../ref/io/case.h"
#include "../ref/io/replay_report.h"

struct replay_request {
    struct mr_case *c;
    const char *layers, *phase; /* NULL: all */
    const char *const *arith;   /* lines; none: the case's */
    size_t arith_count;
    bool progress;
    int threads;
};

/* Dies on failure. */
void replay_all(const struct replay_request *request, struct mr_replay_report *out);
/* --vectors: steps recorded on hardware, in safetensors (mma_vectors.h). Dies on failure. */
void replay_vectors(const char *path, struct mr_replay_report *out);
/* The table for people; c NULL: of steps. */
void print_replay(const struct mr_case *c, const struct mr_replay_report *report);

#endif
