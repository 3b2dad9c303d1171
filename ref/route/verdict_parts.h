/* The parts of a verdict. Internal to ref/route/verdict*.c. */
#ifndef MOEREF_VERDICT_PARTS_H
#define MOEREF_VERDICT_PARTS_H

#include "verdict.h"

struct mr_judge_group {
    struct mr_interval score;
    double exact;    /* of the exact keys */
    bool observed;   /* an expert of it is chosen */
    bool certified;  /* among the topk_group best, exactly */
    int rest;        /* its left-out expert of the largest lower end; -1: none */
    bool admissible; /* no left-out expert of it beats a chosen one */
};

struct mr_judge {
    const struct mr_router *router;
    uint8_t *mark;            /* [experts], zero between tokens */
    int marked;               /* of ids */
    int *ids;                 /* [top_k] the claim's, known to be distinct experts */
    int *omitted, *included;  /* [differ] */
    int differ;
    int *slot_of;             /* [top_k] */
    uint8_t *used;            /* [top_k] */
    int *experts;             /* [experts] scratch */
    struct mr_judge_key *a;   /* [experts] */
    struct mr_judge_key *b;   /* [top_k] */
    struct mr_judge_group *group; /* [n_group] */
    struct mr_interval *interval; /* [experts] */
    struct mr_judge_weight *weight; /* [top_k] */
};

/* key_a - key_b - (what rounding explains, and our own errors): above 0, no rounding explains
 * that a stands behind b. The additions here err by less than 2^-50 of the keys' size, far below
 * a kernel's own rounding of a key; they are granted too. */
double mr_judge_excess(const struct mr_judge_source *source, const struct mr_judge_key *a,
                       const struct mr_judge_key *b, double *difference, double *radius);

/* Whether the claim has that expert; while its token is judged. */
bool mr_judge_chosen(const struct mr_judge *j, int expert);

/* Each sets part->verdict to MR_EXACT or worse, and explains it. */
/* omitted x included: MR_ROUNDING or MR_WRONG, with the worst pair. */
enum mr_status mr_judge_pairs(struct mr_judge *j, const struct mr_judge_source *source,
                              struct mr_judgement *part);
/* The same where groups compete (n_group > topk_group): MR_CAUSE_GROUP or MR_CAUSE_SET. */
enum mr_status mr_judge_groups(struct mr_judge *j, const struct mr_routed *routed,
                               const struct mr_judge_source *source, struct mr_judgement *part);
/* Descending keys: MR_EXACT, MR_ROUNDING or MR_MALFORMED. */
enum mr_status mr_judge_order(struct mr_judge *j, const struct mr_routed *routed,
                              const struct mr_judge_source *source, struct mr_judgement *part);
/* MR_EXACT, MR_NONFINITE, MR_WRONG, or MR_MALFORMED by pairing. */
enum mr_status mr_judge_weights(struct mr_judge *j, const double *claimed, bool certified,
                                const struct mr_judge_source *source, struct mr_judgement *part);

#endif
