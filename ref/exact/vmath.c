#include "vmath.h"

void mr_vec_sigmoid(const double *x, size_t n, double *y)
{
    MR_ISA_PICK(mr_vec_sigmoid)(x, n, y);
}

void mr_vec_exp_below(const double *x, double m, size_t n, double *y)
{
    MR_ISA_PICK(mr_vec_exp_below)(x, m, n, y);
}

size_t mr_vec_round(const double *lo, const double *hi, size_t n, int precision, double least,
                    double most, float *out, uint8_t *undecided)
{
    return MR_ISA_PICK(mr_vec_round)(lo, hi, n, precision, least, most, out, undecided);
}
