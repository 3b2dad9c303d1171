/* The nearest of the lines that fail. */
#include "identify_private.h"

/* The later it failed, then the fewer outputs, then the earlier in the family. */
static bool nearer(const struct identify_miss *x, const struct identify_miss *y)
{
    if (x->stage != y->stage) return x->stage > y->stage;
    if (x->wrong != y->wrong) return x->wrong < y->wrong;
    if (x->leaf != y->leaf) return x->leaf < y->leaf;
    if (x->layout != y->layout) return x->layout < y->layout;
    if (x->type != y->type) return x->type < y->type;
    return x->combination < y->combination;
}

void identify_keep_miss(struct identify_misses *m, const struct identify_miss *x)
{
    if (m->count == IDENTIFY_NEAR && !nearer(x, &m->item[IDENTIFY_NEAR - 1])) return;
    size_t at = m->count < IDENTIFY_NEAR ? m->count++ : IDENTIFY_NEAR - 1;
    for (; at > 0 && nearer(x, &m->item[at - 1]); at--) m->item[at] = m->item[at - 1];
    m->item[at] = *x;
}
