/* The bookkeeping after top-k, held against the ids that the same launch gave. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

static int32_t word(const unsigned char *at, size_t i)
{
    int32_t v;
    memcpy(&v, at + i * sizeof v, sizeof v);
    return v;
}

/* [experts] rows that chose each; NULL without memory. Ids out of range are the judge's matter. */
static int32_t *count_ids(const struct mr_kernel_problem *p, const unsigned char *ids)
{
    int32_t *counts = calloc((size_t)p->router.experts, sizeof *counts);
    size_t n = (size_t)p->rows * (size_t)p->router.top_k;
    for (size_t i = 0; counts && i < n; i++) {
        int32_t id = word(ids, i);
        if (id >= 0 && id < p->router.experts) counts[id]++;
    }
    return counts;
}

static void check_counts(const struct mr_kernel_problem *p, const unsigned char *found,
                         const int32_t *expected, char *fault, size_t size)
{
    for (int e = 0; e < p->router.experts; e++) {
        int32_t count = word(found, (size_t)e);
        if (count == expected[e]) continue;
        snprintf(fault, size, "counts: expert %d: %" PRId32 ", and its ids say %" PRId32, e, count,
                 expected[e]);
        return;
    }
}

/* One expert's share, from *at on; false after a fault. */
static bool check_share(const struct mr_kernel *k, const struct mr_kernel_problem *p,
                        const struct gpu_outputs *out, int expert, int32_t count, size_t *at,
                        unsigned char *seen, char *fault, size_t size)
{
    size_t tile = (size_t)k->tile, chosen = (size_t)p->rows * (size_t)p->router.top_k;
    size_t share = ((size_t)count + tile - 1) / tile * tile;
    int32_t last = -1;
    for (size_t i = 0; i < share; i++) {
        int32_t position = word(out->at[GPU_SORTED], *at + i);
        bool padding = i >= (size_t)count;
        bool right = padding ? position == (int32_t)chosen
                             : position >= 0 && (size_t)position < chosen && !seen[position] &&
                                   word(out->at[GPU_IDS], (size_t)position) == expert;
        if (right && !padding && k->promises & MR_KERNEL_SORTED_STABLE) right = position > last;
        if (!right) {
            snprintf(fault, size, "sorted: element %zu, %s expert %d: %" PRId32, *at + i,
                     padding ? "padding of" : "of", expert, position);
            return false;
        }
        if (!padding) seen[position] = 1;
        last = position;
    }
    for (size_t t = *at / tile; t < (*at + share) / tile; t++)
        if (word(out->at[GPU_TILE_EXPERT], t) != expert) {
            snprintf(fault, size, "tile_expert: tile %zu: %" PRId32 ", expected %d", t,
                     word(out->at[GPU_TILE_EXPERT], t), expert);
            return false;
        }
    *at += share;
    return true;
}

static void check_sorted(const struct mr_kernel *k, const struct mr_kernel_problem *p,
                         const struct gpu_outputs *out, const int32_t *counts, char *fault,
                         size_t size)
{
    size_t chosen = (size_t)p->rows * (size_t)p->router.top_k, tile = (size_t)k->tile, at = 0;
    int64_t expected = 0;
    for (int e = 0; e < p->router.experts; e++)
        expected += (counts[e] + (int64_t)tile - 1) / (int64_t)tile * (int64_t)tile;
    int32_t total = word(out->at[GPU_SORTED_TOTAL], 0);
    if (total != expected) {
        snprintf(fault, size, "sorted_total: %" PRId32 ", expected %" PRId64, total, expected);
        return;
    }
    unsigned char *seen = calloc(chosen, 1);
    bool fine = seen != NULL;
    if (!fine) snprintf(fault, size, "out of memory");
    for (int e = 0; e < p->router.experts && fine; e++)
        fine = check_share(k, p, out, e, counts[e], &at, seen, fault, size);
    free(seen);
}

void gpu_books_check(const struct mr_kernel *k, const struct mr_kernel_problem *p,
                     const struct gpu_outputs *out, char *fault, size_t size)
{
    *fault = '\0';
    if (!(k->gives & (MR_GIVES_COUNTS | MR_GIVES_SORTED))) return;
    int32_t *counts = count_ids(p, out->at[GPU_IDS]);
    if (!counts) {
        snprintf(fault, size, "out of memory");
        return;
    }
    if (k->gives & MR_GIVES_COUNTS) check_counts(p, out->at[GPU_COUNTS], counts, fault, size);
    if (!*fault && k->gives & MR_GIVES_SORTED) check_sorted(k, p, out, counts, fault, size);
    free(counts);
}
