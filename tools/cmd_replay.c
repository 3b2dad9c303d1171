/* moeref replay CASE: options, then replay_run.c, then the outputs. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../ref/io/report.h"
#include "case_arguments.h"
#include "commands.h"
#include "common.h"
#include "replay_run.h"

const char help_replay[] =
    "usage: moeref replay CASE [--arith A]... [options]\n"
    "       moeref replay --config F --gate F[:TENSOR] [--gate-bias F[:TENSOR]]\n"
    "                     --hidden F[:TENSOR] --logits F[:TENSOR] --arith A... [options]\n"
    "       moeref replay --vectors F [--json F] [-q]\n"
    "\n"
    "Computes the logits of a case again under an arithmetic, every rounding in its place, and\n"
    "compares them with the observed ones bit for bit. An arithmetic is one line: how the sum is\n"
    "made (fma/deal:6x8, hopper-bf16/runs:3x64), and what is rounded before and after\n"
    "(bf16-hidden, bf16-gate, bf16-logits, fp16-logits), joined by '+'. See docs/arithmetic.md.\n"
    "\n"
    "  --arith A         the line (repeatable: each gets rows of its own). Default: the case's\n"
    "                    \"replay\" (one, or one a phase), else its \"arith\" if that has a sum\n"
    "  --vectors F       instead: single tensor-core steps recorded on GPUs, in safetensors of\n"
    "                    GPU.FORMAT.a, b (F32 or the format's own type), c, d_fp32, d_fp16 (F32;\n"
    "                    see data/tensor-core)\n"
    "  --layers L        only these, as in 1,3-5\n"
    "  --phase P         only this phase of the case\n"
    "  --capture F       read the captured tensors from F instead of the case's files\n"
    "  --layer N         with plain files: the layer whose default tensor names to look for\n"
    "  --threads N       same bytes for every N (default: as many as there are processors)\n"
    "  --json F          JSON to F ('-': standard output, and no table)\n"
    "  -q                quiet: no table\n"
    "\n"
    "Compared are the values' binary32 words: -0 is not +0; NaN matches NaN whatever its payload,\n"
    "and is counted. Distances are in ulps of the logits' type. Observed logits may be of fewer\n"
    "rows than there are tokens: they are those of the first tokens.\n"
    "\n"
    "Exit status: 0 every bit the same, 1 a mismatch.\n"
    "\n"
    "example: moeref replay cases/cublas-h200.json\n"
    "         moeref replay cases/cublas-h200.json --phase m512 --arith hopper-bf16/runs:3x64\n"
    "         moeref replay --vectors data/tensor-core/vectors.safetensors\n";

enum {
    OPT_CONFIG = 256, OPT_GATE, OPT_GATE_BIAS, OPT_HIDDEN, OPT_LOGITS, OPT_ARITH, OPT_LAYERS,
    OPT_PHASE, OPT_CAPTURE, OPT_LAYER, OPT_THREADS, OPT_JSON, OPT_VECTORS
};

static const struct option long_options[] = {
    {"config", required_argument, NULL, OPT_CONFIG},
    {"gate", required_argument, NULL, OPT_GATE},
    {"gate-bias", required_argument, NULL, OPT_GATE_BIAS},
    {"hidden", required_argument, NULL, OPT_HIDDEN},
    {"logits", required_argument, NULL, OPT_LOGITS},
    {"arith", required_argument, NULL, OPT_ARITH},
    {"layers", required_argument, NULL, OPT_LAYERS},
    {"phase", required_argument, NULL, OPT_PHASE},
    {"capture", required_argument, NULL, OPT_CAPTURE},
    {"layer", required_argument, NULL, OPT_LAYER},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"json", required_argument, NULL, OPT_JSON},
    {"vectors", required_argument, NULL, OPT_VECTORS},
    {0}};

struct arguments {
    struct mr_case_files files;
    struct mr_case_options options;
    struct replay_request request;
    const char **arith; /* [argc] */
    const char *case_path, *json, *vectors;
    bool quiet;
    char resolved[PATH_MAX]; /* of an output that is a link */
};

static void parse(int argc, char **argv, struct arguments *a)
{
    struct replay_request *q = &a->request;
    int c;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":q", long_options, NULL)) != -1) {
        switch (c) {
        case 'q': a->quiet = true; break;
        case OPT_CONFIG: a->files.config = optarg; break;
        case OPT_GATE: a->files.gate = optarg; break;
        case OPT_GATE_BIAS: a->files.gate_bias = optarg; break;
        case OPT_HIDDEN: a->files.hidden = optarg; break;
        case OPT_LOGITS: a->files.observed_logits = optarg; break;
        case OPT_ARITH: a->arith[q->arith_count++] = optarg; break;
        case OPT_LAYERS: check_layers(q->layers = optarg); break;
        case OPT_PHASE: q->phase = optarg; break;
        case OPT_CAPTURE: a->options.capture = optarg; break;
        case OPT_LAYER: a->files.layer = (int)option_number("--layer", optarg, 0, 1 << 20); break;
        case OPT_THREADS: q->threads = (int)option_number("--threads", optarg, 1, 1024); break;
        case OPT_JSON: a->json = optarg; break;
        case OPT_VECTORS: a->vectors = optarg; break;
        default: bad_option("replay", c, argv, optind);
        }
    }
}

/* What would be ignored is refused. */
static void check_arguments(int argc, char **argv, struct arguments *a)
{
    const struct mr_case_files *f = &a->files;
    const struct replay_request *q = &a->request;
    bool plain = f->config || f->gate || f->hidden || f->observed_logits;
    if (a->json && strcmp(a->json, "-")) a->json = output_path("--json", a->json, a->resolved);
    if (a->vectors) {
        if (argc != optind || plain || f->gate_bias || f->layer >= 0 || q->arith_count ||
            q->layers || q->phase || q->threads || a->options.capture)
            die(2, "replay: --vectors goes with --json and -q only: its names say which "
                   "instruction made what");
        return;
    }
    a->case_path = logits_case_path("replay", f, argc, argv);
    if (plain && a->options.capture) die(2, "replay: --capture belongs to a CASE");
    if (plain && !q->arith_count) die(2, "replay: plain files need --arith A");
    if (!plain && (f->gate_bias || f->layer >= 0))
        die(2, "replay: %s belongs to plain files, not to a CASE",
            f->gate_bias ? "--gate-bias" : "--layer (--layers chooses)");
}

static void write_json(const struct mr_replay_report *report, const char *path)
{
    struct mr_error err = {{0}};
    json_t *doc = mr_replay_json(report);
    if (!doc) die(4, "out of memory");
    enum mr_status status = mr_json_write(doc, path, &err);
    json_decref(doc);
    if (status) die_of(status, &err);
}

int cmd_replay(int argc, char **argv)
{
    struct arguments a = {.files = {.layer = -1}, .options = {.seed = -1}};
    a.request.arith = a.arith = need((size_t)argc, sizeof *a.arith);
    parse(argc, argv, &a);
    check_arguments(argc, argv, &a);
    a.request.progress = isatty(STDERR_FILENO) && !a.quiet;
    struct mr_replay_report report;
    if (a.vectors) {
        replay_vectors(a.vectors, &report);
    } else {
        a.request.c = open_case("replay", a.case_path, &a.files, &a.options);
        replay_all(&a.request, &report);
    }
    if (a.json) write_json(&report, a.json);
    if (!a.quiet && !(a.json && !strcmp(a.json, "-"))) print_replay(a.request.c, &report);
    bool failed = report.total.mismatches != 0;
    free(report.group);
    mr_case_free(a.request.c);
    free(a.arith);
    return failed;
}
