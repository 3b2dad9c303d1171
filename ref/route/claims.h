/* What kernels claimed for the tokens of one layer, as views of stored tensors. */
#ifndef MOEREF_CLAIMS_H
#define MOEREF_CLAIMS_H

#include <stddef.h>
#include <stdint.h>

#include "../status.h"
#include "../tensor.h"

/* Observed rows of one layer of one phase, from one source. Shapes and dtypes are those given here,
 * and every row has a token; values of ids and weights may be anything. Owns the index alone. */
struct mr_observed {
    const char *source;   /* for messages: path of the file, or the case's name */
    size_t rows, tokens;
    struct mr_tensor ids;     /* [rows, top_k] I32, I64, U32, U16 or U8; data NULL: not there */
    struct mr_tensor weights; /* [rows, top_k] F32, BF16, F16 or F64 */
    struct mr_tensor logits;  /* [rows, experts] F32, BF16, F16 or F64 */
    struct mr_tensor token_index; /* [rows] I64; data NULL: row i is token i */
    uint64_t non_padded; /* rows from here on are padding: all ids are -1 (SGLang's
                            num_token_non_padded). UINT64_MAX: nothing is declared */
    size_t *first, *row_of; /* rows of token t: row_of[first[t]] to row_of[first[t + 1] - 1], in
                               ascending order; NULL if row i is token i */
};

/* From token_index: makes first and row_of. MR_ERR_VALUE names the row whose token is none; name is
 * for its message. */
enum mr_status mr_observed_index(struct mr_observed *o, const char *name, struct mr_error *err);
void mr_observed_free(struct mr_observed *o);

/* The rows of a token: how many; *rows is NULL if the only one is the token's own number. */
size_t mr_observed_rows(const struct mr_observed *o, size_t token, const size_t **rows);
/* One row's values; row < rows. An unsigned id beyond int64 does not exist in these types. */
void mr_observed_ids(const struct mr_observed *o, size_t row, int64_t *ids);
void mr_observed_weights(const struct mr_observed *o, size_t row, double *weights);
void mr_observed_logits(const struct mr_observed *o, size_t row, double *logits);

#endif
