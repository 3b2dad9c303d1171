/* Many ways of summing the same few outputs: MR_IDENTIFY_WIDTH outputs, the lanes, side by side. */
#ifndef MOEREF_IDENTIFY_SIMD_H
#define MOEREF_IDENTIFY_SIMD_H

#include "../isa.h"
#include "identify_family.h"

enum { MR_IDENTIFY_WIDTH = 16, MR_IDENTIFY_TYPES = 3 };

/* Operands and products of the lanes, [terms][width] each. */
struct mr_lane_terms {
    size_t terms;
    float *a, *b; /* operands */
    float *p;     /* products rounded to binary32 */
    int32_t *e;   /* exponent of a plus exponent of b, MR_LANE_ZERO of a zero product */
};
enum { MR_LANE_ZERO = -1000 };

/* What was observed, as the binary32 sums that round to it: low <= ordered(sum) <= high, with
 * ordered(-0) = -1 below ordered(+0) = 0. */
struct mr_lane_goal {
    int types; /* ways to read the observed values: as fp32, bf16 ... */
    int32_t low[MR_IDENTIFY_TYPES][MR_IDENTIFY_WIDTH], high[MR_IDENTIFY_TYPES][MR_IDENTIFY_WIDTH];
    float bias[MR_IDENTIFY_WIDTH];
    bool biased; /* bias is added to the sum, rounded */
};

/* Which tensor-core step, of those that fused sums do fast: see mr_lane_parts_mma. */
struct mr_lane_mma {
    int terms, fraction;
    uint32_t keep; /* result & keep: the fraction bits that it has */
};

/* p and e from a and b. least_a: exponent of the subnormals of a's type. */
MR_ISA_DECLARE(void, mr_lane_products, struct mr_lane_terms *t, int least_a, int least_b);

/* Sums of the parts of a layout, sums[parts][width]: of p (products that are exact, or rounded),
 * or by fused multiply-add of a and b. */
MR_ISA_DECLARE(void, mr_lane_parts_add, const struct mr_lane_terms *t, const struct mr_laid *l,
               float *sums);
MR_ISA_DECLARE(void, mr_lane_parts_fma, const struct mr_lane_terms *t, const struct mr_laid *l,
               float *sums);
/* By tensor-core steps of the plain form whose result is rounded toward zero. Serves steps whose
 * largest exponent is within [-90, 120] and whose sums fit; unsure[part] says that a lane of the
 * part was not served, and the part is to be done by mr_mma_step. */
MR_ISA_DECLARE(void, mr_lane_parts_mma, const struct mr_lane_terms *t, const struct mr_laid *l,
               struct mr_lane_mma mma, float *sums, uint8_t *unsure);

/* Adds the parts up in each of the combinations asked for, and says which lanes then agree with
 * what was observed: hit[type][combination], a bit a lane. work: [4 * terms + 16][width]. */
MR_ISA_DECLARE(void, mr_lane_reduce, const struct mr_laid *l, const float *sums,
               mr_combinations wanted, const struct mr_lane_goal *goal, float *work,
               uint16_t hit[MR_IDENTIFY_TYPES][MR_FRAME_COMBINATIONS]);

#endif
