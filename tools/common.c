#include "common.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void die(int status, const char *format, ...)
{
    va_list args;
    fflush(stdout);
    fputs("moeref: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
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

bool layer_listed(const char *list, int layer)
{
    long low, high;
    if (!list) return true;
    while (*list)
        if (next_range(&list, &low, &high) && low <= layer && layer <= high) return true;
    return false;
}

void bad_option(const char *command, int c, char **argv, int index)
{
    const char *at = index > 0 ? argv[index - 1] : "";
    if (c == ':')
        die(2, "%s: %s needs a value (see 'moeref help %s')", command, at, command);
    if (optopt && optopt < 256 && at[0] == '-' && at[1] != '-')
        die(2, "%s: unknown option -%c (see 'moeref help %s')", command, optopt, command);
    die(2, "%s: unknown or ambiguous option %s (see 'moeref help %s')", command, at, command);
}
