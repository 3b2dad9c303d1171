/* Inside of a replay, shared by replay*.c. */
#ifndef MOEREF_REPLAY_PRIVATE_H
#define MOEREF_REPLAY_PRIVATE_H

#include "replay.h"
#include "replay_operands.h"
#include "replay_simd.h"

/* The leaf as it is computed: a fused product that is exact is a plain one. */
enum replay_kind { REPLAY_EXACT, REPLAY_FMA, REPLAY_MUL_ADD, REPLAY_MMA };

struct mr_replay {
    struct mr_arith arith;
    struct mr_operand hidden, gate;
    size_t tokens, experts, terms;
    const float *gate_bias, *hidden_scale, *gate_scale;
    size_t scale_tiles;
    struct mr_plan plan;
    enum replay_kind kind;
    float *packed;                 /* FMA, MUL_ADD: [lanes of experts][terms][MR_REPLAY_LANES] */
    struct mr_operand_range range; /* of the gate weight */
    float *values;                 /* EXACT: [experts][terms] */
    bool *finite;                  /* EXACT: [experts] */
    struct mr_replay_mma *mma;     /* MMA */
};

/* Rows of one pass: what is read of the gate weight serves them all. */
enum { REPLAY_ROWS = 16 };

/* Partial sums [parts][rows][width]. */
struct replay_block {
    size_t row, rows;     /* of the hidden states */
    size_t expert, width; /* width is the pitch: lanes beyond the experts hold anything */
};

/* How many rows keep their partial sums within the second-level cache, up to REPLAY_ROWS. */
size_t mr_replay_rows_at_once(const struct mr_replay *r, size_t width);
/* Partial sums by the plan's steps: the result is in partial[0]. scale is scratch of rows * width,
 * or NULL without scales. */
void mr_replay_reduce(const struct mr_replay *r, const struct replay_block *b, float *partial,
                      float *scale);
/* Rows by exact dots, into out [rows][experts]. */
enum mr_status mr_replay_exact_new(struct mr_replay *r, struct mr_error *err);
enum mr_status mr_replay_exact_rows(const struct mr_replay *r, size_t row, size_t rows, float *out,
                                    struct mr_error *err);
/* Chains of fused steps. */
enum mr_status mr_replay_mma_new(struct mr_replay *r, struct mr_error *err);
enum mr_status mr_replay_mma_rows(const struct mr_replay *r, size_t row, size_t rows, float *out,
                                  struct mr_error *err);
void mr_replay_mma_free(struct mr_replay_mma *mma);

#endif
