/* Small floating-point formats: decode to exact values, encode under a stated rounding.
 *
 * Formats: bf16 (8 exponent bits, 7 fraction bits), fp16 (IEEE binary16), tf32 (fp32 word whose low
 * 13 bits are ignored: 8, 10), e4m3 (OCP OFP8 E4M3: bias 7, no Inf, NaN only S.1111.111, largest
 * 448), e5m2 (OCP OFP8 E5M2: as IEEE, largest 57344), e8m0 (OCP MX scale: 2^(x-127), 0xff NaN),
 * e2m1 (OCP MX FP4: 0 0.5 1 1.5 2 3 4 6, no Inf, no NaN).
 * Sources: IEEE 754-2019; OCP 8-bit Floating Point Specification 1.0; OCP Microscaling Formats (MX)
 * Specification 1.0; PTX ISA, "Alternate Floating-Point Data Formats".
 *
 * Decoding is exact: every value of these formats is a binary32 (and binary64) value. Signed zero
 * and the sign of Inf are kept. A NaN decodes to a quiet NaN with the sign of the source; payload
 * bits are not promised.
 *
 * Encoding takes a binary64 value, so an exact sum or a correctly rounded binary64 is rounded once.
 * (Rounding a real number to binary64 first and then here is double rounding: callers that need one
 * rounding of a sum hi + lo use mr_round_sum.)
 * NaN policy: a NaN encodes to the format's canonical quiet NaN, positive: bf16 0x7fff, fp16
 * 0x7fff, tf32 0x7fffe000, e4m3 0x7f, e5m2 0x7f (as NVIDIA's cvt does). So does a NaN that e4m3
 * puts in place of an Inf.
 *
 * Nothing here depends on the rounding mode, FTZ or DAZ of the calling thread. */
#ifndef MOEREF_NUM_H
#define MOEREF_NUM_H

#include <stddef.h>
#include <stdint.h>

#include "../tensor.h"

enum mr_rounding {
    MR_RNE, /* to nearest, ties to even */
    MR_RZ   /* toward zero */
};

enum mr_overflow {
    MR_OVERFLOW_IEEE, /* beyond the largest value: Inf under RNE (NaN for e4m3, which has no Inf),
                         largest finite value under RZ. Inf encodes to Inf (e4m3: NaN). */
    MR_OVERFLOW_SATURATE /* beyond the largest value, and Inf: the largest finite value of that
                            sign (cvt.satfinite). NaN stays NaN. */
};

/* Bits to value. */
float mr_bf16_decode(uint16_t bits);
float mr_fp16_decode(uint16_t bits);
float mr_tf32_decode(uint32_t bits); /* clears the low 13 bits first, so a NaN whose payload is only
                                        there becomes Inf (as the tensor core reads it) */
float mr_e4m3_decode(uint8_t bits);
float mr_e5m2_decode(uint8_t bits);
float mr_e8m0_decode(uint8_t bits);  /* 0 is 2^-127, a binary32 subnormal: not zero */
float mr_e2m1_decode(uint8_t bits);  /* the low four bits */

/* Value to bits, one rounding. */
uint16_t mr_bf16_encode(double value, enum mr_rounding r, enum mr_overflow o);
uint16_t mr_fp16_encode(double value, enum mr_rounding r, enum mr_overflow o);
uint32_t mr_tf32_encode(double value, enum mr_rounding r, enum mr_overflow o);
uint8_t mr_e4m3_encode(double value, enum mr_rounding r, enum mr_overflow o);
uint8_t mr_e5m2_encode(double value, enum mr_rounding r, enum mr_overflow o);

/* A format by its parameters, for generic code: p significand bits (hidden bit included), emin and
 * emax as in IEEE 754 (value = m * 2^(e-p+1)). */
struct mr_format {
    const char *name;
    int precision, emin, emax;
    double largest;
};
extern const struct mr_format mr_format_bf16, mr_format_fp16, mr_format_tf32, mr_format_fp32,
    mr_format_e4m3, mr_format_e5m2;

/* Rounds the exact sum hi + lo (|lo| <= ulp(hi)/2, as a two-sum leaves it) once, RNE, to the
 * format; returns the value (Inf on overflow, subnormals kept, sign of an underflowed value kept).
 * hi must be finite; a sum that is zero gives +0 unless hi is -0. */
double mr_round_sum(double hi, double lo, const struct mr_format *format);

/* Arrays: n stored elements of BF16, F16, F32 (F64 for the double form), unaligned, to values;
 * every NaN becomes quiet, as above. src and dst do not overlap. For any other dtype, which callers
 * refuse by name, dst is all NaN. */
void mr_widen_f32(const void *src, enum mr_dtype dtype, size_t n, float *dst);
void mr_widen_f64(const void *src, enum mr_dtype dtype, size_t n, double *dst);

#endif
