/* Tables for people. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results.h"

static int name_width(const struct gpu_results *r)
{
    size_t width = 6;
    for (size_t i = 0; i < r->count; i++) {
        size_t n = strlen(r->at[i].kernel->name);
        if (n > width) width = n;
    }
    return (int)width;
}

static void print_machine(const struct gpu_results *r, FILE *to)
{
    if (!r->device[0]) return;
    fprintf(to, "device: %s, driver %s, CUDA %s\n", r->device, r->driver, r->cuda);
}

static void print_count(FILE *to, int width, long long v)
{
    if (v < 0) fprintf(to, " %*s", width, "-");
    else fprintf(to, " %*lld", width, v);
}

/* Exact and rounding always; the others where there are any. */
static bool has_column(const struct gpu_results *r, int v)
{
    uint64_t n = 0;
    for (size_t i = 0; i < r->count; i++) n += r->at[i].tally.verdicts[v];
    return v == MR_EXACT || v == MR_ROUNDING || v == MR_WRONG || n;
}

/* Why, of all that is not fine: once for row counts in a row that share it. */
static void print_reasons(const struct gpu_results *r, FILE *to)
{
    bool any = false;
    for (size_t i = 0; i < r->count; i++) {
        const struct gpu_result *x = &r->at[i], *before = i ? &r->at[i - 1] : NULL;
        if (x->state == GPU_FINE) continue;
        if (before && before->kernel == x->kernel && before->state == x->state &&
            !strcmp(before->reason, x->reason)) {
            if (before->rows != x->rows) fprintf(to, ",%d", x->rows);
            continue;
        }
        fprintf(to, "\n%s: %s: %s: rows %d", gpu_state_name(x->state),
                x->kernel->name, x->reason, x->rows);
        any = true;
    }
    if (any) fputc('\n', to);
}

/* Lines, and what their replays say of all row counts in a row that share one. */
static void print_arithmetics(const struct gpu_results *r, FILE *to)
{
    bool any = false;
    for (size_t i = 0, next; i < r->count; i = next) {
        const struct gpu_result *x = &r->at[i];
        long long checked = 0, equal = 0;
        for (next = i; next < r->count && r->at[next].kernel == x->kernel &&
                       !strcmp(r->at[next].arith, x->arith); next++) {
            if (r->at[next].logits_checked < 0) continue;
            checked += r->at[next].logits_checked;
            equal += r->at[next].logits_equal;
        }
        if (!x->arith[0]) continue;
        if (!any) fputs("\narithmetic, from that row count on:\n", to);
        any = true;
        fprintf(to, "  %s, %d: %s", x->kernel->name, x->rows, x->arith);
        if (checked) fprintf(to, "  (%lld of %lld logits equal it bit for bit)", equal, checked);
        fputc('\n', to);
    }
}

static void print_against(const struct gpu_results *r, int width, FILE *to)
{
    bool any = false;
    for (size_t i = 0; i < r->count; i++) {
        const struct gpu_result *x = &r->at[i];
        const struct gpu_against *a = &x->against;
        if (!a->rows) continue;
        if (!any)
            fprintf(to, "\nagainst %s, row by row:\n%-*s %5s %9s %12s %10s %10s\n", r->against,
                    width, "kernel", "rows", "compared", "logits off", "other bits", "other sets");
        any = true;
        fprintf(to, "%-*s %5d %9llu", width, x->kernel->name, x->rows, (unsigned long long)a->rows);
        if (isnan(a->difference)) fprintf(to, " %12s %10s", "-", "-");
        else fprintf(to, " %12.3g %10llu", a->difference, (unsigned long long)a->bits);
        print_count(to, 10, a->has_sets ? (long long)a->sets : -1);
        fputc('\n', to);
    }
}

static void print_run_row(const struct gpu_results *r, const struct gpu_result *x, int width,
                          FILE *to)
{
    fprintf(to, "%-*s %5d", width, x->kernel->name, x->rows);
    if (x->tally.rows) {
        fprintf(to, " %7llu", (unsigned long long)x->tally.rows);
        for (int v = MR_VERDICT_COUNT - 1; v >= 0; v--)
            if (has_column(r, v)) fprintf(to, " %9llu", (unsigned long long)x->tally.verdicts[v]);
        print_count(to, 6, x->flips);
        print_count(to, 7, x->bit_changes);
        print_count(to, 7, x->batch_flips);
        print_count(to, 7, x->batch_bits);
        print_count(to, 8, x->unstable_rows);
        if (x->logits_checked < 0) fprintf(to, " %7s", "-");
        else
            fprintf(to, " %7s", x->logits_checked == x->logits_equal ? "equal" : "differ");
        fprintf(to, "  %s", gpu_state_name(x->state));
    } else {
        fprintf(to, "  %s", gpu_state_name(x->state));
    }
    fputc('\n', to);
}

void gpu_print_run(const struct gpu_results *r, bool verbose, FILE *to)
{
    int width = name_width(r);
    fprintf(to, "%s\n", r->case_name);
    print_machine(r, to);
    fprintf(to, "%-*s %5s %7s", width, "kernel", "rows", "judged");
    for (int v = MR_VERDICT_COUNT - 1; v >= 0; v--)
        if (has_column(r, v)) fprintf(to, " %9s", mr_verdict_name((enum mr_verdict)v));
    fprintf(to, " %6s %7s %7s %7s %8s %7s  %s\n", "flips", "bits", "b.flips", "b.bits", "unstable",
            "replay", "status");
    for (size_t i = 0; i < r->count; i++)
        if (r->at[i].state != GPU_UNSUPPORTED) print_run_row(r, &r->at[i], width, to);
    print_reasons(r, to);
    print_arithmetics(r, to);
    print_against(r, width, to);
    bool any = false;
    for (size_t i = 0; i < r->count; i++) {
        const struct gpu_result *x = &r->at[i];
        if (!x->worst[0] || (!verbose && x->state != GPU_WRONG)) continue;
        if (!any) fputs("\nworst:\n", to);
        any = true;
        fprintf(to, "  %s, %d rows: %s\n", x->kernel->name, x->rows, x->worst);
    }
    fputs("\nflips: rows off the certified set; bits: tokens whose logits changed since the row count "
          "above;\nb.flips, b.bits: tokens whose set, or whose bits, depend on rows or place; "
          "unstable: rows that\ndiffer from launch to launch; replay: do the logits equal their "
          "arithmetic's, bit for bit.\n", to);
}

static void print_us(FILE *to, double v)
{
    if (isfinite(v)) fprintf(to, " %8.2f", v);
    else fprintf(to, " %8s", "-");
}

void gpu_print_bench(const struct gpu_results *r, FILE *to)
{
    int width = name_width(r) > 12 ? name_width(r) : 12;
    double floor = NAN;
    if (r->case_name) fprintf(to, "%s\n", r->case_name);
    print_machine(r, to);
    fprintf(to, "%-*s %5s %4s %8s %8s %8s %8s %7s %8s %8s  %s\n", width, "microseconds", "rows",
            "pdl", "cold", "spread", "warm", "spread", "floors", "ev.cold", "ev.warm", "by");
    for (size_t i = 0; i < r->floor_count; i++) {
        const struct gpu_floor *f = &r->floor[i];
        fprintf(to, "%-*s %5s %4s", width, f->name, "-", "-");
        print_us(to, f->cold);
        print_us(to, f->cold_spread);
        print_us(to, f->warm);
        print_us(to, f->warm_spread);
        fprintf(to, " %7s", "-");
        print_us(to, f->events_cold);
        print_us(to, f->events_warm);
        fprintf(to, "  %s\n", f->method);
        if (!strcmp(f->name, "read_gate")) floor = f->cold;
    }
    for (size_t i = 0; i < r->count; i++) {
        const struct gpu_result *x = &r->at[i];
        if (x->state == GPU_UNSUPPORTED) continue;
        fprintf(to, "%-*s %5d %4s", width, x->kernel->name, x->rows,
                x->pdl < 0 ? "-" : x->pdl ? "on" : "off");
        if (x->state != GPU_FINE) {
            fprintf(to, "  %s\n", gpu_state_name(x->state));
            continue;
        }
        print_us(to, x->cold);
        print_us(to, x->cold_spread);
        print_us(to, x->warm);
        print_us(to, x->warm_spread);
        if (isfinite(x->cold / floor)) fprintf(to, " %7.2f", x->cold / floor);
        else fprintf(to, " %7s", "-");
        print_us(to, x->events_cold);
        print_us(to, x->events_warm);
        fprintf(to, "  %s\n", x->method);
    }
    print_reasons(r, to);
    if (r->count)
        fputs("\nmedians; spread: 90th less 10th percentile; floors: cold over read_gate cold; ev.: by "
              "events\naround graph replays, which hold the launch of the graph.\n", to);
}
