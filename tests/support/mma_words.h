/* Random words of the formats of mma_classes.h, from integers alone. */
#ifndef MMA_WORDS_H
#define MMA_WORDS_H

#include <stdbool.h>

#include "mma_classes.h"

struct mma_source {
    uint64_t state;
};
uint32_t mma_draw(struct mma_source *s);               /* splitmix64, upper half */
int mma_between(struct mma_source *s, int lo, int hi); /* [lo, hi] */
bool mma_one_in(struct mma_source *s, int n);

int mma_emin(const struct mma_format *f); /* exponent of subnormals */
uint32_t mma_sign(const struct mma_format *f, uint32_t sign);
/* (-1)^sign * 1.f * 2^e, f the upper bits of fraction; what the format cannot hold is cut: to a
 * subnormal, to zero, to the largest exponent. Bits that hardware ignores are random. */
uint32_t mma_word(struct mma_source *s, const struct mma_format *f, uint32_t sign, int e,
                  uint32_t fraction);
uint32_t mma_any(struct mma_source *s, const struct mma_format *f, int lo, int hi);
uint32_t mma_zero(struct mma_source *s, const struct mma_format *f); /* of either sign */
/* v * 2^shift, cut toward zero to the format. */
uint32_t mma_integer(struct mma_source *s, const struct mma_format *f, int64_t v, int shift);
/* Near N(0, 1) * 2^shift: four uniform 16-bit numbers. */
uint32_t mma_normal(struct mma_source *s, const struct mma_format *f, int shift);
uint32_t mma_infinity(struct mma_source *s, const struct mma_format *f); /* e4m3: its largest */
uint32_t mma_nan(struct mma_source *s, const struct mma_format *f);      /* of any payload */
/* The signed significand with hidden bit, and the exponent of its last place. */
int64_t mma_whole(const struct mma_format *f, uint32_t w, int *shift);

#endif
