/* The text of an exported case: "router" says all that the config did. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case_private.h"
#include "export_private.h"
#include "router_json.h"

/* False without memory; a value of NULL, too. */
static bool set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

static json_t *router_json(struct mr_router r, bool from_logits)
{
    if (from_logits) r.gate_bias = false; /* given logits hold it already */
    json_t *o = mr_router_json(&r);
    /* No layer that is written chooses by token id. */
    if (o) json_object_del(o, "hash_layers");
    return o;
}

static bool phase_used(const struct mr_export_job *job, const char *phase)
{
    for (size_t i = 0; i < mr_case_layer_count(job->c); i++)
        if (mr_export_has(job, i, phase)) return true;
    return false;
}

/* "phases" and "replay" of those that are written. */
static bool set_phases(json_t *json, const struct mr_export_job *job)
{
    json_t *phases = json_array(), *replay = json_object();
    bool fine = set(json, "phases", phases) && replay;
    for (size_t p = 0; p < mr_case_phase_count(job->c) && fine; p++) {
        const char *phase = mr_case_phase(job->c, p), *line = mr_case_replay(job->c, phase);
        if (!phase_used(job, phase)) continue;
        fine = json_array_append_new(phases, json_string(phase)) == 0 &&
               (!line || set(replay, phase, json_string(line)));
    }
    if (fine && json_object_size(replay) && job->observed) return set(json, "replay", replay);
    json_decref(replay);
    return fine;
}

/* Says which part it is: two exports that differ must have other bytes. To be freed. */
static char *about(const struct mr_export_job *job)
{
    const struct mr_export *how = job->how;
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    if (!f) return NULL;
    fprintf(f, "%s%sExported from %s", mr_case_about(job->c), *mr_case_about(job->c) ? " " : "",
            mr_case_name(job->c));
    for (size_t i = 0, n = 0; how->layers && i < mr_case_layer_count(job->c); i++)
        if (how->layers[i])
            fprintf(f, "%s %d", n++ ? "," : ", layers", mr_case_layer_number(job->c, i));
    if (how->phase) fprintf(f, ", phase %s", how->phase);
    if (how->seed >= 0) fprintf(f, ", seed %ld", how->seed);
    if (how->logits)
        fprintf(f, ": %s, rounded once to %s", mr_case_from_logits(job->c) ? "its logits"
                : "exact logits", mr_export_type(how->type));
    fputc('.', f);
    if (!fclose(f)) return text;
    free(text);
    return NULL;
}

char *mr_export_json(const struct mr_export_job *job)
{
    const struct mr_case *c = job->c;
    char file[512], *said = about(job), *text = NULL;
    snprintf(file, sizeof file, "%s.safetensors", job->name);
    json_t *json = json_pack("{s:i, s:s, s:s, s:s}", "moeref_case", 1, "name", job->name, "about",
                             said ? said : "", "input", job->logits ? "logits" : "hidden");
    bool fine = said && json && set(json, "router", router_json(*mr_case_router(c), job->logits)) &&
                (!job->weights || set(json, "checkpoint", json_pack("[s]", file))) &&
                set(json, "capture", json_pack("[s]", file)) && set_phases(json, job);
    if (fine && job->observed && mr_case_arith(c))
        fine = set(json, "arith", json_string(mr_case_arith(c)));
    if (fine && job->observed && mr_case_profile(c))
        fine = set(json, "profile", json_string(mr_case_profile(c)));
    if (fine) text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(json);
    free(said);
    char *line = text ? realloc(text, strlen(text) + 2) : NULL;
    if (!line) free(text);
    return line ? strcat(line, "\n") : NULL;
}
