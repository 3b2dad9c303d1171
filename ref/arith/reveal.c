/* The questions of order revealing (reveal.h), round by round. */
#include "reveal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reveal_private.h"

bool mr_reveal_masks(const char *name, struct mr_reveal_options *out)
{
    static const struct {
        const char *name;
        int big, unit;
        size_t most;
    } masks[] = {
        {"fp32", 120, 0, (size_t)1 << 24}, {"bf16", 120, 0, (size_t)1 << 24},
        {"tf32", 120, 0, (size_t)1 << 24}, {"fp16", 15, -24, 8192},
        {"fp16-fp16", 15, -24, 1024},      {"e4m3", 16, -18, 256},
        {"e4m3-fp16", 15, -18, 128},       {"e5m2", 30, -32, 4096},
        {"e5m2-fp16", 15, -24, 1024},
    };
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        if (strcmp(masks[i].name, name)) continue;
        out->big = ldexpf(1, masks[i].big);
        out->unit = ldexpf(1, masks[i].unit);
        out->most = masks[i].most;
        return true;
    }
    return false;
}

uint64_t mr_reveal_draw(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

enum mr_status mr_asker_open(struct mr_asker *asker, const struct mr_summer *summer, size_t terms,
                             const struct mr_reveal_options *options, struct mr_error *err)
{
    size_t fit = ((size_t)32 << 20) / (terms * sizeof(float));
    size_t room = options->rows ? options->rows : fit ? fit : 1;
    if (room > 65536) room = 65536;
    *asker = (struct mr_asker){.summer = summer, .options = options, .terms = terms, .room = room};
    asker->row = malloc(room * terms * sizeof *asker->row);
    asker->out = malloc(2 * room * sizeof *asker->out);
    if (!asker->row || !asker->out) {
        mr_asker_close(asker);
        return mr_fail(err, MR_ERR_MEMORY, "%zu rows of %zu terms: out of memory", room, terms);
    }
    asker->again = asker->out + room;
    return MR_OK;
}

void mr_asker_close(struct mr_asker *asker)
{
    free(asker->row);
    free(asker->out);
    asker->row = asker->out = NULL;
}

enum mr_status mr_asker_flush(struct mr_asker *asker, struct mr_error *err)
{
    size_t count = asker->used;
    asker->used = 0;
    int times = asker->options->times > 1 ? asker->options->times : 1;
    for (int t = 0; count && t < times; t++) {
        float *out = t == 0 ? asker->out : asker->again;
        asker->calls++;
        asker->rows += count;
        enum mr_status status =
            asker->summer->sum(asker->summer->context, asker->row, count, asker->terms, out, err);
        if (status) return status;
        if (t > 0 && memcmp(asker->out, out, count * sizeof *out))
            return mr_fail(err, MR_ERR_VALUE,
                           "the same rows summed again give other bits: the order changes from run "
                           "to run (atomics?)");
    }
    for (size_t i = 0; i < count; i++) {
        enum mr_status status = asker->take(asker->context, asker->out[i], err);
        if (status) return status;
    }
    return MR_OK;
}

enum mr_status mr_asker_row(struct mr_asker *asker, float **row, struct mr_error *err)
{
    if (asker->used == asker->room) {
        enum mr_status status = mr_asker_flush(asker, err);
        if (status) return status;
    }
    *row = asker->row + asker->used++ * asker->terms;
    return MR_OK;
}

enum mr_status mr_units(const struct mr_reveal_options *options, float result, size_t most,
                        size_t *units, struct mr_error *err)
{
    double count = (double)result / options->unit;
    if (!(count >= 0 && count <= (double)most && count == floor(count)))
        return mr_fail(err, MR_ERR_VALUE,
                       "a sum of masks gives %a, which is not 0 to %zu times the unit %a: big does "
                       "not absorb units, units are not counted exactly, or this is no plain sum",
                       (double)result, most, (double)options->unit);
    *units = (size_t)count;
    return MR_OK;
}

/* A set of terms whose tree is asked for: leaf[lo .. hi). They hang below `node`, an addition of
 * `size` terms, in one or several of its children; node NO_NODE: these are all terms. */
struct task {
    uint32_t lo, hi, node, size;
};
#define NO_NODE UINT32_MAX

struct run {
    struct mr_asker asker;
    const struct mr_reveal_options *options;
    size_t terms;
    uint32_t *leaf;     /* a permutation of the terms */
    uint32_t *below;    /* l(i, leaf[p]), of the question of this round that p is in */
    uint32_t *parent;   /* [2 terms]; nodes from id `terms` */
    uint32_t *children; /* [terms]: of node k, found so far */
    size_t nodes;
    struct task *task, *next; /* of this round and the next: at most terms each */
    size_t tasks, nexts;
    uint64_t random;
    /* Where the next result belongs: row `block` of position `at` of task `taking`. */
    size_t taking, at, block;
};

static size_t blocks(const struct run *r)
{
    return (r->terms + r->options->most - 1) / r->options->most;
}

/* Units of block b, +0 elsewhere. Gives how many there are. */
static size_t fill_units(const struct run *r, float *row, size_t b)
{
    size_t begin = b * r->options->most, end = begin + r->options->most;
    if (end > r->terms) end = r->terms;
    for (size_t k = 0; k < begin; k++) row[k] = 0;
    for (size_t k = begin; k < end; k++) row[k] = r->options->unit;
    for (size_t k = end; k < r->terms; k++) row[k] = 0;
    return end - begin;
}

static enum mr_status take_all_units(void *context, float result, struct mr_error *err)
{
    struct run *r = context;
    size_t begin = r->block * r->options->most, units = 0;
    size_t want = r->terms - begin < r->options->most ? r->terms - begin : r->options->most;
    enum mr_status status = mr_units(r->options, result, want, &units, err);
    r->block++;
    if (!status && units != want)
        status = mr_fail(err, MR_ERR_VALUE, "%zu terms of %a sum to %zu times that", want,
                         (double)r->options->unit, units);
    return status;
}

/* The count of results of position `at`, block after block; then the next position. */
static enum mr_status take_pair(void *context, float result, struct mr_error *err)
{
    struct run *r = context;
    size_t units = 0;
    enum mr_status status = mr_units(r->options, result, r->terms, &units, err);
    if (status) return status;
    uint32_t *below = &r->below[r->at];
    if (r->block == 0) *below = (uint32_t)r->terms;
    if (units + 2 > *below)
        return mr_fail(err, MR_ERR_VALUE,
                       "%zu terms, two of them big: more than %zu units come through", r->terms,
                       r->terms - 2);
    *below -= (uint32_t)units;
    if (++r->block < blocks(r)) return MR_OK;
    r->block = 0;
    if (++r->at == r->task[r->taking].hi && ++r->taking < r->tasks)
        r->at = r->task[r->taking].lo + 1;
    return MR_OK;
}

static enum mr_status ask_round(struct run *r, struct mr_error *err)
{
    r->taking = r->block = 0;
    r->at = r->task[0].lo + 1;
    for (size_t t = 0; t < r->tasks; t++) {
        struct task task = r->task[t];
        uint32_t *leaf = r->leaf + task.lo;
        size_t pick = mr_reveal_draw(&r->random) % (task.hi - task.lo);
        uint32_t pivot = leaf[pick];
        leaf[pick] = leaf[0];
        leaf[0] = pivot;
        for (size_t p = 1; p < task.hi - task.lo; p++)
            for (size_t b = 0; b < blocks(r); b++) {
                float *row;
                enum mr_status status = mr_asker_row(&r->asker, &row, err);
                if (status) return status;
                fill_units(r, row, b);
                row[pivot] = r->options->big;
                row[leaf[p]] = -r->options->big;
            }
    }
    return mr_asker_flush(&r->asker, err);
}

/* Sorts leaf[lo .. hi) by below, then by term: heapsort, since a quicksort of libc may allocate. */
static bool after(const struct run *r, size_t a, size_t b)
{
    return r->below[a] != r->below[b] ? r->below[a] > r->below[b] : r->leaf[a] > r->leaf[b];
}

static void swap(struct run *r, size_t a, size_t b)
{
    uint32_t leaf = r->leaf[a], below = r->below[a];
    r->leaf[a] = r->leaf[b];
    r->below[a] = r->below[b];
    r->leaf[b] = leaf;
    r->below[b] = below;
}

static void sift(struct run *r, size_t lo, size_t i, size_t n)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && after(r, lo + child + 1, lo + child)) child++;
        if (!after(r, lo + child, lo + i)) return;
        swap(r, lo + child, lo + i);
    }
}

static void sort(struct run *r, size_t lo, size_t hi)
{
    size_t n = hi - lo;
    for (size_t i = n / 2; i-- > 0;) sift(r, lo, i, n);
    for (size_t end = n; end-- > 1;) {
        swap(r, lo, lo + end);
        sift(r, lo, 0, end);
    }
}

static enum mr_status hang(struct run *r, uint32_t id, uint32_t node, struct mr_error *err)
{
    r->parent[id] = node;
    if (node == NO_NODE || ++r->children[node - r->terms] <= r->options->widest) return MR_OK;
    return mr_fail(err, MR_ERR_VALUE,
                   "more than %zu terms look as if they were added at once, and no adder is that "
                   "wide: the order depends on values (sorted by magnitude?)",
                   r->options->widest);
}

/* The path from the drawn term up. All terms of one l join it in one node, which has l terms below
 * it. Within a task l is therefore the number of terms met so far, but for the last node: that may
 * be the task's own, whose other children are not in the task. Anything else is no tree's. */
static enum mr_status settle(struct run *r, struct task task, struct mr_error *err)
{
    sort(r, task.lo + 1, task.hi);
    uint32_t current = r->leaf[task.lo];
    for (uint32_t from = task.lo + 1, to; from < task.hi; from = to) {
        uint32_t size = r->below[from], node;
        for (to = from + 1; to < task.hi && r->below[to] == size; to++) {
        }
        if (size == to - task.lo && (task.node == NO_NODE || size < task.size))
            node = (uint32_t)(r->terms + r->nodes++);
        else if (to == task.hi && task.node != NO_NODE && size == task.size)
            node = task.node;
        else
            return mr_fail(
                err, MR_ERR_VALUE,
                "terms %u and %u meet in a sum of %u terms, but %u are known to be in it: "
                "the order depends on values or changes from call to call, or big does not "
                "absorb units",
                r->leaf[task.lo], r->leaf[from], size, to - task.lo);
        enum mr_status status = hang(r, current, node, err);
        if (!status && to - from == 1) status = hang(r, r->leaf[from], node, err);
        if (status) return status;
        if (to - from > 1) r->next[r->nexts++] = (struct task){from, to, node, size};
        current = node;
    }
    return current != task.node ? hang(r, current, task.node, err) : MR_OK;
}

static enum mr_status find_tree(struct run *r, struct mr_error *err)
{
    r->asker.take = take_all_units;
    r->asker.context = r;
    for (size_t b = 0; b < blocks(r); b++) {
        float *row;
        enum mr_status status = mr_asker_row(&r->asker, &row, err);
        if (status) return status;
        fill_units(r, row, b);
    }
    enum mr_status status = mr_asker_flush(&r->asker, err);
    r->asker.take = take_pair;
    r->parent[0] = MR_TREE_ROOT;
    if (r->terms > 1) r->task[r->tasks++] = (struct task){0, (uint32_t)r->terms, NO_NODE, 0};
    while (!status && r->tasks) {
        status = ask_round(r, err);
        for (size_t t = 0; !status && t < r->tasks; t++) status = settle(r, r->task[t], err);
        struct task *done = r->task;
        r->task = r->next;
        r->tasks = r->nexts;
        r->next = done;
        r->nexts = 0;
    }
    return status;
}

static enum mr_status check_options(size_t terms, const struct mr_reveal_options *o,
                                    struct mr_error *err)
{
    int e;
    if (terms < 1 || terms > (size_t)1 << 24)
        return mr_fail(err, MR_ERR_VALUE, "%zu terms: expected 1 to 2^24", terms);
    if (!(o->unit > 0 && o->big > o->unit && isfinite(o->big) && frexpf(o->big, &e) == 0.5f &&
          frexpf(o->unit, &e) == 0.5f))
        return mr_fail(err, MR_ERR_VALUE, "masks %a and %a: expected powers of two, big above unit",
                       (double)o->big, (double)o->unit);
    if (o->most == 0) return mr_fail(err, MR_ERR_VALUE, "masks of at most 0 units");
    return MR_OK;
}

enum mr_status mr_reveal(const struct mr_summer *summer, size_t terms,
                         const struct mr_reveal_options *options, struct mr_tree *out,
                         struct mr_reveal_stats *stats, struct mr_error *err)
{
    struct mr_reveal_options o = *options;
    *out = (struct mr_tree){0};
    if (!o.probes) o.probes = 64;
    if (!o.widest) o.widest = 130;
    enum mr_status status = check_options(terms, &o, err);
    if (status) return status;
    struct run r = {.options = &o, .terms = terms, .random = o.seed};
    status = mr_asker_open(&r.asker, summer, terms, &o, err);
    if (status) return status;
    r.leaf = malloc(terms * sizeof *r.leaf);
    r.below = malloc(terms * sizeof *r.below);
    r.parent = malloc(2 * terms * sizeof *r.parent);
    r.task = malloc(terms * sizeof *r.task);
    r.next = malloc(terms * sizeof *r.next);
    r.children = calloc(terms, sizeof *r.children);
    size_t fused = 0;
    if (!r.leaf || !r.below || !r.parent || !r.task || !r.next || !r.children) {
        status = mr_fail(err, MR_ERR_MEMORY, "a sum of %zu terms: out of memory", terms);
        goto done;
    }
    for (size_t i = 0; i < terms; i++) r.leaf[i] = (uint32_t)i;
    status = find_tree(&r, err);
    if (!status) status = mr_tree_make(terms, r.nodes, r.parent, out, err);
    if (!status) status = mr_reveal_check(&r.asker, out, &fused, err);
    if (status) mr_tree_free(out);
done:
    if (stats)
        *stats = (struct mr_reveal_stats){.calls = r.asker.calls,
                                          .rows = r.asker.rows,
                                          .probes = out->nodes ? o.probes : 0,
                                          .fused = fused};
    mr_asker_close(&r.asker);
    free(r.leaf);
    free(r.below);
    free(r.parent);
    free(r.task);
    free(r.next);
    free(r.children);
    return status;
}
