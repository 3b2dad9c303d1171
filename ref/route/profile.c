#include "profile.h"

#include <string.h>

#include "profile_rows.h"

static const struct mr_profile profiles[] = {
    {"hf", "transformers on PyTorch", NULL},
    {"hf-mask0", "transformers before #45440 (2026-04): excluded groups masked with 0.0", "hf"},
    {"vllm", "vLLM 0.33.0, CUDA", NULL},
    {"sglang", "SGLang 0.5.23, CUDA kernels; moe_fused_gate of sgl_kernel 0.4.4", NULL},
    {"sglang-jit", "SGLang before 0.5.23: moe_fused_gate.cuh, which 0.5.23 has no more", "sglang"},
    {"sglang-triton", "SGLang 0.5.23, Triton router: what select_experts calls", NULL},
    {"flashinfer", "FlashInfer fb28d72, fused MoE runners", NULL},
    {"flashinfer-tc", "FlashInfer 0.7.4, NoAuxTc (fused_topk_deepseek)", NULL},
    {"deepseek", "DeepSeek's own inference code", NULL},
};
enum { PROFILES = sizeof profiles / sizeof *profiles };

static const char *const kind_name[MR_KIND_COUNT] = {
    "sigmoid", "sigmoid, groups", "softmax", "softmax, renormalised", "softmax, groups",
    "top-k, then softmax", "top-k, then sigmoid", "sqrt-softplus", "hash, sqrt-softplus"};

static const char *const cell_name[MR_CELL_COUNT] = {
    "score", "score type", "ranks by", "bias", "group score", "excluded", "tie rule", "NaN, Inf",
    "weight from", "sum order", "denominator", "scaling", "division", "output type", "ids order",
    "shared slots"};

static const char *const type_text[] = {"fp32", "bf16", "as logits"};

/* At most 17 characters each: a column of `moeref profiles`. */
static const struct {
    const char *const *text;
    unsigned char count;
} values[MR_CELL_COUNT] = {
#define TEXTS(...) {(const char *const[]){__VA_ARGS__}, \
                    sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)}
    [MR_CELL_SCORE] = TEXTS("1/(1+expf(-x))", "1/(1+__expf(-x))", "sigmoid, fast", "tl.sigmoid",
                            "tanhf(x/2)/2+1/2", "tanh.approx form", "e * (1/sum)",
                            "e * (1/sum) fast", "e / sum", "e / sum, Triton", "__logf, x>20: x",
                            "logf, x>20: x", "tl.log, x>20: x", "log1pf(expf(x))",
                            "log1pf, x>20: x", "max+log1pf(-|x|)", "max+log1p, fast",
                            "max+log1p Triton"),
    [MR_CELL_SCORE_TYPE] = {type_text, 3},
    [MR_CELL_BIAS] = {type_text, 3},
    [MR_CELL_RANK] = TEXTS("score + bias", "logit", "logit, all score"),
    [MR_CELL_GROUP] = TEXTS("-", "top-2 sum", "max", "top-2 sum or max", "top1 + below"),
    [MR_CELL_MASK] = TEXTS("-", "-Inf", "0.0", "no candidate"),
    [MR_CELL_TIE] = TEXTS("lowest id", "undefined", "<=512 rows: tree", "lowest if E=2^n"),
    [MR_CELL_NAN] = TEXTS("score 0", "by bits", "never chosen", "key -1e30", "key -1e30, once",
                          "above Inf", "key -Inf", "key -Inf, w 0", "no guard"),
    [MR_CELL_WEIGHT] = TEXTS("score", "key - bias", "by rows"),
    [MR_CELL_SUM] = TEXTS("as selected", "xor butterfly", "16-byte vectors", "fours",
                          "not known"),
    [MR_CELL_GUARD] = TEXTS("sum", "sum > 0 or 1", "sum+1e-20 fp32", "sum+1e-20 fp64",
                            "max(sum, 1e-20)", "not divided"),
    [MR_CELL_SCALING] = TEXTS("w/d * rsf", "w * (rsf/d)", "w * (1/d) * rsf", "w*rsf / d",
                              "w*rsf / d, fp64", "fp64, one round.", "outside: w/d",
                              "outside: w*(1/d)", "outside: w*(1/d)", "outside: w*(1/d)",
                              "w * (1/d * rsf)", "w*(rsf/d), fp64"),
    [MR_CELL_DIVISION] = TEXTS("IEEE", "div.full", "div.approx.ftz"),
    [MR_CELL_OUTPUT] = {type_text, 3},
    [MR_CELL_ORDER] = TEXTS("descending key", "none"),
    [MR_CELL_SHARED] = TEXTS("none", "E..: sum/rsf / d", "E..: caller's", "E..: 1", "E: 1/rsf",
                             "E..: 1/rsf"),
#undef TEXTS
};

const char *mr_profile_kind_name(enum mr_profile_kind kind)
{
    return (unsigned)kind < MR_KIND_COUNT ? kind_name[kind] : "?";
}

const char *mr_cell_name(enum mr_cell cell)
{
    return (unsigned)cell < MR_CELL_COUNT ? cell_name[cell] : "?";
}

const char *mr_cell_text(enum mr_cell cell, unsigned char value)
{
    if ((unsigned)cell >= MR_CELL_COUNT || value >= values[cell].count) return "?";
    return values[cell].text[value];
}

const char *mr_cell_source(const struct mr_profile_row *row, enum mr_cell cell)
{
    return row->cell[cell].source ? row->cell[cell].source : row->source;
}

enum mr_profile_kind mr_profile_kind_of(const struct mr_router *r, bool hashed)
{
    if (hashed) return MR_KIND_HASH;
    if (r->selection == MR_SELECT_LOGIT)
        return r->score == MR_SCORE_SIGMOID ? MR_KIND_TOPK_SIGMOID : MR_KIND_TOPK_SOFTMAX;
    if (r->score == MR_SCORE_SQRT_SOFTPLUS) return MR_KIND_SQRT_SOFTPLUS;
    if (r->score == MR_SCORE_SIGMOID)
        return r->n_group > 1 ? MR_KIND_SIGMOID_GROUPS : MR_KIND_SIGMOID;
    if (r->n_group > 1) return MR_KIND_SOFTMAX_GROUPS;
    return r->norm_topk_prob ? MR_KIND_SOFTMAX_RENORM : MR_KIND_SOFTMAX;
}

const struct mr_profile *mr_profile_at(size_t i)
{
    return i < PROFILES ? &profiles[i] : NULL;
}

const struct mr_profile *mr_profile_find(const char *name)
{
    for (size_t i = 0; i < PROFILES; i++)
        if (!strcmp(profiles[i].name, name)) return &profiles[i];
    return NULL;
}

const char *mr_profile_names(void)
{
    return "hf, hf-mask0, vllm, sglang, sglang-jit, sglang-triton, flashinfer, flashinfer-tc, deepseek";
}

const struct mr_profile_row *mr_profile_row_at(size_t i)
{
    const struct mr_profile_rows *const tables[] = {&mr_torch_rows, &mr_vllm_rows,
                                                    &mr_sglang_rows, &mr_flashinfer_rows};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        if (i < tables[t]->count) return &tables[t]->row[i];
        i -= tables[t]->count;
    }
    return NULL;
}

static const struct mr_profile_row *find_row(const char *name, const char *kernel,
                                             enum mr_profile_kind kind,
                                             const struct mr_router *router)
{
    const struct mr_profile_row *row;
    for (size_t i = 0; (row = mr_profile_row_at(i)) != NULL; i++)
        if (row->kind == kind && !strcmp(row->profile, name) &&
            (!kernel || !strcmp(row->kernel, kernel)) && (!row->serves || row->serves(router)))
            return row;
    return NULL;
}

enum mr_status mr_profile_kernel(const struct mr_profile *profile, const char *kernel,
                                 const struct mr_router *router, bool hashed,
                                 const struct mr_profile_row **out, struct mr_error *err)
{
    enum mr_profile_kind kind = mr_profile_kind_of(router, hashed);
    *out = find_row(profile->name, kernel, kind, router);
    if (!*out && profile->base) *out = find_row(profile->base, kernel, kind, router);
    if (*out) return MR_OK;
    return mr_fail(err, MR_ERR_UNSUPPORTED,
                   "profile %s: no kernel %s%sknown for this router (%s, %d experts, top_k %d, "
                   "n_group %d, topk_group %d, %s)", profile->name, kernel ? kernel : "",
                   kernel ? " " : "", kind_name[kind], router->experts, router->top_k,
                   router->n_group, router->topk_group, router->bias ? "bias" : "no bias");
}

enum mr_status mr_profile_row(const struct mr_profile *profile, const struct mr_router *router,
                              bool hashed, const struct mr_profile_row **out, struct mr_error *err)
{
    return mr_profile_kernel(profile, NULL, router, hashed, out, err);
}

struct mr_profile_row mr_profile_asked(const struct mr_profile_row *row)
{
    struct mr_profile_row asked = *row;
    unsigned char *scaling = &asked.cell[MR_CELL_SCALING].value;
    switch (*scaling) {
    case MR_SCALING_OUTSIDE: *scaling = MR_SCALING_LAST; break;
    case MR_SCALING_OUTSIDE_FIRST: *scaling = MR_SCALING_FIRST64; break;
    case MR_SCALING_OUTSIDE_RECIP: *scaling = MR_SCALING_RECIP; break;
    case MR_SCALING_OUTSIDE_FACTOR: *scaling = MR_SCALING_FACTOR; break;
    default: break;
    }
    return asked;
}

bool mr_profile_compared(const struct mr_profile_row *row)
{
    return row->checked && strncmp(row->checked, MR_UNVERIFIED, strlen(MR_UNVERIFIED));
}

bool mr_profile_promises_order(const struct mr_profile_row *row)
{
    return row->cell[MR_CELL_ORDER].value == MR_ORDER_DESCENDING;
}

bool mr_profile_scales(const struct mr_profile_row *row)
{
    enum mr_scaling s = row->cell[MR_CELL_SCALING].value;
    return s < MR_SCALING_OUTSIDE || s > MR_SCALING_OUTSIDE_FACTOR;
}
