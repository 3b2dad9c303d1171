#include "replay.h"

#include <fenv.h>
#include <stdlib.h>
#include <string.h>

#include "../num/bits.h"
#include "../num/num.h"
#include "replay_private.h"

/* A chain goes through this many terms before the next rows: what it reads of the gate weight stays
 * in the first-level cache (16 KiB). */
enum { CHUNK = 64 };
/* Partial sums of one pass stay within this, down to one row. */
enum { PARTIAL_BYTES = 2 << 20 };

static enum mr_status no_memory(struct mr_error *err)
{
    return mr_fail(err, MR_ERR_MEMORY, "replay: out of memory");
}

static size_t lane_groups(const struct mr_replay *r)
{
    return (r->experts + MR_REPLAY_LANES - 1) / MR_REPLAY_LANES;
}

static enum mr_status pack(struct mr_replay *r, struct mr_error *err)
{
    size_t n = r->terms, groups = lane_groups(r);
    r->packed = calloc(groups * n * MR_REPLAY_LANES + 1, sizeof *r->packed);
    float *scratch = malloc((2 * n + 1) * sizeof *scratch);
    if (!r->packed || !scratch) {
        free(scratch);
        return no_memory(err);
    }
    r->range = mr_operand_no_range;
    for (size_t e = 0; e < r->experts; e++) {
        float *row = scratch + n;
        mr_operand_values(&r->gate, e, r->plan.order, scratch, row);
        mr_operand_widen_range(&r->range, row, n);
        float *to = r->packed + e / MR_REPLAY_LANES * n * MR_REPLAY_LANES + e % MR_REPLAY_LANES;
        for (size_t i = 0; i < n; i++) to[i * MR_REPLAY_LANES] = row[i];
    }
    free(scratch);
    return MR_OK;
}

/* Scales belong to the tiles of one level. */
static enum mr_status check_scales(struct mr_replay *r, const struct mr_gemm *g,
                                   struct mr_error *err)
{
    int promotes = 0, tile = 1;
    for (int i = 0; i < r->arith.sum.levels; i++)
        if (r->arith.sum.level[i].cut == MR_CUT_PROMOTE) {
            promotes++;
            tile = r->arith.sum.level[i].tile;
        }
    if (!g->hidden_scale && !g->gate_scale) return MR_OK;
    if (!g->hidden_scale || !g->gate_scale)
        return mr_fail(err, MR_ERR_USAGE,
                       "scales of hidden states and of the gate weight come "
                       "together");
    if (promotes != 1)
        return mr_fail(err, MR_ERR_USAGE,
                       "scales are for a sum with one promote level, and this "
                       "one has %d",
                       promotes);
    r->hidden_scale = g->hidden_scale;
    r->gate_scale = g->gate_scale;
    r->scale_tiles = (r->terms + (size_t)tile - 1) / (size_t)tile;
    return MR_OK;
}

static enum mr_status check_operand(const struct mr_operand *o, struct mr_error *err)
{
    if (mr_operand_served(o->matrix.dtype)) return MR_OK;
    return mr_fail(err, MR_ERR_DTYPE, "%s: expected one of BF16 F16 F32 F8_E4M3 F8_E5M2, found %s",
                   o->name, mr_dtype_name(o->matrix.dtype));
}

static enum mr_status prepare(struct mr_replay *r, const struct mr_gemm *g, struct mr_error *err)
{
    enum mr_status status = check_operand(&r->hidden, err);
    if (!status) status = check_operand(&r->gate, err);
    if (status) return status;
    if (g->hidden.cols != g->gate.cols)
        return mr_fail(err, MR_ERR_SHAPE, "hidden has %zu columns, gate %zu", g->hidden.cols,
                       g->gate.cols);
    if (r->terms > UINT32_MAX / 2)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "a sum of %zu terms", r->terms);
    status = check_scales(r, g, err);
    if (status) return status;
    if (r->kind == REPLAY_EXACT) return mr_replay_exact_new(r, err);
    status = mr_plan_make(&r->arith.sum, r->terms, &r->plan, err);
    if (status) return status;
    return r->kind == REPLAY_MMA ? mr_replay_mma_new(r, err) : pack(r, err);
}

enum mr_status mr_replay_new(const struct mr_arith *arith, const struct mr_gemm *g,
                             struct mr_replay **out, struct mr_error *err)
{
    static const enum replay_kind kinds[] = {[MR_LEAF_EXACT] = REPLAY_EXACT,
                                             [MR_LEAF_FMA] = REPLAY_FMA,
                                             [MR_LEAF_MUL_ADD] = REPLAY_MUL_ADD,
                                             [MR_LEAF_MMA] = REPLAY_MMA};
    *out = NULL;
    struct mr_replay *r = calloc(1, sizeof *r);
    if (!r) return no_memory(err);
    r->arith = *arith;
    r->hidden = (struct mr_operand){"hidden", g->hidden, arith->hidden};
    r->gate = (struct mr_operand){"gate", g->gate, arith->gate};
    r->tokens = g->hidden.rows;
    r->experts = g->gate.rows;
    r->terms = g->gate.cols;
    r->gate_bias = g->gate_bias;
    r->kind = kinds[arith->sum.leaf];
    enum mr_status status = prepare(r, g, err);
    if (status)
        mr_replay_free(r);
    else
        *out = r;
    return status;
}

void mr_replay_free(struct mr_replay *r)
{
    if (!r) return;
    mr_plan_free(&r->plan);
    mr_replay_mma_free(r->mma);
    free(r->packed);
    free(r->values);
    free(r->finite);
    free(r);
}

static void scales_of(const struct mr_replay *r, const struct replay_block *b, size_t tile,
                      float *scale)
{
    for (size_t i = 0; i < b->rows; i++)
        for (size_t e = 0; e < b->width; e++) {
            size_t expert = b->expert + e;
            scale[i * b->width + e] = expert >= r->experts
                                          ? 1
                                          : r->hidden_scale[(b->row + i) * r->scale_tiles + tile] *
                                                r->gate_scale[expert * r->scale_tiles + tile];
        }
}

void mr_replay_reduce(const struct mr_replay *r, const struct replay_block *b, float *partial,
                      float *scale)
{
    size_t n = b->rows * b->width;
    for (size_t i = 0; i < r->plan.steps; i++) {
        const struct mr_plan_step *s = &r->plan.step[i];
        float *into = partial + s->into * n, *from = partial + s->from * n;
        if (s->block >= 0 && scale) {
            scales_of(r, b, (size_t)s->block, scale);
            MR_ISA_PICK(mr_promote_partials)(into, from, scale, n);
        } else if (into != from) { /* a scale of 1: the product is exact */
            MR_ISA_PICK(mr_add_partials)(into, from, n);
        } else {
            for (size_t j = 0; j < n; j++) into[j] += 0.0f; /* -0 becomes +0 */
        }
    }
    if (!r->plan.parts) memset(partial, 0, n * sizeof *partial);
}

/* Whether every product of these rows is a binary32 number: then a fused operation rounds what a
 * plain one does, the product's own rounding being none. */
static bool products_exact(const struct mr_replay *r, const float *x, size_t n)
{
    if (mr_operand_bits(&r->hidden) + mr_operand_bits(&r->gate) > 24) return false;
    struct mr_operand_range range = mr_operand_no_range;
    mr_operand_widen_range(&range, x, n);
    if (range.lsb > range.top || r->range.lsb > r->range.top) return true; /* all zero */
    return range.lsb + r->range.lsb >= -149 && range.top + r->range.top <= 128;
}

static void chains(const struct mr_replay *r, const float *x, const float *gate, size_t rows,
                   bool plain, float *partial)
{
    size_t part_size = rows * MR_REPLAY_LANES;
    for (size_t p = 0; p < r->plan.parts; p++) {
        float *sum = partial + p * part_size;
        memset(sum, 0, part_size * sizeof *sum);
        for (size_t at = r->plan.begin[p], end = r->plan.begin[p + 1]; at < end; at += CHUNK) {
            size_t n = end - at < CHUNK ? end - at : CHUNK;
            const float *g = gate + at * MR_REPLAY_LANES;
            if (plain)
                MR_ISA_PICK(mr_chain_mul_add)(g, x + at, r->terms, n, rows, sum);
            else
                MR_ISA_PICK(mr_chain_fma)(g, x + at, r->terms, n, rows, sum);
        }
    }
}

size_t mr_replay_rows_at_once(const struct mr_replay *r, size_t width)
{
    size_t bytes = (r->plan.parts + 1) * width * sizeof(float), rows = PARTIAL_BYTES / bytes;
    return rows < 1 ? 1 : rows > REPLAY_ROWS ? REPLAY_ROWS : rows;
}

static void simt_rows(const struct mr_replay *r, size_t row, size_t rows, float *x, float *scratch,
                      float *partial, float *scale, float *out)
{
    for (size_t i = 0; i < rows; i++)
        mr_operand_values(&r->hidden, row + i, r->plan.order, scratch, x + i * r->terms);
    bool plain = r->kind == REPLAY_MUL_ADD ||
                 (mr_isa_best() == MR_ISA_BASE && products_exact(r, x, rows * r->terms));
    for (size_t g = 0; g < lane_groups(r); g++) {
        struct replay_block b = {row, rows, g * MR_REPLAY_LANES, MR_REPLAY_LANES};
        chains(r, x, r->packed + b.expert * r->terms, rows, plain, partial);
        mr_replay_reduce(r, &b, partial, r->hidden_scale ? scale : NULL);
        size_t n = r->experts - b.expert;
        if (n > MR_REPLAY_LANES) n = MR_REPLAY_LANES;
        for (size_t i = 0; i < rows; i++)
            memcpy(out + i * r->experts + b.expert, partial + i * MR_REPLAY_LANES, n * sizeof *out);
    }
}

static enum mr_status simt(const struct mr_replay *r, size_t row, size_t rows, float *out,
                           struct mr_error *err)
{
    size_t block = mr_replay_rows_at_once(r, MR_REPLAY_LANES);
    if (block > rows) block = rows;
    size_t part_size = block * MR_REPLAY_LANES;
    float *x = malloc((block * r->terms + 1) * sizeof *x);
    float *scratch = malloc((r->terms + 1) * sizeof *scratch);
    float *partial = malloc((r->plan.parts + 2) * part_size * sizeof *partial);
    enum mr_status status = x && scratch && partial ? MR_OK : no_memory(err);
    for (size_t at = 0; at < rows && !status; at += block) {
        size_t n = rows - at < block ? rows - at : block;
        simt_rows(r, row + at, n, x, scratch, partial, partial + (r->plan.parts + 1) * part_size,
                  out + at * r->experts);
    }
    free(x);
    free(scratch);
    free(partial);
    return status;
}

/* The sum is there in binary32: what an epilogue does to it. */
static void finish(const struct mr_replay *r, size_t count, float *out)
{
    for (size_t i = 0; i < count * r->experts; i++) {
        float v = out[i];
        if (r->gate_bias && r->kind != REPLAY_EXACT) v += r->gate_bias[i % r->experts];
        if (r->arith.logits == MR_TYPE_BF16)
            v = mr_bf16_decode(mr_bf16_encode(v, MR_RNE, MR_OVERFLOW_IEEE));
        if (r->arith.logits == MR_TYPE_FP16)
            v = mr_fp16_decode(mr_fp16_encode(v, MR_RNE, MR_OVERFLOW_IEEE));
        if (v != v) /* as the type's cvt gives it, widened */
            v = f32_from(r->arith.logits == MR_TYPE_BF16   ? 0x7fff0000
                         : r->arith.logits == MR_TYPE_FP16 ? 0x7fffe000
                                                           : 0x7fffffff);
        out[i] = v;
    }
}

enum mr_status mr_replay_rows(const struct mr_replay *r, size_t first, size_t count, float *out,
                              struct mr_error *err)
{
    if (first > r->tokens || count > r->tokens - first)
        return mr_fail(err, MR_ERR_USAGE, "replay: rows %zu to %zu of %zu", first, first + count,
                       r->tokens);
    if (!count || !r->experts) return MR_OK;
    fenv_t env;
    fegetenv(&env);
    fesetenv(FE_DFL_ENV);
    enum mr_status status = r->kind == REPLAY_EXACT
                                ? mr_replay_exact_rows(r, first, count, out, err)
                            : r->kind == REPLAY_MMA ? mr_replay_mma_rows(r, first, count, out, err)
                                                    : simt(r, first, count, out, err);
    if (!status) finish(r, count, out);
    fesetenv(&env);
    return status;
}
