/* Sums of masks by our own replay of an arithmetic line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/arith/mma.h"
#include "../ref/arith/replay.h"
#include "common.h"
#include "reveal_run.h"

/* 8-bit operands reach too few exponents for ones on the other side. */
static bool by_halves(const struct mr_arith *arith)
{
    const struct mr_mma *m = arith->sum.leaf == MR_LEAF_MMA ? arith->sum.mma : NULL;
    return m && (m->a == MR_MMA_E4M3 || m->a == MR_MMA_E5M2);
}

const char *replay_operands(const struct mr_arith *arith, struct mr_reveal_options *options)
{
    static char name[32];
    const struct mr_mma *m = arith->sum.leaf == MR_LEAF_MMA ? arith->sum.mma : NULL;
    /* e4m3 reaches fewer exponents than e5m2, and e5m2 has all of its powers of two. */
    snprintf(name, sizeof name, "%s%s",
             m ? mr_mma_type_name(m->a == MR_MMA_E5M2 ? m->b : m->a) : "fp32",
             m && m->accumulator == MR_MMA_FP16 ? "-fp16" : "");
    if (!mr_reveal_masks(name, options))
        die(3, "reveal: no masks for operands of type %s: too few exponents", name);
    /* A logit that is rounded counts no further than its fraction does. */
    size_t most = options->most;
    if (arith->logits == MR_TYPE_BF16) most = 256;
    if (arith->logits == MR_TYPE_FP16) most = 2048;
    if (most < options->most) options->most = most;
    return name;
}

static struct mr_matrix matrix(const float *values, size_t rows, size_t cols)
{
    return (struct mr_matrix){.data = values, .dtype = MR_F32, .rows = rows, .cols = cols};
}

/* Rows are the experts: the replay is fastest with many of those. A product is the same either way
 * around. */
static enum mr_status once(const struct mr_arith *arith, const float *ones, const float *rows,
                           size_t count, size_t terms, float *out, struct mr_error *err)
{
    struct mr_gemm gemm = {.hidden = matrix(ones, 1, terms), .gate = matrix(rows, count, terms)};
    struct mr_replay *replay;
    enum mr_status status = mr_replay_new(arith, &gemm, &replay, err);
    if (status) return status;
    status = mr_replay_rows(replay, 0, 1, out, err);
    mr_replay_free(replay);
    return status;
}

/* v = a b, each with half of the exponent. */
static void halve(const float *v, size_t n, float *a, float *b)
{
    for (size_t i = 0; i < n; i++) {
        int e = v[i] == 0 ? 0 : ilogbf(v[i]), half = e >> 1;
        b[i] = ldexpf(1, half);
        a[i] = ldexpf(v[i], -half);
    }
}

enum mr_status replay_sum(void *context, const float *rows, size_t count, size_t terms, float *out,
                          struct mr_error *err)
{
    const struct replayed_sum *r = context;
    if (!by_halves(&r->arith)) return once(&r->arith, r->ones, rows, count, terms, out, err);
    float *a = need(2 * terms, sizeof *a), *b = a + terms;
    enum mr_status status = MR_OK;
    for (size_t i = 0; i < count && !status; i++) {
        halve(rows + i * terms, terms, a, b);
        status = once(&r->arith, a, b, 1, terms, out + i, err);
    }
    free(a);
    return status;
}
