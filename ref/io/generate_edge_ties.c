/* Classes of ties: equal numbers where the router has to choose. */
#include <math.h>

#include "generate_edge_rows.h"
#include "generate_rows.h"

static void no_bias(const struct mr_edge_job *job)
{
    /* Equal biases keep equal logits equal; 8 leaves few bits of the score in the key. */
    for (int e = 0; job->bias && e < job->router->experts; e++)
        job->bias[e] = job->layer ? 8.0f : 0.0f;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* order[0 .. count): candidates, best first. `above` of them high, `tied` at one value, the others
 * low; the bands do not touch. near: the tied ones one fp32 step apart instead. */
static void fill_tied(uint64_t key, const int *order, int count, int above, int tied, bool near,
                      float *logits)
{
    float value = 0.25f + 0.125f * (float)mr_edge_below(key, 3000000, 4), step = value;
    for (int i = 0; i < count; i++) {
        float u = mr_edge_uniform(key, 4000000 + (uint64_t)i);
        if (i < above) logits[order[i]] = 1 + 2 * u;
        else if (i >= above + tied) logits[order[i]] = -1 - 2 * u;
        else logits[order[i]] = near ? step : value;
        if (near && i >= above) step = nextafterf(step, 1);
    }
}

/* Puts the second of two tied experts a power of two from the first: lanes of one warp, warps of
 * one block, where a reduction that does not say which of two equals wins lets the place decide. */
static void pair_by_distance(int *order, int count, int at, int distance)
{
    int first = order[at], second = first ^ distance;
    if (second >= count || at + 1 >= count) return;
    int where = 0;
    while (order[where] != second) where++;
    if (where < at) return; /* it is one of those above: a tie of two others remains */
    order[where] = order[at + 1];
    order[at + 1] = second;
}

static void tie_at_cut(const struct mr_edge_job *job, bool near)
{
    int experts = job->router->experts, k = job->router->top_k;
    no_bias(job);
    for (size_t t = 0; t < job->tokens; t++) {
        uint64_t key = mr_edge_row_key(job, t);
        int pattern = (int)(t % MR_EDGE_TIE_PATTERNS);
        int slots = 1, tied = 2; /* one slot for two */
        if (pattern == 9) tied = experts - k + 1;   /* all below the cut are tied */
        if (pattern == 10) slots = k, tied = k + 1; /* nobody is above */
        if (pattern == 11) slots = 1 + (int)mr_edge_below(key, 1, (uint64_t)k), tied = slots + 3;
        mr_edge_shuffle(mr_generate_key(key, 1), job->order, experts);
        if (pattern < 9) pair_by_distance(job->order, experts, k - 1, 1 << pattern);
        fill_tied(key, job->order, experts, k - slots, least(tied, experts - k + slots), near,
                  job->logits + t * job->stride);
    }
}

void mr_edge_tie_at_cut(const struct mr_edge_job *job)
{
    tie_at_cut(job, false);
}

void mr_edge_near_tie(const struct mr_edge_job *job)
{
    tie_at_cut(job, true);
}

static int per_group(const struct mr_edge_job *job)
{
    return job->router->experts / job->router->n_group;
}

/* All experts of a group around a level, all different (by bits of its key). */
static void fill_group(const struct mr_edge_job *job, uint64_t key, int group, float level,
                       float *logits)
{
    int n = per_group(job);
    for (int i = 0; i < n; i++)
        logits[group * n + i] = level - mr_edge_uniform(key, (uint64_t)(group * n + i));
}

/* The groups are plain: topk_group of them lie high. The tie is between experts, inside of them. */
void mr_edge_tie_in_groups(const struct mr_edge_job *job)
{
    int n = per_group(job), k = job->router->top_k, chosen = job->router->topk_group;
    no_bias(job);
    for (size_t t = 0; t < job->tokens; t++) {
        uint64_t key = mr_edge_row_key(job, t);
        float *logits = job->logits + t * job->stride;
        int *order = job->order, groups = job->router->n_group;
        mr_edge_shuffle(mr_generate_key(key, 1), order, groups);
        for (int g = chosen; g < groups; g++) fill_group(job, key, order[g], -5, logits);
        /* Candidates: the experts of the chosen groups, in a random order. order is overwritten. */
        uint64_t is_chosen[16] = {0};
        for (int g = 0; g < chosen; g++)
            is_chosen[order[g] / 64] |= UINT64_C(1) << (order[g] % 64);
        mr_edge_shuffle(mr_generate_key(key, 2), order, job->router->experts);
        int count = 0;
        for (int i = 0; i < job->router->experts; i++) {
            int g = order[i] / n;
            if (is_chosen[g / 64] >> (g % 64) & 1) order[count++] = order[i];
        }
        int slots = 1 + (int)(t % MR_EDGE_GROUP_PATTERNS) % k, tied = slots + 1 + (int)(t % 2);
        fill_tied(key, order, count, k - slots, least(tied, count - k + slots), false, logits);
    }
}

/* Groups at the cut hold the same numbers in different places, or the same two largest ones. */
void mr_edge_tie_between_groups(const struct mr_edge_job *job)
{
    int n = per_group(job), groups = job->router->n_group, chosen = job->router->topk_group;
    no_bias(job);
    for (size_t t = 0; t < job->tokens; t++) {
        uint64_t key = mr_edge_row_key(job, t);
        float *logits = job->logits + t * job->stride;
        int pattern = (int)(t % MR_EDGE_GROUP_PATTERNS);
        int slots = 1 + pattern % 3, tied = slots + 1 + pattern / 3;
        slots = least(slots, chosen);
        tied = least(tied, groups - chosen + slots);
        mr_edge_shuffle(mr_generate_key(key, 1), job->order, groups);
        for (int g = 0; g < groups; g++) {
            int group = job->order[g];
            if (g < chosen - slots || g >= chosen - slots + tied) {
                fill_group(job, key, group, g < chosen - slots ? 4 : -3, logits);
                continue;
            }
            int turn = (int)mr_edge_below(key, 5000000 + (uint64_t)group, (uint64_t)n);
            for (int i = 0; i < n; i++) { /* the same values, turned */
                bool kept = pattern % 2 == 0 || i < 2;
                float low = mr_edge_uniform(key, 6000000 + (uint64_t)(kept ? i : group * n + i));
                logits[group * n + (i + turn) % n] = i < 2 ? 1.5f - 0.25f * (float)i : -low;
            }
        }
    }
}

/* One group A whose two largest are equal; topk_group others whose top-2 sum lies between what A
 * has and what A has if its second largest is taken from strictly below its largest. */
void mr_edge_group_top2_equal(const struct mr_edge_job *job)
{
    int n = per_group(job), groups = job->router->n_group, chosen = job->router->topk_group;
    no_bias(job);
    for (size_t t = 0; t < job->tokens; t++) {
        uint64_t key = mr_edge_row_key(job, t);
        float *logits = job->logits + t * job->stride;
        mr_edge_shuffle(mr_generate_key(key, 1), job->order, groups);
        for (int g = 0; g < groups; g++) {
            int group = job->order[g];
            fill_group(job, key, group, g == 0 || g > chosen ? -2 : -0.5f, logits);
            if (g > chosen) continue;
            int first = (int)mr_edge_below(key, 7000000 + (uint64_t)group, (uint64_t)n);
            int second = (first + 1 + (int)(t % (size_t)(n > 1 ? n - 1 : 1))) % n;
            float u = mr_edge_uniform(key, 8000000 + (uint64_t)group);
            /* sigmoid: A has 0.9 + 0.9, the others about 0.6 + 0.6, A misread 0.9 + 0.12. */
            logits[group * n + first] = g == 0 ? 2.1875f : 0.5f + 0.0625f * u;
            logits[group * n + second] = g == 0 ? 2.1875f : 0.40625f + 0.0625f * u;
        }
    }
}
