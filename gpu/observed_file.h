/* KERNEL.mROWS.safetensors: what a kernel gave at one row count, in the layout of observed files
 * (DESIGN section 6), and where it came from. */
#ifndef MOEREF_GPU_OBSERVED_FILE_H
#define MOEREF_GPU_OBSERVED_FILE_H

#include "inputs.h"
#include "session.h"

/* All rows of one layer: launches one after the other. */
struct gpu_layer_rows {
    int layer;
    const char *phase;
    size_t rows;              /* launches * rows of one */
    int64_t *index;           /* [rows] tokens */
    unsigned char *ids, *weights, *logits; /* NULL: not given */
};

struct gpu_provenance {
    const struct mr_kernel *kernel;
    int rows, top_k, experts;
    const char *case_name, *arith, *device, *driver, *cuda, *seed;
    const struct gpu_faults *faults;
};

/* "FOLDER/KERNEL.mROWS.safetensors" */
void gpu_observed_path(const char *folder, const char *kernel, int rows, char *path, size_t size);
enum mr_status gpu_observed_write(const char *path, const struct gpu_provenance *from,
                                  const struct gpu_layer_rows *layer, size_t count,
                                  struct mr_error *err);

extern const char gpu_commit[]; /* of this build; "unknown" */

#endif
