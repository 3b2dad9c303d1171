/* The commands of moeref-gpu; argv[0] is the command's name. Exit statuses as in DESIGN section
 * 4. */
#ifndef MOEREF_GPU_COMMANDS_H
#define MOEREF_GPU_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

struct gpu_results;
struct mr_kernel;

int gpu_cmd_list(int argc, char **argv);
int gpu_cmd_run(int argc, char **argv);
int gpu_cmd_bench(int argc, char **argv);
int gpu_cmd_probe(int argc, char **argv);

extern const char gpu_help_list[], gpu_help_probe[];

/* In a child: is there a device? Fills in what it is, or dies with 4 and what is missing. Does
 * nothing if no kernel needs one. */
void gpu_need_device(const struct mr_kernel *const *kernels, size_t count, double limit,
                     struct gpu_results *r);
/* --json, unless it is NULL; dies. True if it went to standard output. */
bool gpu_write_json(const struct gpu_results *r, const char *path);

#endif
