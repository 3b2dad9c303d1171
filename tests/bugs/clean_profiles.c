#include "clean_profiles.h"

#include <stdlib.h>

#include "../../ref/arith/cuda.h"
#include "../../ref/route/profile_emulate.h"

size_t clean_profile_count(void)
{
    size_t n = 0;
    while (mr_profile_at(n)) n++;
    return n;
}

/* Cells that are reported or suspected faults, and have bug cases of their own: a judge that let
 * them pass would be worthless. */
static bool at_fault(const struct mr_profile_row *row, const struct mr_router *router,
                     size_t tokens)
{
    const struct mr_cell_value *c = row->cell;
    bool scaled = router->routed_scaling_factor != 1;
    bool block = router->experts > 768 || (router->experts >= 256 && tokens <= 1024);
    return c[MR_CELL_WEIGHT].value == MR_WEIGHT_KEY_MINUS_BIAS || /* 8c */
           (c[MR_CELL_WEIGHT].value == MR_WEIGHT_BY_ROWS && !block) ||
           c[MR_CELL_GROUP].value == MR_PGROUP_TOP1_BELOW ||      /* 8b */
           (router->bias && c[MR_CELL_MASK].value == MR_MASK_ZERO) || /* 9 */
           (router->norm_topk_prob && c[MR_CELL_GUARD].value == MR_GUARD_NEVER) ||
           (scaled && !router->norm_topk_prob && !mr_profile_scales(row)); /* 8f */
}

bool clean_profile(size_t i, const struct mr_router *router, size_t tokens, const float *logits,
                   const float *bias, int32_t *ids, float *weights, struct clean_profile *out)
{
    const struct mr_profile *profile = mr_profile_at(i);
    const struct mr_profile_row *row;
    struct mr_profile_scratch scratch;
    if (mr_profile_row(profile, router, false, &row, NULL) || at_fault(row, router, tokens))
        return false;
    const struct mr_cell_value *c = row->cell;
    *out = (struct clean_profile){.name = profile->name, .ordered = mr_profile_promises_order(row)};
    /* tanh.approx errs by more than fp32 roundings do: the kernel's adapter declares it. */
    if (c[MR_CELL_SCORE].value == MR_FORM_SIGMOID_TANH_FAST)
        out->arith.score = 1 + MR_CUDA_SIGMOID_TANHF_FAST;
    if (c[MR_CELL_BIAS].value == MR_PROFILE_BF16) out->arith.bias = MR_TYPE_BF16;
    if (c[MR_CELL_SCORE_TYPE].value == MR_PROFILE_BF16) out->arith.scores = MR_TYPE_BF16;
    if (c[MR_CELL_OUTPUT].value == MR_PROFILE_BF16) out->arith.weights = MR_TYPE_BF16;
    if (mr_profile_scratch_new(router->experts, &scratch)) abort();
    size_t experts = (size_t)router->experts, k = (size_t)router->top_k;
    struct mr_profile_batch batch = {tokens, MR_TYPE_FP32};
    for (size_t t = 0; t < tokens; t++)
        mr_profile_emulate(row, router, &batch, logits + t * experts, bias, &scratch, ids + t * k,
                           weights + t * k, NULL);
    for (size_t at = 0; !mr_profile_scales(row) && at < tokens * k; at++)
        weights[at] *= (float)router->routed_scaling_factor;
    mr_profile_scratch_free(&scratch);
    return true;
}
