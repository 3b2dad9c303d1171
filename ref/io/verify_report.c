#include "verify_report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "../moeref.h"

bool mr_verdict_fails(enum mr_verdict v, bool strict)
{
    return v <= MR_WRONG || (strict && (v == MR_ROUNDING || v == MR_UNDECIDED));
}

uint64_t mr_tally_failures(const struct mr_verify_tally *t, bool strict)
{
    uint64_t n = 0;
    for (int v = 0; v < MR_VERDICT_COUNT; v++)
        if (mr_verdict_fails((enum mr_verdict)v, strict)) n += t->verdicts[v];
    return n;
}

uint64_t mr_tally_findings(const struct mr_verify_tally *t)
{
    uint64_t n = 0;
    for (int v = 0; v < MR_EXACT; v++) n += t->verdicts[v];
    return n;
}

void mr_tally_add(struct mr_verify_tally *to, const struct mr_verify_tally *from)
{
    to->rows += from->rows;
    to->padding += from->padding;
    to->logit_rows += from->logit_rows;
    if (from->logit_error > to->logit_error) to->logit_error = from->logit_error;
    for (int v = 0; v < MR_VERDICT_COUNT; v++) to->verdicts[v] += from->verdicts[v];
}

void mr_radius_text(const char *line, const char *said, bool given, bool sum,
                    char text[MR_RADIUS_TEXT])
{
    snprintf(text, MR_RADIUS_TEXT, "%.200s%s%s, %s", line ? line : "fp32",
             line ? "" : " (nothing is declared)", said,
             given ? "logits as given"
             : sum ? "summed so"
                   : "sums in fp32 in any order or in a tensor-core chain, whichever errs more");
}

static uint32_t bits32(double value)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* "a 11.8394 (0x413d6e48)": enough digits to tell binary32 numbers apart. */
#define FIGURE "%.9g (0x%08" PRIx32 ")"
#define FIGURE_OF(v) (v), bits32(v)

static const char *against(const struct mr_judgement *j)
{
    return j->difference > j->radius ? "more than" : "within";
}

void mr_finding_text(const struct mr_finding *finding, char text[MR_FINDING_TEXT])
{
    const struct mr_judgement *j = &finding->judgement;
    size_t n = MR_FINDING_TEXT;
    switch (j->cause) {
    case MR_CAUSE_NONE: snprintf(text, n, "nothing to say"); break;
    case MR_CAUSE_COUNT: snprintf(text, n, "%" PRId64 " ids", j->id); break;
    case MR_CAUSE_RANGE:
        snprintf(text, n, "slot %d: id %" PRId64 " is no expert", j->slot, j->id);
        break;
    case MR_CAUSE_DUPLICATE:
        snprintf(text, n, "slot %d: expert %" PRId64 " a second time", j->slot, j->id);
        break;
    case MR_CAUSE_PADDING:
        snprintf(text, n, "row %zu is padding, but slot %d has id %" PRId64 ", not -1",
                 finding->row, j->slot, j->id);
        break;
    case MR_CAUSE_GROUP:
        if (isnan(j->difference))
            snprintf(text, n, "the experts lie in groups that no selection keeps together");
        else
            snprintf(text, n, "group %d, score " FIGURE ", left out for group %d, score " FIGURE
                     ": difference %.3g, %s the radius %.3g", j->omitted,
                     FIGURE_OF(j->omitted_key), j->included, FIGURE_OF(j->included_key),
                     j->difference, against(j), j->radius);
        break;
    case MR_CAUSE_SET:
        if (isnan(j->difference))
            snprintf(text, n, "expert %d left out for expert %d, against the table of experts",
                     j->omitted, j->included);
        else
            snprintf(text, n, "expert %d, key " FIGURE ", left out for expert %d, key " FIGURE
                     ": difference %.3g, %s the radius %.3g", j->omitted,
                     FIGURE_OF(j->omitted_key), j->included, FIGURE_OF(j->included_key),
                     j->difference, against(j), j->radius);
        break;
    case MR_CAUSE_ORDER:
        snprintf(text, n, "slot %d: expert %d, key " FIGURE ", stands behind expert %d, key " FIGURE
                 ": difference %.3g, %s the radius %.3g", j->slot, j->omitted,
                 FIGURE_OF(j->omitted_key), j->included, FIGURE_OF(j->included_key), j->difference,
                 against(j), j->radius);
        break;
    case MR_CAUSE_PAIRING:
        snprintf(text, n, "slot %d: expert %" PRId64 " has weight " FIGURE ", which is that of "
                 "expert %d; its own is " FIGURE, j->slot, j->id, FIGURE_OF(j->included_key),
                 j->included, FIGURE_OF(j->omitted_key));
        break;
    case MR_CAUSE_WEIGHT:
        if (j->verdict == MR_NONFINITE)
            snprintf(text, n, "slot %d: expert %" PRId64 " has weight %g, expected " FIGURE,
                     j->slot, j->id, j->included_key, FIGURE_OF(j->omitted_key));
        else
            snprintf(text, n, "slot %d: expert %" PRId64 " has weight " FIGURE ", expected " FIGURE
                     ": difference %.3g, more than the radius %.3g", j->slot, j->id,
                     FIGURE_OF(j->included_key), FIGURE_OF(j->omitted_key), j->difference,
                     j->radius);
        break;
    case MR_CAUSE_LOGIT:
        snprintf(text, n, "logit of expert %d is " FIGURE ", expected " FIGURE
                 ": difference %.3g, more than the radius %.3g", j->included,
                 FIGURE_OF(j->included_key), FIGURE_OF(j->omitted_key), j->difference, j->radius);
        break;
    case MR_CAUSE_INPUT:
        snprintf(text, n, "an input is Inf or NaN: the ids are experts, and no more can be said");
        break;
    case MR_CAUSE_REFERENCE:
        snprintf(text, n, "the reference is undecided at its precision cap");
        break;
    case MR_CAUSE_TIE:
        snprintf(text, n, "keys at the cut are exactly equal: one of the right choices");
        break;
    }
}

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
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

static json_t *bits_json(double v)
{
    if (!isfinite(v)) return json_null();
    return json_sprintf("0x%08" PRIx32, bits32(v));
}

static json_t *expert_json(int e)
{
    return e < 0 ? json_null() : json_integer(e);
}

static json_t *verdicts_json(const struct mr_verify_tally *t)
{
    json_t *o = json_object();
    for (int v = MR_VERDICT_COUNT - 1; v >= 0; v--)
        json_object_set_new(o, mr_verdict_name((enum mr_verdict)v),
                            json_integer((json_int_t)t->verdicts[v]));
    return o;
}

static json_t *tally_json(const struct mr_verify_tally *t)
{
    json_t *o = json_pack("{s:I, s:I, s:o}", "rows", (json_int_t)t->rows, "padding",
                          (json_int_t)t->padding, "verdicts", verdicts_json(t));
    json_object_set_new(o, "logit_rows", json_integer((json_int_t)t->logit_rows));
    json_object_set_new(o, "logit_error", t->logit_rows ? number(t->logit_error) : json_null());
    return o;
}

static json_t *finding_json(const struct mr_verify_report *r, size_t i)
{
    const struct mr_finding *f = &r->worst.item[i];
    const struct mr_judgement *j = &f->judgement;
    const int32_t *expected = mr_finding_expected(&r->worst, i);
    const int64_t *observed = mr_finding_observed(&r->worst, i);
    json_t *a = json_array(), *b = json_array();
    char text[MR_FINDING_TEXT];
    for (int s = 0; s < r->top_k; s++) {
        json_array_append_new(a, json_integer(expected[s]));
        json_array_append_new(b, json_integer(observed[s]));
    }
    mr_finding_text(f, text);
    bool keys = j->cause == MR_CAUSE_SET || j->cause == MR_CAUSE_GROUP ||
                j->cause == MR_CAUSE_ORDER;
    json_t *o = json_object();
    json_object_set_new(o, "layer", json_integer(f->layer));
    json_object_set_new(o, "phase", json_string(f->phase));
    json_object_set_new(o, "token", json_integer((json_int_t)f->token));
    json_object_set_new(o, "source", text_json(r->source[f->source]));
    json_object_set_new(o, "row", json_integer((json_int_t)f->row));
    json_object_set_new(o, "verdict", json_string(mr_verdict_name(j->verdict)));
    json_object_set_new(o, "cause", json_string(mr_cause_name(j->cause)));
    json_object_set_new(o, "why", json_string(text));
    json_object_set_new(o, "omitted", expert_json(j->omitted));
    json_object_set_new(o, "included", expert_json(j->included));
    json_object_set_new(o, "difference", number(j->difference));
    json_object_set_new(o, "radius", number(j->radius));
    json_object_set_new(o, keys ? "omitted_key" : "right", number(j->omitted_key));
    json_object_set_new(o, keys ? "included_key" : "found", number(j->included_key));
    json_object_set_new(o, keys ? "omitted_bits" : "right_bits", bits_json(j->omitted_key));
    json_object_set_new(o, keys ? "included_bits" : "found_bits", bits_json(j->included_key));
    json_object_set_new(o, "slot", expert_json(j->slot));
    json_object_set_new(o, "gap", number(f->gap));
    json_object_set_new(o, "certificate", json_string(mr_certificate_name(f->certificate)));
    json_object_set_new(o, "expected", a);
    json_object_set_new(o, "observed", b);
    return o;
}

static json_t *experts_json(const struct mr_verify_report *r)
{
    json_t *list = json_array();
    for (size_t l = 0; l < r->layer_count; l++) {
        const struct mr_verify_experts *x = &r->layer[l];
        for (int e = 0; e < r->experts; e++)
            if (x->gained[e] || x->lost[e])
                json_array_append_new(
                    list, json_pack("{s:i, s:i, s:I, s:I}", "layer", x->layer, "expert", e,
                                    "gained", (json_int_t)x->gained[e], "lost",
                                    (json_int_t)x->lost[e]));
    }
    return list;
}

json_t *mr_verify_json(const struct mr_verify_report *r)
{
    json_t *layers = json_array(), *worst = json_array(), *power = json_array();
    json_t *sources = json_array();
    for (size_t i = 0; i < r->row_count; i++) {
        const struct mr_verify_row *row = &r->row[i];
        json_t *o = tally_json(&row->tally);
        json_object_set_new(o, "layer", json_integer(row->layer));
        json_object_set_new(o, "phase", json_string(row->phase));
        json_object_set_new(o, "source", text_json(r->source[row->source]));
        json_array_append_new(layers, o);
    }
    for (size_t i = 0; i < r->worst.count; i++) json_array_append_new(worst, finding_json(r, i));
    for (size_t i = 0; i < r->power_count; i++)
        json_array_append_new(power, json_pack("{s:s, s:I, s:I}", "arith", r->power[i].arith,
                                               "tokens", (json_int_t)r->power_tokens, "wrong",
                                               (json_int_t)r->power[i].wrong));
    for (size_t i = 0; i < r->source_count; i++) {
        struct mr_verify_tally tally = {0};
        for (size_t j = 0; j < r->row_count; j++)
            if (r->row[j].source == i) mr_tally_add(&tally, &r->row[j].tally);
        json_t *o = tally_json(&tally);
        json_object_set_new(o, "source", text_json(r->source[i]));
        json_object_set_new(o, "arith", json_string(r->source_arith[i]));
        json_array_append_new(sources, o);
    }
    return json_pack("{s:{s:s}, s:s, s:o, s:s, s:o, s:s?, s:b, s:o, s:o, s:o, s:o, s:I, s:o, s:o}",
                     "moeref", "version", MR_VERSION, "command", "verify", "case",
                     text_json(r->case_name), "arith", r->arith, "sources",
                     sources, "profile", r->profile, "strict",
                     r->strict, "layers", layers, "total", tally_json(&r->total), "verdicts",
                     verdicts_json(&r->total), "worst", worst, "worst_omitted",
                     (json_int_t)(mr_tally_findings(&r->total) - r->worst.count), "experts",
                     experts_json(r), "power", power);
}
