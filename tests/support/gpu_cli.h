/* moeref-gpu as the tests run it: built without CUDA, with plugins for the CPU. */
#ifndef TESTS_GPU_CLI_H
#define TESTS_GPU_CLI_H

#include "cli.h"

/* moeref-gpu (or another build of it) beside the test binary, into cli_last. */
void gpu_run(const char *program, const char *const arguments[]);
#define gpu(...) gpu_run("moeref-gpu", (const char *const[]){__VA_ARGS__, NULL})
#define gpu_fake(...) gpu_run("moeref-gpu-fake", (const char *const[]){__VA_ARGS__, NULL})
const char *gpu_plugin(const char *name); /* its path; a few stay valid at a time */

/* The last run left with that status, and one line on standard error with both words (NULL: not
 * asked). */
void gpu_refused(int status, const char *word, const char *second);

/* The entry of a kernel and row count in the document of `run --json`; fails if it is not there. */
json_t *gpu_entry(const json_t *doc, const char *kernel, int rows);
json_int_t gpu_int(const json_t *entry, const char *key);      /* null: -1 */
const char *gpu_word(const json_t *entry, const char *key);    /* null: "" */
json_int_t gpu_verdict(const json_t *entry, const char *name); /* no verdicts: -1 */

#endif
