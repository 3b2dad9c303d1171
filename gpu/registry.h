/* Which kernels there are: built in, and from plugins. */
#ifndef MOEREF_GPU_REGISTRY_H
#define MOEREF_GPU_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>

#include "../ref/status.h"
#include "harness.h"

/* Opens a shared library and adds its kernels. MR_ERR_IO if it cannot be loaded, MR_ERR_FORMAT
 * if it exports no moeref_plugin, MR_ERR_UNSUPPORTED for another ABI version, MR_ERR_VALUE for a
 * kernel whose fields contradict each other or whose name is taken. Its code runs in this
 * process: what a library does while it is loaded is not contained. */
enum mr_status gpu_plugin_load(const char *path, struct mr_error *err);
/* Checks the built-in kernels as those of plugins are. */
enum mr_status gpu_registry_check(struct mr_error *err);

/* By family, then by name. */
size_t gpu_kernel_count(void);
const struct mr_kernel *gpu_kernel_at(size_t i);
const struct mr_kernel *gpu_kernel_find(const char *name); /* NULL: none */
/* "a, b, c", for messages; cut at the end of text. */
void gpu_kernel_names(char *text, size_t size);

/* What of a type set: "bf16", "fp32"; "-" for 0. Of several, the widest. */
const char *gpu_type_name(int type);

#endif
