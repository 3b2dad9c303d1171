/* Logits whose arithmetic is known, for identify to name. */
#ifndef IDENTIFY_PUZZLE_H
#define IDENTIFY_PUZZLE_H

#include "../../ref/arith/identify.h"
#include "../../ref/arith/identify_family.h"

struct identify_puzzle {
    size_t rows, experts, terms;
    enum mr_dtype dtype; /* of the operands */
    float *x, *w;        /* [rows][terms], [experts][terms] as values */
    void *stored_x, *stored_w;
    float *logits; /* [rows][experts] */
};

/* Random normal operands (hidden 1, gate 0.02) of BF16, F16 or F32; logits are not set. */
void puzzle_new(uint64_t *seed, enum mr_dtype dtype, size_t rows, size_t experts, size_t terms,
                 struct identify_puzzle *out);
void puzzle_free(struct identify_puzzle *p);
struct mr_gemm puzzle_gemm(const struct identify_puzzle *p);
struct mr_matrix puzzle_observed(const struct identify_puzzle *p);
/* Logits by slow_sum, which knows nothing of plans, layouts and vectors. */
void puzzle_solve(struct identify_puzzle *p, const struct mr_arith *arith);
/* mr_identify; fails the test if it does. */
void puzzle_identify(const struct identify_puzzle *p, struct mr_identified *found);

/* A line of the family at this K for operands that are stored as `dtype`: any frame and ways, of
 * one, two or three levels alike, and any leaf. */
void puzzle_line(uint64_t *seed, const struct mr_family *simt, const struct mr_family *mma,
                  enum mr_dtype dtype, struct mr_arith *out);

/* Whether the text is among the lines. */
bool puzzle_listed(const struct mr_identified *found, const char *text);
/* Whether some line is the same tree of the same leaf. */
bool puzzle_equal_listed(const struct mr_identified *found, const struct mr_arith *arith,
                          size_t terms);

/* Sums that the family does not hold: OUTSIDE of them. */
enum { OUTSIDE = 24 };
const char *outside_name(int which);
void outside_solve(struct identify_puzzle *p, int which);

#endif
