#include "encode.h"

#define MAGNITUDE 0x7fffffffffffffffull
#define INFINITE 0x7ff0000000000000ull

/* hi + lo rounded to odd: the exact sum where lo is zero, else that of the two doubles around it
 * whose last bit is set. Rounding this to at most 51 bits gives the rounding of the exact sum
 * (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
 * rounding to odd", IEEE TC 2008): all values and midpoints of the target, subnormal ones too, are
 * doubles whose last bit is zero, so none lies strictly between, or at, an odd double and the exact
 * sum. A step of one in the word passes to the next binade by itself, which is what a negative lo
 * needs when hi is a power of two. */
static uint64_t add_to_odd(uint64_t hi, uint64_t lo)
{
    if (!(hi & MAGNITUDE)) return lo & MAGNITUDE ? lo : hi;
    if (!(lo & MAGNITUDE) || (hi & 1)) return hi;
    return (hi ^ lo) >> 63 ? hi - 1 : hi + 1;
}

double mr_round_sum(double hi, double lo, const struct mr_format *format)
{
    uint64_t h = f64_bits(hi), l = f64_bits(lo);
    if ((h & MAGNITUDE) >= INFINITE || (l & MAGNITUDE) >= INFINITE) return hi + lo;
    uint64_t sum = add_to_odd(h, l);
    uint64_t sign = sum & ~MAGNITUDE;
    struct rounded x =
        round_magnitude(sum & MAGNITUDE, format->precision, format->emin, MR_RNE);
    /* n < 2^53 and 2^(exponent - precision + 1) >= 2^-149 is a normal double: both factors and the
     * product are exact. */
    uint64_t unit = (uint64_t)(x.exponent - format->precision + 1 + 1023) << 52;
    uint64_t word = f64_bits((double)(int64_t)x.n * f64_from(unit));
    if (word > f64_bits(format->largest)) word = INFINITE;
    return f64_from(sign | word);
}
