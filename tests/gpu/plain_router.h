/* A router in plain binary32, for plugins that run on the CPU: sums in column order, expf, the
 * lowest id among equal keys. Sigmoid and softmax, no groups. */
#ifndef PLAIN_ROUTER_H
#define PLAIN_ROUTER_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "../../gpu/harness.h"

/* What is broken; PLAIN: nothing. */
enum plain_fault {
    PLAIN, PLAIN_OUTSIDE, PLAIN_BEFORE, PLAIN_INPUT, PLAIN_NO_BIAS, PLAIN_UNSTABLE,
    PLAIN_STALE, PLAIN_BATCH, PLAIN_COUNTS, PLAIN_SORTED, PLAIN_DELAY
};

static inline float plain_value(const void *data, int32_t type, size_t i)
{
    uint32_t bits;
    float value;
    if (type == MR_KERNEL_FP32) {
        memcpy(&value, (const char *)data + 4 * i, 4);
        return value;
    }
    uint16_t half; /* bf16: the plugins take no fp16 */
    memcpy(&half, (const char *)data + 2 * i, 2);
    bits = (uint32_t)half << 16;
    memcpy(&value, &bits, 4);
    return value;
}

static inline float plain_logit(const struct mr_kernel_problem *p,
                                const struct mr_kernel_buffers *b, int row, int expert,
                                int backwards)
{
    size_t n = (size_t)p->router.hidden, x = (size_t)row * n, w = (size_t)expert * n;
    float sum = 0;
    if (b->given)
        return plain_value(b->given, p->given_type,
                           (size_t)row * (size_t)p->router.experts + (size_t)expert);
    for (size_t i = 0; i < n; i++) {
        size_t c = backwards ? n - 1 - i : i;
        sum += plain_value(b->hidden, p->hidden_type, x + c) *
               plain_value(b->gate, p->gate_type, w + c);
    }
    return b->gate_bias ? sum + b->gate_bias[expert] : sum;
}

static inline void plain_scores(const struct mr_kernel_problem *p, const float *logit, float *score)
{
    int n = p->router.experts;
    float max = logit[0], sum = 0;
    for (int e = 1; e < n; e++) max = logit[e] > max ? logit[e] : max;
    for (int e = 0; e < n; e++) {
        if (p->router.score == MR_KERNEL_SIGMOID) score[e] = 1 / (1 + expf(-logit[e]));
        else sum += score[e] = expf(logit[e] - max);
    }
    for (int e = 0; e < n && p->router.score == MR_KERNEL_SOFTMAX; e++) score[e] /= sum;
}

static inline void plain_row(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                             int row, const float *logit, int biased)
{
    int n = p->router.experts, k = p->router.top_k;
    float score[n], sum = 0, *weights = b->weights;
    char taken[n];
    memset(taken, 0, sizeof taken);
    plain_scores(p, logit, score);
    for (int s = 0; s < k; s++) {
        int best = -1;
        float most = 0;
        for (int e = 0; e < n; e++) {
            float key = score[e] + (biased && b->bias ? b->bias[e] : 0);
            if (taken[e] || (best >= 0 && !(key > most))) continue;
            best = e;
            most = key;
        }
        taken[best] = 1;
        sum += score[best];
        b->ids[row * k + s] = best;
    }
    for (int s = 0; s < k && weights; s++) {
        float w = score[b->ids[row * k + s]];
        if (p->router.norm_topk_prob) w /= sum;
        weights[row * k + s] = w * (float)p->router.routed_scaling_factor;
    }
}

static inline void plain_books(const struct mr_kernel_problem *p,
                               const struct mr_kernel_buffers *b, int tile)
{
    int chosen = p->rows * p->router.top_k, at = 0;
    for (int e = 0; e < p->router.experts; e++) {
        int count = 0, first = at;
        for (int i = 0; i < chosen; i++) {
            if (b->ids[i] != e) continue;
            count++;
            if (b->sorted) b->sorted[at++] = i;
        }
        if (b->counts) b->counts[e] = count;
        for (; b->sorted && (at - first) % tile; at++) b->sorted[at] = chosen;
        for (int t = first / tile; b->sorted && t < at / tile; t++) b->tile_expert[t] = e;
    }
    if (b->sorted) *b->sorted_total = at;
}

static inline int plain_supports(const struct mr_kernel_problem *p, struct mr_kernel_why why)
{
    if (p->router.n_group == 1 && !p->router.rank_by_logit &&
        p->router.score != MR_KERNEL_SQRT_SOFTPLUS)
        return 1;
    snprintf(why.text, why.size, "sigmoid or softmax over all experts, without groups, only");
    return 0;
}

static inline int plain_run(const struct mr_kernel_problem *p, const struct mr_kernel_buffers *b,
                            int tile, enum plain_fault fault)
{
    static int launches;
    int n = p->router.experts, k = p->router.top_k, m = p->rows;
    float logit[n], *logits = b->logits, *weights = b->weights;
    launches++;
    for (int row = 0; row < m; row++) {
        for (int e = 0; e < n; e++) {
            logit[e] = plain_logit(p, b, row, e, fault == PLAIN_BATCH && m > 4);
            if (fault == PLAIN_UNSTABLE && launches % 3 == 0 && row == m - 1 && e == 1)
                logit[e] = nextafterf(logit[e], 9);
            if (fault == PLAIN_DELAY && p->delay_ns && e == 0) logit[e] = nextafterf(logit[e], 9);
            if (fault == PLAIN_STALE && row == 0 && e == 2 && ((unsigned char *)b->ids)[0] == 0x7b)
                logit[e] = nextafterf(logit[e], 9);
            if (logits) logits[row * n + e] = logit[e];
        }
        if (b->ids) plain_row(p, b, row, logit, fault != PLAIN_NO_BIAS);
    }
    if (b->counts || b->sorted) plain_books(p, b, tile);
    if (fault == PLAIN_OUTSIDE && m > 1) b->ids[m * k] = 0;
    if (fault == PLAIN_BEFORE) weights[-1] = 0;
    if (fault == PLAIN_INPUT) ((float *)(uintptr_t)b->bias)[0] += 1;
    if (fault == PLAIN_COUNTS) b->counts[1]++;
    if (fault == PLAIN_SORTED) b->sorted[0] = m * k;
    return MR_KERNEL_OK;
}

#endif
