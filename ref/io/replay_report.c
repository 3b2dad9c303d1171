#include "replay_report.h"

#include <inttypes.h>
#include <math.h>
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

static json_t *first(const struct mr_replay_tally *t)
{
    if (!t->mismatches) return json_null();
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o}", "token", (json_int_t)t->first.token, "expert",
                     (json_int_t)t->first.expert, "observed", number(t->first.observed),
                     "observed_bits", bits(t->first.observed), "replayed",
                     number(t->first.replayed), "replayed_bits", bits(t->first.replayed));
}

json_t *mr_replay_json(const struct mr_replay_report *r)
{
    json_t *groups = json_array();
    for (size_t i = 0; i < r->count; i++) {
        const struct mr_replay_group *g = &r->group[i];
        json_array_append_new(
            groups,
            json_pack("{s:s, s:s, s:i, s:s, s:b, s:I, s:I, s:I, s:I, s:o, s:I, s:o}", "name",
                      g->name, "phase", g->phase, "layer", g->layer, "arith", g->arith,
                      "unverified", *g->mark != 0, "rows", (json_int_t)g->rows, "experts",
                      (json_int_t)g->experts, "checked", (json_int_t)g->tally.checked, "mismatches",
                      (json_int_t)g->tally.mismatches, "worst_ulp", ulp(&g->tally), "nan",
                      (json_int_t)g->tally.nans, "first", first(&g->tally)));
    }
    return json_pack("{s:{s:s}, s:s, s:s?, s:o, s:{s:I, s:I, s:o, s:I}}", "moeref", "version",
                     MR_VERSION, "command", "replay", "case", r->case_name, "groups", groups,
                     "total", "checked", (json_int_t)r->total.checked, "mismatches",
                     (json_int_t)r->total.mismatches, "worst_ulp", ulp(&r->total), "nan",
                     (json_int_t)r->total.nans);
}
