/* Parts that are chains of tensor-core steps (mma.h). */
#include <stdlib.h>
#include <string.h>

#include "../num/bits.h"
#include "../num/num.h"
#include "mma_chain.h"
#include "replay_private.h"

struct mr_replay_mma {
    const struct mr_mma *row;
    struct mr_mma_packed *gate; /* in the order of the plan */
    bool stored;                /* hidden states are stored as the instruction takes them */
};

static enum mr_status no_memory(struct mr_error *err)
{
    return mr_fail(err, MR_ERR_MEMORY, "replay: out of memory");
}

static bool stored_as(const struct mr_operand *o, enum mr_mma_type type)
{
    switch (o->matrix.dtype) {
    case MR_BF16: return type == MR_MMA_BF16;
    case MR_F16: return type == MR_MMA_FP16 && o->type == MR_TYPE_FP32;
    case MR_F8_E4M3: return type == MR_MMA_E4M3 && o->type == MR_TYPE_FP32;
    case MR_F8_E5M2: return type == MR_MMA_E5M2 && o->type == MR_TYPE_FP32;
    case MR_F32: return type == MR_MMA_TF32 && o->type == MR_TYPE_FP32;
    default: return false;
    }
}

/* Rows of it, where they lie. */
static struct mr_mma_operand stored_rows(const struct mr_operand *o, size_t row, size_t rows)
{
    const struct mr_matrix *m = &o->matrix;
    size_t bytes = mr_dtype_bits(m->dtype) / 8;
    return (struct mr_mma_operand){.data = (const char *)m->data + row * m->cols * bytes,
                                   .rows = rows,
                                   .cols = m->cols,
                                   .pitch = m->cols};
}

/* A row as encodings of the instruction's type, little endian, bytes of one each. */
static enum mr_status encode_row(const struct mr_operand *o, size_t row, enum mr_mma_type type,
                                 float *scratch, unsigned char *out, struct mr_error *err)
{
    size_t n = o->matrix.cols;
    unsigned bytes = mr_mma_types[type].bytes;
    mr_operand_values(o, row, NULL, NULL, scratch);
    for (size_t i = 0; i < n; i++) {
        bool exact = true;
        uint32_t word = f32_bits(scratch[i]), code = word & ~0x1fffu;
        if (type != MR_MMA_TF32) code = mr_mma_encode_exact(type, word, &exact);
        if (!exact)
            return mr_fail(
                err, MR_ERR_VALUE, "%s, row %zu, column %zu: %.9g (0x%08x) is no %s number%s",
                o->name, row, i, (double)scratch[i], word, mr_mma_type_name(type),
                type == MR_MMA_BF16 ? " (the words bf16-hidden and bf16-gate round)" : "");
        memcpy(out + i * bytes, &code, bytes);
    }
    return MR_OK;
}

/* Rows as the chain takes them; buffer [rows, terms] of four bytes at most, if they are not stored
 * so. */
static enum mr_status rows_of(const struct mr_operand *o, enum mr_mma_type type, size_t row,
                              size_t rows, float *scratch, unsigned char *buffer,
                              struct mr_mma_operand *out, struct mr_error *err)
{
    *out = stored_rows(o, row, rows);
    if (stored_as(o, type)) return MR_OK;
    enum mr_status status = MR_OK;
    size_t pitch = o->matrix.cols * mr_mma_types[type].bytes;
    for (size_t i = 0; i < rows && !status; i++)
        status = encode_row(o, row + i, type, scratch, buffer + i * pitch, err);
    out->data = buffer;
    return status;
}

enum mr_status mr_replay_mma_new(struct mr_replay *r, struct mr_error *err)
{
    const struct mr_mma *row = r->arith.sum.mma;
    struct mr_mma_operand gate;
    if (row->scale_block)
        return mr_fail(err, MR_ERR_UNSUPPORTED,
                       "%s needs the scales of its blocks: it is replayed "
                       "in single steps only",
                       row->name);
    r->mma = calloc(1, sizeof *r->mma);
    float *scratch = malloc((r->terms + 1) * sizeof *scratch);
    unsigned char *codes = malloc(r->experts * r->terms * mr_mma_types[row->b].bytes + 1);
    enum mr_status status = r->mma && scratch && codes ? MR_OK : no_memory(err);
    if (!status) status = rows_of(&r->gate, row->b, 0, r->experts, scratch, codes, &gate, err);
    if (!status) {
        r->mma->row = row;
        status = mr_mma_pack(row, &gate, r->plan.order, &r->mma->gate, err);
    }
    free(scratch);
    free(codes);
    return status;
}

void mr_replay_mma_free(struct mr_replay_mma *mma)
{
    if (!mma) return;
    mr_mma_packed_free(mma->gate);
    free(mma);
}

/* Results of a chain, in place: encodings to values. */
static void decode(const struct mr_mma *row, float *d, size_t n)
{
    if (row->accumulator != MR_MMA_FP16) return;
    for (size_t i = 0; i < n; i++) d[i] = mr_fp16_decode((uint16_t)f32_bits(d[i]));
}

/* What one call needs. */
struct room {
    float *scratch, *partial, *scale;
    uint32_t *d;
    unsigned char *codes;
};

static enum mr_status some_rows(const struct mr_replay *r, const struct replay_block *b,
                                const struct room *m, float *out, struct mr_error *err)
{
    size_t n = b->rows * b->width;
    struct mr_mma_operand a;
    enum mr_status status =
        rows_of(&r->hidden, r->mma->row->a, b->row, b->rows, m->scratch, m->codes, &a, err);
    for (size_t p = 0; p < r->plan.parts && !status; p++) {
        status =
            mr_mma_chain(r->mma->gate, &a, r->plan.begin[p], r->plan.begin[p + 1], NULL, m->d, err);
        memcpy(m->partial + p * n, m->d, n * sizeof *m->d);
        decode(r->mma->row, m->partial + p * n, n);
    }
    if (status) return status;
    mr_replay_reduce(r, b, m->partial, r->hidden_scale ? m->scale : NULL);
    memcpy(out, m->partial, n * sizeof *out);
    return MR_OK;
}

enum mr_status mr_replay_mma_rows(const struct mr_replay *r, size_t row, size_t rows, float *out,
                                  struct mr_error *err)
{
    size_t block = mr_replay_rows_at_once(r, r->experts), n;
    if (block > rows) block = rows;
    n = block * r->experts;
    struct room m = {.scratch = malloc((r->terms + 1) * sizeof *m.scratch),
                     .partial = malloc((r->plan.parts + 1) * n * sizeof *m.partial),
                     .scale = malloc(n * sizeof *m.scale),
                     .d = malloc(n * sizeof *m.d),
                     .codes = malloc(block * r->terms * sizeof(uint32_t) + 1)};
    enum mr_status status =
        m.scratch && m.partial && m.scale && m.d && m.codes ? MR_OK : no_memory(err);
    for (size_t at = 0; at < rows && !status; at += block) {
        struct replay_block b = {row + at, rows - at < block ? rows - at : block, 0, r->experts};
        status = some_rows(r, &b, &m, out + at * r->experts, err);
    }
    free(m.scratch);
    free(m.partial);
    free(m.scale);
    free(m.d);
    free(m.codes);
    return status;
}
