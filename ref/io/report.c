#include "report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../moeref.h"

const double mr_gap_quantile[MR_GAP_COUNT] = {0, 0.001, 0.01, 0.1, 0.5, 0.9, 1};
const char *const mr_gap_name[MR_GAP_COUNT] = {"min", "p001", "p01", "p10", "p50", "p90", "max"};

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *certified_json(const struct mr_route_result *r)
{
    json_t *o = json_object();
    for (int c = 0; c < MR_CERT_COUNT; c++)
        json_object_set_new(o, mr_certificate_name((enum mr_certificate)c),
                            json_integer((json_int_t)r->certified[c]));
    return o;
}

static json_t *arith_json(const struct mr_report *report, const struct mr_report_row *row)
{
    json_t *list = json_array();
    for (size_t i = 0; i < report->arith_count; i++) {
        const struct mr_report_arith *a = &row->arith[i];
        double rate = a->tokens ? (double)a->flips / (double)a->tokens : NAN;
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:o, s:o, s:o, s:o}", "name", report->arith_name[i],
                            "flips", (json_int_t)a->flips, "flip_rate", number(rate),
                            "weight_moved", number(a->weight_moved), "key_error_p50",
                            number(a->key_error_p50), "key_error_p99", number(a->key_error_p99)));
    }
    return list;
}

static json_t *row_json(const struct mr_report *report, const struct mr_report_row *row)
{
    json_t *o = json_object(), *gap = json_object();
    if (row->phase) {
        json_object_set_new(o, "layer", json_integer(row->layer));
        json_object_set_new(o, "phase", json_string(row->phase));
    }
    json_object_set_new(o, "tokens", json_integer((json_int_t)row->result.tokens));
    json_object_set_new(o, "experts", json_integer(row->experts));
    json_object_set_new(o, "top_k", json_integer(row->top_k));
    json_object_set_new(o, "certified", certified_json(&row->result));
    for (int q = 0; q < MR_GAP_COUNT; q++)
        json_object_set_new(gap, mr_gap_name[q], number(row->gap[q]));
    json_object_set_new(o, "gap", gap);
    json_object_set_new(o, "arith", arith_json(report, row));
    json_object_set_new(o, "blas",
                        json_pack("{s:I, s:I}", "alarms", (json_int_t)row->result.blas_alarms,
                                  "wrong_rows", (json_int_t)row->result.blas_wrong));
    return o;
}

json_t *mr_report_json(const struct mr_report *report)
{
    json_t *layers = json_array(), *ties = json_array();
    for (size_t i = 0; i < report->row_count; i++)
        json_array_append_new(layers, row_json(report, &report->row[i]));
    for (size_t i = 0; i < report->tie_count; i++) {
        const struct mr_report_tie *t = &report->tie[i];
        json_t *experts = json_array();
        for (int e = 0; e < t->count; e++)
            json_array_append_new(experts, json_integer(t->experts[e]));
        json_array_append_new(ties, json_pack("{s:i, s:s, s:I, s:i, s:o}", "layer", t->layer,
                                              "phase", t->phase, "token", (json_int_t)t->token,
                                              "slots", t->slots, "experts", experts));
    }
    return json_pack("{s:{s:s}, s:s, s:s, s:o, s:o, s:o, s:I}", "moeref", "version", MR_VERSION,
                     "command", "route", "case", report->case_name, "layers", layers, "total",
                     row_json(report, &report->total), "ties", ties, "ties_omitted",
                     (json_int_t)(report->tie_total - report->tie_count));
}

static void csv_row(const struct mr_report *report, const struct mr_report_row *row, FILE *to)
{
    size_t lines = report->arith_count ? report->arith_count : 1;
    for (size_t i = 0; i < lines; i++) {
        if (row->phase) fprintf(to, "%d,%s", row->layer, row->phase);
        else fputs(",", to);
        fprintf(to, ",%llu,%d,%d", (unsigned long long)row->result.tokens, row->experts,
                row->top_k);
        for (int c = 0; c < MR_CERT_COUNT; c++)
            fprintf(to, ",%llu", (unsigned long long)row->result.certified[c]);
        for (int q = 0; q < MR_GAP_COUNT; q++) {
            if (isfinite(row->gap[q])) fprintf(to, ",%.17g", row->gap[q]);
            else fputs(",", to);
        }
        if (!report->arith_count) {
            fputs(",,,,,\n", to);
            continue;
        }
        const struct mr_report_arith *a = &row->arith[i];
        fprintf(to, ",%s,%llu", report->arith_name[i], (unsigned long long)a->flips);
        double figures[4] = {a->tokens ? (double)a->flips / (double)a->tokens : NAN,
                             a->weight_moved, a->key_error_p50, a->key_error_p99};
        for (int f = 0; f < 4; f++) {
            if (isfinite(figures[f])) fprintf(to, ",%.17g", figures[f]);
            else fputs(",", to);
        }
        fputc('\n', to);
    }
}

enum mr_status mr_report_csv(const struct mr_report *report, FILE *to)
{
    fputs("layer,phase,tokens,experts,top_k", to);
    for (int c = 0; c < MR_CERT_COUNT; c++)
        fprintf(to, ",%s", mr_certificate_name((enum mr_certificate)c));
    for (int q = 0; q < MR_GAP_COUNT; q++) fprintf(to, ",gap_%s", mr_gap_name[q]);
    fputs(",arith,flips,flip_rate,weight_moved,key_error_p50,key_error_p99\n", to);
    for (size_t i = 0; i < report->row_count; i++) csv_row(report, &report->row[i], to);
    csv_row(report, &report->total, to);
    return ferror(to) ? MR_ERR_IO : MR_OK;
}

enum mr_status mr_json_write(const json_t *json, const char *path, struct mr_error *err)
{
    if (!json) return mr_fail(err, MR_ERR_MEMORY, "no memory for JSON");
    size_t flags = JSON_INDENT(1) | JSON_REAL_PRECISION(17);
    if (!strcmp(path, "-")) {
        if (json_dumpf(json, stdout, flags) || fputc('\n', stdout) == EOF || fflush(stdout))
            return mr_fail(err, MR_ERR_IO, "standard output: cannot write JSON: %s",
                           strerror(errno));
        return MR_OK;
    }
    char temporary[4096];
    int n = snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof temporary)
        return mr_fail(err, MR_ERR_IO, "%s: path too long", path);
    FILE *f = fopen(temporary, "w");
    if (!f) return mr_fail(err, MR_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    bool bad = json_dumpf(json, f, flags) || fputc('\n', f) == EOF;
    bad |= fclose(f) != 0;
    if (bad || rename(temporary, path)) {
        int why = errno;
        unlink(temporary);
        return mr_fail(err, MR_ERR_IO, "%s: cannot write JSON: %s", path, strerror(why));
    }
    return MR_OK;
}
