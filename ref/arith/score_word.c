#include "score_word.h"

#include <string.h>

#include "cuda.h"

static const char torch[] = "softmax.torch", gating[] = "softmax.gating";

static bool begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* Functions of the table that are scores. */
static bool is_score(const char *name)
{
    return begins(name, "sigmoid.") || begins(name, "sqrt-softplus.");
}

bool mr_score_word_parse(const char *name, size_t length, mr_score_word *out)
{
    for (int i = 0; i < MR_CUDA_COUNT; i++) {
        const char *known = mr_cuda_functions[i].name;
        if (strlen(known) != length || memcmp(known, name, length) || !is_score(known)) continue;
        *out = 1 + i;
        return true;
    }
    for (int word = MR_SCORE_WORD_SOFTMAX_GATING; word < 0; word++) {
        const char *known = mr_score_word_name(word);
        if (strlen(known) != length || memcmp(known, name, length)) continue;
        *out = word;
        return true;
    }
    return false;
}

const char *mr_score_word_name(mr_score_word word)
{
    if (word == MR_SCORE_WORD_SOFTMAX_TORCH) return torch;
    if (word == MR_SCORE_WORD_SOFTMAX_GATING) return gating;
    return word > 0 && word <= MR_CUDA_COUNT ? mr_cuda_functions[word - 1].name : "";
}

static bool gating_serves(const struct mr_router *router)
{
    int n = router->experts;
    return router->selection == MR_SELECT_SCORE &&
           ((n <= 512 && (n & (n - 1)) == 0) || (n <= 576 && n % 64 == 0));
}

enum mr_status mr_score_word_check(mr_score_word word, const struct mr_router *router,
                                   struct mr_error *err)
{
    static const char *const serves[] = {[MR_SCORE_SIGMOID] = "sigmoid.",
                                         [MR_SCORE_SQRT_SOFTPLUS] = "sqrt-softplus.",
                                         [MR_SCORE_SOFTMAX] = "softmax."};
    const char *name = mr_score_word_name(word);
    if (!word) return MR_OK;
    if (!begins(name, serves[router->score]))
        return mr_fail(err, MR_ERR_USAGE,
                       "score:%s does not evaluate this router's score: a word score:%s... does",
                       name, serves[router->score]);
    bool ok = word == MR_SCORE_WORD_SOFTMAX_TORCH    ? router->experts <= 1024
              : word == MR_SCORE_WORD_SOFTMAX_GATING ? gating_serves(router)
                                                      : true;
    return ok ? MR_OK
              : mr_fail(err, MR_ERR_UNSUPPORTED,
                        "score:%s: that kernel does not serve a softmax %s %d experts", name,
                        router->selection == MR_SELECT_SCORE ? "over" : "after the top-k of",
                        router->experts);
}

void mr_score_word_apply(mr_score_word word, const float *logits, size_t n, float *out)
{
    if (word > 0) {
        mr_cuda_apply((enum mr_cuda_id)(word - 1), logits, n, out);
        return;
    }
    struct mr_cuda_softmax form = word == MR_SCORE_WORD_SOFTMAX_TORCH
                                      ? mr_cuda_softmax_torch(n)
                                      : mr_cuda_softmax_gating(n);
    mr_cuda_softmax_row(&form, logits, n, out);
}
