/* `moeref route CASE --profiles`: every profile over every token, against the certified sets and
 * against each other. */
#ifndef MOEREF_TOOLS_PROFILES_RUN_H
#define MOEREF_TOOLS_PROFILES_RUN_H

#include <jansson.h>

#include "../ref/route/profile_compare.h"
#include "route_run.h"

enum { MOST_PROFILES = 16, LISTED_TOKENS = 12 };

struct profile_tally {
    const struct mr_profile *profile;
    const struct mr_profile_row *row; /* NULL: it does not serve this router, for the reason: */
    char unserved[256];
    uint64_t set[4];                 /* by enum mr_part */
    uint64_t why[MR_WHY_COUNT];      /* of sets that are not the certified one */
    uint64_t repeated, undefined;    /* ids twice in a token; resting on undefined behaviour */
    uint64_t nonfinite;              /* tokens with a weight that is not finite */
    double weight_error;             /* the largest finite one */
    uint64_t weight_part;            /* tokens above MR_WEIGHT_PART, or not finite */
    uint64_t weight_why[MR_WHY_COUNT];
};

/* A token on which profiles part, kept to be shown; the first of each layer and phase in order. */
struct parted_token {
    int layer;
    const char *phase;
    size_t token;
    int32_t *ids;                    /* [profiles, top_k] */
    struct mr_profile_part *part;    /* [profiles] */
    int32_t *certified;              /* [top_k] */
};

struct profiles_outcome {
    const char *case_name;
    int count, top_k;                /* profiles, served or not */
    enum mr_profile_kind kind;
    bool from_logits;
    /* parted: sets differ from the certified or from each other, or weights by more than the
     * rounding of their type */
    uint64_t tokens, parted;
    struct profile_tally tally[MOST_PROFILES];
    uint64_t pair[MOST_PROFILES][MOST_PROFILES]; /* tokens on which two chose different sets */
    size_t listed;
    struct parted_token token[LISTED_TOKENS];
};

/* Dies on failure. */
void profiles_all(const struct route_request *request, struct profiles_outcome *out);
void profiles_free(struct profiles_outcome *out);

json_t *profiles_json(const struct profiles_outcome *out); /* NULL without memory */
void profiles_print(const struct profiles_outcome *out, bool verbose);

#endif
