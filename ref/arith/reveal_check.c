/* Does the tree foretell what the black box gives? Two kinds of rows.
 *
 * Masks of several pairs. One to four pairs of +big and -big, units or +0 elsewhere. A node that
 * has big among its children gives the sum of those alone; the others are lost. So every node's
 * value follows, in bigs and units, and with it the result. Rows in which a node would hold two
 * bigs or more are not asked, since twice big may overflow. Half of the pairs are drawn from all
 * terms, half from two children of one node, so that low nodes are met as often as high ones.
 *
 * Fused nodes. A sum that takes its terms by magnitude, smallest first, loses all units beside any
 * big: to masks it is one node over all terms, as a fused adder of that width would be. What tells
 * them apart is that a fused adder drops each term below its last bit, so that many small terms
 * amount to nothing, where one after the other they first grow. In a node of c children one gets
 * W units, each other one unit, all else +0. A fused node that keeps at most 25 bits below its
 * largest exponent gives W if W >= 2^26. Any order of binary32 additions in which the units come
 * first gives more than W if W < (c - 1) 2^24, which is more than half an ulp of W. Both hold for
 * some W if c >= 6. W stands once at the first child and once at the last, since a sum in the order
 * of the terms would absorb units one by one from a W at its beginning. */
#include <math.h>
#include <stdlib.h>

#include "reveal_private.h"

struct foretold {
    int32_t bigs;
    uint32_t units;
};

struct check {
    const struct mr_reveal_options *options;
    const struct mr_tree *tree;
    struct foretold *value; /* [terms + nodes] */
    float *expected;        /* of rows that are asked and not yet taken */
    size_t *about;          /* the fused node, or terms + nodes for masks */
    size_t asked, taken;
    uint64_t random;
};

static size_t draw(struct check *c, size_t below)
{
    return mr_reveal_draw(&c->random) % below;
}

static uint32_t leaf_below(struct check *c, uint32_t id)
{
    const struct mr_tree *t = c->tree;
    while (id >= t->terms) {
        const uint32_t *begin = &t->begin[id - t->terms];
        id = t->child[begin[0] + draw(c, begin[1] - begin[0])];
    }
    return id;
}

/* Fills in the nodes' values; false if a node holds two bigs or more. */
static bool foretell(struct check *c)
{
    const struct mr_tree *t = c->tree;
    for (size_t k = 0; k < t->nodes; k++) {
        struct foretold sum = {0, 0};
        bool big = false;
        for (uint32_t i = t->begin[k]; i < t->begin[k + 1]; i++) {
            struct foretold v = c->value[t->child[i]];
            big |= v.bigs != 0;
            sum.bigs += v.bigs;
            sum.units += v.units;
        }
        if (big) sum.units = 0;
        if (abs(sum.bigs) > 1) return false;
        c->value[t->terms + k] = sum;
    }
    return true;
}

static void put_units(struct check *c)
{
    size_t terms = c->tree->terms, most = c->options->most, used = 0;
    bool all = terms <= most && draw(c, 2);
    /* At most `most` units, from a random place on. */
    size_t start = draw(c, terms);
    for (size_t i = 0; i < terms; i++) {
        size_t k = start + i < terms ? start + i : start + i - terms;
        bool put = used < most && (all || draw(c, 4));
        c->value[k] = (struct foretold){0, put};
        used += put;
    }
}

static bool put_pair(struct check *c)
{
    const struct mr_tree *t = c->tree;
    uint32_t plus, minus;
    if (draw(c, 2)) {
        plus = (uint32_t)draw(c, t->terms);
        minus = (uint32_t)draw(c, t->terms);
    } else {
        size_t k = draw(c, t->nodes);
        uint32_t count = t->begin[k + 1] - t->begin[k];
        uint32_t a = (uint32_t)draw(c, count);
        uint32_t b = (uint32_t)draw(c, count - 1);
        if (b >= a) b++;
        plus = leaf_below(c, t->child[t->begin[k] + a]);
        minus = leaf_below(c, t->child[t->begin[k] + b]);
    }
    if (plus == minus || c->value[plus].bigs || c->value[minus].bigs) return false;
    c->value[plus] = (struct foretold){1, 0};
    c->value[minus] = (struct foretold){-1, 0};
    return true;
}

static void draw_masks(struct check *c)
{
    for (int attempt = 0;; attempt++) {
        int pairs = attempt > 12 ? 1 : 1 + (int)draw(c, 4);
        put_units(c);
        for (int p = 0; p < pairs; p++) put_pair(c);
        if (foretell(c)) return;
    }
}

static enum mr_status take(void *context, float result, struct mr_error *err)
{
    struct check *c = context;
    float expected = c->expected[c->taken];
    size_t about = c->about[c->taken++];
    if (result == expected) return MR_OK;
    const struct mr_tree *t = c->tree;
    if (about == t->terms + t->nodes)
        return mr_fail(err, MR_ERR_VALUE,
                       "the order depends on values or changes: of the pairs of terms a tree was "
                       "made, but it foretells %a for a further mask, and %a came",
                       (double)expected, (double)result);
    uint32_t count = t->begin[about - t->terms + 1] - t->begin[about - t->terms];
    return mr_fail(err, MR_ERR_VALUE,
                   "%u terms look as if they were added at once, but small ones among them are not "
                   "lost beside a large one (%a expected, %a came): the order depends on values "
                   "(sorted by magnitude?), or the adder is wider than 25 bits",
                   count, (double)expected, (double)result);
}

static enum mr_status ask(struct check *c, struct mr_asker *asker, float expected, size_t about,
                          float **row, struct mr_error *err)
{
    if (asker->used == asker->room) {
        enum mr_status status = mr_asker_flush(asker, err);
        if (status) return status;
        c->asked = c->taken = 0;
    }
    c->expected[c->asked] = expected;
    c->about[c->asked++] = about;
    return mr_asker_row(asker, row, err);
}

static enum mr_status ask_masks(struct check *c, struct mr_asker *asker, struct mr_error *err)
{
    const struct mr_tree *t = c->tree;
    for (size_t n = 0; n < c->options->probes; n++) {
        float *row;
        draw_masks(c);
        float expected = (float)c->value[t->terms + t->nodes - 1].units * c->options->unit;
        enum mr_status status = ask(c, asker, expected, t->terms + t->nodes, &row, err);
        if (status) return status;
        for (size_t k = 0; k < t->terms; k++)
            row[k] = c->value[k].bigs ? (float)c->value[k].bigs * c->options->big
                                      : (float)c->value[k].units * c->options->unit;
    }
    return MR_OK;
}

/* The W of a node, in units; 0: none serves, or the masks do not reach as far. */
static float wide_units(const struct check *c, size_t k)
{
    uint32_t children = c->tree->begin[k + 1] - c->tree->begin[k];
    float w = 1;
    while (w * 2 < (float)(children - 1) * 0x1p24f) w *= 2;
    return w < 0x1p26f || w * c->options->unit > c->options->big / 2 ? 0 : w;
}

static enum mr_status ask_fused(struct check *c, struct mr_asker *asker, size_t k,
                                struct mr_error *err)
{
    const struct mr_tree *t = c->tree;
    uint32_t count = t->begin[k + 1] - t->begin[k];
    float w = wide_units(c, k) * c->options->unit;
    for (int last = 0; last < 2; last++) {
        float *row;
        enum mr_status status = ask(c, asker, w, t->terms + k, &row, err);
        if (status) return status;
        for (size_t i = 0; i < t->terms; i++) row[i] = 0;
        for (uint32_t i = 0; i < count; i++)
            row[leaf_below(c, t->child[t->begin[k] + i])] =
                i == (last ? count - 1 : 0) ? w : c->options->unit;
    }
    return MR_OK;
}

enum mr_status mr_reveal_check(struct mr_asker *asker, const struct mr_tree *tree, size_t *fused,
                               struct mr_error *err)
{
    const struct mr_reveal_options *o = asker->options;
    struct check c = {.options = o, .tree = tree, .random = o->seed ^ 0x5bd1e995};
    size_t testable = 0;
    *fused = 0;
    if (tree->nodes == 0) return MR_OK;
    c.value = malloc((tree->terms + tree->nodes) * sizeof *c.value);
    c.expected = malloc(asker->room * sizeof *c.expected);
    c.about = malloc(asker->room * sizeof *c.about);
    enum mr_status status = MR_OK;
    if (!c.value || !c.expected || !c.about) {
        status = mr_fail(err, MR_ERR_MEMORY, "a tree of %zu terms: out of memory", tree->terms);
        goto done;
    }
    asker->take = take;
    asker->context = &c;
    status = ask_masks(&c, asker, err);
    for (size_t k = 0; k < tree->nodes; k++) {
        *fused += tree->begin[k + 1] - tree->begin[k] > 2;
        testable += wide_units(&c, k) > 0;
    }
    /* At most `probes` of them, evenly. */
    size_t seen = 0, used = 0;
    for (size_t k = 0; k < tree->nodes && !status; k++) {
        if (wide_units(&c, k) == 0 || ++seen * o->probes < (used + 1) * testable) continue;
        used++;
        status = ask_fused(&c, asker, k, err);
    }
    if (!status) status = mr_asker_flush(asker, err);
done:
    free(c.value);
    free(c.expected);
    free(c.about);
    return status;
}
