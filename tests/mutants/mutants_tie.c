/* Faults where keys are equal, or nearly so. */
#include <math.h>

#include "plain.h"

/* vllm#55514: top-k without the promise of an order; the next run may give another. */
static void last_first(float *keys, int experts, int k, int32_t *ids)
{
    plain_select(keys, experts, k, ids);
    for (int i = 0, j = k - 1; i < j; i++, j--) {
        int32_t other = ids[i];
        ids[i] = ids[j];
        ids[j] = other;
    }
}

void mutant_unsorted(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                     float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.select = last_first;
    plain_run(&p, in, ids, weights);
}

/* vllm#54403, #52679: among equals any expert may be taken, and the test's reference takes another
 * than the kernel. */
static void highest_of_equals(float *keys, int experts, int k, int32_t *ids)
{
    float turned[1024];
    for (int e = 0; e < experts; e++) turned[e] = keys[experts - 1 - e];
    plain_select(turned, experts, k, ids);
    for (int i = 0; i < k; i++) ids[i] = experts - 1 - ids[i];
}

void mutant_highest_tie(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                        float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.select = highest_of_equals;
    plain_run(&p, in, ids, weights);
}

/* lanes[i] = index of the larger of lanes i and i + distance, the own one among equals. */
static int tree(const float *keys, const int *candidates, int count)
{
    int lane[32];
    for (int i = 0; i < 32; i++) lane[i] = i < count ? candidates[i] : -1;
    for (int distance = 16; distance > 0; distance /= 2)
        for (int i = 0; i + distance < 32; i++) {
            int other = lane[i + distance];
            if (other >= 0 && (lane[i] < 0 || keys[other] > keys[lane[i]])) lane[i] = other;
        }
    return lane[0];
}

/* A suspicion of SGLang's gates @4b74e60 and @0470ac6: up to 512 rows a warp's best is found by a
 * shuffle-down tree in which the own expert wins among equals, so experts 8 and 16 give 16; above
 * 512 rows the lowest id wins. run 0 and run 1: few rows, many rows. */
static void by_trees(float *keys, int experts, int k, int32_t *ids)
{
    for (int slot = 0; slot < k; slot++) {
        int warp[32], warps = 0;
        for (int first = 0; first < experts; first += 32, warps++) {
            int lanes[32], n = experts - first < 32 ? experts - first : 32;
            for (int i = 0; i < n; i++) lanes[i] = first + i;
            warp[warps] = tree(keys, lanes, n);
        }
        ids[slot] = tree(keys, warp, warps);
        keys[ids[slot]] = -INFINITY;
    }
}

void mutant_tree_of_small_rows(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                               float *weights)
{
    struct plain p = plain_new(in->router);
    if (!repaired && run == 0) p.select = by_trees;
    plain_run(&p, in, ids, weights);
}

/* A suspicion of SGLang's Triton router: the second of a group is the largest strictly below the
 * first. */
static float first_and_below(const float *keys, int n)
{
    float first = -INFINITY, below = -INFINITY;
    for (int i = 0; i < n; i++) first = keys[i] > first ? keys[i] : first;
    for (int i = 0; i < n; i++)
        if (keys[i] < first && keys[i] > below) below = keys[i];
    return first + below;
}

void mutant_strictly_below(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                           float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.group = first_and_below;
    plain_run(&p, in, ids, weights);
}

/* sglang#31768 (review): equals are parted by 3e-7 * id, and so are keys that are not equal. */
static float less_by_id(float key, int expert)
{
    return key - 3e-7f * (float)expert;
}

void mutant_epsilon_by_id(const struct mutant_input *in, bool repaired, int run, int32_t *ids,
                          float *weights)
{
    (void)run;
    struct plain p = plain_new(in->router);
    if (!repaired) p.key = less_by_id;
    plain_run(&p, in, ids, weights);
}
