/* check-bugs MOEREF CASES: every public report that shows in ids or weights, as a mutant's
 * output judged by `moeref verify`, and its repaired twin. Exit status 0: all as expected, no
 * false alarm. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bug_case.h"

extern char **environ;

/* Rows of the table of reports whose fault shows in what follows routing: alignment, permutation,
 * memory of the layer. */
static const struct {
    const char *row, *report;
} later[] = {
    {"15", "vllm#46408, #42034, #57787, aiter#4636"},
    {"16", "vllm#57823, #56900"},
    {"17", "vllm#55147, Tutel#339"},
    {"19", "sglang#3339, #3347, vllm#21079, sglang#12701"},
    {"27", "vllm#49783, #49784, sglang#32385, #32386"},
    {"29", "sglang#31475, #18213"},
};

struct tally {
    int cases, caught, twins, alarms;
};

static const char *moeref;
static char folder[64];

_Noreturn static void stop(const char *text)
{
    fprintf(stderr, "check-bugs: %s\n", text);
    exit(3);
}

/* Exit status of `moeref verify CASE --observed FILE`; its worst verdict in *worst. */
static int verify(const char *path, const char *observed, char worst[16])
{
    static const char *const names[] = {"malformed", "nonfinite", "wrong", "undecided", "rounding",
                                        "tie", "exact"};
    char report[PATH_MAX];
    snprintf(report, sizeof report, "%s/report.json", folder);
    unlink(report);
    const char *const arguments[] = {moeref, "verify", path,  "--observed", observed,
                                     "-q",   "--json", report, NULL};
    pid_t child;
    int status = 0;
    char *const *argv = (char *const *)(uintptr_t)arguments; /* posix_spawn does not write there */
    int error = posix_spawn(&child, moeref, NULL, NULL, argv, environ);
    if (error) stop(strerror(error));
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) stop(strerror(errno));
    strcpy(worst, "none");
    json_t *json = json_load_file(report, 0, NULL);
    const json_t *verdicts = json_object_get(json, "verdicts");
    for (int i = 0; i < 7 && !strcmp(worst, "none"); i++)
        if (json_integer_value(json_object_get(verdicts, names[i])) > 0) strcpy(worst, names[i]);
    json_decref(json);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Judges one answer of a mutant or of its twin. */
static int judge(const struct bug *bug, bool repaired, int run, struct bug_answer *answer,
                 char worst[16])
{
    struct mr_error err = {{0}};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/observed.%d.safetensors", folder, run);
    if (bug_answer(bug, repaired, run, answer, &err) || bug_write(bug, answer, path, &err))
        stop(err.text);
    int status = verify(bug->path, path, worst);
    unlink(path);
    return status;
}

/* 1: something is wrong; anything that may be right exits 0. */
static int expected_status(const char *verdict)
{
    return !strcmp(verdict, "malformed") || !strcmp(verdict, "nonfinite") ||
           !strcmp(verdict, "wrong");
}

static void check(const char *path, struct tally *t)
{
    struct mr_error err = {{0}};
    struct bug bug;
    if (bug_load(path, &bug, &err)) stop(err.text);
    struct bug_answer answer[2] = {{0}}, twin[2] = {{0}};
    char found[2][16] = {"", ""}, right[2][16] = {"", ""};
    bool caught = true, alarm = false, sees = false;
    for (int run = 0; run < bug.mutant->runs; run++) {
        int status = judge(&bug, false, run, &answer[run], found[run]);
        caught &= !strcmp(found[run], bug.verdict[run]) &&
                  status == expected_status(bug.verdict[run]);
        alarm |= judge(&bug, true, run, &twin[run], right[run]) != 0;
        t->twins++;
    }
    size_t bytes = bug.input.tokens * (size_t)bug.input.router->top_k * sizeof(int32_t);
    /* A fault that is a difference between two runs must be one, and not one of the twin's. */
    if (bug.mutant->runs > 1) {
        caught &= memcmp(answer[0].ids, answer[1].ids, bytes) != 0;
        alarm |= memcmp(twin[0].ids, twin[1].ids, bytes) != 0;
    }
    if (bug_engine_sees(&bug, &sees, &err)) stop(err.text);
    char verdict[40];
    bool pair = bug.mutant->runs > 1, fault = expected_status(bug.verdict[0]) || pair;
    snprintf(verdict, sizeof verdict, "%s%s%s", found[0], pair ? ", " : "", found[1]);
    printf("%-3s %-25s %-16s %-7s %-18s %-6s %s\n", bug.row, mr_case_name(bug.c), verdict,
           !caught ? "missed" : pair ? "differ" : fault ? "caught" : "cleared",
           bug.test ? bug.test->name : "none known",
           !bug.test ? "-" : !sees ? "misses" : fault ? "sees" : "alarms", bug.report);
    if (!caught)
        printf("    expected %s%s%s\n", bug.verdict[0], bug.verdict[1] ? ", " : "",
               bug.verdict[1] ? bug.verdict[1] : "");
    if (alarm) printf("    false alarm: the repaired twin is %s %s\n", right[0], right[1]);
    t->cases++;
    t->caught += caught;
    t->alarms += alarm;
    for (int run = 0; run < 2; run++) {
        bug_answer_free(&answer[run]);
        bug_answer_free(&twin[run]);
    }
    bug_free(&bug);
}

int main(int argc, char **argv)
{
    struct mr_error err = {{0}};
    struct tally t = {0};
    char **paths;
    size_t count;
    if (argc != 3) {
        fputs("usage: check-bugs MOEREF CASES\n", stderr);
        return 2;
    }
    moeref = argv[1];
    strcpy(folder, "/tmp/moeref-bugs-XXXXXX");
    if (!mkdtemp(folder)) stop(strerror(errno));
    if (bug_list(argv[2], &paths, &count, &err)) stop(err.text);
    printf("%-3s %-25s %-16s %-7s %-18s %-6s %s\n", "row", "case", "verdict", "verify",
           "engine's own test", "", "report");
    for (size_t i = 0; i < count; i++) check(paths[i], &t);
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        printf("%-3s %-79s %s\n", later[i].row, "later: layer", later[i].report);
    bug_list_free(paths, count);
    char report[PATH_MAX];
    snprintf(report, sizeof report, "%s/report.json", folder);
    unlink(report);
    rmdir(folder);
    fputs("\nverify: caught = the verdict that the case expects; cleared = rightly no fault;\n"
          "differ = two files, each judged as expected, whose ids differ (compared here).\n"
          "engine's own test: whether its comparison, with its tolerances, sees the fault on this\n"
          "input (which it may never have had); alarms = it calls wrong what is right.\n",
          stdout);
    printf("caught %d of %d\nfalse alarms %d of %d\n", t.caught, t.cases, t.alarms, t.twins);
    return t.caught == t.cases && t.alarms == 0 && t.cases > 0 ? 0 : 1;
}
