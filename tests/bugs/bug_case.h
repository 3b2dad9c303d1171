/* A file of cases/bugs: the input of one report, the mutant that shows its fault, what must be said
 * of it. Beside what every case has, "expect" holds
 *   "row"      of the table of public reports ("7"), or letter of a suspicion ("8c")
 *   "report"   where it was made public
 *   "mutant"   of tests/mutants
 *   "verdict"  of its worst token; "second_verdict" of that of its second run
 *   "test"     the engine's own test by its name in engine_tests.c, or "none"
 *   "why"      one sentence: cause and symptom */
#ifndef TESTS_BUG_CASE_H
#define TESTS_BUG_CASE_H

#include "../../ref/io/case.h"
#include "../mutants/mutant.h"
#include "engine_tests.h"

struct bug {
    char path[512];
    struct mr_case *c;
    const char *row, *report, *verdict[2], *why;
    const struct mutant *mutant;
    const struct engine_test *test; /* NULL: none is known */
    struct mutant_input input;      /* widened and summed to binary32 */
    float *memory[4];               /* what input points at */
};

/* Layer 0, phase "all". */
enum mr_status bug_load(const char *path, struct bug *out, struct mr_error *err);
void bug_free(struct bug *bug);

/* Paths of folder/NAME.json, sorted; malloc'ed each and together. */
enum mr_status bug_list(const char *folder, char ***paths, size_t *count, struct mr_error *err);
void bug_list_free(char **paths, size_t count);

/* The answers of the mutant or its twin, [tokens, top_k], malloc'ed. */
struct bug_answer {
    int32_t *ids;
    float *weights;
};
enum mr_status bug_answer(const struct bug *bug, bool repaired, int run, struct bug_answer *out,
                          struct mr_error *err);
void bug_answer_free(struct bug_answer *a);
/* As an observed file. */
enum mr_status bug_write(const struct bug *bug, const struct bug_answer *answer, const char *path,
                         struct mr_error *err);

/* Whether the engine's own comparison sees the fault on this input. */
enum mr_status bug_engine_sees(const struct bug *bug, bool *out, struct mr_error *err);

#endif
