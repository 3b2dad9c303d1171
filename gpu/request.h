/* What `run` and `bench` were asked for. Parent and children read the same command line. */
#ifndef MOEREF_GPU_REQUEST_H
#define MOEREF_GPU_REQUEST_H

#include "../ref/io/case.h"
#include "harness.h"
#include "rows.h"

enum gpu_command { GPU_RUN, GPU_BENCH };

struct gpu_request {
    enum gpu_command command;
    const char *case_path;
    struct mr_case_options options;
    bool from_logits;
    const char *kernel;    /* a name, or "all" */
    const char *against;   /* run: a kernel that all others are compared with; NULL: none */
    struct gpu_rows rows;
    bool rows_listed;      /* by number, not as the axis */
    const char *layers, *phase; /* NULL: all (bench: the first) */
    const char *out;       /* folder of observed files; NULL: none is kept */
    const char *json;
    const char **plugin;   /* [plugin_count] */
    size_t plugin_count;
    double timeout;        /* seconds without progress after which a child is ended */
    long launches;         /* most of one layer at one row count */
    int threads;           /* of the judge; 0: as many as there are */
    int repeats;           /* bench: samples */
    bool no_cupti, strict, quiet, verbose;
};

/* Dies with usage errors. argv[0] is the command's name. plugin has room for argc. */
void gpu_request_parse(enum gpu_command command, int argc, char **argv, struct gpu_request *out);
void gpu_request_free(struct gpu_request *r);

/* Loads the plugins and the case; dies with what is wrong. With a listed row count that the one
 * kernel named does not serve, too. */
struct mr_case *gpu_request_open(const struct gpu_request *r);
/* Kernels asked for, in the registry's order: how many; out has room for gpu_kernel_count(). */
size_t gpu_request_kernels(const struct gpu_request *r, const struct mr_kernel **out);

/* The command line of a child that does one kernel at some row counts; to be freed as one block.
 * folder NULL: none. */
char **gpu_request_child(const struct gpu_request *r, const struct mr_kernel *kernel,
                         const struct gpu_rows *rows, const char *folder);

extern const char gpu_help_run[], gpu_help_bench[];

#endif
