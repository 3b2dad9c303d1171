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
    struct mr_tensor bias;     /* [experts] F32, BF16 or F16; data NULL when the router has none, or
                                  the layer chooses by token id */
    struct mr_tensor gate_bias; /* the same, when the router has one and input is hidden */
    /* A layer that chooses experts by token id (router.hash_layers): tid2eid [vocabulary, top_k]
     * and token ids [tokens], I32 or I64. Data NULL in all others. */
    struct mr_tensor hash, token_ids;
    struct mr_tensor logits;   /* [tokens, experts]: the input when input is logits, otherwise what
                                  was observed */
    struct mr_tensor topk_ids, topk_weights; /* observed, [tokens, top_k] */
    /* What was observed may have fewer rows: those of the first tokens. */
};

/* What a command line may put in place of the case's own values. */
struct mr_case_options {
    const char *capture; /* this file instead of the case's captures; NULL: the case's */
    long seed;           /* of "generate"; negative: the case's */
};
/* options may be NULL. Reading a case opens its config, checkpoint and capture files (safetensors
 * are mapped, not read) and fails if one is bad. A config whose weights struct mr_router cannot say
 * (expert_scale) is MR_ERR_UNSUPPORTED. After a failure *out is NULL. */
enum mr_status mr_case_load(const char *path, const struct mr_case_options *options,
                            struct mr_case **out, struct mr_error *err);
/* The same from text in memory; path is for messages, and the folder of its relative paths. No file
 * is touched before the JSON is found good. The fuzz target's entry. */
enum mr_status mr_case_parse(const char *text, size_t bytes, const char *path,
                             const struct mr_case_options *options, struct mr_case **out,
                             struct mr_error *err);
void mr_case_free(struct mr_case *c); /* NULL is allowed */

const char *mr_case_name(const struct mr_case *c);
const char *mr_case_about(const struct mr_case *c);
bool mr_case_from_logits(const struct mr_case *c);
const struct mr_router *mr_case_router(const struct mr_case *c);
const struct mr_config *mr_case_config(const struct mr_case *c); /* NULL: all in "router" */
const char *mr_case_arith(const struct mr_case *c);   /* "arith", or NULL */
const char *mr_case_profile(const struct mr_case *c); /* "profile", or NULL */
/* "replay": the line under which the observed logits of that phase are known to come back, bit for
 * bit; one for all phases, or an object {phase: LINE}. NULL if nothing is said. */
const char *mr_case_replay(const struct mr_case *c, const char *phase);
const json_t *mr_case_json(const struct mr_case *c); /* the whole document, for expect, generate */

size_t mr_case_phase_count(const struct mr_case *c);
const char *mr_case_phase(const struct mr_case *c, size_t i);
size_t mr_case_layer_count(const struct mr_case *c);
int mr_case_layer_number(const struct mr_case *c, size_t i); /* ascending */

/* Whether a layer listed has its input in that phase; a layer is listed if any phase has it. */
bool mr_case_has(const struct mr_case *c, int layer, const char *phase);
/* Finds and checks the tensors of one layer: shapes and dtypes agree with the router and with each
 * other; zero tokens are allowed, values are not looked at. For a case with "generate" the tensors
 * are made here (deterministic) and live until the case is freed or mr_case_release is called for
 * that layer; all others live until the case is freed. Not thread safe (opens shards). */
enum mr_status mr_case_get(struct mr_case *c, int layer, const char *phase,
                           struct mr_case_layer *out, struct mr_error *err);
void mr_case_release(struct mr_case *c, int layer, const char *phase);

/* A case made from plain files instead of a case file: --config F --gate F[:TENSOR] ... Unused
 * strings are NULL. hidden and logits exclude each other; logits needs no gate. F is what
 * mr_checkpoint_add takes; if all of F:TENSOR names a file, it is that file. Without TENSOR: the
 * layer's default name if it is there, else the only tensor of the file, else an error that lists
 * candidates. A bias that the router needs and --bias (--gate-bias) does not name is looked for
 * beside the gate weight. A layer that chooses experts by token id needs a case file. The case has
 * one layer and the phase "all". */
struct mr_case_files {
    const char *config, *gate, *bias, *gate_bias, *hidden, *logits;
    const char *ids, *weights; /* observed; verify only */
    const char *observed_logits; /* replay only: beside hidden, and not the input */
    int layer; /* which layer's names to look for when no TENSOR is given; -1: the only one there */
};
enum mr_status mr_case_from_files(const struct mr_case_files *files, struct mr_case **out,
                                  struct mr_error *err);

#endif
