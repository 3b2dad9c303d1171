#include "against.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void gpu_against_init(struct gpu_against *a)
{
    *a = (struct gpu_against){.difference = NAN};
}

static bool same_tokens(const struct mr_observed *a, const struct mr_observed *b)
{
    return a->rows == b->rows && a->token_index.data && b->token_index.data &&
           memcmp(a->token_index.data, b->token_index.data, a->rows * sizeof(int64_t)) == 0;
}

/* NaN and Inf that agree are 0 apart, and Inf from anything else. */
static double distance(double x, double y)
{
    if (x == y || (isnan(x) && isnan(y))) return 0;
    double d = fabs(x - y);
    return isnan(d) ? INFINITY : d;
}

static void add_logits(const double *x, const double *y, int experts, struct gpu_against *out)
{
    bool bits = false;
    if (isnan(out->difference)) out->difference = 0;
    for (int e = 0; e < experts; e++) {
        float one = (float)x[e], other = (float)y[e]; /* exact */
        double d = distance(x[e], y[e]);
        bits |= memcmp(&one, &other, sizeof one) != 0;
        if (d > out->difference) out->difference = d;
    }
    out->bits += bits;
}

static int compare(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static bool other_set(int64_t *x, int64_t *y, int k)
{
    qsort(x, (size_t)k, sizeof *x, compare);
    qsort(y, (size_t)k, sizeof *y, compare);
    return memcmp(x, y, (size_t)k * sizeof *x) != 0;
}

enum mr_status gpu_against_add(const struct mr_observed *a, const struct mr_observed *b, int top_k,
                               int experts, struct gpu_against *out)
{
    size_t k = (size_t)top_k, n = (size_t)experts;
    bool logits = a->logits.data && b->logits.data, sets = a->ids.data && b->ids.data;
    if ((!logits && !sets) || !same_tokens(a, b)) return MR_OK;
    double *value = malloc(2 * n * sizeof *value);
    int64_t *id = malloc(2 * k * sizeof *id);
    for (size_t r = 0; r < a->rows && value && id; r++) {
        if (logits) {
            mr_observed_logits(a, r, value);
            mr_observed_logits(b, r, value + n);
            add_logits(value, value + n, experts, out);
        }
        if (sets) {
            mr_observed_ids(a, r, id);
            mr_observed_ids(b, r, id + k);
            out->sets += other_set(id, id + k, top_k);
        }
    }
    enum mr_status status = value && id ? MR_OK : MR_ERR_MEMORY;
    free(value);
    free(id);
    out->rows += a->rows;
    out->has_sets |= sets;
    return status;
}
