/* The comparisons of the engines' own tests, as notes on them give their tolerances: would such a
 * test have seen the fault, had it had the input? (Most never have the input: constant biases,
 * random numbers without ties, one shape.) Written from tolerances and what is compared, not from
 * their code. */
#ifndef TESTS_ENGINE_TESTS_H
#define TESTS_ENGINE_TESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a test holds side by side: the answers of a kernel and of a right reference. */
struct compared {
    size_t tokens;
    int experts, k;
    bool renormalised;
    const int32_t *want_ids, *got_ids;   /* [tokens, k] */
    const float *want_weights, *got_weights;
    const float *keys;                   /* [tokens, experts]: the reference's rank keys */
    const float *want_logits, *got_logits; /* [tokens, experts] */
};

struct engine_test {
    const char *name, *source; /* file @ commit */
    bool (*passes)(const struct compared *c);
};

const struct engine_test *engine_test_find(const char *name); /* NULL: no such test */

#endif
