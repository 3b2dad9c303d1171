/* Exact dot products by integer bins: one 128-bit integer for each exponent. A product of two
 * significands has at most 48 bits, so 2^40 of them leave a bin far from overflow (2^88).
 * The idea is R. M. Neal's large superaccumulator (arXiv:1505.05571), with the exponent of a
 * product, not of a sum, as the index. */
#include <gmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "exact.h"

/* value = significand * 2^exponent, exponent counted from the format's lowest spacing. */
struct element {
    int32_t significand;
    int exponent;
};

struct layout {
    int fraction, exponent_bits, bytes;
    int lowest; /* log2 of the spacing of subnormals */
};

static const struct layout *layout_of(enum mr_dtype dtype)
{
    static const struct layout bf16 = {7, 8, 2, -133}, fp16 = {10, 5, 2, -24},
                               fp32 = {23, 8, 4, -149};
    return dtype == MR_BF16 ? &bf16 : dtype == MR_F16 ? &fp16 : dtype == MR_F32 ? &fp32 : NULL;
}

static inline struct element decode(const char *at, const struct layout *l)
{
    uint32_t bits = 0;
    if (l->bytes == 2) {
        uint16_t half;
        memcpy(&half, at, 2);
        bits = half;
    } else {
        memcpy(&bits, at, 4);
    }
    int e = (int)(bits >> l->fraction) & ((1 << l->exponent_bits) - 1);
    int32_t m = (int32_t)(bits & ((1u << l->fraction) - 1));
    if (e) m |= 1 << l->fraction;
    else e = 1;
    bool negative = bits >> (l->fraction + l->exponent_bits);
    return (struct element){negative ? -m : m, e - 1};
}

static void mpz_set_i128(mpz_t out, __int128 v)
{
    unsigned __int128 u = v < 0 ? -(unsigned __int128)v : (unsigned __int128)v;
    mpz_set_ui(out, (unsigned long)(u >> 64));
    mpz_mul_2exp(out, out, 64);
    mpz_add_ui(out, out, (unsigned long)u);
    if (v < 0) mpz_neg(out, out);
}

enum { BINS = 2 * 254 + 1 };

enum mr_status mr_bins_dot(const void *x, enum mr_dtype x_dtype, const void *w,
                           enum mr_dtype w_dtype, size_t n, mpfr_t out)
{
    const struct layout *lx = layout_of(x_dtype), *lw = layout_of(w_dtype);
    if (!lx || !lw) return MR_ERR_DTYPE;
    __int128 *bins = calloc(BINS, sizeof *bins);
    if (!bins) return MR_ERR_MEMORY;
    const char *px = x, *pw = w;
    for (size_t i = 0; i < n; i++, px += lx->bytes, pw += lw->bytes) {
        struct element a = decode(px, lx), b = decode(pw, lw);
        bins[a.exponent + b.exponent] += (int64_t)a.significand * b.significand;
    }
    mpz_t sum, term;
    mpz_inits(sum, term, NULL);
    for (int e = BINS - 1; e >= 0; e--) { /* Horner, highest exponent first */
        mpz_mul_2exp(sum, sum, 1);
        if (bins[e]) {
            mpz_set_i128(term, bins[e]);
            mpz_add(sum, sum, term);
        }
    }
    size_t bits = mpz_sizeinbase(sum, 2);
    mpfr_set_prec(out, bits < 64 ? 64 : (mpfr_prec_t)bits);
    mpfr_set_z_2exp(out, sum, lx->lowest + lw->lowest, MPFR_RNDN); /* exact by the precision */
    mpz_clears(sum, term, NULL);
    free(bins);
    return MR_OK;
}
