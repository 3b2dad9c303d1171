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
    size_t n = end - begin;
    for (size_t i = 0; bytes == 1 && i < n; i++)
        codes[i] = row[order ? order[begin + i] : begin + i];
    for (size_t i = 0; bytes == 2 && i < n; i++) {
        uint16_t half;
        memcpy(&half, row + 2 * (order ? order[begin + i] : begin + i), sizeof half);
        codes[i] = half;
    }
    for (size_t i = 0; bytes == 4 && i < n; i++)
        memcpy(&codes[i], row + 4 * (order ? order[begin + i] : begin + i), sizeof *codes);
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
    if (scales && mma->form == MR_MMA_SCALED)
        special |= apply_scales(mma, begin, n, scales, value, code);
    return special;
}

bool mr_mma_read_scales(const struct mr_mma *mma, const uint8_t *scales, size_t n,
                        struct mr_mma_scale *out)
{
    bool special = false;
    for (size_t i = 0; i < n; i++) {
        struct mr_mma_number x = mr_mma_decode(mma->scale, scales[i]);
        special |= x.class == MR_MMA_NAN;
        out[i] = (struct mr_mma_scale){(float)(int32_t)x.significand, x.exponent};
    }
    return special;
}

/* The loops serve sums of products that binary32 holds, in 32-bit integers; and groups of FP4. */
static bool has_loops(const struct mr_mma *mma)
{
    if (mma->form == MR_MMA_GROUP_SCALED)
        return mma->a == MR_MMA_E2M1 && mma->b == MR_MMA_E2M1 && mma->fraction <= 35 &&
               mma->terms == 64 && !mma->signed_zero;
    return mma->fraction <= 25 && mma->fraction >= 0;
}

enum { PIECE = 64, MOST_WIDTH = 64 };

/* Positions [at, at + n) of a tile, from columns that are contiguous to lanes that are. */
static void fill_piece(struct mr_mma_packed *p, size_t tile, size_t at, size_t n)
{
    float value[MOST_WIDTH][PIECE] = {{0}};
    uint32_t code[MOST_WIDTH][PIECE] = {{0}};
    size_t width = p->shape.width, half = width / 2;
    for (size_t lane = 0; lane < width && tile * width + lane < p->cols; lane++) {
        size_t col = tile * width + lane;
        const uint8_t *scales = p->scales ? p->scales + col * p->blocks : NULL;
        p->special[col] |= mr_mma_read_row(&p->mma, p->mma.b, p->codes + col * p->k + at, at, n,
                                           scales, value[lane], code[lane]);
    }
    for (size_t k = 0; k < n; k++) {
        float *line = p->panels + (tile * p->k + at + k) * (width + half);
        for (size_t i = 0; i < width; i++) line[i] = value[i][k];
        for (size_t i = 0; i < half; i++) {
            uint32_t both = (code[i][k] & 0xffff) | (code[i + half][k] & 0xffff0000);
            memcpy(&line[width + i], &both, sizeof both);
        }
    }
}

/* GROUP_SCALED: scales of a column into its lane. */
static bool fill_scales(struct mr_mma_packed *p, size_t col)
{
    size_t width = p->shape.width;
    bool special = false;
    for (size_t block = 0; block < p->blocks; block++) {
        size_t at = (col / width * p->blocks + block) * width + col % width;
        struct mr_mma_scale x;
        special |= mr_mma_read_scales(&p->mma, p->scales + col * p->blocks + block, 1, &x);
        p->significands[at] = x.significand;
        p->exponents[at] = x.exponent;
    }
    return special;
}

static void fill(struct mr_mma_packed *p, const struct mr_mma_operand *b)
{
    for (size_t col = 0; p->significands && col < p->cols; col++)
        p->special[col] = fill_scales(p, col);
    for (size_t col = 0; col < p->cols; col++)
        mr_mma_gather(b, p->mma.b, p->order, col, 0, p->k, p->codes + col * p->k);
    for (size_t tile = 0; p->panels && tile < p->tiles; tile++)
        for (size_t at = 0; at < p->k; at += PIECE)
            fill_piece(p, tile, at, p->k - at < PIECE ? p->k - at : PIECE);
}

enum mr_status mr_mma_pack(const struct mr_mma *mma, const struct mr_mma_operand *b,
                           const uint32_t *order, struct mr_mma_packed **out, struct mr_error *err)
{
    *out = NULL;
    if (order && mma->scale_block)
        return mr_fail(
            err, MR_ERR_UNSUPPORTED,
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
    if (loops) p->panels = malloc((words + 1) * sizeof *p->panels);
    bool groups = loops && mma->form == MR_MMA_GROUP_SCALED;
    size_t scales = p->tiles * p->blocks * p->shape.width;
    if (groups) p->significands = calloc(scales + 1, sizeof *p->significands);
    if (groups) p->exponents = calloc(scales + 1, sizeof *p->exponents);
    if (!p->codes || !p->special || (order && !p->order) || (mma->scale_block && !p->scales) ||
        (loops && !p->panels) || (groups && (!p->significands || !p->exponents))) {
        mr_mma_packed_free(p);
        return mr_fail(err, MR_ERR_MEMORY, "out of memory for an operand of %zu x %zu", p->cols,
                       p->k);
    }
    if (order) memcpy(p->order, order, p->k * sizeof *order);
    for (size_t col = 0; mma->scale_block && col < p->cols; col++)
        memcpy(p->scales + col * p->blocks, b->scales + col * b->scale_pitch, p->blocks);
    fill(p, b);
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
    free(p->significands);
    free(p->exponents);
    free(p);
}
