/* The k largest keys of a row by one warp without k rounds: what waits in a round is the warp, for
 * one instruction after the other. Three times through shared memory instead, whatever k is:
 *
 *   1. Each lane's largest key. The k-th largest of those 32, `least`, is no more than the k-th
 *      largest of all keys, since k lanes have a key that is no less.
 *   2. So the keys from `least` up hold the k largest, and are few: k and now and then one more.
 *      They are gathered in ascending order of ids.
 *   3. A lane each counts which of them are before its own: larger, or equal with a lower id. That
 *      count is its place.
 *
 * Above 32 such keys (hundreds of equal ones), select.cuh's rounds do it. Ids, scores and their sum
 * are those of the rounds, bit for bit: places that have no score add -0, which changes no sum. */
#ifndef MOEREF_SELECT_QUICK_CUH
#define MOEREF_SELECT_QUICK_CUH

#include "select.cuh"

/* Of one warp. uint4: read four at a time. */
struct quick_place {
    uint4 most[8], rank[8], chosen[8]; /* 32 words each */
    float score[32];
    int32_t id[32], order[32];
};

__device__ static inline uint32_t *words(uint4 *x)
{
    return (uint32_t *)x;
}

/* Counts those of candidates j to j + 3 that go before candidate `me`. No key is ~0; places without
 * a candidate, with MR_RANK_NONE, never go before one. */
__device__ static inline void count_before(const uint4 &rank, int j, uint32_t mine, int me,
                                           int (&before)[4])
{
    before[0] += rank.x + (j < me) > mine;
    before[1] += rank.y + (j + 1 < me) > mine;
    before[2] += rank.z + (j + 2 < me) > mine;
    before[3] += rank.w + (j + 3 < me) > mine;
}
__device__ static inline float add_four(float sum, const uint4 &x)
{
    sum = plus(plus(sum, __uint_as_float(x.x)), __uint_as_float(x.y));
    return plus(plus(sum, __uint_as_float(x.z)), __uint_as_float(x.w));
}

/* Without a branch: what top_k = 8 nearly always needs. */
#define QUICK_FIRST 12
#define QUICK_SUM   8

/* As select_row, for top_k <= 32 and scores that do not depend on what is selected. The id of slot
 * `lane`. */
template <int V>
__device__ static inline int quick_select(const struct routing &r, struct warp_row<V> *row,
                                          struct quick_place *s, int32_t *ids, float *weights)
{
    int lane = warp_lane(), n = 0;
    uint32_t best = row->rank[0], below = (1u << lane) - 1, above[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 1; i < V; i++) best = max(best, row->rank[i]);
    sync_warp(); /* the row before is done */
    best /= 2; /* so that the sign of a difference says who is larger; `least` may be 1 less */
    words(s->most)[lane] = best;
    words(s->rank)[lane] = MR_RANK_NONE;
    words(s->chosen)[lane] = 0x80000000u;
    sync_warp();
#pragma unroll
    for (int q = 0; q < 8; q++) {
        uint4 m = s->most[q];
        above[0] += (best - m.x) >> 31;
        above[1] += (best - m.y) >> 31;
        above[2] += (best - m.z) >> 31;
        above[3] += (best - m.w) >> 31;
    }
    bool among = (above[0] + above[1]) + (above[2] + above[3]) < (uint32_t)r.top_k;
    uint32_t least = max(warp_min(among ? best : ~0u) * 2, MR_RANK_NONE + 1);
#pragma unroll
    for (int i = 0; i < V; i++) {
        bool in = row->rank[i] >= least;
        uint32_t who = warp_ballot(in);
        int at = n + __popc(who & below);
        if (in && at < 32) {
            words(s->rank)[at] = row->rank[i];
            s->score[at] = row->score[i];
            s->id[at] = i * 32 + lane;
        }
        n += __popc(who);
    }
    if (n > 32) return select_row<V>(r, row, ids, weights);
    sync_warp();
    uint32_t mine = words(s->rank)[lane];
    int before[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < QUICK_FIRST; j += 4) count_before(s->rank[j / 4], j, mine, lane, before);
#pragma unroll 1
    for (int j = QUICK_FIRST; j < n; j += 4)
        count_before(s->rank[j / 4], j, mine, lane, before);
    int place = (before[0] + before[1]) + (before[2] + before[3]);
    if (lane < n && place < r.top_k) {
        words(s->chosen)[place] = __float_as_uint(s->score[lane]);
        s->order[place] = s->id[lane];
    }
    sync_warp();
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < QUICK_SUM; j += 4) sum = add_four(sum, s->chosen[j / 4]);
#pragma unroll 1
    for (int j = QUICK_SUM; j < r.top_k; j += 4) sum = add_four(sum, s->chosen[j / 4]);
    if (lane >= r.top_k) return 0;
    int id = s->order[lane];
    ids[lane] = id;
    weights[lane] =
        mr_weight(__uint_as_float(words(s->chosen)[lane]), sum, r.normalise, r.scale);
    return id;
}

/* The routers that most models have, in a kernel of their own: sigmoid, no groups, at most 32. */
static inline bool plain_router(const struct routing &r)
{
    return r.score == MR_KERNEL_SIGMOID && !r.by_logit && r.topk_group == r.n_group &&
           r.top_k <= 32;
}

/* A whole row. PLAIN: plain_router(r), known when it is compiled. */
template <int V, bool PLAIN, typename T>
__device__ static inline int route_row(const struct routing &any, const float (&bias)[V],
                                       const T *logits, size_t at, struct quick_place *place,
                                       int32_t *ids, float *weights)
{
    struct warp_row<V> row;
    struct routing r = any;
    if (PLAIN) {
        r.score = MR_KERNEL_SIGMOID;
        r.by_logit = 0;
        r.n_group = r.topk_group = 1;
    }
    ids += at * r.top_k;
    weights += at * r.top_k;
    load_row<V>(r, logits, at, &row);
    rank_row<V>(r, bias, &row);
    if (r.topk_group < r.n_group) keep_groups<V>(r, &row);
    if (PLAIN || (r.top_k <= 32 && !(r.by_logit && r.score == MR_KERNEL_SOFTMAX)))
        return quick_select<V>(r, &row, place, ids, weights);
    return select_row<V>(r, &row, ids, weights);
}

#endif
