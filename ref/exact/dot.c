/* Row facts, and the choice between split accumulation and integer bins (proofs in exact.h). */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "../num/num.h"
#include "dot_simd.h"

void mr_row_scan_begin(struct mr_row_scan *scan)
{
    *scan = (struct mr_row_scan){.min_bits = UINT32_MAX};
}

void mr_row_scan_add(struct mr_row_scan *scan, const float *values, size_t n)
{
    MR_ISA_PICK(mr_row_scan_add)(scan, values, n);
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

struct mr_row_stats mr_row_scan_end(const struct mr_row_scan *scan, enum mr_dtype dtype)
{
    const struct mr_format *f = dtype == MR_BF16 ? &mr_format_bf16
                                : dtype == MR_F16 ? &mr_format_fp16
                                                  : &mr_format_fp32;
    struct mr_row_stats s = {.finite = scan->max_bits < 0x7f800000};
    if (!s.finite || scan->max_bits == 0) return s;
    s.max = from_bits(scan->max_bits);
    int e;
    frexp(from_bits(scan->min_bits), &e); /* |smallest| in [2^(e-1), 2^e) */
    if (e - 1 < f->emin) e = f->emin + 1; /* subnormals share the spacing of the smallest normal */
    s.ulp = e - f->precision;
    /* n squares of at most 2^256 add without overflow; a square of a binary32 subnormal is at
     * least 2^-298, a normal binary64. n rounded additions of non-negative terms lose at most
     * n 2^-53 relative; below, n <= 2^24 makes that 2^-29, so take it by count. */
    double slack = 1 + ((double)scan->count + 8) * DBL_EPSILON;
    s.norm = sqrt(scan->sum_squares * slack) * (1 + 2 * DBL_EPSILON);
    return s;
}

struct mr_dot_plan mr_dot_choose(const struct mr_row_stats *x, const struct mr_row_stats *w,
                                 size_t n)
{
    double s = x->norm * w->norm; /* zero, or within [2^-298, 2^280] */
    if (s == 0) return (struct mr_dot_plan){MR_DOT_PLAIN, 0};
    int e_s, e_n;
    frexp(s * (1 + DBL_EPSILON), &e_s); /* S <= 2^e_s */
    frexp((double)n, &e_n);             /* n < 2^e_n */
    int e_l = x->ulp + w->ulp;
    if (e_s <= 53 + e_l) return (struct mr_dot_plan){MR_DOT_PLAIN, 0};
    int g = e_s - 50;
    if (e_n + g - 1 > 53 + e_l || e_n > 50) return (struct mr_dot_plan){MR_DOT_BINS, 0};
    return (struct mr_dot_plan){MR_DOT_SPLIT, ldexp(1.5, 52 + g)};
}

struct mr_exact mr_dot_f32(struct mr_dot_plan plan, const double *x, const float *w, size_t n)
{
    if (plan.way == MR_DOT_PLAIN)
        return (struct mr_exact){MR_ISA_PICK(mr_plain_dot_f32)(x, w, n), 0, true};
    return MR_ISA_PICK(mr_split_dot_f32)(x, w, n, plan.magic);
}

struct mr_exact mr_dot_f64(struct mr_dot_plan plan, const double *x, const double *w, size_t n)
{
    if (plan.way == MR_DOT_PLAIN)
        return (struct mr_exact){MR_ISA_PICK(mr_plain_dot_f64)(x, w, n), 0, true};
    return MR_ISA_PICK(mr_split_dot_f64)(x, w, n, plan.magic);
}

void mr_dots_f32(const double *x, const float *const w[4], size_t n, double out[4])
{
    MR_ISA_PICK(mr_plain_dots_f32)(x, w, n, out);
}

void mr_dots_f64(const double *x, const double *const w[4], size_t n, double out[4])
{
    MR_ISA_PICK(mr_plain_dots_f64)(x, w, n, out);
}

static const char *row_of(const struct mr_matrix *m, size_t i)
{
    return (const char *)m->data + i * m->cols * (mr_dtype_bits(m->dtype) / 8);
}

struct mr_exact mr_exact_from_mpfr(const mpfr_t value)
{
    struct mr_exact out = {.hi = mpfr_get_d(value, MPFR_RNDN)};
    mpfr_t rest;
    mpfr_init2(rest, mpfr_get_prec(value) + 64);
    mpfr_sub_d(rest, value, out.hi, MPFR_RNDN); /* exact: hi's last bit is above value's, or near */
    out.lo = mpfr_get_d(rest, MPFR_RNDN);
    out.complete = mpfr_cmp_d(rest, out.lo) == 0;
    mpfr_clear(rest);
    return out;
}

enum mr_status mr_exact_dot(const struct mr_matrix *a, size_t i, const struct mr_matrix *b,
                            size_t j, struct mr_exact *out)
{
    size_t n = a->cols;
    if (b->cols != n) return MR_ERR_SHAPE;
    const char *x = row_of(a, i), *w = row_of(b, j);
    float *narrow = malloc((n ? n : 1) * sizeof *narrow);
    double *wide = malloc((n ? n : 1) * sizeof *wide);
    enum mr_status status = MR_OK;
    if (!narrow || !wide) {
        status = MR_ERR_MEMORY;
        goto done;
    }
    struct mr_row_scan scan;
    mr_row_scan_begin(&scan);
    mr_widen_f32(x, a->dtype, n, narrow);
    mr_row_scan_add(&scan, narrow, n);
    struct mr_row_stats sx = mr_row_scan_end(&scan, a->dtype);
    mr_row_scan_begin(&scan);
    mr_widen_f32(w, b->dtype, n, narrow);
    mr_row_scan_add(&scan, narrow, n);
    struct mr_row_stats sw = mr_row_scan_end(&scan, b->dtype);
    struct mr_dot_plan plan = mr_dot_choose(&sx, &sw, n);
    if (!sx.finite || !sw.finite) {
        status = MR_ERR_VALUE;
    } else if (plan.way != MR_DOT_BINS) {
        mr_widen_f64(x, a->dtype, n, wide);
        *out = mr_dot_f32(plan, wide, narrow, n);
    } else {
        mpfr_t value;
        mpfr_init2(value, 64);
        status = mr_bins_dot(x, a->dtype, w, b->dtype, n, value);
        if (!status) *out = mr_exact_from_mpfr(value);
        mpfr_clear(value);
    }
done:
    free(narrow);
    free(wide);
    return status;
}
