/* The text form of a sum's shape (grammar in sum.h). */
#include <stdio.h>
#include <string.h>

#include "mma.h"
#include "sum.h"

/* Rows in the order of their enums. */
static const char *const cut_names[] = {"runs", "even", "deal", "every", "promote"};
static const char *const reduce_names[] = {"", "halves", "pairs", "reverse"};
enum { CUTS = sizeof cut_names / sizeof *cut_names };
enum { REDUCES = sizeof reduce_names / sizeof *reduce_names };

static bool has_parts(enum mr_cut cut)
{
    return cut != MR_CUT_EVERY && cut != MR_CUT_PROMOTE;
}

/* What is read: text[at .. end) of the line. */
struct reader {
    const char *line;
    size_t at, end;
    struct mr_error *err;
};

static size_t span(const struct reader *r, const char *stop)
{
    size_t n = strcspn(r->line + r->at, stop);
    return n < r->end - r->at ? n : r->end - r->at;
}

static enum mr_status refuse(const struct reader *r, const char *what)
{
    return mr_fail(r->err, MR_ERR_USAGE, "arithmetic '%s', column %zu: %s", r->line, r->at + 1,
                   what);
}

static enum mr_status number(struct reader *r, const char *name, int most, int *out)
{
    long value = 0;
    size_t start = r->at;
    while (r->at < r->end && r->line[r->at] >= '0' && r->line[r->at] <= '9' && value <= most)
        value = 10 * value + (r->line[r->at++] - '0');
    if (r->at > start && value >= 1 && value <= most && r->line[start] != '0') {
        *out = (int)value;
        return MR_OK;
    }
    r->at = start;
    return mr_fail(r->err, MR_ERR_USAGE, "arithmetic '%s', column %zu: %s must be 1 to %d", r->line,
                   start + 1, name, most);
}

static enum mr_status read_reduce(struct reader *r, struct mr_sum_level *level)
{
    size_t n = span(r, "/");
    for (int i = 1; i < REDUCES; i++)
        if (strlen(reduce_names[i]) == n && !memcmp(reduce_names[i], r->line + r->at, n)) {
            level->reduce = (enum mr_reduce)i;
            r->at += n;
            return MR_OK;
        }
    return refuse(r, "how parts are added up must be 'halves', 'pairs' or 'reverse'; nothing is in "
                     "order");
}

static enum mr_status read_level(struct reader *r, struct mr_sum_level *level)
{
    size_t n = span(r, ":/");
    int cut = 0;
    while (cut < CUTS &&
           (strlen(cut_names[cut]) != n || memcmp(cut_names[cut], r->line + r->at, n)))
        cut++;
    if (cut == CUTS) return refuse(r, "a level must be runs:, even:, deal:, every: or promote:");
    *level = (struct mr_sum_level){(enum mr_cut)cut, 0, 1, MR_REDUCE_ORDER};
    r->at += n;
    if (r->at == r->end || r->line[r->at] != ':')
        return refuse(r, has_parts(level->cut) ? "expected ':' and the number of parts"
                                               : "expected ':' and the terms of a tile");
    r->at++;
    enum mr_status status;
    if (has_parts(level->cut)) {
        status = number(r, "the number of parts", MR_SUM_PARTS, &level->parts);
        if (!status && r->at < r->end && r->line[r->at] == 'x') {
            r->at++;
            status = number(r, "the terms of a tile", MR_SUM_TILE, &level->tile);
        }
    } else {
        status = number(r, "the terms of a tile", MR_SUM_TILE, &level->tile);
    }
    if (status) return status;
    if (r->at < r->end && r->line[r->at] == ':') {
        if (level->cut == MR_CUT_PROMOTE)
            return refuse(r, "promoted parts are always added in order");
        r->at++;
        status = read_reduce(r, level);
        if (status) return status;
    }
    if (r->at < r->end && r->line[r->at] != '/')
        return refuse(r, has_parts(level->cut) && level->tile == 1
                             ? "expected 'x', ':', '/' or the end of the word"
                             : "expected ':', '/' or the end of the word");
    return MR_OK;
}

static enum mr_status read_leaf(struct reader *r, struct mr_sum_shape *out)
{
    size_t n = span(r, "/");
    const char *word = r->line + r->at;
    if (n == 3 && !memcmp(word, "fma", 3)) {
        out->leaf = MR_LEAF_FMA;
    } else if (n == 7 && !memcmp(word, "mul-add", 7)) {
        out->leaf = MR_LEAF_MUL_ADD;
    } else {
        out->mma = mr_mma_find(word, n);
        if (!out->mma) {
            char why[384];
            mr_mma_explain(word, n, why, sizeof why);
            return refuse(r, why);
        }
        out->leaf = MR_LEAF_MMA;
    }
    r->at += n;
    return MR_OK;
}

enum mr_status mr_sum_parse(const char *line, size_t at, size_t length, struct mr_sum_shape *out,
                            struct mr_error *err)
{
    struct reader r = {line, at, at + length, err};
    *out = (struct mr_sum_shape){0};
    enum mr_status status = read_leaf(&r, out);
    while (!status && r.at < r.end) {
        r.at++;
        if (out->levels == MR_SUM_LEVELS)
            return mr_fail(err, MR_ERR_USAGE,
                           "arithmetic '%s', column %zu: a sum has at most %d levels", line,
                           r.at + 1, MR_SUM_LEVELS);
        status = read_level(&r, &out->level[out->levels++]);
    }
    return status;
}

bool mr_sum_begins(const char *word, size_t length)
{
    size_t n = 0;
    while (n < length && word[n] != '/') n++;
    if (n < length) return true;
    if ((n == 3 && !memcmp(word, "fma", 3)) || (n == 7 && !memcmp(word, "mul-add", 7)))
        return true;
    size_t first = 0; /* an architecture's name */
    while (first < n && word[first] != '-') first++;
    for (size_t i = 0; i < mr_mma_count(); i++) {
        const char *name = mr_mma_at(i)->name;
        if (!strncmp(name, word, first) && name[first] == '-') return true;
    }
    return false;
}

void mr_sum_print(const struct mr_sum_shape *sum, char *text, size_t size)
{
    const char *leaf = sum->leaf == MR_LEAF_FMA       ? "fma"
                       : sum->leaf == MR_LEAF_MUL_ADD ? "mul-add"
                       : sum->leaf == MR_LEAF_MMA     ? sum->mma->name
                                                      : "";
    int used = snprintf(text, size, "%s", leaf);
    for (int i = 0; i < sum->levels && used >= 0 && (size_t)used < size; i++) {
        const struct mr_sum_level *l = &sum->level[i];
        char parts[40] = "", tile[40] = "";
        if (has_parts(l->cut)) snprintf(parts, sizeof parts, "%d", l->parts);
        if (!has_parts(l->cut))
            snprintf(tile, sizeof tile, "%d", l->tile);
        else if (l->tile != 1)
            snprintf(tile, sizeof tile, "x%d", l->tile);
        used += snprintf(text + used, size - (size_t)used, "/%s:%s%s%s%s", cut_names[l->cut], parts,
                         tile, l->reduce ? ":" : "", reduce_names[l->reduce]);
    }
}

bool mr_sum_same(const struct mr_sum_shape *a, const struct mr_sum_shape *b)
{
    if (a->leaf != b->leaf || a->levels != b->levels) return false;
    if (a->leaf == MR_LEAF_MMA && !mr_mma_same(a->mma, b->mma)) return false;
    for (int i = 0; i < a->levels; i++) {
        const struct mr_sum_level *x = &a->level[i], *y = &b->level[i];
        if (x->cut != y->cut || x->parts != y->parts || x->tile != y->tile ||
            x->reduce != y->reduce)
            return false;
    }
    return true;
}
