/* The random numbers of generate.c: counter based, so the value of an element is a function of
 * (seed, layer, tensor, phase, row, column) alone, whatever the order or the number of threads.
 *
 * Bits: splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA
 * 2014; finaliser: Stafford's variant 13), one stream a row, jumped to any column.
 *
 * Normals: ones in 32 random bits, less 16, plus the difference of two 16-bit uniforms, which fills
 * the steps of the binomial with straight lines. It is an integer of at most 21 bits, symmetric
 * about 0, with exact moments (MR_GENERATE_SD below; excess kurtosis -0.0602; largest value 5.9
 * standard deviations). That is near enough: a logit sums thousands of such terms, so logits are
 * normal whatever the terms are; of the terms themselves a router test needs what real activations
 * have, values that come close to 0 (a wide spread of exponents) and a bounded tail. */
#ifndef MOEREF_GENERATE_ROWS_H
#define MOEREF_GENERATE_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* sqrt(2^32 * 32/4 + 2 * (2^32 - 1)/12), the standard deviation of mr_generate_normal. */
#define MR_GENERATE_SD 187284.71974643314

/* Child of key: mr_generate_key(mr_generate_key(seed, a), b) names stream (a, b). */
uint64_t mr_generate_key(uint64_t key, uint64_t value);
/* 64 bits: element index of the stream. */
uint64_t mr_generate_bits(uint64_t key, uint64_t index);
/* In (0, 1), an odd multiple of 2^-33. */
double mr_generate_uniform(uint64_t bits);
int32_t mr_generate_normal(uint64_t bits);
/* |value| < 2^127, to bf16, nearest even; below 2^-126 gives +0. In integers, so without the
 * caller's rounding mode. */
uint16_t mr_generate_bf16(double value);

/* out[r][c] = bf16(base[c] + gain[c] * normal). The product has at most 24 + 21 bits, so it is
 * exact in binary64; so is the sum while base is 0 or gain <= |base| < 2^29 * gain. */
void mr_generate_rows(uint64_t key, size_t rows, size_t cols, const float *base, const float *gain,
                      uint16_t *out);

#endif
