/* Trees for people (tree.h). Two ideas keep the text short. A node whose children are all alike but
 * for a shift of the terms is told once. All else is told along the spine, the way down through the
 * largest child: what is at its end, then what joins it; joining terms make a chain, and joining
 * parts that are alike but for a constant shift are told once. What leaves the spine holds at most
 * half of the terms, so the recursion is no deeper than log2 of them. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tree.h"

struct shape {
    uint32_t size, least; /* terms below, and the smallest */
    uint64_t key;         /* of the tree below with terms counted from least: equal if alike */
};

struct printer {
    const struct mr_tree *tree;
    struct shape *shape; /* [terms + nodes] */
    uint32_t *list;      /* [terms]: the terms of a chain, scratch */
    size_t start, lines, most;
    FILE *to;
};

static uint64_t mix(uint64_t x) /* MurmurHash3's finaliser, by Austin Appleby (public domain) */
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
    return x ^ x >> 33;
}

static void find_shapes(struct printer *p)
{
    const struct mr_tree *t = p->tree;
    for (uint32_t i = 0; i < t->terms; i++)
        p->shape[i] = (struct shape){1, i, i == p->start ? 7 : 1};
    for (size_t k = 0; k < t->nodes; k++) {
        struct shape s = {0, p->shape[t->child[t->begin[k]]].least, 3};
        for (uint32_t i = t->begin[k]; i < t->begin[k + 1]; i++) {
            const struct shape *c = &p->shape[t->child[i]];
            s.size += c->size;
            s.key = mix(s.key * 5 + mix(c->key + 11 * (uint64_t)(c->least - s.least)));
        }
        p->shape[t->terms + k] = s;
    }
}

/* Whether this line is to be printed; counts it. */
static bool line(struct printer *p, int indent)
{
    if (p->lines++ >= p->most) return false;
    fprintf(p->to, "%*s", 2 * indent, "");
    return true;
}

static void put_term(struct printer *p, uint32_t term)
{
    if (term == p->start)
        fputs("c", p->to);
    else
        fprintf(p->to, "%u", term);
}

struct stretch {
    uint32_t first, last, length;
};

/* The longest stretch of neighbours from list[at] on. */
static struct stretch stretch_at(const struct printer *p, const uint32_t *list, size_t n, size_t at)
{
    struct stretch s = {list[at], list[at], 1};
    int64_t step = at + 1 < n ? (int64_t)list[at + 1] - list[at] : 0;
    if (step != 1 && step != -1) return s;
    for (size_t i = at + 1; i < n && (int64_t)list[i] - s.last == step; i++, s.length++) {
        if (list[i] == p->start || s.last == p->start) break;
        s.last = list[i];
    }
    return s;
}

static void put_stretch(struct printer *p, struct stretch s)
{
    put_term(p, s.first);
    if (s.length == 2) fputs(", ", p->to);
    if (s.length > 2) fputs("..", p->to);
    if (s.length > 1) put_term(p, s.last);
}

/* "0..7, 48..55, .., 4080..4087" where stretches follow each other evenly (the last may be
 * shorter); else the first few, and how many more. */
static void put_list(struct printer *p, const uint32_t *list, size_t n)
{
    struct stretch a = stretch_at(p, list, n, 0), s = a;
    size_t count = 1;
    int64_t by = a.length < n ? (int64_t)list[a.length] - a.first : 0;
    bool even = true;
    for (size_t at = a.length; at < n; at += s.length, count++) {
        struct stretch next = stretch_at(p, list, n, at);
        even &=
            s.length == a.length && next.length <= a.length && (int64_t)next.first - s.first == by;
        s = next;
    }
    size_t shown = even && count > 3 ? 2 : 6, at = 0;
    for (size_t i = 0; i < count && i < shown; i++) {
        struct stretch one = stretch_at(p, list, n, at);
        if (i) fputs(", ", p->to);
        put_stretch(p, one);
        at += one.length;
    }
    if (even && count > 3) {
        fputs(", .., ", p->to);
        put_stretch(p, s);
    } else if (count > shown) {
        fprintf(p->to, ", and %zu more", n - at);
    }
}

/* The child that the spine goes on to; a leaf if there are only leaves. */
static uint32_t heavy(const struct printer *p, uint32_t id)
{
    const struct mr_tree *t = p->tree;
    const uint32_t *begin = &t->begin[id - t->terms];
    uint32_t best = t->child[begin[0]];
    for (uint32_t i = begin[0]; i < begin[1]; i++)
        if (p->shape[t->child[i]].size > p->shape[best].size) best = t->child[i];
    return best;
}

static uint32_t count_of(const struct printer *p, uint32_t id)
{
    return p->tree->begin[id - p->tree->terms + 1] - p->tree->begin[id - p->tree->terms];
}

/* Whether all that joins the spine at this node are terms. */
static bool joins_terms(const struct printer *p, uint32_t id)
{
    return p->shape[id].size - p->shape[heavy(p, id)].size == count_of(p, id) - 1;
}

static bool is_chain(const struct printer *p, uint32_t id)
{
    for (; id >= p->tree->terms; id = heavy(p, id))
        if (!joins_terms(p, id)) return false;
    return true;
}

/* Fills list with the terms of a chain in the order of its steps, and tells the steps. */
static void put_chain(struct printer *p, uint32_t id)
{
    const struct mr_tree *t = p->tree;
    uint32_t bottom = id;
    size_t steps = 1, n = p->shape[id].size, at = n;
    while (heavy(p, bottom) >= t->terms) {
        bottom = heavy(p, bottom);
        steps++;
    }
    /* From the top down, so the list is filled from its end. */
    uint32_t usual = 0, last = count_of(p, id) - (steps > 1), odd = 0;
    for (uint32_t x = id;; x = heavy(p, x)) {
        uint32_t end = t->begin[x - t->terms + 1], begin = t->begin[x - t->terms];
        uint32_t joining = end - begin - (x != bottom);
        if (x != id && usual == 0) usual = joining;
        if (x != id && joining != usual) odd++;
        for (uint32_t i = end; i-- > begin;)
            if (t->child[i] < t->terms) p->list[--at] = t->child[i];
        if (x == bottom) break;
    }
    bool plain = count_of(p, bottom) == 2; /* one term, then another */
    if (plain && n > 2 && usual == 1 && last == 1 && p->list[2] < p->list[0]) {
        uint32_t first = p->list[0];
        p->list[0] = p->list[1];
        p->list[1] = first;
    }
    if (plain && p->list[1] == p->start) {
        p->list[1] = p->list[0];
        p->list[0] = (uint32_t)p->start;
    }
    /* The bottom of a plain chain counts as odd: two terms meet there. */
    if (plain && (steps == 1 || (usual == 1 && last == 1) || (steps == 2 && last == 1)))
        fprintf(p->to, "chain of %zu terms: ", n);
    else if (steps == 1)
        fprintf(p->to, "%zu terms at once: ", n);
    else if (odd == 0 && last == usual)
        fprintf(p->to, "chain of %zu steps of %u terms: ", steps, usual);
    else if (odd == 0 && last < usual)
        fprintf(p->to, "chain of %zu steps of %u terms, then %u: ", steps - 1, usual, last);
    else
        fprintf(p->to, "chain of %zu steps of 1 to %zu terms: ", steps, mr_tree_widest(t));
    put_list(p, p->list, n);
}

static void tell(struct printer *p, uint32_t id, int indent, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Children that are all alike, by a constant shift. 0: they are not, or are terms. */
static uint32_t alike(const struct printer *p, uint32_t id)
{
    const struct mr_tree *t = p->tree;
    const uint32_t *child = t->child + t->begin[id - t->terms];
    uint32_t by = p->shape[child[1]].least - p->shape[child[0]].least;
    if (child[0] < t->terms) return 0;
    for (uint32_t i = 1; i < count_of(p, id); i++)
        if (p->shape[child[i]].key != p->shape[child[0]].key ||
            p->shape[child[i]].least != p->shape[child[0]].least + i * by)
            return 0;
    return by;
}

/* A base of two parts alike is better told as the first two of a row of them, if the next that
 * joins is alike too: then the base is the first part. Gives by how much the spine grew. */
static size_t goes_on(const struct printer *p, uint32_t id, uint32_t *base)
{
    const struct mr_tree *t = p->tree;
    if (*base == id || is_chain(p, *base) || count_of(p, *base) != 2) return 0;
    uint32_t above = id;
    while (heavy(p, above) != *base) above = heavy(p, above);
    const uint32_t *child = t->child + t->begin[above - t->terms];
    uint32_t joining = child[0] == *base ? child[1] : child[0], first = heavy(p, *base);
    if (count_of(p, above) != 2 || p->shape[joining].key != p->shape[first].key) return 0;
    *base = first;
    return 1;
}

/* What joins the spine below id, from its end upwards; id is no chain. */
static void tell_spine(struct printer *p, uint32_t id, int indent)
{
    const struct mr_tree *t = p->tree;
    size_t depth = 0, n = 0;
    uint32_t base = id;
    while (base >= t->terms && !is_chain(p, base) && !(depth && alike(p, base))) {
        base = heavy(p, base);
        depth++;
    }
    depth += goes_on(p, id, &base);
    uint32_t *spine = malloc((depth + 1) * sizeof *spine);
    if (!spine) {
        if (line(p, indent)) fputs("(out of memory)\n", p->to);
        return;
    }
    for (uint32_t x = id; n < depth; x = heavy(p, x)) spine[depth - ++n] = x;
    size_t at = 0;
    uint32_t previous = base, first = base, same = 1, by = 0;
    for (; at <= depth; at++) {
        /* A node that one part joins, alike to the part before it, goes on with its group. */
        uint32_t joining = UINT32_MAX;
        if (at < depth && count_of(p, spine[at]) == 2) {
            const uint32_t *child = t->child + t->begin[spine[at] - t->terms];
            joining = child[0] == heavy(p, spine[at]) ? child[1] : child[0];
        }
        if (joining != UINT32_MAX && previous != UINT32_MAX &&
            p->shape[joining].key == p->shape[previous].key &&
            (same == 1 || p->shape[joining].least - p->shape[previous].least == by)) {
            by = p->shape[joining].least - p->shape[previous].least;
            same++;
            previous = joining;
            continue;
        }
        const char *sign = first == base ? "" : "+ ";
        if (previous != UINT32_MAX && same > 1)
            tell(p, first, indent, "%s%u alike in order, %+d apart: ", sign, same, (int32_t)by);
        else if (previous != UINT32_MAX)
            tell(p, first, indent, "%s", sign);
        if (at == depth) break;
        previous = first = joining;
        same = 1;
        if (joining != UINT32_MAX) continue;
        if (line(p, indent)) fprintf(p->to, "+ %u at once:\n", count_of(p, spine[at]) - 1);
        for (uint32_t i = t->begin[spine[at] - t->terms]; i < t->begin[spine[at] - t->terms + 1];
             i++)
            if (t->child[i] != heavy(p, spine[at])) tell(p, t->child[i], indent + 1, "%s", "");
    }
    free(spine);
}

/* One line that begins with the words, and below it what is in id. */
static void tell(struct printer *p, uint32_t id, int indent, const char *format, ...)
{
    bool leaf = id < p->tree->terms, chain = !leaf && is_chain(p, id);
    uint32_t by = leaf || chain ? 0 : alike(p, id);
    if (line(p, indent)) {
        va_list arguments;
        va_start(arguments, format);
        vfprintf(p->to, format, arguments);
        va_end(arguments);
        if (leaf) put_term(p, id);
        if (chain) put_chain(p, id);
        if (!leaf && !chain && by)
            fprintf(p->to, "%u alike%s, %+d apart:", count_of(p, id),
                    count_of(p, id) > 2 ? " at once" : "", (int32_t)by);
        if (!leaf && !chain && !by) fprintf(p->to, "%u terms, in order:", p->shape[id].size);
        putc('\n', p->to);
    }
    if (leaf || chain) return;
    if (by)
        tell(p, p->tree->child[p->tree->begin[id - p->tree->terms]], indent + 1, "%s", "");
    else
        tell_spine(p, id, indent + 1);
}

void mr_tree_print(const struct mr_tree *tree, size_t start, size_t lines, FILE *to)
{
    size_t ids = tree->terms + tree->nodes;
    struct printer p = {.tree = tree, .start = start, .most = lines ? lines : SIZE_MAX, .to = to};
    p.shape = malloc(ids * sizeof *p.shape);
    p.list = malloc(tree->terms * sizeof *p.list);
    if (p.shape && p.list) {
        find_shapes(&p);
        tell(&p, (uint32_t)(ids - 1), 0, "%s", "");
        if (p.lines > p.most) fprintf(to, "... and %zu more lines\n", p.lines - p.most);
    } else {
        fputs("(out of memory)\n", to);
    }
    free(p.shape);
    free(p.list);
}

void mr_tree_nested(const struct mr_tree *tree, FILE *to)
{
    /* The way down, and the next child of each node on it. */
    struct step {
        uint32_t id, next;
    } *way = malloc((tree->nodes + 1) * sizeof *way);
    size_t depth = 0;
    if (!way) {
        fputs("(out of memory)", to);
        return;
    }
    if (tree->nodes == 0)
        fputs("0", to);
    else
        way[depth++] = (struct step){(uint32_t)tree->nodes - 1, tree->begin[tree->nodes - 1]};
    if (depth) putc('(', to);
    while (depth) {
        struct step *s = &way[depth - 1];
        if (s->next == tree->begin[s->id + 1]) {
            putc(')', to);
            depth--;
            continue;
        }
        if (s->next > tree->begin[s->id]) putc(' ', to);
        uint32_t child = tree->child[s->next++];
        if (child < tree->terms) {
            fprintf(to, "%u", child);
        } else {
            putc('(', to);
            uint32_t k = child - (uint32_t)tree->terms;
            way[depth++] = (struct step){k, tree->begin[k]};
        }
    }
    free(way);
}
