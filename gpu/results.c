#include "results.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "observed_file.h"

const char *gpu_state_name(enum gpu_state state)
{
    static const char *const name[] = {"ok", "unsupported", "wrong", "faulty", "not_run"};
    return state >= GPU_FINE && state <= GPU_NOT_RUN ? name[state] : "?";
}

void gpu_result_init(struct gpu_result *r, const struct mr_kernel *kernel, int rows)
{
    *r = (struct gpu_result){.kernel = kernel, .rows = rows, .flips = -1, .decided = -1,
                             .bit_changes = -1, .batch_flips = -1, .batch_bits = -1,
                             .unstable_rows = -1, .logits_checked = -1, .logits_equal = -1,
                             .pdl = -1, .cold = NAN, .cold_spread = NAN, .warm = NAN,
                             .warm_spread = NAN, .events_cold = NAN, .events_warm = NAN};
    gpu_against_init(&r->against);
}

void gpu_result_fail(struct gpu_result *r, enum gpu_state state, const char *format, ...)
{
    va_list args;
    if (state <= r->state) return;
    r->state = state;
    va_start(args, format);
    vsnprintf(r->reason, sizeof r->reason, format, args);
    va_end(args);
}

bool gpu_results_failed(const struct gpu_results *r)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->at[i].state > GPU_UNSUPPORTED) return true;
    return false;
}

void gpu_results_floor(struct gpu_results *r, int fields, char *const field[])
{
    static const char *const name[GPU_FLOORS] = {"empty_1", "empty_288", "read_gate"};
    if (fields == 2 && !strcmp(field[0], "gate")) r->gate_bytes = strtoull(field[1], NULL, 10);
    for (size_t i = 0; i < GPU_FLOORS; i++) {
        if (fields < 9 || strcmp(field[0], "floor") || strcmp(field[1], name[i])) continue;
        struct gpu_floor *f = &r->floor[i];
        *f = (struct gpu_floor){.name = name[i], .cold = atof(field[2]),
                                .cold_spread = atof(field[3]), .warm = atof(field[4]),
                                .warm_spread = atof(field[5]), .events_cold = atof(field[6]),
                                .events_warm = atof(field[7])};
        snprintf(f->method, sizeof f->method, "%s", field[8]);
        if (r->floor_count < i + 1) r->floor_count = i + 1;
    }
}

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *count(long long v)
{
    return v < 0 ? json_null() : json_integer((json_int_t)v);
}

static json_t *text(const char *t)
{
    return t[0] ? json_string(t) : json_null();
}

static json_t *verdicts(const struct gpu_result *r)
{
    if (!r->tally.rows) return json_null();
    json_t *o = json_object();
    for (int v = MR_VERDICT_COUNT - 1; v >= 0; v--)
        json_object_set_new(o, mr_verdict_name((enum mr_verdict)v),
                            json_integer((json_int_t)r->tally.verdicts[v]));
    return o;
}

static json_t *logits(const struct gpu_result *r)
{
    if (r->logits_checked < 0) return json_null();
    return json_pack("{s:o, s:o}", "checked", count(r->logits_checked), "equal",
                     count(r->logits_equal));
}

static json_t *against_json(const struct gpu_result *r)
{
    const struct gpu_against *a = &r->against;
    if (!a->rows) return json_null();
    bool logits = !isnan(a->difference);
    return json_pack("{s:I, s:o, s:o, s:o}", "rows", (json_int_t)a->rows, "logit_difference",
                     number(a->difference), "bits", count(logits ? (long long)a->bits : -1), "sets",
                     count(a->has_sets ? (long long)a->sets : -1));
}

static json_t *kernel_json(const struct gpu_result *r)
{
    json_t *o = json_pack("{s:s, s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kernel",
                          r->kernel->name, "family", r->kernel->family, "rows", r->rows, "arith",
                          text(r->arith), "verdicts", verdicts(r), "flips", count(r->flips),
                          "bit_changes", count(r->bit_changes), "batch_flips",
                          count(r->batch_flips), "batch_bits", count(r->batch_bits),
                          "unstable_rows", count(r->unstable_rows), "logits", logits(r));
    json_t *timed = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "us_cold",
                              number(r->cold), "us_warm", number(r->warm), "spread",
                              number(r->cold_spread), "spread_warm", number(r->warm_spread),
                              "events_cold", number(r->events_cold), "events_warm",
                              number(r->events_warm), "method", text(r->method), "pdl",
                              r->pdl < 0 ? json_null() : json_boolean(r->pdl), "launches",
                              r->kernels ? json_integer(r->kernels) : json_null());
    json_object_update(o, timed);
    json_decref(timed);
    json_object_set_new(o, "against", against_json(r));
    json_object_set_new(o, "status", json_string(gpu_state_name(r->state)));
    json_object_set_new(o, "reason", text(r->reason));
    return o;
}

static json_t *floors_json(const struct gpu_results *r)
{
    if (!r->floor_count) return json_null();
    json_t *o = json_object();
    for (size_t i = 0; i < r->floor_count; i++) {
        const struct gpu_floor *f = &r->floor[i];
        json_object_set_new(o, f->name,
                            json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "us_cold",
                                      number(f->cold), "us_warm", number(f->warm), "spread",
                                      number(f->cold_spread), "spread_warm",
                                      number(f->warm_spread), "events_cold",
                                      number(f->events_cold), "events_warm",
                                      number(f->events_warm), "method", text(f->method)));
    }
    json_object_set_new(o, "gate_bytes", json_integer((json_int_t)r->gate_bytes));
    return o;
}

json_t *gpu_results_json(const struct gpu_results *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->count; i++) json_array_append_new(list, kernel_json(&r->at[i]));
    return json_pack("{s:{s:s}, s:s, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o}", "moeref",
                     "version", MR_VERSION, "command", r->command, "case",
                     r->case_name ? json_string(r->case_name) : json_null(), "device",
                     text(r->device), "driver", text(r->driver), "cuda", text(r->cuda), "commit",
                     gpu_commit, "seed", count(r->seed), "floor", floors_json(r), "against",
                     r->against ? json_string(r->against) : json_null(), "kernels", list);
}
