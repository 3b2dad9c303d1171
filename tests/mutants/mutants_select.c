/* Faults of the selection: who is a candidate, and who is taken out. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plain.h"

/* vllm#39391, #39593, #37758, #39244: no comparison with a NaN is true, so the first expert stands,
 * and overwriting its key takes nothing out. */
static void argmax_again(float *keys, int experts, int k, int32_t *ids)
{
    for (int slot = 0; slot < k; slot++) {
        int best = 0;
        float most = -FLT_MAX;
        for (int e = 0; e < experts; e++)
            if (keys[e] > most) {
                most = keys[e];
                best = e;
            }
        keys[best] = -10000;
        ids[slot] = best;
    }
}

void mutant_nan_again(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                      float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.select = argmax_again;
    plain_run(&p, in, ids, weights);
}

/* flashinfer#2822, vllm#37605, #38859: the largest of a lane's experts (lane, lane + 32, ...) is
 * looked for from 0 on, so that lanes of negative logits offer their first expert with logit 0. */
static void lanes_from_zero(float *keys, int experts, int k, int32_t *ids)
{
    bool spent[32] = {false}; /* a lane that has offered its padding has nothing else to offer */
    for (int slot = 0; slot < k; slot++) {
        float most = -1;
        int expert = 0, from = 0;
        for (int lane = 0; lane < 32; lane++) {
            float here = 0;
            int which = lane;
            for (int e = lane; e < experts; e += 32)
                if (keys[e] > here) {
                    here = keys[e];
                    which = e;
                }
            if ((here == 0 && spent[lane]) || here <= most) continue;
            most = here;
            expert = which;
            from = lane;
        }
        spent[from] |= most == 0;
        ids[slot] = expert;
        keys[expert] = -FLT_MAX;
    }
}

void mutant_padding_zero(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                         float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.select = lanes_from_zero;
    plain_run(&p, in, ids, weights);
}

/* flashinfer#3224: warps of 128 experts put their k best into 8 shared slots each; the slots from k
 * on hold what the last kernel left there, and are read as candidates. */
static void merged_slots(float *keys, int experts, int k, int32_t *ids, bool cleared)
{
    enum { WARP = 128, SLOTS = 8, MOST = 1024 / WARP * SLOTS };
    float value[MOST];
    int32_t expert[MOST];
    int count = 0;
    for (int first = 0; first < experts; first += WARP) {
        int n = experts - first < WARP ? experts - first : WARP;
        int32_t best[SLOTS];
        plain_select(keys + first, n, k, best);
        for (int slot = 0; slot < SLOTS; slot++, count++) {
            bool filled = slot < k;
            expert[count] = filled ? first + best[slot] : first + slot;
            /* Left behind: keys of another layer, with a larger bias. */
            value[count] = filled ? keys[first + best[slot]] : cleared ? -INFINITY : 9.5f;
        }
    }
    plain_select(value, count, k, ids);
    for (int slot = 0; slot < k; slot++) ids[slot] = expert[ids[slot]];
}

static void stale(float *keys, int experts, int k, int32_t *ids)
{
    merged_slots(keys, experts, k, ids, false);
}

static void cleared(float *keys, int experts, int k, int32_t *ids)
{
    merged_slots(keys, experts, k, ids, true);
}

void mutant_stale_slots(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                        float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    p.select = repaired ? cleared : stale;
    plain_run(&p, in, ids, weights);
}

/* transformers#45440, sglang#3705, vllm#13474, DeepSeek-V3#741: excluded experts get key 0.0, which
 * beats every negative key. */
void mutant_mask_zero(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                      float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.mask = 0;
    plain_run(&p, in, ids, weights);
}

/* vllm#32058 (review): lanes beyond the experts of a group offer (-Inf, expert 0). Among candidates
 * that are all -Inf they win by their id. */
static void lanes_of_minus_inf(float *keys, int experts, int k, int32_t *ids)
{
    for (int slot = 0; slot < k; slot++) {
        int best = 0; /* the padding lane's offer */
        float most = -INFINITY;
        for (int e = 0; e < experts; e++)
            if (keys[e] > most) {
                most = keys[e];
                best = e;
            }
        ids[slot] = best;
        keys[best] = -INFINITY;
    }
}

void mutant_padded_lane(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                        float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.select = lanes_of_minus_inf;
    plain_run(&p, in, ids, weights);
}

/* vllm-omni#7175 (review): the winner's key is set to -Inf; where the rest is -Inf as well, the
 * largest of all is the first again. */
static void winner_to_minus_inf(float *keys, int experts, int k, int32_t *ids)
{
    for (int slot = 0; slot < k; slot++) {
        int best = 0;
        for (int e = 1; e < experts; e++)
            if (keys[e] > keys[best]) best = e;
        ids[slot] = best;
        keys[best] = -INFINITY;
    }
}

void mutant_winner_minus_inf(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                             float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.select = winner_to_minus_inf;
    plain_run(&p, in, ids, weights);
}

/* A suspicion of vLLM's moeTopKFuncs.cuh: for 10 of 512 (16 a lane) the last 128 experts are merged
 * with the others by their best 8 alone. No caller of today asks for that shape. */
static void best_eight_of_last(float *keys, int experts, int k, int32_t *ids)
{
    if (experts == 512 && k > 8) {
        int32_t best[8];
        float kept[8];
        plain_select(keys + 384, 128, 8, best);
        for (int i = 0; i < 8; i++) kept[i] = keys[384 + best[i]];
        for (int e = 384; e < 512; e++) keys[e] = -INFINITY;
        for (int i = 0; i < 8; i++) keys[384 + best[i]] = kept[i];
    }
    plain_select(keys, experts, k, ids);
}

void mutant_lost_ranks(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                       float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.select = best_eight_of_last;
    plain_run(&p, in, ids, weights);
}

/* sglang#29605: row * experts overflows its type. There 32 bits and 8.4 million rows of 256; here
 * 16 bits and 65 rows of 1024, so that a case fits in a file. */
void mutant_index_16(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                     float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    size_t k = (size_t)in->router->top_k, experts = (size_t)in->router->experts;
    for (size_t t = 0; t < in->tokens; t++) {
        size_t at = t * experts;
        if (!repaired) at = (uint16_t)at;
        plain_token(&p, in->logits + at, in->bias, ids + t * k, weights + t * k);
    }
}
