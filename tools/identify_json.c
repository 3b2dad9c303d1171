/* The JSON of `moeref identify`. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../ref/moeref.h"
#include "common.h"
#include "identify_run.h"

void identify_json_begin(struct identify_json *json)
{
    *json = (struct identify_json){.spool = tmpfile()};
    if (!json->spool) die(3, "a temporary file: %m");
}

/* Lines are letters, digits and signs: there is nothing to escape. */
static void put_lines(FILE *f, const char *key, const struct mr_identified *found, bool first_only)
{
    fprintf(f, ",\n \"%s\": [", key);
    for (size_t i = 0, n = 0; i < found->lines; i++) {
        if (first_only && i && found->line[i].sum == found->line[i - 1].sum) continue;
        fprintf(f, "%s\n  \"%s\"", n++ ? "," : "", found->line[i].text);
    }
    fputs("]", f);
}

void identify_json_add(struct identify_json *json, const struct recording *r)
{
    const struct mr_identified *f = &r->found;
    FILE *to = json->spool;
    json_t *head = json_pack(
        "{s:s, s:s, s:i, s:I, s:I, s:I, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:s?}", "name", r->name,
        "phase", r->phase, "layer", r->layer, "rows", (json_int_t)r->rows, "experts",
        (json_int_t)r->experts, "terms", (json_int_t)r->terms, "identified",
        recording_identified(r), "everything", f->everything, "unverified", f->unverified,
        "checked", (json_int_t)f->checked, "not_finite", (json_int_t)f->not_finite, "mismatches",
        (json_int_t)f->mismatches, "searched", (json_int_t)f->searched, "nearest",
        *f->nearest ? f->nearest : NULL);
    char *text = head ? json_dumps(head, JSON_INDENT(1) | JSON_ENSURE_ASCII) : NULL;
    if (!text) die(4, "out of memory");
    *strrchr(text, '\n') = 0; /* the brace is closed below */
    fprintf(to, "%s%s", json->count++ ? ",\n" : "", text);
    put_lines(to, "lines", f, false);
    put_lines(to, "sums", f, true);
    fputs("}", to);
    free(text);
    json_decref(head);
}

static bool copy(FILE *from, FILE *to)
{
    char block[65536];
    size_t n;
    if (fflush(from) || fseek(from, 0, SEEK_SET)) return false;
    while ((n = fread(block, 1, sizeof block, from)) > 0)
        if (fwrite(block, 1, n, to) != n) return false;
    return !ferror(from);
}

void identify_json_end(struct identify_json *json, const struct identify_report *report,
                       const char *path)
{
    bool console = !strcmp(path, "-");
    char temporary[PATH_MAX + 32];
    snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid());
    FILE *f = console ? stdout : fopen(temporary, "w");
    if (!f) die(3, "%s: cannot create: %m", path);
    json_t *name = json_string(report->case_name);
    char *quoted = name ? json_dumps(name, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
    if (!quoted) die(4, "out of memory");
    fprintf(f, "{\"moeref\": {\"version\": \"%s\"}, \"command\": \"identify\", \"case\": %s,\n"
               "\"recordings\": [\n", MR_VERSION, quoted);
    bool bad = !copy(json->spool, f);
    fprintf(f, "\n], \"unidentified\": %zu}\n", report->unidentified);
    bad |= fflush(f) || ferror(f);
    if (!console) bad |= fclose(f) != 0;
    if (bad || (!console && rename(temporary, path))) {
        int why = errno;
        if (!console) unlink(temporary);
        die(3, "%s: cannot write JSON: %s", console ? "standard output" : path, strerror(why));
    }
    free(quoted);
    json_decref(name);
    fclose(json->spool);
}
