/* moeref verify CASE: options, then verify_run.c, then the outputs. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../ref/io/report.h"
#include "case_arguments.h"
#include "commands.h"
#include "common.h"
#include "verify_profile.h"
#include "verify_run.h"

const char help_verify[] =
    "usage: moeref verify CASE [--observed F]... [options]\n"
    "       moeref verify --config F --gate F[:TENSOR] [--bias F[:TENSOR]]\n"
    "                     [--gate-bias F[:TENSOR]]\n"
    "                     --hidden F[:TENSOR] | --logits F[:TENSOR]\n"
    "                     --ids F[:TENSOR] [--weights F[:TENSOR]] | --observed F... [options]\n"
    "\n"
    "The judge: were the experts and weights that a kernel gave right, forced by rounding, or\n"
    "wrong? For each row the worst of: malformed (no set of experts, or weights out of place),\n"
    "nonfinite, wrong (further off than any rounding explains), undecided, rounding (another set,\n"
    "every pair within its radii), tie, exact.\n"
    "\n"
    "  --observed F      safetensors with PHASE.model.layers.N.mlp.topk_ids, topk_weights,\n"
    "                    gate.logits, gate.token_index (any subset); repeatable. Default: the\n"
    "                    case's own capture. Without ids the logits are judged, which is slow\n"
    "  --arith A         what may round (bf16-logits+bf16-weights, see 'moeref help route'), of all\n"
    "                    files. Default: what a file says of itself, in its metadata key\n"
    "                    'arithmetic' (empty: nothing is declared); without the key the case's,\n"
    "                    else fp32. Where no sum is declared: the larger radius of any fp32 order\n"
    "                    and a tensor-core chain\n"
    "  --profile P       an engine's promises: is the order of the ids one? (default: the case's,\n"
    "                    else none, and any order is right)\n"
    "  --num-token-non-padded N  rows from N on are padding: their ids must be -1\n"
    "  --from logits     start from the case's observed logits: judges the top-k alone\n"
    "  --strict          exit 1 for rounding and undecided, too\n"
    "  --layers L        only these, as in 1,3-5\n"
    "  --phase P         only this phase of the case\n"
    "  --capture F       read the captured tensors from F instead of the case's files\n"
    "  --seed N          seed of a generated case\n"
    "  --layer N         with plain files: the layer whose default tensor names to look for\n"
    "  --gate-bias F     with plain files: linear bias of the gate, part of the logits (gpt-oss).\n"
    "                    Default, as for --bias: the tensor of that name beside the gate weight\n"
    "  --no-blas         every logit exact, no BLAS: slow\n"
    "  --threads N       same bytes for every N (default: as many as there are processors)\n"
    "  --json F          JSON to F ('-': standard output, and no table)\n"
    "  --junit F         JUnit XML to F (or '-')\n"
    "  --tap F           TAP to F (or '-')\n"
    "  -q, -v            quiet (no table); verbose (all findings, and the power to detect)\n"
    "\n"
    "Exit status: 0 nothing worse than undecided, 1 a row is wrong, malformed or nonfinite.\n"
    "\n"
    "example: moeref verify cases/qwen3moe-tiny.json --layers 0\n";

enum {
    OPT_CONFIG = 256, OPT_GATE, OPT_BIAS, OPT_GATE_BIAS, OPT_HIDDEN, OPT_LOGITS, OPT_IDS,
    OPT_WEIGHTS, OPT_OBSERVED, OPT_ARITH, OPT_PROFILE, OPT_PADDED, OPT_FROM, OPT_STRICT, OPT_LAYERS,
    OPT_PHASE, OPT_CAPTURE, OPT_SEED, OPT_LAYER, OPT_NO_BLAS, OPT_THREADS, OPT_JSON, OPT_JUNIT,
    OPT_TAP
};

static const struct option long_options[] = {
    {"config", required_argument, NULL, OPT_CONFIG},
    {"gate", required_argument, NULL, OPT_GATE},
    {"bias", required_argument, NULL, OPT_BIAS},
    {"gate-bias", required_argument, NULL, OPT_GATE_BIAS},
    {"hidden", required_argument, NULL, OPT_HIDDEN},
    {"logits", required_argument, NULL, OPT_LOGITS},
    {"ids", required_argument, NULL, OPT_IDS},
    {"weights", required_argument, NULL, OPT_WEIGHTS},
    {"observed", required_argument, NULL, OPT_OBSERVED},
    {"arith", required_argument, NULL, OPT_ARITH},
    {"profile", required_argument, NULL, OPT_PROFILE},
    {"num-token-non-padded", required_argument, NULL, OPT_PADDED},
    {"from", required_argument, NULL, OPT_FROM},
    {"strict", no_argument, NULL, OPT_STRICT},
    {"layers", required_argument, NULL, OPT_LAYERS},
    {"phase", required_argument, NULL, OPT_PHASE},
    {"capture", required_argument, NULL, OPT_CAPTURE},
    {"seed", required_argument, NULL, OPT_SEED},
    {"layer", required_argument, NULL, OPT_LAYER},
    {"no-blas", no_argument, NULL, OPT_NO_BLAS},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"json", required_argument, NULL, OPT_JSON},
    {"junit", required_argument, NULL, OPT_JUNIT},
    {"tap", required_argument, NULL, OPT_TAP},
    {0}};

enum { OUT_JSON, OUT_JUNIT, OUT_TAP, OUTPUTS };
static const char *const output_names[OUTPUTS] = {"--json", "--junit", "--tap"};

struct arguments {
    struct mr_case_files files;
    struct mr_case_options options;
    struct verify_request request;
    const char **observed; /* [argc] */
    const char *case_path, *out[OUTPUTS];
    bool quiet, verbose;
    char resolved[OUTPUTS][PATH_MAX]; /* of outputs that are links */
};

/* An arithmetic is one value; a second would silently replace the first. */
static void set_once(const char *option, const char **to, const char *value)
{
    if (*to) die(2, "verify: %s twice", option);
    *to = value;
}

static void parse(int argc, char **argv, struct arguments *a)
{
    struct verify_request *q = &a->request;
    int c;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":qv", long_options, NULL)) != -1) {
        switch (c) {
        case 'q': a->quiet = true; break;
        case 'v': a->verbose = true; break;
        case OPT_CONFIG: a->files.config = optarg; break;
        case OPT_GATE: a->files.gate = optarg; break;
        case OPT_BIAS: a->files.bias = optarg; break;
        case OPT_GATE_BIAS: a->files.gate_bias = optarg; break;
        case OPT_HIDDEN: a->files.hidden = optarg; break;
        case OPT_LOGITS: a->files.logits = optarg; break;
        case OPT_IDS: a->files.ids = optarg; break;
        case OPT_WEIGHTS: a->files.weights = optarg; break;
        case OPT_OBSERVED: a->observed[q->observed_count++] = optarg; break;
        case OPT_ARITH: set_once("--arith", &q->arith, optarg); break;
        case OPT_PROFILE: set_once("--profile", &q->profile, optarg); break;
        case OPT_PADDED:
            q->non_padded = (uint64_t)option_number("--num-token-non-padded", optarg, 0, LONG_MAX);
            break;
        case OPT_FROM:
            if (strcmp(optarg, "logits")) die(2, "--from %s: only 'logits' is known", optarg);
            q->from_logits = true;
            break;
        case OPT_STRICT: q->strict = true; break;
        case OPT_LAYERS: check_layers(q->layers = optarg); break;
        case OPT_PHASE: q->phase = optarg; break;
        case OPT_CAPTURE: a->options.capture = optarg; break;
        case OPT_SEED: a->options.seed = option_number("--seed", optarg, 0, 2147483647); break;
        case OPT_LAYER: a->files.layer = (int)option_number("--layer", optarg, 0, 1 << 20); break;
        case OPT_NO_BLAS: q->without_blas = true; break;
        case OPT_THREADS: q->threads = (int)option_number("--threads", optarg, 1, 1024); break;
        case OPT_JSON: a->out[OUT_JSON] = optarg; break;
        case OPT_JUNIT: a->out[OUT_JUNIT] = optarg; break;
        case OPT_TAP: a->out[OUT_TAP] = optarg; break;
        default: bad_option("verify", c, argv, optind);
        }
    }
    bool plain = a->files.config || a->files.gate || a->files.hidden || a->files.logits;
    if (argc - optind > 1 || (argc - optind == 1) == plain)
        die(2, "verify: expected one CASE, or plain files by --config and --hidden or --logits "
               "(see 'moeref help verify')");
    a->case_path = plain ? NULL : argv[optind];
}

/* What would be ignored, or would overwrite itself, is refused. */
static void check_arguments(struct arguments *a)
{
    const struct mr_case_files *f = &a->files;
    if (a->case_path && (f->bias || f->gate_bias || f->ids || f->weights || f->layer >= 0))
        die(2, "verify: %s belongs to plain files, not to a CASE",
            f->bias ? "--bias" : f->gate_bias ? "--gate-bias"
            : f->ids ? "--ids (--observed is a CASE's)" : f->weights ? "--weights"
            : "--layer (--layers chooses)");
    if (!a->case_path && (a->options.capture || a->options.seed >= 0))
        die(2, "verify: --capture and --seed belong to a CASE");
    if (f->ids && a->request.observed_count)
        die(2, "verify: --ids and --observed exclude each other");
    if (f->weights && !f->ids) die(2, "verify: --weights needs --ids");
    for (int i = 0; i < OUTPUTS; i++) {
        if (!a->out[i]) continue;
        if (strcmp(a->out[i], "-"))
            a->out[i] = output_path(output_names[i], a->out[i], a->resolved[i]);
        for (int j = 0; j < i; j++)
            if (a->out[j] && !strcmp(a->out[i], a->out[j]))
                die(2, "verify: %s and %s both go to %s", output_names[j], output_names[i],
                    a->out[i]);
    }
}

/* What the case says where the arguments do not. */
static void take_from_case(struct arguments *a)
{
    const struct mr_case *c = a->request.c;
    a->request.case_arith = mr_case_arith(c);
    if (!a->request.profile) a->request.profile = mr_case_profile(c);
    if (a->request.profile)
        a->request.ordered = profile_promises_order(a->request.profile, mr_case_router(c));
}

/* To PATH.tmp.PID first, then renamed: a broken run leaves what was there before. */
static void write_text(const struct mr_verify_report *report, const char *path,
                       enum mr_status (*write)(const struct mr_verify_report *, FILE *))
{
    bool console = !strcmp(path, "-");
    char temporary[PATH_MAX + 32];
    int n = snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof temporary) die(3, "%s: path too long", path);
    FILE *f = console ? stdout : fopen(temporary, "w");
    if (!f) die(3, "%s: cannot create: %m", path);
    bool bad = write(report, f) != MR_OK;
    if (!console) bad |= fclose(f) != 0;
    if (bad || (!console && rename(temporary, path))) {
        int why = errno;
        if (!console) unlink(temporary);
        die(3, "%s: cannot write: %s", console ? "standard output" : path, strerror(why));
    }
}

static void write_json(const struct mr_verify_report *report, const char *path)
{
    struct mr_error err = {{0}};
    json_t *doc = mr_verify_json(report);
    enum mr_status status = mr_json_write(doc, path, &err);
    json_decref(doc);
    if (status) die_of(status, &err);
}

int cmd_verify(int argc, char **argv)
{
    struct arguments a = {.files = {.layer = -1}, .options = {.seed = -1},
                          .request = {.non_padded = UINT64_MAX}};
    a.request.observed = a.observed = need((size_t)argc, sizeof *a.observed);
    parse(argc, argv, &a);
    check_arguments(&a);
    a.request.power = a.verbose;
    a.request.progress = isatty(STDERR_FILENO) && !a.quiet;
    a.request.c = open_case("verify", a.case_path, &a.files, &a.options);
    take_from_case(&a);
    struct mr_verify_report report;
    verify_all(&a.request, &report);
    bool console = false;
    for (int i = 0; i < OUTPUTS; i++) console |= a.out[i] && !strcmp(a.out[i], "-");
    if (a.out[OUT_JSON]) write_json(&report, a.out[OUT_JSON]);
    if (a.out[OUT_JUNIT]) write_text(&report, a.out[OUT_JUNIT], mr_verify_junit);
    if (a.out[OUT_TAP]) write_text(&report, a.out[OUT_TAP], mr_verify_tap);
    if (!console && !a.quiet) print_verify(a.request.c, &report, a.verbose);
    bool failed = mr_tally_failures(&report.total, report.strict) != 0;
    verify_free(&report);
    mr_case_free(a.request.c);
    free(a.observed);
    return failed;
}
