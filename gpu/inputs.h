/* From what a case brings for one layer to what a kernel takes. */
#ifndef MOEREF_GPU_INPUTS_H
#define MOEREF_GPU_INPUTS_H

#include "../ref/io/case_layer.h"
#include "../ref/moeref.h"
#include "harness.h"

/* The router in the interface's words. MR_ERR_UNSUPPORTED: layers that choose by token id. */
enum mr_status gpu_router(const struct mr_router *router, struct mr_kernel_router *out,
                          struct mr_error *err);

/* What a kernel is given for a layer, as arrays of its types. Tokens are those of the layer. */
struct gpu_inputs {
    size_t tokens;
    int32_t hidden_type, gate_type, given_type;
    void *hidden, *gate, *given; /* [tokens, hidden], [experts, hidden], [tokens, experts] */
    float *bias, *gate_bias;     /* [experts] or NULL */
    bool rounded;                /* given are exact logits, rounded to a type narrower than fp32 */
};

/* layer is what mr_case_input_make gave. A kernel that takes logits gets the case's, or, from
 * hidden states, the exact logits rounded once to the widest type that it takes (NaN where an
 * input is not finite). All else is converted without loss, or MR_ERR_UNSUPPORTED says what
 * cannot be. */
enum mr_status gpu_inputs_make(const struct mr_layer *layer, const struct mr_kernel *kernel,
                               struct gpu_inputs *out, struct mr_error *err);
void gpu_inputs_free(struct gpu_inputs *in);

size_t gpu_type_bytes(int32_t type);
enum mr_dtype gpu_type_dtype(int32_t type);

#endif
