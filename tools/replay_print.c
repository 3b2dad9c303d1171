/* The table of `moeref replay`, for a person. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "replay_run.h"

typedef unsigned long long ull;

static const char *const type_names[] = {"fp32", "bf16", "fp16"};

static uint32_t bits32(float v)
{
    uint32_t word;
    memcpy(&word, &v, sizeof word);
    return word;
}

static void print_ulp(const struct mr_replay_tally *t)
{
    if (!t->mismatches)
        printf(" %9s", "-");
    else if (t->worst_ulp == MR_ULP_NONE)
        printf(" %9s", "NaN");
    else
        printf(" %9" PRIu32, t->worst_ulp);
}

static void print_first(const struct mr_replay_group *g)
{
    const struct mr_replay_tally *t = &g->tally;
    if (!t->mismatches) return;
    printf("%s, %s: first at ", g->name, g->arith);
    if (g->phase)
        printf("token %zu, expert %zu", t->first.token, t->first.expert);
    else
        printf("row %zu", t->first.token);
    printf(": observed %.9g (0x%08" PRIx32 "), replayed %.9g (0x%08" PRIx32 ")",
           (double)t->first.observed, bits32(t->first.observed), (double)t->first.replayed,
           bits32(t->first.replayed));
    if (!g->phase)
        printf("\n");
    else if (t->worst_ulp == MR_ULP_NONE)
        printf("; NaN on one side only\n");
    else
        printf("; at worst %" PRIu32 " ulp of %s\n", t->worst_ulp, type_names[g->type]);
    if (g->phase && t->bf16 == t->checked && g->type == MR_TYPE_FP32)
        printf(
            "    every observed logit is a bf16 number: is bf16-logits missing from the line?\n");
}

static void print_arith(const struct mr_replay_group *g)
{
    printf("  %s%s%s%s\n", g->arith, *g->mark ? " (" : "", g->mark, *g->mark ? ")" : "");
}

static void print_cases(const struct mr_replay_report *r)
{
    printf("%-18s %6s %7s %9s %10s %9s  %s\n", "recording", "rows", "experts", "checked",
           "mismatches", "worst ulp", "arithmetic");
    for (size_t i = 0; i < r->count; i++) {
        const struct mr_replay_group *g = &r->group[i];
        printf("%-18s %6zu %7zu %9llu %10llu", g->name, g->rows, g->experts, (ull)g->tally.checked,
               (ull)g->tally.mismatches);
        print_ulp(&g->tally);
        print_arith(g);
    }
    printf("%-33s %9llu %10llu", "total", (ull)r->total.checked, (ull)r->total.mismatches);
    print_ulp(&r->total);
    putchar('\n');
    if (r->total.nans) printf("NaN on both sides, which match: %llu\n", (ull)r->total.nans);
}

static void print_steps(const struct mr_replay_report *r)
{
    printf("%-20s %9s %10s  %s\n", "results", "checked", "mismatches", "instruction");
    for (size_t i = 0; i < r->count; i++) {
        const struct mr_replay_group *g = &r->group[i];
        printf("%-20s %9llu %10llu", g->name, (ull)g->tally.checked, (ull)g->tally.mismatches);
        print_arith(g);
    }
    printf("%-20s %9llu %10llu\n", "total", (ull)r->total.checked, (ull)r->total.mismatches);
}

void print_replay(const struct mr_case *c, const struct mr_replay_report *r)
{
    printf("%s\n", r->case_name);
    if (c && *mr_case_about(c)) puts(mr_case_about(c));
    if (c)
        print_cases(r);
    else
        print_steps(r);
    if (r->total.mismatches) putchar('\n');
    for (size_t i = 0; i < r->count; i++) print_first(&r->group[i]);
}
