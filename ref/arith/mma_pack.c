#include <stdlib.h>
#include <string.h>

#include "../num/bits.h"
#include "mma_packed.h"

struct mr_mma_reading mr_mma_how(const struct mr_mma *mma, enum mr_mma_type type)
{
    int emin = mr_mma_types[type].emin;
    return (struct mr_mma_reading){type, mma->form == MR_MMA_BY_FP16 ? -14 : emin};
}

void mr_mma_gather(const struct mr_mma_operand *m, enum mr_mma_type type, const uint32_t *order,
                   size_t r, size_t begin, size_t end, uint32_t *codes)
{
    unsigned bytes = mr_mma_types[type].bytes;
    const unsigned char *row = (const unsigned char *)m->data + r * m->pitch * bytes;
    for (size_t p = begin; p < end; p++) {
        const unsigned char *at = row + (order ? order[p] : p) * bytes;
        uint16_t half;
        if (bytes == 1) {
            codes[p - begin] = *at;
        } else if (bytes == 2) {
            memcpy(&half, at, 2);
            codes[p - begin] = half;
        } else {
            memcpy(&codes[p - begin], at, 4);
        }
    }
}

/* Multiplies values by the scales of their blocks, exactly: both the value and the exponents stay
 * those of normal numbers, or the row is refused. */
static bool apply_scales(const struct mr_mma *mma, size_t begin, size_t n, const uint8_t *scales,
                         float *value, uint32_t *code)
{
    bool refused = false;
    for (size_t i = 0; i < n; i++) {
        struct mr_mma_number s =
            mr_mma_decode(mma->scale, scales[(begin + i) / (size_t)mma->scale_block]);
        if (s.class == MR_MMA_NAN) refused = true;
        uint32_t word = f32_bits(value[i]);
        if ((word & 0x7fffffff) == 0) continue;
        int field = (int)(word >> 23 & 255) + s.exponent, e = (int)(code[i] & 0xffff) + s.exponent;
        if (field < 1 || field > 254 || e > MMA_CODE_BIAS + 127) {
            refused = true;
            continue;
        }
        value[i] = f32_from((word & 0x807fffff) | (uint32_t)field << 23);
        code[i] = (uint32_t)e * 0x10001u;
    }
    return refused;
}

bool mr_mma_read_row(const struct mr_mma *mma, enum mr_mma_type type, const uint32_t *codes,
                     size_t begin, size_t n, const uint8_t *scales, float *value, uint32_t *code)
{
    bool special = MR_ISA_PICK(mr_mma_read)(mr_mma_how(mma, type), codes, n, value, code);
    if (scales) special |= apply_scales(mma, begin, n, scales, value, code);
    return special;
}

/* Column `col` of the packed operand into its place in a tile. */
static void place(struct mr_mma_packed *p, size_t col, const float *value, const uint32_t *code)
{
    size_t width = p->shape.width, half = width / 2, line = width + half, lane = col % width;
    float *tile = p->panels + col / width * p->k * line;
    uint32_t mask = lane < half ? 0xffff : 0xffff0000;
    for (size_t k = 0; k < p->k; k++) {
        float *at = tile + k * line;
        at[lane] = value[k];
        uint32_t word = f32_bits(at[width + lane % half]);
        word = (word & ~mask) | (code[k] & mask);
        memcpy(&at[width + lane % half], &word, sizeof word);
    }
}

/* The loops serve sums of products that binary32 holds, in 32-bit integers. */
static bool has_loops(const struct mr_mma *mma)
{
    return mma->form != MR_MMA_GROUP_SCALED && mma->fraction <= 25 && mma->fraction >= 0;
}

static enum mr_status fill(struct mr_mma_packed *p, const struct mr_mma_operand *b,
                           struct mr_error *err)
{
    float *value = malloc(p->k * sizeof *value + 1);
    uint32_t *code = malloc(p->k * sizeof *code + 1);
    if (!value || !code) {
        free(value);
        free(code);
        return mr_fail(err, MR_ERR_MEMORY, "out of memory for %zu decoded elements", p->k);
    }
    for (size_t col = 0; col < p->cols; col++) {
        uint32_t *codes = p->codes + col * p->k;
        const uint8_t *scales = p->scales ? p->scales + col * p->blocks : NULL;
        mr_mma_gather(b, p->mma.b, p->order, col, 0, p->k, codes);
        if (!p->panels) continue;
        p->special[col] = mr_mma_read_row(&p->mma, p->mma.b, codes, 0, p->k, scales, value, code);
        place(p, col, value, code);
    }
    free(value);
    free(code);
    return MR_OK;
}

enum mr_status mr_mma_pack(const struct mr_mma *mma, const struct mr_mma_operand *b,
                           const uint32_t *order, struct mr_mma_packed **out, struct mr_error *err)
{
    *out = NULL;
    if (order && mma->scale_block)
        return mr_fail(err, MR_ERR_UNSUPPORTED,
                       "%s: scales belong to blocks of columns, so there is only the ascending order",
                       mma->name);
    if (mma->scale_block && !b->scales)
        return mr_fail(err, MR_ERR_USAGE, "%s: operand b has no scales", mma->name);
    for (size_t i = 0; order && i < b->cols; i++)
        if (order[i] >= b->cols)
            return mr_fail(err, MR_ERR_USAGE, "order: entry %zu is column %u of %zu", i, order[i],
                           b->cols);
    struct mr_mma_packed *p = calloc(1, sizeof *p);
    if (!p) return mr_fail(err, MR_ERR_MEMORY, "out of memory");
    p->mma = *mma;
    p->cols = b->rows;
    p->k = b->cols;
    p->shape = MR_ISA_PICK(mr_mma_shape)();
    p->tiles = (p->cols + p->shape.width - 1) / p->shape.width;
    size_t block = mma->scale_block ? (size_t)mma->scale_block : 1;
    p->blocks = (p->k + block - 1) / block;
    size_t words = p->tiles * p->k * (p->shape.width + p->shape.width / 2);
    bool loops = has_loops(mma);
    p->codes = malloc(p->cols * p->k * sizeof *p->codes + 1);
    p->special = calloc(p->cols + 1, 1);
    if (order) p->order = malloc(p->k * sizeof *order + 1);
    if (mma->scale_block) p->scales = malloc(p->cols * p->blocks + 1);
    if (loops) p->panels = calloc(words + 1, sizeof *p->panels);
    if (!p->codes || !p->special || (order && !p->order) || (mma->scale_block && !p->scales) ||
        (loops && !p->panels)) {
        mr_mma_packed_free(p);
        return mr_fail(err, MR_ERR_MEMORY, "out of memory for an operand of %zu x %zu", p->cols, p->k);
    }
    if (order) memcpy(p->order, order, p->k * sizeof *order);
    for (size_t col = 0; mma->scale_block && col < p->cols; col++)
        memcpy(p->scales + col * p->blocks, b->scales + col * b->scale_pitch, p->blocks);
    enum mr_status status = fill(p, b, err);
    if (status) {
        mr_mma_packed_free(p);
        return status;
    }
    *out = p;
    return MR_OK;
}

void mr_mma_packed_free(struct mr_mma_packed *p)
{
    if (!p) return;
    free(p->order);
    free(p->codes);
    free(p->scales);
    free(p->panels);
    free(p->special);
    free(p);
}
