/* The table of `moeref verify`, for a person: a row a layer and source, what is not exact, and what
 * it means. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "verify_run.h"

typedef unsigned long long ull;

/* Findings shown unless all are asked for: faulty rows, and rows that are not exact. */
enum { SHOWN_FAULTY = 20, SHOWN_OTHER = 100, SHOWN_EXPERTS = 8 };

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void print_head(const struct mr_case *c, const struct mr_verify_report *r)
{
    printf("%s: %d experts, top %d, %s%s\n", r->case_name, r->experts, r->top_k,
           mr_score_name(mr_case_router(c)->score), mr_case_router(c)->bias ? " + bias" : "");
    if (*mr_case_about(c)) puts(mr_case_about(c));
    printf("rounding: %s\n", r->arith);
    if (r->profile) printf("profile: %s\n", r->profile);
    for (size_t i = 0; i < r->source_count && r->source_count > 1; i++) {
        printf("[%zu] %s\n", i + 1, r->source[i]);
        if (strcmp(r->source_arith[i], r->arith)) printf("    %s\n", r->source_arith[i]);
    }
}

/* Exact, rounding and wrong always; the others where there are any. */
static bool has_column(const struct mr_verify_report *r, int v)
{
    return v == MR_EXACT || v == MR_ROUNDING || v == MR_WRONG || r->total.verdicts[v];
}

static void print_tally(const struct mr_verify_report *r, const struct mr_verify_tally *t)
{
    printf(" %8llu", (ull)t->rows);
    for (int v = MR_VERDICT_COUNT - 1; v >= 0; v--)
        if (has_column(r, v)) printf(" %9llu", (ull)t->verdicts[v]);
    if (r->total.padding) printf(" %9llu", (ull)t->padding);
    if (r->total.logit_rows && t->logit_rows) printf(" %13.3g", t->logit_error);
    putchar('\n');
}

static void print_table(const struct mr_verify_report *r)
{
    bool sources = r->source_count > 1;
    printf("%-8s %5s%s %8s", "phase", "layer", sources ? " file" : "", "rows");
    for (int v = MR_VERDICT_COUNT - 1; v >= 0; v--)
        if (has_column(r, v)) printf(" %9s", mr_verdict_name((enum mr_verdict)v));
    if (r->total.padding) printf(" %9s", "padding");
    if (r->total.logit_rows) printf(" %13s", "logits off by");
    putchar('\n');
    for (size_t i = 0; i < r->row_count; i++) {
        const struct mr_verify_row *row = &r->row[i];
        printf("%-8s %5d", row->phase, row->layer);
        if (sources) printf("  [%zu]", row->source + 1);
        print_tally(r, &row->tally);
    }
    printf("%-*s", sources ? 19 : 14, "total");
    print_tally(r, &r->total);
}

static void print_ids(const char *before, const int64_t *observed, const int32_t *expected, int k)
{
    fputs(before, stdout);
    for (int i = 0; i < k; i++) printf(" %lld", (long long)(observed ? observed[i] : expected[i]));
}

/* A sentence, and for a faulty row both lists of experts. */
static void print_finding(const struct mr_verify_report *r, size_t i, bool lists)
{
    const struct mr_finding *f = &r->worst.item[i];
    char text[MR_FINDING_TEXT];
    mr_finding_text(f, text);
    printf("%s: layer %d, %s, token %zu", mr_verdict_name(f->judgement.verdict), f->layer,
           f->phase, f->token);
    if (f->row != f->token) printf(" (row %zu)", f->row);
    if (r->source_count > 1) printf(" [%zu]", f->source + 1);
    printf(": %s\n", text);
    if (!lists || f->judgement.cause == MR_CAUSE_LOGIT) return;
    print_ids("    certified", NULL, mr_finding_expected(&r->worst, i), r->top_k);
    print_ids("; observed", mr_finding_observed(&r->worst, i), NULL, r->top_k);
    putchar('\n');
}

static void print_findings(const struct mr_verify_report *r, bool verbose)
{
    size_t faulty = 0, other = 0;
    if (r->worst.count) putchar('\n');
    for (size_t i = 0; i < r->worst.count; i++) {
        bool bad = mr_verdict_fails(r->worst.item[i].judgement.verdict, false);
        size_t *shown = bad ? &faulty : &other, most = bad ? SHOWN_FAULTY : SHOWN_OTHER;
        if (!verbose && *shown == most) continue;
        print_finding(r, i, verbose || bad);
        ++*shown;
    }
    uint64_t all = mr_tally_findings(&r->total), shown = faulty + other;
    if (all > shown)
        printf("%llu more are not exact (%s)\n", (ull)(all - shown),
               r->worst.count > shown ? "-v shows, --json lists them" : "counted only");
}

/* The experts that differ most often. */
static void print_experts(const struct mr_verify_report *r, bool verbose)
{
    uint64_t bar = UINT64_MAX;
    size_t shown = 0, most = verbose ? SIZE_MAX : SHOWN_EXPERTS;
    while (shown < most) {
        uint64_t next = 0;
        for (size_t l = 0; l < r->layer_count; l++)
            for (int e = 0; e < r->experts; e++) {
                uint64_t n = r->layer[l].gained[e] + r->layer[l].lost[e];
                if (n < bar && n > next) next = n;
            }
        if (!next) break;
        bar = next;
        for (size_t l = 0; l < r->layer_count; l++)
            for (int e = 0; e < r->experts && shown < most; e++) {
                const struct mr_verify_experts *x = &r->layer[l];
                if (x->gained[e] + x->lost[e] != bar) continue;
                printf("%s layer %d expert %d +%llu -%llu",
                       shown ? ";" : "\ntokens gained and lost, most first:", x->layer, e,
                       (ull)x->gained[e], (ull)x->lost[e]);
                shown++;
            }
    }
    if (shown) puts(shown == most ? "; ..." : "");
}

static void print_power(const struct mr_verify_report *r)
{
    if (!r->power_count) return;
    puts("\npower to detect: tokens on which taking the first rejected expert for the last selected"
         " is called wrong");
    for (size_t i = 0; i < r->power_count; i++)
        printf("  %-28s %9llu of %llu  %7.3f %%\n", r->power[i].arith, (ull)r->power[i].wrong,
               (ull)r->power_tokens, percent(r->power[i].wrong, r->power_tokens));
}

static void print_meaning(const struct mr_verify_report *r)
{
    const struct mr_verify_tally *t = &r->total;
    uint64_t judged = t->rows - t->padding, right = t->verdicts[MR_EXACT] + t->verdicts[MR_TIE];
    uint64_t bad = mr_tally_failures(t, false);
    if (!judged) {
        puts("\nNo rows: nothing to say.");
        return;
    }
    printf("\n%llu of %llu rows are right", (ull)right, (ull)judged);
    if (t->verdicts[MR_ROUNDING])
        printf(", %llu (%.2f %%) differ by no more than this rounding explains",
               (ull)t->verdicts[MR_ROUNDING], percent(t->verdicts[MR_ROUNDING], judged));
    if (t->verdicts[MR_UNDECIDED])
        printf(", %llu cannot be judged", (ull)t->verdicts[MR_UNDECIDED]);
    if (bad) printf(", and %llu (%.2f %%) are faulty: no such rounding explains them.\n", (ull)bad,
                    percent(bad, judged));
    else puts(", and none is faulty.");
}

void print_verify(const struct mr_case *c, const struct mr_verify_report *r, bool verbose)
{
    print_head(c, r);
    print_table(r);
    print_findings(r, verbose);
    print_experts(r, verbose);
    print_power(r);
    print_meaning(r);
    if (r->route.blas_wrong)
        printf("WARNING: BLAS computes wrong here (%llu rows beyond its proven error): its layers "
               "were done again without it.\n", (ull)r->route.blas_wrong);
}
