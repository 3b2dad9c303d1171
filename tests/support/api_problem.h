/* A made problem through the narrow API: every array in memory of exactly its own size, at an odd
 * address, so that a sanitizer sees the first byte read outside. */
#ifndef API_PROBLEM_H
#define API_PROBLEM_H

#include "../../ref/api/api.h"
#include "small_kernel.h"

enum { API_ARRAYS_HELD = 16, API_WHY = 256 };

struct api_problem {
    struct mr_api_router *router;
    struct mr_api_input *input;
    char *held[API_ARRAYS_HELD];
    int count;
    char why[API_WHY];
};

/* The layer's own arrays; what was observed is set by the caller. */
void api_problem_new(const struct problem *p, struct api_problem *out);
void api_problem_free(struct api_problem *a);
/* A copy of data as an array of that name; returns the status. cols 0: one dimension. */
int api_problem_set(struct api_problem *a, const char *name, const char *dtype, const void *data,
                    uint64_t rows, uint64_t cols);
/* The same, and failure fails the test. */
void api_problem_must(struct api_problem *a, const char *name, const char *dtype, const void *data,
                      uint64_t rows, uint64_t cols);

#endif
