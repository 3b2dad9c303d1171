/* Routing one token under a profile, for the profile suites: each includes its own copy. */
#ifndef TESTS_PROFILED_H
#define TESTS_PROFILED_H

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/route/profile_emulate.h"

enum { MOST = 512 };
static int32_t ids[MOST];
static float weights[MOST];
static struct mr_profile_note note;

static inline struct mr_router sigmoid_router(int experts, int top_k)
{
    return (struct mr_router){.experts = experts,
                              .top_k = top_k,
                              .score = MR_SCORE_SIGMOID,
                              .bias = true,
                              .n_group = 1,
                              .topk_group = 1,
                              .norm_topk_prob = true,
                              .routed_scaling_factor = 1};
}

static inline const struct mr_profile_row *row_of(const char *name,
                                                  const struct mr_router *r)
{
    const struct mr_profile_row *row;
    struct mr_error err = {{0}};
    const struct mr_profile *p = mr_profile_find(name);
    ck_assert_ptr_nonnull(p);
    ck_assert_msg(mr_profile_row(p, r, false, &row, &err) == MR_OK, "%s", err.text);
    return row;
}

static inline void route_typed(const char *name, const struct mr_router *r, const float *logits,
                        const float *bias, size_t rows, enum mr_type type)
{
    struct mr_error err = {{0}};
    struct mr_profile_batch batch = {rows, type};
    enum mr_status status = mr_profile_route(mr_profile_find(name), r, &batch, logits, bias, ids,
                                             weights, &note, &err);
    ck_assert_msg(status == MR_OK, "%s: %s", name, err.text);
}

static inline void route(const char *name, const struct mr_router *r, const float *logits,
                  const float *bias)
{
    route_typed(name, r, logits, bias, 1, MR_TYPE_FP32);
}

/* The same with one cell changed. */
static inline void route_with(const char *name, const struct mr_router *r, const float *logits,
                       const float *bias, enum mr_cell cell, int value)
{
    struct mr_profile_row row = *row_of(name, r);
    struct mr_profile_scratch s;
    struct mr_profile_batch batch = {1, MR_TYPE_FP32};
    row.cell[cell].value = (unsigned char)value;
    ck_assert_int_eq(mr_profile_scratch_new(r->experts, &s), MR_OK);
    mr_profile_emulate(&row, r, &batch, logits, bias, &s, ids, weights, &note);
    mr_profile_scratch_free(&s);
}

static inline uint32_t bits(float v)
{
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}

#define fill(a, n, v) for (int i_ = 0; i_ < (n); i_++) (a)[i_] = (v)
#define expect_ids(...) do { \
    const int32_t want_[] = {__VA_ARGS__}; \
    for (size_t i_ = 0; i_ < sizeof want_ / sizeof *want_; i_++) \
        ck_assert_msg(ids[i_] == want_[i_], "slot %zu: %d, expected %d", i_, ids[i_], want_[i_]); \
} while (0)

#endif
