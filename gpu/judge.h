/* The parent's part: files of a run to verdicts, flips and changed bits. */
#ifndef MOEREF_GPU_JUDGE_H
#define MOEREF_GPU_JUDGE_H

#include "request.h"
#include "results.h"

/* r->at: results by kernel and ascending rows; those that are fine have a file in folder. Reads the
 * faults that the child found, then judges every layer. Dies with input errors of the case. */
void gpu_judge(const struct gpu_request *request, struct mr_case *c, const char *folder,
               struct gpu_results *r);

#endif
