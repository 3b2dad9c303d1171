/* moeref profiles: how engines compute a router, side by side, and where each fact was read. */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "../ref/io/profile_record.h"
#include "../ref/io/report.h"
#include "../ref/moeref.h"
#include "../ref/route/profile.h"
#include "case_arguments.h"
#include "commands.h"
#include "common.h"
#include "verify_profile.h"

const char help_profiles[] =
    "usage: moeref profiles [--json F] [-v] [-q]\n"
    "       moeref profiles CASE --observed F [--profile P] [--kernel K]\n"
    "\n"
    "Shows how engines compute a router: a table for each kind of router, a column for each\n"
    "kernel that serves it, a line for each fact. Facts hold for the commits at which they were\n"
    "read; a kernel that was not compared with its engine on a GPU is marked 'unverified'.\n"
    "With CASE: compares what a kernel gave for the case's logits with what the profile makes of\n"
    "them: sets of experts, their order, all bits of all weights. Exit status 1 if one differs.\n"
    "\n"
    "  -v         under each table the source of every fact: file @ commit\n"
    "  --json F   write JSON to F ('-': standard output, and no table)\n"
    "  -q         no table\n"
    "  --observed F   safetensors, as for verify, with the rows of a launch in its metadata \"rows\"\n"
    "  --profile P    compare with this profile; else with that in F's metadata\n"
    "  --kernel K     with this kernel's row; else with the first that serves the router\n"
    "\n"
    "'moeref route CASE --profiles' shows where they part on an input.\n"
    "\n"
    "example: moeref profiles -v\n"
    "         moeref profiles glm-5.3-flash.fp32-logits.json --observed k.safetensors --profile "
    "vllm\n";

enum { COLUMNS = 6, LABEL = 13, WIDTH = 17 }; /* 13 + 6 * 17 = 115 characters at most */

/* A long name is cut; its whole is in -v and JSON. */
static void put(const char *text, bool last)
{
    if (last) printf(" %.*s\n", WIDTH - 1, text);
    else printf(" %-*.*s", WIDTH - 1, WIDTH - 1, text);
}

/* Sources of a column: cells that share one are listed together. */
static void print_sources(const struct mr_profile_row *row)
{
    printf("  %s, %s: %s\n", row->profile, row->kernel, row->source);
    if (row->when) printf("    serves: %s\n", row->when);
    printf("    checked: %s\n", row->checked ? row->checked : MR_UNVERIFIED "nothing recorded");
    for (int c = 0; c < MR_CELL_COUNT; c++)
        if (row->cell[c].source)
            printf("    %s (%s): %s\n", mr_cell_name(c), mr_cell_text(c, row->cell[c].value),
                   row->cell[c].source);
}

static void print_columns(const struct mr_profile_row *const *row, int count)
{
    printf("%-*s", LABEL, "");
    for (int i = 0; i < count; i++) put(row[i]->profile, i + 1 == count);
    printf("%-*s", LABEL, "kernel");
    for (int i = 0; i < count; i++) put(row[i]->kernel, i + 1 == count);
    for (int c = 0; c < MR_CELL_COUNT; c++) {
        printf("%-*s", LABEL, mr_cell_name(c));
        for (int i = 0; i < count; i++)
            put(mr_cell_text(c, row[i]->cell[c].value), i + 1 == count);
    }
    printf("%-*s", LABEL, "on hardware");
    for (int i = 0; i < count; i++)
        put(mr_profile_compared(row[i]) ? "compared" : "unverified", i + 1 == count);
}

static void print_kind(enum mr_profile_kind kind, bool verbose)
{
    const struct mr_profile_row *row[64];
    int count = 0;
    for (size_t i = 0; mr_profile_row_at(i) && count < 64; i++)
        if (mr_profile_row_at(i)->kind == kind) row[count++] = mr_profile_row_at(i);
    printf("%s\n", mr_profile_kind_name(kind));
    for (int i = 0; i < count; i += COLUMNS) {
        print_columns(row + i, count - i < COLUMNS ? count - i : COLUMNS);
        putchar('\n');
    }
    for (int i = 0; i < count && verbose; i++) print_sources(row[i]);
    if (verbose) putchar('\n');
}

static json_t *row_json(const struct mr_profile_row *row)
{
    json_t *cells = json_object();
    for (int c = 0; c < MR_CELL_COUNT; c++)
        json_object_set_new(cells, mr_cell_name(c),
                            json_pack("{s:s, s:s}", "value",
                                      mr_cell_text(c, row->cell[c].value), "source",
                                      mr_cell_source(row, c)));
    return json_pack("{s:s, s:s, s:s, s:s?, s:b, s:s?, s:o}", "profile", row->profile, "kind",
                     mr_profile_kind_name(row->kind), "kernel", row->kernel, "serves", row->when,
                     "verified", mr_profile_compared(row), "checked", row->checked, "cells", cells);
}

static json_t *all_json(void)
{
    json_t *profiles = json_array(), *rows = json_array();
    for (size_t i = 0; mr_profile_at(i); i++)
        json_array_append_new(profiles, json_pack("{s:s, s:s, s:s?}", "name",
                                                  mr_profile_at(i)->name, "about",
                                                  mr_profile_at(i)->about, "base",
                                                  mr_profile_at(i)->base));
    for (size_t i = 0; mr_profile_row_at(i); i++)
        json_array_append_new(rows, row_json(mr_profile_row_at(i)));
    return json_pack("{s:{s:s}, s:s, s:o, s:o}", "moeref", "version", MR_VERSION, "command",
                     "profiles", "profiles", profiles, "rows", rows);
}

/* The exit status: 0 if the recording has the row's bits, 1 if not. */
static int compare(const char *path, const char *observed, const char *name, const char *kernel,
                   bool quiet)
{
    struct mr_error err = {{0}};
    struct mr_safetensors *file;
    const struct mr_profile_row *row;
    struct mr_profile_record r;
    const struct mr_profile *profile = name ? profile_named(name) : NULL; /* before anything is opened */
    struct mr_case *c = open_case("profiles", path, NULL, &(struct mr_case_options){.seed = -1});
    enum mr_status status = mr_safetensors_open(observed, &file, &err);
    if (status) die_of(status, &err);
    if (!name) name = mr_safetensors_metadata(file, "profile");
    if (!name) die(2, "%s: names no profile in its metadata: say --profile P", observed);
    if (!profile) profile = profile_named(name);
    status = mr_profile_kernel(profile, kernel, mr_case_router(c), false, &row, &err);
    if (!status) status = mr_profile_record(c, file, row, &r, &err);
    if (status) die_of(status, &err);
    bool agrees = mr_profile_record_agrees(row, &r);
    if (!quiet) {
        printf("%s, %s: %zu rows: %zu with the same experts, %zu in the same order", row->profile,
               row->kernel, r.tokens, r.sets, r.ordered);
        if (r.undefined) printf(", %zu at a tie that the engine does not decide", r.undefined);
        printf("; %zu of %zu weights with the same bits\n", r.same, r.weights);
        if (!agrees) printf("first: %s\n", r.first);
    }
    mr_safetensors_close(file);
    mr_case_free(c);
    return !agrees;
}

int cmd_profiles(int argc, char **argv)
{
    static const struct option options[] = {{"json", required_argument, NULL, 'j'},
                                            {"observed", required_argument, NULL, 'o'},
                                            {"profile", required_argument, NULL, 'p'},
                                            {"kernel", required_argument, NULL, 'k'},
                                            {0}};
    const char *json = NULL, *observed = NULL, *profile = NULL, *kernel = NULL;
    bool quiet = false, verbose = false;
    int c;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":qv", options, NULL)) != -1) {
        if (c == 'j') json = optarg;
        else if (c == 'o') observed = optarg;
        else if (c == 'p') profile = optarg;
        else if (c == 'k') kernel = optarg;
        else if (c == 'q') quiet = true;
        else if (c == 'v') verbose = true;
        else bad_option("profiles", c, argv, optind);
    }
    if (argc - optind == 1 && observed && !json && !verbose)
        return compare(argv[optind], observed, profile, kernel, quiet);
    if (argc != optind)
        die(2, "profiles: takes no arguments, or one CASE and --observed F, without --json and -v (see "
            "'moeref help profiles')");
    if (observed || profile || kernel)
        die(2, "profiles: --%s goes with a CASE (see 'moeref help profiles')",
            observed ? "observed" : profile ? "profile" : "kernel");
    char resolved[PATH_MAX];
    if (json && strcmp(json, "-")) json = output_path("--json", json, resolved);
    if (json) {
        struct mr_error err = {{0}};
        json_t *doc = all_json();
        if (!doc) die(4, "out of memory");
        enum mr_status status = mr_json_write(doc, json, &err);
        json_decref(doc);
        if (status) die_of(status, &err);
    }
    if (quiet || (json && !strcmp(json, "-"))) return 0;
    for (size_t i = 0; mr_profile_at(i); i++)
        printf("%-*s %s\n", LABEL, mr_profile_at(i)->name, mr_profile_at(i)->about);
    putchar('\n');
    for (int kind = 0; kind < MR_KIND_COUNT; kind++) print_kind(kind, verbose);
    puts("Where a tie is undefined moeref assumes the lowest id. Scalar functions are CUDA's, bit for "
         "bit.");
    return 0;
}
