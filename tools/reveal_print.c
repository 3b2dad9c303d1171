/* What `moeref reveal` found, as text and as JSON. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "../ref/arith/mma.h"
#include "../ref/io/report.h"
#include "../ref/moeref.h"
#include "common.h"
#include "reveal_run.h"

enum { SHOWN = 4 }; /* further lines of the same tree */

static const char *mark_of(const struct mr_sum_shape *sum)
{
    return sum->leaf == MR_LEAF_MMA ? mr_mma_mark(sum->mma) : "";
}

static void print_lines(const struct reveal_report *r)
{
    char text[MR_SUM_TEXT];
    if (r->start < r->terms) {
        puts("line: none, since lines start from +0");
        return;
    }
    if (r->lines == 0) {
        puts("line: none has this tree");
        return;
    }
    mr_sum_print(&r->line[0], text, sizeof text);
    printf("line: %s%s%s\n", text, *mark_of(&r->line[0]) ? "  " : "", mark_of(&r->line[0]));
    if (r->lines > 1) printf("one sum with it at %zu terms:", r->terms);
    for (size_t i = 1; i < r->lines && i <= SHOWN; i++) {
        mr_sum_print(&r->line[i], text, sizeof text);
        printf("%s %s", i > 1 ? "," : "", text);
    }
    if (r->lines == REVEAL_LINES)
        printf(", and more");
    else if (r->lines > SHOWN + 1)
        printf(", and %zu more", r->lines - SHOWN - 1);
    if (r->lines > 1) putchar('\n');
    puts("masks do not tell: fma from mul-add, promote from every, instructions of as many terms "
         "from each other");
}

void print_reveal(const struct reveal_report *r, size_t tree_lines, bool nested)
{
    if (r->symbol)
        printf("%s: %s, %zu terms of %s\n", r->source, r->symbol, r->terms, r->operands);
    else
        printf("replay of %s, %zu terms of %s\n", r->source, r->terms, r->operands);
    mr_tree_print(&r->tree, r->start, tree_lines, stdout);
    if (nested) {
        mr_tree_nested(&r->tree, stdout);
        putchar('\n');
    }
    print_lines(r);
    printf("%zu rows asked in %zu calls; of them %zu were foretold from the tree\n", r->stats.rows,
           r->stats.calls, r->stats.probes);
    if (!r->symbol)
        puts(r->same ? "the tree is that of the line" : "MISMATCH: the line has another tree");
}

static json_t *lines_json(const struct reveal_report *r)
{
    char text[MR_SUM_TEXT];
    json_t *lines = json_array();
    for (size_t i = 0; i < r->lines; i++) {
        mr_sum_print(&r->line[i], text, sizeof text);
        json_array_append_new(lines, json_pack("{s:s, s:b}", "arith", text, "unverified",
                                               *mark_of(&r->line[i]) != 0));
    }
    return lines;
}

static json_t *tree_json(const struct reveal_report *r)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) die(4, "out of memory");
    mr_tree_nested(&r->tree, to);
    if (fclose(to)) die(4, "out of memory");
    json_t *tree = json_pack("{s:I, s:I, s:I, s:s}", "additions", (json_int_t)r->tree.nodes,
                             "fused", (json_int_t)r->stats.fused, "widest",
                             (json_int_t)mr_tree_widest(&r->tree), "nested", text);
    free(text);
    return tree;
}

void write_reveal(const struct reveal_report *r, const char *path)
{
    struct mr_error err = {{0}};
    json_t *doc = json_pack(
        "{s:{s:s}, s:s, s:s, s:s?, s:s, s:I, s:o, s:o, s:o, s:o, s:{s:I, s:I, s:I}}", "moeref",
        "version", MR_VERSION, "command", "reveal", r->symbol ? "plugin" : "arith", r->source,
        "symbol", r->symbol, "operands", r->operands, "terms", (json_int_t)r->terms, "start",
        r->start < r->terms ? json_integer((json_int_t)r->start) : json_null(), "tree",
        tree_json(r), "lines", lines_json(r), "same_tree",
        r->symbol ? json_null() : json_boolean(r->same), "asked", "calls",
        (json_int_t)r->stats.calls, "rows", (json_int_t)r->stats.rows, "foretold",
        (json_int_t)r->stats.probes);
    if (!doc) die(4, "out of memory");
    enum mr_status status = mr_json_write(doc, path, &err);
    json_decref(doc);
    if (status) die_of(status, &err);
}
