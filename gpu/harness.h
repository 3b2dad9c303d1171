/* The one interface between the harness and kernels: plain C, no C++ type, no CUDA type. A
 * kernel is a struct mr_kernel; a built-in one adds the line MR_KERNEL_BUILTIN(its_struct) to
 * its file, a foreign one is a shared library that exports moeref_plugin (moeref-gpu --plugin
 * FILE). Nothing but this header is needed to write one; gpu/README.md shows a small one.
 *
 * Order of calls, all in a child process of its own: supports, sizes, prepare, arith, launch
 * (many times, also while a stream is captured into a CUDA graph), release; then anew for the
 * next row count. The parent process calls supports and arith alone, and has no CUDA: neither
 * may touch it.
 *
 * The harness owns all memory that a kernel reads or writes: inputs and outputs, and what
 * `sizes` asked for. Before a checked launch outputs and scratch are filled with a poison, and
 * around each buffer lie canaries; inputs are canaries, too. launch only enqueues work on the
 * stream it is given (no synchronisation, no allocation, no default stream); everything it
 * enqueued is done when the stream is. A kernel of MR_MEMORY_HOST has done all when launch
 * returns. */
#ifndef MOEREF_GPU_HARNESS_H
#define MOEREF_GPU_HARNESS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows with every change of what follows. The harness refuses any other number. */
#define MR_KERNEL_ABI 1u

/* Sets of element types. */
enum { MR_KERNEL_BF16 = 1, MR_KERNEL_FP16 = 2, MR_KERNEL_FP32 = 4 };

enum { MR_MEMORY_HOST = 0, MR_MEMORY_DEVICE = 1 }; /* where the pointers point */

enum { MR_KERNEL_SIGMOID = 0, MR_KERNEL_SOFTMAX = 1, MR_KERNEL_SQRT_SOFTPLUS = 2 };
enum { MR_KERNEL_TOP2_SUM = 0, MR_KERNEL_MAX = 1 };

/* As ref/route/router.h says it: logit = hidden . gate (+ gate bias) -> score -> rank key = score +
 * bias -> groups -> top_k largest keys -> weight from the score alone. */
struct mr_kernel_router {
    int32_t experts, top_k, hidden;
    int32_t score;         /* MR_KERNEL_SIGMOID ... */
    int32_t rank_by_logit; /* rank by logit, and score (softmax: over) the selected ones alone */
    int32_t bias;          /* there is a correction bias */
    int32_t gate_bias;     /* there is a linear bias of the gate, part of the logit */
    int32_t n_group, topk_group, group_score; /* 1, 1: no groups */
    int32_t norm_topk_prob;
    double routed_scaling_factor;
};

/* What is asked for. hidden_type, gate_type and given_type are each one of the types that the
 * kernel accepts, or 0 where it takes no such input. */
struct mr_kernel_problem {
    struct mr_kernel_router router;
    int32_t rows;
    int32_t hidden_type, gate_type, given_type;
    int32_t pdl;      /* kernels of a chain may be tied by programmatic dependent launch. The first
                         kernel never has a programmatic edge from what was before it */
    int32_t delay_ns; /* MR_KERNEL_HAS_DELAY: every kernel of the chain but the last spins so long
                         before its first write; the results must not change */
};

/* Row major, each aligned to 256 bytes; NULL where the kernel neither needs nor gives it, or the
 * router has none. Pointers stay the same from prepare to release. */
struct mr_kernel_buffers {
    const void *hidden;     /* [rows, hidden] */
    const void *gate;       /* [experts, hidden] */
    const float *bias;      /* [experts] */
    const float *gate_bias; /* [experts] */
    const void *given;      /* [rows, experts] logits to start from */
    void *logits;           /* [rows, experts], of logits_type */
    int32_t *ids;           /* [rows, top_k] */
    void *weights;          /* [rows, top_k], of weights_type */
    int32_t *counts;        /* [experts] rows that chose the expert */
    /* Positions row * top_k + slot by expert, ascending; each expert's share is filled up to a
     * multiple of `tile` with rows * top_k, experts that nobody chose have none. [sorted_most], of
     * which *sorted_total are written. */
    int32_t *sorted;
    int32_t *sorted_total;  /* [1] a multiple of tile */
    int32_t *tile_expert;   /* [sorted_most / tile] the expert of each tile, *sorted_total / tile of
                               them written */
    int64_t sorted_most;    /* rows * top_k + min(rows * top_k, experts) * (tile - 1), rounded up */
    void *state;            /* poisoned before prepare, then the kernel's: what prepare makes of the
                               gate weight, counters that every launch leaves as it found them */
    void *scratch;          /* poisoned before any checked launch */
};

/* What sizes asks for, in bytes. */
struct mr_kernel_sizes {
    uint64_t state, scratch;
};

/* What a kernel gives; every element of it is written by every launch. */
enum {
    MR_GIVES_LOGITS = 1,
    MR_GIVES_IDS = 2,
    MR_GIVES_WEIGHTS = 4, /* needs IDS */
    MR_GIVES_COUNTS = 8,  /* needs IDS */
    MR_GIVES_SORTED = 16  /* sorted, sorted_total, tile_expert; needs IDS */
};

/* What a kernel promises; a broken promise is a failure. */
enum {
    MR_KERNEL_DETERMINISTIC = 1,   /* same inputs, same bits, launch after launch */
    MR_KERNEL_BATCH_INVARIANT = 2, /* a row's bits depend neither on the number of rows nor on its
                                      place */
    MR_KERNEL_ORDERED = 4,         /* ids by descending key, as the kernel computed it */
    MR_KERNEL_HAS_DELAY = 8,       /* obeys delay_ns */
    MR_KERNEL_HAS_PDL = 16,        /* pdl makes a difference */
    MR_KERNEL_SORTED_STABLE = 32   /* within an expert, sorted is ascending */
};

/* What prepare, sizes and launch return; anything else than MR_KERNEL_OK comes with a reason. */
enum { MR_KERNEL_OK = 0, MR_KERNEL_FAILED = 1, MR_KERNEL_NO_MEMORY = 2 };

/* Where a reason goes: one line, zero-terminated, at most `size` bytes with the zero. */
struct mr_kernel_why {
    char *text;
    size_t size;
};

struct mr_kernel {
    uint32_t abi; /* MR_KERNEL_ABI. First for ever: read before anything else is believed */
    const char *family;  /* "tiny_gemm"; a word of a-z 0-9 _ */
    const char *name;    /* "tiny_gemm_16", unique; a-z 0-9 _ - and . */
    const char *summary; /* one line for people */
    int32_t memory;      /* MR_MEMORY_DEVICE, or _HOST for code that runs on the CPU */
    int32_t min_rows, max_rows; /* rows served; max_rows 0: no end */
    /* Inputs, as sets of types it accepts (0: not taken). hidden and gate go together; given
     * replaces both. The harness hands over the stored type if it is accepted, else one that
     * holds all stored values exactly, else the kernel is unsupported. bias and gate_bias are
     * always given where the router has them. */
    int32_t hidden_types, gate_types, given_types;
    int32_t gives;                     /* MR_GIVES_... */
    int32_t logits_type, weights_type; /* one type each, of what it gives */
    int32_t tile;                      /* of sorted: a power of two */
    int32_t promises;                  /* MR_KERNEL_DETERMINISTIC ... */

    /* 1 if the problem is served, or 0 with the reason. NULL: all are, within the rows. */
    int (*supports)(const struct mr_kernel_problem *problem, struct mr_kernel_why why);
    /* The arithmetic of the logits and what follows, as a line that moeref reads
     * ("hopper-bf16/runs:3x64", "bf16-logits"), into line; it may depend on the rows. Lines may be
     * "": nothing is declared. NULL: never declared. */
    void (*arith)(const struct mr_kernel_problem *problem, char *line, size_t size);
    /* out is zeroed by the caller. NULL: none. */
    int (*sizes)(const struct mr_kernel_problem *problem, struct mr_kernel_sizes *out,
                 struct mr_kernel_why why);
    /* Whatever is done once: it may synchronise, allocate handles of libraries, and use the stream
     * (a cudaStream_t; NULL on the host). *handle may stay NULL. */
    int (*prepare)(const struct mr_kernel_problem *problem,
                   const struct mr_kernel_buffers *buffers, void *stream, void **handle,
                   struct mr_kernel_why why);
    /* problem and buffers are those of prepare, but for delay_ns, which is then 0. */
    int (*launch)(void *handle, const struct mr_kernel_problem *problem,
                  const struct mr_kernel_buffers *buffers, void *stream,
                  struct mr_kernel_why why);
    void (*release)(void *handle); /* NULL: nothing to release */
};

/* What a plugin exports, under this very name. */
struct mr_plugin {
    uint32_t abi; /* MR_KERNEL_ABI; first for ever */
    uint32_t count;
    const struct mr_kernel *const *kernels; /* [count] */
};
#ifdef __cplusplus
#define MR_PLUGIN_EXPORT extern "C" __attribute__((visibility("default"))) const struct mr_plugin
#else
#define MR_PLUGIN_EXPORT __attribute__((visibility("default"))) const struct mr_plugin
#endif
#define MR_PLUGIN_SYMBOL "moeref_plugin" /* MR_PLUGIN_EXPORT moeref_plugin = {...}; */

/* Built-in kernels announce themselves before main; the struct outlives the program. */
void mr_kernel_announce(const struct mr_kernel *kernel);
#define MR_KERNEL_BUILTIN(kernel)                                             \
    __attribute__((constructor)) static void mr_announce_##kernel(void)       \
    {                                                                         \
        mr_kernel_announce(&kernel);                                          \
    }

#ifdef __cplusplus
}
#endif

#endif
