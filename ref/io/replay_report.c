#include "replay_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "../moeref.h"

static json_t *number(float v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *bits(float v)
{
    uint32_t word;
    memcpy(&word, &v, sizeof word);
    return json_sprintf("0x%08" PRIx32, word);
}

static json_t *ulp(const struct mr_replay_tally *t)
{
    return t->worst_ulp == MR_ULP_NONE ? json_null() : json_integer(t->worst_ulp);
}

static json_t *first(const struct mr_replay_tally *t, bool steps)
{
    if (!t->mismatches) return json_null();
    json_t *o = json_pack("{s:I}", steps ? "row" : "token", (json_int_t)t->first.token);
    if (!steps) json_object_set_new(o, "expert", json_integer((json_int_t)t->first.expert));
    json_object_set_new(o, "observed", number(t->first.observed));
    json_object_set_new(o, "observed_bits", bits(t->first.observed));
    json_object_set_new(o, "replayed", number(t->first.replayed));
    json_object_set_new(o, "replayed_bits", bits(t->first.replayed));
    return o;
}

/* A path may be any bytes, a JSON string not: then what is not ASCII is shown as '?'. */
static json_t *text_json(const char *text)
{
    json_t *plain = json_string(text);
    if (plain) return plain;
    char shown[512];
    size_t n = 0;
    for (; text[n] && n + 1 < sizeof shown; n++)
        shown[n] = (unsigned char)text[n] < 0x80 ? text[n] : '?';
    shown[n] = '\0';
    return json_string(shown);
}

static void set_tally(json_t *o, const struct mr_replay_tally *t, bool steps)
{
    json_object_set_new(o, "checked", json_integer((json_int_t)t->checked));
    json_object_set_new(o, "mismatches", json_integer((json_int_t)t->mismatches));
    if (steps) return;
    json_object_set_new(o, "worst_ulp", ulp(t));
    json_object_set_new(o, "nan", json_integer((json_int_t)t->nans));
}

static json_t *group_json(const struct mr_replay_group *g)
{
    bool steps = !g->phase;
    json_t *o = json_pack("{s:o}", "name", text_json(g->name));
    if (!steps) {
        json_object_set_new(o, "phase", json_string(g->phase));
        json_object_set_new(o, "layer", json_integer(g->layer));
    }
    json_object_set_new(o, "arith", json_string(g->arith));
    json_object_set_new(o, "unverified", json_boolean(*g->mark));
    json_object_set_new(o, "rows", json_integer((json_int_t)g->rows));
    if (!steps) json_object_set_new(o, "experts", json_integer((json_int_t)g->experts));
    set_tally(o, &g->tally, steps);
    json_object_set_new(o, "first", first(&g->tally, steps));
    return o;
}

json_t *mr_replay_json(const struct mr_replay_report *r)
{
    json_t *groups = json_array(), *total = json_object();
    bool steps = r->count && !r->group[0].phase;
    for (size_t i = 0; i < r->count; i++) json_array_append_new(groups, group_json(&r->group[i]));
    set_tally(total, &r->total, steps);
    return json_pack("{s:{s:s}, s:s, s:o, s:o, s:o}", "moeref", "version", MR_VERSION, "command",
                     "replay", "case", text_json(r->case_name), "groups", groups, "total", total);
}
