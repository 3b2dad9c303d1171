/* The leaves that operands allow, and the operands of a few outputs side by side. */
#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../num/bits.h"
#include "../num/num.h"
#include "identify_private.h"

static enum mr_status no_memory(const struct identify *s)
{
    return mr_fail(s->err, MR_ERR_MEMORY, "identify: out of memory");
}

/* What an operand's values are, whatever they are stored as. */
struct kind {
    enum mr_mma_type type; /* MR_MMA_FP32: none narrower */
    bool tf32;             /* tf32 holds them */
};

static struct kind kind_of(const struct identify *s, const struct mr_operand *o, float *scratch)
{
    switch (o->matrix.dtype) {
    case MR_BF16: return (struct kind){MR_MMA_BF16, true};
    case MR_F16: return (struct kind){MR_MMA_FP16, true};
    case MR_F8_E4M3: return (struct kind){MR_MMA_E4M3, true};
    case MR_F8_E5M2: return (struct kind){MR_MMA_E5M2, true};
    default: break;
    }
    if (o->type == MR_TYPE_BF16) return (struct kind){MR_MMA_BF16, true};
    uint32_t used = 0;
    for (size_t r = 0; r < o->matrix.rows; r++) {
        mr_operand_values(o, r, NULL, scratch + s->terms, scratch);
        for (size_t i = 0; i < s->terms; i++) used |= f32_bits(scratch[i]);
    }
    return (struct kind){used & 0xffff ? MR_MMA_FP32 : MR_MMA_BF16, !(used & 0x1fff)};
}

/* Significand bits of products, and exponents of subnormals. */
static int precision(enum mr_mma_type type)
{
    return mr_mma_types[type].fraction + 1;
}

static int least_exponent(enum mr_mma_type type)
{
    return type == MR_MMA_FP16 || type == MR_MMA_E4M3 || type == MR_MMA_E5M2
               ? mr_mma_types[type].emin
               : -126;
}

static void truncate_tf32(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) values[i] = f32_from(f32_bits(values[i]) & ~0x1fffu);
}

static void hidden_row(const struct identify *s, const struct identify_operands *o, size_t row,
                       float *x)
{
    struct mr_operand h = s->hidden;
    h.type = o->hidden;
    mr_operand_values(&h, row, NULL, x + s->terms, x);
    if (o->tf32) truncate_tf32(x, s->terms);
}

static enum mr_status add_operands(struct identify *s, enum mr_type hidden, enum mr_type gate,
                                   struct kind h, struct kind g, bool tf32, size_t *index)
{
    struct identify_operands *o = &s->operands[s->operand_count];
    size_t k = s->terms;
    *index = s->operand_count++;
    *o = (struct identify_operands){.hidden = hidden, .gate = gate, .tf32 = tf32,
                                    .least_hidden = least_exponent(h.type),
                                    .least_gate = least_exponent(g.type)};
    o->rows = malloc((s->experts * k + 1) * sizeof *o->rows);
    o->columns = calloc(s->padded * k + 1, sizeof *o->columns);
    float *x = malloc((2 * k + 1) * sizeof *x);
    if (!o->rows || !o->columns || !x) {
        free(x);
        return no_memory(s);
    }
    double least_h = ldexp(1, o->least_hidden), least_g = ldexp(1, o->least_gate);
    struct mr_operand_range range = mr_operand_no_range, hidden_range = mr_operand_no_range;
    struct mr_operand gate_operand = s->gate;
    gate_operand.type = gate;
    for (size_t e = 0; e < s->experts; e++) {
        float *row = o->rows + e * k;
        mr_operand_values(&gate_operand, e, NULL, x, row);
        if (tf32) truncate_tf32(row, k);
        mr_operand_widen_range(&range, row, k);
        for (size_t i = 0; i < k; i++) {
            o->columns[i * s->padded + e] = row[i];
            o->subnormal |= row[i] != 0 && fabs((double)row[i]) < least_g;
        }
    }
    for (size_t r = 0; r < s->rows; r++) {
        hidden_row(s, o, r, x);
        mr_operand_widen_range(&hidden_range, x, k);
        for (size_t i = 0; i < k; i++)
            o->subnormal |= x[i] != 0 && fabs((double)x[i]) < least_h;
    }
    free(x);
    bool none = range.lsb > range.top || hidden_range.lsb > hidden_range.top; /* all zero */
    o->exact = precision(h.type) + precision(g.type) <= 24 &&
               (none || (range.lsb + hidden_range.lsb >= -149 &&
                         range.top + hidden_range.top <= 128));
    return MR_OK;
}

static enum mr_status add_leaf(struct identify *s, size_t operands, enum mr_leaf leaf,
                               const struct mr_mma *mma)
{
    if (s->leaf_count == IDENTIFY_LEAVES)
        return mr_fail(s->err, MR_ERR_UNSUPPORTED, "identify: too many instructions");
    struct identify_leaf *l = &s->leaf[s->leaf_count++];
    *l = (struct identify_leaf){.operands = operands, .leaf = leaf, .mma = mma};
    l->family = mma ? &s->mma : &s->simt;
    if (mma) {
        bool fast = mma->form == MR_MMA_PLAIN && mma->rounding != MR_MMA_RNE_FP16 &&
                    mma->fraction <= 25 && mma->terms <= 32;
        l->how = fast ? BY_STEPS : BY_REFERENCE;
        l->steps = (struct mr_lane_mma){mma->terms, mma->fraction,
                                        mma->rounding == MR_MMA_RZ_E8M13 ? ~0x3ffu : ~0u};
    } else {
        l->how = leaf == MR_LEAF_MUL_ADD || s->operands[operands].exact ? BY_ADDING : BY_FMA;
    }
    l->reach = calloc(l->family->layouts + 1, sizeof *l->reach);
    if (!l->reach) return no_memory(s);
    for (int t = 0; t < s->types; t++) {
        l->alive[t] = calloc(l->family->layouts + 1, sizeof *l->alive[t]);
        if (!l->alive[t]) return no_memory(s);
    }
    return MR_OK;
}

/* Instructions that are one arithmetic count once. */
static bool have_leaf(const struct identify *s, size_t operands, const struct mr_mma *mma)
{
    for (size_t i = 0; i < s->leaf_count; i++)
        if (s->leaf[i].mma && s->leaf[i].operands == operands && mr_mma_same(s->leaf[i].mma, mma))
            return true;
    return false;
}

/* The operands' own type before tf32, and what hardware confirms before what it does not. */
static enum mr_status add_mma_leaves(struct identify *s, size_t operands, size_t tf32,
                                     struct kind h, struct kind g)
{
    for (size_t i = 0; i < 4 * mr_mma_count(); i++) {
        const struct mr_mma *m = mr_mma_at(i % mr_mma_count());
        bool want_unverified = i / mr_mma_count() > 1, want_tf32 = i / mr_mma_count() % 2 == 1;
        if (m->form != MR_MMA_PLAIN && m->form != MR_MMA_BY_FP16) continue;
        bool as_tf32 = m->a == MR_MMA_TF32 && m->b == MR_MMA_TF32;
        if (as_tf32 != want_tf32 || (*mr_mma_mark(m) != 0) != want_unverified) continue;
        if (!as_tf32 && (m->a != h.type || m->b != g.type)) continue;
        size_t set = as_tf32 ? tf32 : operands;
        if (have_leaf(s, set, m)) continue;
        enum mr_status status = add_leaf(s, set, MR_LEAF_MMA, m);
        if (status) return status;
    }
    return MR_OK;
}

static enum mr_status add_rounding(struct identify *s, enum mr_type hidden, enum mr_type gate,
                                   struct kind h, struct kind g)
{
    size_t set, tf32;
    enum mr_status status = add_operands(s, hidden, gate, h, g, false, &set);
    if (status) return status;
    tf32 = set;
    if (!h.tf32 || !g.tf32) {
        struct kind t = {MR_MMA_TF32, true};
        status = add_operands(s, hidden, gate, h.tf32 ? h : t, g.tf32 ? g : t, true, &tf32);
    }
    if (!status) status = add_leaf(s, set, MR_LEAF_FMA, NULL);
    if (!status && !s->operands[set].exact) status = add_leaf(s, set, MR_LEAF_MUL_ADD, NULL);
    return status ? status : add_mma_leaves(s, set, tf32, h, g);
}

enum mr_status identify_leaves(struct identify *s)
{
    static const struct kind bf16 = {MR_MMA_BF16, true};
    float *scratch = malloc((2 * s->terms + 1) * sizeof *scratch);
    if (!scratch) return no_memory(s);
    struct kind h = kind_of(s, &s->hidden, scratch), g = kind_of(s, &s->gate, scratch);
    free(scratch);
    enum mr_status status = mr_family_make(MR_FAMILY_SIMT, s->terms, &s->simt, s->err);
    if (!status) status = mr_family_make(MR_FAMILY_MMA, s->terms, &s->mma, s->err);
    if (!status) status = add_rounding(s, MR_TYPE_FP32, MR_TYPE_FP32, h, g);
    if (!status && h.type == MR_MMA_FP32)
        status = add_rounding(s, MR_TYPE_BF16, MR_TYPE_FP32, bf16, g);
    if (!status && g.type == MR_MMA_FP32)
        status = add_rounding(s, MR_TYPE_FP32, MR_TYPE_BF16, h, bf16);
    if (!status && h.type == MR_MMA_FP32 && g.type == MR_MMA_FP32)
        status = add_rounding(s, MR_TYPE_BF16, MR_TYPE_BF16, bf16, bf16);
    return status;
}

void identify_leaves_free(struct identify *s)
{
    for (size_t i = 0; i < s->operand_count; i++) {
        free(s->operands[i].rows);
        free(s->operands[i].columns);
    }
    for (size_t i = 0; i < s->leaf_count; i++) {
        for (int t = 0; t < MR_IDENTIFY_TYPES; t++) free(s->leaf[i].alive[t]);
        free(s->leaf[i].reach);
    }
    mr_family_free(&s->simt);
    mr_family_free(&s->mma);
}

enum mr_status identify_terms_new(const struct identify *s, struct mr_lane_terms *t)
{
    size_t n = s->terms * MR_IDENTIFY_WIDTH + 1;
    *t = (struct mr_lane_terms){s->terms, malloc(n * sizeof *t->a), malloc(n * sizeof *t->b),
                                malloc(n * sizeof *t->p), malloc(n * sizeof *t->e)};
    return t->a && t->b && t->p && t->e ? MR_OK : no_memory(s);
}

void identify_terms_free(struct mr_lane_terms *t)
{
    free(t->a);
    free(t->b);
    free(t->p);
    free(t->e);
    *t = (struct mr_lane_terms){0};
}

void identify_terms(const struct identify *s, const struct identify_operands *o,
                    const struct identify_group *g, float *x, struct mr_lane_terms *t)
{
    enum { W = MR_IDENTIFY_WIDTH };
    size_t k = s->terms;
    if (g->side_by_side) {
        const float *w = o->columns + g->expert[0];
        hidden_row(s, o, g->row[0], x);
        for (size_t i = 0; i < k; i++, w += s->padded) {
            for (int j = 0; j < W; j++) t->a[i * W + j] = x[i];
            memcpy(t->b + i * W, w, W * sizeof *w);
        }
    } else {
        for (int j = 0; j < W; j++) {
            const float *w = o->rows + g->expert[j] * k;
            if (!j || g->row[j] != g->row[j - 1]) hidden_row(s, o, g->row[j], x);
            for (size_t i = 0; i < k; i++) {
                t->a[i * W + j] = x[i];
                t->b[i * W + j] = w[i];
            }
        }
    }
    MR_ISA_PICK(mr_lane_products)(t, o->least_hidden, o->least_gate);
}

enum mr_status identify_work_new(const struct identify *s, struct identify_work *w)
{
    size_t k = s->terms;
    *w = (struct identify_work){0};
    enum mr_status status = mr_laid_new(k, &w->laid, s->err);
    if (status) return status;
    w->sums = malloc((k + 1) * MR_IDENTIFY_WIDTH * sizeof *w->sums);
    w->work = malloc((4 * k + 16) * MR_IDENTIFY_WIDTH * sizeof *w->work);
    w->x = malloc((2 * k + 1) * sizeof *w->x);
    w->unsure = malloc(k + 1);
    w->bits = malloc((2 * k + 1) * sizeof *w->bits);
    return w->sums && w->work && w->x && w->unsure && w->bits ? MR_OK : no_memory(s);
}

void identify_work_free(struct identify_work *w)
{
    mr_laid_free(&w->laid);
    free(w->sums);
    free(w->work);
    free(w->x);
    free(w->unsure);
    free(w->bits);
}

/* A part by the reference, lane by lane. */
static void part_by_reference(const struct identify_leaf *leaf, const struct mr_laid *l, size_t p,
                              const struct mr_lane_terms *t, uint16_t live,
                              struct identify_work *w)
{
    size_t begin = l->begin[p], n = l->begin[p + 1] - begin;
    uint32_t *a = w->bits, *b = w->bits + n;
    for (size_t lane = 0; lane < MR_IDENTIFY_WIDTH; lane++) {
        float *to = &w->sums[p * MR_IDENTIFY_WIDTH + lane];
        *to = 0;
        if (!(live >> lane & 1)) continue;
        for (size_t i = 0; i < n; i++) {
            size_t at = (size_t)l->order[begin + i] * MR_IDENTIFY_WIDTH + lane;
            bool exact;
            a[i] = mr_mma_encode_exact(leaf->mma->a, f32_bits(t->a[at]), &exact);
            b[i] = mr_mma_encode_exact(leaf->mma->b, f32_bits(t->b[at]), &exact);
        }
        uint32_t d = mr_mma_step(leaf->mma, a, b, n, 0, NULL);
        *to = leaf->mma->accumulator == MR_MMA_FP16 ? mr_fp16_decode((uint16_t)d) : f32_from(d);
    }
}

void identify_sum(const struct identify *s, const struct identify_leaf *leaf,
                  const struct mr_laid *l, const struct mr_lane_terms *t,
                  const struct identify_group *g, mr_combinations wanted, struct identify_work *w)
{
    (void)s;
    if (leaf->how == BY_ADDING) MR_ISA_PICK(mr_lane_parts_add)(t, l, w->sums);
    if (leaf->how == BY_FMA) MR_ISA_PICK(mr_lane_parts_fma)(t, l, w->sums);
    if (leaf->how == BY_STEPS)
        MR_ISA_PICK(mr_lane_parts_mma)(t, l, leaf->steps, w->sums, w->unsure);
    for (size_t p = 0; p < l->parts; p++)
        if (leaf->how == BY_REFERENCE || (leaf->how == BY_STEPS && w->unsure[p]))
            part_by_reference(leaf, l, p, t, g->live, w);
    MR_ISA_PICK(mr_lane_reduce)(l, w->sums, wanted, &g->goal, w->work, w->hit);
}

/* Additions of n parts, in the worst of these ways. */
static double additions(uint8_t reduces, uint32_t n)
{
    if (n < 2) return 0;
    if (reduces & (MR_BY_ORDER | MR_BY_REVERSE)) return n - 1;
    int log = 0;
    while ((uint32_t)1 << log < n) log++;
    return log;
}

/* SIMT: a product passes through at most d roundings, each of relative error u = 2^-24 (or, below
 * 2^-126, of an absolute one that need_of makes nothing of), so a sum errs by at most
 * ((1 + u)^d - 1) sum|p|.
 * Steps: c and the products of a step are each cut by less than 2^(emax - F), and 2^emax is at most
 * the largest of them, as none is subnormal; then the result is cut by 2^-23 (E8M13: 2^-13) of
 * itself. Every partial sum is at most sum|p| but for those errors. So a step errs by less than
 * ((L + 1) 2^-F + 2^-23) sum|p|, and the steps of parts that lie side by side share sum|p|.
 * Products of second order: as the whole is at most 2^-8, they are less than a hundredth. */
double identify_reach(const struct identify *s, const struct identify_leaf *leaf,
                      const struct mr_laid *l, const uint8_t reduces[MR_FRAME_LEVELS])
{
    size_t longest = 0;
    for (size_t p = 0; p < l->parts; p++)
        if (l->begin[p + 1] - l->begin[p] > longest) longest = l->begin[p + 1] - l->begin[p];
    double d = s->gate_bias ? 1 : 0;
    for (int i = 0; i < l->levels; i++) d += additions(reduces[i], l->most[i]);
    if (leaf->how == BY_REFERENCE) return (double)INFINITY;
    if (leaf->how == BY_STEPS) {
        const struct mr_lane_mma *m = &leaf->steps;
        if (s->operands[leaf->operands].subnormal) return (double)INFINITY;
        double steps = ceil((double)longest / m->terms);
        d += steps * (ldexp(m->terms + 1, 24 - m->fraction) + (m->keep == ~0u ? 2 : 2048));
    } else {
        d += (double)longest + 1;
    }
    return d > 0x1p16 ? (double)INFINITY : 1.01 * d;
}
