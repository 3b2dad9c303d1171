/* From an arithmetic line to what bounds its error (sums.h). */
#include "mma.h"
#include "sums.h"

static bool may_round(enum mr_type to, enum mr_dtype stored)
{
    return to == MR_TYPE_BF16 && stored != MR_BF16;
}

/* Rounding to nearest to 8 significant bits moves a number by at most 2^-8 of it; TF32 cuts 23
 * fraction bits to 10, by less than 2^-10. */
static double operand_error(const struct mr_arith *arith, enum mr_dtype hidden, enum mr_dtype gate)
{
    bool tf32 = arith->sum.leaf == MR_LEAF_MMA && arith->sum.mma->a == MR_MMA_TF32;
    double error[2] = {0, 0};
    const enum mr_dtype stored[2] = {hidden, gate};
    const enum mr_type rounded[2] = {arith->hidden, arith->gate};
    for (int i = 0; i < 2; i++) {
        if (may_round(rounded[i], stored[i])) error[i] = 0x1p-8;
        else if (tf32 && stored[i] == MR_F32 && rounded[i] != MR_TYPE_BF16) error[i] = 0x1p-10;
    }
    return error[0] + error[1] + error[0] * error[1];
}

static bool narrow(enum mr_type rounded, enum mr_dtype stored)
{
    return rounded == MR_TYPE_BF16 || stored == MR_BF16 || stored == MR_F16;
}

static size_t longest_part(const struct mr_plan *p)
{
    size_t most = 0;
    for (size_t i = 0; i < p->parts; i++)
        if (p->begin[i + 1] - p->begin[i] > most) most = p->begin[i + 1] - p->begin[i];
    return most;
}

static void tensor(const struct mr_mma *mma, const struct mr_plan *p, struct mr_sum *out)
{
    out->kind = MR_SUM_TENSOR;
    out->step = mma->terms;
    out->fraction = mma->fraction;
    out->result = mma->rounding == MR_MMA_RNE_FP16    ? MR_SUM_TO_FP16
                  : mma->rounding == MR_MMA_RZ_E8M13 ? MR_SUM_TO_13
                                                      : MR_SUM_TO_FP32;
    out->splits = p->parts ? (int)p->parts : 1;
    out->chain = longest_part(p);
    out->adds = p->steps;
    out->exact = true;
    if (mma->form != MR_MMA_BY_FP16) return;
    size_t steps = p->terms / 32 + p->parts; /* as many instructions at most */
    out->splits = (int)steps;
    out->adds += steps;
    out->chain = 32;
    out->fp16_adds = mma->rounding == MR_MMA_RNE_FP16;
}

enum mr_status mr_sum_of_arith(const struct mr_arith *arith, size_t terms, enum mr_dtype hidden,
                               enum mr_dtype gate, bool gate_bias, struct mr_sum *out,
                               struct mr_error *err)
{
    out->operands = operand_error(arith, hidden, gate);
    out->exact = narrow(arith->hidden, hidden) && narrow(arith->gate, gate);
    if (arith->sum.leaf == MR_LEAF_EXACT) return MR_OK;
    if (arith->sum.leaf == MR_LEAF_MMA && arith->sum.mma->scale_block)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "%s needs block scales: its error is not bounded",
                       arith->sum.mma->name);
    struct mr_plan plan;
    enum mr_status status = mr_plan_make(&arith->sum, terms, &plan, err);
    if (status) return status;
    if (arith->sum.leaf == MR_LEAF_MMA) {
        tensor(arith->sum.mma, &plan, out);
    } else {
        out->kind = MR_SUM_FP32;
        /* The first product of a part is rounded only if it is no binary32 number. */
        size_t depth = plan.depth + gate_bias - (out->exact && plan.depth ? 1 : 0);
        out->depth = depth > INT32_MAX ? INT32_MAX : (int)depth;
    }
    mr_plan_free(&plan);
    return MR_OK;
}
