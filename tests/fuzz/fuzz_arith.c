/* libFuzzer: any line is refused with a column, or comes back from its canonical form, and its sum
 * is laid out as one tree. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/arith/arith.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every term in one part, every partial sum but the first used up once. */
static void check_plan(const struct mr_sum_shape *sum, size_t terms)
{
    struct mr_plan p;
    if (mr_plan_make(sum, terms, &p, NULL) != MR_OK) return;
    size_t left = p.parts;
    if (p.begin[p.parts] != terms) abort();
    for (size_t i = 0; i < p.steps; i++) {
        if (p.step[i].into >= p.parts || p.step[i].from >= p.parts) abort();
        left -= p.step[i].into != p.step[i].from;
    }
    if (left != (terms ? 1 : 0)) abort();
    mr_plan_free(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_arith a, b;
    struct mr_error err = {""};
    char text[MR_ARITH_TEXT], again[MR_ARITH_TEXT];
    size_t terms = size ? data[0] : 0;
    char *line = malloc(size + 1); /* of exactly size, so that ASan guards its end */
    if (!line) return 0;
    if (size) memcpy(line, data, size);
    line[size] = '\0';
    enum mr_status status = mr_arith_parse(line, &a, &err);
    free(line);
    if (status != MR_OK) {
        if (!*err.text) abort();
        return 0;
    }
    mr_arith_print(&a, text, sizeof text);
    if (mr_arith_parse(text, &b, &err) != MR_OK || !mr_arith_same(&a, &b)) abort();
    mr_arith_print(&b, again, sizeof again);
    if (strcmp(text, again)) abort();
    check_plan(&a.sum, terms);
    return 0;
}
