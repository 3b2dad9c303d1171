/* moeref-gpu run: children run kernels and write files, the parent judges them. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../ref/io/report.h"
#include "../tools/common.h"
#include "child.h"
#include "commands.h"
#include "device.h"
#include "judge.h"
#include "layers.h"
#include "observed_file.h"
#include "registry.h"

/* A kernel that fails so often is not tried at further row counts. */
enum { FAILURES = 3 };

struct run {
    struct gpu_request request;
    struct gpu_results results;
    const char *folder;
    char made[64]; /* the folder, if it is to be removed */
    bool progress;
    /* Of the child at hand: */
    const struct mr_kernel *kernel;
    struct gpu_result *first; /* the kernel's results, by ascending rows */
    size_t at;                /* the next that it has to report */
    bool begun;
};

/* Lines come from a process in which anything may have happened: what is not expected is ignored,
 * and what does not come is NOT_RUN. */
static void take_line(void *context, int fields, char *const field[])
{
    struct run *run = context;
    struct gpu_result *x = &run->first[run->at];
    if (fields < 2 || run->at >= run->request.rows.count || atoi(field[1]) != x->rows) return;
    const char *why = fields > 2 ? field[2] : "?";
    if (!strcmp(field[0], "rows")) {
        run->begun = true;
        if (run->progress) fprintf(stderr, "\r%s, %d rows\033[K", x->kernel->name, x->rows);
        return;
    }
    if (!strcmp(field[0], "unsupported")) gpu_result_fail(x, GPU_UNSUPPORTED, "%s", why);
    else if (!strcmp(field[0], "failed")) gpu_result_fail(x, GPU_NOT_RUN, "%s", why);
    else if (strcmp(field[0], "done")) return;
    run->begun = false;
    run->at++;
}

static void remaining(const struct run *run, struct gpu_rows *out)
{
    out->count = 0;
    for (size_t i = run->at; i < run->request.rows.count; i++)
        out->at[out->count++] = run->request.rows.at[i];
}

/* A new child for what is left after each that ended early: fault by fault, row count by row
 * count. */
static void run_kernel(struct run *run)
{
    char reason[GPU_REASON];
    size_t count = run->request.rows.count;
    int failures = 0;
    run->at = 0;
    while (run->at < count && failures < FAILURES) {
        struct gpu_rows rows;
        size_t before = run->at;
        remaining(run, &rows);
        char **argv = gpu_request_child(&run->request, run->kernel, &rows, run->folder);
        run->begun = false;
        bool fine = gpu_child_run(argv, run->request.timeout, take_line, run, reason,
                                  sizeof reason);
        free(argv);
        bool reported = run->at > before && run->first[run->at - 1].state == GPU_NOT_RUN;
        failures += !fine || reported;
        if (fine && run->at == before && !reported) {
            snprintf(reason, sizeof reason, "its child left without a word");
            fine = false;
            failures++;
        }
        if (!fine && run->at < count)
            gpu_result_fail(&run->first[run->at++], GPU_NOT_RUN, "%s", reason);
    }
    for (; run->at < count; run->at++)
        gpu_result_fail(&run->first[run->at], GPU_NOT_RUN,
                        "not tried: the kernel had failed %d times", FAILURES);
}

struct found_device {
    struct gpu_results *r;
    char why[GPU_REASON];
};

static void take_device(void *context, int fields, char *const field[])
{
    struct found_device *f = context;
    if (fields >= 2 && !strcmp(field[0], "nodevice"))
        snprintf(f->why, sizeof f->why, "%s", field[1]);
    if (fields < 4 || strcmp(field[0], "device")) return;
    snprintf(f->r->device, sizeof f->r->device, "%s", field[1]);
    snprintf(f->r->driver, sizeof f->r->driver, "%s", field[2]);
    snprintf(f->r->cuda, sizeof f->r->cuda, "%s", field[3]);
}

void gpu_need_device(const struct mr_kernel *const *kernels, size_t count, double limit,
                     struct gpu_results *r)
{
    char *argv[] = {(char *)"moeref-gpu", (char *)"--worker", (char *)"device", NULL};
    struct found_device f = {r, ""};
    char reason[GPU_REASON];
    bool needed = false;
    for (size_t i = 0; i < count; i++) needed |= kernels[i]->memory == MR_MEMORY_DEVICE;
    if (!needed) return;
    bool fine = gpu_child_run(argv, limit, take_device, &f, reason, sizeof reason);
    if (f.why[0]) die(4, "%s", f.why);
    if (!fine) die(4, "no GPU can be used: looking for one: %s", reason);
}

bool gpu_write_json(const struct gpu_results *r, const char *path)
{
    struct mr_error err = {{0}};
    if (!path) return false;
    json_t *doc = gpu_results_json(r);
    enum mr_status status = doc ? mr_json_write(doc, path, &err) : MR_ERR_MEMORY;
    json_decref(doc);
    if (status) die_of(status, &err);
    return !strcmp(path, "-");
}

/* Where observed files go. Files of an earlier run with the names of this one are removed: what a
 * kernel that dies now had given then is not its answer. */
static void prepare_folder(struct run *run, const struct mr_kernel *const *kernels, size_t count)
{
    struct stat st;
    if (run->request.out) {
        run->folder = run->request.out;
        if (mkdir(run->folder, 0777) && errno != EEXIST)
            die(3, "--out %s: %s", run->folder, strerror(errno));
        if (stat(run->folder, &st) || !S_ISDIR(st.st_mode))
            die(3, "--out %s: expected a folder", run->folder);
        if (access(run->folder, W_OK | X_OK)) die(3, "--out %s: %s", run->folder, strerror(errno));
    } else {
        const char *base = getenv("TMPDIR");
        if (!base || strlen(base) > 30) base = "/tmp";
        snprintf(run->made, sizeof run->made, "%s/moeref-gpu-XXXXXX", base);
        if (!mkdtemp(run->made)) die(3, "%s: %s", run->made, strerror(errno));
        run->folder = run->made;
    }
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < run->request.rows.count; i++) {
            char path[PATH_MAX];
            gpu_observed_path(run->folder, kernels[k]->name, run->request.rows.at[i], path,
                              sizeof path);
            if (unlink(path) && errno != ENOENT) die(3, "%s: %s", path, strerror(errno));
        }
}

static void remove_folder(const struct run *run)
{
    if (!run->made[0]) return;
    for (size_t i = 0; i < run->results.count; i++) {
        char path[PATH_MAX];
        gpu_observed_path(run->folder, run->results.at[i].kernel->name, run->results.at[i].rows,
                          path, sizeof path);
        unlink(path);
    }
    rmdir(run->made);
}

/* What a child could only say by dying: a case that cannot be read, logits that are not there. */
static void check_case(const struct run *run, struct mr_case *c)
{
    struct gpu_layers layers;
    gpu_layers_list(c, &run->request, &layers);
    for (size_t i = 0; i < layers.count; i++) {
        if (json_object_get(mr_case_json(c), "generate") && i) break;
        gpu_layer_open(&layers, i, run->request.from_logits);
        gpu_layer_close(&layers, i);
    }
    gpu_layers_free(&layers);
}

static void run_all(struct run *run, const struct mr_kernel *const *kernels, size_t count)
{
    size_t rows = run->request.rows.count;
    run->results.count = count * rows;
    run->results.at = need(count * rows, sizeof *run->results.at);
    for (size_t k = 0; k < count; k++) {
        run->kernel = kernels[k];
        run->first = run->results.at + k * rows;
        for (size_t i = 0; i < rows; i++)
            gpu_result_init(&run->first[i], kernels[k], run->request.rows.at[i]);
        run_kernel(run);
    }
    if (run->progress) fputs("\r\033[K", stderr);
}

static long seed_of(const struct gpu_request *r, const struct mr_case *c)
{
    json_t *made = json_object_get(mr_case_json(c), "generate");
    if (!made) return -1;
    return r->options.seed >= 0 ? r->options.seed
                                : (long)json_integer_value(json_object_get(made, "seed"));
}

int gpu_cmd_run(int argc, char **argv)
{
    struct run run = {0};
    char resolved[PATH_MAX];
    gpu_request_parse(GPU_RUN, argc, argv, &run.request);
    if (run.request.json && strcmp(run.request.json, "-"))
        run.request.json = output_path("--json", run.request.json, resolved);
    run.progress = isatty(STDERR_FILENO) && !run.request.quiet;
    struct mr_case *c = gpu_request_open(&run.request);
    check_case(&run, c);
    const struct mr_kernel **kernels = need(gpu_kernel_count(), sizeof *kernels);
    size_t count = gpu_request_kernels(&run.request, kernels);
    run.results.command = "run";
    run.results.against = run.request.against;
    run.results.case_name = mr_case_name(c);
    run.results.seed = seed_of(&run.request, c);
    gpu_need_device(kernels, count, run.request.timeout, &run.results);
    prepare_folder(&run, kernels, count);
    run_all(&run, kernels, count);
    gpu_judge(&run.request, c, run.folder, &run.results);
    remove_folder(&run);
    bool console = gpu_write_json(&run.results, run.request.json);
    if (!console && !run.request.quiet)
        gpu_print_run(&run.results, run.request.verbose, stdout);
    bool failed = gpu_results_failed(&run.results);
    free(run.results.at);
    free(kernels);
    mr_case_free(c);
    gpu_request_free(&run.request);
    return failed;
}
