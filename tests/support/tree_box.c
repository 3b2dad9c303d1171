#include "tree_box.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mpfr_oracle.h"

void tree_box_random(uint64_t *seed, size_t terms, size_t width, int lean, struct tree_box *out)
{
    size_t live = terms, used = 0;
    uint32_t *pool = malloc(terms * sizeof *pool);
    *out = (struct tree_box){.terms = terms};
    out->parent = malloc(2 * terms * sizeof *out->parent);
    out->begin = malloc((terms + 1) * sizeof *out->begin);
    out->from = malloc(2 * terms * sizeof *out->from);
    for (size_t i = 0; i < terms; i++) pool[i] = (uint32_t)i;
    for (size_t i = terms; i > 1; i--) {
        size_t j = oracle_random(seed) % i;
        uint32_t other = pool[i - 1];
        pool[i - 1] = pool[j];
        pool[j] = other;
    }
    while (live > 1) {
        size_t n = oracle_random(seed) % 3 ? 2 : width;
        if (n > live) n = live;
        uint32_t id = (uint32_t)(terms + out->nodes);
        out->begin[out->nodes++] = (uint32_t)used;
        for (size_t k = 0; k < n; k++) {
            size_t pick = oracle_random(seed) % live;
            if (lean && k == 0 && oracle_random(seed) % 8) pick = live - 1;
            out->from[used++] = pool[pick];
            out->parent[pool[pick]] = id;
            pool[pick] = pool[--live];
        }
        pool[live++] = id;
    }
    out->begin[out->nodes] = (uint32_t)used;
    out->parent[pool[0]] = MR_TREE_ROOT;
    free(pool);
}

void tree_box_free(struct tree_box *box)
{
    free(box->parent);
    free(box->begin);
    free(box->from);
}

static int exponent_of(float v)
{
    int e;
    frexpf(v, &e);
    return v == 0 ? -133 : e - 1;
}

/* Aligned to the largest exponent, cut 25 bits below it, added exactly, cut to 24 bits. */
static float fused(const float *v, const uint32_t *from, size_t n)
{
    int top = -133;
    for (size_t i = 0; i < n; i++)
        if (exponent_of(v[from[i]]) > top) top = exponent_of(v[from[i]]);
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += trunc(ldexp(v[from[i]], 25 - top));
    sum = ldexp(sum, top - 25);
    float result = (float)sum;
    return fabs((double)result) > fabs(sum) ? nextafterf(result, 0) : result;
}

enum mr_status tree_box_sum(void *context, const float *rows, size_t count, size_t terms,
                            float *out, struct mr_error *err)
{
    struct tree_box *b = context;
    float *v = malloc((terms + b->nodes) * sizeof *v);
    b->calls++;
    b->rows += count;
    if (!v || terms != b->terms) return mr_fail(err, MR_ERR_MEMORY, "tree_box");
    for (size_t r = 0; r < count; r++) {
        memcpy(v, rows + r * terms, terms * sizeof *v);
        for (size_t k = 0; k < b->nodes; k++) {
            const uint32_t *from = b->from + b->begin[k];
            size_t n = b->begin[k + 1] - b->begin[k];
            v[terms + k] = n == 2 ? v[from[0]] + v[from[1]] : fused(v, from, n);
        }
        out[r] = v[terms + b->nodes - 1];
    }
    free(v);
    return MR_OK;
}

size_t tree_box_meet(const struct tree_box *b, uint32_t i, uint32_t j)
{
    /* Ids grow upwards. */
    while (i != j) {
        if (i < j)
            i = b->parent[i];
        else
            j = b->parent[j];
    }
    size_t count = 0;
    for (uint32_t k = 0; k < b->terms; k++) {
        uint32_t up = k;
        while (up < i) up = b->parent[up];
        count += up == i;
    }
    return count;
}
