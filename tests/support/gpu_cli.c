#include "gpu_cli.h"

#include <check.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void beside(const char *name, char path[PATH_MAX])
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    ck_assert_int_gt(n, 0);
    self[n] = '\0';
    ck_assert_int_lt(snprintf(path, PATH_MAX, "%s/%s", dirname(self), name), PATH_MAX);
}

void gpu_run(const char *program, const char *const arguments[])
{
    char path[PATH_MAX], *before = getenv("MOEREF_BIN"), *kept = before ? strdup(before) : NULL;
    beside(program, path);
    setenv("MOEREF_BIN", path, 1);
    cli_run(NULL, arguments);
    if (kept) setenv("MOEREF_BIN", kept, 1);
    else unsetenv("MOEREF_BIN");
    free(kept);
}

const char *gpu_plugin(const char *name)
{
    static char path[8][PATH_MAX];
    static unsigned turn;
    char file[64];
    snprintf(file, sizeof file, "gpu/%s.so", name);
    turn++;
    beside(file, path[turn % 8]);
    return path[turn % 8];
}

void gpu_refused(int status, const char *word, const char *second)
{
    const char *err = cli_last.err, *line = strchr(err, '\n');
    ck_assert_msg(cli_last.status == status, "status %d, signal %d, expected %d: %s",
                  cli_last.status, cli_last.signal, status, err);
    ck_assert_msg(cli_last.out_bytes == 0, "output in spite of: %s", err);
    ck_assert_msg(strncmp(err, "moeref-gpu: ", 12) == 0, "not in our words: %s", err);
    ck_assert_msg(line && line[1] == '\0', "expected one line: %s", err);
    ck_assert_msg(!word || strstr(err, word), "no '%s' in: %s", word, err);
    ck_assert_msg(!second || strstr(err, second), "no '%s' in: %s", second, err);
}

json_t *gpu_entry(const json_t *doc, const char *kernel, int rows)
{
    json_t *entry;
    size_t i;
    json_array_foreach(json_object_get(doc, "kernels"), i, entry) {
        if (!strcmp(gpu_word(entry, "kernel"), kernel) && gpu_int(entry, "rows") == rows)
            return entry;
    }
    ck_abort_msg("no entry of %s at %d rows", kernel, rows);
    return NULL;
}

json_int_t gpu_int(const json_t *entry, const char *key)
{
    json_t *v = json_object_get(entry, key);
    ck_assert_msg(v != NULL, "no key '%s'", key);
    return json_is_null(v) ? -1 : json_integer_value(v);
}

const char *gpu_word(const json_t *entry, const char *key)
{
    json_t *v = json_object_get(entry, key);
    ck_assert_msg(v != NULL, "no key '%s'", key);
    return json_is_string(v) ? json_string_value(v) : "";
}

json_int_t gpu_verdict(const json_t *entry, const char *name)
{
    json_t *v = json_object_get(entry, "verdicts");
    ck_assert(v != NULL);
    return json_is_null(v) ? -1 : json_integer_value(json_object_get(v, name));
}
