/* What engines' profiles make of logits: the answers on which the judge must raise no alarm. Apart
 * from its caller, since profile.h and radius.h have names in common. */
#ifndef TESTS_CLEAN_PROFILES_H
#define TESTS_CLEAN_PROFILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../ref/arith/arith.h"
#include "../../ref/route/router.h"

struct clean_profile {
    const char *name;
    bool ordered;         /* promises descending keys */
    struct mr_arith arith; /* what it rounds, as words */
};

/* The i-th profile's answers [tokens, top_k]; the weights hold the scaling factor even where the
 * engine leaves it to the model. False if the profile does not serve that router, or is known to be
 * at fault for it (clean_profiles.c says where). */
bool clean_profile(size_t i, const struct mr_router *router, size_t tokens, const float *logits,
                   const float *bias, int32_t *ids, float *weights, struct clean_profile *out);
size_t clean_profile_count(void);

#endif
