/* The table and the JSON of `route --profiles`. */
#include <stdio.h>
#include <string.h>

#include "../ref/moeref.h"
#include "profiles_run.h"

/* "tie rule 12, bias 3". */
static void print_reasons(const uint64_t *why)
{
    bool some = false;
    for (int w = 0; w < MR_WHY_COUNT; w++) {
        if (!why[w]) continue;
        printf("%s%s %llu", some ? ", " : "", mr_why_name(w), (unsigned long long)why[w]);
        some = true;
    }
    putchar('\n');
}

static void print_profile(const struct profile_tally *t)
{
    unsigned long long other = t->set[MR_PART_OTHER], tie = t->set[MR_PART_TIE];
    char error[32] = "-";
    if (t->set[MR_PART_SAME]) snprintf(error, sizeof error, "%.1e", t->weight_error);
    printf("%-14s %9llu %7llu %7llu %9llu %8llu %9s %8llu  ", t->profile->name,
           (unsigned long long)t->set[MR_PART_SAME], tie, other,
           (unsigned long long)t->set[MR_PART_UNKNOWN], (unsigned long long)t->repeated, error,
           (unsigned long long)t->weight_part);
    print_reasons(t->why);
    if (t->weight_part) {
        printf("%-14s   weights (%llu not finite): ", "", (unsigned long long)t->nonfinite);
        print_reasons(t->weight_why);
    }
    if (t->undefined)
        printf("%-14s   %llu tokens rest on what the engine leaves undefined\n", "",
               (unsigned long long)t->undefined);
}

static void print_ids(const int32_t *ids, int k)
{
    for (int i = 0; i < k; i++) printf(" %d", ids[i]);
}

static void print_part(const struct mr_profile_part *p)
{
    if (p->why >= 0) printf(" (%s)", mr_why_name(p->why));
    if (p->weight_why >= 0)
        printf(" (weights: %s%s)", mr_why_name(p->weight_why),
               p->weight_error > 1e300 ? ", not finite" : "");
    if (p->note.repeated) printf(" (repeats an id)");
}

/* Profiles that chose one set share a line. */
static void print_token(const struct profiles_outcome *out, const struct parted_token *t)
{
    int k = out->top_k;
    bool done[MOST_PROFILES] = {false};
    printf("layer %d, %s, token %zu: certified", t->layer, t->phase, t->token);
    print_ids(t->certified, k);
    putchar('\n');
    for (int p = 0; p < out->count; p++) {
        if (done[p] || !out->tally[p].row) continue;
        printf("   ");
        for (int q = p; q < out->count; q++) {
            if (!out->tally[q].row || done[q]) continue;
            if (!mr_same_ids(t->ids + p * k, t->ids + q * k, k)) continue;
            done[q] = true;
            printf(" %s", out->tally[q].profile->name);
            print_part(&t->part[q]);
        }
        printf(":");
        print_ids(t->ids + p * k, k);
        putchar('\n');
    }
}

static void print_pairs(const struct profiles_outcome *out)
{
    bool any = false;
    for (int p = 0; p < out->count; p++)
        for (int q = 0; q < out->count; q++) any |= out->pair[p][q] != 0;
    if (!any) {
        puts("\nno two profiles choose different experts on any token");
        return;
    }
    printf("\ntokens on which two profiles choose different experts\n%-17s", "");
    for (int q = 0; q < out->count; q++)
        if (out->tally[q].row) printf(" %9d", q + 1);
    putchar('\n');
    for (int p = 0; p < out->count; p++) {
        if (!out->tally[p].row) continue;
        printf("%2d %-14s", p + 1, out->tally[p].profile->name);
        for (int q = 0; q < out->count; q++) {
            if (!out->tally[q].row) continue;
            if (p == q) printf(" %9s", "-");
            else printf(" %9llu", (unsigned long long)out->pair[p < q ? p : q][p < q ? q : p]);
        }
        putchar('\n');
    }
}

void profiles_print(const struct profiles_outcome *out, bool verbose)
{
    printf("%s: profiles, %s, %llu tokens; %s\n\n", out->case_name, mr_profile_kind_name(out->kind),
           (unsigned long long)out->tokens,
           out->from_logits ? "from given logits" : "exact logits rounded once to fp32");
    printf("%-14s %9s %7s %7s %9s %8s %9s %8s  %s\n", "profile", "same set", "tie", "other",
           "unknown", "repeats", "weights", "parted", "why the set differs");
    for (int p = 0; p < out->count; p++)
        if (out->tally[p].row) print_profile(&out->tally[p]);
    for (int p = 0; p < out->count; p++)
        if (!out->tally[p].row) printf("%-14s %s\n", out->tally[p].profile->name,
                                       out->tally[p].unserved);
    print_pairs(out);
    if (out->listed) printf("\nprofiles part on %llu tokens; the first %zu:\n",
                            (unsigned long long)out->parted, out->listed);
    for (size_t i = 0; i < out->listed; i++) print_token(out, &out->token[i]);
    puts("\nsame set: as certified. tie: as right as it. weights: largest relative difference "
         "where the set\nis the same; parted: above 2^-16. All profiles are emulations, unverified on "
         "hardware unless 'moeref profiles' says so.");
    for (int p = 0; p < out->count && verbose; p++)
        if (out->tally[p].row) printf("%-14s %s: %s\n", out->tally[p].profile->name,
                                      out->tally[p].row->kernel, out->tally[p].row->source);
}

static json_t *reasons_json(const uint64_t *why)
{
    json_t *o = json_object();
    for (int w = 0; w < MR_WHY_COUNT; w++)
        if (why[w]) json_object_set_new(o, mr_why_name(w), json_integer((json_int_t)why[w]));
    return o;
}

static json_t *tally_json(const struct profiles_outcome *out, int p)
{
    const struct profile_tally *t = &out->tally[p];
    if (!t->row) return json_pack("{s:s, s:s}", "name", t->profile->name, "unserved", t->unserved);
    json_t *differs = json_object();
    for (int q = 0; q < out->count; q++)
        if (q != p && out->tally[q].row)
            json_object_set_new(differs, out->tally[q].profile->name,
                                json_integer((json_int_t)out->pair[p < q ? p : q][p < q ? q : p]));
    return json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:{s:f, s:I, s:I, s:o}, "
                     "s:o}", "name", t->profile->name, "kernel", t->row->kernel, "verified",
                     mr_profile_compared(t->row), "same", (json_int_t)t->set[MR_PART_SAME], "tie",
                     (json_int_t)t->set[MR_PART_TIE], "other", (json_int_t)t->set[MR_PART_OTHER],
                     "unknown", (json_int_t)t->set[MR_PART_UNKNOWN], "why", reasons_json(t->why),
                     "repeated", (json_int_t)t->repeated, "undefined", (json_int_t)t->undefined,
                     "weights", "error", t->weight_error, "parted", (json_int_t)t->weight_part,
                     "nonfinite", (json_int_t)t->nonfinite, "why", reasons_json(t->weight_why),
                     "differs", differs);
}

static json_t *ids_json(const int32_t *ids, int k)
{
    json_t *a = json_array();
    for (int i = 0; i < k; i++) json_array_append_new(a, json_integer(ids[i]));
    return a;
}

static json_t *token_json(const struct profiles_outcome *out, const struct parted_token *t)
{
    json_t *sets = json_object();
    for (int p = 0; p < out->count; p++)
        if (out->tally[p].row)
            json_object_set_new(sets, out->tally[p].profile->name,
                                json_pack("{s:o, s:s, s:s}", "ids",
                                          ids_json(t->ids + p * out->top_k, out->top_k), "why",
                                          mr_why_name(t->part[p].why), "weights_why",
                                          mr_why_name(t->part[p].weight_why)));
    return json_pack("{s:i, s:s, s:I, s:o, s:o}", "layer", t->layer, "phase", t->phase, "token",
                     (json_int_t)t->token, "certified", ids_json(t->certified, out->top_k),
                     "profiles", sets);
}

json_t *profiles_json(const struct profiles_outcome *out)
{
    json_t *profiles = json_array(), *tokens = json_array();
    for (int p = 0; p < out->count; p++) json_array_append_new(profiles, tally_json(out, p));
    for (size_t i = 0; i < out->listed; i++)
        json_array_append_new(tokens, token_json(out, &out->token[i]));
    return json_pack("{s:{s:s}, s:s, s:s, s:s, s:I, s:I, s:o, s:o}", "moeref", "version",
                     MR_VERSION, "command", "route", "case", out->case_name, "kind",
                     mr_profile_kind_name(out->kind), "tokens", (json_int_t)out->tokens, "parted",
                     (json_int_t)out->parted, "profiles", profiles, "parts", tokens);
}
