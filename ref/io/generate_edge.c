#include "generate_edge.h"

#include <stdlib.h>
#include <string.h>

#include "generate_edge_rows.h"
#include "generate_rows.h"

#define SIGMOID(e, k, with_bias)                                                                  \
    {.experts = (e), .top_k = (k), .score = MR_SCORE_SIGMOID, .bias = (with_bias), .n_group = 1,  \
     .topk_group = 1, .norm_topk_prob = true, .routed_scaling_factor = 2.5}
#define SOFTMAX(e, k)                                                                             \
    {.experts = (e), .top_k = (k), .score = MR_SCORE_SOFTMAX, .n_group = 1, .topk_group = 1,      \
     .norm_topk_prob = true, .routed_scaling_factor = 1}
#define SOFTPLUS(e, k)                                                                            \
    {.experts = (e), .top_k = (k), .score = MR_SCORE_SQRT_SOFTPLUS, .bias = true, .n_group = 1,   \
     .topk_group = 1, .norm_topk_prob = true, .routed_scaling_factor = 1.5}
/* DeepSeek-V3's shape (HF configuration_deepseek_v3 @001f85b). */
#define GROUPED                                                                                   \
    {.experts = 256, .top_k = 8, .score = MR_SCORE_SIGMOID, .bias = true, .n_group = 8,           \
     .topk_group = 4, .group_score = MR_GROUP_TOP2_SUM, .norm_topk_prob = true,                   \
     .routed_scaling_factor = 2.5}

/* By name. Behind a class: reports and suspicions of the places named. */
static const struct mr_edge classes[] = {
    {"all-equal", "one logit in all experts: 0, -0, 1, -3.5, 16.75, -17, 90 or -200; layer 0: bias "
     "0, layer 1: bias 8 (vllm#54403, vllm#52679)",
     SIGMOID(128, 8, true), 2, 0, MR_EDGE_EQUAL_PATTERNS, 0, mr_edge_all_equal},
    {"all-negative", "all logits below 0, where padding of 0 beats them (flashinfer#2822)",
     SOFTMAX(128, 8), 1, 0, MR_EDGE_NEGATIVE_PATTERNS, 0, mr_edge_all_negative},
    {"bias-negative", "biases about -1.25 and -3 with groups: a mask of 0.0 beats every key "
     "(transformers#45440)",
     GROUPED, 2, 0, 4, 0, mr_edge_bias_negative},
    {"bias-offsets", "layers 0 to 4: biases about 0, 2, 8, 12 and 35 (sglang#37133, "
     "flashinfer#3875)",
     SIGMOID(128, 8, true), 5, 0, 4, 0, mr_edge_bias_offsets},
    {"experts-1024", "1024 experts", SIGMOID(1024, 8, true), 1, 0, 4, 0, mr_edge_plain},
    {"experts-odd", "100 experts: no multiple of 32 (vllm#32058)", SIGMOID(100, 8, true), 1, 0, 4,
     0, mr_edge_plain},
    {"group-top2-equal", "the two largest keys of a group are equal (SGLang's Triton router)",
     GROUPED, 2, 0, 31, 0, mr_edge_group_top2_equal},
    {"inf-columns", "experts whose logit is +Inf (layer 0: one) or -Inf (layer 1: all but top_k - "
     "1)",
     SOFTMAX(128, 8), 2, 0, 4, 0, mr_edge_inf_column},
    {"inf-rows", "every other token is +Inf (layer 0) or -Inf (layer 1), in all or half of it",
     SOFTMAX(128, 8), 2, 0, MR_EDGE_BAD_PATTERNS, 0, mr_edge_inf_rows},
    {"k-all", "top_k = experts", SIGMOID(16, 16, true), 1, 0, 4, 0, mr_edge_plain},
    {"k-one", "top_k = 1", SIGMOID(128, 1, true), 1, 0, 4, 0, mr_edge_plain},
    {"minus-zero", "logits of +0 and -0; layer 1: biases of both too", SIGMOID(128, 8, true), 2, 0,
     MR_EDGE_ZERO_PATTERNS, 0, mr_edge_minus_zero},
    {"nan-columns", "experts whose logit is NaN (layer 0: one, layer 1: all but top_k - 1)",
     SOFTMAX(128, 8), 2, 0, 4, 0, mr_edge_nan_column},
    {"nan-rows", "every other token is NaN, in all or half of it (vllm#39391)", SOFTMAX(128, 8), 1,
     0, MR_EDGE_BAD_PATTERNS, 0, mr_edge_nan_rows},
    {"near-tie", "the experts at the cut are one fp32 step of the logit apart",
     SIGMOID(384, 8, true), 2, 0, MR_EDGE_TIE_PATTERNS, 0, mr_edge_near_tie},
    {"no-tokens", "no token at all", SIGMOID(128, 8, true), 1, 0, 0, 0, mr_edge_plain},
    {"one-token", "one token", SIGMOID(128, 8, true), 1, 0, 1, 1, mr_edge_plain},
    {"saturated", "sigmoids that round to 1 and are not equal; layer 1: biases 2^-18 apart",
     SIGMOID(128, 8, true), 2, 0, MR_EDGE_SATURATED_PATTERNS, 0, mr_edge_saturated},
    {"sigmoid-tail", "logits from -14 to -200, where forms of the sigmoid are 0; layer 1: biases "
     "about 12 (flashinfer#3803)",
     SIGMOID(128, 8, true), 2, 0, MR_EDGE_TAIL_PATTERNS, 0, mr_edge_sigmoid_tail},
    {"softplus-tail", "logits from -200 to 200, where forms of sqrt(log(1 + exp)) are 0 or overflow"
     "; layer 1: biases about 8 (sglang#34459)",
     SOFTPLUS(128, 6), 2, 0, MR_EDGE_TAIL_PATTERNS, 0, mr_edge_softplus_tail},
    {"subnormal", "logits that are multiples of 2^-149, some of both signs", SIGMOID(128, 8, true),
     1, 0, MR_EDGE_SUBNORMAL_PATTERNS, 0, mr_edge_subnormal},
    {"tie-at-cut", "exact ties at the cut: of two experts 1, 2, 4 ... 256 apart, of all the rest, "
     "of all; layer 1: bias 8",
     SIGMOID(384, 8, true), 2, 0, MR_EDGE_TIE_PATTERNS, 0, mr_edge_tie_at_cut},
    {"tie-between-groups", "groups at the cut of groups hold the same keys", GROUPED, 2, 0,
     MR_EDGE_GROUP_PATTERNS, 0, mr_edge_tie_between_groups},
    {"tie-in-groups", "exact ties at the cut of experts, inside of the chosen groups", GROUPED, 2,
     0, MR_EDGE_GROUP_PATTERNS, 0, mr_edge_tie_in_groups},
    {"wide-stride", "60 experts in rows of 64 numbers, the last 4 of which are poison (vllm#57823)",
     SOFTMAX(60, 4), 1, 64, 4, 0, mr_edge_plain},
};

size_t mr_edge_count(void)
{
    return sizeof classes / sizeof *classes;
}

const struct mr_edge *mr_edge_at(size_t i)
{
    return &classes[i];
}

const struct mr_edge *mr_edge_find(const char *name)
{
    for (size_t i = 0; i < mr_edge_count(); i++)
        if (!strcmp(classes[i].name, name)) return &classes[i];
    return NULL;
}

void mr_edge_names(char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < mr_edge_count() && size; i++) {
        const char *piece[] = {i ? ", " : "", classes[i].name};
        for (int p = 0; p < 2; p++)
            for (const char *c = piece[p]; *c && used + 1 < size; c++) text[used++] = *c;
    }
    if (size) text[used] = '\0';
}

size_t mr_edge_least(const struct mr_edge *class, int level)
{
    if (class->most) return class->most < class->patterns ? class->most : class->patterns;
    /* 64 rows: beyond the small-batch paths of engines (16, 32 rows). */
    size_t many = 16 * class->patterns;
    return level < 2 || !class->patterns ? class->patterns : many < 64 ? 64 : many;
}

/* FNV-1a: a class's stream hangs on its name, not on its place in the table. */
static uint64_t name_hash(const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *name; name++) h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return h;
}

/* What lies between the rows must never be read: numbers that win every comparison, and NaN. */
static void poison(float *logits, size_t tokens, size_t experts, size_t stride)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t i = experts; i < stride; i++) {
            const uint32_t word = (t + i) % 2 ? UINT32_C(0x7fc00000) : UINT32_C(0x7149f2ca);
            memcpy(&logits[t * stride + i], &word, sizeof word); /* NaN, 1e30 */
        }
}

enum mr_status mr_edge_layer(const struct mr_edge *class, const struct mr_router *router,
                             uint64_t seed, int layer, size_t tokens, size_t stride, float *logits,
                             float *bias, struct mr_error *err)
{
    if (stride < (size_t)router->experts)
        return mr_fail(err, MR_ERR_VALUE, "gen: %s: expected a stride of at least %d, found %zu",
                       class->name, router->experts, stride);
    if (class->router.n_group > 1 &&
        (router->n_group < 2 || router->topk_group >= router->n_group ||
         router->experts / router->n_group < 2 || router->n_group > 1024))
        return mr_fail(err, MR_ERR_VALUE, "gen: %s: expected a router with groups of which some "
                       "are excluded, found n_group = %d, topk_group = %d", class->name,
                       router->n_group, router->topk_group);
    int *order = malloc((size_t)router->experts * sizeof *order);
    if (!order)
        return mr_fail(err, MR_ERR_MEMORY, "gen: no memory to order %d experts", router->experts);
    struct mr_edge_job job = {.router = router,
                              .key = mr_generate_key(mr_generate_key(seed, name_hash(class->name)),
                                                     (uint64_t)layer),
                              .layer = layer,
                              .tokens = tokens,
                              .stride = stride,
                              .logits = logits,
                              .bias = bias,
                              .order = order};
    class->fill(&job);
    poison(logits, tokens, (size_t)router->experts, stride);
    free(order);
    return MR_OK;
}
