#include "judged.h"

#include <stdlib.h>

static struct mr_tensor claim(enum mr_dtype dtype, const void *data, size_t rows, size_t cols)
{
    return (struct mr_tensor){.dtype = dtype, .ndim = 2, .shape = {rows, cols}, .data = data,
                              .bytes = (uint64_t)rows * cols * 4};
}

static enum mr_status judge(const struct judged_input *in, const double *bias, uint64_t *counts,
                            struct mr_findings *found, struct judged *out, struct mr_error *err)
{
    const struct mr_router *r = in->router;
    size_t experts = (size_t)r->experts, k = (size_t)r->top_k, hidden = (size_t)r->hidden;
    struct mr_layer layer = {.router = r, .bias = bias};
    if (in->logits) {
        layer.logits = (struct mr_matrix){in->logits, MR_F32, in->tokens, experts};
    } else {
        layer.hidden = (struct mr_matrix){in->hidden, MR_F32, in->tokens, hidden};
        layer.gate = (struct mr_matrix){in->gate, MR_F32, experts, hidden};
    }
    struct mr_observed observed = {.source = "test", .rows = in->tokens, .tokens = in->tokens,
                                   .ids = claim(MR_I32, in->ids, in->tokens, k),
                                   .non_padded = UINT64_MAX};
    if (in->weights) observed.weights = claim(MR_F32, in->weights, in->tokens, k);
    struct mr_verify_options options = {.threads = 1, .model = mr_error_model(in->arith),
                                        .ordered = in->ordered, .phase = "all"};
    struct mr_verify_tally tally = {0};
    struct mr_verify_result result = {.tally = &tally, .gained = counts, .lost = counts + experts};
    enum mr_status s = mr_verify_layer(&layer, &options, &observed, 1, &result, found, err);
    if (s) return s;
    for (int v = MR_VERDICT_COUNT - 1; v >= 0; v--) {
        out->verdicts[v] = tally.verdicts[v];
        if (tally.verdicts[v]) out->worst = (enum mr_verdict)v;
    }
    for (int c = 0; c < MR_CERT_COUNT; c++) out->certified[c] = result.route.certified[c];
    mr_findings_sort(found);
    if (found->count) {
        out->token = found->item[0].token;
        out->why = found->item[0].judgement;
    }
    return MR_OK;
}

enum mr_status judged(const struct judged_input *in, struct judged *out, struct mr_error *err)
{
    size_t experts = (size_t)in->router->experts;
    double *bias = malloc(experts * sizeof *bias);
    uint64_t *counts = calloc(2 * experts, sizeof *counts);
    struct mr_findings found = {0};
    *out = (struct judged){.worst = MR_EXACT};
    enum mr_status s = bias && counts ? mr_findings_new(4, in->router->top_k, &found)
                                      : MR_ERR_MEMORY;
    if (s) mr_fail(err, s, "out of memory");
    for (size_t e = 0; !s && in->bias && e < experts; e++) bias[e] = (double)in->bias[e];
    if (!s) s = judge(in, in->bias ? bias : NULL, counts, &found, out, err);
    mr_findings_free(&found);
    free(counts);
    free(bias);
    return s;
}
