/* Inside of identify, shared by identify_*.c. */
#ifndef MOEREF_IDENTIFY_PRIVATE_H
#define MOEREF_IDENTIFY_PRIVATE_H

#include "identify.h"
#include "identify_simd.h"
#include "mma.h"
#include "replay_operands.h"

/* Operands after one way of rounding them. */
struct identify_operands {
    enum mr_type hidden, gate; /* words of the line */
    bool tf32;                 /* the low 13 bits are dropped, which changes some value */
    bool exact;                /* every product is a binary32 number */
    bool subnormal;            /* some value is a subnormal of its type */
    float *rows;    /* gate weight [experts][terms] */
    float *columns; /* [terms][experts, padded to the width] */
    int least_hidden, least_gate; /* exponents of the subnormals of their types */
};

/* A leaf with its operands. */
struct identify_leaf {
    size_t operands;
    enum mr_leaf leaf;
    const struct mr_mma *mma;
    enum { BY_ADDING, BY_FMA, BY_STEPS, BY_REFERENCE } how;
    struct mr_lane_mma steps; /* BY_STEPS */
    const struct mr_family *family;
    mr_combinations *alive[MR_IDENTIFY_TYPES]; /* [layouts], by type of the logits */
    double *reach; /* [layouts] */
};

/* Sixteen outputs; those not live are not compared. */
struct identify_group {
    size_t row[MR_IDENTIFY_WIDTH], expert[MR_IDENTIFY_WIDTH];
    bool side_by_side; /* one row, experts in turn */
    uint16_t live;
    struct mr_lane_goal goal;
};

/* Every sum of the family errs by at most reach * 2^-24 * sum|p| (identify_reach): an output whose
 * exact sum is further than that from where the rounding changes agrees with every line of less
 * reach, unseen. `need` is that distance, in the same unit. */
struct identify_output {
    double need;
    uint32_t row, expert;
};

enum { IDENTIFY_OPERANDS = 8, IDENTIFY_LEAVES = 64 };
/* Groups of telling outputs that every line is tried on. */
enum { IDENTIFY_TELLING = 4 };

struct identify {
    struct mr_operand hidden, gate;
    const float *gate_bias;
    size_t rows, experts, padded, terms;
    float *observed; /* [rows][experts] */
    struct identify_output *output; /* the telling ones first, by need */
    size_t outputs;  /* in groups of sixteen they come first ... */
    size_t from_row; /* ... then all of the rows from here on */
    int types;
    enum mr_type type[MR_IDENTIFY_TYPES];
    int rated; /* the coarsest of them: it says what an output needs */
    struct identify_operands operands[IDENTIFY_OPERANDS];
    size_t operand_count;
    struct identify_leaf leaf[IDENTIFY_LEAVES];
    size_t leaf_count;
    struct mr_family simt, mma;
    int threads;
    const struct mr_identify_options *options;
    struct mr_error *err;
};

/* Goals and the order of outputs (identify_goal.c). */
size_t identify_types(enum mr_dtype dtype, const float *values, size_t n, enum mr_type *type);
enum mr_status identify_choose(struct identify *s);
/* Groups in the order in which they are looked at, of which `telling` come from s->output. */
size_t identify_groups(const struct identify *s, size_t *telling);
/* Group i; *need: least of its outputs, 0 unless it is of s->output. */
void identify_nth(const struct identify *s, size_t i, struct identify_group *group, double *need);

/* Operands and leaves (identify_leaves.c). */
enum mr_status identify_leaves(struct identify *s);
void identify_leaves_free(struct identify *s);
enum mr_status identify_terms_new(const struct identify *s, struct mr_lane_terms *t);
void identify_terms_free(struct mr_lane_terms *t);
/* The operands and products of a group. x: scratch [2 * terms]. */
void identify_terms(const struct identify *s, const struct identify_operands *o,
                    const struct identify_group *g, float *x, struct mr_lane_terms *t);

/* What a thread needs to sum a layout. */
struct identify_work {
    struct mr_laid laid;
    float *sums, *work, *x;
    uint8_t *unsure;
    uint32_t *bits; /* [2 * terms] */
    uint16_t hit[MR_IDENTIFY_TYPES][MR_FRAME_COMBINATIONS];
};
enum mr_status identify_work_new(const struct identify *s, struct identify_work *w);
void identify_work_free(struct identify_work *w);
/* Sums the group in the layout laid out in `laid`, into w->hit. */
void identify_sum(const struct identify *s, const struct identify_leaf *leaf,
                  const struct mr_laid *laid, const struct mr_lane_terms *t,
                  const struct identify_group *g, mr_combinations wanted, struct identify_work *w);

/* The reach of all combinations of a layout that differ (`reduces` as of mr_layout). */
double identify_reach(const struct identify *s, const struct identify_leaf *leaf,
                      const struct mr_laid *laid, const uint8_t reduces[MR_FRAME_LEVELS]);

/* A layout of a leaf, with the combinations in which it fits. */
struct identify_candidate {
    uint32_t leaf, layout;
    double reach;
    mr_combinations alive[MR_IDENTIFY_TYPES];
};
struct identify_outcome {
    struct identify_candidate *fit;
    size_t fits;
    bool everything;
    struct { /* the best line if nothing fits */
        uint32_t leaf, layout;
        unsigned combination;
        int type;
        uint64_t mismatches;
    } nearest;
};
/* A combination that failed: the later it did, and then on the fewer outputs of a group, the nearer
 * it is; then the earlier in the family. */
enum { IDENTIFY_NEAR = 32 };
struct identify_miss {
    int stage;
    unsigned wrong, combination;
    uint32_t leaf, layout;
    int type;
};
struct identify_misses {
    struct identify_miss item[IDENTIFY_NEAR]; /* nearest first */
    size_t count;
};
/* Keeps the nearest ones (identify_misses.c). */
void identify_keep_miss(struct identify_misses *misses, const struct identify_miss *miss);
/* The search (identify_search.c). */
enum mr_status identify_search(struct identify *s, struct identify_outcome *out);
/* A key of the tree that a laid-out combination is: as mr_plan_key, but that adding products up one
 * by one is the same whether it is a chain or parts of one term. part: scratch [2 * terms]. */
uint64_t identify_key(const struct identify_leaf *leaf, const struct mr_laid *laid,
                      unsigned combination, uint64_t *part);
/* Fits to lines, grouped and sorted (identify_lines.c). */
enum mr_status identify_lines(const struct identify *s, const struct identify_outcome *outcome,
                              const bool exact[MR_IDENTIFY_TYPES], struct mr_identified *out);
struct mr_arith identify_arith(const struct identify *s, const struct identify_leaf *leaf, int type,
                               const struct mr_frame *frame, unsigned combination,
                               unsigned promote);

#endif
