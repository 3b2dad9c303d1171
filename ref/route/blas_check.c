/* BLAS is not trusted: older OpenBLAS computes wrong on some processors. For each row and each of
 * four vectors of signs s, sum_e s_e logit_e / ||w_e|| is compared with x . (sum_e s_e w_e / ||w_e||),
 * the latter in our own binary64 code. Dividing by the norm makes all experts weigh alike: one
 * logit's error radius, so divided, is the same R = scale for every expert (+ underflow).
 *
 * Threshold 2 R (plus the offsets). It is statistical: the sum of E rounding errors could in
 * principle reach E R, but these behave as random signs with a size near R / sqrt(chunk), so that
 * their sum stays near sqrt(E / 256) R / 2 in the worst of realistic inputs. Largest seen (10^5
 * tokens, tests/test_blas.c): 0.17 R with random rows, 1.05 R with 1024 rows that are all nearly
 * alike, in fp64, where our own code's rounding shows too. A false alarm costs one row computed
 * exactly; a right BLAS is never reported as wrong, since only a logit that is off by more than its
 * proven radius is.
 *
 * What is caught: one wrong logit off by more than 2.1 R, always. Of two that are wrong by the same
 * normalised amount, either sign: always if their indices differ by 1 to 7 within an aligned group
 * of eight (they then differ in some sign products, see mr_check_sign), otherwise in 15 of 16 cases.
 * A whole tile of unrelated errors is missed only if four random sums all fall below 2 R. What stays
 * is a probability: errors smaller than the threshold, and a sum that cancels four times. The
 * selected experts' logits, and all that come near the cut, are recomputed exactly anyway. */
#include <math.h>

#include "filter_simd.h"

/* The low three bits of the (shuffled) index choose the relative signs of vectors 1..3 to vector 0,
 * so eight neighbours have eight different sign patterns of which no two are opposite. Vector 0's
 * own sign and the shuffle of groups come from a fixed hash (splitmix64, seed fixed here). */
double mr_check_sign(int c, size_t e)
{
    uint64_t z = (uint64_t)(e / 8) * 0x9e3779b97f4a7c15u + 0x6d6f65726566u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    unsigned pattern = (unsigned)((e ^ z) & 7), base = (unsigned)(z >> (8 + e % 8)) & 1;
    unsigned bit = c == 0 ? 0 : (pattern >> (c - 1)) & 1;
    return (bit ^ base) ? -1.0 : 1.0;
}

bool mr_blas_check(const struct mr_gate *gate, const double *logits, const double *check,
                   const struct mr_radius *radius)
{
    size_t experts = gate->stored.rows;
    double sum[MR_CHECKS] = {0};
    double largest = MR_ISA_PICK(mr_signed_sums)(logits, gate->inverse_norm, gate->signs, experts, sum);
    for (size_t i = 0; i < gate->zero_rows; i++)
        if (logits[gate->zero_row[i]] != 0) return false; /* weighs nothing above */
    double threshold = 2 * radius->scale + 4 * (double)experts * radius->offset * largest;
    for (int c = 0; c < MR_CHECKS; c++)
        if (!(fabs(sum[c] - check[c]) <= threshold)) return false; /* NaN fails too */
    return true;
}
