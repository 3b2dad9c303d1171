/* Which groups stay, as certify.c decides which experts do.
 *
 * A group's score is its largest key, or the sum of its two largest: it grows with every key, so
 * with lo_e <= key_e <= hi_e the same of all lo and of all hi are bounds lo_g, hi_g. With T =
 * topk_group, L the (T+1)-th largest lo_g and H the T-th largest hi_g: a group with hi_g < L has
 * T+1 groups above it, so is neither T-th nor (T+1)-th, and out; one with lo_g > H has fewer than T
 * groups that may reach it, so is neither, and in. The others, the open ones, hold the T-th and the
 * (T+1)-th. Of them those keys are made exact that may be among their group's two largest (hi_e >=
 * the second largest lo_e), and sums of those are compared exactly. They give the gap even where
 * the bounds alone prove the choice, which they do if just T groups have hi_g >= the T-th largest
 * lo_g. An expert that is only taken for one of the two largest because the comparison with a third
 * stayed undecided makes the choice of groups undecided, whatever the sums say. */
#include "groups.h"

#include <stdlib.h>

#include "keys_simd.h"
#include "score.h"

struct mr_groups {
    double *lo, *hi, *top; /* [n_group], [n_group + 1] */
    uint8_t *stays, *unsure;
    int *open, *tied;
    const struct mr_key *(
        *pair)[2]; /* the keys that make a group's score; [1] NULL for the largest */
};

struct mr_groups *mr_groups_new(int experts)
{
    size_t n = (size_t)experts;
    struct mr_groups *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->lo = malloc(n * sizeof *g->lo);
    g->hi = malloc(n * sizeof *g->hi);
    g->top = malloc((n + 1) * sizeof *g->top);
    g->stays = malloc(n);
    g->unsure = malloc(n);
    g->open = malloc(n * sizeof *g->open);
    g->tied = malloc(n * sizeof *g->tied);
    g->pair = malloc(n * sizeof *g->pair);
    if (g->lo && g->hi && g->top && g->stays && g->unsure && g->open && g->tied && g->pair)
        return g;
    mr_groups_free(g);
    return NULL;
}

void mr_groups_free(struct mr_groups *g)
{
    if (!g) return;
    free(g->lo);
    free(g->hi);
    free(g->top);
    free(g->stays);
    free(g->unsure);
    free(g->open);
    free(g->tied);
    free(g->pair);
    free(g);
}

/* The k-th largest of n values. */
static double kth(struct mr_groups *g, const double *value, int n, int k)
{
    MR_ISA_PICK(mr_k_largest)(value, n, k, g->top);
    return g->top[k - 1];
}

static void bound_groups(struct mr_certifier *c, const struct mr_router *r)
{
    struct mr_groups *g = c->groups;
    int size = c->experts / r->n_group;
    for (int i = 0; i < r->n_group; i++) {
        double *bound[] = {&g->lo[i], &g->hi[i]}, *key[] = {c->lo + i * size, c->hi + i * size};
        for (int up = 0; up < 2; up++) {
            double top[2], sum;
            MR_ISA_PICK(mr_k_largest)(key[up], size, size < 2 ? 1 : 2, top);
            *bound[up] = top[0];
            if (!mr_keys_are_summed(r)) continue;
            sum = top[0] + top[1]; /* rounds by 2^-53 of itself */
            *bound[up] = up ? sum + 0x1p-52 * fabs(sum) : sum - 0x1p-52 * fabs(sum);
        }
    }
}

/* Lists in c->order the experts of open groups that may make their group's score. */
static int list_keys(struct mr_certifier *c, const struct mr_router *r, int opens)
{
    int count = 0, size = c->experts / r->n_group, most = mr_keys_are_summed(r) ? 2 : 1;
    for (int i = 0; i < opens; i++) {
        int first = c->groups->open[i] * size;
        double bar = kth(c->groups, c->lo + first, size, most);
        for (int e = first; e < first + size; e++)
            if (c->hi[e] >= bar) c->order[count++] = e;
    }
    return count;
}

static enum mr_status above(const struct mr_certifier *c, const struct mr_token *t,
                            const struct mr_key *a, const struct mr_key *b, bool *unsure, bool *yes)
{
    struct mr_order o;
    enum mr_status status =
        mr_compare_keys(t->router->score, a, b, c->common_rel, &t->source, &o);
    *yes = o.sign > 0;
    if (o.level == MR_LEVEL_UNDECIDED) *unsure = true;
    return status;
}

/* The one or two largest of a group's keys, which stand together; *at moves behind them. */
static enum mr_status find_pair(struct mr_certifier *c, const struct mr_token *t, int group,
                                int count, int *at)
{
    const struct mr_key *first = NULL, *second = NULL;
    int size = c->experts / t->router->n_group;
    bool two = mr_keys_are_summed(t->router), unsure = false, swapped = false;
    for (; *at < count && c->keys[*at].expert / size == group; ++*at) {
        const struct mr_key *k = &c->keys[*at];
        bool yes = true;
        enum mr_status status = MR_OK;
        if (first) status = above(c, t, k, first, &unsure, &yes);
        if (status) return status;
        if (yes) {
            second = first;
            first = k;
            continue;
        }
        if (!two) continue;
        swapped = !second;
        if (second) status = above(c, t, k, second, &unsure, &swapped);
        if (status) return status;
        if (swapped) second = k;
    }
    c->groups->pair[group][0] = first;
    c->groups->pair[group][1] = two ? second : NULL;
    c->groups->unsure[group] = unsure;
    return MR_OK;
}

static enum mr_status compare(const struct mr_certifier *c, const struct mr_token *t, int a, int b,
                              struct mr_order *out)
{
    const struct mr_key *const *x = c->groups->pair[a], *const *y = c->groups->pair[b];
    enum mr_status status =
        x[1] ? mr_compare_sums(t->router->score, x, y, c->common_rel, &t->source, out)
             : mr_compare_keys(t->router->score, x[0], y[0], c->common_rel, &t->source, out);
    if (!status && (c->groups->unsure[a] || c->groups->unsure[b])) out->level = MR_LEVEL_UNDECIDED;
    return status;
}

/* Descending score, equal ones (and undecided ones) by lowest id. */
static enum mr_status sort_open(struct mr_certifier *c, const struct mr_token *t, int opens)
{
    int *open = c->groups->open;
    for (int i = 1; i < opens; i++) {
        int moving = open[i], j = i;
        for (; j > 0; j--) {
            struct mr_order o;
            enum mr_status status = compare(c, t, open[j - 1], moving, &o);
            if (status) return status;
            if (o.sign > 0 || (o.sign == 0 && open[j - 1] < moving)) break;
            open[j] = open[j - 1];
        }
        open[j] = moving;
    }
    return MR_OK;
}

/* open[0..in) stay: the worst level among the comparisons that prove it, and the gap. */
static enum mr_status prove(struct mr_certifier *c, const struct mr_token *t, int opens, int in,
                            bool bound, struct mr_routed *out, enum mr_certificate *level)
{
    struct mr_groups *g = c->groups;
    struct mr_order cut, o;
    int last = g->open[in - 1], next = g->open[in];
    enum mr_status status = compare(c, t, last, next, &cut);
    if (status) return status;
    out->group_gap = cut.gap;
    out->group_gap_radius = cut.radius;
    *level = MR_CERT_BOUND;
    if (bound) return MR_OK;
    enum mr_level worst = cut.level;
    for (int i = 0; i < opens && worst != MR_LEVEL_UNDECIDED; i++) {
        if (i == in - 1 || i == in) continue;
        status = i < in ? compare(c, t, g->open[i], next, &o) : compare(c, t, last, g->open[i], &o);
        if (status) return status;
        if (o.level > worst) worst = o.level;
    }
    *level = (enum mr_certificate)worst;
    for (int e = 0; e < t->router->n_group && worst == MR_LEVEL_TIE; e++) {
        int at = 0;
        while (at < opens && g->open[at] != e) at++;
        if (at == opens) continue;
        o.level = MR_LEVEL_TIE;
        if (e != last) status = compare(c, t, e, last, &o);
        if (status) return status;
        if (o.level != MR_LEVEL_TIE) continue;
        g->tied[out->group_tie_count++] = e;
        out->group_tie_slots += at < in;
    }
    out->group_ties = out->group_tie_count ? g->tied : NULL;
    return MR_OK;
}

static enum mr_status choose(struct mr_certifier *c, const struct mr_token *t, bool every,
                             struct mr_routed *out, enum mr_certificate *level)
{
    const struct mr_router *r = t->router;
    struct mr_groups *g = c->groups;
    int n = r->n_group, keep = r->topk_group, opens = 0, sure = 0, reach = 0;
    mr_router_ops(r)->filter(c, t);
    bound_groups(c, r);
    double low = kth(g, g->lo, n, keep + 1), high = kth(g, g->hi, n, keep);
    double enough = kth(g, g->lo, n, keep);
    for (int i = 0; i < n; i++) {
        reach += g->hi[i] >= enough;
        g->stays[i] = g->lo[i] > high;
        sure += g->stays[i];
        if (!g->stays[i] && g->hi[i] >= low) g->open[opens++] = i;
    }
    int count = list_keys(c, r, opens), at = 0;
    if (every)
        for (count = 0; count < c->experts; count++) c->order[count] = count;
    enum mr_status status = mr_certify_keys(c, t, count, out);
    for (int i = 0; i < opens && !status; i++) {
        while (c->keys[at].expert / (c->experts / n) != g->open[i]) at++;
        status = find_pair(c, t, g->open[i], count, &at);
    }
    out->group_tie_count = out->group_tie_slots = 0;
    if (!status) status = sort_open(c, t, opens);
    if (!status) status = prove(c, t, opens, keep - sure, reach == keep, out, level);
    for (int i = 0; i < keep - sure; i++) g->stays[g->open[i]] = 1;
    out->stays = g->stays;
    return status;
}

enum mr_status mr_choose_groups(struct mr_certifier *c, const struct mr_token *t,
                                struct mr_routed *out, enum mr_certificate *level)
{
    return choose(c, t, false, out, level);
}

enum mr_status mr_choose_groups_exactly(struct mr_certifier *c, const struct mr_token *t,
                                        struct mr_routed *out, enum mr_certificate *level)
{
    return choose(c, t, true, out, level);
}

void mr_emulated_groups(const struct mr_router *r, const float *key, float *score, uint8_t *stays)
{
    int size = r->experts / r->n_group;
    for (int i = 0; i < r->n_group; i++) {
        int top[2];
        const float *own = key + i * size;
        bool two = mr_keys_are_summed(r);
        MR_ISA_PICK(mr_select_top)(own, size, two ? 2 : 1, -HUGE_VALF, top);
        score[i] = two ? own[top[0]] + own[top[1]] : own[top[0]];
        stays[i] = 0;
    }
    for (int have = 0; have < r->topk_group; have++) {
        int best = -1;
        for (int i = 0; i < r->n_group; i++)
            if (!stays[i] && (best < 0 || score[i] > score[best])) best = i;
        stays[best] = 1;
    }
}
