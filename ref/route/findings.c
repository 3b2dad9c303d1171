#include "findings.h"

#include <stdlib.h>
#include <string.h>

enum mr_status mr_findings_new(size_t most, int top_k, struct mr_findings *f)
{
    size_t room = 2 * most, k = (size_t)top_k;
    *f = (struct mr_findings){.most = most, .top_k = top_k};
    if (most > SIZE_MAX / 4 / k / sizeof(int64_t)) return MR_ERR_MEMORY;
    f->item = malloc((room + 1) * sizeof *f->item);
    f->expected = malloc((room + 1) * k * sizeof *f->expected);
    f->observed = malloc((room + 1) * k * sizeof *f->observed);
    if (!f->item || !f->expected || !f->observed) {
        mr_findings_free(f);
        return MR_ERR_MEMORY;
    }
    for (size_t i = 0; i < room; i++) f->item[i].slot = i;
    return MR_OK;
}

void mr_findings_free(struct mr_findings *f)
{
    free(f->item);
    free(f->expected);
    free(f->observed);
    *f = (struct mr_findings){0};
}

/* A total order, so that the worst are the same ones in whatever order they came. */
static int worse(const void *a, const void *b)
{
    const struct mr_finding *x = a, *y = b;
    int c = mr_judgement_compare(&x->judgement, &y->judgement);
    if (c) return c;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    if (x->source != y->source) return x->source < y->source ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

void mr_findings_sort(struct mr_findings *f)
{
    if (f->count) qsort(f->item, f->count, sizeof *f->item, worse);
    if (f->count > f->most) f->count = f->most;
}

/* Items carry their slots with them when they are sorted, so the slots of items[count..) are always
 * those that are free. */
void mr_findings_add(struct mr_findings *f, const struct mr_finding *finding,
                     const int32_t *expected, const int64_t *observed)
{
    if (!f->most) return;
    if (f->count == 2 * f->most) mr_findings_sort(f);
    struct mr_finding *item = &f->item[f->count++];
    size_t slot = item->slot, k = (size_t)f->top_k;
    *item = *finding;
    item->slot = slot;
    for (size_t i = 0; i < k; i++) {
        f->expected[slot * k + i] = expected ? expected[i] : -1;
        f->observed[slot * k + i] = observed ? observed[i] : -1;
    }
}

void mr_findings_merge(struct mr_findings *to, const struct mr_findings *from)
{
    for (size_t i = 0; i < from->count; i++)
        mr_findings_add(to, &from->item[i], mr_finding_expected(from, i),
                        mr_finding_observed(from, i));
}
