/* Launches that are checked. A legal output can equal a poison; two different ones it cannot equal
 * both. What differs between runs over two poisons was not written, or was made of memory that
 * nobody wrote, or differs by itself: the third run, over the first poison again, tells which. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

#define TRY(call)                                     \
    do {                                              \
        enum mr_status try_status_ = (call);          \
        if (try_status_ != MR_OK) return try_status_; \
    } while (0)

/* 0xff: NaN in every format, -1 as an id. 0x7b: large and finite, an id far out of range. */
enum { POISON_A = 0xff, POISON_B = 0x7b, DELAY_NS = 50000 };

enum mr_status gpu_outputs_new(const struct gpu_session *s, struct gpu_outputs *out,
                               struct mr_error *err)
{
    *out = (struct gpu_outputs){{0}};
    for (int i = GPU_FIRST_OUTPUT; i < GPU_OUTPUTS_END; i++) {
        if (!s->slot[i].bytes) continue;
        out->at[i] = malloc(s->slot[i].bytes);
        if (!out->at[i]) return mr_fail(err, MR_ERR_MEMORY, "out of memory");
    }
    return MR_OK;
}

void gpu_outputs_free(struct gpu_outputs *o)
{
    for (int i = 0; i < GPU_SLOTS; i++) free(o->at[i]);
    *o = (struct gpu_outputs){{0}};
}

static enum mr_status run(struct gpu_session *s, int poison, struct gpu_outputs *out,
                          struct mr_error *err)
{
    for (int i = GPU_FIRST_OUTPUT; i < GPU_OUTPUTS_END; i++)
        if (s->slot[i].bytes) TRY(s->memory->fill(s->slot[i].data, poison, s->slot[i].bytes, err));
    if (s->slot[GPU_SCRATCH].bytes)
        TRY(s->memory->fill(s->slot[GPU_SCRATCH].data, poison, s->slot[GPU_SCRATCH].bytes, err));
    TRY(gpu_session_launch(s, err));
    TRY(s->memory->wait(s->stream, err));
    for (int i = GPU_FIRST_OUTPUT; i < GPU_OUTPUTS_END; i++)
        if (s->slot[i].bytes)
            TRY(s->memory->get(out->at[i], s->slot[i].data, s->slot[i].bytes, err));
    return MR_OK;
}

static bool is_poison(const unsigned char *p, int poison, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != poison) return false;
    return true;
}

static size_t element(const struct gpu_session *s, int slot)
{
    return slot == GPU_LOGITS ? gpu_type_bytes(s->kernel->logits_type)
           : slot == GPU_WEIGHTS ? gpu_type_bytes(s->kernel->weights_type) : sizeof(int32_t);
}

/* How much of a slot is promised: of sorted positions only the first *sorted_total, if that makes
 * sense at all. */
static size_t promised(const struct gpu_session *s, int slot, const struct gpu_outputs *out)
{
    int32_t total;
    if (slot != GPU_SORTED && slot != GPU_TILE_EXPERT) return s->slot[slot].bytes;
    memcpy(&total, out->at[GPU_SORTED_TOTAL], sizeof total);
    if (total < 0 || total > s->buffers.sorted_most) total = 0;
    return sizeof(int32_t) * (size_t)(slot == GPU_SORTED ? total : total / s->kernel->tile);
}

static void note(struct gpu_faults *f, const char *what, const struct gpu_session *s, int slot,
                 size_t unit)
{
    bool by_row = slot == GPU_LOGITS || slot == GPU_IDS || slot == GPU_WEIGHTS;
    if (*f->first) return;
    snprintf(f->first, sizeof f->first, "%s: %s, %s %zu", what, s->slot[slot].name,
             by_row ? "row" : "element", unit);
}

/* Counts elements of a that were not written, going by both poisons. */
static void count_holes(const struct gpu_session *s, int slot, const struct gpu_outputs out[3],
                        struct gpu_faults *f)
{
    size_t size = element(s, slot), n = promised(s, slot, &out[0]) / size;
    size_t rows = (size_t)s->problem.rows;
    bool by_row = slot == GPU_LOGITS || slot == GPU_IDS || slot == GPU_WEIGHTS;
    for (size_t i = 0; i < n; i++) {
        if (!is_poison(out[0].at[slot] + i * size, POISON_A, size) ||
            !is_poison(out[1].at[slot] + i * size, POISON_B, size))
            continue;
        f->holes++;
        note(f, "not written", s, slot, by_row ? i / (n / rows) : i);
    }
}

/* Whether a unit (a row, or all of a slot that has no rows) differs in two runs. */
static bool unit_differs(const struct gpu_session *s, int slot, size_t unit, bool by_row,
                         const struct gpu_outputs *a, const struct gpu_outputs *b)
{
    size_t bytes = promised(s, slot, a), share = by_row ? bytes / (size_t)s->problem.rows : bytes;
    if (!by_row && bytes != promised(s, slot, b)) return true;
    return memcmp(a->at[slot] + unit * share, b->at[slot] + unit * share, share) != 0;
}

/* Rows (and a last "row" for what has none) that differ in two runs. */
static uint64_t differing(const struct gpu_session *s, const struct gpu_outputs *a,
                          const struct gpu_outputs *b, const char *what, struct gpu_faults *f)
{
    static const int by_row[] = {GPU_LOGITS, GPU_IDS, GPU_WEIGHTS};
    static const int whole[] = {GPU_COUNTS, GPU_SORTED_TOTAL, GPU_SORTED, GPU_TILE_EXPERT};
    uint64_t n = 0;
    for (size_t r = 0; r < (size_t)s->problem.rows; r++) {
        bool any = false;
        for (int i = 0; i < 3; i++) {
            if (!s->slot[by_row[i]].bytes || !unit_differs(s, by_row[i], r, true, a, b)) continue;
            if (!any) note(f, what, s, by_row[i], r);
            any = true;
        }
        n += any;
    }
    bool any = false;
    for (int i = 0; i < 4; i++) {
        if (!s->slot[whole[i]].bytes || !unit_differs(s, whole[i], 0, false, a, b)) continue;
        if (!any) note(f, what, s, whole[i], 0);
        any = true;
    }
    return n + any;
}

enum mr_status gpu_checked(struct gpu_session *s, struct gpu_outputs out[3],
                           struct gpu_faults *f, struct mr_error *err)
{
    TRY(run(s, POISON_A, &out[0], err));
    TRY(run(s, POISON_B, &out[1], err));
    TRY(run(s, POISON_A, &out[2], err));
    f->rows += (uint64_t)s->problem.rows;
    for (int i = GPU_FIRST_OUTPUT; i < GPU_OUTPUTS_END; i++)
        if (s->slot[i].bytes) count_holes(s, i, out, f);
    f->unstable_rows += differing(s, &out[0], &out[2], "differs from launch to launch", f);
    f->poison_rows += differing(s, &out[0], &out[1], "differs with what memory held before", f);
    if (!*f->books)
        gpu_books_check(s->kernel, &s->problem, &out[0], f->books, sizeof f->books);
    if (!(s->kernel->promises & MR_KERNEL_HAS_DELAY)) return MR_OK;
    s->problem.delay_ns = DELAY_NS;
    enum mr_status status = run(s, POISON_B, &out[2], err);
    s->problem.delay_ns = 0;
    TRY(status);
    f->delay_rows += differing(s, &out[0], &out[2], "differs when earlier kernels are slow", f);
    return MR_OK;
}
