/* Routing from logits in separate steps, a launch each, as eager code has it: score, add bias,
 * top-k, gather, sum, add guard, divide. The operations and their order are those of select.cuh, so
 * ids and weights are those of fused_topk, bit for bit. Without bias there is nothing to add,
 * without norm_topk_prob no sum and guard, and a product in place of the quotient; ranked by logit,
 * the score comes after the gather. */
#ifndef MOEREF_STEPS_CUH
#define MOEREF_STEPS_CUH

#include "select.cuh"

#define STEP_THREADS 256

__device__ static inline size_t step_index(void)
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

template <typename T>
__global__ void score_step(int score, const T *logits, size_t n, float *scores)
{
    size_t i = step_index();
    if (i >= n) return;
    float x = load_logit(logits, i);
    scores[i] = score == MR_KERNEL_SIGMOID ? sigmoid_score(x) : sqrt_softplus_score(x);
}

template <int V, typename T>
__global__ void softmax_step(int rows, int experts, const T *logits, float *scores)
{
    int row = (int)(step_index() / 32), lane = warp_lane();
    if (row >= rows) return;
    float x[V];
#pragma unroll
    for (int i = 0; i < V; i++)
        x[i] = i * 32 + lane < experts ? load_logit(logits, (size_t)row * experts + i * 32 + lane)
                                       : __uint_as_float(0xff800000u);
    softmax_scores<V>(x);
#pragma unroll
    for (int i = 0; i < V; i++)
        if (i * 32 + lane < experts) scores[(size_t)row * experts + i * 32 + lane] = x[i];
}

__global__ static void add_step(const float *scores, const float *bias, int experts, size_t n,
                                float *keys)
{
    size_t i = step_index();
    if (i < n) keys[i] = plus(scores[i], bias[i % (size_t)experts]);
}

template <int V, typename T>
__global__ void topk_step(struct routing r, const T *keys, int32_t *ids)
{
    int row = (int)(step_index() / 32), lane = warp_lane();
    if (row >= r.rows) return;
    struct warp_row<V> w;
    struct warp_best best;
#pragma unroll
    for (int i = 0; i < V; i++) {
        int e = i * 32 + lane;
        float key = e < r.experts ? load_logit(keys, (size_t)row * r.experts + e) : 0.0f;
        w.score[i] = 0.0f;
        w.rank[i] = e < r.experts ? mr_rank(__float_as_uint(key)) : MR_RANK_NONE;
    }
    if (r.topk_group < r.n_group) keep_groups<V>(r, &w);
    best_of_lane<V>(w, &best.rank, &best.slot, &best.score);
    for (int j = 0; j < r.top_k; j++) {
        float unused;
        int who = take_best<V>(&w, &best, &unused);
        if (lane == (j & 31)) ids[(size_t)row * r.top_k + j] = who;
    }
}

template <typename T>
__global__ void gather_step(struct routing r, const T *scores, const int32_t *ids, float *out)
{
    size_t i = step_index();
    if (i >= (size_t)r.rows * r.top_k) return;
    out[i] = load_logit(scores, i / r.top_k * r.experts + (size_t)ids[i]);
}

/* In place: the scores of selected logits. Softmax: their exponentials. */
__global__ static void selected_step(struct routing r, float *out)
{
    size_t row = step_index();
    if (row >= (size_t)r.rows) return;
    float *x = out + row * r.top_k, first = x[0];
    for (int j = 0; j < r.top_k; j++)
        x[j] = r.score == MR_KERNEL_SOFTMAX ? exponential(x[j] - first) : sigmoid_score(x[j]);
}

__global__ static void sum_step(struct routing r, const float *out, float *sums)
{
    size_t row = step_index();
    if (row >= (size_t)r.rows) return;
    float sum = 0.0f;
    for (int j = 0; j < r.top_k; j++) sum = plus(sum, out[row * r.top_k + j]);
    sums[row] = sum;
}

__global__ static void guard_step(int rows, float *sums)
{
    size_t row = step_index();
    if (row < (size_t)rows) sums[row] += MR_GUARD;
}

__global__ static void divide_step(struct routing r, const float *sums, float *out)
{
    size_t i = step_index();
    if (i < (size_t)r.rows * r.top_k) out[i] = out[i] / sums[i / r.top_k] * r.scale;
}

__global__ static void scale_step(struct routing r, float *out)
{
    size_t i = step_index();
    if (i < (size_t)r.rows * r.top_k) out[i] = out[i] * r.scale;
}

/* In place: a gate's own bias, in binary32 or rounded to bf16 again. */
template <typename T>
__global__ void gate_bias_step(const float *gate_bias, int experts, size_t n, T *logits)
{
    size_t i = step_index();
    if (i < n) store_logit(logits + i, load_logit(logits, i) + gate_bias[i % (size_t)experts]);
}

static inline uint64_t round_256(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}
static inline uint64_t steps_scratch(const struct mr_kernel_problem *p)
{
    uint64_t all = round_256((uint64_t)p->rows * (uint64_t)p->router.experts * sizeof(float));
    return 2 * all + round_256((uint64_t)p->rows * sizeof(float));
}

/* scratch: steps_scratch bytes, aligned to 256. */
template <typename T>
static int launch_steps(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                        const T *logits, void *scratch, void *stream, struct mr_kernel_why why)
{
    struct routing r = routing_of(p);
    size_t all = (size_t)r.rows * r.experts, chosen = (size_t)r.rows * r.top_k;
    float *scores = (float *)scratch, *weights = (float *)b->weights;
    float *keys = (float *)((char *)scratch + round_256(all * sizeof(float)));
    float *sums = (float *)((char *)scratch + 2 * round_256(all * sizeof(float)));
    const char *at = "score";
    cudaError_t status = cudaSuccess;
#define GRID(n) dim3((unsigned)(((n) + STEP_THREADS - 1) / STEP_THREADS)), STEP_THREADS
#define STEP(NAME, n, ...)                                                                         \
    if (status == cudaSuccess) status = launch_grid(false, stream, GRID(n), __VA_ARGS__), at = NAME
#define SOFTMAX(V)                                                                                 \
    STEP("softmax", (size_t)r.rows * 32, softmax_step<V, T>, r.rows, r.experts, logits, scores)
#define TOPK_KEYS(V)   STEP("topk", (size_t)r.rows * 32, topk_step<V, float>, r, ranked, b->ids)
#define TOPK_LOGITS(V) STEP("topk", (size_t)r.rows * 32, topk_step<V, T>, r, logits, b->ids)
    if (r.by_logit) {
        FOR_EXPERTS(r.experts, TOPK_LOGITS);
        STEP("gather", chosen, gather_step<T>, r, logits, b->ids, weights);
        STEP("score", (size_t)r.rows, selected_step, r, weights);
    } else {
        const float *ranked = b->bias ? keys : scores;
        if (r.score == MR_KERNEL_SOFTMAX)
            FOR_EXPERTS(r.experts, SOFTMAX);
        else
            STEP("score", all, score_step<T>, r.score, logits, all, scores);
        if (b->bias) STEP("add", all, add_step, scores, b->bias, r.experts, all, keys);
        FOR_EXPERTS(r.experts, TOPK_KEYS);
        STEP("gather", chosen, gather_step<float>, r, scores, b->ids, weights);
    }
    bool softmax = r.by_logit && r.score == MR_KERNEL_SOFTMAX;
    if (softmax || r.normalise) {
        STEP("sum", (size_t)r.rows, sum_step, r, weights, sums);
        if (!softmax) STEP("guard", (size_t)r.rows, guard_step, r.rows, sums);
        STEP("divide", chosen, divide_step, r, sums, weights);
    } else {
        STEP("scale", chosen, scale_step, r, weights);
    }
#undef TOPK_LOGITS
#undef TOPK_KEYS
#undef SOFTMAX
    return launched(status, at, why);
}

#endif
