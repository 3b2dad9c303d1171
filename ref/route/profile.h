/* Profiles: how an engine computes a router (DESIGN section 2). A profile is a set of rows, one for
 * each kernel that serves a kind of router; a row is a set of cells, each with its source: the
 * engine's file and the commit or release at which it was read. Rows describe those, not today's
 * main branch. A row is compared with the engine on hardware only if it says so; the others say why
 * not. */
#ifndef MOEREF_PROFILE_H
#define MOEREF_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

#include "../status.h"
#include "router.h"

/* What a kernel is written for. */
enum mr_profile_kind {
    MR_KIND_SIGMOID,         /* sigmoid scores, no groups */
    MR_KIND_SIGMOID_GROUPS,  /* sigmoid scores, group-limited */
    MR_KIND_SOFTMAX,         /* softmax over all experts, not renormalised */
    MR_KIND_SOFTMAX_RENORM,  /* the same, renormalised over the selected */
    MR_KIND_SOFTMAX_GROUPS,  /* softmax scores, group-limited (DeepSeek-V2) */
    MR_KIND_TOPK_SOFTMAX,    /* top-k of the logits, softmax over the selected (gpt-oss) */
    MR_KIND_TOPK_SIGMOID,    /* top-k of the logits, sigmoid of the selected (Llama 4) */
    MR_KIND_SQRT_SOFTPLUS,   /* sqrt(softplus) scores (DeepSeek-V4) */
    MR_KIND_HASH,            /* experts given by token id, weighed by sqrt(softplus) */
    MR_KIND_COUNT
};
const char *mr_profile_kind_name(enum mr_profile_kind kind); /* "sigmoid, groups" ... */
/* hashed: a layer whose experts come from tid2eid. */
enum mr_profile_kind mr_profile_kind_of(const struct mr_router *router, bool hashed);

enum mr_cell {
    MR_CELL_SCORE, MR_CELL_SCORE_TYPE, MR_CELL_RANK, MR_CELL_BIAS, MR_CELL_GROUP, MR_CELL_MASK,
    MR_CELL_TIE, MR_CELL_NAN, MR_CELL_WEIGHT, MR_CELL_SUM, MR_CELL_GUARD, MR_CELL_SCALING,
    MR_CELL_DIVISION, MR_CELL_OUTPUT, MR_CELL_ORDER, MR_CELL_SHARED, MR_CELL_COUNT
};
const char *mr_cell_name(enum mr_cell cell); /* "score", "tie rule" ... */

/* Values of the cells. */
enum mr_score_form { /* MR_CELL_SCORE; functions are those of ref/arith/cuda.h, bit for bit */
    MR_FORM_SIGMOID_EXP,      /* 1 / (1 + expf(-x)) */
    MR_FORM_SIGMOID_FAST,     /* 1 / (1 + __expf(-x)), ex2.approx behind it */
    MR_FORM_SIGMOID_FASTMATH, /* 1 / (1 + expf(-x)) under -use_fast_math */
    MR_FORM_SIGMOID_TRITON,   /* tl.sigmoid: ex2.approx, div.full */
    MR_FORM_SIGMOID_TANH,     /* 0.5 tanhf(0.5 x) + 0.5: exactly 0 below -18.02, 1 above 16.92 */
    MR_FORM_SIGMOID_TANH_FAST, /* the same under -use_fast_math: tanh.approx */
    /* Softmax over all; e = exp(x - max). Sums of 16-byte vectors of logits: each thread adds its own
     * in order, then the threads exchange by xor; all but torch's. */
    MR_FORM_SOFTMAX_MULTIPLY,      /* e * (1 / sum e), expf */
    MR_FORM_SOFTMAX_MULTIPLY_FAST, /* the same under -use_fast_math */
    MR_FORM_SOFTMAX_DIVIDE,        /* e / sum e, expf; sums as torch's softmax has them */
    MR_FORM_SOFTMAX_TRITON,        /* e / sum e, tl.exp, div.full */
    MR_FORM_SOFTPLUS_LOG_FAST,     /* sqrtf(x > 20 ? x : __logf(1 + __expf(x))): 0 below -16.6355 */
    MR_FORM_SOFTPLUS_LOG,          /* sqrtf(x > 20 ? x : logf(1 + expf(x))) */
    MR_FORM_SOFTPLUS_TRITON,       /* the same with tl.log, tl.exp, tl.sqrt */
    MR_FORM_SOFTPLUS_LOG1P,        /* sqrtf(log1pf(expf(x))): Inf above 88.72 */
    MR_FORM_SOFTPLUS_TORCH,        /* sqrtf(x > 20 ? x : log1pf(expf(x))) */
    MR_FORM_SOFTPLUS_STABLE,       /* sqrtf(fmaxf(x, 0) + log1pf(expf(-|x|))) */
    MR_FORM_SOFTPLUS_STABLE_FAST,  /* the same under -use_fast_math */
    MR_FORM_SOFTPLUS_ABS           /* tl.sqrt(max(x, 0) + log1p(z)), z = tl.exp(-|x|), log1p(z)
                                      written out as z log(1 + z) / ((1 + z) - 1) */
};
enum mr_profile_type { /* MR_CELL_SCORE_TYPE, MR_CELL_BIAS, MR_CELL_OUTPUT */
    MR_PROFILE_FP32,
    MR_PROFILE_BF16,
    MR_PROFILE_AS_LOGITS /* whatever type the logits have */
};
enum mr_rank { /* MR_CELL_RANK */
    MR_RANK_KEY,  /* score + bias */
    MR_RANK_LOGIT, /* the logit; the score of the selected ones alone comes after */
    MR_RANK_LOGIT_ALL /* the logit; weights are scores over all experts */
};
enum mr_profile_group { /* MR_CELL_GROUP */
    MR_PGROUP_NONE,
    MR_PGROUP_TOP2,      /* the two largest keys, summed */
    MR_PGROUP_MAX,
    MR_PGROUP_BY_BIAS,   /* the former with a correction bias, else the latter */
    MR_PGROUP_TOP1_BELOW /* largest + largest of those strictly below it: loses an equal second */
};
enum mr_mask { /* MR_CELL_MASK: experts of groups not chosen */
    MR_MASK_NONE,
    MR_MASK_NEG_INF,
    MR_MASK_ZERO, /* key 0.0: beats a negative key */
    MR_MASK_NEVER /* not a candidate, or a sentinel that the kernel skips */
};
enum mr_tie_rule { /* MR_CELL_TIE */
    MR_TIE_LOWEST,
    MR_TIE_UNDEFINED,  /* torch.topk; emulated as lowest id, and reported */
    MR_TIE_ROWS_512,   /* rows <= 512: strict > in a shuffle-down tree; above: lowest id */
    MR_TIE_POW2_LOWEST /* lowest id if experts is a power of two up to 256; else undefined */
};
enum mr_nan_rule { /* MR_CELL_NAN: which also says how a chosen expert is taken out */
    MR_NAN_ZERO,    /* score NaN or Inf becomes 0; a chosen key becomes -10000 and may come again */
    MR_NAN_BITS,    /* keys rank by their bits: -NaN < -Inf < -0 < +0 < Inf < NaN; a chosen key
                       becomes -Inf and may come again */
    MR_NAN_NEVER,   /* never above -FLT_MAX, so never chosen; with none left id 0, weight 0 */
    MR_NAN_LOW,     /* key NaN becomes -1e30, the weight stays NaN; a chosen key becomes -Inf and
                       may come again */
    MR_NAN_LOW_ONCE, /* the same, but a chosen expert is out for good */
    MR_NAN_TORCH,   /* NaN ranks above Inf */
    MR_NAN_EXCLUDE, /* a logit that is not finite has key -Inf; no finite group: ids 0.., 1/top_k */
    MR_NAN_INVALID, /* the same, with 0 for its score; a key of -0 is +0 */
    MR_NAN_STUCK    /* no guard: a NaN that is met first stays; emulated as a scan in id order */
};
enum mr_weight_rule { /* MR_CELL_WEIGHT */
    MR_WEIGHT_SCORE,
    MR_WEIGHT_KEY_MINUS_BIAS, /* (score + bias) - bias in fp32: cancels */
    MR_WEIGHT_BY_ROWS /* score in a block (768 < experts <= 1024, or 256 <= experts and rows <= 1024),
                         key - bias in a warp */
};
enum mr_sum_rule { /* MR_CELL_SUM: of the selected weights */
    MR_SUM_SEQUENTIAL, /* in the order of selection */
    MR_SUM_BUTTERFLY,  /* lane = slot, xor with 16, 8, 4, 2, 1 */
    MR_SUM_VECTORS,    /* threads of as many slots as logits in 16 bytes (4 or 8), each in order,
                          then xor */
    MR_SUM_FOURS,      /* the same, four slots whatever the logits */
    MR_SUM_UNKNOWN     /* emulated as the sum rounded once */
};
enum mr_guard { /* MR_CELL_GUARD: the denominator when norm_topk_prob */
    MR_GUARD_NONE,
    MR_GUARD_POSITIVE,   /* sum > 0 ? sum : 1 */
    MR_GUARD_EPS_FP32,   /* sum + 1e-20f */
    MR_GUARD_EPS_FP64,   /* sum + 1e-20 in binary64 */
    MR_GUARD_MAX_EPS,    /* fmaxf(sum, 1e-20f) */
    MR_GUARD_NEVER       /* this code does not renormalise, whatever norm_topk_prob says */
};
enum mr_scaling { /* MR_CELL_SCALING: w is the score, d the denominator (1 if not renormalised) */
    MR_SCALING_LAST,      /* (w / d) * rsf */
    MR_SCALING_FIRST,     /* w * (rsf / d) */
    MR_SCALING_RECIP,     /* w * (1 / d), * rsf afterwards */
    MR_SCALING_MUL_DIV,   /* (w * rsf) / d */
    MR_SCALING_MUL_DIV64, /* fp32(w * rsf), then / d; each in binary64, rounded to fp32 */
    MR_SCALING_FP64,      /* w * rsf / d in binary64, rounded to the output type */
    /* The model multiplies the layer's output by rsf: the forms above with 1 for rsf. The engine puts
     * rsf in if it is asked to (mr_profile_asked). */
    MR_SCALING_OUTSIDE,        /* LAST */
    MR_SCALING_OUTSIDE_FIRST,  /* FIRST64 */
    MR_SCALING_OUTSIDE_RECIP,  /* RECIP */
    MR_SCALING_OUTSIDE_FACTOR, /* FACTOR */
    MR_SCALING_FACTOR,         /* w * ((1 / d) * rsf); neither if not renormalised */
    MR_SCALING_FIRST64         /* w * fp32(rsf / d), divided in binary64; neither if not renormalised */
};
enum mr_division { /* MR_CELL_DIVISION: all but those in binary64 */
    MR_DIVISION_IEEE,
    MR_DIVISION_FULL,  /* div.full.f32: Triton */
    MR_DIVISION_APPROX /* div.approx.ftz.f32: nvcc under -use_fast_math */
};
enum mr_ids_order { /* MR_CELL_ORDER */
    MR_ORDER_DESCENDING, /* by key, as selected */
    MR_ORDER_NONE
};
enum mr_shared_rule { /* MR_CELL_SHARED: shared experts as extra slots */
    MR_SHARED_NONE,     /* a separate MLP */
    MR_SHARED_SUM_RSF,  /* ids E.., (sum / rsf) / d: 1 / rsf when renormalised */
    MR_SHARED_CONSTANT, /* ids E.., a constant of the caller's */
    MR_SHARED_ONE,      /* ids E.., 1 */
    MR_SHARED_RECIP_RSF, /* id E, 1 / rsf */
    MR_SHARED_EACH_RECIP /* ids E.., 1 / rsf; 1 where weights hold rsf */
};

struct mr_cell_value {
    unsigned char value;
    const char *source; /* NULL: the row's */
};

#define MR_UNVERIFIED "unverified: "
struct mr_profile_row {
    const char *profile;
    enum mr_profile_kind kind;
    const char *kernel; /* its name in the engine */
    const char *source; /* file @ commit */
    const char *when;   /* the shapes that it serves, in words; NULL: all of its kind */
    bool (*serves)(const struct mr_router *router); /* NULL: all of its kind */
    const char *checked; /* the hardware run that it was compared with; NULL: unverified, nothing was
                            recorded; MR_UNVERIFIED and a reason */
    struct mr_cell_value cell[MR_CELL_COUNT];
};

struct mr_profile {
    const char *name, *about;
    const char *base; /* the profile whose rows serve where this one has none, or NULL */
};

/* The i-th profile, NULL past the last; by name, NULL if unknown. */
const struct mr_profile *mr_profile_at(size_t i);
const struct mr_profile *mr_profile_find(const char *name);
/* "hf, vllm, ...": for messages. */
const char *mr_profile_names(void);

/* The i-th row of all, NULL past the last. */
const struct mr_profile_row *mr_profile_row_at(size_t i);
/* The row that serves this router; MR_ERR_UNSUPPORTED with a message if the profile has none. */
enum mr_status mr_profile_row(const struct mr_profile *profile, const struct mr_router *router,
                              bool hashed, const struct mr_profile_row **out,
                              struct mr_error *err);

const char *mr_cell_text(enum mr_cell cell, unsigned char value); /* short: fits a table */
const char *mr_cell_source(const struct mr_profile_row *row, enum mr_cell cell);
/* True where the row promises ids by descending key. */
bool mr_profile_promises_order(const struct mr_profile_row *row);
/* The row where the caller asks for routed_scaling_factor in the weights, as engines' adapters do. */
struct mr_profile_row mr_profile_asked(const struct mr_profile_row *row);
/* By profile, router and the kernel's name, NULL for the first that serves; MR_ERR_UNSUPPORTED with
 * a message if there is none. */
enum mr_status mr_profile_kernel(const struct mr_profile *profile, const char *kernel,
                                 const struct mr_router *router, bool hashed,
                                 const struct mr_profile_row **out, struct mr_error *err);
/* True where the row was compared with hardware and gives the same bits. */
bool mr_profile_compared(const struct mr_profile_row *row);
/* True where weights hold routed_scaling_factor. */
bool mr_profile_scales(const struct mr_profile_row *row);

#endif
