/* The narrow door to libmoeref, for callers that are not C (ctypes, cffi, dlopen): handles, plain
 * arrays and texts, and no struct of the library. tools/python is made of it.
 *
 * Errors. Functions that return int return 0, or a status of ref/status.h with one line about it in
 * why (why_bytes long; NULL, 0: not wanted). After a failure outputs hold nothing of use, and an
 * output handle or text is NULL.
 *
 * Arrays. Row major without gaps, little endian, at any alignment. A dtype is a name of the
 * safetensors format ("BF16", "F16", "F32", "I64" ...). bytes is what the caller has there, and must
 * be what shape and dtype take, to the byte: nothing outside is read, whatever the values are.
 * Inputs are borrowed until their handle is freed, and never written.
 *
 * Options are a JSON object; a key that is not known is refused. Texts that are handed out are JSON
 * too, in UTF-8, and go back to mr_api_text_free.
 *
 * Threads. Any number may call at once, each with inputs of its own; a router may be shared. One
 * call starts OpenMP threads ("threads"), and sets OpenBLAS to one thread for the process. After a
 * fork of a process that has called, say "threads": 1: OpenMP's threads do not live in the child. */
#ifndef MOEREF_API_H
#define MOEREF_API_H

#include <stddef.h>
#include <stdint.h>

struct mr_api_router; /* opaque: what a router means, route/router.h */
struct mr_api_input;  /* opaque: a router and borrowed arrays */

/* Grows by one whenever a function here changes its meaning or its arguments. */
#define MR_API_VERSION 1
int mr_api_version(void);
const char *mr_api_library_version(void);  /* MR_VERSION, "0.1.0" */
const char *mr_api_status_name(int status); /* "ok", "shape", "value" ... */
const char *mr_api_certificate_name(int certificate); /* "bound" ..., "?" if out of range */
const char *mr_api_verdict_name(int verdict);         /* "malformed" ..., "?" if out of range */
void mr_api_text_free(char *text);                    /* NULL is allowed */

/* From the path of a Hugging Face config.json (NULL: none) and a JSON object with the keys of a case
 * file's "router" (NULL: none), which stand over it: experts, top_k, hidden, score, selection, bias,
 * gate_bias, n_group, topk_group, group_score, norm_topk_prob, routed_scaling_factor. Without a
 * config all must be there but hidden, selection, gate_bias, and group_score of n_group 1. A router
 * with hash_layers (DeepSeek-V4's) serves here the layers behind those, which choose by token id. */
int mr_api_router_new(const char *config, const char *json, struct mr_api_router **out, char *why,
                      size_t why_bytes);
/* All of these keys ("hidden" only if it is said) and hash_layers, in a form that mr_api_router_new
 * takes; NULL without memory. */
char *mr_api_router_text(const struct mr_api_router *router);
void mr_api_router_free(struct mr_api_router *router); /* NULL is allowed */

/* Copies the router. */
int mr_api_input_new(const struct mr_api_router *router, struct mr_api_input **out, char *why,
                     size_t why_bytes);
/* Names, shapes and dtypes; each at most once:
 *   hidden        [tokens, hidden]   BF16, F16, F32
 *   gate          [experts, hidden]  BF16, F16, F32: with hidden
 *   gate_bias     [experts]          BF16, F16, F32: with hidden, if the router has one
 *   logits        [tokens, experts]  BF16, F16, F32: instead of hidden; exact by definition
 *   bias          [experts]          BF16, F16, F32: if the router has one
 * and, for mr_api_verify, what a kernel gave:
 *   topk_ids      [rows, top_k]      I32, I64, U32, U16, U8: any values
 *   topk_weights  [rows, top_k]      F32, BF16, F16, F64: any values; with topk_ids
 *   gate_logits   [rows, experts]    F32, BF16, F16, F64: any values; with hidden
 *   token_index   [rows]             I64: the token of each row; without it row i is token i, and
 *                                    there are as many rows as tokens */
int mr_api_input_set(struct mr_api_input *input, const char *name, const char *dtype,
                     const void *data, uint64_t bytes, const uint64_t *shape, int ndim, char *why,
                     size_t why_bytes);
void mr_api_input_free(struct mr_api_input *input); /* NULL is allowed */

/* Certified routing. Outputs, each of which may be NULL, are [tokens, top_k] or [tokens]; tokens
 * must be that of the input. ids are in descending key, equal keys by lowest id; weights are within
 * 4 ulp; gaps and certificates are those of route/certify.h: key of the last expert selected minus
 * key of the first rejected, +Inf where none is, and its error bound; group_gap the same of the
 * groups, +Inf where none is excluded. A row with Inf or NaN has ids -1, weights and gaps NaN.
 * Options: "threads" (0: as many as OpenMP has), "exact_weights" (correctly rounded), "without_blas"
 * (every logit exact: slow), "allow_nonfinite" (false: MR_ERR_VALUE if hidden or logits hold Inf or
 * NaN).
 * *text: {"tokens", "certified": {certificate: count}, "exact_dots", "blas_alarms", "blas_wrong",
 * "ties": [{"token", "slots", "experts", "group_slots", "groups"}], "ties_omitted"}, the ties by
 * token: `slots` of `experts` are selected, and any such choice is right. */
int mr_api_route(const struct mr_api_input *input, const char *options, uint64_t tokens,
                 int32_t *ids, double *weights, double *gap, double *gap_radius, double *group_gap,
                 double *group_gap_radius, uint8_t *certificate, char **text, char *why,
                 size_t why_bytes);

/* The judge. verdicts: [rows], of topk_ids and topk_weights; logit_verdicts: [rows], of gate_logits;
 * codes of enum mr_verdict (route/verdict.h), 0 the worst, MR_API_PADDING for padding that is masked
 * as it must be. Either may be NULL; rows must be that of what was observed.
 * Options: "threads", "without_blas", "allow_nonfinite" as above; "arith" (an arithmetic line:
 * what may round), "profile" (an engine's: is the order of ids promised?), "non_padded" (rows from
 * there on are padding: ids -1), "strict", "worst" (how many findings to list, 100).
 * *text: what `moeref verify --json` writes, for the layer 0 of phase "all", with the sources "topk"
 * and "gate_logits". */
#define MR_API_PADDING 255
int mr_api_verify(const struct mr_api_input *input, const char *options, uint64_t rows,
                  uint8_t *verdicts, uint8_t *logit_verdicts, char **text, char *why,
                  size_t why_bytes);

#endif
