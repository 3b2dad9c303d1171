#include "num_oracle.h"

#include <math.h>
#include <mpfr.h>
#include <string.h>

const struct num_format num_bf16 = {"bf16", 8, 7, 127, 0, true, 0x7fff, &mr_format_bf16};
const struct num_format num_fp16 = {"fp16", 5, 10, 15, 0, true, 0x7fff, &mr_format_fp16};
const struct num_format num_tf32 = {"tf32", 8, 10, 127, 13, true, 0x7fffe000, &mr_format_tf32};
const struct num_format num_fp32 = {"fp32", 8, 23, 127, 0, true, 0x7fffffff, &mr_format_fp32};
const struct num_format num_e4m3 = {"e4m3", 4, 3, 7, 0, false, 0x7f, &mr_format_e4m3};
const struct num_format num_e5m2 = {"e5m2", 5, 2, 15, 0, true, 0x7f, &mr_format_e5m2};

double num_decode(const struct num_format *f, uint32_t word)
{
    uint32_t fraction = (word >> f->low_bits) % (1u << f->fraction_bits);
    uint32_t exponent = (word >> f->low_bits >> f->fraction_bits) % (1u << f->exponent_bits);
    uint32_t sign = word >> f->low_bits >> f->fraction_bits >> f->exponent_bits & 1;
    uint32_t last_exponent = (1u << f->exponent_bits) - 1;
    uint32_t last_fraction = (1u << f->fraction_bits) - 1;
    double magnitude;
    if (exponent == last_exponent && f->has_inf)
        magnitude = fraction ? NAN : INFINITY;
    else if (exponent == last_exponent && fraction == last_fraction)
        magnitude = NAN;
    else if (exponent == 0)
        magnitude = ldexp(fraction, 1 - f->bias - f->fraction_bits);
    else
        magnitude = ldexp((1u << f->fraction_bits) + fraction,
                          (int)exponent - f->bias - f->fraction_bits);
    return sign ? -magnitude : magnitude;
}

uint32_t num_finite(const struct num_format *f)
{
    uint32_t all = 1u << (f->exponent_bits + f->fraction_bits);
    return f->has_inf ? all - (1u << f->fraction_bits) : all - 1;
}

uint32_t num_sign(const struct num_format *f)
{
    return 1u << (f->low_bits + f->fraction_bits + f->exponent_bits);
}

double num_round(const struct num_format *f, double hi, double lo, enum mr_rounding r)
{
    static __thread mpfr_t exact, rounded;
    if (!exact->_mpfr_d) mpfr_init2(exact, 2200), mpfr_init2(rounded, 24);
    int precision = f->fraction_bits + 1;
    mpfr_rnd_t rnd = r == MR_RNE ? MPFR_RNDN : MPFR_RNDZ;
    mpfr_set_prec(rounded, precision);
    mpfr_set_d(exact, hi, MPFR_RNDN);
    if (lo != 0 && mpfr_add_d(exact, exact, lo, MPFR_RNDN) != 0) return NAN; /* was not exact */
    int ternary = mpfr_set(rounded, exact, rnd);
    /* MPFR's significands lie in [1/2, 1): its exponents are larger by one. Where there is no Inf,
     * the last exponent counts as a number's. */
    mpfr_exp_t emin = mpfr_get_emin(), emax = mpfr_get_emax();
    mpfr_set_emin(1 - f->bias - f->fraction_bits + 1);
    mpfr_set_emax((1 << f->exponent_bits) - 1 - f->bias - (f->has_inf ? 1 : 0) + 1);
    ternary = mpfr_check_range(rounded, ternary, rnd);
    mpfr_subnormalize(rounded, ternary, rnd);
    mpfr_set_emin(emin);
    mpfr_set_emax(emax);
    double value = mpfr_get_d(rounded, MPFR_RNDN);
    double largest = num_decode(f, (num_finite(f) - 1) << f->low_bits);
    if (fabs(value) > largest) value = copysign(r == MR_RZ ? largest : INFINITY, value);
    return value;
}

uint32_t num_encode(const struct num_format *f, double value, enum mr_rounding r,
                    enum mr_overflow o)
{
    if (isnan(value)) return f->nan;
    double rounded = isinf(value) ? value : num_round(f, value, 0, r);
    uint32_t sign = signbit(rounded) ? num_sign(f) : 0;
    uint32_t low = 0, high = num_finite(f) - 1;
    if (isinf(rounded)) {
        if (o == MR_OVERFLOW_SATURATE) return sign | high << f->low_bits;
        return f->has_inf ? sign | (high + 1) << f->low_bits : f->nan;
    }
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (num_decode(f, middle << f->low_bits) < fabs(rounded)) low = middle + 1;
        else high = middle;
    }
    return sign | low << f->low_bits;
}

uint64_t num_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

uint64_t num_word64(double value)
{
    uint64_t word;
    memcpy(&word, &value, sizeof word);
    return word;
}

double num_double(uint64_t word)
{
    double value;
    memcpy(&value, &word, sizeof value);
    return value;
}
