/* Trees of sums in canonical form (tree.h). */
#include "tree.h"

#include <stdlib.h>
#include <string.h>

/* What mr_tree_make works on; ids as in parent. */
struct maker {
    size_t terms, all; /* all: leaves and nodes */
    uint32_t *up;      /* parent, nodes of one child skipped */
    uint32_t *count;   /* children */
    uint32_t *least;   /* smallest term below */
    uint32_t *begin;   /* where a node's children start in list */
    uint32_t *list, *queue;
};

/* Counts children, finds the smallest term of each node and that all hang together without a
 * circle: ids are taken up once all of their children have been, and in the end all have been. */
static bool settle(struct maker *m)
{
    size_t taken = 0, queued = 0, roots = 0;
    for (size_t id = 0; id < m->all; id++) {
        m->count[id] = 0;
        m->least[id] = id < m->terms ? (uint32_t)id : UINT32_MAX;
    }
    for (size_t id = 0; id < m->all; id++) {
        uint32_t up = m->up[id];
        if (up == MR_TREE_ROOT)
            roots++;
        else if (up < m->terms || up >= m->all)
            return false;
        else
            m->count[up]++;
    }
    if (roots != 1) return false;
    memcpy(m->begin, m->count, m->all * sizeof *m->begin); /* children not yet taken up */
    for (size_t id = 0; id < m->terms; id++) m->queue[queued++] = (uint32_t)id;
    while (taken < queued) {
        uint32_t id = m->queue[taken++], up = m->up[id];
        if (up == MR_TREE_ROOT) continue;
        if (m->least[id] < m->least[up]) m->least[up] = m->least[id];
        if (--m->begin[up] == 0) m->queue[queued++] = up;
    }
    return queued == m->all;
}

static void skip_single(struct maker *m)
{
    /* Parents come after their children in the queue, so from its end they are settled first. */
    for (size_t i = m->all; i-- > 0;) {
        uint32_t id = m->queue[i], up = m->up[id];
        if (up != MR_TREE_ROOT && m->count[up] == 1) m->up[id] = m->up[up];
    }
}

static bool single(const struct maker *m, size_t id)
{
    return id >= m->terms && m->count[id] == 1;
}

/* Children lists, each by smallest term: the ids whose smallest term is v are a path up from leaf
 * v, and v ascends. Gives the root. */
static uint32_t list_children(struct maker *m)
{
    uint32_t root = 0, at = 0;
    for (size_t id = m->terms; id < m->all; id++) {
        m->begin[id] = at;
        if (!single(m, id)) at += m->count[id];
        m->count[id] = single(m, id) ? 1 : 0;
    }
    for (size_t v = 0; v < m->terms; v++) {
        uint32_t id = (uint32_t)v;
        while (id != MR_TREE_ROOT && m->least[id] == v) {
            uint32_t up = m->up[id];
            if (up == MR_TREE_ROOT)
                root = id;
            else
                m->list[m->begin[up] + m->count[up]++] = id;
            id = up;
        }
    }
    return root;
}

/* Numbers nodes in post-order. queue: the way down; least: the next child of each; up: new ids. */
static void number(struct maker *m, uint32_t root, struct mr_tree *out)
{
    size_t depth = 0;
    uint32_t used = 0;
    for (size_t id = 0; id < m->terms; id++) m->up[id] = (uint32_t)id;
    if (root >= m->terms) m->queue[depth++] = root;
    for (size_t id = m->terms; id < m->all; id++) m->least[id] = 0;
    while (depth > 0) {
        uint32_t id = m->queue[depth - 1];
        const uint32_t *child = m->list + m->begin[id];
        while (m->least[id] < m->count[id] && child[m->least[id]] < m->terms) m->least[id]++;
        if (m->least[id] < m->count[id]) {
            m->queue[depth++] = child[m->least[id]++];
            continue;
        }
        out->begin[out->nodes] = used;
        for (uint32_t i = 0; i < m->count[id]; i++) out->child[used++] = m->up[child[i]];
        m->up[id] = (uint32_t)(m->terms + out->nodes++);
        depth--;
    }
    out->begin[out->nodes] = used;
}

enum mr_status mr_tree_make(size_t terms, size_t nodes, const uint32_t *parent, struct mr_tree *out,
                            struct mr_error *err)
{
    struct maker m = {.terms = terms, .all = terms + nodes};
    *out = (struct mr_tree){.terms = terms};
    if (terms == 0) return mr_fail(err, MR_ERR_VALUE, "a tree without terms");
    uint32_t *work = malloc(6 * m.all * sizeof *work);
    out->begin = malloc((nodes + 1) * sizeof *out->begin);
    out->child = malloc(m.all * sizeof *out->child);
    enum mr_status status = MR_OK;
    if (!work || !out->begin || !out->child) {
        status = mr_fail(err, MR_ERR_MEMORY, "a tree of %zu terms: out of memory", terms);
        goto done;
    }
    m.up = work;
    m.count = work + m.all;
    m.least = work + 2 * m.all;
    m.begin = work + 3 * m.all;
    m.list = work + 4 * m.all;
    m.queue = work + 5 * m.all;
    memcpy(m.up, parent, m.all * sizeof *m.up);
    if (!settle(&m)) {
        status = mr_fail(err, MR_ERR_VALUE, "no tree over %zu terms", terms);
        goto done;
    }
    skip_single(&m);
    number(&m, list_children(&m), out);
done:
    free(work);
    if (status) mr_tree_free(out);
    return status;
}

void mr_tree_free(struct mr_tree *tree)
{
    free(tree->begin);
    free(tree->child);
    *tree = (struct mr_tree){0};
}

bool mr_tree_same(const struct mr_tree *a, const struct mr_tree *b)
{
    return a->terms == b->terms && a->nodes == b->nodes &&
           !memcmp(a->begin, b->begin, (a->nodes + 1) * sizeof *a->begin) &&
           !memcmp(a->child, b->child, a->begin[a->nodes] * sizeof *a->child);
}

size_t mr_tree_widest(const struct mr_tree *tree)
{
    size_t widest = 0;
    for (size_t k = 0; k < tree->nodes; k++)
        if (tree->begin[k + 1] - tree->begin[k] > widest)
            widest = tree->begin[k + 1] - tree->begin[k];
    return widest;
}
