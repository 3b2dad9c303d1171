/* Blocks of rows against tiles of columns; what the loops cannot have goes to the reference. */
#include "mma_chain.h"

#include <fenv.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "../num/bits.h"
#include "../num/num.h"
#include "mma_packed.h"

/* Rows decoded at a time: a tile (6 bytes a column and position) is read once from memory for them
 * all, and both stay in the second-level cache. */
enum { BLOCK_ROWS = 16, MOST_WIDTH = 64 };

static atomic_size_t fallbacks;

size_t mr_mma_chain_fallbacks(void)
{
    return atomic_load(&fallbacks);
}

/* The loops need subnormals and one of two rounding modes; another translation unit does the
 * arithmetic, so the compiler moves none of it across the change. */
struct environment {
#ifdef __SSE2__
    unsigned csr;
#else
    fenv_t env;
#endif
};

static struct environment enter(bool nearest)
{
    struct environment e;
#ifdef __SSE2__
    e.csr = _mm_getcsr();
    _mm_setcsr(nearest ? 0x1f80 : 0x7f80); /* all exceptions masked, no FTZ, no DAZ */
#else
    fegetenv(&e.env);
    fesetenv(FE_DFL_ENV);
    fesetround(nearest ? FE_TONEAREST : FE_TOWARDZERO);
#endif
    return e;
}

static void leave(const struct environment *e)
{
#ifdef __SSE2__
    _mm_setcsr(e->csr);
#else
    fesetenv(&e->env);
#endif
}

/* One call's work. */
struct chain {
    const struct mr_mma_packed *b;
    const struct mr_mma_operand *a;
    size_t begin, n;
    const uint32_t *c;
    uint32_t *d;
    /* Of a block of rows: */
    uint32_t *codes; /* [BLOCK_ROWS, n] encodings */
    float *value;    /* [BLOCK_ROWS, n] */
    uint32_t *code;
    struct mr_mma_scale *scale; /* GROUP_SCALED: [BLOCK_ROWS, blocks] */
    size_t blocks;
    bool special[BLOCK_ROWS];
};

static uint32_t reference(const struct chain *w, size_t local, size_t row, size_t col, uint32_t c)
{
    const struct mr_mma_packed *b = w->b;
    struct mr_mma_scales scales = {0};
    if (b->scales) {
        size_t block = w->begin / (size_t)b->mma.scale_block;
        scales.a = w->a->scales + row * w->a->scale_pitch + block;
        scales.b = b->scales + col * b->blocks + block;
    }
    return mr_mma_step(&b->mma, w->codes + local * w->n, b->codes + col * b->k + w->begin, w->n, c,
                       b->scales ? &scales : NULL);
}

static float widened(const struct mr_mma *mma, uint32_t c)
{
    return f32_from(mma->accumulator == MR_MMA_FP16 ? f16_to_f32(c & 0xffff) : c);
}

/* An fp16 number, from binary32: exact. */
static uint32_t narrowed(const struct mr_mma *mma, float d)
{
    if (mma->accumulator != MR_MMA_FP16) return f32_bits(d);
    return mr_fp16_encode((double)d, MR_RNE, MR_OVERFLOW_IEEE);
}

/* Rows [first, first + rows), of which `local` is the first in the block; one tile. */
static size_t run_tile(const struct chain *w, size_t local, size_t first, size_t rows, size_t tile)
{
    const struct mr_mma_packed *b = w->b;
    size_t width = b->shape.width, base = tile * width;
    size_t cols = b->cols - base < width ? b->cols - base : width, left = 0;
    float d[8 * MOST_WIDTH];
    uint32_t bad[8 * MOST_WIDTH];
    memset(d, 0, sizeof d);
    if (b->panels) {
        for (size_t r = 0; w->c && r < rows; r++)
            for (size_t i = 0; i < cols; i++)
                d[r * width + i] = widened(&b->mma, w->c[(first + r) * b->cols + base + i]);
        struct mr_mma_rows in = {.mma = &b->mma,
                                 .tile = b->panels + (tile * b->k + w->begin) * (width + width / 2),
                                 .value = w->value + local * w->n,
                                 .code = w->code + local * w->n,
                                 .stride = w->n,
                                 .n = w->n};
        if (w->scale) {
            size_t block = tile * b->blocks + w->begin / (size_t)b->mma.scale_block;
            in.a_scales = w->scale + local * w->blocks;
            in.a_blocks = w->blocks;
            in.b_significands = b->significands + block * width;
            in.b_exponents = b->exponents + block * width;
        }
        struct environment saved = enter(b->mma.form == MR_MMA_BY_FP16);
        if (w->scale)
            MR_ISA_PICK(mr_mma_run_groups)(&in, d, bad);
        else
            MR_ISA_PICK(mr_mma_run)(&in, d, bad);
        leave(&saved);
    }
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < cols; i++) {
            size_t at = (first + r) * b->cols + base + i;
            if (b->panels && !bad[r * width + i] && !w->special[local + r] &&
                !b->special[base + i]) {
                w->d[at] = narrowed(&b->mma, d[r * width + i]);
                continue;
            }
            w->d[at] = reference(w, local + r, first + r, base + i, w->c ? w->c[at] : 0);
            left++;
        }
    }
    return left;
}

static void decode_block(struct chain *w, size_t first, size_t rows)
{
    const struct mr_mma_packed *b = w->b;
    for (size_t r = 0; r < rows; r++) {
        uint32_t *codes = w->codes + r * w->n;
        const uint8_t *scales = b->scales ? w->a->scales + (first + r) * w->a->scale_pitch : NULL;
        mr_mma_gather(w->a, b->mma.a, b->order, first + r, w->begin, w->begin + w->n, codes);
        if (b->panels)
            w->special[r] = mr_mma_read_row(&b->mma, b->mma.a, codes, w->begin, w->n, scales,
                                            w->value + r * w->n, w->code + r * w->n);
        if (w->scale)
            w->special[r] |=
                mr_mma_read_scales(&b->mma, scales + w->begin / (size_t)b->mma.scale_block,
                                   w->blocks, w->scale + r * w->blocks);
    }
    /* The loops take full groups of rows: what is left of the last one is zeros. */
    for (size_t r = rows; b->panels && r < BLOCK_ROWS; r++) {
        memset(w->value + r * w->n, 0, w->n * sizeof *w->value);
        memset(w->code + r * w->n, 0, w->n * sizeof *w->code);
        if (w->scale) memset(w->scale + r * w->blocks, 0, w->blocks * sizeof *w->scale);
    }
}

static enum mr_status check(const struct mr_mma_packed *b, const struct mr_mma_operand *a,
                            size_t begin, size_t end, struct mr_error *err)
{
    if (a->cols != b->k)
        return mr_fail(err, MR_ERR_SHAPE, "operand a has %zu columns, operand b %zu", a->cols,
                       b->k);
    if (begin > end || end > b->k)
        return mr_fail(err, MR_ERR_USAGE, "no columns %zu to %zu in %zu", begin, end, b->k);
    if (b->scales && (!a->scales || begin % (size_t)b->mma.scale_block))
        return mr_fail(err, MR_ERR_USAGE, "%s: %s", b->mma.name,
                       a->scales ? "a range begins inside of a block of scales"
                                 : "operand a has no scales");
    return MR_OK;
}

enum mr_status mr_mma_chain(const struct mr_mma_packed *b, const struct mr_mma_operand *a,
                            size_t begin, size_t end, const uint32_t *c, uint32_t *d,
                            struct mr_error *err)
{
    enum mr_status status = check(b, a, begin, end, err);
    if (status) return status;
    if (begin == end) { /* no step: not even a NaN becomes canonical */
        for (size_t i = 0; i < a->rows * b->cols; i++) d[i] = c ? c[i] : 0;
        return MR_OK;
    }
    struct chain w = {.b = b, .a = a, .begin = begin, .n = end - begin, .c = c, .d = d};
    size_t elements = BLOCK_ROWS * w.n + 1;
    w.codes = malloc(elements * sizeof *w.codes);
    w.value = malloc(elements * sizeof *w.value);
    w.code = malloc(elements * sizeof *w.code);
    if (b->significands) {
        w.blocks = (w.n + (size_t)b->mma.scale_block - 1) / (size_t)b->mma.scale_block;
        w.scale = malloc(BLOCK_ROWS * w.blocks * sizeof *w.scale);
    }
    if (!w.codes || !w.value || !w.code || (b->significands && !w.scale))
        status = mr_fail(err, MR_ERR_MEMORY, "out of memory for %d rows of %zu columns", BLOCK_ROWS,
                         w.n);
    size_t left = 0;
    for (size_t first = 0; !status && first < a->rows; first += BLOCK_ROWS) {
        size_t rows = a->rows - first < BLOCK_ROWS ? a->rows - first : BLOCK_ROWS;
        decode_block(&w, first, rows);
        for (size_t tile = 0; tile < b->tiles; tile++)
            for (size_t r = 0; r < rows; r += b->shape.rows)
                left += run_tile(&w, r, first + r,
                                 rows - r < b->shape.rows ? rows - r : b->shape.rows, tile);
    }
    if (left) atomic_fetch_add(&fallbacks, left);
    free(w.codes);
    free(w.value);
    free(w.code);
    free(w.scale);
    return status;
}
