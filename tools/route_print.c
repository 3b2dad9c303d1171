/* The table of `moeref route`, for a person: a row a layer, totals, and what they mean. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "route_run.h"

typedef unsigned long long ull;

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void print_head(const struct mr_case *c, bool from_logits)
{
    const struct mr_router *r = mr_case_router(c);
    printf("%s: %d experts, top %d, %s%s%s", mr_case_name(c), r->experts, r->top_k,
           mr_score_name(r->score), r->bias ? " + bias" : "",
           r->norm_topk_prob ? ", normalised" : "");
    if (r->routed_scaling_factor != 1) printf(", scaled by %g", r->routed_scaling_factor);
    puts(from_logits || mr_case_from_logits(c) ? "; from given logits" : "");
    if (*mr_case_about(c)) puts(mr_case_about(c));
}

/* A quantile; '-' where there are no numbers to have one. */
static void print_figure(int width, double v)
{
    if (isnan(v)) printf("%*s", width, "-");
    else printf("%*.2e", width, v);
}

static int arith_width(const char *name)
{
    int n = (int)strlen(name);
    return n < 12 ? 12 : n;
}

/* Columns of certificates that this report has; bound, exact, mpfr and tie always. */
static bool has_column(const struct mr_report *r, int c)
{
    return c <= MR_CERT_TIE || r->total.result.certified[c];
}

static void print_row(const struct mr_report *r, const struct mr_report_row *row)
{
    if (row->phase) printf("%-8s %5d", row->phase, row->layer);
    else printf("%-14s", "total");
    printf(" %8llu", (ull)row->result.tokens);
    for (int c = 0; c < MR_CERT_COUNT; c++)
        if (has_column(r, c)) printf(" %*llu", c >= MR_CERT_UNDECIDED ? 9 : 7, (ull)row->result.certified[c]);
    print_figure(11, row->gap[MR_GAP_MIN]);
    print_figure(10, row->gap[MR_GAP_P50]);
    for (size_t i = 0; i < r->arith_count; i++) {
        char cell[64];
        snprintf(cell, sizeof cell, "%llu %5.2f%%", (ull)row->arith[i].flips,
                 percent(row->arith[i].flips, row->arith[i].tokens));
        printf("  %*s", arith_width(r->arith_name[i]), cell);
    }
    putchar('\n');
}

static void print_table(const struct mr_report *r)
{
    size_t at = 0;
    int before = 14 + 9;
    for (int c = 0; c < MR_CERT_COUNT; c++)
        if (has_column(r, c)) before += c >= MR_CERT_UNDECIDED ? 10 : 8;
    printf("%*s  %-19s%s\n", before, "certified by", "   gap at the cut",
           r->arith_count ? "  tokens that change experts under" : "");
    printf("%-8s %5s %8s", "phase", "layer", "tokens");
    for (int c = 0; c < MR_CERT_COUNT; c++)
        if (has_column(r, c))
            printf(" %*s", c >= MR_CERT_UNDECIDED ? 9 : 7,
                   mr_certificate_name((enum mr_certificate)c));
    printf("  %9s %9s", "min", "median");
    for (size_t i = 0; i < r->arith_count; i++)
        printf("  %*s", arith_width(r->arith_name[i]), r->arith_name[i]);
    putchar('\n');
    for (; at < r->row_count; at++) print_row(r, &r->row[at]);
    print_row(r, &r->total);
}

static void print_arithmetics(const struct mr_report *r)
{
    if (!r->arith_count || !r->total.arith[0].tokens) return; /* nothing was judged */
    printf("\n%-24s %18s %13s  %22s\n", "", "tokens that change", "weight moved",
           "key error median    p99");
    for (size_t i = 0; i < r->arith_count; i++) {
        const struct mr_report_arith *a = &r->total.arith[i];
        printf("%-24s %9llu %7.3f%% %12.4f%%  %10.2e  %10.2e\n", r->arith_name[i], (ull)a->flips,
               percent(a->flips, a->tokens), 100 * a->weight_moved, a->key_error_p50,
               a->key_error_p99);
    }
}

static void print_ids(const char *before, const int *ids, int k)
{
    fputs(before, stdout);
    for (int i = 0; i < k; i++) printf(" %d", ids[i]);
}

static void print_shown(const struct route_outcome *out)
{
    const struct mr_report *r = &out->report;
    int k = r->total.top_k;
    for (size_t i = 0; i < out->shown_count; i++) {
        const struct shown_token *t = &out->shown[i];
        printf("%slayer %d, %s, token %zu:", i ? "" : "\n", t->layer, t->phase, t->token);
        print_ids(" experts", t->ids, k);
        fputs(", weights", stdout);
        for (int j = 0; j < k; j++) printf(" %.3f", t->weights[j]);
        printf(", gap %.3g (%s)", t->gap, mr_certificate_name(t->certificate));
        for (size_t a = 0; a < r->arith_count && t->certificate < MR_CERT_UNDECIDED; a++) {
            printf("; %s", r->arith_name[a]);
            print_ids("", t->chosen + a * (size_t)k, k);
        }
        putchar('\n');
    }
}

/* The arithmetic that changes most tokens, or -1 if none changes any. */
static int worst_arith(const struct mr_report *r)
{
    int worst = -1;
    for (size_t i = 0; i < r->arith_count; i++)
        if (r->total.arith[i].flips &&
            (worst < 0 || r->total.arith[i].flips > r->total.arith[worst].flips))
            worst = (int)i;
    return worst;
}

static void print_meaning(const struct mr_report *r)
{
    const struct mr_route_result *t = &r->total.result;
    uint64_t open = t->certified[MR_CERT_UNDECIDED], bad = t->certified[MR_CERT_NONFINITE];
    uint64_t ties = t->certified[MR_CERT_TIE], sure = t->tokens - open - bad;
    if (!t->tokens) {
        puts("\nNo tokens: nothing to say.");
        return;
    }
    printf("\n%s%llu token%s proven", sure == t->tokens && sure > 1 ? "All " : "", (ull)sure,
           sure == 1 ? " has its experts" : "s have their experts");
    if (ties) printf(", %llu of them up to an exact tie", (ull)ties);
    if (open) printf("; %llu undecided at the precision cap", (ull)open);
    if (bad) printf("; %llu with Inf or NaN in the input", (ull)bad);
    int w = worst_arith(r);
    if (w >= 0)
        printf(". Of the arithmetics asked for, %s changes most: the experts of %.2f %% of tokens, "
               "with %.2f %% of the routing weight",
               r->arith_name[w], percent(r->total.arith[w].flips, r->total.arith[w].tokens),
               100 * r->total.arith[w].weight_moved);
    else if (r->arith_count)
        printf(". None of the arithmetics asked for changes the experts of any token");
    puts(".");
}

static void print_ties(const struct mr_report *r)
{
    enum { SHOWN = 5 };
    for (size_t i = 0; i < r->tie_count && i < SHOWN; i++) {
        const struct mr_report_tie *t = &r->tie[i];
        printf("tie: layer %d, %s, token %zu: %d of experts", t->layer, t->phase, t->token,
               t->slots);
        for (int e = 0; e < t->count && e < 16; e++) printf(" %d", t->experts[e]);
        puts(t->count > 16 ? " ..." : "");
    }
    if (r->tie_total > SHOWN)
        printf("tie: %zu more (--json lists them)\n", r->tie_total - SHOWN);
}

void print_outcome(const struct mr_case *c, const struct route_outcome *out, bool from_logits,
                   bool verbose)
{
    const struct mr_report *r = &out->report;
    const struct mr_route_result *t = &r->total.result;
    print_head(c, from_logits);
    print_table(r);
    print_arithmetics(r);
    print_shown(out);
    print_ties(r);
    print_meaning(r);
    if (t->blas_wrong)
        printf("WARNING: BLAS computes wrong here (%llu rows beyond its proven error): its layers "
               "were done again without it. Another OPENBLAS_CORETYPE may be right.\n",
               (ull)t->blas_wrong);
    if (verbose)
        printf("exact dot products: %llu; BLAS check alarms: %llu\n", (ull)t->exact_dots,
               (ull)t->blas_alarms);
}
