/* Top-k of one row by one block: a radix select over 8-bit digits of the rank keys, which order as
 * score + bias does (rank.h). From the top digit down, the block counts how many keys of those that
 * share the digits so far have each digit; the digit at which the count from above reaches top_k is
 * that of the last key to be selected, and what lies above it is selected for sure. After four
 * digits, or as soon as a whole bin fits, all keys from the threshold on are candidates: top_k of
 * them, and more only if keys are equal. Each candidate's slot is the number of candidates that go
 * before it (a larger key, or an equal one of a lower id); slots from top_k on are dropped. Counts
 * do not depend on the order of threads, so neither do slots.
 *
 * Every operation on scores and weights, and its order, is that of select.cuh: ids and weights are
 * those of fused_topk, bit for bit.
 *
 * A second block a row rounds the columns behind the experts to bf16. */
#ifndef MOEREF_RADIX_CUH
#define MOEREF_RADIX_CUH

#include "select.cuh"

#define RADIX_THREADS 256
#define RADIX_WARPS   (RADIX_THREADS / 32)
#define RADIX_SLOTS   (MOST_EXPERTS / RADIX_THREADS) /* expert e: thread e mod 256, slot e / 256 */

struct radix_in {
    const float *merged; /* [rows, columns], the logits first */
    size_t columns;
    const float *bias, *gate_bias;
};
struct radix_out {
    float *logits; /* [rows, experts] or NULL */
    int32_t *ids;
    float *weights;
    uint16_t *rest; /* bf16 [rows, columns - experts]; NULL: no second block */
};

struct radix_shared {
    uint32_t rank[MOST_EXPERTS]; /* of experts, if there are groups; then of candidates */
    float value[MOST_EXPERTS];   /* exponentials of a softmax; then scores of candidates */
    int id[MOST_EXPERTS];        /* of candidates */
    float chosen[MOST_EXPERTS];  /* scores by slot */
    int count[256], total[RADIX_WARPS], candidates;
    float most[RADIX_WARPS];
    uint32_t group[MOST_GROUPS];
    int digit, left, whole; /* of the threshold; keys still wanted in its bin; is that all of it? */
};

/* As softmax_scores of select.cuh: each lane adds its exponentials by ascending expert, then lanes
 * by xor 16, 8, 4, 2, 1; every warp does it, for all. */
__device__ static inline void radix_softmax(int experts, float (&x)[RADIX_SLOTS],
                                            struct radix_shared *s)
{
    int t = (int)threadIdx.x;
    float most = x[0], sum = 0.0f;
#pragma unroll
    for (int i = 1; i < RADIX_SLOTS; i++) most = fmaxf(most, x[i]);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) most = fmaxf(most, shuffle_xor(most, d));
    if (warp_lane() == 0) s->most[t / 32] = most;
    sync_block();
#pragma unroll
    for (int w = 0; w < RADIX_WARPS; w++) most = fmaxf(most, s->most[w]);
#pragma unroll
    for (int i = 0; i < RADIX_SLOTS; i++) {
        x[i] = exponential(x[i] - most);
        s->value[i * RADIX_THREADS + t] = x[i];
    }
    sync_block();
    for (int e = warp_lane(); e < experts; e += 32) sum = plus(sum, s->value[e]);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum = plus(sum, shuffle_xor(sum, d));
#pragma unroll
    for (int i = 0; i < RADIX_SLOTS; i++) x[i] = x[i] / sum;
}

/* A warp a group, in turn; then every warp chooses groups, alike. As keep_groups of select.cuh. */
__device__ static inline void radix_groups(const struct routing &r, uint32_t (&rank)[RADIX_SLOTS],
                                           struct radix_shared *s)
{
    const uint32_t least = mr_rank(0xff800000u);
    int t = (int)threadIdx.x, lane = warp_lane();
    uint32_t stays = 0;
#pragma unroll
    for (int i = 0; i < RADIX_SLOTS; i++) s->rank[i * RADIX_THREADS + t] = rank[i];
    sync_block();
    for (int g = t / 32; g < r.n_group; g += RADIX_WARPS) {
        uint32_t first = least, second = least;
        for (int e = g * r.group_experts + lane; e < (g + 1) * r.group_experts; e += 32) {
            second = max(second, min(first, s->rank[e]));
            first = max(first, s->rank[e]);
        }
        uint32_t largest = warp_max(first);
        float value = ranked_value(largest);
        if (!r.group_by_max) {
            uint32_t who = warp_min(first == largest ? (uint32_t)lane : ~0u);
            value = plus(value, ranked_value(warp_max((uint32_t)lane == who ? second : first)));
        }
        if (lane == 0) s->group[g] = mr_rank(__float_as_uint(value));
    }
    sync_block();
    uint32_t group = lane < r.n_group ? s->group[lane] : MR_RANK_NONE;
    for (int j = 0; j < r.topk_group; j++) {
        uint32_t most = warp_max(group);
        uint32_t who = warp_min(group == most ? (uint32_t)lane : ~0u);
        stays |= 1u << who;
        if ((uint32_t)lane == who) group = MR_RANK_NONE;
    }
#pragma unroll
    for (int i = 0; i < RADIX_SLOTS; i++) {
        int e = i * RADIX_THREADS + t;
        if (e < r.experts && !(stays >> (e / r.group_experts) & 1)) rank[i] = MR_RANK_NONE;
    }
}

/* Keys whose bits under *mask are at least the result's are the candidates. */
__device__ static inline uint32_t radix_threshold(int top_k, const uint32_t (&rank)[RADIX_SLOTS],
                                                  uint32_t *mask, struct radix_shared *s)
{
    int t = (int)threadIdx.x, left = top_k;
    uint32_t prefix = 0;
    *mask = 0;
#pragma unroll 1
    for (int shift = 24; shift >= 0; shift -= 8) {
        s->count[t] = 0;
        sync_block();
#pragma unroll
        for (int i = 0; i < RADIX_SLOTS; i++)
            if (rank[i] != MR_RANK_NONE && (rank[i] & *mask) == prefix)
                atomicAdd(&s->count[255 - (rank[i] >> shift & 255)], 1);
        sync_block();
        int mine = s->count[t], above = warp_prefix(mine); /* digits from 255 - t on */
        if (warp_lane() == 31) s->total[t / 32] = above;
        sync_block();
#pragma unroll
        for (int w = 0; w < RADIX_WARPS - 1; w++) above += w < t / 32 ? s->total[w] : 0;
        if (above >= left && above - mine < left) {
            s->digit = 255 - t;
            s->left = left - (above - mine);
            s->whole = above == left;
        }
        sync_block();
        prefix |= (uint32_t)s->digit << shift;
        *mask |= 255u << shift;
        left = s->left;
        if (s->whole) break;
    }
    return prefix;
}

/* Scores of the selected to s->chosen, by slot. */
__device__ static inline void radix_select(const struct routing &r,
                                           const uint32_t (&rank)[RADIX_SLOTS],
                                           const float (&score)[RADIX_SLOTS], int32_t *ids,
                                           struct radix_shared *s)
{
    int t = (int)threadIdx.x;
    uint32_t mask, threshold = radix_threshold(r.top_k, rank, &mask, s);
#pragma unroll
    for (int i = 0; i < RADIX_SLOTS; i++) {
        if (rank[i] == MR_RANK_NONE || (rank[i] & mask) < threshold) continue;
        int at = atomicAdd(&s->candidates, 1);
        s->rank[at] = rank[i];
        s->value[at] = score[i];
        s->id[at] = i * RADIX_THREADS + t;
    }
    sync_block();
    for (int c = t; c < s->candidates; c += RADIX_THREADS) {
        uint32_t key = s->rank[c];
        int id = s->id[c], slot = 0;
        for (int o = 0; o < s->candidates; o++)
            slot += s->rank[o] > key || (s->rank[o] == key && s->id[o] < id);
        if (slot >= r.top_k) continue;
        ids[slot] = id;
        s->chosen[slot] = s->value[c];
    }
    sync_block();
}

__device__ static inline void radix_weights(const struct routing &r, float *weights,
                                            struct radix_shared *s)
{
    int t = (int)threadIdx.x;
    bool softmax = r.by_logit && r.score == MR_KERNEL_SOFTMAX;
    if (softmax) {
        float first = s->chosen[0];
        sync_block();
        for (int j = t; j < r.top_k; j += RADIX_THREADS)
            s->chosen[j] = exponential(s->chosen[j] - first);
        sync_block();
    }
    if (t >= r.top_k) return;
    float sum = 0.0f;
    for (int j = 0; j < r.top_k; j++) sum = plus(sum, s->chosen[j]);
    for (int j = t; j < r.top_k; j += RADIX_THREADS)
        weights[j] = softmax ? s->chosen[j] / sum * r.scale
                             : mr_weight(s->chosen[j], sum, r.normalise, r.scale);
}

__device__ static inline void radix_row(const struct routing &r, const struct radix_in &in,
                                        const struct radix_out &out, struct radix_shared *s)
{
    int t = (int)threadIdx.x;
    size_t row = blockIdx.x;
    float x[RADIX_SLOTS], bias[RADIX_SLOTS];
    uint32_t rank[RADIX_SLOTS];
#pragma unroll
    for (int i = 0; i < RADIX_SLOTS; i++) {
        int e = i * RADIX_THREADS + t;
        bias[i] = in.bias && e < r.experts ? in.bias[e] : 0.0f;
    }
    if (t == 0) s->candidates = 0;
    wait_for_producers();
#pragma unroll
    for (int i = 0; i < RADIX_SLOTS; i++) {
        int e = i * RADIX_THREADS + t;
        x[i] = __uint_as_float(0xff800000u);
        rank[i] = MR_RANK_NONE;
        if (e >= r.experts) continue;
        x[i] = in.merged[row * in.columns + (size_t)e];
        if (in.gate_bias) x[i] = x[i] + in.gate_bias[e];
        if (out.logits) out.logits[row * (size_t)r.experts + (size_t)e] = x[i];
        rank[i] = mr_rank(__float_as_uint(x[i]));
    }
    if (r.score == MR_KERNEL_SIGMOID) {
#pragma unroll
        for (int i = 0; i < RADIX_SLOTS; i++) x[i] = sigmoid_score(x[i]);
    } else if (r.score == MR_KERNEL_SQRT_SOFTPLUS) {
#pragma unroll
        for (int i = 0; i < RADIX_SLOTS; i++) x[i] = sqrt_softplus_score(x[i]);
    } else if (!r.by_logit) {
        radix_softmax(r.experts, x, s);
    }
    if (!r.by_logit) {
#pragma unroll
        for (int i = 0; i < RADIX_SLOTS; i++)
            if (i * RADIX_THREADS + t < r.experts)
                rank[i] = mr_rank(__float_as_uint(in.bias ? plus(x[i], bias[i]) : x[i]));
    }
    if (r.topk_group < r.n_group) radix_groups(r, rank, s);
    radix_select(r, rank, x, out.ids + row * (size_t)r.top_k, s);
    radix_weights(r, out.weights + row * (size_t)r.top_k, s);
}

/* Four at a time where rows begin at multiples of 16 bytes. */
__device__ static inline void radix_cast(const struct routing &r, const struct radix_in &in,
                                         const struct radix_out &out)
{
    size_t row = blockIdx.x, n = in.columns - (size_t)r.experts;
    const float *from = in.merged + row * in.columns + (size_t)r.experts;
    uint16_t *to = out.rest + row * n;
    wait_for_producers();
    if (in.columns % 4 == 0 && r.experts % 4 == 0) {
        for (size_t i = 4 * threadIdx.x; i < n; i += 4 * RADIX_THREADS) {
            float4 v = *(const float4 *)(from + i);
            ushort4 w;
            store_logit(&w.x, v.x);
            store_logit(&w.y, v.y);
            store_logit(&w.z, v.z);
            store_logit(&w.w, v.w);
            *(ushort4 *)(to + i) = w;
        }
    } else {
        for (size_t i = threadIdx.x; i < n; i += RADIX_THREADS) store_logit(to + i, from[i]);
    }
}

__global__ static void __launch_bounds__(RADIX_THREADS)
    radix_kernel(struct routing r, struct radix_in in, struct radix_out out)
{
    __shared__ struct radix_shared s;
    if (blockIdx.y == 0)
        radix_row(r, in, out, &s);
    else
        radix_cast(r, in, out);
}

static inline int launch_radix(const struct mr_kernel_problem *p, const struct radix_in &in,
                               const struct radix_out &out, bool dependent, void *stream,
                               struct mr_kernel_why why)
{
    return launched(launch_grid(dependent, stream, dim3((unsigned)p->rows, out.rest ? 2 : 1),
                                RADIX_THREADS, radix_kernel, routing_of(p), in, out),
                    "radix select", why);
}

#endif
