/* Interim: replaced by the table of tensor-core instructions. */
#ifndef MOEREF_MMA_H
#define MOEREF_MMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../status.h"

struct mr_mma {
    const char *name;
    int terms, fraction;
};
const struct mr_mma *mr_mma_find(const char *name, size_t length);
const char *mr_mma_name(const struct mr_mma *m);
int mr_mma_terms(const struct mr_mma *m);
bool mr_mma_same(const struct mr_mma *a, const struct mr_mma *b);
/* Whether a word is meant as an instruction; and why there is none of that name. */
bool mr_mma_begins(const char *word, size_t length);
enum mr_status mr_mma_refusal(const char *word, size_t length, char *why, size_t size);

#endif
