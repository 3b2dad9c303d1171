/* The row counts that kernels are run at. */
#ifndef MOEREF_GPU_ROWS_H
#define MOEREF_GPU_ROWS_H

#include <stddef.h>

#include "../ref/status.h"

/* Where kernels change their minds: a tile more or less (DESIGN section 8). */
enum { GPU_AXIS = 24, GPU_ROWS_MOST = 64, GPU_ROWS_LARGEST = 65536 };
extern const int gpu_axis[GPU_AXIS];

struct gpu_rows {
    size_t count;
    int at[GPU_ROWS_MOST]; /* ascending, each once */
};

/* "axis", or a list such as "1,6,96". MR_ERR_USAGE. */
enum mr_status gpu_rows_parse(const char *text, struct gpu_rows *out, struct mr_error *err);

#endif
