/* Scores, groups and top-k of one row by one warp, all in registers. Expert e is in lane e mod 32,
 * slot e / 32 of V. The steps, each a binary32 operation rounded to nearest:
 *   sigmoid        1 / (1 + expf(-x))                                        sigmoid.expf
 *   softmax        e = expf(x - max); each lane adds its e by ascending slot from +0, then lanes
 *                  by xor 16, 8, 4, 2, 1; e / sum                            PyTorch's, one warp
 *   sqrt-softplus  sqrtf(fmaxf(x, 0) + log1pf(expf(-|x|)))                   sqrt-softplus.fmaxf
 *   key            score + bias, or the score; ranked by logit: the logit
 *   group          its largest key, or its two largest added; NaN never counts
 *   sum            of the selected scores, by descending key, from +0
 *   weight         score / (sum + 1e-20f) * scale, or score * scale
 * Ranked by logit, the scores of the selected alone: softmax e = expf(x - largest), added likewise,
 * e / sum * scale; sigmoid as above. Equal keys: the lowest id. */
#ifndef MOEREF_SELECT_CUH
#define MOEREF_SELECT_CUH

#include "kernel.cuh"
#include "rank.h"

template <int V> struct warp_row {
    float score[V];
    uint32_t rank[V];
};

__device__ static inline float load_logit(const float *logits, size_t at)
{
    return logits[at];
}
__device__ static inline float load_logit(const uint16_t *logits, size_t at) /* bf16 */
{
    return __uint_as_float((uint32_t)logits[at] << 16);
}

__device__ static inline void store_logit(float *out, float x)
{
    *out = x;
}
__device__ static inline void store_logit(uint16_t *out, float x)
{
    uint32_t u = __float_as_uint(x);
    *out =
        (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* FOR_EXPERTS takes V slots only for more experts than fill this many. */
template <int V> MR_BOTH constexpr int full_slots(void)
{
    constexpr int compiled[] = {0, 1, 2, 4, 6, 8, 9, 12, 16, 28, 32};
    int full = 0;
    for (int v : compiled)
        if (v < V) full = v;
    return full;
}
template <int V> __device__ static inline bool is_there(int experts, int slot)
{
    constexpr int full = full_slots<V>();
    return slot < full || slot * 32 + warp_lane() < experts;
}

/* Biases may be read before the logits are there. */
template <int V>
__device__ static inline void load_bias(const float *bias, int experts, float (&out)[V])
{
#pragma unroll
    for (int i = 0; i < V; i++) {
        bool is = bias && is_there<V>(experts, i);
        out[i] = is ? bias[i * 32 + warp_lane()] : 0.0f;
    }
}

/* x: logits in, scores out. Slots past the last expert hold -Inf on entry. */
template <int V> __device__ static inline void softmax_scores(float (&x)[V])
{
    float most = x[0], sum = 0.0f;
#pragma unroll
    for (int i = 1; i < V; i++) most = fmaxf(most, x[i]);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) most = fmaxf(most, shuffle_xor(most, d));
#pragma unroll
    for (int i = 0; i < V; i++) {
        x[i] = exponential(x[i] - most);
        sum = plus(sum, x[i]);
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum = plus(sum, shuffle_xor(sum, d));
#pragma unroll
    for (int i = 0; i < V; i++) x[i] = x[i] / sum;
}

/* The rank of one slot's key. */
template <int V>
__device__ static inline uint32_t rank_of(const struct routing &r, int slot, float key)
{
    return is_there<V>(r.experts, slot) ? mr_rank(__float_as_uint(key)) : MR_RANK_NONE;
}

/* Fills score and rank from logits in row->score; scores of a softmax over the selected are left to
 * select_row. bias: 0 where there is none; that changes no rank. */
template <int V>
__device__ static inline void rank_row(const struct routing &r, const float (&bias)[V],
                                       struct warp_row<V> *row)
{
#pragma unroll
    for (int i = 0; i < V; i++) row->rank[i] = rank_of<V>(r, i, row->score[i]);
    if (r.score == MR_KERNEL_SIGMOID) {
        sigmoid_scores<V>(row->score);
    } else if (r.score == MR_KERNEL_SQRT_SOFTPLUS) {
#pragma unroll
        for (int i = 0; i < V; i++) row->score[i] = sqrt_softplus_score(row->score[i]);
    } else if (!r.by_logit) {
        softmax_scores<V>(row->score);
    }
    if (r.by_logit) return;
#pragma unroll
    for (int i = 0; i < V; i++)
        row->rank[i] = rank_of<V>(r, i, plus(row->score[i], bias[i]));
}

/* The value whose rank this is; NaN for NaN. */
__device__ static inline float ranked_value(uint32_t rank)
{
    if (rank == MR_RANK_NAN) return __uint_as_float(0x7fffffffu);
    return __uint_as_float(rank & 0x80000000u ? rank & 0x7fffffffu : ~rank);
}

/* Takes experts of groups that do not stay out of the running. */
template <int V>
__device__ static inline void keep_groups(const struct routing &r, struct warp_row<V> *row)
{
    const uint32_t least = mr_rank(0xff800000u); /* -Inf; NaN ranks below it and never counts */
    uint32_t lane = (uint32_t)warp_lane(), group = MR_RANK_NONE, stays = 0;
#pragma unroll 1
    for (int g = 0; g < r.n_group; g++) {
        int from = g * r.group_experts, to = from + r.group_experts;
        uint32_t first = least, second = least;
#pragma unroll
        for (int i = 0; i < V; i++) {
            int e = i * 32 + (int)lane;
            uint32_t rank = e >= from && e < to ? row->rank[i] : MR_RANK_NONE;
            second = max(second, min(first, rank));
            first = max(first, rank);
        }
        uint32_t largest = warp_max(first);
        float value = ranked_value(largest);
        if (!r.group_by_max) {
            uint32_t who = warp_min(first == largest ? lane : ~0u);
            value = plus(value, ranked_value(warp_max(lane == who ? second : first)));
        }
        if (lane == (uint32_t)g) group = mr_rank(__float_as_uint(value));
    }
#pragma unroll 1
    for (int j = 0; j < r.topk_group; j++) {
        uint32_t most = warp_max(group);
        uint32_t who = warp_min(group == most ? lane : ~0u);
        stays |= 1u << who;
        if (lane == who) group = MR_RANK_NONE;
    }
#pragma unroll
    for (int i = 0; i < V; i++) {
        int e = i * 32 + (int)lane;
        if (e < r.experts && !(stays >> (e / r.group_experts) & 1)) row->rank[i] = MR_RANK_NONE;
    }
}

/* The best of a lane: of equals the lowest slot, and so the lowest id. */
template <int V>
__device__ static inline void best_of_lane(const struct warp_row<V> &row, uint32_t *rank, int *slot,
                                           float *score)
{
    uint32_t best = MR_RANK_NONE;
    int where = 0;
    float value = 0.0f;
#pragma unroll
    for (int i = 0; i < V; i++) {
        bool more = row.rank[i] > best;
        where = more ? i : where;
        value = more ? row.score[i] : value;
        best = more ? row.rank[i] : best;
    }
    *rank = best;
    *slot = where;
    *score = value;
}

/* The state of a warp between rounds, each lane's own best. */
struct warp_best {
    uint32_t rank;
    int slot;
    float score;
};

/* One round: the id of the largest key, which is taken out, and its score. */
template <int V>
__device__ static inline int take_best(struct warp_row<V> *row, struct warp_best *best,
                                       float *score)
{
    uint32_t lane = (uint32_t)warp_lane(), most = warp_max(best->rank);
    uint32_t who = warp_min(best->rank == most ? (uint32_t)best->slot * 32 + lane : ~0u);
    *score = shuffle(best->score, (int)(who & 31));
    /* By all lanes: selects, not branches, or the compiler keeps the ranks in memory. */
    int taken = lane == (who & 31) ? best->slot : -1;
#pragma unroll
    for (int i = 0; i < V; i++) row->rank[i] = i == taken ? MR_RANK_NONE : row->rank[i];
    best_of_lane<V>(*row, &best->rank, &best->slot, &best->score);
    return (int)who;
}

/* k rounds of argmax over the warp. ids and weights are the row's; lane j mod 32 writes slot j, and
 * for top_k > 32 scores lie in weights until their sum is known. The id of slot `lane`
 * (top_k <= 32). Nobody else may look at weights before the warp is done. */
template <int V>
__device__ static inline int select_row(const struct routing &r, struct warp_row<V> *row,
                                        int32_t *ids, float *weights)
{
    int lane = warp_lane(), id = 0;
    float mine = 0.0f, sum = 0.0f, first = 0.0f;
    bool softmax = r.by_logit && r.score == MR_KERNEL_SOFTMAX;
    struct warp_best best;
    best_of_lane<V>(*row, &best.rank, &best.slot, &best.score);
#pragma unroll 1
    for (int j = 0; j < r.top_k; j++) {
        float value;
        int who = take_best<V>(row, &best, &value);
        if (softmax) {
            if (j == 0) first = value;
            value = exponential(value - first);
        }
        sum = plus(sum, value);
        if (lane == (j & 31)) {
            id = who;
            mine = value;
        }
        if ((j & 31) == 31 && j + 1 < r.top_k) {
            ids[j - 31 + lane] = id;
            weights[j - 31 + lane] = mine;
        }
    }
    int done = (r.top_k - 1) / 32 * 32;
#pragma unroll 1
    for (int j = lane; j < done; j += 32)
        weights[j] =
            softmax ? weights[j] / sum * r.scale : mr_weight(weights[j], sum, r.normalise, r.scale);
    if (done + lane < r.top_k) {
        ids[done + lane] = id;
        weights[done + lane] =
            softmax ? mine / sum * r.scale : mr_weight(mine, sum, r.normalise, r.scale);
    }
    return id;
}

template <int V, typename T>
__device__ static inline void load_row(const struct routing &r, const T *logits, size_t at,
                                       struct warp_row<V> *row)
{
    float none = r.score == MR_KERNEL_SOFTMAX ? __uint_as_float(0xff800000u) : 0.0f;
#pragma unroll
    for (int i = 0; i < V; i++)
        row->score[i] = is_there<V>(r.experts, i)
                            ? load_logit(logits, at * r.experts + i * 32 + warp_lane())
                            : none;
}

/* Runs CALL(V) with V a compile-time constant: the fewest slots, of those compiled, that hold the
 * experts. */
#define FOR_EXPERTS(experts, CALL)                                                                 \
    do {                                                                                           \
        int slots_ = ((experts) + 31) / 32;                                                        \
        if (slots_ <= 1) {                                                                         \
            CALL(1);                                                                               \
        } else if (slots_ <= 2) {                                                                  \
            CALL(2);                                                                               \
        } else if (slots_ <= 4) {                                                                  \
            CALL(4);                                                                               \
        } else if (slots_ <= 6) {                                                                  \
            CALL(6);                                                                               \
        } else if (slots_ <= 8) {                                                                  \
            CALL(8);                                                                               \
        } else if (slots_ <= 9) {                                                                  \
            CALL(9);                                                                               \
        } else if (slots_ <= 12) {                                                                 \
            CALL(12);                                                                              \
        } else if (slots_ <= 16) {                                                                 \
            CALL(16);                                                                              \
        } else if (slots_ <= 28) {                                                                 \
            CALL(28);                                                                              \
        } else {                                                                                   \
            CALL(32);                                                                              \
        }                                                                                          \
    } while (0)

#endif
