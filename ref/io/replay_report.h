/* What `moeref replay` found, and its JSON form (DESIGN section 7: the keys are a contract). */
#ifndef MOEREF_REPLAY_REPORT_H
#define MOEREF_REPLAY_REPORT_H

#include <jansson.h>

#include "../arith/replay_compare.h"

/* The recorded logits of one layer of one phase under one arithmetic; or recorded steps of one
 * instruction: then phase is NULL, a row is a step, and first.expert and worst_ulp say nothing. */
struct mr_replay_group {
    char name[96]; /* the phase, with the layer if the case has several: "decode layer 3"; of steps
                      the name of the tensor of results: "H200.bf16.d_fp32" */
    int layer;
    const char *phase;
    char arith[MR_ARITH_TEXT]; /* of steps the instruction */
    enum mr_type type;         /* of the logits */
    const char *mark;          /* "" or "unverified": the instruction's (mma.h) */
    size_t rows, experts;
    struct mr_replay_tally tally;
};

struct mr_replay_report {
    const char *case_name; /* of steps the path of the file */
    size_t count;
    struct mr_replay_group *group; /* in the order replayed */
    struct mr_replay_tally total;  /* its first mismatch is of some group */
};

/* The caller owns the result; NULL without memory. */
json_t *mr_replay_json(const struct mr_replay_report *report);

#endif
