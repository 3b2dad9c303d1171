#include "engine_records.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/arith/replay.h"
#include "../../ref/io/case_layer.h"
#include "../../ref/io/observed.h"
#include "cli.h"

enum { MOST = 512, VERDICTS = 7 };
static const char *const verdicts[VERDICTS] = {"exact", "tie",       "rounding", "undecided",
                                               "wrong", "malformed", "nonfinite"};

/* A judge line. */
struct expected {
    char file[256], profile[64]; /* CASE/NAME.safetensors; "": none */
    long long rows, verdict[VERDICTS];
    bool judged;
};

struct check {
    struct engine_records *out;
    const char *folder;
    struct expected line[MOST];
    size_t lines;
    char made[MOST][256]; /* cases that lie in the temporary folder */
    size_t made_count;
};

#define FAULT(c, ...) (snprintf((c)->out->fault, sizeof(c)->out->fault, __VA_ARGS__), false)

static bool path_of_case(const struct check *c, const char *name, char path[600])
{
    bool made = false;
    for (size_t i = 0; i < c->made_count; i++) made |= !strcmp(c->made[i], name);
    if (made) snprintf(path, 600, "%s/%s.json", cli_at("."), name);
    else snprintf(path, 600, "cases/%s.json", name);
    return made;
}

static bool make_case(struct check *c, char *text)
{
    const char *arguments[32];
    size_t n = 0;
    char *name = strtok(text, " ");
    for (char *word; n < 28 && (word = strtok(NULL, " "));) arguments[n++] = word;
    if (!name || !n || c->made_count == MOST) return FAULT(c, "make: no case, or no arguments");
    arguments[n++] = "-o";
    arguments[n++] = cli_at(".");
    arguments[n] = NULL;
    cli_run(NULL, arguments);
    if (cli_last.status) return FAULT(c, "make %s: %.300s", name, cli_last.err);
    snprintf(c->made[c->made_count++], 256, "%s", name);
    return true;
}

static bool read_judge(struct check *c, const char *text)
{
    if (c->lines == MOST) return FAULT(c, "more than %d lines", MOST);
    struct expected *e = &c->line[c->lines++];
    long long *v = e->verdict;
    if (sscanf(text, "%255s %lld %lld %lld %lld %lld %lld %lld %lld", e->file, &e->rows, v, v + 1,
               v + 2, v + 3, v + 4, v + 5, v + 6) != 9)
        return FAULT(c, "judge %.200s: expected a file and 8 numbers", text);
    return true;
}

static bool open_file(struct check *c, const char *file, struct mr_safetensors **out)
{
    char path[600];
    struct mr_error err;
    snprintf(path, sizeof path, "%s/%s", c->folder, file);
    return !mr_safetensors_open(path, out, &err) || FAULT(c, "%s", err.text);
}

/* The case's name is the folder's. */
static bool split(struct check *c, const char *file, char name[256])
{
    const char *slash = strchr(file, '/');
    if (!slash) return FAULT(c, "%s: lies in no folder of a case", file);
    snprintf(name, 256, "%.*s", (int)(slash - file), file);
    return true;
}

static bool replay_layer(struct check *c, const char *file, const struct mr_safetensors *st,
                         const struct mr_arith *arith, const struct mr_case_input *in,
                         const struct mr_case_layer *l, size_t *compared)
{
    size_t n = (size_t)in->layer.router->experts;
    struct mr_error err = {{0}};
    struct mr_observed o;
    bool found, fine = true;
    float *made = malloc(n * sizeof *made), *bias = in->gate_bias ? malloc(n * sizeof *bias) : NULL;
    double *given = malloc(n * sizeof *given);
    const struct mr_gemm gemm = {in->layer.hidden, in->layer.gate, .gate_bias = bias};
    struct mr_replay *replay = NULL;
    for (size_t e = 0; bias && e < n; e++) bias[e] = (float)in->gate_bias[e];
    if (mr_observed_read(st, l->layer, l->phase, in->layer.router, in->layer.hidden.rows,
                         UINT64_MAX, &o, &found, &err) ||
        mr_replay_new(arith, &gemm, &replay, &err))
        fine = FAULT(c, "%s: %s", file, err.text);
    for (size_t t = 0; fine && o.logits.data && t < o.tokens; t++) {
        const size_t *rows;
        size_t count = mr_observed_rows(&o, t, &rows);
        if (count && mr_replay_rows(replay, t, 1, made, &err))
            fine = FAULT(c, "%s: %s", file, err.text);
        for (size_t i = 0; i < count && fine; i++) {
            mr_observed_logits(&o, rows ? rows[i] : t, given);
            for (size_t e = 0; e < n && fine; e++) {
                float seen = (float)given[e];
                if (memcmp(&seen, &made[e], sizeof seen))
                    fine = FAULT(c, "%s: layer %d, %s, token %zu, expert %zu: logit %a, replayed "
                                 "%a", file, l->layer, l->phase, t, e, (double)seen,
                                 (double)made[e]);
                ++*compared;
            }
        }
    }
    mr_replay_free(replay);
    mr_observed_free(&o);
    free(made);
    free(bias);
    free(given);
    return fine;
}

static bool replay_case(struct check *c, const char *file, struct mr_case *from,
                        const struct mr_safetensors *st, const struct mr_arith *arith,
                        size_t *compared)
{
    struct mr_error err = {{0}};
    bool fine = true;
    for (size_t p = 0; p < mr_case_phase_count(from); p++)
        for (size_t i = 0; i < mr_case_layer_count(from) && fine; i++) {
            struct mr_case_layer l;
            struct mr_case_input in;
            const char *phase = mr_case_phase(from, p);
            int layer = mr_case_layer_number(from, i);
            char name[256];
            struct mr_tensor logits;
            snprintf(name, sizeof name, "%.100s.model.layers.%d.mlp.gate.logits", phase, layer);
            if (!mr_case_has(from, layer, phase) || !mr_safetensors_find(st, name, &logits))
                continue;
            if (mr_case_get(from, layer, phase, &l, &err) ||
                mr_case_input_make(from, &l, false, &in, &err))
                return FAULT(c, "%s: %s", file, err.text);
            fine = in.layer.hidden.data
                       ? replay_layer(c, file, st, arith, &in, &l, compared)
                       : FAULT(c, "%s: its case starts from logits: nothing to replay", file);
            mr_case_input_free(&in);
        }
    return fine;
}

static bool replay_line(struct check *c, const char *text)
{
    char file[256], line[256], name[256], path[600];
    size_t count, compared = 0;
    struct mr_arith arith;
    struct mr_error err = {{0}};
    struct mr_safetensors *st;
    struct mr_case *from;
    if (sscanf(text, "%255s %zu %255s", file, &count, line) != 3)
        return FAULT(c, "replay %.200s: expected a file, a number and a line", text);
    if (!split(c, file, name)) return false;
    path_of_case(c, name, path);
    if (mr_arith_parse(line, &arith, &err) || mr_case_load(path, NULL, &from, &err))
        return FAULT(c, "replay %s: %s", file, err.text);
    bool fine = open_file(c, file, &st) && replay_case(c, file, from, st, &arith, &compared);
    mr_safetensors_close(st);
    mr_case_free(from);
    if (fine && compared != count)
        return FAULT(c, "%s: %zu logits, expected %zu", file, compared, count);
    c->out->lines++;
    c->out->logits += compared;
    return fine;
}

/* All lines; those that replay after those that make cases, wherever they stand. */
static bool read_expected(struct check *c, bool replays)
{
    char path[600], text[1024];
    snprintf(path, sizeof path, "%s/EXPECTED", c->folder);
    FILE *f = fopen(path, "r");
    bool fine = f || FAULT(c, "%s: %m", path);
    while (fine && fgets(text, sizeof text, f)) {
        text[strcspn(text, "\n")] = '\0';
        bool replay = !strncmp(text, "replay ", 7);
        if (*text == '#' || !*text || replay != replays) continue;
        fine = replay ? replay_line(c, text + 7)
               : !strncmp(text, "make ", 5) ? make_case(c, text + 5)
               : !strncmp(text, "judge ", 6) ? read_judge(c, text + 6)
                                             : FAULT(c, "EXPECTED: '%.80s'", text);
    }
    if (f) fclose(f);
    return fine;
}

/* Every file has its line. */
static bool find_files(struct check *c)
{
    struct dirent **cases, **files;
    int n = scandir(c->folder, &cases, NULL, alphasort);
    bool fine = n >= 0 || FAULT(c, "%s: %m", c->folder);
    for (int i = 0; i < n; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", c->folder, cases[i]->d_name);
        int m = *cases[i]->d_name == '.' ? -1 : scandir(path, &files, NULL, alphasort);
        for (int j = 0; j < m; j++) {
            char file[600];
            bool known = !strstr(files[j]->d_name, ".safetensors") ||
                         strstr(files[j]->d_name, ".sorted.safetensors");
            snprintf(file, sizeof file, "%s/%s", cases[i]->d_name, files[j]->d_name);
            for (size_t k = 0; k < c->lines; k++) known |= !strcmp(c->line[k].file, file);
            if (fine && !known) fine = FAULT(c, "%s: EXPECTED has no line for it", file);
            free(files[j]);
        }
        if (m >= 0) free(files);
        free(cases[i]);
    }
    if (n >= 0) free(cases);
    return fine;
}

static bool compare(struct check *c, const struct expected *e, const json_t *found)
{
    const json_t *counts = json_object_get(found, "verdicts");
    long long rows = json_integer_value(json_object_get(found, "rows"));
    if (rows != e->rows) return FAULT(c, "%s: %lld rows, expected %lld", e->file, rows, e->rows);
    for (int v = 0; v < VERDICTS; v++) {
        long long n = json_integer_value(json_object_get(counts, verdicts[v]));
        if (n != e->verdict[v])
            return FAULT(c, "%s: %lld rows %s, expected %lld", e->file, n, verdicts[v],
                         e->verdict[v]);
    }
    c->out->files++;
    c->out->rows += (size_t)rows;
    return true;
}

/* The first file that is not judged yet, and with it all of its case and profile. */
static bool judge_like(struct check *c, size_t first)
{
    const char *arguments[2 * MOST + 8] = {"verify"};
    char name[256], other[256], path[600], (*files)[600] = calloc(MOST, sizeof *files);
    size_t at[MOST], n = 0, count = 1;
    bool fine = split(c, c->line[first].file, name);
    path_of_case(c, name, path);
    arguments[count++] = path;
    for (size_t i = first; i < c->lines && fine; i++) {
        struct expected *e = &c->line[i];
        if (e->judged || !split(c, e->file, other) || strcmp(name, other) ||
            strcmp(e->profile, c->line[first].profile))
            continue;
        e->judged = true;
        snprintf(files[n], sizeof *files, "%s/%s", c->folder, e->file);
        arguments[count++] = "--observed";
        arguments[count++] = files[n];
        at[n++] = i;
    }
    arguments[count++] = "--json";
    arguments[count++] = "-";
    if (*c->line[first].profile) {
        arguments[count++] = "--profile";
        arguments[count++] = c->line[first].profile;
    }
    arguments[count] = NULL;
    if (fine) cli_run(NULL, arguments);
    if (fine && (cli_last.status < 0 || cli_last.status > 1))
        fine = FAULT(c, "%s: %.400s", name, cli_last.err);
    json_t *doc = fine ? cli_json() : NULL;
    for (size_t i = 0; i < n && fine; i++)
        fine = compare(c, &c->line[at[i]], json_array_get(json_object_get(doc, "sources"), i));
    json_decref(doc);
    free(files);
    return fine;
}

bool engine_records_check(const char *folder, struct engine_records *out)
{
    struct check *c = calloc(1, sizeof *c);
    *c = (struct check){.out = out, .folder = folder};
    *out = (struct engine_records){0};
    bool fine = read_expected(c, false) && find_files(c);
    for (size_t i = 0; i < c->lines && fine; i++) {
        struct mr_safetensors *st = NULL;
        if (!(fine = open_file(c, c->line[i].file, &st))) break;
        const char *profile = mr_safetensors_metadata(st, "profile");
        snprintf(c->line[i].profile, sizeof c->line[i].profile, "%s", profile ? profile : "");
        mr_safetensors_close(st);
    }
    for (size_t i = 0; i < c->lines && fine; i++)
        if (!c->line[i].judged) fine = judge_like(c, i);
    fine = fine && read_expected(c, true);
    free(c);
    return fine;
}
