#include "identify.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "../num/bits.h"
#include "../num/num.h"
#include "identify_private.h"

static enum mr_status check(const struct mr_gemm *g, const struct mr_matrix *observed,
                            struct mr_error *err)
{
    if (g->hidden_scale || g->gate_scale)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "identify: operands with scales");
    if (!mr_operand_served(g->hidden.dtype) || !mr_operand_served(g->gate.dtype))
        return mr_fail(err, MR_ERR_DTYPE,
                       "identify: expected operands of BF16 F16 F32 F8_E4M3 F8_E5M2, found %s, %s",
                       mr_dtype_name(g->hidden.dtype), mr_dtype_name(g->gate.dtype));
    if (observed->dtype != MR_BF16 && observed->dtype != MR_F16 && observed->dtype != MR_F32)
        return mr_fail(err, MR_ERR_DTYPE, "identify: expected logits of BF16, F16 or F32, found %s",
                       mr_dtype_name(observed->dtype));
    if (g->hidden.cols != g->gate.cols)
        return mr_fail(err, MR_ERR_SHAPE, "identify: hidden has %zu columns, gate %zu",
                       g->hidden.cols, g->gate.cols);
    if (observed->cols != g->gate.rows || observed->rows > g->hidden.rows)
        return mr_fail(err, MR_ERR_SHAPE,
                       "identify: expected logits of at most %zu rows of %zu, found %zu of %zu",
                       g->hidden.rows, g->gate.rows, observed->rows, observed->cols);
    if (g->hidden.cols < 1 || g->hidden.cols > 1 << 20)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "identify: sums of %zu terms: 1 to 2^20 are served",
                       g->hidden.cols);
    return MR_OK;
}

/* Whether the exact dot, rounded once, is what was observed: row by row while it is. */
static enum mr_status try_exact(const struct identify *s, const struct mr_gemm *g, int type,
                                bool *fits)
{
    struct mr_arith a = {.logits = s->type[type]};
    struct mr_replay *replay = NULL;
    float *row = malloc((s->experts + 1) * sizeof *row);
    enum mr_status status = mr_replay_new(&a, g, &replay, s->err);
    if (!status && !row) status = mr_fail(s->err, MR_ERR_MEMORY, "identify: out of memory");
    *fits = true;
    for (size_t r = 0; r < s->rows && !status && *fits; r++) {
        const float *want = s->observed + r * s->experts;
        status = mr_replay_rows(replay, r, 1, row, s->err);
        for (size_t e = 0; e < s->experts && !status; e++)
            *fits &= !isfinite(want[e]) || f32_bits(row[e]) == f32_bits(want[e]);
    }
    mr_replay_free(replay);
    free(row);
    return status;
}

/* Sets up what is searched, and searches it. */
static enum mr_status search(struct identify *s, const struct mr_gemm *g, struct mr_identified *out)
{
    struct identify_outcome outcome = {0};
    bool exact[MR_IDENTIFY_TYPES] = {false};
    enum mr_status status = identify_leaves(s);
    if (!status) status = identify_search(s, &outcome);
    for (int t = 0; t < s->types && !status; t++) status = try_exact(s, g, t, &exact[t]);
    if (!status) status = identify_lines(s, &outcome, exact, out);
    if (!status) {
        out->everything = outcome.everything;
        for (size_t i = 0; i < s->leaf_count; i++)
            out->searched += s->leaf[i].family->lines * (uint64_t)s->types;
        out->searched += (uint64_t)s->types;
        for (size_t i = 0; i < outcome.fits; i++) {
            const struct mr_mma *m = s->leaf[outcome.fit[i].leaf].mma;
            out->unverified |= m && *mr_mma_mark(m);
        }
        if (!out->lines && outcome.nearest.mismatches != UINT64_MAX) {
            const struct identify_leaf *leaf = &s->leaf[outcome.nearest.leaf];
            const struct mr_family *y = leaf->family;
            const struct mr_frame *f =
                &y->frame[y->member[y->layout[outcome.nearest.layout].first]];
            struct mr_arith a = identify_arith(s, leaf, outcome.nearest.type, f,
                                               outcome.nearest.combination, 0);
            mr_arith_print(&a, out->nearest, sizeof out->nearest);
            out->mismatches = outcome.nearest.mismatches;
        } else if (out->lines) {
            strcpy(out->nearest, out->line[0].text);
        }
    }
    free(outcome.fit);
    identify_leaves_free(s);
    return status;
}

enum mr_status mr_identify(const struct mr_gemm *gemm, const struct mr_matrix *observed,
                           const struct mr_identify_options *options, struct mr_identified *out,
                           struct mr_error *err)
{
    *out = (struct mr_identified){0};
    enum mr_status status = check(gemm, observed, err);
    if (status) return status;
    size_t experts = gemm->gate.rows, n = observed->rows * experts, width = MR_IDENTIFY_WIDTH;
    struct mr_gemm seen = *gemm; /* the rows that logits are of */
    seen.hidden.rows = observed->rows;
    struct identify s = {.hidden = {"hidden", seen.hidden, MR_TYPE_FP32},
                         .gate = {"gate", gemm->gate, MR_TYPE_FP32},
                         .gate_bias = gemm->gate_bias, .rows = observed->rows, .experts = experts,
                         .padded = (experts + width - 1) / width * width,
                         .terms = gemm->hidden.cols, .options = options, .err = err};
    s.threads = options && options->threads ? options->threads : omp_get_max_threads();
    s.observed = malloc((n + 1) * sizeof *s.observed);
    if (!s.observed) return mr_fail(err, MR_ERR_MEMORY, "identify: out of memory");
    mr_widen_f32(observed->data, observed->dtype, n, s.observed);
    for (size_t i = 0; i < n; i++) out->not_finite += !isfinite(s.observed[i]);
    out->checked = n - out->not_finite;
    s.types = (int)identify_types(observed->dtype, s.observed, n, s.type);
    for (int t = 0; t < s.types; t++)
        if (s.type[s.rated] != MR_TYPE_BF16) s.rated = t; /* fp32, bf16, fp16 */
    status = search(&s, &seen, out);
    free(s.observed);
    free(s.output);
    if (status) mr_identified_free(out);
    return status;
}

void mr_identified_free(struct mr_identified *found)
{
    free(found->text);
    free(found->line);
    *found = (struct mr_identified){0};
}
