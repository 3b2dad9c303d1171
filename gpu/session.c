#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                                     \
    do {                                              \
        enum mr_status try_status_ = (call);          \
        if (try_status_ != MR_OK) return try_status_; \
    } while (0)

static const char *const slot_name[GPU_SLOTS] = {
    "hidden", "gate", "bias", "gate_bias", "given", "logits", "ids", "weights", "counts", "sorted",
    "sorted_total", "tile_expert", "state", "scratch"};

void gpu_slot_bytes(const struct mr_kernel *k, const struct mr_kernel_problem *p,
                    size_t bytes[GPU_SLOTS], int64_t *sorted_most)
{
    size_t rows = (size_t)p->rows, experts = (size_t)p->router.experts;
    size_t chosen = rows * (size_t)p->router.top_k, columns = (size_t)p->router.hidden;
    memset(bytes, 0, GPU_SLOTS * sizeof *bytes);
    if (p->hidden_type) {
        bytes[GPU_HIDDEN] = rows * columns * gpu_type_bytes(p->hidden_type);
        bytes[GPU_GATE] = experts * columns * gpu_type_bytes(p->gate_type);
        bytes[GPU_GATE_BIAS] = p->router.gate_bias ? experts * sizeof(float) : 0;
    }
    bytes[GPU_BIAS] = p->router.bias ? experts * sizeof(float) : 0;
    bytes[GPU_GIVEN] = rows * experts * gpu_type_bytes(p->given_type);
    if (k->gives & MR_GIVES_LOGITS)
        bytes[GPU_LOGITS] = rows * experts * gpu_type_bytes(k->logits_type);
    if (k->gives & MR_GIVES_IDS) bytes[GPU_IDS] = chosen * sizeof(int32_t);
    if (k->gives & MR_GIVES_WEIGHTS)
        bytes[GPU_WEIGHTS] = chosen * gpu_type_bytes(k->weights_type);
    if (k->gives & MR_GIVES_COUNTS) bytes[GPU_COUNTS] = experts * sizeof(int32_t);
    *sorted_most = 0;
    if (!(k->gives & MR_GIVES_SORTED)) return;
    size_t tile = (size_t)k->tile, partly = chosen < experts ? chosen : experts;
    size_t most = (chosen + partly * (tile - 1) + tile - 1) / tile * tile;
    *sorted_most = (int64_t)most;
    bytes[GPU_SORTED] = most * sizeof(int32_t);
    bytes[GPU_SORTED_TOTAL] = sizeof(int32_t);
    bytes[GPU_TILE_EXPERT] = most / tile * sizeof(int32_t);
}

static void point(struct gpu_session *s, int64_t sorted_most)
{
    struct gpu_buffer *b = s->slot;
    s->buffers = (struct mr_kernel_buffers){
        .hidden = b[GPU_HIDDEN].data, .gate = b[GPU_GATE].data, .bias = b[GPU_BIAS].data,
        .gate_bias = b[GPU_GATE_BIAS].data, .given = b[GPU_GIVEN].data,
        .logits = b[GPU_LOGITS].data, .ids = b[GPU_IDS].data, .weights = b[GPU_WEIGHTS].data,
        .counts = b[GPU_COUNTS].data, .sorted = b[GPU_SORTED].data,
        .sorted_total = b[GPU_SORTED_TOTAL].data, .tile_expert = b[GPU_TILE_EXPERT].data,
        .sorted_most = sorted_most, .state = b[GPU_STATE].data, .scratch = b[GPU_SCRATCH].data};
}

/* What a kernel said, or what it should have said. */
static enum mr_status refused(int status, const char *what, char *text, struct mr_error *err)
{
    text[255] = '\0';
    if (status == MR_KERNEL_OK) return MR_OK;
    return mr_fail(err, status == MR_KERNEL_NO_MEMORY ? MR_ERR_MEMORY : MR_ERR_UNSUPPORTED,
                   "%s: %s", what, text[0] ? text : "failed without a reason");
}

static enum mr_status prepare(struct gpu_session *s, struct mr_error *err)
{
    const struct mr_kernel *k = s->kernel;
    char text[256] = "";
    if (!k->prepare) return MR_OK;
    int status = k->prepare(&s->problem, &s->buffers, s->stream, &s->handle,
                            (struct mr_kernel_why){text, sizeof text});
    TRY(refused(status, "prepare", text, err));
    return s->memory->wait(s->stream, err);
}

static enum mr_status open(struct gpu_session *s, struct mr_error *err)
{
    const struct mr_kernel *k = s->kernel;
    const struct gpu_inputs *in = s->inputs;
    struct mr_kernel_sizes sizes = {0};
    size_t bytes[GPU_SLOTS];
    int64_t sorted_most;
    char text[256] = "";
    gpu_slot_bytes(k, &s->problem, bytes, &sorted_most);
    if (k->sizes)
        TRY(refused(k->sizes(&s->problem, &sizes, (struct mr_kernel_why){text, sizeof text}),
                    "sizes", text, err));
    if (sizes.state > (uint64_t)1 << 40 || sizes.scratch > (uint64_t)1 << 40)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "sizes: asks for more than 2^40 bytes");
    bytes[GPU_STATE] = (size_t)sizes.state;
    bytes[GPU_SCRATCH] = (size_t)sizes.scratch;
    TRY(s->memory->stream(&s->stream, err));
    for (int i = 0; i < GPU_SLOTS; i++)
        TRY(gpu_buffer_new(s->memory, slot_name[i], bytes[i], &s->slot[i], err));
    TRY(gpu_buffer_put(s->memory, &s->slot[GPU_GATE], in->gate, err));
    TRY(gpu_buffer_put(s->memory, &s->slot[GPU_BIAS], in->bias, err));
    TRY(gpu_buffer_put(s->memory, &s->slot[GPU_GATE_BIAS], in->gate_bias, err));
    if (sizes.state) TRY(s->memory->fill(s->slot[GPU_STATE].data, 0xff, (size_t)sizes.state, err));
    size_t staged = bytes[GPU_HIDDEN] > bytes[GPU_GIVEN] ? bytes[GPU_HIDDEN] : bytes[GPU_GIVEN];
    if (!(s->staged = malloc(staged + 1))) return mr_fail(err, MR_ERR_MEMORY, "out of memory");
    point(s, sorted_most);
    TRY(prepare(s, err));
    s->ready = true;
    return MR_OK;
}

enum mr_status gpu_session_open(struct gpu_session *s, const struct mr_kernel *kernel,
                                const struct gpu_inputs *inputs,
                                const struct mr_kernel_problem *problem,
                                const struct gpu_memory *memory, struct mr_error *err)
{
    *s = (struct gpu_session){.memory = memory, .kernel = kernel, .inputs = inputs,
                              .problem = *problem};
    s->problem.hidden_type = inputs->hidden_type;
    s->problem.gate_type = inputs->gate_type;
    s->problem.given_type = inputs->given_type;
    return open(s, err);
}

void gpu_session_close(struct gpu_session *s)
{
    if (s->ready && s->kernel->release) s->kernel->release(s->handle);
    for (int i = 0; i < GPU_SLOTS; i++) gpu_buffer_free(s->memory, &s->slot[i]);
    free(s->staged);
    *s = (struct gpu_session){0};
}

static enum mr_status stage(struct gpu_session *s, enum gpu_slot slot, const void *from,
                            const int64_t *index, struct mr_error *err)
{
    size_t row = s->slot[slot].bytes / (size_t)s->problem.rows;
    if (!row) return MR_OK;
    for (int r = 0; r < s->problem.rows; r++)
        memcpy((char *)s->staged + (size_t)r * row, (const char *)from + (size_t)index[r] * row,
               row);
    return gpu_buffer_put(s->memory, &s->slot[slot], s->staged, err);
}

enum mr_status gpu_session_rows(struct gpu_session *s, const int64_t *index, struct mr_error *err)
{
    TRY(stage(s, GPU_HIDDEN, s->inputs->hidden, index, err));
    return stage(s, GPU_GIVEN, s->inputs->given, index, err);
}

enum mr_status gpu_session_launch(struct gpu_session *s, struct mr_error *err)
{
    char text[256] = "";
    int status = s->kernel->launch(s->handle, &s->problem, &s->buffers, s->stream,
                                   (struct mr_kernel_why){text, sizeof text});
    return refused(status, "launch", text, err);
}

enum mr_status gpu_session_check(struct gpu_session *s, struct gpu_faults *faults,
                                 struct mr_error *err)
{
    char fault[200];
    for (int i = 0; i < GPU_SLOTS; i++) {
        TRY(gpu_buffer_check(s->memory, &s->slot[i], fault, sizeof fault, err));
        if (*fault && !*faults->outside)
            snprintf(faults->outside, sizeof faults->outside, "%s", fault);
    }
    return MR_OK;
}
