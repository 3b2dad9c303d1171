/* JUnit and TAP forms of a verify report, for CI. */
#include <inttypes.h>
#include <string.h>

#include "verify_report.h"

enum { SHOWN = 10 }; /* findings of a test case */

/* Text in XML: what XML 1.0 cannot hold at all becomes '?'. */
static void put_xml(const char *text, FILE *to)
{
    for (const char *p = text; *p; p++) {
        switch (*p) {
        case '&': fputs("&amp;", to); break;
        case '<': fputs("&lt;", to); break;
        case '>': fputs("&gt;", to); break;
        case '"': fputs("&quot;", to); break;
        default: fputc((unsigned char)*p < 0x20 ? '?' : *p, to);
        }
    }
}

/* One line of TAP: a '#' would begin a directive. */
static void put_tap(const char *text, FILE *to)
{
    for (const char *p = text; *p; p++)
        fputc((unsigned char)*p < 0x20 || *p == '#' ? '?' : *p, to);
}

static bool of_row(const struct mr_finding *f, const struct mr_verify_row *row)
{
    return f->layer == row->layer && f->source == row->source && !strcmp(f->phase, row->phase);
}

/* "12 exact, 1 wrong": those that are not zero. */
static void summary(const struct mr_verify_tally *t, char text[256])
{
    size_t used = 0;
    text[0] = '\0';
    for (int v = MR_VERDICT_COUNT - 1; v >= 0; v--)
        if (t->verdicts[v])
            used += (size_t)snprintf(text + used, 256 - used, "%s%" PRIu64 " %s", used ? ", " : "",
                                     t->verdicts[v], mr_verdict_name((enum mr_verdict)v));
    if (t->padding)
        used += (size_t)snprintf(text + used, 256 - used, "%s%" PRIu64 " padding", used ? ", " : "",
                                 t->padding);
    if (!used) snprintf(text, 256, "no rows");
}

/* The findings that fail a row, a line each, by whichever writer. */
static void put_findings(const struct mr_verify_report *r, const struct mr_verify_row *row,
                         const char *before, void (*put)(const char *, FILE *), FILE *to)
{
    uint64_t shown = 0, all = mr_tally_failures(&row->tally, r->strict);
    for (size_t i = 0; i < r->worst.count && shown < SHOWN; i++) {
        const struct mr_finding *f = &r->worst.item[i];
        if (!of_row(f, row) || !mr_verdict_fails(f->judgement.verdict, r->strict)) continue;
        char text[MR_FINDING_TEXT];
        mr_finding_text(f, text);
        fprintf(to, "%stoken %zu: %s: ", before, f->token, mr_verdict_name(f->judgement.verdict));
        put(text, to);
        fputc('\n', to);
        shown++;
    }
    if (all > shown) fprintf(to, "%s%" PRIu64 " more\n", before, all - shown);
}

enum mr_status mr_verify_junit(const struct mr_verify_report *r, FILE *to)
{
    size_t failures = 0;
    for (size_t i = 0; i < r->row_count; i++)
        failures += mr_tally_failures(&r->row[i].tally, r->strict) != 0;
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"moeref verify: ", to);
    put_xml(r->case_name, to);
    fprintf(to, "\" tests=\"%zu\" failures=\"%zu\" errors=\"0\">\n", r->row_count, failures);
    for (size_t i = 0; i < r->row_count; i++) {
        const struct mr_verify_row *row = &r->row[i];
        char text[256];
        summary(&row->tally, text);
        fputs(" <testcase classname=\"", to);
        put_xml(r->source[row->source], to);
        fputs("\" name=\"", to);
        put_xml(row->phase, to);
        fprintf(to, " layer %d\">\n", row->layer);
        if (mr_tally_failures(&row->tally, r->strict)) {
            fprintf(to, "  <failure message=\"%s\">\n", text);
            put_findings(r, row, "", put_xml, to);
            fputs("  </failure>\n", to);
        } else {
            fprintf(to, "  <system-out>%s</system-out>\n", text);
        }
        fputs(" </testcase>\n", to);
    }
    fputs("</testsuite>\n", to);
    return ferror(to) ? MR_ERR_IO : MR_OK;
}

enum mr_status mr_verify_tap(const struct mr_verify_report *r, FILE *to)
{
    fprintf(to, "TAP version 13\n1..%zu\n", r->row_count);
    for (size_t i = 0; i < r->row_count; i++) {
        const struct mr_verify_row *row = &r->row[i];
        char text[256];
        summary(&row->tally, text);
        bool failed = mr_tally_failures(&row->tally, r->strict) != 0;
        fprintf(to, "%sok %zu - ", failed ? "not " : "", i + 1);
        put_tap(row->phase, to);
        fprintf(to, " layer %d of ", row->layer);
        put_tap(r->source[row->source], to);
        fprintf(to, ": %s\n", text);
        if (failed) put_findings(r, row, "# ", put_tap, to);
    }
    return ferror(to) ? MR_ERR_IO : MR_OK;
}
