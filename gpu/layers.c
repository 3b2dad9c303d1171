#include "layers.h"

#include <stdlib.h>
#include <string.h>

#include "../tools/common.h"

void gpu_layers_list(struct mr_case *c, const struct gpu_request *r, struct gpu_layers *out)
{
    size_t phases = mr_case_phase_count(c), layers = mr_case_layer_count(c);
    *out = (struct gpu_layers){.c = c, .at = need(phases * layers, sizeof *out->at)};
    for (size_t p = 0; p < phases; p++) {
        const char *phase = mr_case_phase(c, p);
        if (r->phase && strcmp(phase, r->phase)) continue;
        for (size_t i = 0; i < layers; i++) {
            int number = mr_case_layer_number(c, i);
            if (!layer_listed(r->layers, number) || !mr_case_has(c, number, phase)) continue;
            out->at[out->count++] = (struct gpu_layer){.number = number, .phase = phase};
        }
    }
    if (!out->count) die(3, "%s: no layer and phase like those asked for", mr_case_name(c));
}

void gpu_layer_open(struct gpu_layers *l, size_t i, bool from_logits)
{
    struct gpu_layer *x = &l->at[i];
    struct mr_error err = {{0}};
    enum mr_status status = mr_case_get(l->c, x->number, x->phase, &x->tensors, &err);
    if (!status) status = mr_case_input_make(l->c, &x->tensors, from_logits, &x->input, &err);
    if (status) die_of(status, &err);
}

void gpu_layer_close(struct gpu_layers *l, size_t i)
{
    struct gpu_layer *x = &l->at[i];
    mr_case_input_free(&x->input);
    mr_case_release(l->c, x->number, x->phase);
}

void gpu_layers_free(struct gpu_layers *l)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->at[i].made) gpu_inputs_free(&l->at[i].given);
    free(l->at);
    *l = (struct gpu_layers){0};
}
