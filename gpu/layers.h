/* The layers of a case that were asked for, and what a kernel takes of each. */
#ifndef MOEREF_GPU_LAYERS_H
#define MOEREF_GPU_LAYERS_H

#include "inputs.h"
#include "request.h"

struct gpu_layer {
    int number;
    const char *phase;
    struct mr_case_layer tensors;
    struct mr_case_input input; /* points into itself */
    struct gpu_inputs given;
    bool made;
};

struct gpu_layers {
    struct mr_case *c;
    size_t count;
    struct gpu_layer *at; /* in the order of `moeref verify`: phases, then layers */
};

/* Finds them; reads nothing yet. */
void gpu_layers_list(struct mr_case *c, const struct gpu_request *r, struct gpu_layers *out);
/* Tensors and the router's view of one; dies. To be closed again. */
void gpu_layer_open(struct gpu_layers *l, size_t i, bool from_logits);
void gpu_layer_close(struct gpu_layers *l, size_t i);
void gpu_layers_free(struct gpu_layers *l);

#endif
