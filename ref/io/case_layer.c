#include "case_layer.h"

#include <stdlib.h>
#include <string.h>

#include "../num/num.h"
#include "../route/hash.h"

static struct mr_matrix matrix_of(const struct mr_tensor *t)
{
    return (struct mr_matrix){t->data, t->dtype, (size_t)t->shape[0], (size_t)t->shape[1]};
}

/* The message with what it is about. */
static enum mr_status fail(const struct mr_case *c, const struct mr_case_layer *l,
                           enum mr_status status, const char *text, struct mr_error *err)
{
    return mr_fail(err, status, "%s: layer %d, phase %s: %.500s", mr_case_name(c), l->layer,
                   l->phase, text);
}

/* No tensor: *out is left NULL. */
static enum mr_status widen(const struct mr_tensor *t, double **out)
{
    if (!t->data) return MR_OK;
    *out = malloc((size_t)t->shape[0] * sizeof **out);
    if (!*out) return MR_ERR_MEMORY;
    mr_widen_f64(t->data, t->dtype, (size_t)t->shape[0], *out);
    return MR_OK;
}

static int64_t integer(const struct mr_tensor *t, size_t i)
{
    int32_t narrow;
    int64_t wide;
    if (t->dtype == MR_I64) {
        memcpy(&wide, (const char *)t->data + i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)t->data + i * sizeof narrow, sizeof narrow);
    return narrow;
}

/* Experts by token id, as mr_route_hash has them: the judge and the tools need them apart. */
static enum mr_status choose(const struct mr_case_layer *l, struct mr_case_input *out,
                             struct mr_error *err)
{
    size_t count = (size_t)l->token_ids.shape[0], k = (size_t)out->layer.router->top_k;
    int64_t *tokens = malloc((count + 1) * sizeof *tokens);
    out->given = malloc((count * k + 1) * sizeof *out->given);
    enum mr_status status = tokens && out->given ? MR_OK : MR_ERR_MEMORY;
    for (size_t i = 0; i < count && !status; i++) tokens[i] = integer(&l->token_ids, i);
    struct mr_hash hash = {l->hash.data, l->hash.dtype, (size_t)l->hash.shape[0],
                           (int)l->hash.shape[1], tokens};
    if (!status) status = mr_hash_ids(&hash, out->layer.router, count, out->given, err);
    free(tokens);
    out->router = *out->layer.router;
    out->router.bias = false;
    out->router.n_group = out->router.topk_group = 1;
    out->layer.router = &out->router;
    out->layer.given = out->given;
    return status;
}

enum mr_status mr_case_input_make(const struct mr_case *c, const struct mr_case_layer *l,
                                  bool from_logits, struct mr_case_input *out,
                                  struct mr_error *err)
{
    struct mr_error why = {{0}};
    bool logits = from_logits || mr_case_from_logits(c);
    *out = (struct mr_case_input){.layer = {.router = mr_case_router(c)}};
    if (logits && !l->logits.data)
        return fail(c, l, MR_ERR_MISSING, "no logits to start from", err);
    enum mr_status status = widen(&l->bias, &out->bias);
    if (logits) {
        out->layer.logits = matrix_of(&l->logits);
    } else {
        out->layer.hidden = matrix_of(&l->hidden);
        out->layer.gate = matrix_of(&l->gate);
        if (!status) status = widen(&l->gate_bias, &out->gate_bias);
    }
    out->layer.bias = out->bias;
    out->layer.gate_bias = out->gate_bias;
    if (!status && l->hash.data) status = choose(l, out, &why);
    if (status == MR_OK) return MR_OK;
    mr_case_input_free(out);
    return fail(c, l, status, status == MR_ERR_MEMORY ? "out of memory" : why.text, err);
}

void mr_case_input_free(struct mr_case_input *input)
{
    free(input->bias);
    free(input->gate_bias);
    free(input->given);
    *input = (struct mr_case_input){0};
}
