/* moeref reveal: the order in which a plugin, or a line as we replay it, adds up. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/arith/tree_line.h"
#include "commands.h"
#include "common.h"
#include "reveal_run.h"

const char help_reveal[] =
    "usage: moeref reveal --plugin F.so --terms N [--symbol S] [--operands T] [options]\n"
    "       moeref reveal --arith A --terms N [options]\n"
    "\n"
    "Finds the tree of additions behind a sum of N terms, from its results alone: two terms are\n"
    "+big and -big, all others are small, and what comes out counts the terms that were added\n"
    "after the two had met (FPRev, arXiv:2411.00442). Prints the tree and, where one has it, the\n"
    "arithmetic line of that tree. Sums whose order depends on values, or changes from run to\n"
    "run, are refused.\n"
    "\n"
    "  --plugin F.so     a shared library with a C function\n"
    "                      int moeref_sum(const float *rows, size_t count, size_t terms,\n"
    "                                     float *out)\n"
    "                    that sums each row (ref/arith/reveal_plugin.h). It runs in a process of\n"
    "                    its own: a crash is an error message\n"
    "  --symbol S        the function's name (default moeref_sum)\n"
    "  --operands T      type of the terms: fp32 bf16 tf32 fp16 (default fp32); fp16-fp16 for an\n"
    "                    fp16 accumulator\n"
    "  --start           the last term is where the accumulator starts: printed as c\n"
    "  --seconds N       limit for one call of the plugin (default 10)\n"
    "  --times N         each call is made N times and must give the same bits (default 2)\n"
    "  --arith A         reveals the replay of a line, which must have the line's own tree\n"
    "  --terms N         1 to 1048576\n"
    "  --rows N          most rows a call (default: as many as 8 MiB hold)\n"
    "  --probes N        further random rows that the tree must foretell (default 64)\n"
    "  --nested          the whole tree as nested brackets, too\n"
    "  --lines N         most lines of the tree (default 40)\n"
    "  --json F          JSON to F ('-': standard output, and no text)\n"
    "  -q                no text\n"
    "\n"
    "Masks do not tell fma from a product rounded first, promote from every, the width and the\n"
    "rounding of a fused step. What they leave open 'moeref identify' or 'moeref replay' decide\n"
    "from real logits.\n"
    "\n"
    "Exit status: 0 revealed, 1 the replay of a line has another tree, 3 refused.\n"
    "\n"
    "example: moeref reveal --arith fma/deal:6x8 --terms 4096\n"
    "         moeref reveal --plugin ./sum.so --terms 1000 --nested\n";

enum {
    OPT_PLUGIN = 256, OPT_SYMBOL, OPT_OPERANDS, OPT_START, OPT_SECONDS, OPT_TIMES, OPT_ARITH,
    OPT_TERMS, OPT_ROWS, OPT_PROBES, OPT_NESTED, OPT_LINES, OPT_JSON
};

static const struct option long_options[] = {
    {"plugin", required_argument, NULL, OPT_PLUGIN},
    {"symbol", required_argument, NULL, OPT_SYMBOL},
    {"operands", required_argument, NULL, OPT_OPERANDS},
    {"start", no_argument, NULL, OPT_START},
    {"seconds", required_argument, NULL, OPT_SECONDS},
    {"times", required_argument, NULL, OPT_TIMES},
    {"arith", required_argument, NULL, OPT_ARITH},
    {"terms", required_argument, NULL, OPT_TERMS},
    {"rows", required_argument, NULL, OPT_ROWS},
    {"probes", required_argument, NULL, OPT_PROBES},
    {"nested", no_argument, NULL, OPT_NESTED},
    {"lines", required_argument, NULL, OPT_LINES},
    {"json", required_argument, NULL, OPT_JSON},
    {0}};

struct arguments {
    const char *plugin, *symbol, *operands, *arith, *json;
    size_t terms, rows, probes, lines;
    int seconds, times;
    bool start, nested, quiet;
    char resolved[PATH_MAX]; /* of an output that is a link */
};

static void parse(int argc, char **argv, struct arguments *a)
{
    int c;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":q", long_options, NULL)) != -1) {
        switch (c) {
        case 'q': a->quiet = true; break;
        case OPT_PLUGIN: a->plugin = optarg; break;
        case OPT_SYMBOL: a->symbol = optarg; break;
        case OPT_OPERANDS: a->operands = optarg; break;
        case OPT_START: a->start = true; break;
        case OPT_SECONDS: a->seconds = (int)option_number("--seconds", optarg, 1, 86400); break;
        case OPT_TIMES: a->times = (int)option_number("--times", optarg, 1, 1000); break;
        case OPT_ARITH: a->arith = optarg; break;
        case OPT_TERMS: a->terms = (size_t)option_number("--terms", optarg, 1, 1 << 20); break;
        case OPT_ROWS: a->rows = (size_t)option_number("--rows", optarg, 1, 65536); break;
        case OPT_PROBES: a->probes = (size_t)option_number("--probes", optarg, 1, 65536); break;
        case OPT_NESTED: a->nested = true; break;
        case OPT_LINES: a->lines = (size_t)option_number("--lines", optarg, 1, 1 << 24); break;
        case OPT_JSON: a->json = optarg; break;
        default: bad_option("reveal", c, argv, optind);
        }
    }
    /* What would be ignored is refused. */
    if (argc != optind) die(2, "reveal: '%s' is no option (see 'moeref help reveal')", argv[optind]);
    if (!a->plugin == !a->arith) die(2, "reveal: expected one of --plugin F.so and --arith A");
    if (!a->terms) die(2, "reveal: expected --terms N");
    if (a->arith && (a->symbol || a->operands || a->start || a->seconds))
        die(2, "reveal: --symbol, --operands, --start and --seconds belong to --plugin");
    if (a->start && a->terms < 2) die(2, "reveal: --start needs two terms");
    if (a->json && strcmp(a->json, "-")) a->json = output_path("--json", a->json, a->resolved);
}

static void reveal_line(const struct arguments *a, struct mr_reveal_options *o,
                        struct reveal_report *report)
{
    struct mr_error err = {{0}};
    struct replayed_sum r;
    struct mr_tree own;
    enum mr_status status = mr_arith_parse(a->arith, &r.arith, &err);
    if (status) die_of(status, &err);
    if (r.arith.sum.leaf == MR_LEAF_EXACT)
        die(2, "reveal: --arith %s: the exact sum has no order; expected a sum such as "
               "fma/deal:6x8", a->arith);
    status = mr_tree_of_sum(&r.arith.sum, a->terms, &own, &err);
    if (status) die_of(status, &err);
    report->operands = replay_operands(&r.arith, o);
    r.ones = need(a->terms, sizeof *r.ones);
    for (size_t i = 0; i < a->terms; i++) r.ones[i] = 1;
    const struct mr_summer summer = {replay_sum, &r};
    status = mr_reveal(&summer, a->terms, o, &report->tree, &report->stats, &err);
    if (status) die_of(status, &err);
    report->same = mr_tree_same(&own, &report->tree);
    mr_tree_free(&own);
    free(r.ones);
}

static void reveal_plugin(const struct arguments *a, struct mr_reveal_options *o,
                          struct reveal_report *report)
{
    struct mr_error err = {{0}};
    report->symbol = a->symbol ? a->symbol : "moeref_sum";
    report->operands = a->operands ? a->operands : "fp32";
    if (!mr_reveal_masks(report->operands, o) || *report->operands == 'e')
        die(2, "reveal: --operands %s: expected fp32, bf16, tf32, fp16 or fp16-fp16", a->operands);
    struct plugin *plugin = plugin_open(a->plugin, report->symbol, o->rows * a->terms, o->rows,
                                        a->seconds ? a->seconds : 10);
    const struct mr_summer summer = {plugin_sum, plugin};
    enum mr_status status = mr_reveal(&summer, a->terms, o, &report->tree, &report->stats, &err);
    plugin_close(plugin);
    if (status) die_of(status, &err);
}

int cmd_reveal(int argc, char **argv)
{
    struct arguments a = {.lines = 40};
    parse(argc, argv, &a);
    struct reveal_report report = {.source = a.arith ? a.arith : a.plugin, .terms = a.terms};
    report.start = a.start ? a.terms - 1 : a.terms;
    struct mr_reveal_options o = {.seed = 1, .probes = a.probes, .rows = a.rows};
    o.times = a.times ? a.times : a.plugin ? 2 : 1;
    if (!o.rows) o.rows = (8 << 20) / sizeof(float) / a.terms;
    if (!o.rows) o.rows = 1;
    if (a.plugin) reveal_plugin(&a, &o, &report);
    else reveal_line(&a, &o, &report);
    struct mr_error err = {{0}};
    /* A tree with a start is no sum from +0, as lines are. */
    enum mr_status status = a.start ? MR_OK
                                    : mr_tree_lines(&report.tree, report.operands, report.line,
                                                    REVEAL_LINES, &report.lines, &err);
    if (status) die_of(status, &err);
    if (a.json) write_reveal(&report, a.json);
    if (!a.quiet && !(a.json && !strcmp(a.json, "-"))) print_reveal(&report, a.lines, a.nested);
    mr_tree_free(&report.tree);
    return a.arith && !report.same ? 1 : 0;
}
