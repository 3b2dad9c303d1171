/* The child that runs one kernel at some row counts, and writes a file for each. */
#include "worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tools/common.h"
#include "child.h"
#include "device.h"
#include "layers.h"
#include "observed_file.h"
#include "registry.h"
#include "session.h"

#define TRY(call)                                     \
    do {                                              \
        enum mr_status try_status_ = (call);          \
        if (try_status_ != MR_OK) return try_status_; \
    } while (0)

int gpu_worker_open(const struct mr_kernel *kernel, struct gpu_device *device,
                    const struct gpu_memory **memory)
{
    struct mr_error err = {{0}};
    *device = (struct gpu_device){.name = "CPU"};
    *memory = &gpu_memory_host;
    if (kernel && kernel->memory == MR_MEMORY_HOST) return 1;
    if (gpu_device_open(device, &err)) {
        gpu_child_say("nodevice", err.text, NULL);
        return 0;
    }
    *memory = gpu_device_memory();
    gpu_child_say("device", device->name, device->driver, device->cuda, NULL);
    return 1;
}

struct worker {
    const struct gpu_request *request;
    const struct mr_kernel *kernel;
    const struct gpu_memory *memory;
    struct gpu_device device;
    struct gpu_layers layers;
    struct mr_kernel_problem problem;
    char arith[512];
    struct mr_error err;
};

/* How many launches show every token at least once, but not more than were allowed. */
static size_t launches_for(const struct worker *w, size_t tokens)
{
    size_t rows = (size_t)w->problem.rows, n = (tokens + rows - 1) / rows;
    return n < (size_t)w->request->launches ? n : (size_t)w->request->launches;
}

/* The tokens of a layer's rows, one after the other, from a start that depends on the row count: so
 * a token's place in a launch changes with it. The constant is 2^32 over the golden ratio (Knuth,
 * TAOCP 3, 6.4). */
static void index_rows(const struct worker *w, size_t tokens, struct gpu_layer_rows *out)
{
    uint64_t start = (uint32_t)((uint32_t)w->problem.rows * 2654435769u);
    start = (start >> 8) % tokens;
    for (size_t i = 0; i < out->rows; i++) out->index[i] = (int64_t)((start + i) % tokens);
}

static unsigned char *gathered(const struct gpu_session *s, enum gpu_slot slot, size_t launches)
{
    return s->slot[slot].bytes ? need(launches, s->slot[slot].bytes) : NULL;
}

static void gather(const struct gpu_session *s, enum gpu_slot slot, size_t launch,
                   const struct gpu_outputs *from, unsigned char *to)
{
    if (to) memcpy(to + launch * s->slot[slot].bytes, from->at[slot], s->slot[slot].bytes);
}

static enum mr_status launch_all(struct worker *w, struct gpu_session *s,
                                 struct gpu_layer_rows *out, struct gpu_faults *faults)
{
    struct gpu_outputs outputs[3] = {{{0}}, {{0}}, {{0}}};
    size_t rows = (size_t)w->problem.rows;
    enum mr_status status = MR_OK;
    for (int i = 0; i < 3 && !status; i++) status = gpu_outputs_new(s, &outputs[i], &w->err);
    for (size_t n = 0; n * rows < out->rows && !status; n++) {
        status = gpu_session_rows(s, out->index + n * rows, &w->err);
        if (!status) status = gpu_checked(s, outputs, faults, &w->err);
        if (status) break;
        gather(s, GPU_IDS, n, &outputs[0], out->ids);
        gather(s, GPU_WEIGHTS, n, &outputs[0], out->weights);
        gather(s, GPU_LOGITS, n, &outputs[0], out->logits);
    }
    if (!status) status = gpu_session_check(s, faults, &w->err);
    for (int i = 0; i < 3; i++) gpu_outputs_free(&outputs[i]);
    return status;
}

static enum mr_status run_layer(struct worker *w, struct gpu_layer *l, struct gpu_layer_rows *out,
                                struct gpu_faults *faults)
{
    struct gpu_session s;
    size_t launches = launches_for(w, l->given.tokens);
    enum mr_status status = gpu_session_open(&s, w->kernel, &l->given, &w->problem, w->memory,
                                             &w->err);
    if (!status) {
        *out = (struct gpu_layer_rows){
            .layer = l->number, .phase = l->phase, .rows = launches * (size_t)w->problem.rows,
            .ids = gathered(&s, GPU_IDS, launches), .weights = gathered(&s, GPU_WEIGHTS, launches),
            .logits = gathered(&s, GPU_LOGITS, launches)};
        out->index = need(out->rows, sizeof *out->index);
        index_rows(w, l->given.tokens, out);
        status = launch_all(w, &s, out, faults);
    }
    gpu_session_close(&s);
    return status;
}

/* What to call the arithmetic: the kernel's line, and the rounding of logits that were made for
 * it. */
static void name_arith(struct worker *w, const struct gpu_inputs *given)
{
    const char *word = given->given_type == MR_KERNEL_BF16 ? "bf16-logits" : "fp16-logits";
    char line[400] = "";
    if (w->kernel->arith) w->kernel->arith(&w->problem, line, sizeof line);
    line[sizeof line - 1] = '\0';
    bool add = given->rounded && !strstr(line, word);
    snprintf(w->arith, sizeof w->arith, "%s%s%s", line, add && line[0] ? "+" : "",
             add ? word : "");
}

/* Inputs of all layers, made when first needed. */
static bool make_inputs(struct worker *w, int rows)
{
    for (size_t i = 0; i < w->layers.count; i++) {
        struct gpu_layer *l = &w->layers.at[i];
        if (l->made) continue;
        gpu_layer_open(&w->layers, i, w->request->from_logits);
        enum mr_status status = gpu_inputs_make(&l->input.layer, w->kernel, &l->given, &w->err);
        gpu_layer_close(&w->layers, i);
        if (!status && !l->given.tokens)
            status = mr_fail(&w->err, MR_ERR_UNSUPPORTED, "layer %d, phase %s: no tokens",
                             l->number, l->phase);
        if (status) {
            gpu_child_say_rows(status == MR_ERR_UNSUPPORTED ? "unsupported" : "failed", rows,
                               w->err.text);
            return false;
        }
        l->made = true;
    }
    return true;
}

static bool served(struct worker *w, int rows)
{
    const struct mr_kernel *k = w->kernel;
    char text[256] = "";
    w->problem.rows = rows;
    w->problem.pdl = k->promises & MR_KERNEL_HAS_PDL ? 1 : 0; /* where the danger is */
    w->problem.hidden_type = w->layers.at[0].given.hidden_type;
    w->problem.gate_type = w->layers.at[0].given.gate_type;
    w->problem.given_type = w->layers.at[0].given.given_type;
    if (!k->supports || k->supports(&w->problem, (struct mr_kernel_why){text, sizeof text}))
        return true;
    text[sizeof text - 1] = '\0';
    gpu_child_say_rows("unsupported", rows, text[0] ? text : "the kernel gives no reason");
    return false;
}

static void free_rows(struct gpu_layer_rows *l, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(l[i].index);
        free(l[i].ids);
        free(l[i].weights);
        free(l[i].logits);
    }
    free(l);
}

static enum mr_status write_file(struct worker *w, const struct gpu_layer_rows *rows,
                                 const struct gpu_faults *faults)
{
    char path[PATH_MAX], seed[32] = "";
    const json_t *made = json_object_get(mr_case_json(w->layers.c), "generate");
    json_t *given = json_object_get(made, "seed");
    long number = w->request->options.seed >= 0 ? w->request->options.seed
                                                : (long)json_integer_value(given);
    if (made) snprintf(seed, sizeof seed, "%ld", number);
    const struct gpu_provenance from = {
        .kernel = w->kernel, .rows = w->problem.rows, .top_k = w->problem.router.top_k,
        .experts = w->problem.router.experts, .case_name = mr_case_name(w->layers.c),
        .arith = w->arith, .device = w->device.name, .driver = w->device.driver,
        .cuda = w->device.cuda, .seed = seed, .faults = faults};
    gpu_observed_path(w->request->out, w->kernel->name, w->problem.rows, path, sizeof path);
    return gpu_observed_write(path, &from, rows, w->layers.count, &w->err);
}

/* False after a failure: what is left of this process is not to be trusted. */
static bool run_rows(struct worker *w, int rows)
{
    const struct mr_kernel *k = w->kernel;
    gpu_child_say_rows("rows", rows, NULL);
    if (rows < k->min_rows || (k->max_rows && rows > k->max_rows)) {
        char text[96];
        snprintf(text, sizeof text,
                 k->max_rows ? "serves %d to %d rows" : "serves %d rows and more", k->min_rows,
                 k->max_rows);
        gpu_child_say_rows("unsupported", rows, text);
        return true;
    }
    if (!make_inputs(w, rows) || !served(w, rows)) return true;
    struct gpu_faults faults = {0};
    struct gpu_layer_rows *out = need(w->layers.count, sizeof *out);
    enum mr_status status = MR_OK;
    for (size_t i = 0; i < w->layers.count && !status; i++)
        status = run_layer(w, &w->layers.at[i], &out[i], &faults);
    name_arith(w, &w->layers.at[0].given);
    if (!status) status = write_file(w, out, &faults);
    free_rows(out, w->layers.count);
    if (status) gpu_child_say_rows("failed", rows, w->err.text);
    else gpu_child_say_rows("done", rows, NULL);
    return !status;
}

static void open_kernel(struct worker *w, struct mr_case *c)
{
    w->kernel = gpu_kernel_find(w->request->kernel);
    if (!w->kernel) die(2, "--kernel %s: no such kernel", w->request->kernel);
    gpu_layers_list(c, w->request, &w->layers);
}

int gpu_worker_run(int argc, char **argv)
{
    struct gpu_request request;
    gpu_request_parse(GPU_RUN, argc, argv, &request);
    request.rows_listed = false; /* what is not served is said row count by row count */
    if (!request.out) die(2, "--out: expected a folder");
    struct worker w = {.request = &request};
    open_kernel(&w, gpu_request_open(&request));
    if (!gpu_worker_open(w.kernel, &w.device, &w.memory)) return 4;
    if (gpu_router(mr_case_router(w.layers.c), &w.problem.router, &w.err)) {
        for (size_t i = 0; i < request.rows.count; i++)
            gpu_child_say_rows("unsupported", request.rows.at[i], w.err.text);
    } else {
        for (size_t i = 0; i < request.rows.count && run_rows(&w, request.rows.at[i]); i++) {}
    }
    gpu_child_say("end", NULL);
    struct mr_case *c = w.layers.c;
    gpu_layers_free(&w.layers);
    mr_case_free(c);
    gpu_request_free(&request);
    return 0;
}

static int worker_device(void)
{
    struct gpu_device device;
    const struct gpu_memory *memory;
    gpu_worker_open(NULL, &device, &memory);
    gpu_child_say("end", NULL);
    return 0;
}

int gpu_worker(int argc, char **argv)
{
    gpu_child_begin();
    if (argc < 1) return 2;
    if (!strcmp(argv[0], "device")) return worker_device();
    if (!strcmp(argv[0], "run")) return gpu_worker_run(argc, argv);
    if (!strcmp(argv[0], "bench")) return gpu_worker_bench(argc, argv);
    if (!strcmp(argv[0], "probe")) return gpu_worker_probe(argc, argv);
    return 2;
}
