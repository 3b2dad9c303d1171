/* One kernel at one row count: its buffers, and launches that are checked. */
#ifndef MOEREF_GPU_SESSION_H
#define MOEREF_GPU_SESSION_H

#include "inputs.h"
#include "memory.h"

enum gpu_slot {
    GPU_HIDDEN, GPU_GATE, GPU_BIAS, GPU_GATE_BIAS, GPU_GIVEN, /* inputs */
    GPU_LOGITS, GPU_IDS, GPU_WEIGHTS, GPU_COUNTS, GPU_SORTED, GPU_SORTED_TOTAL, GPU_TILE_EXPERT,
    GPU_STATE, GPU_SCRATCH,
    GPU_SLOTS, GPU_FIRST_OUTPUT = GPU_LOGITS, GPU_OUTPUTS_END = GPU_STATE
};

struct gpu_session {
    const struct gpu_memory *memory;
    const struct mr_kernel *kernel;
    const struct gpu_inputs *inputs; /* of the layer at hand */
    struct mr_kernel_problem problem;
    struct mr_kernel_buffers buffers;
    struct gpu_buffer slot[GPU_SLOTS];
    void *stream, *handle;
    void *staged; /* rows of a batch on the host */
    bool ready;   /* prepared: to be released */
};

/* Bytes of every slot for a problem, but for state and scratch. */
void gpu_slot_bytes(const struct mr_kernel *kernel, const struct mr_kernel_problem *problem,
                    size_t bytes[GPU_SLOTS], int64_t *sorted_most);

/* Allocates, uploads what rows share (gate, biases), and prepares. problem->router and rows are the
 * caller's; types are set from inputs. A failure's message is the verdict's reason. */
enum mr_status gpu_session_open(struct gpu_session *s, const struct mr_kernel *kernel,
                                const struct gpu_inputs *inputs,
                                const struct mr_kernel_problem *problem,
                                const struct gpu_memory *memory, struct mr_error *err);
void gpu_session_close(struct gpu_session *s);

/* Uploads the rows: row r is token index[r]. */
enum mr_status gpu_session_rows(struct gpu_session *s, const int64_t *index, struct mr_error *err);
/* Enqueues one launch. */
enum mr_status gpu_session_launch(struct gpu_session *s, struct mr_error *err);

/* What checked launches found over a row count. */
struct gpu_faults {
    uint64_t holes;         /* elements that a launch did not write */
    uint64_t poison_rows;   /* rows that change with what was in memory before */
    uint64_t unstable_rows; /* rows that change from one launch to the next, all else equal */
    uint64_t delay_rows;    /* rows that change when earlier kernels of the chain are slow */
    uint64_t rows;          /* looked at */
    char first[200];        /* where, of the first of them; "" */
    char outside[200];      /* canaries, inputs; "" */
    char books[200];        /* counts and sorted positions; "" */
};

/* Outputs of one launch, on the host; [rows, ...] each, NULL where the kernel gives none. */
struct gpu_outputs {
    unsigned char *at[GPU_SLOTS];
};
enum mr_status gpu_outputs_new(const struct gpu_session *s, struct gpu_outputs *out,
                               struct mr_error *err);
void gpu_outputs_free(struct gpu_outputs *o);

/* Launches over two different poisons, and over the first again; compares; checks the books. Three
 * sets of outputs: the first is the answer. */
enum mr_status gpu_checked(struct gpu_session *s, struct gpu_outputs out[3],
                           struct gpu_faults *faults, struct mr_error *err);
/* Canaries and inputs, after all launches of a row count. */
enum mr_status gpu_session_check(struct gpu_session *s, struct gpu_faults *faults,
                                 struct mr_error *err);

/* counts, sorted, sorted_total and tile_expert against the ids beside them. "" if they agree. */
void gpu_books_check(const struct mr_kernel *kernel, const struct mr_kernel_problem *problem,
                     const struct gpu_outputs *out, char *fault, size_t size);

#endif
