/* When two shapes are one sum at a given K: the same tree, addition being commutative. */
#include <stdlib.h>

#include "mma.h"
#include "sum.h"

/* The finaliser of MurmurHash3, by Austin Appleby (public domain): a bijection of 64 bits. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
    return x ^ x >> 33;
}

static uint64_t term_of(const struct mr_plan *p, size_t i)
{
    return mix((p->order ? p->order[i] : i) + 0x9e3779b97f4a7c15);
}

static uint64_t sum_key(uint64_t a, uint64_t b)
{
    return mix(a + b + 1);
}

/* A chain of rounded products is the sum in order of single ones, signs of zero included: it begins
 * with +0, and additions never underflow to -0. */
static uint64_t products_key(const struct mr_plan *p, size_t part, uint64_t seed)
{
    uint64_t key = mix(seed + term_of(p, p->begin[part]));
    for (size_t i = p->begin[part] + 1; i < p->begin[part + 1]; i++)
        key = sum_key(key, mix(seed + term_of(p, i)));
    return key;
}

/* A fused step adds its terms at once: their order within it is nothing. */
static uint64_t part_key(const struct mr_plan *p, size_t part, size_t width, uint64_t seed)
{
    uint64_t key = seed;
    for (size_t i = p->begin[part]; i < p->begin[part + 1];) {
        uint64_t step = 0;
        for (size_t n = 0; n < width && i < p->begin[part + 1]; n++, i++) step += term_of(p, i);
        key = mix(key * 3 + mix(step));
    }
    return key;
}

enum mr_status mr_plan_key(const struct mr_sum_shape *sum, const struct mr_plan *p, uint64_t *out,
                           struct mr_error *err)
{
    size_t width = sum->leaf == MR_LEAF_MMA ? mr_mma_step_columns(sum->mma) : 1;
    uint64_t *key = malloc((p->parts + 1) * sizeof *key);
    if (!key) return mr_fail(err, MR_ERR_MEMORY, "a sum of %zu terms: out of memory", p->terms);
    uint64_t seed = mix((uint64_t)sum->leaf * 64 + width);
    for (size_t i = 0; i < p->parts; i++)
        key[i] = sum->leaf == MR_LEAF_MUL_ADD ? products_key(p, i, seed)
                                              : part_key(p, i, width, seed);
    for (size_t i = 0; i < p->steps; i++) {
        const struct mr_plan_step *s = &p->step[i];
        if (s->block < 0)
            key[s->into] = sum_key(key[s->into], key[s->from]);
        else if (s->into == s->from)
            key[s->into] = mix(key[s->into] + 2 + (uint64_t)s->block);
        else
            key[s->into] = mix(mix(key[s->into]) + 5 * key[s->from] + (uint64_t)s->block);
    }
    *out = p->parts ? key[0] : 0;
    free(key);
    return MR_OK;
}
