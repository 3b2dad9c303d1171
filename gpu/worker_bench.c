/* The children that time: one kernel of a bench, or the floors alone for a probe. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tools/common.h"
#include "child.h"
#include "device.h"
#include "layers.h"
#include "registry.h"
#include "session.h"
#include "stats.h"
#include "worker.h"

#define TRY(call)                                     \
    do {                                              \
        enum mr_status try_status_ = (call);          \
        if (try_status_ != MR_OK) return try_status_; \
    } while (0)

static void say_time(const char *word, const char *what, const char *pdl,
                     const struct gpu_timing *t)
{
    char text[8][32];
    const double number[6] = {
        gpu_quantile(t->cold.at, t->cold.count, 0.5), gpu_spread(t->cold.at, t->cold.count),
        gpu_quantile(t->warm.at, t->warm.count, 0.5), gpu_spread(t->warm.at, t->warm.count),
        t->events_cold, t->events_warm};
    for (int i = 0; i < 6; i++) snprintf(text[i], sizeof text[i], "%.4f", number[i]);
    snprintf(text[6], sizeof text[6], "%d", t->cold.count);
    snprintf(text[7], sizeof text[7], "%d", t->kernels);
    if (pdl)
        gpu_child_say(word, what, pdl, text[0], text[1], text[2], text[3], text[4], text[5],
                      t->method, text[6], text[7], NULL);
    else
        gpu_child_say(word, what, text[0], text[1], text[2], text[3], text[4], text[5], t->method,
                      NULL);
}

static enum mr_status time_floor(const char *name, struct gpu_work work,
                                 const struct gpu_timing_options *options, struct mr_error *err)
{
    struct gpu_timing t;
    TRY(gpu_time(&work, options, &t, err));
    say_time("floor", name, NULL, &t);
    gpu_timing_free(&t);
    return MR_OK;
}

/* All floors; gate [bytes] on the device. */
static enum mr_status time_floors(const struct gpu_memory *m, const void *gate, size_t bytes,
                                  const struct gpu_timing_options *options, struct mr_error *err)
{
    struct gpu_buffer sink;
    char number[32];
    TRY(gpu_buffer_new(m, "sink", sizeof(int), &sink, err));
    snprintf(number, sizeof number, "%zu", bytes);
    gpu_child_say("gate", number, NULL);
    enum mr_status status = time_floor("empty_1", gpu_work_empty(1), options, err);
    if (!status) status = time_floor("empty_288", gpu_work_empty(288), options, err);
    if (!status && bytes >= 16)
        status = time_floor("read_gate", gpu_work_read(gate, bytes, sink.data), options, err);
    gpu_buffer_free(m, &sink);
    return status;
}

static enum mr_status launch(void *context, void *stream, struct mr_error *err)
{
    (void)stream; /* the session's own, which is the only one */
    return gpu_session_launch(context, err);
}

struct worker {
    const struct gpu_request *request;
    const struct mr_kernel *kernel;
    const struct gpu_memory *memory;
    struct gpu_layers layers;
    struct mr_kernel_problem problem;
    struct gpu_timing_options timing;
    struct mr_error err;
};

static enum mr_status time_session(struct worker *w, struct gpu_session *s, int pdl)
{
    struct gpu_work work = {launch, s};
    struct gpu_timing t;
    char rows[16], text[16];
    int64_t *index = need((size_t)w->problem.rows, sizeof *index);
    for (int r = 0; r < w->problem.rows; r++)
        index[r] = (int64_t)((size_t)r % w->layers.at[0].given.tokens);
    enum mr_status status = gpu_session_rows(s, index, &w->err);
    free(index);
    TRY(status);
    TRY(gpu_time(&work, &w->timing, &t, &w->err));
    snprintf(rows, sizeof rows, "%d", w->problem.rows);
    snprintf(text, sizeof text, "%d", pdl);
    say_time("time", rows, text, &t);
    gpu_timing_free(&t);
    return MR_OK;
}

static enum mr_status time_rows(struct worker *w)
{
    bool both = w->kernel->promises & MR_KERNEL_HAS_PDL;
    for (int pdl = 0; pdl <= both; pdl++) {
        struct gpu_session s;
        w->problem.pdl = pdl;
        enum mr_status status = gpu_session_open(&s, w->kernel, &w->layers.at[0].given, &w->problem,
                                                 w->memory, &w->err);
        if (!status) status = time_session(w, &s, both ? pdl : -1);
        gpu_session_close(&s);
        TRY(status);
    }
    return MR_OK;
}

/* Whether this row count is served; if not, that has been said. */
static bool served(struct worker *w, int rows)
{
    const struct mr_kernel *k = w->kernel;
    char text[256] = "";
    w->problem.rows = rows;
    if (rows < k->min_rows || (k->max_rows && rows > k->max_rows))
        snprintf(text, sizeof text,
                 k->max_rows ? "serves %d to %d rows" : "serves %d rows and more", k->min_rows,
                 k->max_rows);
    else if (!k->supports ||
             k->supports(&w->problem, (struct mr_kernel_why){text, sizeof text}))
        return true;
    text[sizeof text - 1] = '\0';
    gpu_child_say_rows("unsupported", rows, text[0] ? text : "the kernel gives no reason");
    return false;
}

static enum mr_status make_inputs(struct worker *w)
{
    struct gpu_layer *l = &w->layers.at[0];
    TRY(gpu_router(mr_case_router(w->layers.c), &w->problem.router, &w->err));
    gpu_layer_open(&w->layers, 0, w->request->from_logits);
    enum mr_status status = gpu_inputs_make(&l->input.layer, w->kernel, &l->given, &w->err);
    gpu_layer_close(&w->layers, 0);
    TRY(status);
    l->made = true;
    w->problem.hidden_type = l->given.hidden_type;
    w->problem.gate_type = l->given.gate_type;
    w->problem.given_type = l->given.given_type;
    if (!l->given.tokens) return mr_fail(&w->err, MR_ERR_UNSUPPORTED, "no tokens");
    return MR_OK;
}

/* The gate weight of a kernel that has none stands for itself: bf16, of the case's router. */
static enum mr_status floors_of(struct worker *w)
{
    const struct gpu_inputs *in = &w->layers.at[0].given;
    size_t bytes = (size_t)w->problem.router.experts * (size_t)w->problem.router.hidden *
                   (in->gate ? gpu_type_bytes(in->gate_type) : 2);
    struct gpu_buffer gate;
    void *zeros = in->gate ? NULL : need(bytes, 1);
    enum mr_status status = gpu_buffer_new(w->memory, "gate", bytes, &gate, &w->err);
    if (!status) status = gpu_buffer_put(w->memory, &gate, in->gate ? in->gate : zeros, &w->err);
    if (!status) status = time_floors(w->memory, gate.data, bytes, &w->timing, &w->err);
    gpu_buffer_free(w->memory, &gate);
    free(zeros);
    return status;
}

static void bench_rows(struct worker *w)
{
    const struct gpu_rows *rows = &w->request->rows;
    enum mr_status made = make_inputs(w);
    if (!made) made = floors_of(w);
    for (size_t i = 0; i < rows->count; i++) {
        gpu_child_say_rows("rows", rows->at[i], NULL);
        if (made) {
            gpu_child_say_rows(made == MR_ERR_UNSUPPORTED ? "unsupported" : "failed", rows->at[i],
                               w->err.text);
            continue;
        }
        if (!served(w, rows->at[i])) continue;
        if (time_rows(w)) {
            gpu_child_say_rows("failed", rows->at[i], w->err.text);
            return; /* what is left of this process is not to be trusted */
        }
        gpu_child_say_rows("done", rows->at[i], NULL);
    }
}

int gpu_worker_bench(int argc, char **argv)
{
    struct gpu_request request;
    struct gpu_device device;
    gpu_request_parse(GPU_BENCH, argc, argv, &request);
    request.rows_listed = false; /* what is not served is said row count by row count */
    struct worker w = {.request = &request,
                       .timing = {.repeats = request.repeats, .no_cupti = request.no_cupti}};
    struct mr_case *c = gpu_request_open(&request);
    w.kernel = gpu_kernel_find(request.kernel);
    if (!w.kernel) die(2, "--kernel %s: no such kernel", request.kernel);
    gpu_layers_list(c, &request, &w.layers);
    gpu_timing_begin(&w.timing);
    if (!gpu_worker_open(w.kernel, &device, &w.memory)) return 4;
    bench_rows(&w);
    gpu_child_say("end", NULL);
    gpu_layers_free(&w.layers);
    mr_case_free(c);
    gpu_request_free(&request);
    return 0;
}

static void say_device(const struct gpu_device *d)
{
    char text[8][32];
    snprintf(text[0], 32, "%d.%d", d->major, d->minor);
    snprintf(text[1], 32, "%d", d->multiprocessors);
    snprintf(text[2], 32, "%d", d->l2_bytes);
    snprintf(text[3], 32, "%llu", d->memory_bytes);
    snprintf(text[4], 32, "%d", d->clock_sm);
    snprintf(text[5], 32, "%d", d->clock_memory);
    snprintf(text[6], 32, "%d", d->clock_sm_most);
    gpu_child_say("about", text[0], text[1], text[2], text[3], text[4], text[5], text[6], NULL);
}

/* argv[1]: experts, argv[2]: hidden, argv[3]: "cupti" or "events". */
int gpu_worker_probe(int argc, char **argv)
{
    struct mr_error err = {{0}};
    struct gpu_device device;
    const struct gpu_memory *memory;
    struct gpu_buffer gate;
    if (argc != 4) return 2;
    size_t bytes = (size_t)atoi(argv[1]) * (size_t)atoi(argv[2]) * 2;
    const struct gpu_timing_options timing = {.repeats = 201,
                                              .no_cupti = !strcmp(argv[3], "events")};
    gpu_timing_begin(&timing);
    if (!gpu_worker_open(NULL, &device, &memory)) return 4;
    say_device(&device);
    enum mr_status status = gpu_buffer_new(memory, "gate", bytes, &gate, &err);
    if (!status) status = memory->fill(gate.data, 0x3c, bytes, &err);
    if (!status) status = time_floors(memory, gate.data, bytes, &timing, &err);
    if (status) gpu_child_say("failed", err.text, NULL);
    gpu_child_say("end", NULL);
    return 0;
}
