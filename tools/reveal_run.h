/* `moeref reveal` in parts: the two sources of sums, and what is printed. */
#ifndef MOEREF_TOOLS_REVEAL_RUN_H
#define MOEREF_TOOLS_REVEAL_RUN_H

#include "../ref/arith/arith.h"
#include "../ref/arith/reveal.h"

/* A plugin in a process of its own (reveal_plugin.c). */
struct plugin;
/* room: the most values, and rows, of one call. Dies if the file or the symbol is not there. */
struct plugin *plugin_open(const char *path, const char *symbol, size_t values, size_t rows,
                           int seconds);
enum mr_status plugin_sum(void *plugin, const float *rows, size_t count, size_t terms, float *out,
                          struct mr_error *err);
void plugin_close(struct plugin *plugin);

/* The replay of a line (reveal_replay.c). */
struct replayed_sum {
    struct mr_arith arith;
    float *ones; /* [terms] */
};
/* The masks for the operands of the line; dies if there are none. */
const char *replay_operands(const struct mr_arith *arith, struct mr_reveal_options *options);
enum mr_status replay_sum(void *replayed_sum, const float *rows, size_t count, size_t terms,
                          float *out, struct mr_error *err);

enum { REVEAL_LINES = 16 };
struct reveal_report {
    const char *source; /* the line, or the plugin's path */
    const char *symbol; /* NULL: a line */
    const char *operands;
    size_t terms, start; /* start: the term that is the accumulator's start; terms: none */
    struct mr_tree tree;
    struct mr_reveal_stats stats;
    struct mr_sum_shape line[REVEAL_LINES];
    size_t lines;
    bool same; /* of a line: the tree is that of the line */
};
void print_reveal(const struct reveal_report *report, size_t tree_lines, bool nested);
/* Writes JSON; dies on failure. */
void write_reveal(const struct reveal_report *report, const char *path);

#endif
