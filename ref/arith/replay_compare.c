#include "replay_compare.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "../num/bits.h"
#include "../num/num.h"
#include "replay_private.h"

/* Encodings in the order of values: consecutive numbers, and the zeros, are one apart. */
static int64_t rank_of(enum mr_type type, float v)
{
    uint32_t code, sign;
    switch (type) {
    case MR_TYPE_BF16:
        code = mr_bf16_encode(v, MR_RNE, MR_OVERFLOW_IEEE);
        sign = 0x8000;
        break;
    case MR_TYPE_FP16:
        code = mr_fp16_encode(v, MR_RNE, MR_OVERFLOW_IEEE);
        sign = 0x8000;
        break;
    default: code = f32_bits(v); sign = 0x80000000;
    }
    return code & sign ? -(int64_t)(code ^ sign) - 1 : (int64_t)code;
}

uint32_t mr_ulp_distance(enum mr_type type, float a, float b)
{
    if (isnan(a) || isnan(b)) return MR_ULP_NONE;
    int64_t d = rank_of(type, a) - rank_of(type, b);
    if (d < 0) d = -d;
    return d < 1 ? 1 : d >= MR_ULP_NONE ? MR_ULP_NONE - 1 : (uint32_t)d;
}

void mr_replay_tally_add(struct mr_replay_tally *to, const struct mr_replay_tally *from)
{
    if (!to->mismatches) to->first = from->first;
    to->checked += from->checked;
    to->mismatches += from->mismatches;
    to->nans += from->nans;
    to->bf16 += from->bf16;
    if (from->worst_ulp > to->worst_ulp) to->worst_ulp = from->worst_ulp;
}

static void judge(enum mr_type type, size_t token, size_t expert, float observed, float replayed,
                  struct mr_replay_tally *t)
{
    uint32_t a = f32_bits(observed), b = f32_bits(replayed);
    t->checked++;
    t->bf16 += !(a & 0xffff);
    if (isnan(observed) && isnan(replayed)) {
        t->nans++;
        return;
    }
    if (a == b) return;
    uint32_t ulp = mr_ulp_distance(type, observed, replayed);
    if (ulp > t->worst_ulp) t->worst_ulp = ulp;
    if (t->mismatches++) return;
    t->first.token = token;
    t->first.expert = expert;
    t->first.observed = observed;
    t->first.replayed = replayed;
}

/* One block of rows; out and seen hold a row block of experts each. */
static enum mr_status compare_block(const struct mr_replay *r, const struct mr_matrix *observed,
                                    size_t first, size_t rows, float *out,
                                    struct mr_replay_tally *tally, struct mr_error *err)
{
    size_t n = r->experts, bytes = mr_dtype_bits(observed->dtype) / 8;
    enum mr_status status = mr_replay_rows(r, first, rows, out, err);
    if (status) return status;
    float *seen = out + REPLAY_ROWS * n;
    mr_widen_f32((const char *)observed->data + first * n * bytes, observed->dtype, rows * n, seen);
    for (size_t i = 0; i < rows * n; i++)
        judge(r->arith.logits, first + i / n, i % n, seen[i], out[i], tally);
    return MR_OK;
}

/* What a block found, or how it failed: the first block that did is reported. */
struct block {
    enum mr_status status;
    struct mr_replay_tally tally;
};

static void compare_all(const struct mr_replay *r, const struct mr_matrix *observed, int threads,
                        size_t count, struct block *block)
{
    /* No more threads than blocks: one that has none would spin. */
    size_t most = (size_t)(threads > 0 ? threads : omp_get_max_threads());
    int used = (int)(most < count ? most : count);
#pragma omp parallel num_threads(used > 0 ? used : 1)
    {
        float *out = malloc((2 * REPLAY_ROWS * r->experts + 1) * sizeof *out);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < count; i++) {
            size_t first = i * REPLAY_ROWS, left = observed->rows - first;
            size_t rows = left < REPLAY_ROWS ? left : REPLAY_ROWS;
            block[i].status =
                out ? compare_block(r, observed, first, rows, out, &block[i].tally, NULL)
                    : MR_ERR_MEMORY;
        }
        free(out);
    }
}

enum mr_status mr_replay_compare(const struct mr_replay *r, const struct mr_matrix *observed,
                                 int threads, struct mr_replay_tally *out, struct mr_error *err)
{
    *out = (struct mr_replay_tally){0};
    if (observed->dtype != MR_BF16 && observed->dtype != MR_F16 && observed->dtype != MR_F32)
        return mr_fail(err, MR_ERR_DTYPE, "observed logits: expected one of BF16 F16 F32, found %s",
                       mr_dtype_name(observed->dtype));
    if (observed->cols != r->experts || observed->rows > r->tokens)
        return mr_fail(err, MR_ERR_SHAPE,
                       "observed logits: expected [at most %zu, %zu], found "
                       "[%zu, %zu]",
                       r->tokens, r->experts, observed->rows, observed->cols);
    size_t count = (observed->rows + REPLAY_ROWS - 1) / REPLAY_ROWS;
    struct block *block = calloc(count + 1, sizeof *block);
    if (!block) return mr_fail(err, MR_ERR_MEMORY, "replay: out of memory");
    compare_all(r, observed, threads, count, block);
    enum mr_status status = MR_OK;
    for (size_t i = 0; i < count && !status; i++) {
        mr_replay_tally_add(out, &block[i].tally);
        if (!block[i].status) continue;
        /* Once more, for the message. */
        float *again = malloc((2 * REPLAY_ROWS * r->experts + 1) * sizeof *again);
        size_t first = i * REPLAY_ROWS, left = observed->rows - first;
        status = again
                     ? mr_replay_rows(r, first, left < REPLAY_ROWS ? left : REPLAY_ROWS, again, err)
                     : mr_fail(err, MR_ERR_MEMORY, "replay: out of memory");
        free(again);
        if (!status) status = mr_fail(err, block[i].status, "replay: out of memory");
    }
    free(block);
    return status;
}
