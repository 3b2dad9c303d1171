/* Recordings of kernels (gpu/kernels/check.sh), held against the reference on the CPU. */
#ifndef RECORDINGS_H
#define RECORDINGS_H

#include <stdbool.h>
#include <stddef.h>

struct recorded {
    size_t files, logits, rows, judged; /* logits and rows: compared bit for bit */
    char fault[512];                    /* the first thing that is not as it should be, or "" */
};

/* All *.safetensors of a folder, recordings of one case: that the harness found no fault; that
 * logits are the replay of the file's own line, if it has a sum; that ids and weights follow from
 * them (from the exact logits, rounded, if the kernel took logits) by the operations that
 * gpu/kernels/select.cuh states; and what the judge says. Adds to *out. False, with a fault, at the
 * first that differs. */
bool recordings_check(const char *folder, const char *case_path, struct recorded *out);

#endif
