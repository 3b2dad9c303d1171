/* From a router's answer to the ids and weights that a layer's experts are called with: shared
 * experts as extra slots, padding tokens, maps of ids. Pure functions on arrays [tokens, slots],
 * row major. Origins: SGLang python/sglang/srt/layers/moe/topk.py@000328a and hash_topk.py@02b3581;
 * vLLM fused_moe/router/fused_topk_bias_router.py@0263839 and base_router.py@0391987; FlashInfer
 * fb28d72. */
#ifndef MOEREF_SLOTS_H
#define MOEREF_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../status.h"

/* How an engine appends shared experts. E experts, n shared ones, f = routed_scaling_factor:
 *                  slots  ids          shared weight            routed weights carry f
 *   SGLang         1      E + offset   1/f, or 1 if on output   if on output
 *   FlashInfer     n      E .. E+n-1   1                        yes
 *   hash_topk      1      E            1/f                      no
 *   vLLM           n      E .. E+n-1   shared_expert_weight     yes
 * SGLang's is (sum of the routed weights) / f, which normalisation divides by that sum: without
 * norm_topk_prob it stays, and f is then never applied on output (nested under renormalize). Its
 * offset into n > 1 shared experts is drawn at random for each token. FlashInfer: DeepSeekV3
 * routing with n_group > 1; other methods refuse. hash_topk: SGLang's and FlashInfer's, hash
 * layers. */
enum mr_shared_rule {
    MR_SHARED_SGLANG,
    MR_SHARED_FLASHINFER,
    MR_SHARED_HASH_TOPK,
    MR_SHARED_VLLM,
    MR_SHARED_RULE_COUNT
};
const char *mr_shared_rule_name(enum mr_shared_rule rule);

struct mr_shared {
    enum mr_shared_rule rule;
    int experts, count;           /* E, n >= 1 */
    bool norm_topk_prob;          /* the routed weights sum to 1 before the factor */
    double routed_scaling_factor; /* f, finite and not 0 */
    bool on_output;               /* SGLang: apply_routed_scaling_factor_on_output */
    double shared_expert_weight;  /* vLLM */
    const int *offset;            /* SGLang, [tokens], each from 0 to n - 1; NULL: all 0 */
};

/* Slots that the rule appends; 0 for a rule that is none. */
int mr_shared_slots(const struct mr_shared *shared);

/* ids and weights [tokens, top_k], the weights without the factor (a router whose factor is 1), to
 * out_ids and out_weights [tokens, top_k + slots]. MR_ERR_VALUE names the figure out of range. */
enum mr_status mr_append_shared(const struct mr_shared *shared, size_t tokens, int top_k,
                                const int32_t *ids, const double *weights, int32_t *out_ids,
                                double *out_weights, struct mr_error *err);

/* What becomes of tokens from num_token_non_padded on. */
enum mr_padding {
    MR_PADDING_NONE,
    MR_PADDING_IDS,     /* ids -1, weights left: SGLang on CUDA */
    MR_PADDING_WEIGHTS, /* weights 0, ids left: SGLang on HIP */
    MR_PADDING_BOTH     /* ids -1, weights 0: vLLM with VLLM_MOE_SKIP_PADDING */
};
/* weights may be NULL. real > tokens: all are real. */
void mr_pad_tokens(enum mr_padding padding, size_t tokens, size_t real, int slots, int32_t *ids,
                   double *weights);

/* ids[i] = map[ids[i]] for count ids; -1 stays -1 and never indexes. map [length] is a static
 * logical-to-physical table (entries from 0 to limit - 1) or, with absent true, an expert_map of
 * expert parallelism, global to local, where -1 is an expert that is not here. MR_ERR_VALUE names
 * the first id or entry out of range, and ids are as they were. */
enum mr_status mr_map_ids(const int32_t *map, int length, int limit, bool absent, size_t count,
                          int32_t *ids, struct mr_error *err);

/* The expert_map of a rank that holds experts first .. first + count - 1 (FlashInfer's
 * local_expert_offset, vLLM's linear placement): map[e] = e - first there, -1 elsewhere. */
enum mr_status mr_expert_map(int experts, int first, int count, int32_t *map, struct mr_error *err);

/* Logical-to-physical map and padding, in one order or the other. SGLang maps, then pads: its map
 * meets the ids that the router gave padding tokens, which may be anything; here those are mapped
 * only if they are in range. Padding first would hand -1 to the map, which must not index with it.
 * Done right both give the same ids and weights. */
struct mr_placement {
    const int32_t *map; /* [logical]; NULL: no map */
    int logical, physical;
    enum mr_padding padding;
    size_t real; /* num_token_non_padded */
    bool pad_first;
};
enum mr_status mr_place_tokens(const struct mr_placement *placement, size_t tokens, int slots,
                               int32_t *ids, double *weights, struct mr_error *err);

#endif
