#include "arith.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* One row a word; a field may be set by one word of a line only. Order is that of printing, the sum
 * first. */
static const struct word {
    const char *name, *field;
    size_t offset;
    enum mr_type type;
} words[] = {
    {"bf16-hidden", "hidden states", offsetof(struct mr_arith, hidden), MR_TYPE_BF16},
    {"bf16-gate", "gate weight", offsetof(struct mr_arith, gate), MR_TYPE_BF16},
    {"bf16-logits", "logits", offsetof(struct mr_arith, logits), MR_TYPE_BF16},
    {"fp16-logits", "logits", offsetof(struct mr_arith, logits), MR_TYPE_FP16},
    {"bf16-scores", "scores", offsetof(struct mr_arith, scores), MR_TYPE_BF16},
    {"bf16-bias", "bias", offsetof(struct mr_arith, bias), MR_TYPE_BF16},
    {"bf16-weights", "weights", offsetof(struct mr_arith, weights), MR_TYPE_BF16},
};
enum { WORDS = sizeof words / sizeof *words };
static const char score[] = "score:";
enum { SCORE = sizeof score - 1 };

static enum mr_type *field_of(struct mr_arith *a, const struct word *w)
{
    return (enum mr_type *)((char *)a + w->offset);
}

static enum mr_status apply(const char *line, size_t at, size_t length, struct mr_arith *out,
                            bool *plain, struct mr_error *err)
{
    if (length == 4 && !memcmp(line + at, "fp32", 4)) {
        if (*plain)
            return mr_fail(err, MR_ERR_USAGE, "arithmetic '%s', column %zu: 'fp32' twice", line,
                           at + 1);
        *plain = true;
        return MR_OK;
    }
    for (int i = 0; i < WORDS; i++) {
        const struct word *w = &words[i];
        if (strlen(w->name) != length || memcmp(w->name, line + at, length)) continue;
        if (*field_of(out, w) != MR_TYPE_FP32)
            return mr_fail(err, MR_ERR_USAGE,
                           "arithmetic '%s', column %zu: '%s' sets the type of the %s a second time",
                           line, at + 1, w->name, w->field);
        *field_of(out, w) = w->type;
        return MR_OK;
    }
    if (length > SCORE && !memcmp(line + at, score, SCORE)) {
        if (out->score)
            return mr_fail(err, MR_ERR_USAGE, "arithmetic '%s', column %zu: a second score", line,
                           at + 1);
        if (mr_score_word_parse(line + at + SCORE, length - SCORE, &out->score)) return MR_OK;
        return mr_fail(err, MR_ERR_USAGE,
                       "arithmetic '%s', column %zu: unknown score '%.*s'; known: softmax.torch, "
                       "softmax.gating, sigmoid.expf, sqrt-softplus.log1pf and all others of "
                       "docs/cuda-functions.md that begin so",
                       line, at + SCORE + 1, (int)(length - SCORE), line + at + SCORE);
    }
    if (mr_sum_begins(line + at, length)) {
        if (out->sum.leaf != MR_LEAF_EXACT)
            return mr_fail(err, MR_ERR_USAGE, "arithmetic '%s', column %zu: a second sum", line,
                           at + 1);
        return mr_sum_parse(line, at, length, &out->sum, err);
    }
    return mr_fail(err, MR_ERR_USAGE,
                   "arithmetic '%s', column %zu: unknown word '%.*s'; known: fp32, bf16-hidden, "
                   "bf16-gate, bf16-logits, fp16-logits, bf16-scores, bf16-bias, bf16-weights, "
                   "score:NAME, and sums such as fma/deal:6x8 or hopper-bf16/runs:3x64, joined by '+'",
                   line, at + 1, (int)length, line + at);
}

enum mr_status mr_arith_parse(const char *line, struct mr_arith *out, struct mr_error *err)
{
    *out = (struct mr_arith){0}; /* binary32, an exact sum */
    bool plain = false;
    for (size_t at = 0;;) {
        size_t length = strcspn(line + at, "+");
        if (length == 0)
            return mr_fail(err, MR_ERR_USAGE, "arithmetic '%s', column %zu: a word is missing", line,
                           at + 1);
        enum mr_status status = apply(line, at, length, out, &plain, err);
        if (status) return status;
        at += length;
        if (!line[at]) return MR_OK;
        at++;
    }
}

void mr_arith_print(const struct mr_arith *arith, char *text, size_t size)
{
    struct mr_arith copy = *arith;
    char sum[MR_SUM_TEXT];
    size_t used = 0;
    if (size) text[0] = 0;
    if (arith->sum.leaf != MR_LEAF_EXACT) {
        mr_sum_print(&arith->sum, sum, sizeof sum);
        int n = snprintf(text, size, "%s", sum);
        if (n < 0 || (size_t)n >= size) return;
        used = (size_t)n;
    }
    for (int i = 0; i < WORDS; i++) {
        if (*field_of(&copy, &words[i]) != words[i].type) continue;
        int n = snprintf(text + used, size - used, "%s%s", used ? "+" : "", words[i].name);
        if (n < 0 || (size_t)n >= size - used) return;
        used += (size_t)n;
    }
    if (copy.score && used < size)
        used += (size_t)snprintf(text + used, size - used, "%s%s%s", used ? "+" : "", score,
                                 mr_score_word_name(copy.score));
    if (!used) snprintf(text, size, "fp32");
}

bool mr_arith_same(const struct mr_arith *a, const struct mr_arith *b)
{
    struct mr_arith x = *a, y = *b;
    for (int i = 0; i < WORDS; i++)
        if (*field_of(&x, &words[i]) != *field_of(&y, &words[i])) return false;
    return a->score == b->score && mr_sum_same(&a->sum, &b->sum);
}
