/* Layers made for tests, their routing with all callbacks kept, and the comparison with brute.h. */
#ifndef ROUTED_H
#define ROUTED_H

#include "../../ref/route/route.h"
#include "brute.h"

uint64_t routed_random(uint64_t *state); /* splitmix64 */
double routed_uniform(uint64_t *state);  /* [-1, 1) */
double routed_normal(uint64_t *state);   /* about: a sum of uniforms */

/* Owns what layer and router point at. */
struct problem {
    struct mr_router router;
    struct mr_layer layer;
    double *bias;
    const char *name; /* for messages */
};
/* hidden 0: from logits [tokens, experts] of type x, else from hidden [tokens, hidden] of type x
 * and a gate of type w. All elements are zero; norm_topk_prob, factor 1. */
struct problem *problem_new(enum mr_score score, int experts, int top_k, int hidden, size_t tokens,
                            enum mr_dtype x, enum mr_dtype w, bool bias);
void problem_free(struct problem *p);
/* Rounds value to the matrix's type. */
void problem_set(struct mr_matrix *m, size_t row, size_t column, double value);
/* Normal numbers of that size in a matrix; in the bias. */
void problem_fill(struct mr_matrix *m, double size, uint64_t *state);
void problem_fill_bias(struct problem *p, double size, uint64_t *state);
/* From hidden states, all of it random; logits have a size of about 2. */
struct problem *problem_normal(enum mr_score score, int experts, int top_k, int hidden,
                               size_t tokens, enum mr_dtype x, enum mr_dtype w, bool bias,
                               uint64_t *state, const char *name);
double problem_norm(const struct mr_matrix *m, size_t row);
/* A view of rows [first, first + rows) of the tokens. */
struct mr_layer problem_slice(const struct mr_layer *layer, size_t first, size_t rows);

struct kept_tie {
    size_t token;
    int slots, count, *experts;
};
struct answers {
    size_t rows, arith_count;
    int top_k;
    int32_t *ids;
    double *weights, *gap, *radius;
    uint8_t *certificate, *seen; /* seen: times that a token was reported since the last restart */
    struct kept_tie *ties;
    size_t tie_count;
    int restarts;
    int *chosen;            /* [rows, arith_count, top_k] */
    struct mr_flips *flips; /* [arith_count] */
    struct mr_route_result result;
};
/* Routes with options (its callbacks are overwritten; NULL: defaults, one thread). */
enum mr_status routed_try(const struct mr_layer *layer, const struct mr_route_options *options,
                          struct answers *out, struct mr_error *err);
/* The same, and failure fails the test. */
void routed(const struct mr_layer *layer, const struct mr_route_options *options,
            struct answers *out);
void answers_free(struct answers *a);

/* ids, order, certificate class, ties, gap, radius and weights of a token are those of brute force.
 */
void expect_truth(const struct mr_layer *layer, const struct answers *a, size_t token,
                  bool exact_weights, const char *name);
/* Routes p and expects the truth of all tokens; then again with exact weights. */
void expect_all(const struct problem *p);
/* ids, gaps and weights of rows [first_a ..) of a and [first_b ..) of b are the same bytes; gaps
 * only within their radii unless gap_bits. */
void expect_same(const struct answers *a, size_t first_a, const struct answers *b, size_t first_b,
                 size_t rows, bool gap_bits, const char *name);

#endif
