/* What a loaded case answers: names, layers, and the checked tensors of one layer. */
#include "case_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *mr_case_name(const struct mr_case *c) { return c->name; }
const char *mr_case_about(const struct mr_case *c) { return c->about; }
bool mr_case_from_logits(const struct mr_case *c) { return c->from_logits; }
const struct mr_router *mr_case_router(const struct mr_case *c) { return &c->router; }
const char *mr_case_arith(const struct mr_case *c) { return c->arith; }
const char *mr_case_profile(const struct mr_case *c) { return c->profile; }
const json_t *mr_case_json(const struct mr_case *c) { return c->json; }

const char *mr_case_replay(const struct mr_case *c, const char *phase)
{
    const json_t *line = json_is_object(c->replay) ? json_object_get(c->replay, phase) : c->replay;
    return json_string_value(line);
}

size_t mr_case_phase_count(const struct mr_case *c) { return c->phase_count; }
const char *mr_case_phase(const struct mr_case *c, size_t i) { return c->phases[i]; }
size_t mr_case_layer_count(const struct mr_case *c) { return c->layer_count; }
int mr_case_layer_number(const struct mr_case *c, size_t i) { return c->layers[i]; }

const struct mr_config *mr_case_config(const struct mr_case *c)
{
    return c->has_config ? &c->config : NULL;
}

enum mr_status mr_case_check_config(const struct mr_case *c, struct mr_error *err)
{
    if (!c->config.expert_scale) return MR_OK;
    return mr_fail(err, MR_ERR_UNSUPPORTED, "%s: %s multiplies each weight by the entry of its "
                   "expert in a tensor of the checkpoint, and such routers are not served",
                   c->path, c->config.text_type);
}

static void free_made(struct case_made *made)
{
    mr_generated_free(&made->generated);
    free(made->logits);
    free(made->bias);
    free(made->packed);
    free(made);
}

void mr_case_free(struct mr_case *c)
{
    if (!c) return;
    while (c->made) {
        struct case_made *next = c->made->next;
        free_made(c->made);
        c->made = next;
    }
    mr_checkpoint_free(c->weights);
    mr_checkpoint_free(c->captures);
    for (int i = 0; i < TENSOR_COUNT; i++) mr_checkpoint_free(c->files[i]);
    free(c->phases);
    free(c->layers);
    json_decref(c->json);
    free(c->path);
    free(c);
}

struct case_made *mr_case_find_made(const struct mr_case *c, int layer, size_t phase)
{
    struct case_made *made = c->made;
    while (made && (made->layer != layer || made->phase != phase)) made = made->next;
    return made;
}

void mr_case_release(struct mr_case *c, int layer, const char *phase)
{
    for (struct case_made **link = &c->made; *link; link = &(*link)->next) {
        struct case_made *made = *link;
        if (made->layer != layer || strcmp(c->phases[made->phase], phase) != 0) continue;
        if (made->keep) return;
        *link = made->next;
        free_made(made);
        return;
    }
}

static struct mr_tensor made_tensor(enum mr_dtype dtype, const void *data, size_t rows, size_t cols)
{
    /* A tensor of no rows is there all the same: data says so, and nothing reads it. */
    static const float none;
    struct mr_tensor t = {.dtype = dtype, .ndim = rows == SIZE_MAX ? 1 : 2,
                          .data = data ? data : &none};
    t.shape[0] = rows == SIZE_MAX ? cols : rows;
    if (t.ndim == 2) t.shape[1] = cols;
    t.bytes = (uint64_t)(rows == SIZE_MAX ? 1 : rows) * cols * (mr_dtype_bits(dtype) / 8);
    return t;
}

static enum mr_status generate(struct mr_case *c, int layer, size_t phase, struct case_made **out,
                               struct mr_error *err)
{
    if ((*out = mr_case_find_made(c, layer, phase))) return MR_OK;
    struct case_made *made = calloc(1, sizeof *made);
    if (!made) return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", c->path);
    enum mr_status status = mr_generate_layer(c->generate, &c->router, c->seed, layer,
                                              c->phases[phase], &made->generated, err);
    if (status != MR_OK) {
        free(made);
        return status;
    }
    made->layer = layer;
    made->phase = phase;
    made->tokens = made->generated.tokens;
    made->next = c->made;
    c->made = made;
    *out = made;
    return MR_OK;
}

/* Logits whose rows are row_stride apart, without what lies between: nothing later can read it. */
static enum mr_status pack_rows(struct mr_case *c, int layer, size_t phase, struct mr_tensor *t,
                                struct mr_error *err)
{
    size_t width = mr_dtype_bits(t->dtype) / 8, rows = (size_t)t->shape[0];
    size_t to = (size_t)c->router.experts * width, from = c->row_stride * width;
    struct case_made *made = mr_case_find_made(c, layer, phase);
    if (!made) {
        made = calloc(1, sizeof *made);
        void *packed = malloc(rows * to + 1); /* less than the file holds */
        if (!made || !packed) {
            free(made);
            free(packed);
            return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", c->path);
        }
        for (size_t r = 0; r < rows; r++)
            memcpy((char *)packed + r * to, (const char *)t->data + r * from, to);
        *made = (struct case_made){.layer = layer, .phase = phase, .packed = packed, .tokens = rows,
                                   .next = c->made};
        c->made = made;
    }
    *t = made_tensor(t->dtype, made->packed, rows, (size_t)c->router.experts);
    return MR_OK;
}

/* What a tensor must be. cols 0: one dimension of that many rows. rows ANY_ROWS: as many as it
 * has. */
#define ANY_ROWS UINT64_MAX
struct expected {
    const char *dtypes;
    uint64_t rows, cols;
    const char *rows_from; /* for the message: the tensor that set the rows, or what ANY_ROWS are */
    bool fewer;            /* or fewer rows: observed, of the first tokens only */
};

static void shape_text(const struct mr_tensor *t, char text[192])
{
    int n = snprintf(text, 192, "[");
    for (int i = 0; i < t->ndim; i++)
        n += snprintf(text + n, (size_t)(192 - n), "%s%" PRIu64, i ? ", " : "", t->shape[i]);
    snprintf(text + n, (size_t)(192 - n), "]");
}

/* dtypes is a list of names, each with a space behind it. */
static bool listed(const char *dtypes, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = dtypes; (p = strstr(p, name)); p += n)
        if ((p == dtypes || p[-1] == ' ') && p[n] == ' ') return true;
    return false;
}

static enum mr_status check(const struct case_found *f, struct expected want, struct mr_error *err)
{
    const struct mr_tensor *t = &f->tensor;
    if (!t->data) return MR_OK;
    if (!listed(want.dtypes, mr_dtype_name(t->dtype)))
        return mr_fail(err, MR_ERR_DTYPE, "%s: %s: expected one of %sfound %s", f->file, f->name,
                       want.dtypes, mr_dtype_name(t->dtype));
    int ndim = want.cols ? 2 : 1;
    bool some = want.rows == ANY_ROWS || (want.fewer && t->shape[0] < want.rows);
    if (t->ndim == ndim && (some || t->shape[0] == want.rows) &&
        (ndim == 1 || t->shape[1] == want.cols))
        return MR_OK;
    char found[192], rows[40], cols[32] = "";
    const char *by = want.rows == ANY_ROWS ? NULL : want.rows_from;
    shape_text(t, found);
    if (want.rows != ANY_ROWS)
        snprintf(rows, sizeof rows, "%s%" PRIu64, want.fewer ? "at most " : "", want.rows);
    else snprintf(rows, sizeof rows, "%s", want.rows_from);
    if (want.cols) snprintf(cols, sizeof cols, ", %" PRIu64, want.cols);
    return mr_fail(err, MR_ERR_SHAPE, "%s: %s: expected shape [%s%s]%s%s, found %s", f->file,
                   f->name, rows, cols, by ? " by " : "", by ? by : "", found);
}

#define FLOATS "BF16 F16 F32 "
#define INDICES "I32 I64 "
#define INTEGERS "I32 I64 U8 I8 U16 I16 U32 U64 "

static enum mr_status check_all(const struct mr_case *c, const struct case_found *t,
                                struct mr_error *err)
{
    uint64_t experts = (uint64_t)c->router.experts, hidden = (uint64_t)c->router.hidden,
             top_k = (uint64_t)c->router.top_k;
    const struct case_found *input = &t[c->from_logits ? TENSOR_LOGITS : TENSOR_HIDDEN];
    uint64_t row = !c->from_logits ? hidden : c->row_stride ? c->row_stride : experts;
    TRY(check(input, (struct expected){FLOATS, ANY_ROWS, row, "tokens", false}, err));
    uint64_t tokens = input->tensor.shape[0];
    TRY(check(&t[TENSOR_GATE], (struct expected){FLOATS, experts, hidden, "the router", false},
              err));
    TRY(check(&t[TENSOR_BIAS], (struct expected){FLOATS, experts, 0, NULL, false}, err));
    TRY(check(&t[TENSOR_GATE_BIAS], (struct expected){FLOATS, experts, 0, NULL, false}, err));
    TRY(check(&t[TENSOR_HASH], (struct expected){INDICES, ANY_ROWS, top_k, "vocabulary", false},
              err));
    TRY(check(&t[TENSOR_TOKEN_IDS], (struct expected){INDICES, tokens, 0, input->name, false},
              err));
    if (!c->from_logits)
        TRY(check(&t[TENSOR_LOGITS], (struct expected){FLOATS, tokens, experts, input->name, true},
                  err));
    TRY(check(&t[TENSOR_IDS], (struct expected){INTEGERS, tokens, top_k, input->name, true}, err));
    return check(&t[TENSOR_WEIGHTS],
                 (struct expected){FLOATS "F64 ", tokens, top_k, input->name, true}, err);
}

static enum mr_status phase_index(const struct mr_case *c, int layer, const char *phase,
                                  size_t *out, struct mr_error *err)
{
    size_t l = 0, p = 0;
    while (l < c->layer_count && c->layers[l] != layer) l++;
    while (p < c->phase_count && strcmp(c->phases[p], phase) != 0) p++;
    if (l == c->layer_count)
        return mr_fail(err, MR_ERR_MISSING, "%s: has no layer %d (it has %zu, %d to %d)", c->path,
                       layer, c->layer_count, c->layers[0], c->layers[c->layer_count - 1]);
    if (p == c->phase_count)
        return mr_fail(err, MR_ERR_MISSING, "%s: has no phase \"%s\" (its first is \"%s\")",
                       c->path, phase, c->phases[0]);
    *out = p;
    return MR_OK;
}

bool mr_case_has(const struct mr_case *c, int layer, const char *phase)
{
    size_t p;
    if (phase_index(c, layer, phase, &p, NULL) != MR_OK) return false;
    return c->generate || c->inlined || c->plain || mr_case_has_input(c, layer, phase);
}

static void name_made(struct case_found *f, const struct mr_case *c, const char *from,
                      enum case_tensor which, int layer, struct mr_tensor tensor)
{
    f->tensor = tensor;
    f->file = c->path;
    snprintf(f->name, sizeof f->name, "%s: layer %d: %s", from, layer, mr_case_tensor_keys[which]);
}

bool mr_case_by_token_id(const struct mr_case *c, int layer)
{
    if (!c->has_config) return layer < c->router.hash_layers;
    for (int i = 0; i < c->router.hash_layers && i < c->config.moe_layer_count; i++)
        if (c->config.moe_layers[i] == layer) return true;
    return false;
}

/* What routing starts from is required; what it does not use is not looked for, except what was
 * observed. A layer that chooses by token id ranks nothing, and its checkpoint has no bias. */
enum need { UNUSED, OBSERVED, REQUIRED };

static enum need need_of(const struct mr_case *c, enum case_tensor which, int layer)
{
    const struct mr_router *r = &c->router;
    bool by_id = mr_case_by_token_id(c, layer);
    switch (which) {
    case TENSOR_HIDDEN:
    case TENSOR_GATE: return c->from_logits ? UNUSED : REQUIRED;
    case TENSOR_BIAS: return r->bias && !by_id ? REQUIRED : UNUSED;
    case TENSOR_GATE_BIAS: return r->gate_bias && !c->from_logits ? REQUIRED : UNUSED;
    case TENSOR_HASH:
    case TENSOR_TOKEN_IDS: return by_id ? REQUIRED : UNUSED;
    case TENSOR_LOGITS: return c->from_logits ? REQUIRED : OBSERVED;
    default: return OBSERVED;
    }
}

enum mr_status mr_case_get(struct mr_case *c, int layer, const char *phase,
                           struct mr_case_layer *out, struct mr_error *err)
{
    struct case_found t[TENSOR_COUNT];
    size_t p;
    memset(t, 0, sizeof t);
    TRY(phase_index(c, layer, phase, &p, err));
    size_t experts = (size_t)c->router.experts, hidden = (size_t)c->router.hidden;
    bool weights_made = false;
    if (c->generate) {
        struct case_made *made;
        TRY(generate(c, layer, p, &made, err));
        const struct mr_generated *g = &made->generated;
        name_made(&t[TENSOR_HIDDEN], c, "generate", TENSOR_HIDDEN, layer,
                  made_tensor(MR_BF16, g->hidden, g->tokens, hidden));
        name_made(&t[TENSOR_GATE], c, "generate", TENSOR_GATE, layer,
                  made_tensor(MR_BF16, g->gate, experts, hidden));
        if (g->bias) name_made(&t[TENSOR_BIAS], c, "generate", TENSOR_BIAS, layer,
                               made_tensor(MR_F32, g->bias, SIZE_MAX, experts));
        weights_made = true;
    } else if (c->inlined) {
        const struct case_made *made = mr_case_find_made(c, layer, p);
        name_made(&t[TENSOR_LOGITS], c, "inline", TENSOR_LOGITS, layer,
                  made_tensor(MR_F32, made->logits, made->tokens, experts));
        if (made->bias) name_made(&t[TENSOR_BIAS], c, "inline", TENSOR_BIAS, layer,
                                  made_tensor(MR_F32, made->bias, SIZE_MAX, experts));
    }
    /* What is not there yet: required if routing needs it, else only observed. */
    for (int i = 0; i < TENSOR_COUNT; i++) {
        enum need need = need_of(c, (enum case_tensor)i, layer);
        if (t[i].tensor.data || need == UNUSED) continue;
        if (weights_made && mr_case_in_checkpoint((enum case_tensor)i)) continue;
        TRY(mr_case_find(c, (enum case_tensor)i, layer, phase, need == REQUIRED, &t[i], err));
    }
    TRY(check_all(c, t, err));
    if (c->row_stride) TRY(pack_rows(c, layer, p, &t[TENSOR_LOGITS].tensor, err));
    *out = (struct mr_case_layer){
        .layer = layer, .phase = c->phases[p], .hidden = t[TENSOR_HIDDEN].tensor,
        .gate = t[TENSOR_GATE].tensor, .bias = t[TENSOR_BIAS].tensor,
        .logits = t[TENSOR_LOGITS].tensor, .topk_ids = t[TENSOR_IDS].tensor,
        .topk_weights = t[TENSOR_WEIGHTS].tensor, .gate_bias = t[TENSOR_GATE_BIAS].tensor,
        .hash = t[TENSOR_HASH].tensor, .token_ids = t[TENSOR_TOKEN_IDS].tensor,
    };
    return MR_OK;
}
