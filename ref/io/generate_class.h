/* Between generate.c, which reads the "generate" object, and the classes of layers. */
#ifndef MOEREF_GENERATE_CLASS_H
#define MOEREF_GENERATE_CLASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../route/router.h"
#include "generate.h"

/* What a class may read from the object. */
struct mr_generate_params {
    double hidden_std, gate_std, bias_low, bias_high;
};

/* One layer to fill. key is of (seed, layer), hidden_key of (seed, layer, phase): only hidden
 * states may depend on the phase. base and gain are scratch, [hidden] each. */
struct mr_generate_job {
    const struct mr_router *router;
    struct mr_generate_params params;
    uint64_t key, hidden_key;
    float *base, *gain;
    struct mr_generated *out; /* allocated; bias NULL when the router has none */
};

/* Streams below key. Numbers are part of the output: never reuse or renumber one. */
enum mr_generate_stream {
    MR_STREAM_GATE = 1, MR_STREAM_BIAS, MR_STREAM_ORDER, MR_STREAM_CHANNEL, MR_STREAM_OUTLIER,
    MR_STREAM_HIDDEN
};

enum mr_status mr_generate_normal_layer(const struct mr_generate_job *job, struct mr_error *err);
enum mr_status mr_generate_glm_layer(const struct mr_generate_job *job, struct mr_error *err);

#endif
