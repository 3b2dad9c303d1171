/* Children: this program again, one a kernel, so that a hang, a crash or an illegal access of a
 * kernel is a verdict and not the end. The parent never touches CUDA.
 *
 * A child reports on file descriptor GPU_REPORT, a line a time, fields apart by tabs:
 *   device NAME DRIVER CUDA   opened
 *   nodevice REASON           nothing can be run on a device here
 *   rows N                    begun
 *   done N ...                finished; its file is in place
 *   unsupported N REASON      the kernel does not serve this
 *   failed N REASON           tried and failed; the child ends
 *   end                       all was done */
#ifndef MOEREF_GPU_CHILD_H
#define MOEREF_GPU_CHILD_H

#include <stdbool.h>
#include <stddef.h>

enum { GPU_REPORT = 3, GPU_FIELDS = 24 };

/* Runs argv (its argv[0] is only a name) with /proc/self/exe. line is called for each that comes.
 * limit: seconds without a line after which the child and all that it started is killed. True if
 * it said "end" and left with status 0; else *reason says how it ended. */
bool gpu_child_run(char *const argv[], double limit,
                   void (*line)(void *context, int fields, char *const field[]), void *context,
                   char *reason, size_t size);

/* In a child: dies with its parent; what kernels print goes to standard error. */
void gpu_child_begin(void);
/* Sends a line; tabs and control characters within fields become '?'. The last field is NULL. */
void gpu_child_say(const char *field, ...) __attribute__((sentinel));
void gpu_child_say_rows(const char *word, int rows, const char *reason); /* reason may be NULL */

#endif
