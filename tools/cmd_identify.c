/* moeref identify CASE: options, then identify_run.c, then the outputs. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "case_arguments.h"
#include "commands.h"
#include "common.h"
#include "identify_run.h"

const char help_identify[] =
    "usage: moeref identify CASE [options]\n"
    "       moeref identify --config F --gate F[:TENSOR] [--gate-bias F[:TENSOR]]\n"
    "                       --hidden F[:TENSOR] --logits F[:TENSOR] [options]\n"
    "\n"
    "Which arithmetic made these logits? From hidden states, gate weight and observed logits alone,\n"
    "searches a family of arithmetics and prints every line that gives all of the bits (see\n"
    "docs/arithmetic.md for lines, and 'moeref help replay'). A line is followed by other lines\n"
    "that are the same sum for this many terms. Of logits that no line gives, the nearest line.\n"
    "\n"
    "  --layer N         only this layer; with plain files: whose default tensor names to look for\n"
    "  --layers L        only these, as in 1,3-5\n"
    "  --phase P         only this phase of the case\n"
    "  --capture F       read the captured tensors from F instead of the case's files\n"
    "  --threads N       same bytes for every N (default: as many as there are processors)\n"
    "  --json F          JSON to F ('-': standard output, and no table)\n"
    "  -q, -v            quiet (no table); verbose (all sums, and all ways to write them)\n"
    "\n"
    "The family, S parts and tiles of T terms:\n"
    "  leaves            fma, mul-add (where products are not exact), every tensor-core\n"
    "                    instruction that takes the operands as they are stored, tf32, and bf16\n"
    "                    where they are wider; an exact dot, rounded once\n"
    "  one level         runs, even and deal, S 2 to 64 and 72 80 96 112 128 132 144 160 192 256\n"
    "                    512 1024, T 1 2 4 ... 512; every:T, promote:T, T 2 4 ... 1024;\n"
    "                    added in order, by halves, pairs, in reverse\n"
    "  two levels        lanes, 2 to 32 of 1 2 4 8 terms, or every:2 ... 256, within runs, even,\n"
    "                    deal and every, S up to 512\n"
    "  three levels      accumulators, lanes and warps; lanes, warps and slices\n"
    "  logits            fp32, bf16 and fp16, as the observed values allow\n"
    "in all some 600,000 lines at 4096 terms; ref/arith/identify_family.h has it in full.\n"
    "\n"
    "Exit status: 0 all identified, 1 a recording is unidentified.\n"
    "\n"
    "example: moeref identify cases/cublas-h200.json --phase m96\n";

enum {
    OPT_CONFIG = 256, OPT_GATE, OPT_GATE_BIAS, OPT_HIDDEN, OPT_LOGITS, OPT_LAYERS, OPT_PHASE,
    OPT_CAPTURE, OPT_LAYER, OPT_THREADS, OPT_JSON
};

static const struct option long_options[] = {
    {"config", required_argument, NULL, OPT_CONFIG},
    {"gate", required_argument, NULL, OPT_GATE},
    {"gate-bias", required_argument, NULL, OPT_GATE_BIAS},
    {"hidden", required_argument, NULL, OPT_HIDDEN},
    {"logits", required_argument, NULL, OPT_LOGITS},
    {"layers", required_argument, NULL, OPT_LAYERS},
    {"phase", required_argument, NULL, OPT_PHASE},
    {"capture", required_argument, NULL, OPT_CAPTURE},
    {"layer", required_argument, NULL, OPT_LAYER},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"json", required_argument, NULL, OPT_JSON},
    {0}};

struct arguments {
    struct mr_case_files files;
    struct mr_case_options options;
    struct identify_request request;
    const char *case_path, *json;
    bool quiet, verbose;
    char one_layer[16];
    char resolved[PATH_MAX]; /* of an output that is a link */
};

static void parse(int argc, char **argv, struct arguments *a)
{
    struct identify_request *q = &a->request;
    int c;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":qv", long_options, NULL)) != -1) {
        switch (c) {
        case 'q': a->quiet = true; break;
        case 'v': a->verbose = true; break;
        case OPT_CONFIG: a->files.config = optarg; break;
        case OPT_GATE: a->files.gate = optarg; break;
        case OPT_GATE_BIAS: a->files.gate_bias = optarg; break;
        case OPT_HIDDEN: a->files.hidden = optarg; break;
        case OPT_LOGITS: a->files.observed_logits = optarg; break;
        case OPT_LAYERS: check_layers(q->layers = optarg); break;
        case OPT_PHASE: q->phase = optarg; break;
        case OPT_CAPTURE: a->options.capture = optarg; break;
        case OPT_LAYER: a->files.layer = (int)option_number("--layer", optarg, 0, 1 << 20); break;
        case OPT_THREADS: q->threads = (int)option_number("--threads", optarg, 1, 1024); break;
        case OPT_JSON: a->json = optarg; break;
        default: bad_option("identify", c, argv, optind);
        }
    }
}

/* What would be ignored is refused. */
static void check_arguments(int argc, char **argv, struct arguments *a)
{
    const struct mr_case_files *f = &a->files;
    a->case_path = logits_case_path("identify", f, argc, argv);
    bool plain = !a->case_path;
    if (plain && (a->options.capture || a->request.layers))
        die(2, "identify: %s belongs to a CASE", a->options.capture ? "--capture" : "--layers");
    if (!plain && f->gate_bias)
        die(2, "identify: --gate-bias belongs to plain files, not to a CASE");
    if (!plain && f->layer >= 0) {
        if (a->request.layers) die(2, "identify: --layer and --layers exclude each other");
        snprintf(a->one_layer, sizeof a->one_layer, "%d", f->layer);
        a->request.layers = a->one_layer;
    }
    if (a->json && strcmp(a->json, "-")) a->json = output_path("--json", a->json, a->resolved);
}

struct outputs {
    const struct arguments *arguments;
    struct identify_json json;
    bool table, begun;
};

static void put(void *context, const struct recording *r)
{
    struct outputs *out = context;
    if (out->arguments->json) identify_json_add(&out->json, r);
    if (out->table && !out->begun) print_identify_head(out->arguments->request.c);
    if (out->table) print_recording(r, out->arguments->verbose);
    out->begun = true;
}

int cmd_identify(int argc, char **argv)
{
    struct arguments a = {.files = {.layer = -1}, .options = {.seed = -1}};
    parse(argc, argv, &a);
    check_arguments(argc, argv, &a);
    a.request.progress = isatty(STDERR_FILENO) && !a.quiet;
    a.request.c = open_case("identify", a.case_path, &a.files, &a.options);
    struct outputs out = {.arguments = &a};
    struct identify_report report;
    out.table = !a.quiet && !(a.json && !strcmp(a.json, "-"));
    identify_check(&a.request);
    if (a.json) identify_json_begin(&out.json);
    identify_all(&a.request, put, &out, &report);
    if (out.table) print_identify_end(&report);
    if (a.json) identify_json_end(&out.json, &report, a.json);
    mr_case_free(a.request.c);
    return report.unidentified != 0;
}
