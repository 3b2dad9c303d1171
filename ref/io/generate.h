/* Synthetic layers for cases with "generate": deterministic (integer arithmetic and exactly rounded
 * operations only, no libm), so the same case and seed give the same bytes on every machine. */
#ifndef MOEREF_GENERATE_H
#define MOEREF_GENERATE_H

#include <jansson.h>
#include <stdint.h>

#include "../route/router.h"
#include "../status.h"

struct mr_generated {
    size_t tokens;
    uint16_t *hidden; /* bf16 [tokens, hidden], malloc'ed */
    uint16_t *gate;   /* bf16 [experts, hidden], malloc'ed; the same for every phase of a layer */
    float *bias;      /* [experts], malloc'ed; NULL when the router has none */
};

/* Checks the "generate" object: known keys, ranges, a class that exists. path is for messages. */
enum mr_status mr_generate_check(const json_t *generate, const struct mr_router *router,
                                 const char *path, struct mr_error *err);
enum mr_status mr_generate_layer(const json_t *generate, const struct mr_router *router, long seed,
                                 int layer, const char *phase, struct mr_generated *out,
                                 struct mr_error *err);
void mr_generated_free(struct mr_generated *g);

#endif
