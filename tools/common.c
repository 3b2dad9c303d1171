#include "common.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../ref/route/blas.h"

const char *program_name = "moeref";

void die(int status, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args); /* first: format may hold %m */
    va_end(args);
    for (char *p = text; *p; p++)
        if (iscntrl((unsigned char)*p)) *p = '?'; /* a path may hold anything */
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", program_name, text);
    exit(status);
}

void die_of(enum mr_status status, const struct mr_error *err)
{
    die(mr_status_exit(status), "%s", err->text[0] ? err->text : mr_status_name(status));
}

void *need(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);
    if (!p) die(4, "out of memory");
    return p;
}

long option_number(const char *option, const char *text, long low, long high)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || end == text || *end || isspace((unsigned char)*text) || v < low || v > high)
        die(2, "%s %s: expected an integer from %ld to %ld", option, text, low, high);
    return v;
}

/* Reads one item "N" or "N-M"; false if malformed. */
static bool next_range(const char **at, long *low, long *high)
{
    char *end;
    if (!isdigit((unsigned char)**at)) return false;
    *low = *high = strtol(*at, &end, 10);
    if (*end == '-') {
        if (!isdigit((unsigned char)end[1])) return false;
        *high = strtol(end + 1, &end, 10);
    }
    if (*end && *end != ',') return false;
    if (*end == ',' && !end[1]) return false;
    *at = *end ? end + 1 : end;
    return *low <= *high;
}

void check_layers(const char *list)
{
    const char *at = list;
    long low, high;
    if (!*at) die(2, "--layers: empty list");
    while (*at) {
        const char *item = at;
        if (!next_range(&at, &low, &high))
            die(2, "--layers %s: expected numbers and ranges as in 1,3-5, at '%s'", list, item);
    }
}

void need_layers(const struct mr_case *c, const char *list)
{
    long low, high;
    while (list && *list && next_range(&list, &low, &high)) {
        for (long n = low; n <= high; n++) {
            bool known = false;
            for (size_t i = 0; i < mr_case_layer_count(c); i++)
                known |= mr_case_layer_number(c, i) == n;
            if (!known) die(3, "%s: no layer %ld (asked for by --layers)", mr_case_name(c), n);
        }
    }
}

bool layer_listed(const char *list, int layer)
{
    long low, high;
    if (!list) return true;
    while (*list)
        if (next_range(&list, &low, &high) && low <= layer && layer <= high) return true;
    return false;
}

static const char *kind(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR: return "a folder";
    case S_IFIFO: return "a FIFO";
    case S_IFCHR: return "a character device";
    case S_IFBLK: return "a block device";
    case S_IFSOCK: return "a socket";
    default: return "no regular file";
    }
}

const char *output_path(const char *option, const char *path, char resolved[PATH_MAX])
{
    struct stat st, console;
    if (!*path) die(2, "%s: expected a path, found an empty one", option);
    if (!stat(path, &st)) {
        if (!S_ISREG(st.st_mode))
            die(3, "%s %s: expected a regular file or nothing there, found %s", option, path,
                kind(st.st_mode));
        if (!fstat(STDOUT_FILENO, &console) && st.st_dev == console.st_dev &&
            st.st_ino == console.st_ino)
            die(3, "%s %s: this is where standard output goes", option, path);
        if (!realpath(path, resolved)) die(3, "%s %s: %m", option, path);
        path = resolved;
    } else if (errno != ENOENT) {
        die(3, "%s %s: cannot create: %m", option, path);
    }
    char *copy = strdup(path);
    if (!copy) die(4, "out of memory");
    if (access(dirname(copy), W_OK | X_OK)) die(3, "%s %s: cannot create: %m", option, path);
    free(copy);
    return path;
}

/* getopt_long tells its failures apart by ':' and optopt only: a long option that is not known or
 * not unique leaves optopt 0, one that takes no value leaves its own. Within a cluster of letters
 * index does not yet point behind it. */
void bad_option(const char *command, int c, char **argv, int index)
{
    const char *at = index > 0 ? argv[index - 1] : "", *us = program_name;
    if (c == ':') die(2, "%s: %s needs a value (see '%s help %s')", command, at, us, command);
    if (optopt >= 256)
        die(2, "%s: %s: this option takes no value (see '%s help %s')", command, at, us, command);
    if (optopt)
        die(2, "%s: unknown option -%c (see '%s help %s')", command, optopt, us, command);
    die(2, "%s: unknown or ambiguous option %s (see '%s help %s')", command, at, us, command);
}

void use_better_blas(char **argv)
{
    const char *core = mr_openblas_better_core();
    if (!core || setenv("OPENBLAS_CORETYPE", core, 1)) return;
    execv("/proc/self/exe", argv); /* on failure: slower, and as right */
    unsetenv("OPENBLAS_CORETYPE");
}
