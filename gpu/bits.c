#include "bits.h"

#include <stdlib.h>
#include <string.h>

enum { IDS, WEIGHTS, LOGITS, PARTS };

struct gpu_bits {
    size_t tokens, width[PARTS]; /* bytes that are kept of a row; 0 until the first is seen */
    int top_k, experts;
    unsigned char *first[PARTS], *before; /* [tokens, width]; before: logits of one row count ago */
    unsigned char *seen, *had;            /* [tokens] whether there is a first, a before */
    int64_t *one, *other;                 /* [top_k] sorted */
    bool any;                             /* a row count has been added */
};

enum mr_status gpu_bits_new(size_t tokens, int top_k, int experts, struct gpu_bits **out)
{
    struct gpu_bits *b = calloc(1, sizeof *b);
    *out = b;
    if (!b) return MR_ERR_MEMORY;
    *b = (struct gpu_bits){.tokens = tokens, .top_k = top_k, .experts = experts};
    size_t k = (size_t)top_k, e = (size_t)experts;
    b->first[IDS] = malloc(tokens * k * 8 + 1);
    b->first[WEIGHTS] = malloc(tokens * k * 8 + 1);
    b->first[LOGITS] = malloc(tokens * e * 8 + 1);
    b->before = malloc(tokens * e * 8 + 1);
    b->seen = calloc(tokens + 1, 1);
    b->had = calloc(tokens + 1, 1);
    b->one = malloc(k * sizeof *b->one);
    b->other = malloc(k * sizeof *b->other);
    if (b->first[IDS] && b->first[WEIGHTS] && b->first[LOGITS] && b->before && b->seen && b->had &&
        b->one && b->other)
        return MR_OK;
    gpu_bits_free(b);
    *out = NULL;
    return MR_ERR_MEMORY;
}

void gpu_bits_free(struct gpu_bits *b)
{
    if (!b) return;
    for (int i = 0; i < PARTS; i++) free(b->first[i]);
    free(b->before);
    free(b->seen);
    free(b->had);
    free(b->one);
    free(b->other);
    free(b);
}

static const unsigned char *row_of(const struct mr_tensor *t, size_t row, size_t *width)
{
    *width = t->data ? (size_t)t->shape[1] * mr_dtype_bits(t->dtype) / 8 : 0;
    return t->data ? (const unsigned char *)t->data + row * *width : NULL;
}

static int compare(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Whether two rows of I32 ids name other experts. */
static bool other_set(struct gpu_bits *b, const unsigned char *a, const unsigned char *c)
{
    for (int i = 0; i < b->top_k; i++) {
        int32_t id;
        memcpy(&id, a + 4 * i, 4);
        b->one[i] = id;
        memcpy(&id, c + 4 * i, 4);
        b->other[i] = id;
    }
    qsort(b->one, (size_t)b->top_k, sizeof *b->one, compare);
    qsort(b->other, (size_t)b->top_k, sizeof *b->other, compare);
    return memcmp(b->one, b->other, (size_t)b->top_k * sizeof *b->one) != 0;
}

/* One row against the first that was seen of its token. */
static void against_first(struct gpu_bits *b, const struct mr_tensor *const part[PARTS],
                          size_t token, size_t row, bool *flip, bool *bits)
{
    for (int i = 0; i < PARTS; i++) {
        size_t width;
        const unsigned char *now = row_of(part[i], row, &width);
        unsigned char *first = b->first[i] + token * width;
        if (!width) continue;
        if (!b->seen[token]) {
            memcpy(first, now, width);
            continue;
        }
        if (memcmp(first, now, width) == 0) continue;
        *bits = true;
        if (i == IDS) *flip |= other_set(b, first, now);
    }
    b->seen[token] = 1;
}

/* The token's first row at this row count against its first at the one before. */
static bool changed(struct gpu_bits *b, const struct mr_tensor *logits, size_t token, size_t row)
{
    size_t width;
    const unsigned char *now = row_of(logits, row, &width);
    unsigned char *before = b->before + token * width;
    bool differs = b->had[token] && memcmp(before, now, width) != 0;
    memcpy(before, now, width);
    b->had[token] = 1;
    return differs;
}

void gpu_bits_add(struct gpu_bits *b, const struct mr_observed *o, struct gpu_bits_count *out)
{
    const struct mr_tensor *const part[PARTS] = {&o->ids, &o->weights, &o->logits};
    out->compared |= o->logits.data && b->any;
    out->sets |= o->ids.data != NULL;
    for (size_t t = 0; t < b->tokens; t++) {
        const size_t *rows;
        size_t n = mr_observed_rows(o, t, &rows);
        bool flip = false, bits = false;
        if (n && o->logits.data) out->bit_changes += changed(b, &o->logits, t, rows ? rows[0] : t);
        for (size_t i = 0; i < n; i++)
            against_first(b, part, t, rows ? rows[i] : t, &flip, &bits);
        out->batch_flips += flip;
        out->batch_bits += bits;
    }
    b->any = true;
}
