/* What reveal.c and reveal_check.c share: asking the black box. */
#ifndef MOEREF_REVEAL_PRIVATE_H
#define MOEREF_REVEAL_PRIVATE_H

#include "reveal.h"

/* A batch in the making. Rows are put one by one; take is called with each result, in order. */
struct mr_asker {
    const struct mr_summer *summer;
    const struct mr_reveal_options *options;
    size_t terms, room, used; /* rows */
    float *row, *out, *again;
    enum mr_status (*take)(void *context, float result, struct mr_error *err);
    void *context;
    size_t calls, rows;
};

enum mr_status mr_asker_open(struct mr_asker *asker, const struct mr_summer *summer, size_t terms,
                             const struct mr_reveal_options *options, struct mr_error *err);
void mr_asker_close(struct mr_asker *asker);
/* The next row, to be filled by the caller before the next call. */
enum mr_status mr_asker_row(struct mr_asker *asker, float **row, struct mr_error *err);
/* Asks what is left. */
enum mr_status mr_asker_flush(struct mr_asker *asker, struct mr_error *err);

/* result / unit as a count of 0 to most units; MR_ERR_VALUE if it is none. */
enum mr_status mr_units(const struct mr_reveal_options *options, float result, size_t most,
                        size_t *units, struct mr_error *err);

/* The tree must foretell further rows: reveal_check.c says which. */
enum mr_status mr_reveal_check(struct mr_asker *asker, const struct mr_tree *tree, size_t *fused,
                               struct mr_error *err);

/* A step of SplitMix64 (Steele, Lea, Flood 2014): a random word. */
uint64_t mr_reveal_draw(uint64_t *state);

#endif
