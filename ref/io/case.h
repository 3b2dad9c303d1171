/* Case files (DESIGN section 6): which inputs belong together, and how they are named. */
#ifndef MOEREF_CASE_H
#define MOEREF_CASE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "../route/router.h"
#include "../status.h"
#include "../tensor.h"
#include "config.h"
#include "safetensors.h"

struct mr_case; /* opaque: parsed JSON, resolved router, open files */

/* What one layer of one phase brings. Missing observed tensors have data == NULL. */
struct mr_case_layer {
    int layer;
    const char *phase;         /* "all" for a case without phases */
    struct mr_tensor hidden;   /* [tokens, hidden]; data NULL when input is logits */
    struct mr_tensor gate;     /* [experts, hidden]; data NULL when input is logits */
    struct mr_tensor bias;     /* [experts] F32, BF16 or F16; data NULL when the router has none */
    struct mr_tensor logits;   /* [tokens, experts]: the input when input is logits, otherwise what
                                  was observed */
    struct mr_tensor topk_ids, topk_weights; /* observed, [tokens, top_k] */
};

/* What a command line may put in place of the case's own values. */
struct mr_case_options {
    const char *capture; /* this file instead of the case's captures; NULL: the case's */
    long seed;           /* of "generate"; negative: the case's */
};
/* options may be NULL. */
enum mr_status mr_case_load(const char *path, const struct mr_case_options *options,
                            struct mr_case **out, struct mr_error *err);
void mr_case_free(struct mr_case *c);

const char *mr_case_name(const struct mr_case *c);
const char *mr_case_about(const struct mr_case *c);
bool mr_case_from_logits(const struct mr_case *c);
const struct mr_router *mr_case_router(const struct mr_case *c);
const char *mr_case_arith(const struct mr_case *c); /* "arith", or NULL */
const json_t *mr_case_json(const struct mr_case *c); /* the whole document, for expect, generate */

size_t mr_case_phase_count(const struct mr_case *c);
const char *mr_case_phase(const struct mr_case *c, size_t i);
size_t mr_case_layer_count(const struct mr_case *c);
int mr_case_layer_number(const struct mr_case *c, size_t i); /* ascending */

/* Finds and checks the tensors of one layer: shapes and dtypes agree with the router and with each
 * other. For a case with "generate" the tensors are made here (deterministic) and live until the
 * case is freed or mr_case_release is called for that layer. */
enum mr_status mr_case_get(struct mr_case *c, int layer, const char *phase,
                           struct mr_case_layer *out, struct mr_error *err);
void mr_case_release(struct mr_case *c, int layer, const char *phase);

/* A case made from plain files instead of a case file: --config F --gate F[:TENSOR] ... Unused
 * strings are NULL. hidden and logits exclude each other; logits needs no gate. */
struct mr_case_files {
    const char *config, *gate, *bias, *hidden, *logits;
    int layer; /* which layer's names to look for when no TENSOR is given; -1: the only one there */
};
enum mr_status mr_case_from_files(const struct mr_case_files *files, struct mr_case **out,
                                  struct mr_error *err);

#endif
