/* Inside of a case, shared by case*.c. Private to io. */
#ifndef MOEREF_CASE_PRIVATE_H
#define MOEREF_CASE_PRIVATE_H

#include "case.h"
#include "generate.h"

enum case_tensor {
    TENSOR_HIDDEN, TENSOR_GATE, TENSOR_BIAS, TENSOR_LOGITS, TENSOR_IDS, TENSOR_WEIGHTS,
    TENSOR_GATE_BIAS, TENSOR_HASH, TENSOR_TOKEN_IDS, TENSOR_COUNT
};

/* Keys of "names", in that order. */
extern const char *const mr_case_tensor_keys[TENSOR_COUNT + 1];

/* A tensor and where it came from, for messages. */
struct case_found {
    struct mr_tensor tensor; /* data NULL: not there */
    const char *file;
    char name[512];
};

/* Tensors that no file holds: generated, or written out in the case. */
struct case_made {
    int layer;
    size_t phase;
    struct mr_generated generated;
    float *logits, *bias; /* inline */
    void *packed;         /* logits without what lies between their rows */
    size_t tokens;
    bool keep; /* inline: lives as long as the case */
    struct case_made *next;
};

struct mr_case {
    char *path;
    json_t *json; /* owns the strings below, defaults apart */
    const char *name, *about, *arith, *profile;
    bool from_logits, has_config;
    struct mr_config config;
    struct mr_router router;
    const char **phases;
    size_t phase_count;
    int *layers;
    size_t layer_count;
    struct mr_checkpoint *weights, *captures; /* NULL: none */
    const char *names[TENSOR_COUNT]; /* with {phase} and {layer}; NULL: has no such tensor */
    const char *gate_alias;
    const json_t *generate; /* NULL: none */
    const json_t *replay;   /* a string, or an object of strings by phase; NULL: none */
    long seed; /* in place of the one in generate, unless negative */
    bool inlined;
    size_t row_stride; /* of given logits in the file: elements from row to row; 0: experts */
    struct case_made *made;
    /* A case of plain files: one set and one tensor for each argument. */
    bool plain;
    struct mr_checkpoint *files[TENSOR_COUNT];
    struct case_found plain_tensors[TENSOR_COUNT];
};

#define TRY(call)                                     \
    do {                                              \
        enum mr_status try_status_ = (call);          \
        if (try_status_ != MR_OK) return try_status_; \
    } while (0)

/* Whether it lies in the checkpoint, not in the capture. */
bool mr_case_in_checkpoint(enum case_tensor which);
/* c->names, c->gate_alias: Hugging Face's, by model_type; without a config those of most
 * classes. */
void mr_case_default_names(struct mr_case *c);
/* Refuses a config that means more than struct mr_router says. */
enum mr_status mr_case_check_config(const struct mr_case *c, struct mr_error *err);
/* Whether the layer is one of the router's hash_layers. */
bool mr_case_by_token_id(const struct mr_case *c, int layer);
/* pattern with {phase} and {layer} replaced; MR_ERR_VALUE if the name does not fit. */
enum mr_status mr_case_expand(const struct mr_case *c, const char *pattern, int layer,
                              const char *phase, char name[512], struct mr_error *err);
/* A tensor by its pattern; not there: MR_ERR_MISSING if required, else found->tensor.data NULL. */
enum mr_status mr_case_find(struct mr_case *c, enum case_tensor which, int layer, const char *phase,
                            bool required, struct case_found *found, struct mr_error *err);
/* Whether the tensor that routing starts from is there. */
bool mr_case_has_input(const struct mr_case *c, int layer, const char *phase);
/* The entry of c->made, or NULL. */
struct case_made *mr_case_find_made(const struct mr_case *c, int layer, size_t phase);
/* "inline" -> c->made. */
enum mr_status mr_case_read_inline(struct mr_case *c, const json_t *inlined, struct mr_error *err);
/* "router" over what config said. */
enum mr_status mr_case_read_router(struct mr_case *c, const json_t *overrides,
                                   struct mr_error *err);
/* c->layers, ascending, from "layers", "generate", "inline" or the files. */
enum mr_status mr_case_read_layers(struct mr_case *c, struct mr_error *err);

#endif
