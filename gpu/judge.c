#include "judge.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/observed.h"
#include "../tools/common.h"
#include "bits.h"
#include "layers.h"
#include "observed_file.h"
#include "replay_hook.h"

/* Results that are judged by the same arithmetic, in one pass over a layer. */
struct group {
    const char *arith;
    bool ordered;
    struct mr_error_model model;
    size_t count, *result;
    struct mr_findings found;
};

struct judge {
    const struct gpu_request *request;
    struct gpu_results *r;
    const struct mr_router *router;
    struct gpu_layers layers;
    struct mr_safetensors **file; /* [results]; NULL: nothing to judge */
    struct mr_observed *observed; /* [results] of the layer at hand */
    struct group *group;
    size_t group_count;
    int32_t *ids;         /* [tokens, top_k] certified, of the layer at hand, sorted */
    uint8_t *certificate; /* [tokens] */
    struct mr_error err;
};

static void check(struct judge *j, enum mr_status status)
{
    if (status) die_of(status, &j->err);
}

static uint64_t number(const struct mr_safetensors *file, const char *key)
{
    const char *text = mr_safetensors_metadata(file, key);
    return text ? strtoull(text, NULL, 10) : 0;
}

static const char *words(const struct mr_safetensors *file, const char *key)
{
    const char *text = mr_safetensors_metadata(file, key);
    return text ? text : "";
}

/* What the child found while the kernel ran. */
static void read_faults(struct gpu_result *x, const struct mr_safetensors *file)
{
    uint64_t unstable = number(file, "unstable_rows"), poison = number(file, "poison_rows");
    uint64_t delayed = number(file, "delay_rows"), rows = number(file, "launched_rows");
    const char *outside = words(file, "outside"), *first = words(file, "first");
    const char *books = words(file, "books");
    uint64_t holes = number(file, "holes");
    typedef unsigned long long ull;
    x->unstable_rows = (long long)unstable;
    snprintf(x->arith, sizeof x->arith, "%s", words(file, "arithmetic"));
    if (*outside) gpu_result_fail(x, GPU_FAULTY, "%s", outside);
    if (holes) gpu_result_fail(x, GPU_FAULTY, "holes: %llu elements not written (%s)", (ull)holes,
                               first);
    if (*books) gpu_result_fail(x, GPU_FAULTY, "books that do not agree with its ids: %s", books);
    if (unstable && x->kernel->promises & MR_KERNEL_DETERMINISTIC)
        gpu_result_fail(x, GPU_FAULTY, "promises to be deterministic, and %llu of %llu rows differ "
                        "from launch to launch (%s)", (ull)unstable, (ull)rows, first);
    if (poison && !unstable)
        gpu_result_fail(x, GPU_FAULTY, "reads memory that nobody wrote: %llu of %llu rows depend "
                        "on what it held (%s)", (ull)poison, (ull)rows, first);
    if (delayed && !unstable)
        gpu_result_fail(x, GPU_FAULTY, "does not wait for its own earlier kernels: %llu of %llu "
                        "rows change when those are slow (%s)", (ull)delayed, (ull)rows, first);
}

static void open_files(struct judge *j, const char *folder)
{
    char path[PATH_MAX];
    j->file = need(j->r->count, sizeof *j->file);
    j->observed = need(j->r->count, sizeof *j->observed);
    for (size_t i = 0; i < j->r->count; i++) {
        struct gpu_result *x = &j->r->at[i];
        if (x->state != GPU_FINE) continue;
        gpu_observed_path(folder, x->kernel->name, x->rows, path, sizeof path);
        if (mr_safetensors_open(path, &j->file[i], &j->err))
            gpu_result_fail(x, GPU_NOT_RUN, "%s", j->err.text);
        else
            read_faults(x, j->file[i]);
    }
}

/* The kernel's line, or nothing. The case's own line is about its capture, which no kernel here
 * made. */
static const char *line_of(const struct gpu_result *x)
{
    return x->arith[0] ? x->arith : NULL;
}

static struct group *group_of(struct judge *j, struct gpu_result *x)
{
    const char *line = line_of(x);
    bool ordered = x->kernel->promises & MR_KERNEL_ORDERED;
    struct mr_arith declared;
    for (size_t g = 0; g < j->group_count; g++) {
        const char *other = j->group[g].arith;
        if (j->group[g].ordered == ordered &&
            (line && other ? !strcmp(line, other) : line == other))
            return &j->group[g];
    }
    if (line && mr_arith_parse(line, &declared, &j->err)) {
        gpu_result_fail(x, GPU_FAULTY, "its arithmetic '%.200s': %s", line, j->err.text);
        line = NULL;
        x->arith[0] = '\0';
    }
    struct group *g = &j->group[j->group_count++];
    *g = (struct group){.arith = line, .ordered = ordered,
                        .model = mr_error_model(line ? &declared : NULL),
                        .result = need(j->r->count, sizeof *g->result)};
    check(j, mr_findings_new(1000, j->router->top_k, &g->found));
    return g;
}

static void make_groups(struct judge *j)
{
    j->group = need(j->r->count, sizeof *j->group);
    for (size_t i = 0; i < j->r->count; i++) {
        if (!j->file[i]) continue;
        struct group *g = group_of(j, &j->r->at[i]);
        g->result[g->count++] = i;
    }
}

static int compare(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static enum mr_status keep_rows(void *context, const struct mr_rows *rows, struct mr_error *err)
{
    struct judge *j = context;
    size_t k = (size_t)j->router->top_k;
    (void)err;
    for (size_t r = 0; r < rows->rows; r++) {
        int32_t *to = j->ids + (rows->first + r) * k;
        memcpy(to, rows->ids + r * k, k * sizeof *to);
        qsort(to, k, sizeof *to, compare);
        j->certificate[rows->first + r] = rows->certificate[r];
    }
    return MR_OK;
}

static void certify(struct judge *j, const struct mr_layer *layer, size_t tokens)
{
    struct mr_route_result result = {0};
    const struct mr_route_options options = {.threads = j->request->threads, .rows = keep_rows,
                                             .context = j};
    j->ids = need(tokens * (size_t)j->router->top_k, sizeof *j->ids);
    j->certificate = need(tokens, 1);
    check(j, mr_route_layer(layer, &options, &result, NULL, &j->err));
}

/* Rows whose set is not the certified one; tokens that tie or have none are left out. */
static void count_flips(struct judge *j, struct gpu_result *x, const struct mr_observed *o)
{
    size_t k = (size_t)j->router->top_k;
    int64_t *ids = need(k, sizeof *ids);
    int32_t *sorted = need(k, sizeof *sorted);
    if (x->flips < 0) x->flips = x->decided = 0;
    for (size_t t = 0; t < o->tokens; t++) {
        const size_t *rows;
        size_t n = mr_observed_rows(o, t, &rows);
        if (j->certificate[t] >= MR_CERT_TIE) continue;
        for (size_t i = 0; i < n; i++) {
            mr_observed_ids(o, rows ? rows[i] : t, ids);
            for (size_t s = 0; s < k; s++) sorted[s] = (int32_t)ids[s];
            qsort(sorted, k, sizeof *sorted, compare);
            x->flips += memcmp(sorted, j->ids + t * k, k * sizeof *sorted) != 0;
            x->decided++;
        }
    }
    free(ids);
    free(sorted);
}

static void add(long long *to, uint64_t n)
{
    *to = (*to < 0 ? 0 : *to) + (long long)n;
}

/* Results come by kernel and ascending rows. */
static void count_bits(struct judge *j, size_t tokens)
{
    struct gpu_bits *b = NULL;
    const struct mr_kernel *kernel = NULL;
    for (size_t i = 0; i < j->r->count; i++) {
        struct gpu_result *x = &j->r->at[i];
        struct gpu_bits_count n = {0};
        if (x->kernel != kernel) {
            gpu_bits_free(b);
            check(j, gpu_bits_new(tokens, j->router->top_k, j->router->experts, &b));
            kernel = x->kernel;
        }
        if (!j->file[i]) continue;
        gpu_bits_add(b, &j->observed[i], &n);
        if (n.compared) add(&x->bit_changes, n.bit_changes);
        if (n.sets) add(&x->batch_flips, n.batch_flips);
        add(&x->batch_bits, n.batch_bits);
    }
    gpu_bits_free(b);
}

static void verify_group(struct judge *j, struct group *g, const struct gpu_layer *l, size_t order)
{
    size_t experts = (size_t)j->router->experts;
    struct mr_observed *o = need(g->count, sizeof *o);
    struct mr_verify_result result = {.tally = need(g->count, sizeof *result.tally),
                                      .gained = need(experts, sizeof *result.gained),
                                      .lost = need(experts, sizeof *result.lost)};
    const struct mr_verify_options options = {.threads = j->request->threads, .model = g->model,
                                              .ordered = g->ordered, .order = order,
                                              .layer = l->number, .phase = l->phase};
    for (size_t i = 0; i < g->count; i++) o[i] = j->observed[g->result[i]];
    check(j, mr_verify_layer(&l->input.layer, &options, o, g->count, &result, &g->found, &j->err));
    for (size_t i = 0; i < g->count; i++) {
        struct mr_verify_tally *to = &j->r->at[g->result[i]].tally, *from = &result.tally[i];
        to->rows += from->rows;
        to->padding += from->padding;
        to->logit_rows += from->logit_rows;
        if (from->logit_error > to->logit_error) to->logit_error = from->logit_error;
        for (int v = 0; v < MR_VERDICT_COUNT; v++) to->verdicts[v] += from->verdicts[v];
    }
    free(result.tally);
    free(result.gained);
    free(result.lost);
    free(o);
}

/* A line whose operands cannot be those of the case is the kernel's fault. */
static void replay(struct judge *j, struct gpu_replays *replays, size_t i)
{
    struct gpu_result *x = &j->r->at[i];
    struct gpu_replay_count n = {0};
    bool applies = false;
    if (!x->arith[0] || !x->kernel->hidden_types) return;
    enum mr_status status = gpu_replays_check(replays, x->arith, &j->observed[i], &applies, &n,
                                              &j->err);
    if (status == MR_ERR_MEMORY) die_of(status, &j->err);
    if (status)
        gpu_result_fail(x, GPU_FAULTY, "its arithmetic '%.200s': %s", x->arith, j->err.text);
    if (!applies) return;
    add(&x->logits_checked, n.checked);
    add(&x->logits_equal, n.equal);
}

/* The same row count of the kernel that others are compared with; r->count: none. */
static size_t twin(const struct judge *j, size_t i)
{
    const char *against = j->request->against;
    for (size_t t = 0; against && t < j->r->count; t++)
        if (j->file[t] && t != i && j->r->at[t].rows == j->r->at[i].rows &&
            !strcmp(j->r->at[t].kernel->name, against))
            return t;
    return j->r->count;
}

static void compare_kernels(struct judge *j)
{
    for (size_t i = 0; i < j->r->count; i++) {
        size_t t = j->file[i] ? twin(j, i) : j->r->count;
        if (t < j->r->count)
            check(j, gpu_against_add(&j->observed[i], &j->observed[t], j->router->top_k,
                                     j->router->experts, &j->r->at[i].against));
    }
}

static void judge_layer(struct judge *j, size_t at)
{
    struct gpu_layer *l = &j->layers.at[at];
    bool found;
    gpu_layer_open(&j->layers, at, j->request->from_logits);
    const struct mr_layer *layer = &l->input.layer;
    size_t tokens = layer->logits.data ? layer->logits.rows : layer->hidden.rows;
    struct gpu_replays *replays;
    certify(j, layer, tokens);
    check(j, gpu_replays_new(layer, j->request->threads, &replays));
    for (size_t i = 0; i < j->r->count; i++) {
        if (!j->file[i]) continue;
        check(j, mr_observed_read(j->file[i], l->number, l->phase, j->router, tokens, UINT64_MAX,
                                  &j->observed[i], &found, &j->err));
        if (j->observed[i].ids.data) count_flips(j, &j->r->at[i], &j->observed[i]);
        replay(j, replays, i);
    }
    gpu_replays_free(replays);
    for (size_t g = 0; g < j->group_count; g++) verify_group(j, &j->group[g], l, at);
    count_bits(j, tokens);
    compare_kernels(j);
    for (size_t i = 0; i < j->r->count; i++) mr_observed_free(&j->observed[i]);
    free(j->ids);
    free(j->certificate);
    gpu_layer_close(&j->layers, at);
}

/* The worst row of each result, and what it makes of the result. */
static void conclude_group(struct judge *j, struct group *g)
{
    mr_findings_sort(&g->found);
    for (size_t i = 0; i < g->found.count; i++) {
        const struct mr_finding *f = &g->found.item[i];
        struct gpu_result *x = &j->r->at[g->result[f->source]];
        char sentence[MR_FINDING_TEXT];
        if (x->worst[0]) continue;
        mr_finding_text(f, sentence);
        snprintf(x->worst, sizeof x->worst, "%s: layer %d, %.64s, token %zu (row %zu): %s",
                 mr_verdict_name(f->judgement.verdict), f->layer, f->phase, f->token, f->row,
                 sentence);
    }
    for (size_t i = 0; i < g->count; i++) {
        struct gpu_result *x = &j->r->at[g->result[i]];
        unsigned long long bad = mr_tally_failures(&x->tally, j->request->strict);
        if (bad)
            gpu_result_fail(x, GPU_WRONG, "%llu of %llu rows fail", bad,
                            (unsigned long long)x->tally.rows);
        if (x->kernel->promises & MR_KERNEL_BATCH_INVARIANT && x->batch_bits > 0)
            gpu_result_fail(x, GPU_FAULTY, "promises batch invariance, and %lld tokens depend on "
                            "the number of rows or on their place", x->batch_bits);
        if (x->logits_checked > x->logits_equal)
            gpu_result_fail(x, GPU_FAULTY, "%lld of %lld logits are not those of its arithmetic",
                            x->logits_checked - x->logits_equal, x->logits_checked);
    }
}

void gpu_judge(const struct gpu_request *request, struct mr_case *c, const char *folder,
               struct gpu_results *r)
{
    struct judge j = {.request = request, .r = r, .router = mr_case_router(c)};
    gpu_layers_list(c, request, &j.layers);
    open_files(&j, folder);
    make_groups(&j);
    for (size_t i = 0; i < j.layers.count && j.group_count; i++) judge_layer(&j, i);
    for (size_t g = 0; g < j.group_count; g++) {
        conclude_group(&j, &j.group[g]);
        mr_findings_free(&j.group[g].found);
        free(j.group[g].result);
    }
    for (size_t i = 0; i < r->count; i++) mr_safetensors_close(j.file[i]);
    gpu_layers_free(&j.layers);
    free(j.group);
    free(j.file);
    free(j.observed);
}
