/* The search itself: first every layout on a few outputs that tell most, then what is left on all.
 *
 * Nothing depends on the number of threads: a combination is dropped when an output disagrees, and
 * in what order the outputs are looked at does not matter; the nearest lines are chosen by a total
 * order. */
#include <fenv.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "identify_private.h"

/* Groups at a time while there are many candidates; how few are few. */
enum { TELLING = IDENTIFY_TELLING, FEW = 64, NEAR = IDENTIFY_NEAR };

struct state {
    struct identify *s;
    struct identify_work *work;           /* [threads] */
    struct identify_misses *misses;                /* [threads] */
    fenv_t *environment;                  /* [threads] */
    struct identify_group group[TELLING]; /* at hand */
    double need[TELLING];
    size_t groups, next, all, telling; /* groups: the next to be looked at, of all */
    struct mr_lane_terms terms[IDENTIFY_OPERANDS][TELLING];
    struct identify_candidate *candidate;
    size_t candidates;
    int stage;
    int told; /* of the progress */
};

static void tell(struct state *x, int done)
{
    const struct mr_identify_options *o = x->s->options;
    if (!o || !o->progress || omp_get_thread_num() != 0 || done <= x->told) return;
    x->told = done;
    o->progress(o->context, done);
}

static const struct mr_frame *frame_of(const struct identify_leaf *leaf, uint32_t layout)
{
    const struct mr_family *y = leaf->family;
    return &y->frame[y->member[y->layout[layout].first]];
}

/* The combinations of a layout, one for each that differs here. */
static mr_combinations distinct(const struct identify_leaf *leaf, uint32_t layout,
                                const struct mr_laid *laid)
{
    uint8_t reduces[MR_FRAME_LEVELS];
    memcpy(reduces, leaf->family->layout[layout].reduces, sizeof reduces);
    for (int i = 0; i < laid->levels; i++) {
        if (laid->most[i] <= 2) reduces[i] = MR_BY_ORDER;
        if (laid->most[i] == 3 && reduces[i] & MR_BY_PAIRS)
            reduces[i] = (uint8_t)((reduces[i] & ~MR_BY_PAIRS) | MR_BY_ORDER);
    }
    return mr_combinations_of(reduces, laid->levels);
}

/* Drops what disagrees in w->hit, and keeps the near misses. Gives what is left of all types. */
static mr_combinations drop(struct state *x, uint32_t leaf, uint32_t layout, int stage,
                            uint16_t live, mr_combinations alive[MR_IDENTIFY_TYPES],
                            const struct identify_work *w, struct identify_misses *misses)
{
    mr_combinations left = 0;
    for (int t = 0; t < x->s->types; t++) {
        for (mr_combinations rest = alive[t]; rest; rest &= rest - 1) {
            unsigned c = (unsigned)__builtin_ctzll(rest);
            uint16_t wrong = (uint16_t)(~w->hit[t][c] & live);
            if (!wrong) continue;
            alive[t] &= ~((mr_combinations)1 << c);
            struct identify_miss m = {stage, (unsigned)__builtin_popcount(wrong), c, leaf, layout,
                                      t};
            identify_keep_miss(misses, &m);
        }
        left |= alive[t];
    }
    return left;
}

/* Whether outputs of that need can tell anything of a line: of logits finer than the type that is
 * rated, all do. */
static bool told_by(const struct state *x, const mr_combinations alive[MR_IDENTIFY_TYPES],
                    double reach, double need)
{
    for (int t = 0; t < x->s->types; t++)
        if (t != x->s->rated && alive[t]) return true;
    return reach >= need;
}

/* A layout on the groups at hand, until nothing of it is left. */
static void try_layout(struct state *x, uint32_t leaf, uint32_t layout, double reach,
                       mr_combinations alive[MR_IDENTIFY_TYPES], mr_combinations left,
                       struct identify_work *w, struct identify_misses *misses)
{
    const struct identify_leaf *l = &x->s->leaf[leaf];
    for (size_t g = 0; g < x->groups && left; g++) {
        if (!told_by(x, alive, reach, x->need[g])) continue;
        struct identify_group group = x->group[g];
        const struct mr_lane_terms *t = &x->terms[l->operands][g];
        if (l->how == BY_REFERENCE && (group.live & 3) == 3) { /* slow: two outputs first */
            group.live = 3;
            identify_sum(x->s, l, &w->laid, t, &group, left, w);
            left = drop(x, leaf, layout, x->stage, group.live, alive, w, misses);
            if (!left) break;
            group.live = x->group[g].live;
        }
        identify_sum(x->s, l, &w->laid, t, &group, left, w);
        left = drop(x, leaf, layout, x->stage + 1 + (int)g, group.live, alive, w, misses);
    }
}

static void begin_thread(struct state *x)
{
    fegetenv(&x->environment[omp_get_thread_num()]);
    fesetenv(FE_DFL_ENV);
}

static void end_thread(struct state *x)
{
    fesetenv(&x->environment[omp_get_thread_num()]);
}

/* Takes the next few groups before `end`. */
static void take_groups(struct state *x, size_t end)
{
    struct identify *s = x->s;
    for (x->groups = 0; x->groups < TELLING && x->next < end; x->groups++, x->next++)
        identify_nth(s, x->next, &x->group[x->groups], &x->need[x->groups]);
    size_t n = s->operand_count * x->groups;
#pragma omp parallel num_threads(s->threads)
    {
        begin_thread(x);
        struct identify_work *w = &x->work[omp_get_thread_num()];
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < n; i++) {
            size_t o = i / x->groups, g = i % x->groups;
            identify_terms(s, &s->operands[o], &x->group[g], w->x, &x->terms[o][g]);
        }
        end_thread(x);
    }
}

/* Every layout of every leaf on the telling groups. */
static enum mr_status try_all(struct state *x)
{
    struct identify *s = x->s;
    take_groups(x, x->all);
    size_t all = 0, before = 0, found = 0;
    for (size_t v = 0; v < s->leaf_count; v++) all += s->leaf[v].family->layouts;
    for (uint32_t v = 0; v < s->leaf_count; v++) {
        struct identify_leaf *leaf = &s->leaf[v];
        size_t n = leaf->family->layouts;
#pragma omp parallel num_threads(s->threads)
        {
            begin_thread(x);
            struct identify_work *w = &x->work[omp_get_thread_num()];
            struct identify_misses *misses = &x->misses[omp_get_thread_num()];
#pragma omp for schedule(dynamic, 16)
            for (size_t i = 0; i < n; i++) {
                mr_combinations alive[MR_IDENTIFY_TYPES] = {0}, left;
                uint32_t layout = (uint32_t)i;
                mr_lay(frame_of(leaf, layout), &w->laid);
                left = distinct(leaf, layout, &w->laid);
                for (int t = 0; t < s->types; t++) alive[t] = left;
                double reach =
                    identify_reach(s, leaf, &w->laid, leaf->family->layout[layout].reduces);
                try_layout(x, v, layout, reach, alive, left, w, misses);
                for (int t = 0; t < s->types; t++) leaf->alive[t][i] = alive[t];
                leaf->reach[i] = reach;
                if (i % 256 == 0) tell(x, (int)(500 * (before + i) / all));
            }
            end_thread(x);
        }
        before += n;
        for (size_t i = 0; i < n; i++) {
            mr_combinations any = 0;
            for (int t = 0; t < s->types; t++) any |= leaf->alive[t][i];
            found += any != 0;
        }
    }
    x->candidate = calloc(found + NEAR + 1, sizeof *x->candidate);
    if (!x->candidate) return mr_fail(s->err, MR_ERR_MEMORY, "identify: out of memory");
    for (uint32_t v = 0; v < s->leaf_count; v++)
        for (uint32_t i = 0; i < s->leaf[v].family->layouts; i++) {
            struct identify_candidate c = {.leaf = v, .layout = i,
                                           .reach = s->leaf[v].reach[i]};
            mr_combinations any = 0;
            for (int t = 0; t < s->types; t++) any |= c.alive[t] = s->leaf[v].alive[t][i];
            if (any) x->candidate[x->candidates++] = c;
        }
    return MR_OK;
}

/* Candidates that the next group can tell anything of. */
static size_t active(const struct state *x, double need)
{
    size_t n = 0;
    for (size_t i = 0; i < x->candidates; i++)
        n += told_by(x, x->candidate[i].alive, x->candidate[i].reach, need);
    return n;
}

static mr_combinations any_type(const struct state *x, const struct identify_candidate *c)
{
    mr_combinations any = 0;
    for (int t = 0; t < x->s->types; t++) any |= c->alive[t];
    return any;
}

static void drop_empty(struct state *x)
{
    size_t left = 0;
    for (size_t i = 0; i < x->candidates; i++)
        if (any_type(x, &x->candidate[i])) x->candidate[left++] = x->candidate[i];
    x->candidates = left;
}

/* Many candidates: a few groups at a time, threads over candidates. */
static void try_many(struct state *x, size_t end)
{
    struct identify *s = x->s;
    take_groups(x, end);
    x->stage += TELLING + 1;
#pragma omp parallel num_threads(s->threads)
    {
        begin_thread(x);
        struct identify_work *w = &x->work[omp_get_thread_num()];
        struct identify_misses *misses = &x->misses[omp_get_thread_num()];
#pragma omp for schedule(dynamic, 4)
        for (size_t i = 0; i < x->candidates; i++) {
            struct identify_candidate *c = &x->candidate[i];
            if (!told_by(x, c->alive, c->reach, x->need[0])) continue;
            mr_lay(frame_of(&s->leaf[c->leaf], c->layout), &w->laid);
            try_layout(x, c->leaf, c->layout, c->reach, c->alive, any_type(x, c), w, misses);
        }
        end_thread(x);
    }
    drop_empty(x);
}

/* Few candidates: threads over groups first .. end - 1, and every mismatch is counted.
 * wrong [candidates][types][combinations]. */
static enum mr_status count_few(struct state *x, const struct identify_candidate *candidate,
                                size_t n, size_t first, size_t end, uint64_t *wrong)
{
    struct identify *s = x->s;
    struct mr_laid laid[FEW] = {{0}};
    struct mr_lane_terms (*terms)[IDENTIFY_OPERANDS] =
        calloc((size_t)s->threads, sizeof *terms);
    enum mr_status status =
        terms ? MR_OK : mr_fail(s->err, MR_ERR_MEMORY, "identify: out of memory");
    bool used[IDENTIFY_OPERANDS] = {false};
    for (size_t i = 0; i < n && !status; i++) {
        status = mr_laid_new(s->terms, &laid[i], s->err);
        if (!status) mr_lay(frame_of(&s->leaf[candidate[i].leaf], candidate[i].layout), &laid[i]);
        used[s->leaf[candidate[i].leaf].operands] = true;
    }
    for (int t = 0; t < s->threads; t++)
        for (size_t o = 0; o < s->operand_count && !status; o++)
            if (used[o]) status = identify_terms_new(s, &terms[t][o]);
    if (status) end = first;
#pragma omp parallel num_threads(s->threads)
    {
        begin_thread(x);
        int me = omp_get_thread_num();
        struct identify_work *w = &x->work[me];
#pragma omp for schedule(dynamic)
        for (size_t g = first; g < end; g++) {
            struct identify_group group;
            double need;
            identify_nth(s, g, &group, &need);
            size_t told = 0;
            for (size_t i = 0; i < n; i++)
                told += told_by(x, candidate[i].alive, candidate[i].reach, need);
            if (!group.live || !told) continue;
            for (size_t o = 0; o < s->operand_count; o++)
                if (used[o]) identify_terms(s, &s->operands[o], &group, w->x, &terms[me][o]);
            for (size_t i = 0; i < n; i++) {
                const struct identify_candidate *c = &candidate[i];
                const struct identify_leaf *leaf = &s->leaf[c->leaf];
                if (!told_by(x, c->alive, c->reach, need)) continue;
                identify_sum(s, leaf, &laid[i], &terms[me][leaf->operands], &group, any_type(x, c),
                             w);
                for (int t = 0; t < s->types; t++)
                    for (mr_combinations r = c->alive[t]; r; r &= r - 1) {
                        unsigned b = (unsigned)__builtin_ctzll(r);
                        int bad = __builtin_popcount((uint16_t)(~w->hit[t][b] & group.live));
                        uint64_t *to = &wrong[(i * MR_IDENTIFY_TYPES + (size_t)t) *
                                                  MR_FRAME_COMBINATIONS + b];
                        if (!bad) continue;
#pragma omp atomic
                        *to += (uint64_t)bad;
                    }
            }
            tell(x, 500 + (int)(500 * g / x->all));
        }
        end_thread(x);
    }
    for (size_t i = 0; i < n; i++) mr_laid_free(&laid[i]);
    for (int t = 0; terms && t < s->threads; t++)
        for (size_t o = 0; o < s->operand_count; o++) identify_terms_free(&terms[t][o]);
    free(terms);
    return status;
}

/* Drops combinations with mismatches; the best of all is `nearest` so far. */
static void settle(struct state *x, struct identify_candidate *candidate, size_t n,
                   const uint64_t *wrong, struct identify_outcome *out)
{
    for (size_t i = 0; i < n; i++)
        for (int t = 0; t < x->s->types; t++)
            for (mr_combinations r = candidate[i].alive[t]; r; r &= r - 1) {
                unsigned b = (unsigned)__builtin_ctzll(r);
                uint64_t bad =
                    wrong[(i * MR_IDENTIFY_TYPES + (size_t)t) * MR_FRAME_COMBINATIONS + b];
                if (!bad) continue;
                candidate[i].alive[t] &= ~((mr_combinations)1 << b);
                if (bad >= out->nearest.mismatches) continue;
                out->nearest.leaf = candidate[i].leaf;
                out->nearest.layout = candidate[i].layout;
                out->nearest.combination = b;
                out->nearest.type = t;
                out->nearest.mismatches = bad;
            }
}

/* Nothing fits: counts the near misses on all outputs. */
static enum mr_status measure_misses(struct state *x, struct identify_outcome *out)
{
    struct identify_misses all = {.count = 0};
    for (int t = 0; t < x->s->threads; t++)
        for (size_t i = 0; i < x->misses[t].count; i++)
            identify_keep_miss(&all, &x->misses[t].item[i]);
    struct identify_candidate candidate[NEAR] = {{0}};
    uint64_t *wrong = calloc(NEAR * MR_IDENTIFY_TYPES * MR_FRAME_COMBINATIONS, sizeof *wrong);
    if (!wrong) return mr_fail(x->s->err, MR_ERR_MEMORY, "identify: out of memory");
    for (size_t i = 0; i < all.count; i++) {
        const struct identify_miss *m = &all.item[i];
        candidate[i] = (struct identify_candidate){.leaf = m->leaf, .layout = m->layout};
        candidate[i].alive[m->type] = (mr_combinations)1 << m->combination;
        candidate[i].reach = (double)INFINITY;
    }
    /* All outputs once: where fp32 ones were only taken ahead, not those. */
    size_t first = x->s->from_row ? 0 : x->telling;
    enum mr_status status = count_few(x, candidate, all.count, first, x->all, wrong);
    if (!status) settle(x, candidate, all.count, wrong, out);
    free(wrong);
    return status;
}

/* Whether no combination of any layout was dropped. */
static bool nothing_dropped(const struct state *x)
{
    size_t layouts = 0;
    for (size_t v = 0; v < x->s->leaf_count; v++) layouts += x->s->leaf[v].family->layouts;
    for (int t = 0; t < x->s->threads; t++)
        if (x->misses[t].count) return false;
    return x->candidates == layouts;
}

/* A few candidates on groups next .. end - 1. */
static enum mr_status try_few(struct state *x, size_t end, double need,
                              struct identify_outcome *out)
{
    struct identify_candidate few[FEW];
    size_t where[FEW], n = 0;
    uint64_t *wrong = calloc(FEW * MR_IDENTIFY_TYPES * MR_FRAME_COMBINATIONS, sizeof *wrong);
    if (!wrong) return mr_fail(x->s->err, MR_ERR_MEMORY, "identify: out of memory");
    for (size_t i = 0; i < x->candidates && n < FEW; i++) {
        if (!told_by(x, x->candidate[i].alive, x->candidate[i].reach, need)) continue;
        where[n] = i;
        few[n++] = x->candidate[i];
    }
    enum mr_status status = count_few(x, few, n, x->next, end, wrong);
    if (!status) settle(x, few, n, wrong, out);
    for (size_t i = 0; i < n; i++) x->candidate[where[i]] = few[i];
    free(wrong);
    drop_empty(x);
    x->next = end;
    return status;
}

static enum mr_status run(struct state *x, struct identify_outcome *out)
{
    enum mr_status status = identify_choose(x->s);
    if (status) return status;
    x->all = identify_groups(x->s, &x->telling);
    status = try_all(x);
    while (!status && x->next < x->all && x->candidates) {
        struct identify_group group;
        double need;
        size_t end = x->next < x->telling ? x->telling : x->all;
        identify_nth(x->s, x->next, &group, &need);
        size_t n = active(x, need);
        if (n > FEW) try_many(x, end);
        else if (n) status = try_few(x, end, need, out);
        else x->next = end;
        tell(x, 500 + (int)(500 * x->next / x->all));
    }
    if (status) return status;
    out->everything = nothing_dropped(x) && out->nearest.mismatches == UINT64_MAX;
    out->fit = x->candidate;
    out->fits = x->candidates;
    x->candidate = NULL;
    return out->fits ? MR_OK : measure_misses(x, out);
}

enum mr_status identify_search(struct identify *s, struct identify_outcome *out)
{
    *out = (struct identify_outcome){.nearest = {.mismatches = UINT64_MAX}};
    struct state x = {.s = s, .stage = -1};
    size_t threads = (size_t)s->threads;
    x.work = calloc(threads, sizeof *x.work);
    x.misses = calloc(threads, sizeof *x.misses);
    x.environment = calloc(threads, sizeof *x.environment);
    enum mr_status status = MR_OK;
    if (!x.work || !x.misses || !x.environment)
        status = mr_fail(s->err, MR_ERR_MEMORY, "identify: out of memory");
    for (size_t t = 0; t < threads && !status; t++) status = identify_work_new(s, &x.work[t]);
    for (size_t o = 0; o < s->operand_count; o++)
        for (int g = 0; g < TELLING && !status; g++)
            status = identify_terms_new(s, &x.terms[o][g]);
    if (!status) status = run(&x, out);
    for (size_t t = 0; x.work && t < threads; t++) identify_work_free(&x.work[t]);
    for (size_t o = 0; o < s->operand_count; o++)
        for (int g = 0; g < TELLING; g++) identify_terms_free(&x.terms[o][g]);
    free(x.work);
    free(x.misses);
    free(x.environment);
    free(x.candidate);
    return status;
}
