/* The word score:NAME of an arithmetic line: which CUDA code evaluates the score, bit for bit.
 *
 *     score:FUNCTION         of cuda.h: sigmoid.expf, sigmoid.__expf, sigmoid.tanhf,
 *                            sqrt-softplus.log1pf, ...
 *     score:softmax.torch    a warp a row, as PyTorch does for at most 1024 columns
 *     score:softmax.gating   the topkGating kernel of vLLM and SGLang
 *
 * Without the word scores are correctly rounded. */
#ifndef MOEREF_SCORE_WORD_H
#define MOEREF_SCORE_WORD_H

#include <stdbool.h>
#include <stddef.h>

#include "../route/router.h"
#include "../status.h"

/* 0: correctly rounded; 1 + mr_cuda_id; or one of these. */
typedef int mr_score_word;
#define MR_SCORE_WORD_SOFTMAX_TORCH -1
#define MR_SCORE_WORD_SOFTMAX_GATING -2

/* NAME of `length` characters; false if there is none. */
bool mr_score_word_parse(const char *name, size_t length, mr_score_word *out);
const char *mr_score_word_name(mr_score_word word); /* "" of 0 */

/* Whether it evaluates that router's scores; MR_ERR_USAGE says what does. softmax.torch serves at
 * most 1024 experts, softmax.gating powers of two up to 512 and multiples of 64 up to 576, both only
 * as the kernels that they are. */
enum mr_status mr_score_word_check(mr_score_word word, const struct mr_router *router,
                                   struct mr_error *err);

/* Scores [n] of logits [n], binary32; out may be logits. word != 0. */
void mr_score_word_apply(mr_score_word word, const float *logits, size_t n, float *out);

#endif
