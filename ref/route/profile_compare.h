/* Where a profile parts from the certified answer on a token, and which cell of its row does it. */
#ifndef MOEREF_PROFILE_COMPARE_H
#define MOEREF_PROFILE_COMPARE_H

#include "certify.h"
#include "profile_emulate.h"

enum mr_part {
    MR_PART_SAME,   /* the certified set */
    MR_PART_TIE,    /* another set that is equally right */
    MR_PART_OTHER,
    MR_PART_UNKNOWN /* the certificate is undecided or nonfinite: nothing to compare with */
};

/* Why: the cell that, set to its plain value alone, gives the plain answer (of weights: or most of
 * it). The plain row is fp32
 * arithmetic without an engine's habits: exp form or quotient, fp32 bias, the router's group score,
 * excluded groups no candidates, lowest id, denominator the sum, output fp32. */
enum { MR_WHY_NONE = -1, MR_WHY_FP32 = MR_CELL_COUNT, MR_WHY_SEVERAL, MR_WHY_COUNT };
const char *mr_why_name(int why); /* "tie rule", "bias" ..., "fp32 rounding", "several", "" */

/* Weights further than this from the certified ones, relatively, are not explained by fp32: logits
 * of size up to 88 rounded to fp32 move a score by 88 * 2^-24, functions, sums of 32 and divisions
 * by less than 64 * 2^-24 more, together below 2^-16. */
#define MR_WEIGHT_PART 0x1p-16

/* Whether two lists of k ids name the same experts. */
bool mr_same_ids(const int32_t *a, const int32_t *b, int k);

struct mr_profile_part {
    enum mr_part set;
    int why;              /* of another set, and of a tie broken otherwise than lowest id first */
    double weight_error;  /* largest relative one, for MR_PART_SAME, routed_scaling_factor put back
                             where the profile leaves it to the model; -1 if not compared */
    int weight_why;       /* if it is above MR_WEIGHT_PART or a weight is not finite */
    struct mr_profile_note note;
};

/* ids, weights [top_k]: filled with what the profile gives; if hashed, ids are the layer's own. The
 * certified answer may be that of logits which these are roundings of: that is "fp32 rounding". */
void mr_profile_compare(const struct mr_profile_row *row, const struct mr_router *router,
                        const struct mr_profile_batch *batch, bool hashed, const float *logits,
                        const float *bias, const struct mr_routed *certified,
                        struct mr_profile_scratch *s, int32_t *ids, float *weights,
                        struct mr_profile_part *out);

#endif
