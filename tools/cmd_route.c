/* moeref route CASE: options, then route_run.c, then the outputs. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "case_arguments.h"
#include "commands.h"
#include "common.h"
#include "profiles_run.h"
#include "route_run.h"

const char help_route[] =
    "usage: moeref route CASE [options]\n"
    "       moeref route --config F --gate F[:TENSOR] [--bias F[:TENSOR]]\n"
    "                    [--gate-bias F[:TENSOR]]\n"
    "                    --hidden F[:TENSOR] | --logits F[:TENSOR] [options]\n"
    "\n"
    "Certified routing: for every token the experts that it must go to, proven, the gap at the cut\n"
    "between the last selected and the first rejected key, and how many tokens change experts when\n"
    "logits or bias are rounded.\n"
    "\n"
    "  --layers L        only these, as in 1,3-5\n"
    "  --phase P         only this phase of the case\n"
    "  --arith A         emulate this arithmetic (repeatable): fp32, bf16-logits, fp16-logits,\n"
    "                    bf16-scores, bf16-bias, bf16-weights, joined by '+'; or none\n"
    "                    (default: fp32, bf16-logits, bf16-bias, bf16-logits+bf16-bias)\n"
    "  --from logits     start from the case's observed logits, taken as exact\n"
    "  --capture F       read the captured tensors from F instead of the case's files\n"
    "  --seed N          seed of a generated case\n"
    "  --layer N         with plain files: the layer whose default tensor names to look for\n"
    "  --gate-bias F     with plain files: linear bias of the gate, part of the logits (gpt-oss).\n"
    "                    Default, as for --bias: the tensor of that name beside the gate weight\n"
    "  --exact-weights   weights correctly rounded through MPFR (default: within 4 ulp)\n"
    "  --no-blas         every logit exact, no BLAS: slow\n"
    "  --threads N       same bytes for every N (default: as many as there are processors)\n"
    "  --json F          JSON to F ('-': standard output, and no table)\n"
    "  --csv F           CSV to F (or '-'): a line for each layer, phase and arithmetic, then\n"
    "                    for each arithmetic in total (layer and phase empty)\n"
    "  --tokens F        safetensors: topk_ids, topk_weights, gap, gap_radius and certificate\n"
    "                    (0 bound, 1 exact, 2 mpfr, 3 tie, 4 undecided, 5 nonfinite) of every\n"
    "                    token\n"
    "  --profiles        instead: what engines' profiles (see 'moeref profiles') choose, where they\n"
    "                    part from the certified sets and from each other, and why; with --json\n"
    "  -q, -v            quiet (no table); verbose (BLAS checks, exact dots)\n"
    "\n"
    "CASE is a JSON file that says which inputs belong together (see cases/). In the table\n"
    "'certified by' is what it took to prove a token's experts, 'gap' the distance at the cut.\n"
    "\n"
    "example: moeref route cases/glm4moe-tiny.json --layers 3 --arith bf16-logits\n";

enum {
    OPT_CONFIG = 256, OPT_GATE, OPT_BIAS, OPT_GATE_BIAS, OPT_HIDDEN, OPT_LOGITS, OPT_LAYERS,
    OPT_PHASE, OPT_ARITH, OPT_FROM, OPT_CAPTURE, OPT_SEED, OPT_LAYER, OPT_EXACT, OPT_NO_BLAS,
    OPT_THREADS, OPT_JSON, OPT_CSV, OPT_TOKENS, OPT_PROFILES
};

struct arguments {
    struct mr_case_files files;
    struct mr_case_options options;
    struct route_request request;
    struct mr_arith arith[64];
    const char *arith_line[64];
    bool arith_given, quiet, verbose, profiles;
    const char *json, *csv, *case_path;
    char resolved[3][PATH_MAX]; /* of outputs that are links */
};

static const struct option long_options[] = {
    {"config", required_argument, NULL, OPT_CONFIG},
    {"gate", required_argument, NULL, OPT_GATE},
    {"bias", required_argument, NULL, OPT_BIAS},
    {"gate-bias", required_argument, NULL, OPT_GATE_BIAS},
    {"hidden", required_argument, NULL, OPT_HIDDEN},
    {"logits", required_argument, NULL, OPT_LOGITS},
    {"layers", required_argument, NULL, OPT_LAYERS},
    {"phase", required_argument, NULL, OPT_PHASE},
    {"arith", required_argument, NULL, OPT_ARITH},
    {"from", required_argument, NULL, OPT_FROM},
    {"capture", required_argument, NULL, OPT_CAPTURE},
    {"seed", required_argument, NULL, OPT_SEED},
    {"layer", required_argument, NULL, OPT_LAYER},
    {"exact-weights", no_argument, NULL, OPT_EXACT},
    {"no-blas", no_argument, NULL, OPT_NO_BLAS},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"json", required_argument, NULL, OPT_JSON},
    {"csv", required_argument, NULL, OPT_CSV},
    {"tokens", required_argument, NULL, OPT_TOKENS},
    {"profiles", no_argument, NULL, OPT_PROFILES},
    {0}};

static void add_arith(struct arguments *a, const char *line)
{
    struct mr_error err = {{0}};
    a->arith_given = true;
    if (!strcmp(line, "none")) return;
    if (a->request.arith_count == sizeof a->arith / sizeof *a->arith)
        die(2, "route: more than %zu arithmetics", sizeof a->arith / sizeof *a->arith);
    enum mr_status status = mr_arith_parse(line, &a->arith[a->request.arith_count], &err);
    if (status) die_of(status, &err);
    a->arith_line[a->request.arith_count++] = line;
}

static void parse(int argc, char **argv, struct arguments *a)
{
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
        case OPT_LAYERS: check_layers(a->request.layers = optarg); break;
        case OPT_PHASE: a->request.phase = optarg; break;
        case OPT_ARITH: add_arith(a, optarg); break;
        case OPT_FROM:
            if (strcmp(optarg, "logits")) die(2, "--from %s: only 'logits' is known", optarg);
            a->request.from_logits = true;
            break;
        case OPT_CAPTURE: a->options.capture = optarg; break;
        case OPT_SEED: a->options.seed = option_number("--seed", optarg, 0, 2147483647); break;
        case OPT_LAYER: a->files.layer = (int)option_number("--layer", optarg, 0, 1 << 20); break;
        case OPT_EXACT: a->request.exact_weights = true; break;
        case OPT_NO_BLAS: a->request.without_blas = true; break;
        case OPT_THREADS:
            a->request.threads = (int)option_number("--threads", optarg, 1, 1024);
            break;
        case OPT_JSON: a->json = optarg; break;
        case OPT_CSV: a->csv = optarg; break;
        case OPT_TOKENS: a->request.tokens = optarg; break;
        case OPT_PROFILES: a->profiles = true; break;
        default: bad_option("route", c, argv, optind);
        }
    }
    bool plain = a->files.config || a->files.gate || a->files.hidden || a->files.logits;
    if (argc - optind > 1 || (argc - optind == 1) == plain)
        die(2, "route: expected one CASE, or plain files by --config and --hidden or --logits (see "
               "'moeref help route')");
    a->case_path = plain ? NULL : argv[optind];
}

/* What would be ignored, or would overwrite itself, is refused. */
static void check_arguments(struct arguments *a)
{
    const struct mr_case_files *f = &a->files;
    if (a->case_path && (f->bias || f->gate_bias || f->layer >= 0))
        die(2, "route: %s belongs to plain files, not to a CASE",
            f->bias ? "--bias" : f->gate_bias ? "--gate-bias" : "--layer (--layers chooses)");
    if (!a->case_path && (a->options.capture || a->options.seed >= 0))
        die(2, "route: --capture and --seed belong to a CASE");
    if (a->profiles && (a->request.tokens || a->csv || a->arith_given))
        die(2, "route: --profiles goes without --tokens, --csv and --arith");
    if (a->request.tokens && !strcmp(a->request.tokens, "-"))
        die(2, "route: --tokens -: expected a file, not standard output");
    static const char *const names[] = {"--tokens", "--csv", "--json"};
    const char **paths[] = {&a->request.tokens, &a->csv, &a->json};
    for (int i = 0; i < 3; i++) {
        if (!*paths[i]) continue;
        if (strcmp(*paths[i], "-")) *paths[i] = output_path(names[i], *paths[i], a->resolved[i]);
        for (int j = 0; j < i; j++)
            if (*paths[j] && !strcmp(*paths[i], *paths[j]))
                die(2, "route: %s and %s both go to %s", names[j], names[i], *paths[i]);
    }
}

static void write_csv(const struct mr_report *report, const char *path)
{
    bool console = !strcmp(path, "-");
    char temporary[4096];
    int n = snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof temporary) die(3, "%s: path too long", path);
    FILE *f = console ? stdout : fopen(temporary, "w");
    if (!f) die(3, "%s: cannot create: %m", path);
    bool bad = mr_report_csv(report, f) != MR_OK;
    if (!console) bad |= fclose(f) != 0;
    if (bad || (!console && rename(temporary, path))) {
        int why = errno;
        if (!console) unlink(temporary);
        die(3, "%s: cannot write CSV: %s", console ? "standard output" : path, strerror(why));
    }
}

static int run_profiles(const struct arguments *a)
{
    struct profiles_outcome out = {0};
    struct mr_error err = {{0}};
    profiles_all(&a->request, &out);
    if (a->json) {
        json_t *doc = profiles_json(&out);
        if (!doc) die(4, "out of memory");
        enum mr_status status = mr_json_write(doc, a->json, &err);
        json_decref(doc);
        if (status) die_of(status, &err);
    }
    if (!a->quiet && !(a->json && !strcmp(a->json, "-"))) profiles_print(&out, a->verbose);
    profiles_free(&out);
    mr_case_free(a->request.c);
    return 0;
}

int cmd_route(int argc, char **argv)
{
    struct arguments a = {.files = {.layer = -1}, .options = {.seed = -1}};
    struct mr_error err = {{0}};
    parse(argc, argv, &a);
    check_arguments(&a);
    static const char *const defaults[] = {"fp32", "bf16-logits", "bf16-bias",
                                           "bf16-logits+bf16-bias"};
    if (!a.arith_given)
        for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) add_arith(&a, defaults[i]);
    a.request.arith = a.arith;
    a.request.arith_line = a.arith_line;
    a.request.progress = isatty(STDERR_FILENO) && !a.quiet;
    a.request.c = open_case("route", a.case_path, &a.files, &a.options);
    if (a.profiles) return run_profiles(&a);
    struct route_outcome out = {0};
    route_all(&a.request, &out);
    if (a.csv) write_csv(&out.report, a.csv);
    bool console = (a.json && !strcmp(a.json, "-")) || (a.csv && !strcmp(a.csv, "-"));
    if (a.json) {
        json_t *doc = mr_report_json(&out.report);
        enum mr_status status = mr_json_write(doc, a.json, &err);
        json_decref(doc);
        if (status) die_of(status, &err);
    }
    if (!console && !a.quiet)
        print_outcome(a.request.c, &out, a.request.from_logits, a.verbose);
    route_outcome_free(&out);
    mr_case_free(a.request.c);
    return 0;
}
