/* moeref-gpu bench: children time kernels, the parent makes the table. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../tools/common.h"
#include "child.h"
#include "commands.h"
#include "registry.h"
#include "request.h"
#include "results.h"

enum { FAILURES = 3 };

struct bench {
    struct gpu_request request;
    struct gpu_results results;
    size_t room;
    const struct mr_kernel *kernel;
    size_t begun; /* row counts of this kernel that the child has begun, ended or not */
    bool open;    /* the last of them has not ended */
    bool progress;
};

static struct gpu_result *new_result(struct bench *b, int rows)
{
    if (b->results.count == b->room) {
        b->room = 2 * b->room + 64;
        b->results.at = realloc(b->results.at, b->room * sizeof *b->results.at);
        if (!b->results.at) die(4, "out of memory");
    }
    struct gpu_result *x = &b->results.at[b->results.count++];
    gpu_result_init(x, b->kernel, rows);
    return x;
}

/* time ROWS PDL COLD SPREAD WARM SPREAD EVENTS_COLD EVENTS_WARM METHOD SAMPLES KERNELS */
static void take_time(struct bench *b, int fields, char *const field[])
{
    if (fields < 12) return;
    struct gpu_result *x = new_result(b, atoi(field[1]));
    x->pdl = atoi(field[2]);
    x->cold = atof(field[3]);
    x->cold_spread = atof(field[4]);
    x->warm = atof(field[5]);
    x->warm_spread = atof(field[6]);
    x->events_cold = atof(field[7]);
    x->events_warm = atof(field[8]);
    snprintf(x->method, sizeof x->method, "%s", field[9]);
    x->samples = atoi(field[10]);
    x->kernels = atoi(field[11]);
}

static void take_line(void *context, int fields, char *const field[])
{
    struct bench *b = context;
    const struct gpu_rows *rows = &b->request.rows;
    if (fields < 2) return;
    gpu_results_floor(&b->results, fields, field);
    if (!strcmp(field[0], "time")) take_time(b, fields, field);
    if (!strcmp(field[0], "rows") && b->begun < rows->count) {
        b->begun++;
        b->open = true;
        if (b->progress) fprintf(stderr, "\r%s, %s rows\033[K", b->kernel->name, field[1]);
    }
    bool unsupported = !strcmp(field[0], "unsupported"), failed = !strcmp(field[0], "failed");
    if (unsupported || failed)
        gpu_result_fail(new_result(b, atoi(field[1])), failed ? GPU_NOT_RUN : GPU_UNSUPPORTED, "%s",
                        fields > 2 ? field[2] : "?");
    if (unsupported || failed || !strcmp(field[0], "done")) b->open = false;
}

static void bench_kernel(struct bench *b)
{
    char reason[GPU_REASON];
    const struct gpu_rows *all = &b->request.rows;
    b->begun = 0;
    for (int failures = 0; b->begun < all->count && failures < FAILURES; failures++) {
        struct gpu_rows rows = {.count = 0};
        size_t before = b->begun;
        for (size_t i = before; i < all->count; i++) rows.at[rows.count++] = all->at[i];
        char **argv = gpu_request_child(&b->request, b->kernel, &rows, NULL);
        b->open = false;
        bool fine = gpu_child_run(argv, b->request.timeout, take_line, b, reason, sizeof reason);
        free(argv);
        if (fine && b->begun > before) continue;
        if (fine) snprintf(reason, sizeof reason, "its child left without a word");
        if (b->begun == before) b->begun++;
        else if (!b->open) continue;
        gpu_result_fail(new_result(b, all->at[b->begun - 1]), GPU_NOT_RUN, "%s", reason);
    }
    for (; b->begun < all->count; b->begun++)
        gpu_result_fail(new_result(b, all->at[b->begun]), GPU_NOT_RUN,
                        "not tried: the kernel had failed %d times", FAILURES);
}

static void check_kernels(const struct mr_kernel *const *kernels, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (kernels[i]->memory == MR_MEMORY_HOST)
            die(2, "bench: kernel %s runs on the CPU: there is nothing to time on a GPU",
                kernels[i]->name);
}

int gpu_cmd_bench(int argc, char **argv)
{
    struct bench b = {0};
    char resolved[PATH_MAX];
    gpu_request_parse(GPU_BENCH, argc, argv, &b.request);
    if (b.request.json && strcmp(b.request.json, "-"))
        b.request.json = output_path("--json", b.request.json, resolved);
    b.progress = isatty(STDERR_FILENO) && !b.request.quiet;
    struct mr_case *c = gpu_request_open(&b.request);
    const struct mr_kernel **kernels = need(gpu_kernel_count(), sizeof *kernels);
    size_t count = gpu_request_kernels(&b.request, kernels);
    check_kernels(kernels, count);
    json_t *made = json_object_get(mr_case_json(c), "generate");
    b.results.command = "bench";
    b.results.case_name = mr_case_name(c);
    b.results.seed = b.request.options.seed >= 0 ? b.request.options.seed
                     : made ? (long)json_integer_value(json_object_get(made, "seed")) : -1;
    gpu_need_device(kernels, count, b.request.timeout, &b.results);
    for (size_t k = 0; k < count; k++) {
        b.kernel = kernels[k];
        bench_kernel(&b);
    }
    if (b.progress) fputs("\r\033[K", stderr);
    if (!gpu_write_json(&b.results, b.request.json) && !b.request.quiet)
        gpu_print_bench(&b.results, stdout);
    bool failed = gpu_results_failed(&b.results);
    free(b.results.at);
    free(kernels);
    mr_case_free(c);
    gpu_request_free(&b.request);
    return failed;
}
