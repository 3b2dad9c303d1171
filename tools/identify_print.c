/* What `moeref identify` found, for a person. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../ref/arith/mma.h"
#include "identify_run.h"

typedef unsigned long long ull;

/* Sums that are shown one by one, other ways to write one, and sums of a leaf, unless all are asked
 * for; columns of a page. */
enum { SHOWN_SUMS = 20, SHOWN_WAYS = 3, SHOWN_OF_LEAF = 8, LEAVES = 64 };

/* " (unverified)", where no hardware results confirm the line's instruction. */
static const char *mark_of(const char *line)
{
    struct mr_arith a;
    bool known = !mr_arith_parse(line, &a, NULL);
    return known && a.sum.leaf == MR_LEAF_MMA && *mr_mma_mark(a.sum.mma) ? " (unverified)" : "";
}

/* Lines first .. of one sum. Gives the line after them. */
static size_t print_sum(const struct mr_identified *f, size_t first, bool verbose)
{
    size_t end = first + 1;
    while (end < f->lines && f->line[end].sum == f->line[first].sum) end++;
    printf("%s%s", f->line[first].text, mark_of(f->line[first].text));
    size_t ways = end - first - 1, shown = verbose || ways < SHOWN_WAYS ? ways : SHOWN_WAYS;
    for (size_t i = 0; i < shown; i++)
        printf("%s%s", i ? ", " : "  (also written ", f->line[first + 1 + i].text);
    if (ways > shown) printf(" and %zu more ways", ways - shown);
    puts(ways ? ")" : "");
    return end;
}

/* The sums of one leaf and one rounding before and after it. */
struct leaf {
    const char *first; /* a line of it */
    size_t sums;
    const char *shown[SHOWN_OF_LEAF];
};

/* A line is LEAF, then /LEVELs, then +WORDs: the first and the last. */
static bool same_leaf(const char *a, const char *b)
{
    size_t n = strcspn(a, "/+");
    return n == strcspn(b, "/+") && !memcmp(a, b, n) &&
           !strcmp(a + strcspn(a, "+"), b + strcspn(b, "+"));
}

static void print_by_leaf(const struct mr_identified *f)
{
    struct leaf leaf[LEAVES];
    size_t leaves = 0;
    for (size_t i = 0; i < f->lines; i++) {
        const char *text = f->line[i].text;
        size_t at = 0;
        if (i && f->line[i].sum == f->line[i - 1].sum) continue;
        while (at < leaves && !same_leaf(leaf[at].first, text)) at++;
        if (at == LEAVES) continue;
        if (at == leaves) leaf[leaves++] = (struct leaf){.first = text};
        if (leaf[at].sums < SHOWN_OF_LEAF) leaf[at].shown[leaf[at].sums] = text;
        leaf[at].sums++;
    }
    for (size_t i = 0; i < leaves; i++) {
        const struct leaf *l = &leaf[i];
        size_t name = strcspn(l->first, "/+");
        printf("    %.*s%s%s: %zu", (int)name, l->first, l->first + strcspn(l->first, "+"),
               mark_of(l->first), l->sums);
        for (size_t j = 0; j < l->sums && j < SHOWN_OF_LEAF && l->sums > 1; j++) {
            size_t end = strcspn(l->shown[j], "+");
            printf("%s%.*s", j ? ", " : ": ", (int)(end > name ? end - name : 5),
                   end > name ? l->shown[j] + name : "alone");
        }
        puts(l->sums > SHOWN_OF_LEAF ? ", ..." : "");
    }
    printf("    (-v shows all sums, --json lists all %zu lines)\n", f->lines);
}

static void print_found(const struct recording *r, bool verbose)
{
    const struct mr_identified *f = &r->found;
    if (f->everything) {
        puts(f->checked ? "every line fits: these logits tell nothing (all sums are exact?)"
             : f->not_finite ? "every line fits: no logit is finite"
                             : "every line fits: there are no logits");
        return;
    }
    if (!f->lines) {
        printf("unidentified");
        if (*f->nearest)
            printf("; nearest %s%s: %llu of %llu differ (%.2g %%)", f->nearest,
                   mark_of(f->nearest), (ull)f->mismatches, (ull)f->checked,
                   100.0 * (double)f->mismatches / (double)f->checked);
        putchar('\n');
        return;
    }
    if (f->sums > 1)
        printf("%zu different sums fit, which these logits cannot tell apart:\n", f->sums);
    if (f->sums > SHOWN_SUMS && !verbose) {
        print_by_leaf(f);
        return;
    }
    for (size_t at = 0; at < f->lines;) {
        if (f->sums > 1) printf("    ");
        at = print_sum(f, at, verbose);
    }
}

void print_identify_head(const struct mr_case *c)
{
    printf("%s\n", mr_case_name(c));
    if (*mr_case_about(c)) puts(mr_case_about(c));
    printf("%-18s %6s %7s %6s %9s  %s\n", "recording", "rows", "experts", "terms", "checked",
           "arithmetic: every line that gives all bits");
}

void print_recording(const struct recording *r, bool verbose)
{
    printf("%-18s %6zu %7zu %6zu %9llu  ", r->name, r->rows, r->experts, r->terms,
           (ull)r->found.checked);
    print_found(r, verbose);
    if (r->found.not_finite && r->found.checked)
        printf("    %llu logits are NaN or Inf, and were left out\n", (ull)r->found.not_finite);
    fflush(stdout);
}

void print_identify_end(const struct identify_report *report)
{
    printf("%zu of %zu identified, among at most %llu lines each\n",
           report->count - report->unidentified, report->count, (ull)report->searched);
    if (report->unverified)
        puts("unverified: no hardware results here confirm the instruction of such a line");
}
