/* The tree of a sum (tree_line.h), from its plan. */
#include <stdlib.h>

#include "mma.h"
#include "tree_line.h"

struct growth {
    size_t terms;
    uint32_t *parent;
    uint32_t nodes;
};

static uint32_t add_node(struct growth *g)
{
    return (uint32_t)(g->terms + g->nodes++);
}

#define NO UINT32_MAX /* no node */

/* A new node over `below` and those of n terms whose position in its four is lo to hi. */
static uint32_t fuse(struct growth *g, uint32_t below, const struct mr_plan *p, size_t at, size_t n,
                     unsigned lo, unsigned hi)
{
    uint32_t node = NO;
    for (size_t i = 0; i < n; i++) {
        if (i % 4 < lo || i % 4 > hi) continue;
        if (node == NO) node = add_node(g);
        g->parent[p->order ? p->order[at + i] : at + i] = node;
    }
    if (node == NO) return below;
    if (below != NO) g->parent[below] = node;
    return node;
}

/* BY_FP16: the columns 0, 1 of every four, then 2, 3, from zero; then the accumulator. */
static uint32_t by_fp16(struct growth *g, uint32_t c, const struct mr_plan *p, size_t at, size_t n)
{
    uint32_t sum = fuse(g, fuse(g, NO, p, at, n, 0, 1), p, at, n, 2, 3);
    if (c == NO) return sum;
    uint32_t node = add_node(g);
    g->parent[c] = node;
    g->parent[sum] = node;
    return node;
}

static uint32_t grow_part(struct growth *g, const struct mr_sum_shape *sum, const struct mr_plan *p,
                          size_t part)
{
    bool pairs = sum->leaf == MR_LEAF_MMA && sum->mma->form == MR_MMA_BY_FP16;
    size_t width = sum->leaf == MR_LEAF_MMA ? mr_mma_step_columns(sum->mma) : 1;
    uint32_t c = NO;
    for (size_t at = p->begin[part], n; at < p->begin[part + 1]; at += n) {
        n = p->begin[part + 1] - at < width ? p->begin[part + 1] - at : width;
        c = pairs ? by_fp16(g, c, p, at, n) : fuse(g, c, p, at, n, 0, 3);
    }
    return c;
}

enum mr_status mr_tree_of_sum(const struct mr_sum_shape *sum, size_t terms, struct mr_tree *out,
                              struct mr_error *err)
{
    *out = (struct mr_tree){0};
    if (sum->leaf == MR_LEAF_EXACT)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "an exact sum has no tree");
    if (sum->leaf == MR_LEAF_MMA && sum->mma->form == MR_MMA_GROUP_SCALED)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "%s: no tree, it sums groups exactly first",
                       sum->mma->name);
    struct mr_plan plan;
    enum mr_status status = mr_plan_make(sum, terms, &plan, err);
    if (status) return status;
    /* Nodes: at most three for each step of a leaf, one for each addition. */
    struct growth g = {.terms = terms};
    g.parent = malloc((4 * terms + plan.parts + plan.steps + 4) * sizeof *g.parent);
    uint32_t *slot = malloc((plan.parts + 1) * sizeof *slot);
    if (!g.parent || !slot) {
        status = mr_fail(err, MR_ERR_MEMORY, "a tree of %zu terms: out of memory", terms);
        goto done;
    }
    for (size_t i = 0; i < plan.parts; i++) slot[i] = grow_part(&g, sum, &plan, i);
    for (size_t i = 0; i < plan.steps; i++) {
        const struct mr_plan_step *s = &plan.step[i];
        if (s->into == s->from) continue;
        uint32_t node = add_node(&g);
        g.parent[slot[s->into]] = node;
        g.parent[slot[s->from]] = node;
        slot[s->into] = node;
    }
    if (plan.parts) g.parent[slot[0]] = MR_TREE_ROOT;
    status = mr_tree_make(terms, g.nodes, g.parent, out, err);
done:
    free(g.parent);
    free(slot);
    mr_plan_free(&plan);
    return status;
}
