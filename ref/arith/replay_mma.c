/* Parts that are chains of tensor-core steps (mma.h). */
#include <stdlib.h>
#include <string.h>

#include "../num/bits.h"
#include "../num/num.h"
#include "mma.h"
#include "replay_private.h"

struct mr_replay_mma {
    const struct mr_mma *row;
    uint32_t *gate; /* [experts][terms], encodings in the order of the plan */
};

static enum mr_status no_memory(struct mr_error *err)
{
    return mr_fail(err, MR_ERR_MEMORY, "replay: out of memory");
}

/* A row as encodings of the instruction's type, in the order of the plan. */
static enum mr_status codes(const struct mr_operand *o, size_t row, enum mr_mma_type type,
                            const uint32_t *order, float *scratch, uint32_t *out,
                            struct mr_error *err)
{
    size_t n = o->matrix.cols;
    mr_operand_values(o, row, NULL, NULL, scratch);
    /* As stored: a NaN whose payload lies in the 13 bits that tf32 drops must not be made quiet. */
    if (type == MR_MMA_TF32 && o->matrix.dtype == MR_F32 && o->type == MR_TYPE_FP32)
        memcpy(scratch, (const char *)o->matrix.data + row * n * sizeof *scratch,
               n * sizeof *scratch);
    for (size_t i = 0; i < n; i++) {
        size_t k = order ? order[i] : i;
        bool exact = true;
        uint32_t word = f32_bits(scratch[k]);
        out[i] = type == MR_MMA_TF32 ? word & ~0x1fffu : mr_mma_encode_exact(type, word, &exact);
        if (exact) continue;
        /* The first in the order of the tensor, whatever that of the sum. */
        for (k = 0; k < n; k++) {
            mr_mma_encode_exact(type, f32_bits(scratch[k]), &exact);
            if (!exact) break;
        }
        return mr_fail(err, MR_ERR_VALUE, "%s, row %zu, column %zu: %.9g (0x%08x) is no %s number%s",
                       o->name, row, k, (double)scratch[k], f32_bits(scratch[k]),
                       mr_mma_type_name(type),
                       type == MR_MMA_BF16 ? " (the words bf16-hidden and bf16-gate round)" : "");
    }
    return MR_OK;
}

enum mr_status mr_replay_mma_new(struct mr_replay *r, struct mr_error *err)
{
    const struct mr_mma *row = r->arith.sum.mma;
    if (row->scale_block)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "%s needs the scales of its blocks: it is replayed "
                       "in single steps only", row->name);
    r->mma = calloc(1, sizeof *r->mma);
    float *scratch = malloc((r->terms + 1) * sizeof *scratch);
    if (r->mma) r->mma->gate = malloc((r->experts * r->terms + 1) * sizeof *r->mma->gate);
    enum mr_status status = r->mma && r->mma->gate && scratch ? MR_OK : no_memory(err);
    if (!status) r->mma->row = row;
    for (size_t e = 0; e < r->experts && !status; e++)
        status = codes(&r->gate, e, row->b, r->plan.order, scratch, r->mma->gate + e * r->terms,
                       err);
    free(scratch);
    return status;
}

void mr_replay_mma_free(struct mr_replay_mma *mma)
{
    if (!mma) return;
    free(mma->gate);
    free(mma);
}

static float value_of(const struct mr_mma *row, uint32_t bits)
{
    return row->accumulator == MR_MMA_FP16 ? mr_fp16_decode((uint16_t)bits) : f32_from(bits);
}

enum mr_status mr_replay_mma_rows(const struct mr_replay *r, size_t row, size_t rows, float *out,
                                  struct mr_error *err)
{
    size_t n = r->terms;
    const struct mr_mma *mma = r->mma->row;
    uint32_t *a = malloc((n + 1) * sizeof *a);
    float *scratch = malloc((n + 1) * sizeof *scratch);
    float *partial = malloc((r->plan.parts + 2) * r->experts * sizeof *partial);
    enum mr_status status = a && scratch && partial ? MR_OK : no_memory(err);
    for (size_t i = 0; i < rows && !status; i++) {
        status = codes(&r->hidden, row + i, mma->a, r->plan.order, scratch, a, err);
        if (status) break;
        for (size_t p = 0; p < r->plan.parts; p++)
            for (size_t e = 0; e < r->experts; e++) {
                size_t begin = r->plan.begin[p], end = r->plan.begin[p + 1];
                uint32_t d = mr_mma_step(mma, a + begin, r->mma->gate + e * n + begin, end - begin,
                                         0, NULL);
                partial[p * r->experts + e] = value_of(mma, d);
            }
        struct replay_block b = {row + i, 1, 0, r->experts};
        mr_replay_reduce(r, &b, partial,
                         r->hidden_scale ? partial + (r->plan.parts + 1) * r->experts : NULL);
        memcpy(out + i * r->experts, partial, r->experts * sizeof *out);
    }
    free(a);
    free(scratch);
    free(partial);
    return status;
}
