#include "api_problem.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int api_problem_set(struct api_problem *a, const char *name, const char *dtype, const void *data,
                    uint64_t rows, uint64_t cols)
{
    const uint64_t shape[2] = {rows, cols};
    int type = mr_dtype_parse(dtype);
    ck_assert(type >= 0 && a->count < API_ARRAYS_HELD);
    uint64_t bytes = rows * (cols ? cols : 1) * (mr_dtype_bits((enum mr_dtype)type) / 8);
    char *copy = malloc(bytes + 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy + 1, data, bytes);
    a->held[a->count++] = copy;
    return mr_api_input_set(a->input, name, dtype, copy + 1, bytes, shape, cols ? 2 : 1, a->why,
                            sizeof a->why);
}

void api_problem_must(struct api_problem *a, const char *name, const char *dtype, const void *data,
                      uint64_t rows, uint64_t cols)
{
    int status = api_problem_set(a, name, dtype, data, rows, cols);
    ck_assert_msg(!status, "%s: %s", name, a->why);
}

static void set_matrix(struct api_problem *a, const char *name, const struct mr_matrix *m)
{
    if (m->data)
        api_problem_must(a, name, mr_dtype_name(m->dtype), m->data, m->rows, m->cols);
}

void api_problem_new(const struct problem *p, struct api_problem *a)
{
    const struct mr_router *r = &p->router;
    float bias[SMALL_EXPERTS];
    char text[512];
    *a = (struct api_problem){0};
    snprintf(text, sizeof text,
             "{\"experts\": %d, \"top_k\": %d, \"score\": \"%s\", \"selection\": \"%s\", \"bias\": "
             "%s, \"n_group\": %d, \"topk_group\": %d, \"group_score\": \"%s\", "
             "\"norm_topk_prob\": %s, \"routed_scaling_factor\": %.17g}",
             r->experts, r->top_k, mr_score_name(r->score), mr_selection_name(r->selection),
             p->bias ? "true" : "false", r->n_group, r->topk_group,
             mr_group_score_name(r->group_score), r->norm_topk_prob ? "true" : "false",
             r->routed_scaling_factor);
    int status = mr_api_router_new(NULL, text, &a->router, a->why, sizeof a->why);
    ck_assert_msg(!status, "%s: %s", text, a->why);
    status = mr_api_input_new(a->router, &a->input, a->why, sizeof a->why);
    ck_assert_msg(!status, "%s", a->why);
    set_matrix(a, "hidden", &p->layer.hidden);
    set_matrix(a, "gate", &p->layer.gate);
    set_matrix(a, "logits", &p->layer.logits);
    if (!p->bias) return;
    ck_assert_int_le(r->experts, SMALL_EXPERTS);
    for (int e = 0; e < r->experts; e++) bias[e] = (float)p->bias[e];
    api_problem_must(a, "bias", "F32", bias, (uint64_t)r->experts, 0);
}

void api_problem_free(struct api_problem *a)
{
    mr_api_input_free(a->input);
    mr_api_router_free(a->router);
    for (int i = 0; i < a->count; i++) free(a->held[i]);
    *a = (struct api_problem){0};
}
