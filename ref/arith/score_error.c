/* Errors of score functions in binary32, u = 2^-24; 1 ulp <= 2u of the value.
 *
 * Bounds taken from documents (CUDA C++ Programming Guide, "Mathematical Functions"; PTX ISA):
 *   expf 2 ulp (measured 1.93), logf and log1pf 1 ulp, tanhf 2 ulp; __expf(x) 2 + floor(|1.173 x|)
 *   ulp; __logf 2^-21.41 absolutely on [1/2, 2], 3 ulp elsewhere; rcp.approx 1 ulp, div.full 2 ulp,
 *   sqrt.approx 1 ulp; / and sqrtf correctly rounded. Triton's exp, ex2.approx of a product that
 *   was rounded once, is __expf; its '/' is div.full. FTZ: results below 2^-126 become 0.
 *   tanh.approx: 2^-11 relatively, of no use here; the sigmoid made of it is at most 66.98 u off,
 *   absolutely, over all inputs (the model, which is bit-exact; at x = 2.437498). No undeclared
 *   form (ANY) has it: whoever compiles with -use_fast_math says score:sigmoid.tanhf.fast.
 * Forms: vLLM topk_softmax_kernels.cu@085c812 (1/(1+__expf(-x)); softmax by reciprocal and
 *   product), SGLang moe_fused_gate.cuh (1/(1+expf(-x))), FlashInfer RoutingKernel.cuh fb28d72 (0.5
 *   tanhf(0.5 x) + 0.5; softmax by division); sqrt-softplus in vLLM
 *   topk_softplus_sqrt_kernels.cu@0d89098 (x > 20 ? x : __logf(1 + __expf(x))),
 *   topk_softplus_sqrt_kernels_fast.cu@0263839 (log1pf(expf(x))), SGLang Triton (log(1 + exp(x))),
 *   FlashInfer hash_topk (fmaxf(x, 0) + log1pf(expf(-|x|))).
 *
 * Sigmoid = 1/(1+t), t = exp(-x) with relative error d: 1 + t moves by (t/(1+t)) d = (1 - sigma) d,
 * the addition rounds by u, the division by u or 2 ulp. In the tanh form an error of 2 ulp of tanh
 * < 1 is at most 2u, halved, and the sum in [1/2, 1) rounds by u/2: 1.5 u absolutely, so that small
 * scores have no correct digit (0 for x <= -18.02). Overflow of exp(-x), and FTZ, cost at most
 * 2^-125. x -> sigma(x)(1 -+ error(x)) grows, as its logarithmic derivative is 1 - sigma(x) -+
 * O(u): so the ends of an interval serve.
 *
 * sqrt-softplus = sqrt(y), y = log(1 + t), t = exp(x): 1 + t rounds by u relatively, so y moves by
 * u, and by sigma(x) d for the error d of t: absolutely, which is everything once t < u (x <
 * -16.6). The logarithm and the form with fmaxf add relative errors; above 20, y - x < 2.1e-9 < u
 * y. Then the root. log1pf(expf(x)) overflows above 88.72: that is a fault, not rounding, and not
 * covered.
 *
 * Softmax: t = exp(x - max): the difference rounds by |x - max| u, which moves t by that,
 * relatively. A term, or a quotient, that is flushed loses 2^-126 where the largest term is 1.
 * The sum of E such terms has the weighted mean of their errors and (E - 1) u of its own; with p
 * the softmax, sum p_j |x_j - max| <= sum p_j (-ln p_j) <= ln E. */
#include "score_error.h"

#include <math.h>

#define U    0x1p-24
#define TINY 0x1p-125
/* Products of small errors. */
#define SECOND (1 + 0x1p-10)

/* exp(x): (constant + slope |x|) u relatively. Quotients, roots, logarithms in u. */
static const struct errors {
    double exp_constant, exp_slope, quotient, reciprocal, root, log_absolute, log_relative,
        absolute;
} table[] = {
    [MR_FORM_ANY] = {4, 2.346, 4, 2, 2, 6.1, 7, 1.5},
    [MR_FORM_ROUNDED] = {0},
    [MR_FORM_EXPF] = {4, 0, 1, 1, 1, 0, 3, 0},
    [MR_FORM_FAST] = {4, 2.346, 4, 2, 2, 6.1, 7, 0},
    [MR_FORM_TANH] = {4, 0, 1, 1, 1, 0, 3, 1.5},
    [MR_FORM_TANH_FAST] = {4, 2.346, 4, 2, 2, 6.1, 7, 67},
};

static const struct errors *errors_of(enum mr_form form)
{
    return &table[(unsigned)form < sizeof table / sizeof *table ? form : MR_FORM_ANY];
}

double mr_sigmoid_value(double x)
{
    double t = exp(-fabs(x));
    return (x < 0 ? t : 1) / (1 + t);
}

double mr_softplus_value(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static double sigmoid_error(enum mr_form form, double x, double s)
{
    const struct errors *k = errors_of(form);
    if (form == MR_FORM_TANH || form == MR_FORM_TANH_FAST) return k->absolute * U;
    double t = (k->exp_constant + k->exp_slope * fabs(x)) * (1 - s) + 1 + k->quotient;
    return fmax(s * t * U * SECOND, k->absolute * U) + TINY;
}

struct mr_interval mr_sigmoid_computed(enum mr_form form, struct mr_interval logit)
{
    double lo = mr_sigmoid_value(logit.lo), hi = mr_sigmoid_value(logit.hi);
    if (form != MR_FORM_ROUNDED) {
        /* Beyond 100 the score is 0 or 1 to within TINY: keeps Inf * 0 out. */
        lo -= sigmoid_error(form, fmin(fabs(logit.lo), 100), lo);
        hi += sigmoid_error(form, fmin(fabs(logit.hi), 100), hi);
    }
    return (struct mr_interval){fmax(mr_below(lo), 0), mr_above(hi)};
}

/* What y may be off by. */
static double softplus_error(const struct errors *k, double x, double y)
{
    double d = k->exp_constant + k->exp_slope * fmin(fabs(x), 100);
    return (1 + mr_sigmoid_value(x) * d + fmax(k->log_absolute, k->log_relative * y)) * U * SECOND +
           TINY;
}

struct mr_interval mr_sqrt_softplus_computed(enum mr_form form, struct mr_interval logit)
{
    const struct errors *k = errors_of(form);
    double lo = mr_softplus_value(logit.lo), hi = mr_softplus_value(logit.hi);
    if (form == MR_FORM_ROUNDED)
        return (struct mr_interval){mr_below(sqrt(lo)), mr_above(sqrt(hi))};
    lo = fmax(lo - softplus_error(k, logit.lo, lo), 0);
    hi += softplus_error(k, logit.hi, hi);
    return (struct mr_interval){mr_below(sqrt(lo) * (1 - k->root * U)),
                                mr_above(sqrt(hi) * (1 + k->root * U)) + TINY};
}

struct mr_interval mr_softmax_computed(enum mr_form form, struct mr_interval logit, double max,
                                       double z, double below, double stretch)
{
    const struct errors *k = errors_of(form);
    double lo = exp(logit.lo - max) / z, hi = exp(logit.hi - max) / z;
    /* The argument's own binary64 rounding, relatively. */
    double fuzz = (fabs(logit.lo - max) + fabs(logit.hi - max) + 8) * 0x1p-52;
    if (form != MR_FORM_ROUNDED) {
        double d = k->exp_constant + (1 + k->exp_slope) * fmin(below, 110) + k->quotient;
        fuzz += d * U * SECOND;
        lo -= TINY * stretch;
        hi += TINY * stretch;
    }
    return (struct mr_interval){fmax(lo * (1 - fuzz), 0), hi * (1 + fuzz)};
}

double mr_softmax_sum_error(enum mr_form form, int count)
{
    if (form == MR_FORM_ROUNDED) return 0;
    const struct errors *k = errors_of(form);
    double d = k->exp_constant + (1 + k->exp_slope) * log(count) + (count - 1) + k->reciprocal;
    return d * U * SECOND;
}

double mr_quotient_error(enum mr_form form)
{
    return form == MR_FORM_ROUNDED ? U : errors_of(form)->quotient * U;
}
