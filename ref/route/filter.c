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

/* Widens one row and learns what there is to know of it. */
static void prepare_row(struct mr_gate *g, size_t e)
{
    size_t n = g->stored.cols, bytes = mr_dtype_bits(g->stored.dtype) / 8;
    const char *src = (const char *)g->stored.data + e * n * bytes;
    float piece[MR_CHUNK];
    struct mr_row_scan scan;
    mr_row_scan_begin(&scan);
    for (size_t c = 0; c < n; c += MR_CHUNK) {
        size_t m = n - c < MR_CHUNK ? n - c : MR_CHUNK;
        float *x = g->narrow ? g->f32 + e * n + c : piece;
        mr_widen_f32(src + c * bytes, g->stored.dtype, m, x);
        mr_row_scan_add(&scan, x, m);
        if (!g->narrow) mr_widen_f64(x, MR_F32, m, g->f64 + e * n + c);
    }
    g->stats[e] = mr_row_scan_end(&scan, g->stored.dtype);
    g->norm[e] = g->stats[e].norm;
    if (g->norm[e] > 0) g->inverse_norm[e] = 1 / g->norm[e];
    for (int c = 0; c < MR_CHECKS; c++) g->signs[e * MR_CHECKS + c] = mr_check_sign(c, e);
}

/* Columns first .. first + m of the check vectors, experts in ascending order. */
static void prepare_check(struct mr_gate *g, size_t first, size_t m)
{
    size_t n = g->stored.cols;
    for (size_t e = 0; e < g->stored.rows; e++) {
        for (int c = 0; c < MR_CHECKS; c++) {
            double scale = g->signs[e * MR_CHECKS + c] * g->inverse_norm[e];
            double *v = g->check + (size_t)c * n + first;
            if (g->narrow) {
                const float *row = g->f32 + e * n + first;
                for (size_t i = 0; i < m; i++) v[i] += scale * row[i];
            } else {
                const double *row = g->f64 + e * n + first;
                for (size_t i = 0; i < m; i++) v[i] += scale * row[i];
            }
        }
    }
}

/* The first element that is not finite, if any; zero rows and the largest magnitude. */
static enum mr_status look_over(struct mr_gate *g, struct mr_error *err)
{
    size_t n = g->stored.cols;
    for (size_t e = 0; e < g->stored.rows; e++) {
        if (!g->stats[e].finite) {
            size_t i = 0;
            while (i + 1 < n && isfinite(g->narrow ? g->f32[e * n + i] : g->f64[e * n + i])) i++;
            bool nan = isnan(g->narrow ? g->f32[e * n + i] : g->f64[e * n + i]);
            return mr_fail(err, MR_ERR_VALUE,
                           "gate weight [%zu, %zu] is %s: expected a finite number", e, i,
                           nan ? "NaN" : "Inf");
        }
        if (!(g->norm[e] > 0)) g->zero_row[g->zero_rows++] = e;
        if (g->stats[e].max > g->max) g->max = g->stats[e].max;
    }
    return MR_OK;
}

enum mr_status mr_gate_prepare(const struct mr_matrix *stored, enum mr_dtype hidden_dtype,
                               bool narrow, int threads, struct mr_gate *out,
                               struct mr_error *err)
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
    enum mr_status status = MR_OK;
    if (!(out->f32 || out->f64) || !out->stats || !out->norm || !out->inverse_norm ||
        !out->check || !out->signs || !out->zero_row)
        status = mr_fail(err, MR_ERR_MEMORY, "no memory for a gate weight [%zu, %zu]", experts, n);
    if (!status) {
#pragma omp parallel for num_threads(threads)
        for (size_t e = 0; e < experts; e++) prepare_row(out, e);
        status = look_over(out, err);
    }
    if (!status) {
#pragma omp parallel for num_threads(threads)
        for (size_t c = 0; c < n; c += MR_CHUNK)
            prepare_check(out, c, n - c < MR_CHUNK ? n - c : MR_CHUNK);
    }
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
            bool second = c / MR_CHUNK % 2; /* joins the first in binary32 */
            blas->sgemm_nt(rows, experts, m, f->x32, MR_CHUNK, gate->f32 + c, n, second, f->c32,
                           experts);
            if (second || c + m == n)
                MR_ISA_PICK(mr_accumulate_f32)(f->c32, rows * experts, f->logits);
        } else {
            blas->dgemm_nt(rows, experts, m, f->x64, MR_CHUNK, gate->f64 + c, n, 0, f->c64,
                           experts);
            MR_ISA_PICK(mr_accumulate_f64)(f->c64, rows * experts, f->logits);
        }
    }
    for (size_t r = 0; r < rows; r++) f->stats[r] = mr_row_scan_end(&f->scans[r], dtype);
}

bool mr_filter_radius(const struct mr_gate *gate, const struct mr_row_stats *row,
                      struct mr_radius *out)
{
    double n = (double)gate->stored.cols, terms = gate->narrow ? 2 * MR_CHUNK : MR_CHUNK;
    double unit = gate->narrow ? 0x1p-24 : 0x1p-53;
    double rel = (terms - 1) * unit + 1.001 * ceil(n / terms) * 0x1p-53;
    out->scale = rel * row->norm * (1 + 0x1p-40);
    out->offset = gate->narrow ? n * gate->underflow : 0;
    return !gate->narrow || (2 * MR_CHUNK * row->max * gate->max < 0x1p127 && n < 0x1p24);
}
