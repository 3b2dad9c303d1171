#include "filter.h"

#include <stdlib.h>
#include <string.h>

#include "../num/num.h"
#include "filter_simd.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
static bool flushes_to_zero(void)
{
    return _mm_getcsr() & 0x8040; /* FTZ, DAZ: Intel SDM 1, 10.2.3 */
}
#else
static bool flushes_to_zero(void)
{
    return true; /* not known here: take the larger bound */
}
#endif

void mr_gate_free(struct mr_gate *g)
{
    free(g->f32);
    free(g->f64);
    free(g->stats);
    free(g->norm);
    free(g->inverse_norm);
    free(g->check);
    free(g->signs);
    free(g->zero_row);
    memset(g, 0, sizeof *g);
}

static enum mr_status prepare_row(struct mr_gate *g, size_t e, float *row, struct mr_error *err)
{
    size_t n = g->stored.cols, bytes = mr_dtype_bits(g->stored.dtype) / 8;
    const char *src = (const char *)g->stored.data + e * n * bytes;
    struct mr_row_scan scan;
    mr_row_scan_begin(&scan);
    mr_widen_f32(src, g->stored.dtype, n, row);
    mr_row_scan_add(&scan, row, n);
    g->stats[e] = mr_row_scan_end(&scan, g->stored.dtype);
    if (!g->stats[e].finite) {
        size_t i = 0;
        while (i < n && isfinite(row[i])) i++;
        return mr_fail(err, MR_ERR_VALUE, "gate weight [%zu, %zu] is %s: expected a finite number",
                       e, i, isnan(row[i]) ? "NaN" : "Inf");
    }
    g->norm[e] = g->stats[e].norm;
    if (g->norm[e] > 0) g->inverse_norm[e] = 1 / g->norm[e];
    else g->zero_row[g->zero_rows++] = e;
    if (g->stats[e].max > g->max) g->max = g->stats[e].max;
    if (g->narrow) memcpy(g->f32 + e * n, row, n * sizeof *row);
    else mr_widen_f64(src, g->stored.dtype, n, g->f64 + e * n);
    for (int c = 0; c < MR_CHECKS; c++) {
        double sign = g->signs[e * MR_CHECKS + c] = mr_check_sign(c, e);
        double scale = sign * g->inverse_norm[e], *v = g->check + (size_t)c * n;
        for (size_t i = 0; i < n; i++) v[i] += scale * row[i];
    }
    return MR_OK;
}

enum mr_status mr_gate_prepare(const struct mr_matrix *stored, enum mr_dtype hidden_dtype,
                               bool narrow, struct mr_gate *out, struct mr_error *err)
{
    size_t experts = stored->rows, n = stored->cols;
    bool halves = stored->dtype != MR_F32 && hidden_dtype != MR_F32;
    *out = (struct mr_gate){.stored = *stored, .narrow = narrow && halves};
    out->underflow = flushes_to_zero() ? 0x1p-126 : 0x1p-150;
    if (out->narrow) out->f32 = malloc((experts * n + 1) * sizeof(float));
    else out->f64 = malloc((experts * n + 1) * sizeof(double));
    out->stats = calloc(experts, sizeof *out->stats);
    out->norm = calloc(experts, sizeof *out->norm);
    out->inverse_norm = calloc(experts, sizeof *out->inverse_norm);
    out->check = calloc(MR_CHECKS * n + 1, sizeof *out->check);
    out->signs = calloc(experts * MR_CHECKS, sizeof *out->signs);
    out->zero_row = calloc(experts, sizeof *out->zero_row);
    float *row = malloc((n + 1) * sizeof *row);
    enum mr_status status = MR_OK;
    if (!(out->f32 || out->f64) || !out->stats || !out->norm || !out->inverse_norm ||
        !out->check || !out->signs || !out->zero_row || !row)
        status = mr_fail(err, MR_ERR_MEMORY, "no memory for a gate weight [%zu, %zu]", experts, n);
    for (size_t e = 0; e < experts && !status; e++) status = prepare_row(out, e, row, err);
    free(row);
    if (status) mr_gate_free(out);
    return status;
}

enum mr_status mr_filter_new(const struct mr_gate *gate, struct mr_filter *f)
{
    size_t experts = gate->stored.rows;
    *f = (struct mr_filter){0};
    f->x32 = malloc(MR_BLOCK_ROWS * MR_CHUNK * sizeof *f->x32);
    if (gate->narrow) {
        f->c32 = malloc(MR_BLOCK_ROWS * experts * sizeof *f->c32);
    } else {
        f->x64 = malloc(MR_BLOCK_ROWS * MR_CHUNK * sizeof *f->x64);
        f->c64 = malloc(MR_BLOCK_ROWS * experts * sizeof *f->c64);
    }
    f->scans = malloc(MR_BLOCK_ROWS * sizeof *f->scans);
    f->stats = malloc(MR_BLOCK_ROWS * sizeof *f->stats);
    f->check = malloc(MR_BLOCK_ROWS * MR_CHECKS * sizeof *f->check);
    f->logits = malloc(MR_BLOCK_ROWS * experts * sizeof *f->logits);
    if (f->x32 && (f->c32 || (f->x64 && f->c64)) && f->scans && f->stats && f->check && f->logits)
        return MR_OK;
    mr_filter_free(f);
    return MR_ERR_MEMORY;
}

void mr_filter_free(struct mr_filter *f)
{
    free(f->x32);
    free(f->c32);
    free(f->x64);
    free(f->c64);
    free(f->scans);
    free(f->stats);
    free(f->check);
    free(f->logits);
    memset(f, 0, sizeof *f);
}

enum { AHEAD = 4 }; /* rows */

void mr_filter_block(struct mr_filter *f, const struct mr_gate *gate, const void *hidden,
                     enum mr_dtype dtype, size_t rows, const struct mr_blas *blas)
{
    size_t n = gate->stored.cols, experts = gate->stored.rows, size = mr_dtype_bits(dtype) / 8;
    memset(f->logits, 0, rows * experts * sizeof *f->logits);
    memset(f->check, 0, rows * MR_CHECKS * sizeof *f->check);
    for (size_t r = 0; r < rows; r++) mr_row_scan_begin(&f->scans[r]);
    for (size_t c = 0; c < n; c += MR_CHUNK) {
        size_t m = n - c < MR_CHUNK ? n - c : MR_CHUNK;
        for (size_t r = 0; r < rows; r++) {
            float *x = f->x32 + r * MR_CHUNK;
            const char *src = (const char *)hidden + (r * n + c) * size;
            double *sums = f->check + r * MR_CHECKS;
            /* A piece of a row is too short for the hardware to see a stream. */
            for (size_t b = 0; r + AHEAD < rows && b < m * size; b += 64)
                __builtin_prefetch(src + AHEAD * n * size + b);
            if (dtype == MR_BF16) {
                MR_ISA_PICK(mr_take_bf16)(src, m, gate->check + c, n, x, &f->scans[r], sums);
            } else {
                mr_widen_f32(src, dtype, m, x);
                MR_ISA_PICK(mr_take_f32)(x, m, gate->check + c, n, &f->scans[r], sums);
            }
            if (!gate->narrow) mr_widen_f64(x, MR_F32, m, f->x64 + r * MR_CHUNK);
        }
        if (gate->narrow) {
            blas->sgemm_nt(rows, experts, m, f->x32, MR_CHUNK, gate->f32 + c, n, f->c32, experts);
            MR_ISA_PICK(mr_accumulate_f32)(f->c32, rows * experts, f->logits);
        } else {
            blas->dgemm_nt(rows, experts, m, f->x64, MR_CHUNK, gate->f64 + c, n, f->c64, experts);
            MR_ISA_PICK(mr_accumulate_f64)(f->c64, rows * experts, f->logits);
        }
    }
    for (size_t r = 0; r < rows; r++) f->stats[r] = mr_row_scan_end(&f->scans[r], dtype);
}

bool mr_filter_radius(const struct mr_gate *gate, const struct mr_row_stats *row,
                      struct mr_radius *out)
{
    double n = (double)gate->stored.cols, chunks = ceil(n / MR_CHUNK);
    double unit = gate->narrow ? 0x1p-24 : 0x1p-53;
    double rel = (MR_CHUNK - 1) * unit + 1.001 * chunks * 0x1p-53;
    out->scale = rel * row->norm * (1 + 0x1p-40);
    out->offset = gate->narrow ? n * gate->underflow : 0;
    return !gate->narrow || (MR_CHUNK * row->max * gate->max < 0x1p127 && n < 0x1p24);
}
