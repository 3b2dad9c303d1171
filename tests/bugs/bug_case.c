#include "bug_case.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/num/num.h"
#include "../mutants/plain.h"

static enum mr_status text_of(const struct bug *b, const json_t *expect, const char *key,
                              bool needed, const char **out, struct mr_error *err)
{
    *out = json_string_value(json_object_get(expect, key));
    if (!*out && needed)
        return mr_fail(err, MR_ERR_MISSING, "%s: \"expect\": key \"%s\" is missing", b->path, key);
    return MR_OK;
}

static enum mr_status read_expect(struct bug *b, struct mr_error *err)
{
    const json_t *expect = json_object_get(mr_case_json(b->c), "expect");
    const char *mutant, *test;
    enum mr_status s = text_of(b, expect, "row", true, &b->row, err);
    if (!s) s = text_of(b, expect, "report", true, &b->report, err);
    if (!s) s = text_of(b, expect, "why", true, &b->why, err);
    if (!s) s = text_of(b, expect, "verdict", true, &b->verdict[0], err);
    if (!s) s = text_of(b, expect, "second_verdict", false, &b->verdict[1], err);
    if (!s) s = text_of(b, expect, "mutant", true, &mutant, err);
    if (!s) s = text_of(b, expect, "test", true, &test, err);
    if (s) return s;
    b->mutant = mutant_find(mutant);
    if (!b->mutant)
        return mr_fail(err, MR_ERR_VALUE, "%s: no mutant \"%s\"", b->path, mutant);
    if ((b->mutant->runs > 1) != (b->verdict[1] != NULL))
        return mr_fail(err, MR_ERR_VALUE, "%s: mutant %s has %d runs: \"second_verdict\" is %s",
                       b->path, mutant, b->mutant->runs, b->verdict[1] ? "too many" : "missing");
    b->test = engine_test_find(test);
    if (!b->test && strcmp(test, "none"))
        return mr_fail(err, MR_ERR_VALUE, "%s: no engine test \"%s\"", b->path, test);
    return MR_OK;
}

static float *widened(const struct mr_tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < t->ndim; i++) n *= (size_t)t->shape[i];
    float *out = malloc((n ? n : 1) * sizeof *out);
    if (out) mr_widen_f32(t->data, t->dtype, n, out);
    return out;
}

/* The dots in binary64, rounded once: their error is far below a rounding to binary32. */
static float *summed(const struct bug *b)
{
    const struct mutant_input *in = &b->input;
    size_t experts = (size_t)in->router->experts, hidden = (size_t)in->router->hidden;
    float *out = malloc((in->tokens * experts + 1) * sizeof *out);
    for (size_t t = 0; out && t < in->tokens; t++)
        for (size_t e = 0; e < experts; e++) {
            double sum = 0;
            for (size_t i = 0; i < hidden; i++)
                sum += (double)in->hidden[t * hidden + i] * (double)in->gate[e * hidden + i];
            out[t * experts + e] = (float)sum;
        }
    return out;
}

static enum mr_status read_input(struct bug *b, struct mr_error *err)
{
    struct mr_case_layer l;
    enum mr_status s = mr_case_get(b->c, 0, "all", &l, err);
    if (s) return s;
    struct mutant_input *in = &b->input;
    in->router = mr_case_router(b->c);
    bool given = mr_case_from_logits(b->c), bad = false;
    in->tokens = (size_t)(given ? l.logits.shape[0] : l.hidden.shape[0]);
    if (l.bias.data) bad |= !(in->bias = b->memory[0] = widened(&l.bias));
    if (given) {
        bad |= !(in->logits = b->memory[1] = widened(&l.logits));
    } else {
        bad |= !(in->hidden = b->memory[2] = widened(&l.hidden));
        bad |= !(in->gate = b->memory[3] = widened(&l.gate));
        if (!bad) bad |= !(in->logits = b->memory[1] = summed(b));
    }
    return bad ? mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", b->path) : MR_OK;
}

enum mr_status bug_load(const char *path, struct bug *out, struct mr_error *err)
{
    *out = (struct bug){0};
    snprintf(out->path, sizeof out->path, "%s", path);
    enum mr_status s = mr_case_load(path, NULL, &out->c, err);
    if (!s) s = read_expect(out, err);
    if (!s) s = read_input(out, err);
    if (s) bug_free(out);
    return s;
}

void bug_free(struct bug *bug)
{
    mr_case_free(bug->c);
    for (int i = 0; i < 4; i++) free(bug->memory[i]);
    *bug = (struct bug){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void bug_list_free(char **paths, size_t count)
{
    for (size_t i = 0; i < count; i++) free(paths[i]);
    free(paths);
}

enum mr_status bug_list(const char *folder, char ***paths, size_t *count, struct mr_error *err)
{
    enum { MOST = 256 };
    *count = 0;
    *paths = calloc(MOST, sizeof **paths);
    DIR *d = opendir(folder);
    if (!d || !*paths) {
        free(*paths);
        if (d) closedir(d);
        return mr_fail(err, MR_ERR_IO, "%s: %s", folder, strerror(errno));
    }
    for (struct dirent *e; *count < MOST && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n < 6 || strcmp(e->d_name + n - 5, ".json")) continue;
        char *path = malloc(strlen(folder) + n + 2);
        if (!path) break;
        sprintf(path, "%s/%s", folder, e->d_name);
        (*paths)[(*count)++] = path;
    }
    closedir(d);
    qsort(*paths, *count, sizeof **paths, by_name);
    return MR_OK;
}

void bug_answer_free(struct bug_answer *a)
{
    free(a->ids);
    free(a->weights);
    *a = (struct bug_answer){0};
}

enum mr_status bug_answer(const struct bug *bug, bool repaired, int run, struct bug_answer *out,
                          struct mr_error *err)
{
    size_t slots = bug->input.tokens * (size_t)bug->input.router->top_k;
    *out = (struct bug_answer){malloc((slots + 1) * sizeof *out->ids),
                               malloc((slots + 1) * sizeof *out->weights)};
    if (!out->ids || !out->weights) {
        bug_answer_free(out);
        return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory", bug->path);
    }
    bug->mutant->run(&bug->input, repaired, run, out->ids, out->weights);
    return MR_OK;
}

enum mr_status bug_write(const struct bug *bug, const struct bug_answer *answer, const char *path,
                         struct mr_error *err)
{
    uint64_t shape[2] = {bug->input.tokens, (uint64_t)bug->input.router->top_k};
    uint64_t bytes = shape[0] * shape[1] * 4;
    size_t ids, weights;
    struct mr_writer *w;
    enum mr_status s = mr_writer_new(path, &w, err);
    if (s) return s;
    s = mr_writer_metadata(w, "engine", "moeref tests/mutants", err);
    if (!s) s = mr_writer_metadata(w, "kernel", bug->mutant->name, err);
    if (!s)
        s = mr_writer_declare(w, "all.model.layers.0.mlp.topk_ids", MR_I32, 2, shape, &ids, err);
    if (!s)
        s = mr_writer_declare(w, "all.model.layers.0.mlp.topk_weights", MR_F32, 2, shape, &weights,
                              err);
    if (!s) s = mr_writer_begin(w, err);
    if (!s) s = mr_writer_put(w, ids, 0, answer->ids, bytes, err);
    if (!s) s = mr_writer_put(w, weights, 0, answer->weights, bytes, err);
    if (!s) return mr_writer_finish(w, err);
    mr_writer_abandon(w);
    return s;
}

/* Rank keys in binary32, for the test that calls near keys a tie. */
static void fill_keys(const struct mutant_input *in, float *keys)
{
    size_t experts = (size_t)in->router->experts;
    for (size_t i = 0; i < in->tokens * experts; i++) {
        float x = in->logits[i], bias = in->bias ? in->bias[i % experts] : 0;
        keys[i] = in->router->score == MR_SCORE_SIGMOID         ? plain_sigmoid(x) + bias
                  : in->router->score == MR_SCORE_SQRT_SOFTPLUS ? plain_softplus(x) + bias
                                                                : x;
    }
}

enum mr_status bug_engine_sees(const struct bug *bug, bool *out, struct mr_error *err)
{
    const struct mutant_input *in = &bug->input;
    size_t count = in->tokens * (size_t)in->router->experts + 1;
    struct bug_answer want = {0}, got = {0};
    float *keys = malloc(count * sizeof *keys), *logits[2] = {malloc(count * sizeof **logits),
                                                              malloc(count * sizeof **logits)};
    enum mr_status s = keys && logits[0] && logits[1] ? MR_OK : MR_ERR_MEMORY;
    if (s) mr_fail(err, s, "%s: out of memory", bug->path);
    *out = false;
    for (int run = 0; run < bug->mutant->runs && !s && bug->test; run++) {
        s = bug_answer(bug, true, run, &want, err);
        if (!s) s = bug_answer(bug, false, run, &got, err);
        if (s) break;
        fill_keys(in, keys);
        for (int i = 0; i < 2; i++) {
            if (bug->mutant->logits) bug->mutant->logits(in, i == 0, run, logits[i]);
            else memcpy(logits[i], in->logits, (count - 1) * sizeof *keys);
        }
        struct compared c = {in->tokens,  in->router->experts, in->router->top_k,
                             in->router->norm_topk_prob, want.ids, got.ids, want.weights,
                             got.weights, keys, logits[0], logits[1]};
        *out |= !bug->test->passes(&c);
        bug_answer_free(&want);
        bug_answer_free(&got);
    }
    bug_answer_free(&want);
    bug_answer_free(&got);
    free(keys);
    free(logits[0]);
    free(logits[1]);
    return s;
}
